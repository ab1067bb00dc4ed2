"""The state of an operator as rows: what a kernel exports and takes in (`_core/ground/kernel.pxd`, f).

The rows are canonical: they depend on the tuples that came, not on workers, buckets, partitioning,
neighbours or on how the core stores a key. First come the key columns, in the key's order, then the
operator's own; for an operator without a key there is one row at most. Names may repeat (a key column called
"count"): the position says which column is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.operators.aggregation import BoundAggregation
from ordstream.operators.operator import Operator


def state_rows(operator: Operator, own: Iterable[pa.Field]) -> pa.Schema:
    """The key columns, then an operator's own, in the types in which the core hands batches over."""
    from ordstream._core.ground.arrow import core_schema  # compiled, and so not needed before a run

    schema: pa.Schema = core_schema(
        pa.schema([*(operator.input.field(index) for index in operator.key), *own])
    )
    return schema


def accumulator_fields(operator: Operator, aggregates: Sequence[BoundAggregation]) -> list[pa.Field]:
    """One column per aggregation, null where there is no value yet; of a mean the sum and the count, of
    a count 0.
    """
    names = operator.output.names[len(operator.output) - len(aggregates) :]
    fields = []
    for name, (function, column, _) in zip(names, aggregates, strict=True):
        type_ = pa.int64() if column is None else operator.input.field(column).type
        sums = pa.float64() if pat.is_floating(type_) else pa.int64()
        if function == "mean":
            fields += [pa.field(f"{name}.sum", sums), pa.field(f"{name}.count", pa.int64())]
        else:
            fields.append(pa.field(name, {"count": pa.int64(), "sum": sums}.get(function, type_)))
    return fields


def check_state(operator: Operator, found: pa.Schema) -> None:
    """Check that rows of a schema are state of an operator.

    Raises
    ------
    PlanError
        Its state can't be exported yet.
    SchemaError
        Names the first difference.
    """
    wanted = operator.state_schema() or pa.schema([])
    where = f"operator {operator.name!r} ({operator.op}): this is not its state:"
    for index, (a, b) in enumerate(zip(wanted, found, strict=False)):
        if a.name != b.name:
            raise SchemaError(f"{where} column {index} is {b.name!r}, not {a.name!r}")
        if not a.type.equals(b.type):
            raise SchemaError(f"{where} column {b.name!r} is {b.type}, not {a.type}")
    if len(wanted) != len(found):
        missing = [field.name for field in list(wanted)[len(found) :]]
        more = [field.name for field in list(found)[len(wanted) :]]
        raise SchemaError(
            f"{where} {f'columns {missing} are missing' if missing else f'columns {more} are too many'}"
        )

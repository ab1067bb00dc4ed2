"""What the state of an operator looks like as rows: the schema of what a kernel exports and takes in
(`_core/kernel.pxd`, f).

The rows of an operator are canonical: they depend on the tuples that came, not on workers, buckets,
partitioning, neighbours or on how the core stores a key. First come the key columns, in the key's order,
then the operator's own; for an operator without a key there is one row at most. Names may repeat (a key
column called "count"): the position says which column is which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError

if TYPE_CHECKING:
    from ordstream.plan import Stage


def state_schema(stage: Stage) -> pa.Schema | None:
    """Schema of a row of a stage's state; None: it has no state, or none that can be exported yet.

    Its types are those in which the core hands batches over (`_core.arrow.core_schema`).
    """
    columns = _COLUMNS.get(stage.op)
    own = None if columns is None else columns(stage)
    if own is None:
        return None
    from ordstream._core.arrow import core_schema

    schema: pa.Schema = core_schema(pa.schema([*(stage.input.field(index) for index in stage.key), *own]))
    return schema


def needed_state_schema(stage: Stage) -> pa.Schema:
    """`state_schema` of a stateful stage.

    Raises
    ------
    PlanError
        The state of this operator can't be exported yet; names it.
    """
    schema = state_schema(stage)
    if schema is None:
        raise PlanError(f"operator {stage.name!r} ({stage.op}): its state can't be exported yet")
    return schema


def check_state(stage: Stage, found: pa.Schema) -> None:
    """Check that rows of a schema are state of a stage.

    Raises
    ------
    PlanError
        As `needed_state_schema`.
    SchemaError
        Names the first difference.
    """
    wanted = needed_state_schema(stage)
    where = f"operator {stage.name!r} ({stage.op}): this is not its state:"
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


def _of_count(stage: Stage) -> list[pa.Field] | None:
    if stage.params.get("window") is not None or stage.params.get("above") is not None:
        return None
    return [pa.field("count", pa.int64())]


def _of_aggregations(stage: Stage) -> list[pa.Field]:
    """One column per aggregation, null where there is no value yet; of a mean the sum and the count, of a
    count 0."""
    aggregates = stage.params["aggregates"]
    names = stage.output.names[len(stage.output) - len(aggregates) :]

    def columns() -> Iterator[pa.Field]:
        for name, (function, column, _) in zip(names, aggregates, strict=True):
            type_ = pa.int64() if column is None else stage.input.field(column).type
            sums = pa.float64() if pat.is_floating(type_) else pa.int64()
            if function == "mean":
                yield pa.field(f"{name}.sum", sums)
                yield pa.field(f"{name}.count", pa.int64())
            else:
                yield pa.field(name, {"count": pa.int64(), "sum": sums}.get(function, type_))

    return list(columns())


_COLUMNS: dict[str, Callable[[Stage], list[pa.Field] | None]] = {
    "count": _of_count,
    "scan": _of_aggregations,
    "aggregate": _of_aggregations,
}

"""The state of an operator as rows: what a kernel exports and takes in (`_core/ground/kernel.pxd`, f).

The rows are canonical: they depend on the tuples that came, not on workers, buckets, partitioning,
neighbours or on how the core stores a key. First come the key columns, in the key's order, then the
operator's own; for an operator without a key there is one row at most. Names may repeat (a key column called
"count"): the position says which column is which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pat

from ordstream.operators.aggregation import BoundAggregation, arguments_of, overflow_of_sums
from ordstream.operators.arguments import where_text
from ordstream.operators.gathered import is_apart
from ordstream.operators.operator import AdaptState, Operator
from ordstream.reference.base import Row


def state_rows(operator: Operator, own: Iterable[pa.Field]) -> pa.Schema:
    """The key columns, then an operator's own, in the types in which the core hands batches over."""
    from ordstream._core.ground.arrow import core_schema  # compiled, and so not needed before a run

    schema: pa.Schema = core_schema(
        pa.schema([*(operator.input.field(index) for index in operator.key), *own])
    )
    return schema


def accumulator_fields(operator: Operator, aggregates: Sequence[BoundAggregation]) -> list[pa.Field]:
    """One column per aggregation, null where there is no value yet; of a mean the sum and the count, of
    a variance mean (0 where the next is inf), squared distances and count, of a count 0; of values that are
    kept their bytes.
    """
    names = operator.output.names[len(operator.output) - len(aggregates) :]
    fields = []
    for name, aggregate in zip(names, aggregates, strict=True):
        function, column = aggregate.function, aggregate.column
        if column is not None and aggregate.gathered(is_apart(operator.input.field(column).type)):
            fields.append(gathered_field(name))
            continue
        type_ = pa.int64() if column is None else operator.input.field(column).type
        sums = pa.float64() if pat.is_floating(type_) else pa.int64()
        if aggregate.digits:
            sums = pa.decimal128(aggregate.digits, type_.scale)
        if function == "mean":
            fields += [pa.field(f"{name}.sum", sums), pa.field(f"{name}.count", pa.int64())]
        elif function in ("var", "std"):
            parts = {"mean": pa.float64(), "squares": pa.float64(), "count": pa.int64()}
            fields += [pa.field(f"{name}.{part}", type_) for part, type_ in parts.items()]
        else:
            fields.append(pa.field(name, {"count": pa.int64(), "sum": sums}.get(function, type_)))
    return fields


def gathered_field(name: str) -> pa.Field:
    """The state of an aggregation that keeps values: these, as bytes one after the other; null: none."""
    return pa.field(f"{name}.values", pa.binary())


class AggregateState(Operator):
    """The state of an operator that ends its output with aggregations, and has `aggregates`.

    A stored state may be that of the first ones of today's: those appended since are then empty, and cover
    the tuples from there on.
    """

    def fails_by_state(self, message: str, row: Row) -> str | None:
        return overflow_of_sums(message, self._aggregates, self.input, row)

    def state_schema(self) -> pa.Schema | None:
        return state_rows(self, accumulator_fields(self, self._aggregates))

    def state_identity(self) -> dict[str, str]:
        aggregates = self._aggregates
        names = self.output.names[len(self.output) - len(aggregates) :]
        columns = [f"{field.name}: {field.type}" for field in self.input]
        texts = (
            f"{name} = {a.function}({arguments_of(a, columns)}){where_text(a.where)}"
            for name, a in zip(names, aggregates, strict=True)
        )
        numbered = {f"aggregate {place}": text for place, text in enumerate(texts, start=1)}
        return {**self.operator_and_key(), **numbered}

    def adapt_state(self, identity: Mapping[str, str], schema: pa.Schema) -> AdaptState:
        """As `Operator.adapt_state`; also a state without the last aggregations."""
        aggregates, wanted = self._aggregates, self.state_schema()
        stored = sum(item.startswith("aggregate ") for item in identity)
        if not 0 < stored < len(aggregates):
            return super().adapt_state(identity, schema)
        before = len(self.output) - len(aggregates) + stored
        older = self.changed(aggregates=aggregates[:stored], output=pa.schema(list(self.output)[:before]))
        Operator.adapt_state(older, identity, schema)
        added = list(wanted or ())[len(schema) :]
        forms: dict[str, list[float | None]] = {"count": [0], "mean": [None, 0]}
        forms |= {function: [None, 0.0, 0] for function in ("var", "std")}
        empty = [value for a in aggregates[stored:] for value in forms.get(a.function, [None])]

        def adapt(batch: pa.RecordBatch) -> pa.RecordBatch:
            columns = [
                pa.repeat(pa.scalar(value, field.type), len(batch))
                for value, field in zip(empty, added, strict=True)
            ]
            return pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=wanted)

        return adapt

    @property
    def _aggregates(self) -> tuple[BoundAggregation, ...]:
        aggregates: tuple[BoundAggregation, ...] = vars(self)["aggregates"]
        return aggregates

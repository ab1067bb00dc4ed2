"""aggregate and scan: aggregations per key, as rows of their own or beside the input's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from ordstream.errors import PlanError
from ordstream.operators.aggregation import (
    Accumulators,
    Aggregation,
    BoundAggregation,
    bound_aggregations,
    calls,
    columns_of_aggregates,
)
from ordstream.operators.arguments import emission
from ordstream.operators.halves import Halves, combined, is_exact
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import AggregateState
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step

Half = Literal["", "part", "merge"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(AggregateState):
    """Output: input columns, then one column per aggregate.

    Attributes
    ----------
    aggregates : tuple of BoundAggregation
    """

    op: ClassVar[str] = "scan"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    aggregates: tuple[BoundAggregation, ...]

    @classmethod
    def bind(cls, site: Site, named: Sequence[Aggregation], keywords: Mapping[str, Aggregation]) -> Self:
        """Raises PlanError and SchemaError where an aggregation has no name or does not fit the schema."""
        fields, aggregates = _bound(site, named, keywords)
        return cls(**site.fields(site.behind_input(fields)), aggregates=aggregates)

    def kernel(self) -> Any:
        from ordstream._core.kernels.aggregate import ScanKernel

        return ScanKernel(self)

    def reference(self) -> SerialOperator:
        return ScanReference(self)

    def columns_read(self) -> set[int]:
        return set(self.key) | columns_of_aggregates(self.aggregates)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"scan{self.by_key}: {calls(self.input.names, self.aggregates)}"


def _bound(
    site: Site, named: Sequence[Aggregation], keywords: Mapping[str, Aggregation]
) -> tuple[list[Any], tuple[BoundAggregation, ...]]:
    fields, aggregates = bound_aggregations(named, keywords, site.schema, site.name)
    if not fields:
        raise PlanError(f"{site.name}: at least one aggregation is needed, such as total=od.sum('x')")
    return fields, tuple(aggregates)


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregate(AggregateState):
    """Output: key columns, one column per aggregate.

    Attributes
    ----------
    aggregates : tuple of BoundAggregation
    emit : "updates" or "final"
        "updates": per tuple, and per key at the end of the stream; "final": only these.
    half : "", "part" or "merge"
        One of two halves (`ordstream.operators.halves`).
    """

    op: ClassVar[str] = "aggregate"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    aggregates: tuple[BoundAggregation, ...]
    emit: Literal["updates", "final"] = "updates"
    half: Half = ""

    @classmethod
    def bind(
        cls, site: Site, named: Sequence[Aggregation], keywords: Mapping[str, Aggregation], emit: Any
    ) -> Self:
        """Raises PlanError and SchemaError where an aggregation has no name or does not fit the schema."""
        emission(emit, ("updates", "final"), site.name)
        fields, aggregates = _bound(site, named, keywords)
        return cls(**site.fields(site.behind_key(fields)), aggregates=aggregates, emit=emit)

    def kernel(self) -> Any:
        from ordstream._core.kernels.aggregate import AggregateKernel

        return AggregateKernel(self)

    def reference(self) -> SerialOperator:
        return AggregateReference(self)

    def columns_read(self) -> set[int]:
        return set(self.key) | columns_of_aggregates(self.aggregates)

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return f"aggregate{self.by_key}: {calls(self.input.names, self.aggregates)}, {self.emit}"

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final"

    def final(self) -> Operator:
        return self if self.emit == "final" else self.changed(emit="final")

    def halves(self) -> Halves | None:
        if (
            self.emit != "final"
            or self.on_error != "fail"
            or not all(is_exact(a, self.input) for a in self.aggregates)
        ):
            return None
        return combined(self, self.aggregates, Aggregate)

    def merges(self) -> bool:
        return self.half == "merge"

    def is_part(self) -> bool:
        return self.half == "part"


class ScanReference(Keyed):
    """The input row, then the running values that include it."""

    def __init__(self, operator: Scan | Aggregate) -> None:
        super().__init__(operator)
        self.accumulators = Accumulators(operator.aggregates, operator.input)

    def process(self, row: Row) -> list[Row]:
        return [(*row, *self.accumulators.values(self.include(row)))]

    def include(self, row: Row) -> list[Any]:
        """The state of the row's key after the row; an error leaves it as it was."""
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        state = self.states.get(key) or self.accumulators.start()
        self.states[key] = self.accumulators.advance(state, row, chosen)
        return self.states[key]  # type: ignore[no-any-return]


class AggregateReference(ScanReference):
    """(key columns, values), per tuple that they include, and per key at the end."""

    def process(self, row: Row) -> list[Row]:
        self.include(row)
        return [self.output(self.key_of(row))] if self.operator.emit == "updates" else []

    def flush(self) -> list[Step]:
        return [lambda key=key: [self.output(key)] for key in self.ascending()]  # type: ignore[misc]

    def output(self, key: SortKey) -> Row:
        return (*self.key_values[key], *self.accumulators.values(self.states[key]))

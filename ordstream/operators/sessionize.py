"""sessionize: runs of tuples of a key whose times follow each other within a timeout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.expressions.bound import evaluate_row
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.types import column_index
from ordstream.operators.aggregation import (
    Accumulators,
    Aggregation,
    BoundAggregation,
    bound_aggregations,
    calls,
    columns_of_aggregates,
    overflow_of_sums,
)
from ordstream.operators.arguments import Columns, beside_own, named_columns, nonempty
from ordstream.operators.gathered import element_of, is_apart, list_of, listed_values
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import accumulator_fields, state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step

#: Of more aggregates it is not worked out which of them a filter behind needs.
MOST_TESTED = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class Sessionize(Operator):
    """Output: key columns, start, end, count, one list per collected column, one column per aggregate.

    Attributes
    ----------
    time : int
    timeout : int
        In the unit of the time column.
    collect : tuple of int
        Columns whose values are kept as lists.
    aggregates : tuple of BoundAggregation
    values, nulls : frozenset of int or None
        Output columns whose values are needed behind it, and those of which at least is needed which are
        null. None: all.
    passing : bytes or None
        Which sessions the filter directly behind lets pass, where that is told by which aggregates are null:
        for each set of aggregates with a value (bit j of the position: the j-th) 1 or 0. None: by more than
        that, or there is no such filter.
    """

    op: ClassVar[str] = "sessionize"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    time: int
    timeout: int
    collect: tuple[int, ...] = ()
    aggregates: tuple[BoundAggregation, ...] = ()
    values: frozenset[int] | None = None
    nulls: frozenset[int] | None = None
    passing: bytes | None = None

    @classmethod
    def bind(
        cls,
        site: Site,
        time: str,
        timeout: Duration,
        collect: Columns | None,
        aggregate: Mapping[str, Aggregation] | None,
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        time_index = column_index(schema, time, where)
        span = time_span(timeout, schema.field(time_index), f"{where}: timeout")
        if span < 0:
            raise PlanError(f"{where}: timeout must be at least 0, got {timeout!r}")
        time_type = schema.field(time_index).type
        fields = [pa.field("start", time_type), pa.field("end", time_type), pa.field("count", pa.int64())]
        indexes = []
        for output, column in named_columns(collect, where).items():
            index = column_index(schema, column, where)
            fields.append(pa.field(nonempty(output, where), list_of(schema.field(index), where)))
            indexes.append(index)
        more, aggregates = bound_aggregations((), aggregate or {}, schema, where)
        beside_own([*fields[3:], *more], ("start", "end", "count"), where)
        for bound in aggregates:
            if bound.column is not None and bound.gathered(is_apart(schema.field(bound.column).type)):
                raise PlanError(
                    f"{where}: {bound.function} keeps values, which sessionize does not do: use "
                    ".window(od.session(...), time=...).aggregate(...)"
                )
        return cls(
            **site.fields(site.behind_key([*fields, *more])),
            time=time_index,
            timeout=span,
            collect=tuple(indexes),
            aggregates=tuple(aggregates),
        )

    @property
    def elements(self) -> list[tuple[str, int]]:
        """Of each collected column, as `element_of` says."""
        return [element_of(self.input.field(index).type) for index in self.collect]

    def kernel(self) -> Any:
        from ordstream._core.kernels.sessionize import SessionKernel

        return SessionKernel(self)

    def reference(self) -> SerialOperator:
        return SessionizeReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The open session: start, end, count, the list of each collected column in order of arrival, the
        aggregates. Whatever later operators read: a kernel that was told what they need (`values`) has not
        all of it, and can't export it.
        """
        first = len(self.key)
        fields = [self.output.field(first + j) for j in range(3 + len(self.collect))]
        return state_rows(self, fields + accumulator_fields(self, self.aggregates))

    def state_identity(self) -> dict[str, str]:
        """With the columns that are collected, of which `describe` says nothing."""
        return {**super().state_identity(), "collect": self.columns_named(self.collect) or "none"}

    def fails_by_state(self, message: str, row: Row) -> str | None:
        return overflow_of_sums(message, self.aggregates, self.input, row)

    def columns_read(self) -> set[int]:
        return {*self.key, self.time, *self.collect} | columns_of_aggregates(self.aggregates)

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(self.spans_of(self.time))

    def _text(self, span: Callable[[int], str]) -> str:
        made = calls(self.input.names, self.aggregates)
        return (
            f"sessionize{self.by_key}, time {self.input.names[self.time]}, timeout "
            f"{span(self.timeout)}{': ' * bool(made)}{made}"
        )

    def given_needed(self, values: frozenset[int], nulls: frozenset[int]) -> Self:
        return self.changed(values=values, nulls=nulls)

    def given_dropped(self, behind: Operator) -> Self:
        return self.changed(passing=self._passing(behind))

    def _passing(self, behind: Operator) -> bytes | None:
        """See `passing`. A session that the filter drops need not be made: such a filter cannot fail, so
        nobody sees the difference.
        """
        tests = behind.null_tests()
        before = len(self.output) - len(self.aggregates)
        if (
            tests is None
            or len(self.aggregates) > MOST_TESTED
            or any(index < before for index in tests.columns())
        ):
            return None

        def passes(have: int) -> bool:
            """`have`: the set. Counts and sums are never null."""
            row = [
                0 if a.function in ("count", "sum") or have >> j & 1 else None
                for j, a in enumerate(self.aggregates)
            ]
            return evaluate_row(tests, [None] * before + row) is True

        return bytes(passes(have) for have in range(1 << len(self.aggregates)))


class Session:
    """An open session of one key."""

    def __init__(self, time: int, collected: list[Any], accumulators: list[Any]) -> None:
        self.start = self.last = time
        self.count = 1
        self.lists = [[value] for value in collected]
        self.accumulators = accumulators

    def add(self, time: int, collected: list[Any], accumulators: list[Any]) -> None:
        self.last = time
        self.count += 1
        self.accumulators = accumulators
        for values, value in zip(self.lists, collected, strict=True):
            values.append(value)


class SessionizeReference(Keyed):
    """Closes a key's session when its next tuple comes more than `timeout` after its last one, or at a time
    punctuation. Of a key without an open session nothing is known.
    """

    def __init__(self, operator: Sessionize) -> None:
        super().__init__(operator)
        self.accumulators = Accumulators(operator.aggregates, operator.input)

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        time = self.not_null(row, operator.time)
        collected = [self.not_null(row, index) for index in operator.collect]
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        session = self.states.get(key)
        self.not_earlier(time, None if session is None else session.last, operator.time)
        if session is not None and time - session.last <= operator.timeout:
            session.add(time, collected, self.accumulators.advance(session.accumulators, row, chosen))
            return []
        first = self.accumulators.advance(self.accumulators.start(), row, chosen)
        closed = self.close(key) if session is not None else []
        self.states[key] = Session(time, collected, first)
        return closed

    def on_time(self, time: int) -> list[Step]:
        due = [key for key, session in self.states.items() if time - session.last > self.operator.timeout]
        due.sort(key=lambda key: (self.states[key].last, key))
        return [lambda key=key: self.close(key) for key in due]  # type: ignore[misc]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.close(key) for key in self.ascending()]  # type: ignore[misc]

    def close(self, key: SortKey) -> list[Row]:
        session = self.states.pop(key)
        values = self.accumulators.values(session.accumulators)
        types = [self.operator.input.field(index).type for index in self.operator.collect]
        lists = map(listed_values, session.lists, types)
        return [(*self.key_values[key], session.start, session.last, session.count, *lists, *values)]

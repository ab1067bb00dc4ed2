"""rolling: aggregations over a window per row, of the last rows or the last period of the row's key."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.bound import maximum, minimum
from ordstream.ground.numbers import BEYOND_INT64
from ordstream.ground.packed_types import kept_list
from ordstream.ground.types import INT64_MAX, column_index, is_wide, with_fewer_digits
from ordstream.operators.aggregation import (
    Aggregation,
    BoundAggregation,
    bound_aggregations,
    calls,
    columns_of_aggregates,
    decimal_mean,
    has_unit,
    overflow_of_sums,
    running_value,
    spread,
)
from ordstream.operators.arguments import given
from ordstream.operators.clocks import Clock, clock_at
from ordstream.operators.gathered import decides, gathered_value, is_apart
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import gathered_field, state_rows
from ordstream.operators.window_kinds import BoundWindow, WindowKind
from ordstream.reference.base import Keyed, Row, SerialOperator, Step, true_of


@dataclass(frozen=True, eq=False, kw_only=True)
class Rolling(Operator):
    """Output: input columns, then one column per aggregate.

    Attributes
    ----------
    window : BoundWindow
        "rolling" or "rows".
    time : int or None
    aggregates : tuple of BoundAggregation
    clock : Clock or None
        The clock that forgets keys whose tuples are too old; None: no key is forgotten.
    """

    op: ClassVar[str] = "rolling"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    window: BoundWindow
    time: int | None
    aggregates: tuple[BoundAggregation, ...]
    clock: Clock | None = None

    @classmethod
    def bind(
        cls,
        site: Site,
        kind: WindowKind,
        time: str | None,
        named: Sequence[Aggregation],
        keywords: Mapping[str, Aggregation],
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        index = None if time is None else column_index(schema, time, where)
        window = kind.bind(None if index is None else schema.field(index), where)
        if index is not None and window.kind == "rows":
            raise PlanError(f"{where}: od.rows counts rows and looks at no time; leave time= out")
        fields, aggregates = bound_aggregations(named, keywords, schema, where)
        if not fields:
            raise PlanError(f"{where}: at least one aggregation is needed, such as total=od.sum('x')")
        for one in aggregates:
            field = None if one.column is None or not one.digits else schema.field(one.column)
            if field is not None and is_wide(field.type):
                refused = (
                    f"{where}: {one.function}({field.name!r}) in a window of each row is not defined for "
                )
                raise SchemaError(f"{refused}{field.type}{with_fewer_digits(field.type, field.name)}")
        return cls(
            **site.fields(site.behind_input(fields)),
            window=window,
            time=index,
            aggregates=tuple(aggregates),
            clock=None if index is None else clock_at(site.before, index),
        )

    def kernel(self) -> Any:
        from ordstream._core.kernels.rolling import RollingKernel

        return RollingKernel(self)

    def reference(self) -> SerialOperator:
        return RollingReference(self)

    def clock_wanted(self) -> tuple[Clock, int] | None:
        return None if self.clock is None else (self.clock, self.window.length)

    def only_forgets(self) -> bool:
        return True

    def clock_input(self) -> int | None:
        return self.time

    def with_clock(self, clock: Clock | None) -> Self:
        return self.changed(clock=clock)

    def state_schema(self) -> pa.Schema | None:
        """The tuples of the window, oldest first, as lists side by side: their times (where there are), and
        per tuple and aggregation whether there is a value and the words that are kept. Of the first `front`
        tuples these are aggregates of that tuple and of all behind it up to the last of them. The tuples
        from `visible` on have the time of the latest one and are not seen yet. Aggregations that keep values
        have these in columns of their own.
        """
        times = [pa.field("time", kept_list(self.input.field(i).type)) for i in given(self.time)]
        counts = [pa.field("front", pa.int64()), pa.field("visible", pa.int64())]
        lists = [pa.field("there", pa.list_(pa.bool_())), pa.field("words", pa.list_(pa.int64()))]
        names = self.output.names[len(self.input) :]
        objects = [
            gathered_field(name)
            for name, a in zip(names, self.aggregates, strict=True)
            if a.column is not None and a.gathered(is_apart(self.input.field(a.column).type))
        ]
        return state_rows(self, [*counts, *times, *lists, *objects])

    def state_identity(self) -> dict[str, str]:
        names = self.input.names
        columns = [i for a in self.aggregates for i in (a.column, a.by) if i is not None]
        types = [str(self.input.field(i).type) for i in columns]
        return {**super().state_identity(), "columns": ", ".join(types) or ", ".join(names[:0]) or "none"}

    def fails_by_state(self, message: str, row: Row) -> str | None:
        return overflow_of_sums(message, self.aggregates, self.input, row)

    def columns_read(self) -> set[int]:
        return {*self.key, *given(self.time)} | columns_of_aggregates(self.aggregates)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(str if self.time is None else self.spans_of(self.time))

    def _text(self, span: Callable[[int], str]) -> str:
        made = calls(self.input.names, self.aggregates)
        of = "" if self.time is None else f" of {self.input.names[self.time]}"
        return f"window{self.by_key}: {self.window.text(span)}{of}: {made}"

    def own_notes(self) -> list[str]:
        if self.time is None or self.clock is not None:
            return []
        return [f"{self.input.names[self.time]!r} is not the clock: no key is forgotten"]

    def final(self) -> Operator:
        raise PlanError(
            f"emit='final': {self.name!r} forgets what leaves its windows, so nothing is left to say at the "
            "end of the stream; run with emit='updates', or leave emit out"
        )


# ------------------------------------------------------------------------------------------------ meaning

#: Of nothing.
EMPTY: dict[str, Any] = {"sum": 0.0, "mean": (0.0, 0), "var": (0.0, 0.0, 0), "std": (0.0, 0.0, 0)}


def merged(function: str, a: Any, b: Any) -> Any:
    """What an aggregation of floats, or one that chooses, has of two runs of tuples, the first one `a`."""
    if function == "sum":
        return a + b
    if function == "mean":
        return a[0] + b[0], a[1] + b[1]
    if function in ("var", "std"):
        if not (a[2] and b[2]):
            return a if a[2] else b
        n, delta = float(a[2] + b[2]), b[0] - a[0]
        mean = a[0] + delta * float(b[2]) / n
        squares = a[1] + b[1] + delta * delta * float(a[2]) * float(b[2]) / n
        if math.isinf(squares):  # as in `spread`
            return 0.0, math.inf, a[2] + b[2]
        return mean, squares, a[2] + b[2]
    if function == "":  # its values are looked at one by one
        return None
    if a is None or b is None:
        return b if a is None else a
    if function in ("first", "last"):
        return a if function == "first" else b
    return minimum(a, b) if function == "min" else maximum(a, b)


def alone(function: str, value: Any) -> Any:
    """What an aggregation has of one tuple; `value` None: it does not look at the tuple."""
    if value is None:
        return EMPTY.get(function)
    if function == "mean":
        return (value, 1)
    return spread((0.0, 0.0, 0), float(value)) if function in ("var", "std") else value


@dataclass
class Sliding:
    """The tuples of a key's window, as two stacks: those in front, each with the aggregates from it to the
    last one in front, and those at the back, with the aggregates of all of them. A tuple leaves the front;
    where that is empty, all from the back go there. So each tuple is aggregated at most twice.

    Attributes
    ----------
    front : list of (time, values, aggregates)
        The oldest is the last.
    back, unseen : list of (time, values)
        Oldest first. Unseen: at the time of the latest tuple, where the window ends before it.
    total : list
        Aggregates of the back.
    """

    functions: list[str]
    front: list[Any] = field(default_factory=list)
    back: list[Any] = field(default_factory=list)
    unseen: list[Any] = field(default_factory=list)
    total: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = [EMPTY.get(function) for function in self.functions]

    def times(self) -> list[Any]:
        """Of all tuples, oldest first."""
        seen = [time for time, _, _ in reversed(self.front)]
        return seen + [time for time, _ in self.back] + [time for time, _ in self.unseen]

    def push(self, time: Any, values: list[Any]) -> None:
        """A tuple is seen from now on."""
        self.back.append((time, values))
        self.total = [
            t if v is None else spread(t, float(v)) if f in ("var", "std") else merged(f, t, alone(f, v))
            for f, t, v in zip(self.functions, self.total, values, strict=True)
        ]

    def pop(self) -> None:
        """The oldest tuple leaves."""
        if not self.front:
            behind = [EMPTY.get(function) for function in self.functions]
            for time, values in reversed(self.back):
                behind = [
                    merged(f, alone(f, v), b) for f, v, b in zip(self.functions, values, behind, strict=True)
                ]
                self.front.append((time, values, behind))
            self.back = []
            self.total = [EMPTY.get(function) for function in self.functions]
        self.front.pop()

    def seen(self, j: int) -> list[Any]:
        """Values of an aggregation's column in the window, oldest first, without nulls."""
        values = [v for _, v, _ in reversed(self.front)] + [v for _, v in self.back]
        return [value[j] for value in values if value[j] is not None]

    def shown(self, j: int) -> Any:
        """What an aggregation that is not exact has."""
        function = self.functions[j]
        if not self.front:
            return self.total[j]
        return merged(function, self.front[-1][2][j], self.total[j])


class RollingReference(Keyed):
    """Each tuple with the aggregates of its window. Sums and means of integers, and counts, are exact; sums
    of floats and variances are those of two stacks (`Sliding`).
    """

    def __init__(self, operator: Rolling) -> None:
        super().__init__(operator)
        self.types = types = [
            None if a.column is None else operator.input.field(a.column).type for a in operator.aggregates
        ]
        self.functions = [a.function for a in operator.aggregates]
        self.gathered = [a.gathered(is_apart(t)) for a, t in zip(operator.aggregates, types, strict=True)]
        self.exact = [
            a.function == "count"
            or (a.function in ("sum", "mean") and (pat.is_integer(type_) or has_unit(type_)))
            for a, type_ in zip(operator.aggregates, types, strict=True)
        ]
        self.has_unit = [type_ is not None and has_unit(type_) for type_ in types]
        self.most = [10**a.digits if a.digits else 1 << 63 for a in operator.aggregates]

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        time = None if operator.time is None else self.not_null(row, operator.time)
        values = [
            None if not true_of(a.where, row) else True if a.column is None
            else decides(row, a.column, a.by) if gathered else row[a.column]
            for a, gathered in zip(operator.aggregates, self.gathered, strict=True)
        ]  # fmt: skip
        key = self.key_of(row)
        state = self.states.get(key)
        if state is None:
            state = Sliding(["" if g else f for f, g in zip(self.functions, self.gathered, strict=True)])
        if time is not None:
            self.not_earlier(time, state.times()[-1] if state.times() else None, operator.time)
        after = self.advanced(state, time, values)
        shown = [self.value(after, j) for j in range(len(values))]
        for j, total in enumerate(shown):
            if self.functions[j] == "sum" and self.exact[j] and not -self.most[j] <= total < self.most[j]:
                raise OverflowError("overflow in the sum of a window")
        self.states[key] = after
        return [(*row, *shown)]

    def advanced(self, before: Sliding, time: Any, values: list[Any]) -> Sliding:
        """The window of the next tuple."""
        operator, window = self.operator, self.operator.window
        after = Sliding(before.functions, list(before.front), list(before.back), list(before.unseen))
        after.total = before.total
        for j, value in enumerate(values):
            if self.exact[j] and self.functions[j] != "count" and value is not None and value > INT64_MAX:
                raise OverflowError(f"{value} does not fit into int64; {BEYOND_INT64}")
        while after.unseen and after.unseen[0][0] < time:
            after.push(*after.unseen.pop(0))
        ends_at_the_row = operator.time is None or window.closed in ("right", "both")
        while after.front or after.back:
            if operator.time is None:
                leaves = len(after.front) + len(after.back) >= window.length
            else:
                leaves = self.too_old(after.times()[0], time)
            if not leaves:
                break
            after.pop()
        if ends_at_the_row:
            after.push(time, values)
        else:
            after.unseen.append((time, values))
        return after

    def too_old(self, time: int, now: int) -> bool:
        """Whether the window of a tuple at `now` begins behind `time`."""
        window = self.operator.window
        age = now - time
        return bool(age > window.length if window.closed in ("left", "both") else age >= window.length)

    def value(self, state: Sliding, j: int) -> Any:
        """What an aggregation shows."""
        function = self.functions[j]
        if self.gathered[j]:
            parameter = self.operator.aggregates[j].parameter
            return gathered_value(function, parameter, state.seen(j), self.types[j])
        if not self.exact[j]:
            return running_value(function, state.shown(j))
        seen = state.seen(j)
        if function == "count":
            return len(seen)
        total = sum(seen)
        if function == "sum":
            return total
        if not -self.most[j] <= total < self.most[j]:
            raise OverflowError("overflow in the mean of a window")
        if self.has_unit[j]:
            return decimal_mean((total, len(seen)), self.operator.aggregates[j].places)
        return float(total) / float(len(seen)) if seen else None

    def on_time(self, time: int) -> list[Step]:
        """Forget the keys that no tuple from `time` on can see, without a word."""
        if self.operator.clock is not None:
            now = time // self.operator.window.length * self.operator.window.length
            for key in [key for key, one in self.states.items() if self.too_old(one.times()[-1], now)]:
                del self.states[key]
        return []

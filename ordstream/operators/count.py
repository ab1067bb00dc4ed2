"""count: the number of tuples per key, in all or in tumbling windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.ground.duration import Duration, shown_span
from ordstream.ground.types import column_index, integer_range
from ordstream.operators.aggregate import Aggregate
from ordstream.operators.aggregation import BoundAggregation
from ordstream.operators.arguments import count_bound, emission, given, nonempty
from ordstream.operators.halves import Halves, combined
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Operator):
    """Output: key columns, window (if any), count.

    Attributes
    ----------
    emit : "updates" or "final"
        An output per tuple, or one per key at the end of the stream.
    window : int or None
        Length, in the unit of the time column.
    time : int or None
    above : int or None
        Only counts of more than this are emitted.
    best : int
        At the end only the keys with the largest counts, ties by ascending key, so many at least per bucket;
        0: all.
    """

    op: ClassVar[str] = "count"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    emit: Literal["updates", "final"] = "updates"
    window: int | None = None
    time: int | None = None
    above: int | None = None
    best: int = 0

    @classmethod
    def bind(
        cls,
        site: Site,
        column: str,
        *,
        window: Duration | None,
        time: str | None,
        above: int | None,
        emit: Any,
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        emission(emit, ("updates", "final"), where)
        fields = [pa.field(nonempty(column, where), pa.int64())]
        least = None if above is None else count_bound(above, f"{where}: above")
        length = index = None
        if (window is None) != (time is None):
            raise PlanError(f"{where}: window and time go together, got window={window!r}, time={time!r}")
        if window is not None:
            if emit == "final":
                raise PlanError(
                    f"{where}: emit='final' does not go with a window: only the last window of each key "
                    "would be "
                    "left; use emit='updates', and top_k(..., window='window') behind it for totals per "
                    "window"
                )
            index = column_index(schema, time, where)
            length = shown_span(window, schema.field(index), f"{where}: window")
            if length < 1:
                raise PlanError(f"{where}: window must be at least 1, got {window!r}")
            type_ = schema.field(index).type
            fields.insert(0, pa.field("window", pa.int64() if pat.is_integer(type_) else type_))
        return cls(**site.fields(site.behind_key(fields)), emit=emit, window=length, time=index, above=least)

    def kernel(self) -> Any:
        from ordstream._core.kernels.count import CountKernel
        from ordstream._core.kernels.count_window import WindowCountKernel

        return CountKernel(self) if self.window is None and self.above is None else WindowCountKernel(self)

    def reference(self) -> SerialOperator:
        return CountReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The count of the key or of its current window; with windows the time of its latest tuple too."""
        last = [self.input.field(index) for index in given(self.time)]
        return state_rows(self, [pa.field("count", pa.int64()), *last])

    def state_identity(self) -> dict[str, str]:
        # when a count is shown (emit, above, best) is nothing that it depends on
        return {**super().state_identity(), "parameters": f"count{self.by_key}{self._windows(str)}"}

    def columns_read(self) -> set[int]:
        return {*self.key, *given(self.time)}

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(str if self.time is None else self.spans_of(self.time))

    def _text(self, span: Callable[[int], str]) -> str:
        above = "" if self.above is None else f", above {self.above}"
        best = f", the {self.best} best of each bucket" if self.best else ""
        return f"count{self.by_key}{self._windows(span)}{above}, {self.emit}{best}"

    def _windows(self, span: Callable[[int], str]) -> str:
        if self.window is None:
            return ""
        return f", windows of {span(self.window)} in {self.columns_named(given(self.time))}"

    def in_every_node(self) -> list[str]:
        if not self.best:
            return []
        return [
            f"{self.name} hands over only the {self.best} best counts of its keys (combined early, exactly)"
        ]

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final"

    @property
    def emits_at_end(self) -> bool:
        return self.emit == "final"

    def final(self) -> Operator:
        if self.window is not None:
            raise PlanError(
                f"emit='final': {self.name!r} counts per window, and at the end only the last window of "
                "each key is known; "
                "put a top_k with the same window behind it, or run with emit='updates'"
            )
        return self if self.emit == "final" else self.changed(emit="final")

    def halves(self) -> Halves | None:
        if self.window is not None or self.emit != "final" or self.on_error != "fail":
            return None
        return combined(self, [BoundAggregation("count", None, None)], Aggregate, self.above)

    def grows(self) -> tuple[int, frozenset[int]] | None:
        # With windows a count falls, also inside a window of a top-k that is another column.
        if self.kind != "PS" or self.window is not None:
            return None
        return len(self.key), frozenset(range(len(self.key)))

    def keeping_best(self, column: int, k: int) -> Self | None:
        plain = self.kind == "PS" and self.window is None and self.above is None
        return self.changed(emit="final", best=k) if plain and column == len(self.key) else None


class CountReference(Keyed):
    """(key columns, window, number of tuples so far), per tuple or once per key at the end.

    A state is (time of the latest tuple or None, its window or None, count).
    """

    def process(self, row: Row) -> list[Row]:
        window = self.window_of(row)
        time = None if window is None else row[self.operator.time]
        key = self.key_of(row)
        last, before, count = self.states.get(key, (None, None, 0))
        if last is not None:
            self.not_earlier(time, last, self.operator.time)
        self.states[key] = (time, window, count + 1 if before == window else 1)
        return self.output(key) if self.operator.emit == "updates" else []

    def window_of(self, row: Row) -> int | None:
        """Start of the tuple's window."""
        length, index = self.operator.window, self.operator.time
        if length is None:
            return None
        start: int = self.not_null(row, index) // length * length
        low, high = integer_range(self.operator.output.field(len(self.operator.key)).type)
        if not low <= start <= high:
            raise OverflowError(f"the start of the window, {start}, is out of range")
        return start

    def flush(self) -> list[Step]:
        if self.operator.emit == "updates":
            return []
        keys = self.ascending()
        if self.operator.best:
            keys = sorted(sorted(keys, key=lambda key: (-self.states[key][2], key))[: self.operator.best])
        return [lambda key=key: self.output(key) for key in keys]  # type: ignore[misc]

    def output(self, key: SortKey) -> list[Row]:
        _, window, count = self.states[key]
        above = self.operator.above
        if above is not None and count <= above:
            return []
        return [(*self.key_values[key], *(() if window is None else (window,)), count)]

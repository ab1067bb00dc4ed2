"""head, tail, lead and deduplicate: operators whose state is some rows of a key, in columns of any type.

What needs rows to come gives its own at the row, the time or the end that settles them, with that one's
order tag.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.expressions.expr import Expr
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.types import column_index, unique_names
from ordstream.operators.arguments import column_names, distance, nonempty, positive_int
from ordstream.operators.clocks import Clock, clock_at, clock_text
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, Step

#: Most rows that a key keeps.
MOST_ROWS = 1 << 20

#: Columns of another row, as `lag` and `lead` take them.
ShownColumns = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptRows(Operator):
    """Base of the operators that keep rows.

    Attributes
    ----------
    n : int
        Rows of a key.
    time, within : int or None
        A time column, and a span in its unit.
    """

    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    #: What the kernel calls it.
    mode: ClassVar[str] = ""

    n: int = 1
    time: int | None = None
    within: int | None = None

    def kernel(self) -> Any:
        from ordstream._core.kernels.kept_rows import KeptRowsKernel

        return KeptRowsKernel(self, self.mode, self.n, self.kept(), self.beside())

    def kept(self) -> tuple[int, ...]:
        """Input columns of a row that is kept."""
        return tuple(range(len(self.input)))

    def beside(self) -> tuple[int, ...]:
        """Input columns of the row behind that are shown beside a kept one."""
        return ()

    def state_schema(self) -> pa.Schema | None:
        """How many rows are kept; they themselves, oldest first, as bytes: per row and column 0 (null) or 1,
        then the value as it lies in memory, or the number (int64) of bytes or elements, and these. With
        `within` the time from which it counts, and that of the last row.
        """
        own = [pa.field("rows", pa.int64()), pa.field("values", pa.binary())]
        if self.time is not None:
            type_ = self.input.field(self.time).type
            own += [pa.field("start", type_), pa.field("latest", type_)]
        return state_rows(self, own)

    def state_identity(self) -> dict[str, str]:
        """With the types of what is kept, which the bytes do not tell."""
        fields = [self.input.field(index) for index in self.kept()]
        kept = ", ".join(f"{field.name}: {field.type}" for field in fields)
        return {**super().state_identity(), "kept": kept or "nothing"}

    def _within_text(self, *, shown: bool = False) -> str:
        if self.time is None:
            return ""
        within = self.spans_of(self.time)(self.within) if shown and self.within is not None else self.within
        return f" within {within} of {self.input.names[self.time]}"


class KeptReference(Keyed):
    """Base of their references. A state is a deque of rows."""

    def flush(self) -> list[Step]:
        return [partial(self.rest, key) for key in self.ascending()]

    def rest(self, key: Any) -> list[Row]:
        """What is left of a key at the end."""
        return list(self.states[key])


# ---------------------------------------------------------------------------------------------- head, tail


@dataclass(frozen=True, eq=False, kw_only=True)
class Head(KeptRows):
    """Output: the first n rows."""

    op: ClassVar[str] = "head"
    mode: ClassVar[str] = "first"
    passes_unread: ClassVar[bool] = True

    @classmethod
    def bind(cls, site: Site, n: int) -> Self:
        """Raises PlanError where n is no number of rows."""
        return cls(**site.fields(site.schema), n=positive_int(n, f"{site.name}: n", 2**31 - 1))

    def reference(self) -> SerialOperator:
        return HeadReference(self)

    def kept(self) -> tuple[int, ...]:
        return ()

    def columns_read(self) -> set[int]:
        return set(self.key)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"head {self.n}{self.by_key}"


class HeadReference(Keyed):
    """A row, unless n came before. A state is their number."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        n = self.states.get(key, 0)
        self.states[key] = min(n + 1, self.operator.n)
        return [row] if n < self.operator.n else []


@dataclass(frozen=True, eq=False, kw_only=True)
class Tail(KeptRows):
    """Output: the last n rows, at the end of the stream."""

    op: ClassVar[str] = "tail"
    mode: ClassVar[str] = "tail"

    @classmethod
    def bind(cls, site: Site, n: int) -> Self:
        """Raises PlanError where n is no number of rows."""
        return cls(**site.fields(site.schema), n=positive_int(n, f"{site.name}: n", MOST_ROWS))

    def reference(self) -> SerialOperator:
        return TailReference(self)

    def describe(self) -> str:
        return f"tail {self.n}{self.by_key}"

    @property
    def only_at_end(self) -> bool:
        return True

    def final(self) -> Operator:
        return self


class TailReference(KeptReference):
    """Nothing; at the end the last n rows of each key."""

    def process(self, row: Row) -> list[Row]:
        kept = collections.deque(maxlen=self.operator.n)  # type: ignore[var-annotated]
        self.states.setdefault(self.key_of(row), kept).append(row)
        return []


# ---------------------------------------------------------------------------------------------- lead


@dataclass(frozen=True, eq=False, kw_only=True)
class Lead(KeptRows):
    """Output: input columns, then columns of the row n behind.

    Attributes
    ----------
    columns : tuple of int
    """

    op: ClassVar[str] = "lead"
    mode: ClassVar[str] = "lead"

    columns: tuple[int, ...]

    @classmethod
    def bind(cls, site: Site, columns: ShownColumns, n: int) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        indexes, fields = shown_columns(site, columns, "_lead", "next_ts")
        n = distance(n, site.name, MOST_ROWS)
        return cls(**site.fields(site.behind_input(fields)), columns=indexes, n=n)

    def reference(self) -> SerialOperator:
        return LeadReference(self)

    def beside(self) -> tuple[int, ...]:
        return self.columns

    def describe(self) -> str:
        return f"lead {self.n}{self.by_key}: {self.columns_named(self.columns)}"


def shown_columns(
    site: Site, columns: Any, suffix: str, example: str
) -> tuple[tuple[int, ...], list[pa.Field]]:
    """Indexes of the columns of another row, and the output fields that show them: under the names that a
    mapping gives them, else under their own with a suffix.
    """
    given = columns
    if isinstance(columns, str | Expr):
        columns = [columns]
    if isinstance(columns, list | tuple) and all(isinstance(one, str | Expr) for one in columns):
        names = column_names(columns, site.name)
        unique_names(names, site.name)
        columns = {f"{column}{suffix}": column for column in names}
    if not isinstance(columns, Mapping) or not columns:
        raise PlanError(
            f"{site.name}: columns must be a column, a list of columns, or a mapping such as "
            f"{{'{example}': 'ts'}}; got {given!r}"
        )
    indexes, fields = [], []
    for output, column in columns.items():
        index = column_index(site.schema, column, site.name)
        indexes.append(index)
        fields.append(pa.field(nonempty(output, site.name), site.schema.field(index).type))
    return tuple(indexes), fields


class LeadReference(KeptReference):
    """The row n before it, with this row's columns; at the end the last n of each key, with nulls."""

    def process(self, row: Row) -> list[Row]:
        kept = self.states.setdefault(self.key_of(row), collections.deque())
        kept.append(row)
        if len(kept) <= self.operator.n:
            return []
        return [(*kept.popleft(), *(row[index] for index in self.operator.columns))]

    def rest(self, key: Any) -> list[Row]:
        nulls = (None,) * len(self.operator.columns)
        return [(*row, *nulls) for row in self.states[key]]


# ---------------------------------------------------------------------------------------------- deduplicate


@dataclass(frozen=True, eq=False, kw_only=True)
class Deduplicate(KeptRows):
    """What both have.

    Attributes
    ----------
    clock : Clock or None
        The clock that ends spans, at the multiples of their length; None: marks that the run was told to
        make do, all of them.
    """

    op: ClassVar[str] = "deduplicate"
    yields_clock: ClassVar[bool] = True

    clock: Clock | None = None

    @property
    def period(self) -> int | None:
        """At whose multiples it looks at its clock; None: at every mark."""
        return None if self.clock is None or self.within is None else max(self.within, 1)

    def clock_wanted(self) -> tuple[Clock, int] | None:
        return None if self.clock is None or self.period is None else (self.clock, self.period)

    def clock_input(self) -> int | None:
        return self.time

    def with_clock(self, clock: Clock | None) -> Self:
        return self.changed(clock=clock)

    def own_notes(self) -> list[str]:
        if self.time is None:
            return []
        if self.clock is None or self.period is None:
            return [f"{self.input.names[self.time]!r} is not the clock: spans end at their key's next row, "
                    "or by punctuate="]  # fmt: skip
        period = self.spans_of(self.time)(self.period)
        return [f"spans end by {clock_text(self.clock)}, at multiples of {period}"]


@dataclass(frozen=True, eq=False, kw_only=True)
class DeduplicateFirst(Deduplicate):
    """Output: a row, unless one of its key was given less than a span before."""

    mode: ClassVar[str] = "first"
    passes_unread: ClassVar[bool] = True

    def only_forgets(self) -> bool:
        return True

    def reference(self) -> SerialOperator:
        return DeduplicateFirstReference(self)

    def kept(self) -> tuple[int, ...]:
        return ()

    def columns_read(self) -> set[int]:
        return {*self.key, *(() if self.time is None else (self.time,))}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"deduplicate{self.by_key}, keep first{self._within_text()}"

    def shown(self) -> str:
        return f"deduplicate{self.by_key}, keep first{self._within_text(shown=True)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class DeduplicateLast(Deduplicate):
    """Output: the last row of those that lie in a span, or of all."""

    mode: ClassVar[str] = "last"

    def reference(self) -> SerialOperator:
        return DeduplicateLastReference(self)

    def describe(self) -> str:
        return f"deduplicate{self.by_key}, keep last{self._within_text()}"

    def shown(self) -> str:
        return f"deduplicate{self.by_key}, keep last{self._within_text(shown=True)}"

    @property
    def only_at_end(self) -> bool:
        return self.within is None

    def final(self) -> Operator:
        return self if self.only_at_end else super().final()


def bind_deduplicate(
    site: Site,
    within: Duration | None,
    keep: Literal["first", "last"],
    time: str | None,
) -> Operator:
    """deduplicate by the site's key.

    Raises
    ------
    PlanError, SchemaError
        Arguments that do not go together, or do not fit the schema.
    """
    if not is_one_of(keep, ("first", "last")):
        raise PlanError(f"{site.name}: keep must be 'first' or 'last', got {keep!r}")
    if isinstance(within, str) and within in site.schema.names:
        raise PlanError(
            f"{site.name}: within is a length of time, got {within!r}; columns are given as a list"
        )
    if (time is None) != (within is None):
        raise PlanError(
            f"{site.name}: time and within go together, such as within=600, time='ts'; got time={time!r}, "
            f"within={within!r}"
        )
    index = span = None
    if within is not None:
        index = column_index(site.schema, time, site.name)
        span = time_span(within, site.schema.field(index), f"{site.name}: within")
        if span < 0:
            raise PlanError(f"{site.name}: within must be at least 0, got {within!r}")
    kind = DeduplicateFirst if keep == "first" else DeduplicateLast
    clock = None if index is None else clock_at(site.before, index)
    return kind(**site.fields(site.schema), time=index, within=span, clock=clock)


class _Spans(Keyed):
    """What both have. A state is [start, time of the last row, row]."""

    def met(self, row: Row) -> tuple[Any, Any, list[Any] | None]:
        """Key, time and state of a row; a time that is null or runs backwards is an error."""
        index = self.operator.time
        now = None if index is None else self.not_null(row, index)
        key = self.key_of(row)
        state = self.states.get(key)
        if state is not None and index is not None:
            self.not_earlier(now, state[1], index)
        return key, now, state

    def is_over(self, state: list[Any], now: Any) -> bool:
        """Whether a time is behind the span of a state."""
        return now is not None and now - state[0] > self.operator.within

    def over_at(self, time: int) -> list[Any]:
        """Keys whose spans lie before a mark, by start, then key."""
        if self.operator.within is None:
            return []
        period = self.operator.period or 1
        time = time // period * period
        return sorted((k for k, s in self.states.items() if self.is_over(s, time)),
                      key=lambda k: (self.states[k][0], k))  # fmt: skip


class DeduplicateFirstReference(_Spans):
    """A row that begins a span."""

    def process(self, row: Row) -> list[Row]:
        key, now, state = self.met(row)
        if state is not None and not self.is_over(state, now):
            state[1] = now
            return []
        self.states[key] = [now, now]
        return [row]

    def on_time(self, time: int) -> list[Step]:
        for key in self.over_at(time):
            del self.states[key]
        return []


class DeduplicateLastReference(_Spans):
    """The last row of a span, when a row or a time is behind it, or at the end."""

    def process(self, row: Row) -> list[Row]:
        key, now, state = self.met(row)
        if state is None or self.is_over(state, now):
            self.states[key] = [now, now, row]
            return [] if state is None else [state[2]]
        state[1:] = now, row
        return []

    def on_time(self, time: int) -> list[Step]:
        return [partial(self.rest, key) for key in self.over_at(time)]

    def flush(self) -> list[Step]:
        return [partial(self.rest, key) for key in self.ascending()]

    def rest(self, key: Any) -> list[Row]:
        """The row of a key, which is forgotten."""
        return [self.states.pop(key)[2]]

"""join_interval and join_asof: tuples of two sides that have one key, and times near each other.

The two sides come in one sequence, with a column that tells them apart. A pair is given at the later of its
two tuples in that sequence, so what is given depends on nothing else. Null in a key equals nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self, get_args

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.choices import is_one_of
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.types import INT64_MAX, column_index
from ordstream.operators.arguments import nonempty, positive_int
from ordstream.operators.clocks import Clock, ComputedClock, clock_at, clock_text
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, Step, normal

How = Literal["inner", "left", "right", "full"]

#: How far behind a kept row a tuple of the other side must, and may, be to match it (None: any time).
Reach = tuple[int, int | None]

LEFT, RIGHT = 0, 1

#: What to write for joins that others have, or call otherwise.
_OTHER_HOW = {
    **{f"{how}{_}outer": f"; write how={how!r}" for how in get_args(How)[1:] for _ in ("", "_")},
    "outer": "; write how='full'",
    "anti": "; write how='left', and behind it filter(column.is_null()) of a column of the right",
    "semi": "; write how='inner', and behind it deduplicate by columns that tell left tuples apart",
}


@dataclass(frozen=True)
class Sides:
    """How a lane of two sides is read.

    Attributes
    ----------
    side : str
        A bool column: true for the tuples of the right side.
    times : (str, str)
        Time columns of left and right tuples; may be one column.
    left, right : mapping of output name to column
        What is shown of either side, beside the key.
    clock : int or ComputedClock, optional
        What the times of both sides are, where the lane does not show it.
    """

    side: str
    times: tuple[str, str]
    left: Mapping[str, str]
    right: Mapping[str, str]
    clock: int | ComputedClock | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeJoin(Operator):
    """Output: key columns, columns of a left tuple, columns of a right one.

    Attributes
    ----------
    side : int
        Bool column: true for the tuples of the right side.
    times : (int, int)
        Time columns of left and right tuples.
    left, right : tuple of int
        Columns that are shown.
    clock : Clock or None
        The clock that forgets rows; None: the next row of their key does.
    max_state_bytes : int or None
        Of all keys.
    """

    stateful: ClassVar[bool] = True
    keeps_time: ClassVar[bool] = False
    #: Only the last right row of a key is kept.
    last_only: ClassVar[bool] = False

    side: int
    times: tuple[int, int]
    left: tuple[int, ...]
    right: tuple[int, ...]
    clock: Clock | None = None
    max_state_bytes: int | None = None

    @classmethod
    def fields(cls, site: Site, sides: Sides, max_state_bytes: Any) -> dict[str, Any]:
        """The fields of both joins.

        Raises
        ------
        PlanError, SchemaError
            The arguments do not fit the schema.
        """
        where, schema = site.name, site.schema
        if not site.key:
            raise PlanError(f"{where}: a join needs at least one key column")
        side = column_index(schema, sides.side, where)
        if not pat.is_boolean(schema.field(side).type):
            raise SchemaError(f"{where}: {sides.side!r} tells the sides apart and must be bool")
        times = tuple(column_index(schema, time, where) for time in sides.times)
        if schema.field(times[LEFT]).type != schema.field(times[RIGHT]).type:
            types = " and ".join(str(schema.field(index).type) for index in times)
            raise SchemaError(f"{where}: the times of both sides must be of one type, they are {types}")
        time_span(0, schema.field(times[LEFT]), where)  # a type that can be a time
        shown = [_shown(schema, columns, where) for columns in (sides.left, sides.right)]
        clock = clock_at(site.before, times[LEFT]) if sides.clock is None else sides.clock
        if max_state_bytes is not None:
            max_state_bytes = positive_int(max_state_bytes, f"{where}: max_state_bytes")
        return {
            **site.fields(site.behind_key([*shown[LEFT][1], *shown[RIGHT][1]])),
            "side": side,
            "times": times,
            "left": shown[LEFT][0],
            "right": shown[RIGHT][0],
            "clock": clock if times[LEFT] == times[RIGHT] else None,
            "max_state_bytes": max_state_bytes,
        }

    @property
    def kept(self) -> tuple[Reach | None, Reach | None]:
        """Of either side what a kept row may meet; None: its rows are not kept."""
        raise NotImplementedError(f"{type(self).__name__} keeps nothing")

    @property
    def alone(self) -> tuple[bool, bool]:
        """Of either side: tuples that nothing matches are given too."""
        raise NotImplementedError(f"{type(self).__name__} gives nothing")

    @property
    def period(self) -> int:
        """Of the marks that it looks at: about how long a row may be kept."""
        longest = max(1, *(reach[1] or 0 for reach in self.kept if reach is not None))
        return min(longest, INT64_MAX)

    def shown_input(self, row: dict[str, Any]) -> dict[str, Any]:
        names = self.input.names
        side = RIGHT if row.get(names[self.side]) else LEFT
        shown = self.right if side == RIGHT else self.left
        own = {names[index] for index in (*self.key, self.times[side], *shown)}
        return {name: value for name, value in row.items() if name in own}

    def kernel(self) -> Any:
        from ordstream._core.kernels.time_joins import TimeJoinKernel

        return TimeJoinKernel(self, self.kept, self.last_only, self.alone)

    def reference(self) -> SerialOperator:
        return TimeJoinReference(self)

    def clock_wanted(self) -> tuple[Clock, int] | None:
        bounded = all(reach is None or reach[1] is not None for reach in self.kept)
        return None if self.clock is None or not bounded else (self.clock, self.period)

    def only_forgets(self) -> bool:
        given = any(reach is not None and alone for reach, alone in zip(self.kept, self.alone, strict=True))
        return not given and self.max_state_bytes is None

    def clock_input(self) -> int | None:
        return self.times[LEFT]

    def with_clock(self, clock: Clock | None) -> Self:
        return self.changed(clock=clock)

    def state_schema(self) -> pa.Schema | None:
        """Time of the last tuple; of each side that is kept the number of rows, and these as bytes, oldest
        first, as `KeptRows.state_schema` has them; of a side whose rows are given without a match too, a
        byte per row: 1 where one was found.
        """
        own = [pa.field("latest", self.input.field(self.times[LEFT]).type)]
        names = (("left", "matched"), ("right", "matched_right"))
        for (name, matched), reach, alone in zip(names, self.kept, self.alone, strict=True):
            if reach is not None:
                own += [pa.field(name, pa.int64()), pa.field(f"{name}_values", pa.binary())]
                own += [pa.field(matched, pa.binary())] * alone
        return state_rows(self, own)

    def state_identity(self) -> dict[str, str]:
        """With the types of what is kept, which the bytes do not tell."""
        identity = super().state_identity()
        sides = (("left", self.left, self.times[LEFT]), ("right", self.right, self.times[RIGHT]))
        for name, shown, time in sides:
            fields = [self.input.field(index) for index in dict.fromkeys((*shown, time))]
            identity[name] = ", ".join(f"{field.name}: {field.type}" for field in fields)
        return identity

    def columns_read(self) -> set[int]:
        # its state is whole rows, whatever is read of them later
        return {self.side, *self.key, *self.times, *self.left, *self.right}

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def own_notes(self) -> list[str]:
        notes = []
        if self.max_state_bytes is not None:
            notes.append(f"at most {self.max_state_bytes} bytes of state")
        if self.clock is not None and self.clock_wanted() is not None:
            period = self.spans_of(self.times[LEFT])(self.period)
            return [*notes, f"rows are forgotten by {clock_text(self.clock)}, at multiples of {period}"]
        return [*notes, "rows are forgotten at their key's next tuple"]

    def _time_text(self) -> str:
        return " and ".join(dict.fromkeys(self.input.names[index] for index in self.times))


def _shown(
    schema: pa.Schema, columns: Mapping[str, str], where: str
) -> tuple[tuple[int, ...], list[pa.Field]]:
    """Indexes of columns, and the output fields, which may be null: a tuple has those of one side."""
    indexes = tuple(column_index(schema, column, where) for column in columns.values())
    named = zip(columns, indexes, strict=True)
    return indexes, [pa.field(nonempty(name, where), schema.field(index).type) for name, index in named]


# ---------------------------------------------------------------------------------------------- interval


@dataclass(frozen=True, eq=False, kw_only=True)
class IntervalJoin(TimeJoin):
    """Output: each pair of a left and a right tuple whose times differ by as much as is asked for.

    Attributes
    ----------
    within : (int, int)
        Least and most of the right time less the left one.
    how : "inner", "left", "right" or "full"
    """

    op: ClassVar[str] = "join_interval"

    within: tuple[int, int]
    how: How = "inner"

    @classmethod
    def bind(cls, site: Site, sides: Sides, within: Any, how: Any, max_state_bytes: Any = None) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where = site.name
        if not is_one_of(how, get_args(How)):
            other = _OTHER_HOW.get(str(how), "")
            raise PlanError(f"{where}: how must be 'inner', 'left', 'right' or 'full', got {how!r}{other}")
        fields = cls.fields(site, sides, max_state_bytes)
        if not isinstance(within, tuple | list) or len(within) != 2:
            example = "such as ('0s', '1h'), a right tuple up to an hour behind the left one"
            raise PlanError(f"{where}: within must be a pair (least, most), {example}; got {within!r}")
        time = site.schema.field(fields["times"][LEFT])
        low, high = (time_span(one, time, f"{where}: within") for one in within)
        if low > high:
            raise PlanError(f"{where}: within must be (least, most), got {within!r}: its least is larger")
        return cls(**fields, within=(low, high), how=how)

    @property
    def kept(self) -> tuple[Reach | None, Reach | None]:
        low, high = self.within
        return (
            (max(low, 0), high) if high >= 0 else None,
            (max(-high, 0), -low) if low <= 0 else None,
        )

    @property
    def alone(self) -> tuple[bool, bool]:
        return self.how in ("left", "full"), self.how in ("right", "full")

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(self.spans_of(self.times[LEFT]))

    def _text(self, span: Callable[[int], str]) -> str:
        low, high = map(span, self.within)
        return f"join_interval {self.how}{self.by_key}, right {self._time_text()} - left in [{low}, {high}]"


# ---------------------------------------------------------------------------------------------- as of


@dataclass(frozen=True, eq=False, kw_only=True)
class AsofJoin(TimeJoin):
    """Output: each left tuple with the last right one of its key before it, or nulls.

    Attributes
    ----------
    tolerance : int or None
        How much earlier the right tuple may be; None: any time.
    """

    op: ClassVar[str] = "join_asof"
    one_to_one: ClassVar[bool] = True
    keeps_time: ClassVar[bool] = True
    last_only: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    tolerance: int | None = None

    @classmethod
    def bind(cls, site: Site, sides: Sides, tolerance: Duration | None, max_state_bytes: Any = None) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        fields = cls.fields(site, sides, max_state_bytes)
        span = None
        if tolerance is not None:
            time = site.schema.field(fields["times"][LEFT])
            span = time_span(tolerance, time, f"{site.name}: tolerance")
            if span < 0:
                raise PlanError(f"{site.name}: tolerance must be at least 0, got {tolerance!r}")
        return cls(**fields, tolerance=span)

    @property
    def kept(self) -> tuple[Reach | None, Reach | None]:
        return None, (0, self.tolerance)

    @property
    def alone(self) -> tuple[bool, bool]:
        return True, False

    def columns_read(self) -> set[int]:
        if any(pat.is_floating(self.input.field(index).type) for index in self.key):
            return super().columns_read()  # keys are shown as they compare, so rows are put together
        return {self.side, *self.key, *self.times, *self.right}

    def columns_passed(self) -> dict[int, int]:
        left = {len(self.key) + place: index for place, index in enumerate(self.left)}
        return self.key_passed() | left

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(self.spans_of(self.times[LEFT]))

    def _text(self, span: Callable[[int], str]) -> str:
        tolerance = "" if self.tolerance is None else f", at most {span(self.tolerance)} before it"
        return f"join_asof{self.by_key}, the last right tuple by {self._time_text()}{tolerance}"


# ---------------------------------------------------------------------------------------------- reference


@dataclass
class KeptRow:
    """A row that later tuples of the other side may match."""

    time: int
    row: Row
    matched: bool = False


@dataclass
class Joined:
    """State of a key: the time of its last tuple, and the rows of both sides, oldest first."""

    latest: int
    rows: tuple[list[KeptRow], list[KeptRow]] = field(default_factory=lambda: ([], []))


class TimeJoinReference(Keyed):
    """A tuple with the kept rows of its key's other side, oldest first; then it is kept itself."""

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        side = RIGHT if row[operator.side] else LEFT
        if any(row[index] is None for index in operator.key):
            return [self.shown_alone(row, side)] if operator.alone[side] else []
        now, key = self.not_null(row, operator.times[side]), self.key_of(row)
        state = self.states.get(key)
        self.not_earlier(now, None if state is None else state.latest, operator.times[side])
        state = self.states.setdefault(key, Joined(now))
        state.latest = now
        alone = [self.shown_alone(one.row, of) for one, of in self.forgotten(state, now)]
        return [*alone, *self.met(state, KeptRow(now, row), side)]

    def met(self, state: Joined, new: KeptRow, side: int) -> list[Row]:
        """The outputs of a tuple with the rows that are left of the other side; it is kept."""
        operator = self.operator
        pairs = []
        for one in state.rows[1 - side]:
            if new.time - one.time >= operator.kept[1 - side][0]:
                left, right = (new, one) if side == LEFT else (one, new)
                pairs.append(self.shown(left.row, right.row))
                one.matched = new.matched = True
        if operator.kept[side] is None:
            alone = operator.alone[side] and not new.matched
            return [self.shown_alone(new.row, side)] if alone else pairs
        if operator.last_only:
            state.rows[side].clear()
        state.rows[side].append(new)
        return pairs

    def forgotten(self, state: Joined, now: int) -> list[tuple[KeptRow, int]]:
        """Forget the rows that no tuple from a time on matches. Of these the ones that are given, with their
        sides.
        """
        alone = []
        for side, (rows, reach) in enumerate(zip(state.rows, self.operator.kept, strict=True)):
            most = None if reach is None else reach[1]
            while rows and most is not None and now - rows[0].time > most:
                one = rows.pop(0)
                if self.operator.alone[side] and not one.matched:
                    alone.append((one, side))
        return alone

    def on_time(self, time: int) -> list[Step]:
        operator = self.operator
        if operator.clock_wanted() is None:
            return []
        mark = time // operator.period * operator.period
        due = [(one.time, key, one.row, side) for key, state in self.states.items()
               for one, side in self.forgotten(state, mark)]  # fmt: skip
        for key in [key for key, s in self.states.items() if not any(s.rows) and s.latest < mark]:
            del self.states[key]
        rows = [self.shown_alone(row, side) for _, _, row, side in sorted(due, key=lambda one: one[:2])]
        return [lambda row=row: [row] for row in rows]  # type: ignore[misc]

    def flush(self) -> list[Step]:
        if not any(self.operator.alone):
            return []
        return [lambda key=key: self.rest(key) for key in self.ascending()]  # type: ignore[misc]

    def rest(self, key: Any) -> list[Row]:
        """Rows that nothing matched."""
        alone = [(one, side) for side, rows in enumerate(self.states[key].rows) for one in rows
                 if self.operator.alone[side] and not one.matched]  # fmt: skip
        return [self.shown_alone(one.row, side) for one, side in alone]

    def shown_alone(self, row: Row, side: int) -> Row:
        """A row of one side without any of the other."""
        return self.shown(row, None) if side == LEFT else self.shown(None, row)

    def shown(self, left: Row | None, right: Row | None) -> Row:
        """A left and a right row, behind their key in its normal form."""
        operator = self.operator
        key = (normal((left or right or ())[index]) for index in operator.key)
        sides = ((operator.left, left), (operator.right, right))
        values = (None if row is None else row[index] for columns, row in sides for index in columns)
        return (*key, *values)

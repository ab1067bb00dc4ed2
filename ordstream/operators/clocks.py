"""Clocks: what moves the time punctuations that an operator looks at.

A clock is a column of the source, a value that is computed of columns of the source row by row, or the
output of a `reorder`. The first two are the one clock of a run that every tuple of the source moves; a
`reorder` moves its own, for what is behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordstream.expressions.bound import LOADS, BoundExpr, evaluate_row

if TYPE_CHECKING:
    from ordstream.operators.operator import Operator


@dataclass(frozen=True, eq=False)
class ClockStep:
    """Columns made of those of the step before.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the columns that it takes.
    columns : tuple of int or BoundExpr
        One of these passed on, or what computes a column.
    """

    schema: pa.Schema
    columns: tuple[int | BoundExpr, ...]


@dataclass(frozen=True, eq=False)
class ComputedClock:
    """A time that is computed of columns of the source, row by row, whatever operators in front drop.

    Attributes
    ----------
    field : pyarrow.Field
        The time, as the operator that looks at it knows it.
    columns : tuple of int
        Of the source: what the first step takes.
    steps : tuple of ClockStep
        In order; the last one makes one column.
    """

    field: pa.Field
    columns: tuple[int, ...]
    steps: tuple[ClockStep, ...]

    def of(self, row: Sequence[Any]) -> int | None:
        """The time of a row of the source, in storage values. None: it is null, or can't be computed."""
        values: list[Any] = [row[index] for index in self.columns]
        try:
            for step in self.steps:
                values = [
                    evaluate_row(made, values) if isinstance(made, BoundExpr) else values[made]
                    for made in step.columns
                ]
        except (OverflowError, ZeroDivisionError, ValueError):
            return None
        (time,) = values
        return None if time is None else int(time)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ComputedClock):
            return NotImplemented
        return (
            self.columns == other.columns
            and self.field.type == other.field.type
            and len(self.steps) == len(other.steps)
            and all(map(_same_step, self.steps, other.steps))
        )

    def __hash__(self) -> int:
        return hash((self.columns, len(self.steps)))


@dataclass(frozen=True)
class ReorderedClock:
    """The time that a `reorder` has reached: nothing that is earlier leaves it any more.

    Attributes
    ----------
    operator : str
        Its name.
    """

    operator: str


#: A column of the source by its index, or one of the others.
Clock = int | ComputedClock | ReorderedClock


def clock_text(clock: Clock) -> str:
    """What moves a clock, for `explain`."""
    if isinstance(clock, ReorderedClock):
        return f"the clock that leaves {clock.operator!r}"
    if isinstance(clock, ComputedClock):
        return f"the clock {clock.field.name!r}, computed of every tuple of the source"
    return "the clock"


def clock_name(clock: int | ComputedClock, source: pa.Schema) -> str:
    """The column that moves the clock of a run."""
    return str(clock.field.name if isinstance(clock, ComputedClock) else source.names[clock])


def clock_at(before: Sequence[Operator], index: int) -> Clock | None:
    """The clock as an operator sees it: what a column of the tuples that arrive is, if that is a clock.

    The first operator of a pipeline that wants the clock of the run chooses it, one that yields it if there
    is no other; each tuple of the source moves it, also one that a filter drops.

    Parameters
    ----------
    before : sequence of Operator
        The operators in front.
    index : int
        Column of the tuples that arrive.

    Returns
    -------
    int, ComputedClock, ReorderedClock or None
        None: the column is made by a function or an aggregation, or it is another one than the clock.
    """
    needed, steps = [index], list[ClockStep]()
    for operator in reversed(before):
        own = operator.clock_of(needed[0]) if not steps else None
        if own is not None:
            return own
        made = [operator.column_made(column) for column in needed] if operator.keeps_time else [None]
        columns = _taken(made)
        if columns is None:
            return None
        if any(isinstance(one, BoundExpr) for one in made):
            at = {column: place for place, column in enumerate(columns)}
            schema = pa.schema([operator.input.field(column) for column in columns])
            steps.insert(0, ClockStep(schema, tuple(_moved(one, at) for one in made if one is not None)))
            needed = columns
        else:
            needed = [one for one in made if isinstance(one, int)]
    field = before[-1].output.field(index) if steps else None
    clock: Clock = needed[0] if field is None else ComputedClock(field, tuple(needed), tuple(steps))
    chosen = next((one for one in map(_wanted, before) if one is not None), clock)
    return clock if clock == chosen else None


def _wanted(operator: Operator) -> Clock | None:
    """The clock of the run that an operator wants, and does not yield."""
    wanted = None if operator.yields_clock else operator.clock_wanted()
    return None if wanted is None or isinstance(wanted[0], ReorderedClock) else wanted[0]


def _taken(made: Sequence[int | BoundExpr | None]) -> list[int] | None:
    """The columns that others are made of, ascending; None: one of them is made in another way."""
    found: set[int] = set()
    for one in made:
        if one is None:
            return None
        found |= set(one.columns()) if isinstance(one, BoundExpr) else {one}
    return sorted(found)


def _moved(made: int | BoundExpr, at: dict[int, int]) -> int | BoundExpr:
    """The same where columns have other places."""
    if not isinstance(made, BoundExpr):
        return at[made]
    code = tuple((name, at[rest[0]], *rest[1:]) if name in LOADS else (name, *rest)
                 for name, *rest in made.code)  # fmt: skip
    return replace(made, code=code)


def _same_step(one: ClockStep, other: ClockStep) -> bool:
    return len(one.columns) == len(other.columns) and all(map(_same_column, one.columns, other.columns))


def _same_column(one: int | BoundExpr, other: int | BoundExpr) -> bool:
    if isinstance(one, int) or isinstance(other, int):
        return one is other or one == other
    if one.arrow != other.arrow or len(one) != len(other):
        return False
    return all(len(a) == len(b) and all(map(_same_operand, a, b))
               for a, b in zip(one.code, other.code, strict=True))  # fmt: skip


def _same_operand(one: Any, other: Any) -> bool:
    """Tables and functions of Arrow are the same where they are one object."""
    plain = isinstance(one, int | float | str | bytes) and type(one) is type(other)
    return one is other or (plain and bool(one == other))

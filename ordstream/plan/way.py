"""The way of a plan's output: which operators it came through, as an operator that is put behind asks
(`Site.before`).

Of a graph it begins at the last union: what lies in front of that stands there as one thing, which says what
all ways through it have in common.
"""

from __future__ import annotations

from typing import Any

from ordstream.operators.clocks import Clock, ReorderedClock
from ordstream.plan.plan import SOURCE, Plan


def way(plan: Plan) -> tuple[Any, ...]:
    """All operators of a line, in order; of a graph `Joined`, if there is a union, and those behind it."""
    if not plan.is_graph:
        return plan.operators
    found: list[Any] = []
    position = len(plan.operators) - 1
    while position != SOURCE:
        operator = plan.operators[position]
        if operator.places > 1:
            found.append(Joined(plan, position))
            break
        found.append(operator)
        position = plan.producers(position)[0]
    return tuple(reversed(found))


class Joined:
    """A union and all in front of it, for questions about columns and the clock.

    Parameters
    ----------
    plan : Plan
    position : int
        Of the union.
    """

    keeps_time = True
    sheds = False
    yields_clock = False

    def __init__(self, plan: Plan, position: int) -> None:
        self._plan, self._position = plan, position

    @property
    def kind(self) -> str:
        """ "SL" where no operator has a state."""
        kinds = [one.kind for one in self._plan.operators[: self._position]]
        return next((kind for kind in kinds if kind != "SL"), "SL")

    @property
    def fans_out(self) -> bool:
        """Whether there may be several outputs for one tuple: a tuple may go several ways."""
        return True

    def columns_passed(self) -> dict[int, int]:
        """Output columns that are one column of each source: its index in the one that the first way begins
        at.
        """
        found = {}
        for column in range(len(self._plan.operators[self._position].output)):
            columns = traced(self._plan, self._position, 0, column)
            if columns:
                found[column] = next(iter(columns.values()))
        return found

    def column_made(self, column: int) -> int | None:
        """As `columns_passed`."""
        return self.columns_passed().get(column)

    def clock_of(self, column: int) -> Clock | None:
        """That of the one `reorder` whose time the column is on every way."""
        found = _reordered(self._plan, self._position, column)
        return None if found is None else found[1]

    def clock_wanted(self) -> tuple[Clock, int] | None:
        """As the first operator in front that wants a clock of the run, and does not yield it. Of several
        sources the merge decides: each has a column of its own.
        """
        if self._plan.sources:
            return None
        operators = (one for one in self._plan.operators[: self._position] if not one.yields_clock)
        wanted = (one for operator in operators if (one := operator.clock_wanted()) is not None)
        return next((one for one in wanted if not isinstance(one[0], ReorderedClock)), None)


def traced(plan: Plan, position: int, port: int, column: int) -> dict[int, int]:
    """Of each source, that of the first way first: which column of it a column behind an operator is, on
    every way from it. Empty: it is computed on one of the ways, or several columns of one source.
    """
    if position == SOURCE:
        return {port: column}
    operator = plan.operators[position]
    found: dict[int, int] = {}
    for edge in plan.inputs(position):
        at = operator.columns_passed_from(edge.place).get(column) if operator.keeps_time else None
        columns = {} if at is None else traced(plan, edge.producer, edge.port, at)
        if not columns or any(found.setdefault(source, one) != one for source, one in columns.items()):
            return {}
    return found


def _reordered(plan: Plan, position: int, column: int) -> tuple[int, Clock] | None:
    """Which operator moves the clock that a column behind an operator is on every way, and that clock; None:
    there is none, or several.
    """
    if position == SOURCE:
        return None
    operator = plan.operators[position]
    own = operator.clock_of(column)
    if own is not None:
        return position, own
    found = set()
    for edge in plan.inputs(position):
        at = operator.columns_passed_from(edge.place).get(column) if operator.keeps_time else None
        found.add(None if at is None else _reordered(plan, edge.producer, at))
    return found.pop() if len(found) == 1 else None

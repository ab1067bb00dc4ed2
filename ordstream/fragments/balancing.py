"""Keys that move while a run over several nodes goes on: the caller hears what they cost, decides, and puts
moves into the order (`ordstream.balance.mixed`).

After every so many tuples a marker has all nodes report. The controller of a fragment decides from the
reports of all its nodes; its move is put into the order behind the last tuple that was given out, one at a
time. When every node has told that it is done, the new table is in force.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ordstream.balance.keys import key_words
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.planners import Mixed
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.table import Assignment
from ordstream.errors import PlanError, SchemaError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.moving import Moved, Shift

#: Tuples from one report of the nodes to the next.
INTERVAL_ROWS = 32_768
#: Bytes that one receiver may have of one sender: a move takes effect behind what lies there.
CHANNEL_BYTES = 256 << 10


@dataclass(frozen=True)
class MoveFigures:
    """A move that was carried out.

    Attributes
    ----------
    serial : int
        It took effect behind this tuple.
    keys : int
        That changed their node, as the plan had it.
    rows, bytes : int
        Of state that changed its node.
    held : int
        Rows that waited for their state.
    move_delay : float
        Seconds, of the slowest node: from the first row behind the move until no output waited for the move
        any more.
    theta_before, theta_after : float
        Overload of the fullest node, by the costs known.
    """

    serial: int
    keys: int
    rows: int
    bytes: int
    held: int
    move_delay: float
    theta_before: float
    theta_after: float


@dataclass
class _UnderWay:
    """A move that was decided."""

    fragment: int
    move: Move
    shift: Shift | None = None
    serial: int = 0
    done: int = 0
    rows: int = 0
    bytes: int = 0
    held: int = 0
    seconds: float = 0.0
    cancelled: bool = False
    back: bool = False  # its keys are on their way back


class Balancing:
    """See the module. The reading thread.

    Parameters
    ----------
    controllers : mapping of int to Controller
        Fragment -> what decides for it.
    processes : int
    interval : int
        Tuples from one report to the next.

    Attributes
    ----------
    tell : callable
        Tells every node of a `Shift`; of None where moves are given up.
    figures : list of MoveFigures
    """

    def __init__(
        self, controllers: Mapping[int, Controller], processes: int, interval: int = INTERVAL_ROWS
    ) -> None:
        self._controllers, self._processes, self._interval = dict(controllers), processes, interval
        self._next = interval
        self._waits_for = 0  # reports
        self._decided: _UnderWay | None = None
        self.tell: Callable[[Shift | None], None] = lambda shift: None
        self.figures: list[MoveFigures] = []

    # ---------------------------------------------------------------------------------------- to the driver

    def wants_report(self, serial: int) -> bool:
        """A marker that has nodes report belongs behind this tuple."""
        return serial >= self._next and not self._waits_for

    def asked(self, number: int, serial: int) -> None:
        """The marker is there."""
        self._waits_for = self._processes * len(self._controllers)
        self._next = serial + self._interval

    def wants_move(self) -> bool:
        """A move was decided that is not in the order yet."""
        return self._decided is not None and self._decided.shift is None

    def begin(self, number: int, serial: int) -> Shift:
        """Its marker is there, behind this tuple."""
        decided = self._decided
        assert decided is not None
        move = decided.move
        ends = move.source.tolist(), move.destination.tolist()
        pairs = frozenset(zip(*(reversed(ends) if decided.back else ends), strict=True))
        after = move.before if decided.back else move.after
        decided.shift, decided.serial = Shift(number, decided.fragment, after, pairs), serial
        self.tell(decided.shift)
        return decided.shift

    def abandon(self) -> None:
        """A node failed: what state is missing will not come."""
        if self._decided is not None:
            self.tell(None)

    # ---------------------------------------------------------------------------------------- from nodes

    def heard(self, said: Any) -> None:
        """`Moved`, or (fragment, `Report`)."""
        if isinstance(said, Moved):
            self._moved(said)
            return
        fragment, report = said
        self._reported(fragment, report)

    def _reported(self, fragment: int, report: Report) -> None:
        self._controllers[fragment].report(report)
        self._waits_for -= 1
        if self._waits_for or self._decided is not None:
            return
        for number, controller in self._controllers.items():
            move = controller.decide()
            if move is not None and len(move.keys):
                self._decided = _UnderWay(number, move)
                return
            if move is not None:
                controller.commit(move)

    def _moved(self, said: Moved) -> None:
        under_way = self._decided
        assert under_way is not None
        under_way.done += 1
        under_way.rows += said.rows
        under_way.bytes += said.bytes
        under_way.held += said.held
        under_way.seconds = max(under_way.seconds, said.move_delay)
        if under_way.done < self._processes:
            return
        move, controller = under_way.move, self._controllers[under_way.fragment]
        self._decided = None
        if under_way.back:
            controller.cancel(move)
            return
        if under_way.cancelled:
            self._decided = _UnderWay(under_way.fragment, move, back=True)
            return
        controller.commit(move)
        self.figures.append(
            MoveFigures(
                under_way.serial,
                len(move.keys),
                under_way.rows,
                under_way.bytes,
                under_way.held,
                under_way.seconds,
                move.theta_before,
                move.theta_after,
            )
        )

    # ---------------------------------------------------------------------------------------- from outside

    def cancel(self) -> bool:
        """Give up the move that is under way, if there is one: the table before it is in force again.
        Whether there was one.

        Before it is in the order nothing happens at all. Behind, keys that went come back by a move of
        their own, as soon as they are all there.
        """
        decided = self._decided
        if decided is None or decided.back:
            return False
        if decided.shift is None:
            self._controllers[decided.fragment].cancel(decided.move)
            self._decided = None
        else:
            decided.cancelled = True
        return True


def movable(fragments: tuple[Fragment, ...], processes: int) -> list[int]:
    """Fragments whose keys can change their node.

    Raises
    ------
    PlanError
        There is none, or a key is of a type that no route table has.
    """
    found = [k for k, one in enumerate(fragments) if one.key and one.nodes(processes) > 1]
    if not found:
        raise PlanError(
            "balance= moves keys between processes, and no operator of this pipeline has a key, or there is "
            "one process only: leave it out"
        )
    for k in found:
        for index in fragments[k].key or ():
            field = fragments[k].source.field(index)
            try:
                key_words(pa.array([], field.type))
            except (SchemaError, TypeError) as error:
                raise PlanError(
                    f"balance: the key {field.name!r} can't be routed by a table: {error}"
                ) from error
    return found


def tables_of(controllers: Mapping[int, Controller]) -> dict[int, Assignment]:
    """The route tables in force."""
    return {k: controller.assignment for k, controller in controllers.items()}


def controllers_of(balance: Any, fragments: tuple[Fragment, ...], processes: int) -> dict[int, Controller]:
    """What decides for each fragment whose keys can move.

    Raises
    ------
    PlanError
        `balance` is no policy, or as `movable`.
    """
    if isinstance(balance, Mapping):  # of a test, or of somebody who decides himself
        return dict(balance)
    if not isinstance(balance, Mixed):
        raise PlanError(f"balance must be a policy, od.Mixed(theta=0.08, table=3000); got {balance!r:.200}")
    return {k: Controller(balance, processes) for k in movable(fragments, processes)}

"""Keys that move while a run over several nodes goes on: the caller hears what they cost, decides, and puts
moves into the order (`ordstream.balance.mixed`).

After every so many tuples a marker has all nodes report. The controller of a fragment decides from the
reports of all its nodes: in a thread of its own (`wake`), since rows go through the caller meanwhile. Its
move is carried out in steps of a bounded number of keys and bytes of state, one at a time: each is put into
the order behind the last tuple that was given out, and the next one begins when every node has told that it
is done. So what a row waits for does not grow with the plan. Behind the last step the controller's table is
in force.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words, key_words
from ordstream.balance.mixed.controller import Controller, Move, go_on
from ordstream.balance.mixed.payback import Payback
from ordstream.balance.mixed.planners import Mixed
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats
from ordstream.balance.mixed.table import Assignment
from ordstream.errors import PlanError, SchemaError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.key_costs import NAMED, costed
from ordstream.fragments.move_pace import MovePace
from ordstream.fragments.moving import Moved, Shift
from ordstream.fragments.moving_route import Step, changed_words, joined
from ordstream.fragments.other_nodes import OtherNodes
from ordstream.ground.cpus import allowed_cpus

#: Tuples from one report of the nodes to the next.
INTERVAL_ROWS = 32_768
#: The first report comes after this part of them, the second after as many again, and so on: a start that is
#: lopsided shows soon, and a plan waits for the evidence that it needs.
FIRST_PART = 4
#: Part of the time for which the caller may decide, behind the first reports: rows go through it, and where
#: they are fast, nodes report the less often.
DECIDES = 0.1
#: Bytes that one receiver may have of one sender, and rows of the source that are sent together: a move
#: takes effect behind what lies there.
CHANNEL_BYTES = 128 << 10
BLOCK_ROWS = 4_096
#: Keys and bytes of state of one step of a move; a key that alone has more is a step. With less a move takes
#: longer, and no wait is much shorter: a step costs a node half a millisecond beside its keys.
STEP_KEYS = 128
STEP_BYTES = 64 << 10
#: Between two steps nothing moves, for so many times as long as the first took: else most rows meet one, and
#: some two.
PACE = 6.0
#: A step that takes so many seconds stood behind rows that wait, as those that stay do: what it costs a node
#: is little beside that. The next one follows at once, and is as much as so many.
LONG_S, LARGER = 0.01, 4
#: So many moves keep their figures: a stream may move keys for as long as it lives.
LAST_MOVES = 1000

#: A thread that decides leaves the interpreter to others for so long, each ms or so.
GIVE_WAY_S = 5e-5


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
        Seconds, of the slowest step and node: from the first row behind the step until no output waited for
        it any more.
    unmoved_delay : float
        Seconds: the longest that an output of a key which did not move waited for those of rows that were
        held.
    steps : int
    seconds : float
        From the decision to the end of the last step.
    theta_before, theta_after : float
        Overload of the fullest node, by the costs known.
    gain, cost : float
        Seconds of the fullest node's work: what it would have saved since the move before, and what it was
        expected to cost; 0 with `Mixed(payback=0)`.
    lost : float or None
        What it cost (`MovePace`); None: it was not known how fast rows go else.
    """

    serial: int
    keys: int
    rows: int
    bytes: int
    held: int
    move_delay: float
    unmoved_delay: float
    steps: int
    seconds: float
    theta_before: float
    theta_after: float
    gain: float = 0.0
    cost: float = 0.0
    lost: float | None = None


@dataclass
class _UnderWay:
    """A move that was decided."""

    fragment: int
    move: Move
    now: Assignment  # by which rows go
    steps: list[Step]  # that are still to come; of the first one a marker may be in the order
    shift: Shift | None = None
    serial: int = 0
    done: int = 0  # nodes, of this step
    steps_done: int = 0
    rows: int = 0
    bytes: int = 0
    held: int = 0
    delay: float = 0.0
    unmoved: float = 0.0
    step_began: float = 0.0
    next_step: float = 0.0  # not before, by `time.perf_counter`
    cancelled: bool = False
    back: bool = False  # its keys are on their way back
    began: float = field(default_factory=time.perf_counter)


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
        Tells every node of a `Shift`, or of the tag at which a node failed.
    wake : callable or None
        Called by a thread that has decided, to have `wants_move` asked. None: decisions are made at once,
        where the last report is heard.
    figures : list of MoveFigures
    """

    block_rows = BLOCK_ROWS

    def __init__(
        self, controllers: Mapping[int, Controller], processes: int, interval: int = INTERVAL_ROWS
    ) -> None:
        self._controllers, self._processes, self._interval = dict(controllers), processes, interval
        self._named: dict[int, str] = {}  # fragment: its first operator
        self._other_nodes = {k: OtherNodes() for k in self._controllers}
        self._by_plan = dict.fromkeys(self._controllers, 0)  # keys that moves have moved
        self._next = max(1, interval // FIRST_PART)
        self._waits_for = 0  # reports
        self._asked_at = self._took_s = 0.0  # for the last reports; and what it took to decide by them
        self._reports: dict[int, list[tuple[Report, Floats]]] = {}  # of the interval, by fragment
        self._times: dict[int, dict[int, float]] = {k: {} for k in self._controllers}
        self._decided: _UnderWay | None = None
        self._undecided: list[int] = []  # fragments that were not asked since their nodes reported
        self.wake: Callable[[], None] | None = None
        self._thinking: threading.Thread | None = None  # has the controllers meanwhile
        self._settling = threading.Lock()
        self._thought: list[_UnderWay | BaseException | None] = []  # by that thread: at most one
        self.tell: Callable[[Shift | bytes], None] = lambda what: None
        self._failed = False
        self.figures: deque[MoveFigures] = deque(maxlen=LAST_MOVES)
        self._pace = MovePace(time.perf_counter)
        self._serial = 0  # where the source is
        self._caller = time.process_time()  # up to the last reports

    # ---------------------------------------------------------------------------------------- to the driver

    def wants_report(self, serial: int) -> bool:
        """A marker that has nodes report belongs behind this tuple."""
        self._serial = serial
        if serial < self._next or self._waits_for or not self._has_thought():
            return False
        early = serial <= self._interval
        return early or time.perf_counter() >= self._asked_at + self._took_s / DECIDES

    def asked(self, number: int, serial: int) -> None:
        """The marker is there."""
        self._waits_for = self._processes * len(self._controllers)
        self._asked_at = time.perf_counter()
        self._pace.reports_at(serial)
        self._next = serial + min(self._interval, serial)

    def wants_move(self) -> bool:
        """A move was decided that is not in the order yet."""
        self._has_thought()
        decided = self._decided
        if decided is None or decided.shift is not None or self._failed:
            return False
        return time.perf_counter() >= decided.next_step

    @property
    def due_in(self) -> float | None:
        """Seconds until the next step may begin; None: none waits for its time, which may be over: what
        begins none then is not the clock.
        """
        decided = self._decided
        if decided is None or decided.shift is not None or self._failed:
            return None
        left = decided.next_step - time.perf_counter()
        return left if left > 0 else None

    @property
    def pauses(self) -> bool:
        """No row may follow the step that is in the order before it is done (`Mixed.protocol`)."""
        decided = self._decided
        if decided is None or decided.shift is None:
            return False
        return self._controllers[decided.fragment].policy.protocol == "pause"

    def begin(self, number: int, serial: int) -> Shift:
        """Its marker is there, behind this tuple."""
        decided = self._decided
        assert decided is not None
        decided.shift = Shift(number, decided.fragment, decided.steps[0])
        decided.serial = decided.serial or serial
        self._pace.moves_at(serial)
        decided.step_began = time.perf_counter()
        self.tell(decided.shift)
        return decided.shift

    # ---------------------------------------------------------------------------------------- snapshots

    def goes_on(self, fragments: Sequence[Fragment], routes: Mapping[str, bytes]) -> dict[int, Assignment]:
        """Begin with the tables of a snapshot (`routes`). The tables in force, by fragment."""
        for k, controller in self._controllers.items():
            self._named[k] = fragments[k].operators[0].name
            data = routes.get(self._named[k])
            if data is None:
                continue
            found, ring = Assignment.from_bytes(data), controller.assignment.ring
            if (found.ring.points, found.ring.seed) == (ring.points, ring.seed):
                controller.assignment = found.on(ring)  # of as many nodes as there are now
                self._other_nodes[k] = OtherNodes(found)
        return tables_of(self._controllers)

    def restored(self, fragment: int, words: Words, nodes: Instances, rows: pa.RecordBatch) -> None:
        """As of `node_state.Watch`."""
        self._other_nodes[fragment].restored(words, nodes, rows)

    @property
    def routes(self) -> dict[str, bytes]:
        """As of `Snapshot`: the tables by which rows go from here on."""
        tables = tables_of(self._controllers)
        if self._decided is not None:
            decided = self._decided
            in_order = decided.shift is not None
            tables[decided.fragment] = decided.steps[0].behind(decided.now) if in_order else decided.now
        return {self._named[k]: table.to_bytes() for k, table in tables.items() if k in self._named}

    def report(self) -> dict[str, dict[str, Any]]:
        """As `Report.balance`. Any thread."""
        found = {}
        for k, controller in self._controllers.items():
            held = controller.payback
            if held is not None:
                name = self._named.get(k, f"fragment {k + 1}")
                found[name] = {"moves": controller.version, **held.figures(), "why": controller.why}
                found[name] |= {"keys_by_plan": self._by_plan[k], **self._other_nodes[k].figures()}
        return found

    def end(self) -> None:
        """The run is over: nothing decides any more when this returns, and no error of it counts."""
        if (thinking := self._thinking) is not None:
            thinking.join()

    # ---------------------------------------------------------------------------------------- a move

    def abandon(self, tag: bytes) -> None:
        """A node failed at this tag: state that moves behind it will not come. Nodes may hear of it before
        they come to the move.
        """
        self._failed = True
        self.tell(tag)

    # ---------------------------------------------------------------------------------------- from nodes

    def heard(self, said: Any) -> None:
        """`Moved`, or (fragment, `Report`, seconds of a tuple by key)."""
        if isinstance(said, Moved):
            self._moved(said)
            return
        fragment, report, times = said
        self._reports.setdefault(fragment, []).append((report, times))
        self._waits_for -= 1
        if not self._waits_for:
            self._all_reported()

    def _all_reported(self) -> None:
        told, self._reports = self._reports, {}
        # first those that another one's move kept from it
        self._undecided += [one for one in self._controllers if one not in self._undecided]
        self._think(told)

    def _think(self, told: Mapping[int, list[tuple[Report, Floats]]]) -> None:
        """Take reports in, and decide, where no move is under way."""
        self._has_thought(wait=True)
        decides = self._decided is None
        between = _give_way if self.wake is not None else go_on

        def thinking() -> None:
            try:
                self._take_in(told, between)
                self._thought.append(self._next_move(between) if decides else None)
            except BaseException as error:
                self._thought.append(error)

        wake = self.wake
        if wake is None:
            thinking()
            self._settle()
            return

        def apart() -> None:
            began = time.thread_time()
            thinking()
            self._took_s = time.thread_time() - began
            wake()

        self._thinking = threading.Thread(target=apart, name="ordstream-balance", daemon=True)
        self._thinking.start()

    def _has_thought(self, *, wait: bool = False) -> bool:
        """Whether the controllers are this thread's; what was decided is known then."""
        with self._settling:  # a move may be cancelled from any thread
            if self._thinking is not None:
                if not wait and not self._thought:
                    return False
                self._thinking.join()
                self._thinking = None
                self._settle()
        return True

    def _settle(self) -> None:
        found = self._thought.pop()
        if isinstance(found, BaseException):
            raise found
        if found is not None:
            self._decided = found

    def _take_in(self, told: Mapping[int, list[tuple[Report, Floats]]], between: Callable[[], None]) -> None:
        costs: dict[int, list[Report]] = {}
        for fragment, of in told.items():
            costs[fragment], self._times[fragment] = costed(
                [report for report, _ in of], [times for _, times in of], self._times[fragment]
            )
            between()
        loads = {fragment: {one.node: one.load for one in of} for fragment, of in costs.items()}
        caller = time.process_time()
        beside, self._caller = caller - self._caller, caller
        for fragment, reports in costs.items():
            controller = self._controllers[fragment]
            if controller.payback is not None:
                others = [held for number, held in loads.items() if number != fragment]
                nodes = {one.node: sum(held.get(one.node, 0.0) for held in others) for one in reports}
                controller.payback.around(nodes, 0.0 if self.wake is None else beside)
            for report in reports:
                controller.report(report)
            between()
        if costs:
            whole = [sum(of.get(node, 0.0) for of in loads.values()) for node in range(self._processes)]
            self._pace.worked(max(whole))

    def _next_move(self, between: Callable[[], None]) -> _UnderWay | None:
        """Ask fragments for a move in turn, until one has one."""
        while self._undecided:
            fragment = self._undecided.pop(0)
            controller = self._controllers[fragment]
            controller.between = between
            move = controller.decide()
            between()
            if move is None:
                continue
            steps = steps_between(move.before, move.after, sizes_of(controller))
            if steps:
                return _UnderWay(fragment, move, move.before, steps)
            controller.commit(move)
        return None

    def _moved(self, said: Moved) -> None:
        under_way = self._decided
        assert under_way is not None
        under_way.done += 1
        under_way.rows += said.rows
        under_way.bytes += said.bytes
        under_way.held += said.held
        under_way.delay = max(under_way.delay, said.move_delay)
        under_way.unmoved = max(under_way.unmoved, said.unmoved_delay)
        if under_way.done == self._processes:
            self._step_done(under_way)

    def _step_done(self, under_way: _UnderWay) -> None:
        self._has_thought(wait=True)
        move, controller = under_way.move, self._controllers[under_way.fragment]
        under_way.now = under_way.steps.pop(0).behind(under_way.now)
        under_way.shift, under_way.done = None, 0
        if self.wake is not None:  # else the run has no time
            now = time.perf_counter()
            took, waiting = now - under_way.step_began, under_way.steps
            under_way.next_step = now + PACE * took if took < LONG_S else now
            if took >= LONG_S and waiting:
                waiting[:LARGER] = [joined(waiting[:LARGER])]
        under_way.steps_done += 1
        if under_way.cancelled and not under_way.back:
            under_way.back = True
            under_way.steps = steps_between(under_way.now, move.before, sizes_of(controller))
        if under_way.steps:
            return
        self._decided = None
        lost = self._pace.moved(self._serial)
        if under_way.back:
            controller.cancel(move)
            self._think({})
            return
        controller.commit(move)
        self._by_plan[under_way.fragment] += len(move.keys)
        if lost is not None and controller.payback is not None and self.wake is not None:
            controller.payback.costs.learn(len(move.keys), move.state, lost)
        self.figures.append(
            MoveFigures(
                under_way.serial,
                len(move.keys),
                under_way.rows,
                under_way.bytes,
                under_way.held,
                under_way.delay,
                under_way.unmoved,
                under_way.steps_done,
                time.perf_counter() - under_way.began,
                move.theta_before,
                move.theta_after,
                move.gain,
                move.cost,
                None if self.wake is None else lost,
            )
        )
        self._think({})

    # ---------------------------------------------------------------------------------------- from outside

    def cancel(self) -> bool:
        """Give up the move that is under way, if there is one: the table before it is in force again.
        Whether there was one.

        Before it is in the order nothing happens at all. Behind, keys that went come back by a move of
        their own, as soon as they are all there.
        """
        self._has_thought(wait=True)
        decided = self._decided
        if decided is None or decided.back:
            return False
        if decided.shift is None and not decided.steps_done:
            self._controllers[decided.fragment].cancel(decided.move)
            self._decided = None
            self._pace.moved(self._serial)
            return True
        decided.cancelled = True
        if decided.shift is None:  # between two steps
            decided.back = True
            controller = self._controllers[decided.fragment]
            decided.steps = steps_between(decided.now, decided.move.before, sizes_of(controller))
        return True


def _give_way() -> None:
    """Let a thread that rows go through have the interpreter, which else waits 5 ms for it each time."""
    time.sleep(GIVE_WAY_S)


def sizes_of(controller: Controller) -> Callable[[Words], Floats]:
    """Bytes of state of keys, as last reported; 0 of those that no node named."""
    known = controller.evidence

    def sizes(words: Words) -> Floats:
        if not len(known.keys):
            return np.zeros(len(words))
        at = np.minimum(np.searchsorted(known.keys, words), len(known.keys) - 1)
        return np.where(known.keys[at] == words, known.state[at], 0.0)

    return sizes


def steps_between(before: Assignment, after: Assignment, sizes: Callable[[Words], Floats]) -> list[Step]:
    """Steps that lead from a table to another, each of few enough keys (`STEP_KEYS`, `STEP_BYTES`). Keys
    that leave the table come first, so that no table between is longer than the longer of the two.
    """
    words = changed_words(before, after)
    assert words is not None  # the number of nodes stays
    if not len(words):
        return []
    home = np.isin(words, after.table[0])  # False: it goes where the hash says
    words = words[np.argsort(home, kind="stable")]
    bytes_of = sizes(words)
    steps, first = [], 0
    while first < len(words):
        fits = np.cumsum(bytes_of[first : first + STEP_KEYS]) <= STEP_BYTES
        count = max(1, int(np.argmin(fits)) if not fits.all() else len(fits))
        chosen = np.sort(words[first : first + count])
        steps.append(Step(chosen, before.route_words(chosen), after.route_words(chosen)))
        first += count
    return steps


def movable(fragments: Sequence[Fragment], processes: int) -> list[int]:
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
                key_words(pa.nulls(0, field.type))
            except (SchemaError, TypeError) as error:
                raise PlanError(
                    f"balance: the key {field.name!r} can't be routed by a table: {error}"
                ) from error
    return found


def tables_of(controllers: Mapping[int, Controller]) -> dict[int, Assignment]:
    """The route tables in force."""
    return {k: controller.assignment for k, controller in controllers.items()}


def check_policy(balance: Any) -> None:
    """PlanError where `balance` is neither a policy nor a controller for each fragment."""
    if isinstance(balance, Mapping) and all(isinstance(one, Controller) for one in balance.values()):
        return
    if not isinstance(balance, Mixed):
        raise PlanError(
            "balance must be one policy for all operators, od.Mixed(theta=0.08, table=3000); got "
            f"{balance!r:.200}"
        )


def controllers_of(balance: Any, fragments: tuple[Fragment, ...], processes: int) -> dict[int, Controller]:
    """What decides for each fragment whose keys can move.

    Raises
    ------
    PlanError
        `balance` is no policy, or as `movable`.
    """
    check_policy(balance)
    if isinstance(balance, Mapping):
        return dict(balance)  # of a test, or of somebody who decides himself
    return {k: controller_of(balance, processes) for k in movable(fragments, processes)}


def controller_of(policy: Mixed, processes: int) -> Controller:
    """What decides for the nodes of a fragment, one in each process of this machine."""
    payback = Payback(policy.payback, allowed_cpus()) if policy.payback else None
    return Controller(policy, processes, NAMED, payback)

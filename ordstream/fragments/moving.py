"""Keys that change their node while rows arrive (Mixed paper, section 4, Fig. 5).

A move takes effect at a serial t, in front of a tag: a marker says so in the order (`TagMerge.mark`). Rows
of a moved key in front of it go to the old node, rows behind it to the new one. The old node gives the keys'
state away when it has done all rows in front. The new node holds just these keys' rows until their state is
there; all others it goes on to process. What it makes of them waits for the held rows' outputs, which come
first in the order.

The new node does so with two runs of its operators: one as before, one of the moved keys alone, which works
from when the state is there. Their outputs are merged by tag, as those of two nodes are. When the second has
caught up, the first one takes its state over; where nothing came for the keys meanwhile, it has that at
once. The second stays for the next move: to begin a run takes longer than to move some hundred keys.

What a move costs does not grow with the keys that stay: the old node exports just those that go, by their
columns, which it remembers of rows that it looked at (`measured_keys`). Where it does not know one of them,
it looks through all of its state.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ordstream.balance.keys import Words
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.statistics import Floats
from ordstream.balance.mixed.table import Assignment
from ordstream.errors import OperatorError
from ordstream.fragments.channels import without_views
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.mark_kinds import REORDERED, TIME, kind_of
from ordstream.fragments.measured_keys import MeasuredKeys, MeasuredNode, named_rows
from ordstream.fragments.merging import END, TagMerge
from ordstream.fragments.moving_route import MovingRoute, Step
from ordstream.fragments.node_state import NodeState, Parsed, States, key_columns
from ordstream.fragments.polled_node import BETWEEN_MARKS, PolledNode, low_of
from ordstream.fragments.time_marks import TimeMark
from ordstream.ground.numbers import mask
from ordstream.ground.ordertags import AT_END, tags_of
from ordstream.ground.slices import rows_from_0
from ordstream.plan.clock import REORDERED_MARKS, SOURCE_MARKS

#: Bytes of rows that may be held, and of outputs that may wait for theirs: then nothing more is taken in.
HELD_BYTES = 16 << 20


@dataclass(frozen=True, eq=False)
class Shift:
    """A move as nodes are told of it.

    Attributes
    ----------
    number : int
        Of its marker.
    fragment : int
    step : Step
        What moves. The table that it leads to is not sent: every step would cost what the table is long.
    """

    number: int
    fragment: int
    step: Step

    def to_bytes(self) -> bytes:
        """Number and fragment, the keys' words, then where each goes from, and to."""
        head = np.array([self.number, self.fragment], dtype=np.int64)
        return b"".join(one.tobytes() for one in (head, self.step.words, self.step.source, self.step.to))

    @classmethod
    def from_bytes(cls, data: bytes) -> Shift:
        """The shift that `to_bytes` was called on."""
        count = (len(data) - 16) // 16
        number, fragment = np.frombuffer(data, np.int64, 2).tolist()
        words = np.frombuffer(data, np.uint64, count, 16)
        source, to = np.frombuffer(data, np.int32, 2 * count, 16 + 8 * count).reshape(2, count)
        return cls(number, fragment, Step(words, source, to))


@dataclass(frozen=True)
class Moved:
    """What a node did for a move.

    Attributes
    ----------
    number, fragment, node : int
    rows, bytes : int
        Of state that came to it.
    held : int
        Rows that waited for it.
    move_delay : float
        Seconds from the first row behind the marker until no output waited for the move any more.
    unmoved_delay : float
        Longest time, in seconds, that an output of another key waited for those of the held rows.
    """

    number: int
    fragment: int
    node: int
    rows: int = 0
    bytes: int = 0
    held: int = 0
    move_delay: float = 0.0
    unmoved_delay: float = 0.0


class _Arriving:
    """Keys that are to come: their rows, their state, and the run of them alone."""

    def __init__(
        self,
        shift: Shift,
        tag: bytes,
        before: Assignment,
        sources: set[int],
        lane: TagMerge,
        node: PolledNode,
    ) -> None:
        self.shift, self.tag, self.before = shift, tag, before
        self.waits_for = sources
        self.came: list[tuple[Any, pa.RecordBatch]] = []  # state that neither run has yet
        self.begun = False  # rows, or marks of the clock, came for the keys before their state had its place
        self.apart = False  # the run of them alone has their state
        self.waiting = 0  # bytes of rows that are held, and of outputs that wait
        self.out = TagMerge(2, self._gone)
        self.lane, self.node = lane, node
        self.over = [False, False]
        self.errors: list[OperatorError] = []
        self.began = time.perf_counter()
        self.held = self.rows = self.bytes = 0
        self.unmoved_delay = 0.0
        self._unmoved: deque[tuple[bytes, float]] = deque()  # last tags of outputs that wait, since when

    @property
    def ready(self) -> bool:
        """The keys' state is here."""
        return not self.waits_for

    def set_apart(self) -> None:
        """The run of the keys alone gets their state."""
        self.apart = True
        for operator, rows in self.came:
            self.node.take_in(operator, rows)
        self.came.clear()

    def waits(self, batch: pa.RecordBatch) -> None:
        """An output of keys that were here, its tags last, begins to wait for those of the others."""
        self._unmoved.append((tags_of(batch)[-1].as_py(), time.perf_counter()))

    def went(self, batch: pa.RecordBatch) -> None:
        """Outputs go on, their tags last."""
        last, now = tags_of(batch)[-1].as_py(), time.perf_counter()
        while self._unmoved and self._unmoved[0][0] <= last:
            self.unmoved_delay = max(self.unmoved_delay, now - self._unmoved.popleft()[1])

    def _gone(self, sender: int, size: int) -> None:
        self.waiting -= size

    def hold(self, lane: TagMerge, sender: int, batch: pa.RecordBatch) -> None:
        """Rows for a lane, counted while they lie there."""
        self.waiting += batch.nbytes
        self.begun |= lane is self.lane
        lane.rows(sender, batch, batch.nbytes)


class _Kept(NamedTuple):
    """An operator's state: which of its columns are the key's, and the words of that."""

    operator: Any
    at: tuple[int, ...]
    keys: MovingRoute


class MovingOperators:
    """The operators of a node whose keys may come and go; to `LiveNode` as `PolledNode` is.

    Parameters
    ----------
    fragment : Fragment
    node : int
    merge : TagMerge
        What arrives.
    options : mapping
    states : mapping, optional
        As of `PolledNode`.
    table : Assignment
        Where the rows that arrive go at the beginning.
    send : callable
        (node, NodeState): to another node of the fragment.

    Attributes
    ----------
    moved : list of Moved
        What was done for moves; its owner takes them.
    cut : bytes or None
        Where the output ends, if not where the input does.
    """

    quiet = False  # a move may go on although nothing comes

    def __init__(
        self,
        fragment: Fragment,
        node: int,
        merge: TagMerge,
        options: Mapping[str, Any],
        states: States | None,
        table: Assignment,
        send: Callable[[int, NodeState], None],
    ) -> None:
        self._fragment, self._node, self._input = fragment, node, merge
        self._options, self._send = options, send
        self._keys = MovingRoute(fragment.source, fragment.key or (), table)
        self._lane = TagMerge(1, self._handed_on)
        self._measured = MeasuredKeys(self._keys, node)
        self._main = MeasuredNode(fragment, self._lane, options, states, seed=node)
        self._move: _Arriving | None = None
        self._second: tuple[TagMerge, PolledNode] | None = None  # between moves it knows no key
        self._early: dict[int, list[tuple[int, Parsed | NodeState]]] = {}
        self._busy = 0.0
        # with threads beside this one what the process takes is theirs, nearly all of it
        self._of_process = time.process_time() if options.get("workers") else None
        self._failed_at: bytes | None = None  # the first failure of another node
        self.moved: list[Moved] = []
        self.cut: bytes | None = None

    # ---------------------------------------------------------------------------------------- rows

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        """As `PolledNode.poll`."""
        began = time.thread_time()
        try:
            if self._move is None:
                fed = self._feed()
                _pass_marks(self._lane, self._main)
                batch, did = self._main.poll()
                if self._main.timed:
                    self._measured.took(self._main.timed)
                    self._main.timed.clear()
                return batch, did or fed
            return self._poll_both(self._move)
        finally:
            self._busy += time.thread_time() - began

    def _feed(self) -> bool:
        """Hand rows on to the run."""
        fed = not self._lane.ready() and self._input.ready()
        if fed:
            self._take_in()
        self._tell_lane(self._lane)
        return fed

    def _take_in(self) -> None:
        rows = next(self._input)
        self._measured.saw(rows)
        self._lane.rows(0, rows, 0)

    def _handed_on(self, sender: int, size: int) -> None:
        if self._move is not None:
            self._move.waiting -= size

    def take_rows(self) -> bool:
        """As `PolledNode.take_rows`; while keys move rows come one piece a step."""
        if self._move is not None or self._main.has_enough or not self._input.ready():
            return False
        if self._lane.waiting >= BETWEEN_MARKS:
            return False
        self._take_in()
        return True

    def take_marked(self) -> bool:
        """As `PolledNode.take_marked`; while keys move marks come one by one."""
        if self._move is not None:
            return False
        count = self._main.marks_wanted(self._input)
        if not count:
            return False
        _pass_marks(self._lane, self._main)
        while self._lane.ready() and self._main.take_rows():
            pass
        if _waits(self._lane):
            return False
        rows, tags = self._input.marked(count)
        if rows is not None:
            self._measured.saw(rows)
        return self._main.fit_marked(rows, tags)

    @property
    def takes_marks(self) -> bool:
        """Whether the next mark of the clock may come now. A move ends between two of them: there may be one
        between any two rows.
        """
        return self._move is None or not self._catching_up(self._move)

    def take_mark(self, mark: TimeMark) -> None:
        """As `PolledNode.take_mark`. Keys that are to come see it behind the rows that are held for them."""
        kind = TIME if mark.clock == SOURCE_MARKS else REORDERED
        for lane in self._lanes():
            lane.mark(kind, mark.tag)
        if self._move is not None:
            self._move.begun = True

    def _tell_lane(self, lane: TagMerge) -> None:
        lane.set_low(0, low_of(self._input))
        if self._input.cut is not None:
            lane.end(0, self._input.cut)

    def _poll_both(self, move: _Arriving) -> tuple[pa.RecordBatch | None, bool]:
        did = self._absorbed(move)
        if self._move is None:
            return None, True
        if not self._catching_up(move) and move.waiting < HELD_BYTES and self._input.ready():
            rows = next(self._input)
            self._measured.saw(rows)
            mine = move.before.route_words(self._keys.words(rows)) == self._node
            for lane, chosen in ((self._lane, mine), (move.lane, ~mine)):
                if chosen.any():
                    move.hold(lane, 0, rows_from_0(rows).filter(mask(chosen)))
            if not move.ready:
                move.held += int((~mine).sum())
            did = True
        self._tell_lane(self._lane)
        self._tell_lane(move.lane)
        did |= self._step(move, 0, self._main, self._lane)
        needed = move.begun or any(move.over) or self._input.cut is not None
        if move.ready and needed:
            move.set_apart()
            did |= self._step(move, 1, move.node, move.lane)
        elif not move.ready and self._failed_at is not None and self._failed_at < move.tag:
            if not move.over[1]:
                move.over[1] = True
                move.out.end(1, move.tag)
        elif not move.over[1]:
            move.out.set_low(1, min(low_of(move.lane), AT_END + self._fragment.first.to_bytes(2, "big")))
        if move.out.ready():
            batch = next(move.out)
            move.went(batch)
            return batch, True
        if move.out.cut is not None:
            self.cut = move.out.cut
            for error in move.errors:
                if error.order_tag == self.cut:
                    raise error
            raise StopIteration
        return None, did

    def _step(self, move: _Arriving, which: int, run: PolledNode, lane: TagMerge) -> bool:
        """One step of one of the two runs, whose outputs go to their merge."""
        if move.over[which]:
            return False
        _pass_marks(lane, run)
        try:
            batch, did = run.poll()
        except StopIteration:
            move.over[which] = True
            move.out.end(which, lane.cut or END)
            return True
        except OperatorError as error:
            move.over[which] = True
            move.errors.append(error)
            move.out.end(which, min(lane.cut or END, error.order_tag))
            lane.drop()
            return True
        if batch is not None:
            if which == 0:
                move.waits(batch)
            move.hold(move.out, which, without_views(batch))
        move.out.set_low(which, run.low())
        return did

    def _catching_up(self, move: _Arriving) -> bool:
        """The second run has got all of its rows: what both still have is finished first. Not behind a
        failure: the other run goes on to where it counts.
        """
        return move.ready and not move.lane.waiting and not any(move.over)

    def _absorbed(self, move: _Arriving) -> bool:
        """The first run takes the keys' state over, where both have done all that they got: from the second
        one, or as it came, where nothing was to be done before.
        """
        second = move.node
        if not move.ready or any(move.over) or self._input.cut is not None:
            return False
        lanes_empty = not (_waits(self._lane) or _waits(move.lane) or move.out.ready())
        if not lanes_empty or move.waiting or not (self._main.idle() and second.idle()):
            return False
        for operator, rows in move.came:
            self._main.take_in(operator, rows)
        for kept in self._kept.values() if move.apart else ():
            for rows in second.state_of(kept.operator):
                second.give_away(kept.operator, rows)
                self._main.take_in(kept.operator, rows)
        self._done(move)
        self._move = None
        return True

    def _done(self, move: _Arriving) -> None:
        seconds = time.perf_counter() - move.began
        self.moved.append(
            Moved(
                move.shift.number, move.shift.fragment, self._node, move.rows, move.bytes, move.held,
                seconds, move.unmoved_delay,
            )
        )  # fmt: skip

    @cached_property
    def _kept(self) -> dict[str, _Kept]:
        """What has state here, by its name."""
        found = {}
        for operator in self._fragment.operators:
            if operator.stateful:
                at = key_columns(self._fragment, operator.name)
                found[operator.name] = _Kept(operator, at, self._keys.of(operator.state_schema(), at))
        return found

    # ---------------------------------------------------------------------------------------- moves

    def shift(self, shift: Shift, tag: bytes) -> bool:
        """At a marker: take part in a move. False: call again, behind `poll`."""
        if self._move is not None or _waits(self._lane) or not self._main.idle():
            return False
        before = self._keys.table
        self._keys.switch(b"", shift.step)
        pairs = shift.step.pairs
        to = [dest for source, dest in sorted(pairs) if source == self._node]
        for dest, states in self._leaving(shift.step, to).items():
            self._send(dest, NodeState(shift.number, shift.fragment, self._node, states))
        sources = {source for source, dest in pairs if dest == self._node}
        if not sources:
            self.moved.append(Moved(shift.number, shift.fragment, self._node))
            return True
        if self._second is None:  # now: while rows are held there is no time for it
            lane = TagMerge(1, self._handed_on)
            self._second = lane, PolledNode(self._fragment, lane, self._options)
        self._move = _Arriving(shift, tag, before, sources, *self._second)
        self._move.out.set_low(0, tag)
        for sender, state in self._early.pop(shift.number, []):
            self.arrive(sender, state)
        return True

    def _leaving(self, step: Step, to: list[int]) -> dict[int, dict[str, list[pa.RecordBatch]]]:
        """Node -> the state of the keys that go to it; it is not here any more."""
        found: dict[int, dict[str, list[pa.RecordBatch]]] = {dest: {} for dest in to}
        named = self._measured.columns_of(step.words[step.source == self._node]) if to else None
        for name, (operator, at, keys) in self._kept.items() if to else ():
            wanted = None if named is None else named_rows(operator, at, named)
            for rows in self._main.state_of(operator, wanted):
                if wanted is not None and len(to) == 1:
                    found[to[0]].setdefault(name, []).append(rows)
                    continue
                nodes = self._keys.table.route_words(keys.words(rows))
                for dest in to:
                    chosen = nodes == dest
                    if chosen.any():
                        found[dest].setdefault(name, []).append(rows.filter(mask(chosen)))
        for states in found.values():
            for name, batches in states.items():
                for rows in batches:
                    self._main.give_away(self._kept[name].operator, rows)
        return found

    def arrive(self, sender: int, said: Parsed | NodeState) -> None:
        """State from another node."""
        move = self._move
        if move is None or move.shift.number != said.number:
            self._early.setdefault(said.number, []).append((sender, said))
            return
        if isinstance(said, NodeState):
            states = {name: list(batches) for name, batches in said.states.items()}
            move.waits_for.discard(sender)
        elif said.name:
            states = {said.name: [said.batch(self._kept[said.name].keys.schema)]}
        else:
            states = {}
            move.waits_for.discard(sender)
        for name, batches in states.items():
            operator, at, keys = self._kept[name]
            for rows in batches:
                move.came.append((operator, rows))
                self._measured.arrived(keys.words(rows), [rows.column(place) for place in at])
                move.rows += rows.num_rows
                move.bytes += rows.nbytes

    def abandon(self, tag: bytes) -> None:
        """A node failed at this tag. It gave away what leaves it in front of that; the state that moves
        behind it will not come, and no row there counts.
        """
        self._failed_at = tag if self._failed_at is None else min(tag, self._failed_at)

    # ---------------------------------------------------------------------------------------- loads

    def loads(self, interval: int) -> tuple[Report, Floats] | None:
        """At a marker: what the keys cost since the last call (`MeasuredKeys.report`). None: call again,
        behind `poll`: their state can be looked at when the rows in front are done.
        """
        idle = self._move is None
        if idle and (_waits(self._lane) or not self._main.idle()):
            return None
        if self._of_process is not None:
            before, self._of_process = self._of_process, time.process_time()
            self._busy = self._of_process - before
        found = self._measured.report(
            interval, self._busy, self._keys.table.table[0], self._state_rows if idle else None
        )
        self._busy = 0.0
        return found

    def _state_rows(self, columns: pa.RecordBatch) -> list[tuple[Words, pa.RecordBatch]]:
        """Keys and rows of the state of some keys, operator by operator that can be asked by key."""
        found = []
        for operator, at, keys in self._kept.values():
            named = named_rows(operator, at, columns)
            if named is not None:
                found += [(keys.words(rows), rows) for rows in self._main.state_of(operator, named)]
        return found

    # ---------------------------------------------------------------------------------------- around

    def take_state(self) -> tuple[States, int] | None:
        """As `PolledNode.take_state`."""
        if self._move is not None or _waits(self._lane):
            return None
        return self._main.take_state()

    def low(self) -> bytes:
        """As `PolledNode.low`."""
        return self._main.low() if self._move is None else self._move.out.low

    @property
    def works(self) -> bool:
        """As `PolledNode.works`."""
        return self._main.works or (self._move is not None and self._move.node.works)

    @property
    def report(self) -> Any:
        """As `PolledNode.report`, of all its runs."""
        return self._together([run.report for run in self._runs()])

    def report_so_far(self) -> Any:
        """As `PolledNode.report_so_far`."""
        return self._together([run.report_so_far() for run in self._runs()])

    def shed(self) -> None:
        """As `PolledNode.shed`: such operators don't move."""

    def _lanes(self) -> list[TagMerge]:
        return [self._lane, *([self._move.lane] if self._move is not None else [])]

    def _runs(self) -> list[PolledNode]:
        return [self._main, *([self._second[1]] if self._second is not None else [])]

    @staticmethod
    def _together(reports: list[Any]) -> Any:
        from ordstream.node.merged_report import merged

        return reports[0] if len(reports) == 1 else merged([reports])

    def close(self) -> None:
        """As `PolledNode.close`."""
        for run in self._runs():
            run.close()


def _waits(lane: TagMerge) -> bool:
    """Rows or marks of the clock lie in a lane that its run could take."""
    return lane.ready() or bool(lane.marks)


def _pass_marks(lane: TagMerge, run: PolledNode) -> None:
    """Hand marks of the clock on to a run that has all rows in front of them."""
    while lane.marks:
        if (number := lane.at_mark) is None:
            if not run.take_rows():
                return
            continue
        clock = SOURCE_MARKS if kind_of(number) == TIME else REORDERED_MARKS
        run.take_mark(TimeMark.at(lane.marks[0][1], clock))
        lane.pass_mark()

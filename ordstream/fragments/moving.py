"""Keys that change their node while rows arrive (Mixed paper, section 4, Fig. 5).

A move takes effect at a serial t, in front of a tag: a marker says so in the order (`TagMerge.mark`). Rows
of a moved key in front of it go to the old node, rows behind it to the new one. The old node gives the keys'
state away when it has done all rows in front. The new node holds just these keys' rows until their state is
there; all others it goes on to process. What it makes of them waits for the held rows' outputs, which come
first in the order.

The new node does so with two runs of its operators: one as before, one of the moved keys alone, which begins
when the state is there. Their outputs are merged by tag, as those of two nodes are. When the second has
caught up, the first one takes its state over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.keys import Words
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.table import Assignment
from ordstream.errors import OperatorError
from ordstream.fragments.exchange import NODE
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.merging import END, TagMerge
from ordstream.fragments.moving_route import MovingRoute
from ordstream.fragments.node_state import NodeState, Parsed, States, key_columns
from ordstream.fragments.polled_node import PolledNode
from ordstream.ground.ordertags import AT_END

#: Bytes of rows that may be held, and of outputs that may wait for theirs: then nothing more is taken in.
HELD_BYTES = 16 << 20
#: One batch in so many is looked at for the keys' loads.
SAMPLED = 4


@dataclass(frozen=True, eq=False)
class Shift:
    """A move as nodes are told of it.

    Attributes
    ----------
    number : int
        Of its marker.
    fragment : int
    after : Assignment
    pairs : frozenset of (int, int)
        Source and destination of the keys that move.
    """

    number: int
    fragment: int
    after: Assignment
    pairs: frozenset[tuple[int, int]]

    def to_bytes(self) -> bytes:
        """Numbers as JSON, a zero byte, the table."""
        head = json.dumps([self.number, self.fragment, sorted(self.pairs)]).encode()
        return head + b"\x00" + self.after.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Shift:
        """The shift that `to_bytes` was called on."""
        head, _, table = data.partition(b"\x00")
        number, fragment, pairs = json.loads(head)
        return cls(number, fragment, Assignment.from_bytes(table), frozenset((a, b) for a, b in pairs))


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
    """

    number: int
    fragment: int
    node: int
    rows: int = 0
    bytes: int = 0
    held: int = 0
    move_delay: float = 0.0


class _Arriving:
    """Keys that are to come: their rows, their state, and the run of them alone."""

    def __init__(self, shift: Shift, tag: bytes, before: Assignment, sources: set[int]) -> None:
        self.shift, self.tag, self.before = shift, tag, before
        self.waits_for = sources
        self.states: dict[str, list[pa.RecordBatch]] = {}
        self.waiting = 0  # bytes of rows that are held, and of outputs that wait
        self.lane = TagMerge(1, self._gone)
        self.out = TagMerge(2, self._gone)
        self.node: PolledNode | None = None
        self.over = [False, False]
        self.errors: list[OperatorError] = []
        self.began = time.perf_counter()
        self.held = self.rows = self.bytes = 0
        self.abandoned = False

    def _gone(self, sender: int, size: int) -> None:
        self.waiting -= size

    def hold(self, lane: TagMerge, sender: int, batch: pa.RecordBatch) -> None:
        """Rows for a lane, counted while they lie there."""
        self.waiting += batch.nbytes
        lane.rows(sender, batch, batch.nbytes)


class MovingOperators:
    """The operators of a node whose keys may come and go; to `LiveNode` as `PolledNode` is.

    Parameters
    ----------
    fragment : Fragment
    node : int
    merge : TagMerge
        What arrives.
    route : callable, optional
        Of the outputs.
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

    def __init__(
        self,
        fragment: Fragment,
        node: int,
        merge: TagMerge,
        route: Any,
        options: Mapping[str, Any],
        states: States | None,
        table: Assignment,
        send: Callable[[int, NodeState], None],
    ) -> None:
        self._fragment, self._node, self._input = fragment, node, merge
        self._route, self._options, self._send = route, options, send
        self._keys = MovingRoute(fragment.source, fragment.key or (), table)
        self._table = table
        self._lane = TagMerge(1, self._handed_on)
        self._main = PolledNode(fragment, self._lane, route, options, states)
        self._move: _Arriving | None = None
        self._early: dict[int, list[tuple[int, Parsed | NodeState]]] = {}
        self._closed: list[Any] = []  # reports of runs that ended
        self._loads: list[tuple[Words, npt.NDArray[np.int64]]] = []
        self._batches = self._looked = self._all = 0
        self._busy = 0.0
        self.moved: list[Moved] = []
        self.cut: bytes | None = None

    # ---------------------------------------------------------------------------------------- rows

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        """As `PolledNode.poll`."""
        began = time.thread_time()
        try:
            if self._move is None:
                fed = self._feed()
                batch, did = self._main.poll()
                return batch, did or fed
            return self._poll_both(self._move)
        finally:
            self._busy += time.thread_time() - began

    def _feed(self) -> bool:
        """Hand rows on to the run."""
        fed = not self._lane.ready() and self._input.ready()
        if fed:
            rows = next(self._input)
            self._count(rows)
            self._lane.rows(0, rows, 0)
        self._tell_lane(self._lane)
        return fed

    def _handed_on(self, sender: int, size: int) -> None:
        if self._move is not None:
            self._move.waiting -= size

    def _tell_lane(self, lane: TagMerge) -> None:
        lane.set_low(0, self._input.low)
        if self._input.cut is not None:
            lane.end(0, self._input.cut)

    def _poll_both(self, move: _Arriving) -> tuple[pa.RecordBatch | None, bool]:
        did = self._absorbed(move)
        if self._move is None:
            return None, True
        if move.node is None and not move.waits_for:
            move.node = PolledNode(self._fragment, move.lane, self._route, self._options, move.states)
            move.states = {}
            did = True
        if not self._catching_up(move) and move.waiting < HELD_BYTES and self._input.ready():
            rows = next(self._input)
            self._count(rows)
            mine = move.before.route_words(self._keys.words(rows)) == self._node
            for lane, chosen in ((self._lane, mine), (move.lane, ~mine)):
                if chosen.any():
                    move.hold(lane, 0, rows.filter(pa.array(chosen)))
            if move.node is None:
                move.held += int((~mine).sum())
            did = True
        self._tell_lane(self._lane)
        self._tell_lane(move.lane)
        did |= self._step(move, 0, self._main, self._lane)
        if move.node is not None:
            did |= self._step(move, 1, move.node, move.lane)
        elif move.abandoned and not move.over[1]:
            move.over[1] = True
            move.out.end(1, move.tag)
        elif not move.over[1]:
            move.out.set_low(1, min(move.lane.low, AT_END + self._fragment.first.to_bytes(2, "big")))
        if move.out.ready():
            return _swapped(next(move.out)), True
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
            move.hold(move.out, which, _swapped(batch))
        move.out.set_low(which, run.low())
        return did

    def _catching_up(self, move: _Arriving) -> bool:
        """The second run has nothing more to do: what both still have is finished first."""
        return move.node is not None and not move.lane.ready()

    def _absorbed(self, move: _Arriving) -> bool:
        """The first run takes the second one's state over, where both have done all that they got."""
        second = move.node
        if second is None or any(move.over) or self._input.cut is not None:
            return False
        lanes_empty = not (self._lane.ready() or move.lane.ready() or move.out.ready())
        if not lanes_empty or move.waiting or not (self._main.idle() and second.idle()):
            return False
        for operator in self._stateful():
            for rows in second.state_of(operator):
                self._main.take_in(operator, rows)
        second.close()
        self._closed.append(second.report)
        self._done(move)
        self._move = None
        return True

    def _done(self, move: _Arriving) -> None:
        seconds = time.perf_counter() - move.began
        self.moved.append(
            Moved(
                move.shift.number, move.shift.fragment, self._node, move.rows, move.bytes, move.held,
                seconds,
            )
        )  # fmt: skip

    def _stateful(self) -> list[Any]:
        return [one for one in self._fragment.operators if one.stateful]

    # ---------------------------------------------------------------------------------------- moves

    def shift(self, shift: Shift, tag: bytes) -> bool:
        """At a marker: take part in a move. False: call again, behind `poll`."""
        if self._move is not None or self._lane.ready() or not self._main.idle():
            return False
        before, self._table = self._table, shift.after
        self._keys.switch(tag, shift.after)
        to = [dest for source, dest in sorted(shift.pairs) if source == self._node]
        for dest, states in self._leaving(shift.after, to).items():
            self._send(dest, NodeState(shift.number, shift.fragment, self._node, states))
        sources = {source for source, dest in shift.pairs if dest == self._node}
        if not sources:
            self.moved.append(Moved(shift.number, shift.fragment, self._node))
            return True
        self._move = _Arriving(shift, tag, before, sources)
        self._move.out.set_low(0, tag)
        for sender, state in self._early.pop(shift.number, []):
            self.arrive(sender, state)
        return True

    def _leaving(self, after: Assignment, to: list[int]) -> dict[int, dict[str, list[pa.RecordBatch]]]:
        """Node -> the state of the keys that go to it; it is not here any more."""
        found: dict[int, dict[str, list[pa.RecordBatch]]] = {dest: {} for dest in to}
        for operator in self._stateful() if to else ():
            keys = self._keys.of(operator.state_schema(), key_columns(self._fragment, operator.name))
            for rows in self._main.state_of(operator):
                nodes = after.route_words(keys.words(rows))
                for dest in to:
                    chosen = nodes == dest
                    if chosen.any():
                        found[dest].setdefault(operator.name, []).append(rows.filter(pa.array(chosen)))
        for states in found.values():
            for operator in self._stateful():
                for rows in states.get(operator.name, []):
                    self._main.give_away(operator, rows)
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
            schema = next(o for o in self._fragment.operators if o.name == said.name).state_schema()
            states = {said.name: [said.batch(schema)]}
        else:
            states = {}
            move.waits_for.discard(sender)
        for name, batches in states.items():
            move.states.setdefault(name, []).extend(batches)
            move.rows += sum(batch.num_rows for batch in batches)
            move.bytes += sum(batch.nbytes for batch in batches)

    def abandon(self) -> None:
        """The state that is missing will not come: a node failed in front of the move."""
        if self._move is not None and self._move.waits_for:
            self._move.abandoned = True

    # ---------------------------------------------------------------------------------------- loads

    def _count(self, rows: pa.RecordBatch) -> None:
        self._batches += 1
        self._all += rows.num_rows
        if self._batches % SAMPLED == 1 or self._looked < self._all // (2 * SAMPLED):
            self._looked += rows.num_rows
            self._loads.append(np.unique(self._keys.words(rows), return_counts=True))

    def loads(self, interval: int) -> Report:
        """What the keys cost since the last call: a key's share of the node's time is that of its rows."""
        keys = np.concatenate([np.zeros(0, np.uint64), *(words for words, _ in self._loads)])
        counts = np.concatenate([np.zeros(0, np.int64), *(count for _, count in self._loads)])
        words, at = np.unique(keys, return_inverse=True)
        tuples = np.bincount(at, weights=counts, minlength=len(words)).astype(np.int64)
        share = self._looked / self._all if self._looked else 1.0
        seconds = (tuples * (self._busy * share / max(1, self._looked))).astype(np.float64)
        self._loads, self._busy, self._all, self._looked = [], 0.0, 0, 0
        return Report(
            self._node, interval, words, tuples, seconds, np.ones(len(words), np.int64), sampled=share
        )

    # ---------------------------------------------------------------------------------------- around

    def take_state(self) -> tuple[States, int] | None:
        """As `PolledNode.take_state`."""
        if self._move is not None or self._lane.ready():
            return None
        return self._main.take_state()

    def low(self) -> bytes:
        """As `PolledNode.low`."""
        return self._main.low() if self._move is None else self._move.out.low

    @property
    def works(self) -> bool:
        """As `PolledNode.works`."""
        second = self._move.node if self._move is not None else None
        return self._main.works or (second is not None and second.works)

    @property
    def report(self) -> Any:
        """As `PolledNode.report`, of all its runs."""
        return self._together([self._main.report, *self._of_second("report"), *self._closed])

    def report_so_far(self) -> Any:
        """As `PolledNode.report_so_far`."""
        now = [run.report_so_far() for run in self._runs()]
        return None if any(one is None for one in now) else self._together([*now, *self._closed])

    def _of_second(self, name: str) -> list[Any]:
        return [getattr(run, name) for run in self._runs()[1:]]

    def _runs(self) -> list[PolledNode]:
        second = self._move.node if self._move is not None else None
        return [self._main, *([second] if second is not None else [])]

    @staticmethod
    def _together(reports: list[Any]) -> Any:
        from ordstream.node.merged_report import merged

        return reports[0] if len(reports) == 1 else merged([reports])

    def close(self) -> None:
        """As `PolledNode.close`."""
        for run in self._runs():
            run.close()


def _swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of outputs with its tags last; or as it was. They stand in front of the node, if there is
    one.
    """
    names = batch.schema.names
    if len(names) < 2 or NODE not in names[-2:]:
        return batch
    return batch.select([*range(len(names) - 2), len(names) - 1, len(names) - 2])

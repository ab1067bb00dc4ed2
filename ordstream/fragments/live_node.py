"""One node of a run that lasts as long as the stream: what it receives, its operators, what it sends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from ordstream.errors import OperatorError
from ordstream.fragments.channels import Link, Outbox
from ordstream.fragments.figures import Figures, Outcome
from ordstream.fragments.mark_kinds import MOVE, REORDERED, REPORT, SNAPSHOT, TIME, kind_of, numbered
from ordstream.fragments.merging import END, TagMerge
from ordstream.fragments.node_state import NodeState, States
from ordstream.fragments.polled_node import LONG_TURN_S, WHOLE_TURN_S, PolledNode
from ordstream.fragments.time_marks import (
    TimeMark,
    hears_marks,
    hears_reordered,
    marks_leave,
    moved,
    moves_clock,
)
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import tags_of
from ordstream.plan.clock import REORDERED_MARKS, SOURCE_MARKS

if TYPE_CHECKING:
    from ordstream.fragments.fragment import Fragment
    from ordstream.fragments.moving import MovingOperators
    from ordstream.fragments.moving_route import MovingRoute


class LiveNode:
    """See the module. Its owner calls `step` until `outcome` is there, and lets it hear what comes: `merge`
    takes what senders send, `out.acknowledged` what receivers have handed on.

    Parameters
    ----------
    topology : Topology
    fragment, node : int
        Which one.
    links : sequence of Link
        To the receivers of the next edge.
    consumed : callable
        As of `TagMerge`.
    states : mapping of str to sequence of pyarrow.RecordBatch, optional
        As of `PolledNode`.
    send : callable, optional
        As of `MovingOperators`.

    Attributes
    ----------
    taken : deque of NodeState
        What it knew at markers; its owner takes them.
    said : deque
        `Moved`, and (fragment, `Report`, seconds of a tuple by key), for the caller; its owner takes them.
    shifts : dict
        Marker's number -> the move that stands there, as far as the owner has told.
    """

    def __init__(
        self,
        topology: Topology,
        fragment: int,
        node: int,
        links: Sequence[Link],
        consumed: Callable[[int, int], None],
        states: States | None = None,
        send: Callable[[int, NodeState], None] = lambda node, state: None,
    ) -> None:
        self.fragment, self.node, self._topology = fragment, node, topology
        self.outcome: Outcome | None = None
        self.merge = TagMerge(topology.senders(fragment), consumed, topology.merged_rows)
        self.out = Outbox(links, topology.cap)
        self._route = topology.route(fragment + 1)
        of, options = topology.fragments[fragment], topology.options
        self._feedback: deque[bytes] = deque()  # messages to the caller
        self._operators = self._made(of, states, send)
        # POSG's and those that shed take marks one by one
        moving = fragment in topology.tables
        self._together = (type(self._operators) is PolledNode or moving) and not options.get("workers")
        self._hears = {TIME: hears_marks(of, options.get("punctuate")), REORDERED: hears_reordered(of)}
        self.merge.unheard = frozenset(kind for kind, heard in self._hears.items() if not heard)
        self._moves_clock, self._makes_marks = moves_clock(of), marks_leave(of)
        # (tag, number) of markers that receivers hear of between those that this node makes
        self._to_hand_on: list[tuple[bytes, int]] = []
        self.shifts: dict[int, Any] = {}
        self.said: deque[Any] = deque()
        self.taken: deque[NodeState] = deque()
        self._cut: bytes | None = None  # where the output ends, once it is over
        self._failed: OperatorError | None = None
        self._events = 0  # beside those of `merge` and `out`
        self._rested_at = -1

    def _made(
        self, of: Fragment, states: States | None, send: Callable[[int, NodeState], None]
    ) -> PolledNode | MovingOperators:
        """Its operators. Modules of what it is not are not loaded: that is part of a process's start."""
        topology, merge = self._topology, self.merge
        chosen = topology.groupings.get(self.fragment)
        if self.fragment in topology.tables:
            from ordstream.fragments.moving import MovingOperators

            table = topology.tables[self.fragment]
            return MovingOperators(of, self.node, merge, topology.options, states, table, send)
        if chosen is not None:
            from ordstream.balance.posg import POSG
            from ordstream.fragments.proactive import TimedNode

            if isinstance(chosen.grouping, POSG):
                parts = of, merge, topology.options
                timed = TimedNode(*parts, chosen, self.node, topology.processes, states=states)
                self._feedback = timed.feedback
                return timed
        if of.sheds:
            from ordstream.fragments.shedding import SheddingNode

            return SheddingNode(of, merge, topology.options, live=topology.live)
        longest_s = WHOLE_TURN_S if topology.whole else LONG_TURN_S
        return PolledNode(of, merge, topology.options, states, longest_s)

    @property
    def rests(self) -> bool:
        """`step` has nothing to do until something comes."""
        came = self.merge.events + self.out.events + self._events
        return self.outcome is not None or came == self._rested_at

    def step(self) -> bool:
        """Do what can be done without waiting, about one batch of it. Returns whether anything was."""
        came = self.merge.events + self.out.events + self._events
        if came == self._rested_at or self.outcome is not None:
            return False
        did = self._step()
        # what came meanwhile makes another step
        if self._cut is None and not self.merge.marks and (self._operators.quiet or self.out.blocked):
            self._rested_at = came
        return did

    def _step(self) -> bool:
        self._hand_on_marks()
        progressed = self.out.pump()
        if self.out.blocked:
            return progressed
        if self._cut is not None:
            self._tell_marks(self._cut)
            self.out.end(self._cut)
            self._end()
            return True
        try:
            batch, did = self._operators.poll()
        except StopIteration:
            self._over(self._operators.cut or self.merge.cut or END)
            return True
        except OperatorError as error:
            self._failed = error
            self._over(min(self.merge.cut or END, error.order_tag))
            return True
        if batch is not None:
            self._tell_marks(tags_of(batch)[-1].as_py())
            self.out.offer(batch, 0 if self._route is None else self._route(batch, tags_of(batch)))
        low = self._operators.low()
        self._tell_marks(low)
        self.out.set_low(low)
        if self.merge.marks:
            did |= self._pass_marks()
        if self.fragment in self._topology.tables:
            self.said.extend(self._moving.moved)
            self._moving.moved.clear()
        return self.out.pump() or did or progressed

    def _hand_on_marks(self) -> None:
        """Tell receivers of markers before the rows behind them; those were not taken yet."""
        found = []
        for number, tag in self.merge.new_marks():
            kind, last = kind_of(number), self.fragment + 1 == self._topology.last_edge
            if kind in self._hears:
                if last or (kind == REORDERED and self._moves_clock):
                    continue
                tag = moved(tag, self._behind)
            if self._makes_marks:
                heappush(self._to_hand_on, (tag, number))
            else:
                found.append((number, tag))
        self.out.marks(found)

    @property
    def _behind(self) -> int:
        """Position of the first operator of the next fragment."""
        return self._topology.fragments[self.fragment + 1].first

    def _tell_marks(self, through: bytes) -> None:
        """Tell receivers of the markers up to a tag: its own are known by now, and all come in order."""
        if not self._makes_marks:
            return
        for tag in cast(PolledNode, self._operators).left_marks(self._behind):
            heappush(self._to_hand_on, (tag, numbered(0, REORDERED)))
        while self._to_hand_on and self._to_hand_on[0][0] <= through:
            tag, number = heappop(self._to_hand_on)
            self.out.mark(number, tag)

    def _pass_marks(self) -> bool:
        """Pass the marker that all rows in front of are here, if there is one; of the clock's several, and
        take in the rows between them: there may be one for each row.
        """
        merge = self.merge
        did = self._take_marked()
        did |= bool(merge.marks) and self._pass_mark()
        while merge.marks and kind_of(merge.marks[0][0]) in self._hears:
            if self._take_marked():
                did = True
                continue
            if merge.at_mark is None:
                if not self._operators.take_rows():
                    break
            elif not self._pass_mark():
                break
            did = True
        return did

    def _take_marked(self) -> bool:
        return self._together and self._operators.take_marked()

    def _pass_mark(self) -> bool:
        """Take the state at a marker; whether there is one that all rows in front of are here."""
        number = self.merge.at_mark
        if number is None:
            return False
        kind = kind_of(number)
        if kind in self._hears:
            if self.fragment in self._topology.tables and not self._moving.takes_marks:
                return False
            clock = SOURCE_MARKS if kind == TIME else REORDERED_MARKS
            self._operators.take_mark(TimeMark.at(self.merge.marks[0][1], clock))
            self.merge.pass_mark()
            return True
        if kind == MOVE and number not in self.shifts:
            return False
        if kind != SNAPSHOT:
            if kind == MOVE and not self._shift(number):
                return True
            if kind == REPORT and self.fragment in self._topology.tables:
                told = self._moving.loads(number)
                if told is None:
                    return True
                self.said.append((self.fragment, *told))
            self.merge.pass_mark()
            return True
        found = self._operators.take_state()
        if found is not None:
            self.taken.append(NodeState(number, self.fragment, self.node, *found))
            self.merge.pass_mark()
        return True

    @property
    def _moving(self) -> MovingOperators:
        return cast("MovingOperators", self._operators)

    def _shift(self, number: int) -> bool:
        """Take part in the move that stands at the marker; False: not yet."""
        shift, tag = self.shifts[number], self.merge.marks[0][1]
        if shift.fragment == self.fragment and not self._moving.shift(shift, tag):
            return False
        if shift.fragment == self.fragment + 1:
            cast("MovingRoute", self._route).switch(tag, shift.step)
        del self.shifts[number]
        return True

    def arrive(self, sender: int, said: Any) -> None:
        """State of keys that come here, from another node of the fragment."""
        self._events += 1
        if self.outcome is None:  # else a failure in front ended the rows before the first that needs it
            self._moving.arrive(sender, said)

    def abandon(self, tag: bytes) -> None:
        """A node failed at this tag: state that moves behind it will not come."""
        self._events += 1
        if self.fragment in self._topology.tables:
            self._moving.abandon(tag)

    @property
    def works(self) -> bool:
        """Worker threads may have something under way, of which `step` hears only when it is called."""
        return self._cut is None and not self.out.blocked and self._operators.works

    def _over(self, cut: bytes) -> None:
        self._cut = cut
        self.merge.drop()

    def _end(self) -> None:
        self._operators.close()
        error = self._failed
        tag = error.order_tag if error is not None else b""
        cause = error.__cause__ if error is not None else None
        self.outcome = Outcome(
            fragment=self.fragment,
            node=self.node,
            report=self._operators.report,
            channels=self.out.figures,
            awaited=self.merge.awaited,
            error=error,
            cause=cause,
            tag=tag,
            shed=self._operators.shed(),
        )

    def figures(self) -> Figures:
        """What it has done so far."""
        return Figures(
            fragment=self.fragment,
            node=self.node,
            report=self._operators.report_so_far(),
            channels=self.out.figures,
            awaited=self.merge.awaited,
        )

    def feedback(self) -> Iterator[bytes]:
        """Its messages to the caller, taken out."""
        while self._feedback:
            yield self._feedback.popleft()

    @property
    def awaits(self) -> int | None:
        """The sender without whom nothing goes on here; None: there is no such one."""
        if self.outcome is not None or self._cut is not None or self.out.blocked:
            return None
        return self.merge.slowest

    def close(self) -> None:
        """Stop, whatever it is doing. Idempotent."""
        self._operators.close()


class DirectLink:
    """To a receiver in the same process."""

    def __init__(self, merge: Callable[[], TagMerge], sender: int) -> None:
        self._merge, self._sender = merge, sender

    def rows(self, batch: pa.RecordBatch) -> int:
        size = max(1, int(batch.nbytes))
        self._merge().rows(self._sender, batch, size)
        return size

    def low(self, tag: bytes) -> None:
        self._merge().set_low(self._sender, tag)

    def note(self, body: bytes) -> None:
        self._merge().notes.append(body)

    def end(self, cut: bytes) -> None:
        self._merge().end(self._sender, cut)

    def marks(self, marks: Sequence[tuple[int, bytes]]) -> None:
        merge = self._merge()
        for number, tag in marks:
            merge.mark(number, tag)

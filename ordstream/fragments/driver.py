"""The caller's side of a run over several nodes: it sends the source's rows, merges what the last fragment
gives into the output, and says which failure comes first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from ordstream.errors import OperatorError
from ordstream.fragments import fragmenting
from ordstream.fragments.channels import Link, Outbox
from ordstream.fragments.figures import Figures, Outcome, channels_of, report_of
from ordstream.fragments.mark_kinds import MOVE, REPORT, SNAPSHOT, TIME, kind_of, numbered
from ordstream.fragments.marking import Marking
from ordstream.fragments.merging import END, TagMerge, Tags
from ordstream.fragments.shedding import reports_together, shed_together
from ordstream.fragments.source_blocks import SourceBlocks, tagged
from ordstream.fragments.spreading import ByTable, spreading_of
from ordstream.fragments.time_marks import mark_tag
from ordstream.fragments.topology import Topology
from ordstream.ground.numbers import integers
from ordstream.ground.ordertags import (
    AT_END,
    ORDINARY,
    TAG,
    TAG_NAMES,
    Int64s,
    OrderTag,
    RunningIndex,
    in_front,
    source_serial,
    source_serials,
    tags_of,
)
from ordstream.node.run_failure import with_place

if TYPE_CHECKING:
    from ordstream.fragments.balancing import Balancing
    from ordstream.node.shedding import ShedOutcome


#: Blocks of a source that comes by itself which are on their way while further rows gather: where a first
#: node has rows that it did not take, and where none has any.
BLOCKS_AHEAD = 2
IDLE_BLOCKS_AHEAD = 8
#: Where more marks of the clock are on their way the source waits: rows have credit, and marks have none.
MARKS_AHEAD = 1 << 17


def tag_of_serial(serial: int) -> bytes:
    """The tag of a source tuple."""
    return ORDINARY + serial.to_bytes(8, "big")


class Driver:
    """See the module. Its owner calls `step`, takes `output`, and lets it hear what comes (`merge`,
    `out.acknowledged`, `ended`).

    Parameters
    ----------
    topology : Topology
    blocks : SourceBlocks
    links : sequence of Link
        To the nodes of the first edge.
    consumed : callable
        As of `TagMerge`.
    schema : pyarrow.Schema
        Of the output; with `tags` its order tags are in the last two columns.
    tags : bool
    marking : Marking, optional
        What puts markers into the order, and says where the run begins.
    emitted_through : OrderTag, optional
        Outputs up to this one are left out: they were delivered before.
    balancing : Balancing, optional
        What moves keys.
    """

    def __init__(
        self,
        topology: Topology,
        blocks: SourceBlocks,
        links: Sequence[Link],
        consumed: Callable[[int, int], None],
        schema: pa.Schema,
        tags: bool,
        marking: Marking | None = None,
        emitted_through: OrderTag | None = None,
        balancing: Balancing | None = None,
    ) -> None:
        begin = OrderTag(0) if marking is None else marking.begin.emitted_through
        self.topology, self.blocks = topology, blocks
        self._spread = spreading_of(topology)
        self.out = Outbox(links, min(topology.cap, self._spread.cap or topology.cap))
        if self._spread.block_rows is not None:
            blocks.at_most(self._spread.block_rows)
        if self._spread.whole_blocks:
            blocks.shared_by(topology.processes)
        if balancing is not None:
            blocks.at_most(balancing.block_rows)
        self.merge = TagMerge(topology.senders(topology.last_edge), consumed, topology.merged_rows)
        self.emitted_through = begin
        self.rows_out = 0
        self._tagged_schema: pa.Schema = blocks.schema.append(pa.field(TAG, pa.binary(), False))
        self._schema, self._tags = schema, tags
        self._running = RunningIndex(begin)
        self._marking, self._delivered = marking, emitted_through
        self._least = max(begin, emitted_through or begin)
        self._balancing = balancing
        self._marks = 0  # so far
        self._suspended: bytes | None = None  # behind the last tuple, where the stream goes on another time
        self._source_ended = False
        self._sent: deque[bytes] = deque(maxlen=IDLE_BLOCKS_AHEAD)  # behind each of the last blocks
        # of blocks with marks that are on their way: behind the block, and marks in front of it
        self._marked: deque[tuple[bytes, int]] = deque()
        self._outcomes: list[Outcome] = []
        self._failed = False  # one of them has an error
        self._figures: dict[tuple[int, int], Figures] = {}
        self._nodes = {
            (k, node)
            for k in range(topology.first, topology.last_edge)
            for node in range(topology.fragments[k].nodes(topology.processes))
        }

    # ---------------------------------------------------------------------------------------- the source

    def step(self) -> bool:
        """Send what the source has and nodes have credit for. Returns whether anything was done."""
        progressed = self.out.pump()
        if self.merge.cut is not None:
            # Behind a failure nodes still give rows: without credit for them they would take no more, and
            # the end would never reach them.
            progressed |= self.merge.drop()
        if self._source_ended or self.out.blocked:
            return progressed
        if self._stopping:
            # everything in front of the failure was sent: rows are sent in order
            return self._end(tag_of_serial(self.blocks.rows + 1))
        marking, blocks = self._marking, self.blocks
        if marking is not None and marking.asked and not marking.full:
            self._mark(marking, blocks.rows, blocks.latest)
            progressed = True
        if blocks.over:
            return self._source_over() or progressed
        if self._balancing is not None:
            progressed |= self._balance(self._balancing)
            if self._balancing.pauses:
                return progressed
        if not blocks.ready() or self._gathers() or self._many_marks():
            return progressed
        free, most, before, latest = self.out.free(), None, blocks.rows, blocks.latest
        if not free:
            return progressed
        if marking is not None:
            if marking.due(before) and marking.full:
                return progressed
            most = marking.rows_until_due(before)
        block = blocks.next(most)
        if block is not None:
            if marking is not None and marking.due(before):
                self._mark(marking, before, latest)
            marks = self._marks
            self._put_times(blocks.marks)
            rows = tagged(*block, self._tagged_schema)
            nodes = self._spread.nodes(block[0], rows, free)
            for node, body in self._spread.notes():
                self.out.note(node, body)
            self.out.offer(rows, nodes)
            low = in_front(self.blocks.rows + 1)
            self.out.set_low(low)
            self._sent.append(low)
            if blocks.marks:
                self._marked.append((low, marks))
        if self.blocks.over:
            return self._source_over() or progressed
        self.out.pump()
        return block is not None or progressed

    def _gathers(self) -> bool:
        """Rows wait for more of them while enough blocks are on their way through all nodes, of which few
        are enough for nodes that are behind; or, where any node may get them, while each has rows that it
        did not begin with.
        """
        if self._spread.any_node:
            return not self.out.wanted and self.blocks.due_in() > 0.0
        sent, ahead = self._sent, IDLE_BLOCKS_AHEAD if self.out.rests else BLOCKS_AHEAD
        many = len(sent) >= ahead and self.merge.low < sent[-ahead]
        return many and self.blocks.due_in() > 0.0

    def _many_marks(self) -> bool:
        """More marks of the clock are on their way through all nodes than should be: a fragment that gets no
        rows gets them all, and may take longer than the one in front.
        """
        marked = self._marked
        while marked and self.merge.low >= marked[0][0]:
            marked.popleft()
        return bool(marked) and self._marks - marked[0][1] > MARKS_AHEAD

    @property
    def due_in(self) -> float | None:
        """Seconds until rows go that wait for more of them; None: none do."""
        if self._source_ended or self.out.blocked or not self.blocks.ready():
            return None
        return self.blocks.due_in() or None

    def _source_over(self) -> bool:
        """The source has nothing more."""
        if self._suspended is not None:
            return self._end(self._suspended)
        behind, marking = tag_of_serial(self.blocks.rows + 1), self._marking
        if self.blocks.error is not None:
            return self._end(behind)
        if marking is None or not (marking.asked or marking.suspends):
            return self._end(END)
        if marking.full:
            return False
        self._mark(marking, self.blocks.rows, self.blocks.latest)
        if not marking.suspends:
            return self._end(END)
        self._suspended = behind
        return self._end(behind)

    def _mark(self, marking: Marking, serial: int, latest: int | None) -> None:
        """Put a marker behind a tuple, where the clock shows a time; nothing behind it was sent."""
        routes = {} if self._balancing is None else self._balancing.routes
        marking.put(self._put(SNAPSHOT, serial), serial, routes, latest)

    def _put_times(self, marks: Sequence[tuple[int, int]]) -> None:
        """Marks of the clock, serials and times, go to all nodes, each in front of the tuple showing it."""
        position = self.topology.fragments[self.topology.first].first
        first = self._marks + 1
        self._marks += len(marks)
        self.out.marks([
            (numbered(place, TIME), mark_tag(serial, time, position))
            for place, (serial, time) in enumerate(marks, first)
        ])  # fmt: skip

    def _put(self, kind: int, serial: int) -> int:
        """A marker's number, which stands in the order now."""
        self._marks += 1
        number, tag = numbered(self._marks, kind), in_front(serial + 1)
        self.merge.mark(number, tag)
        self.out.mark(number, tag)
        self.out.set_low(tag)
        return number

    def _balance(self, balancing: Balancing) -> bool:
        """Have nodes report, or keys move, where the source is now."""
        serial = self.blocks.rows
        if balancing.wants_report(serial):
            balancing.asked(self._put(REPORT, serial), serial)
            return True
        if balancing.wants_move():
            shift = balancing.begin(self._put(MOVE, serial), serial)
            if shift.fragment == self.topology.first:
                cast(ByTable, self._spread).switch(shift.step)
            return True
        return False

    @property
    def _stopping(self) -> bool:
        """A failure is known, or the output is over: nothing more of the source counts."""
        return self._failed or self.merge.cut is not None

    def _end(self, cut: bytes) -> bool:
        self.out.pump()
        if not self.out.blocked:
            self.out.end(cut)
            self._source_ended = True
        return True

    def heard(self, node: int, body: bytes) -> None:
        """A node of the first edge says something of its rows."""
        self._spread.hear(node, body)

    # ---------------------------------------------------------------------------------------- the output

    @property
    def at_mark(self) -> bool:
        """The next `output` meets a marker: what comes with it stands behind."""
        number = self.merge.at_mark
        return number is not None and kind_of(number) == SNAPSHOT

    def output(self) -> pa.RecordBatch | None:
        """The next rows of the output; None: none are there now."""
        while (number := self.merge.at_mark) is not None:
            if kind_of(number) == SNAPSHOT:
                assert self._marking is not None
                self._marking.met(number, self.emitted_through)
            self.merge.pass_mark()
        if not self.merge.ready():
            return None
        rows = next(self.merge)
        self._count(tags_of(rows))
        self.rows_out += rows.num_rows
        fields = self._schema if not self._tags else list(self._schema)[:-2]
        columns = [
            column if column.type.equals(field.type) else column.cast(field.type)
            for column, field in zip(rows.columns, fields, strict=False)  # the tags are behind
        ]
        known = 0
        if self._tags or self._delivered is not None:
            serials, at_end = source_serials(tags_of(rows))
            serials[at_end] = self.blocks.rows
            index = self._running(serials)
            if self._tags:
                columns += [integers(serials), integers(index)]
            if self._delivered is not None:
                known = _delivered(serials, index, self._delivered)
                self._delivered = None if known < len(serials) else self._delivered
        shaped = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return shaped.slice(known)

    def _count(self, tags: pa.Array) -> None:
        """The commit point at the end of these rows."""
        last = source_serial(tags[-1].as_py())
        serial = self.blocks.rows if last is None else last
        first = bisect_left(Tags(tags), in_front(serial)) if serial else 0
        same = self.emitted_through.serial == serial and self.emitted_through.index >= 0
        before = self.emitted_through.index + 1 if same and first == 0 else 0
        self.emitted_through = OrderTag(serial, before + len(tags) - first - 1)

    # ---------------------------------------------------------------------------------------- the end

    def ended(self, outcome: Outcome) -> None:
        """A node has ended."""
        self._outcomes.append(outcome)
        self._failed |= outcome.error is not None
        if outcome.error is not None and self._balancing is not None:
            self._balancing.abandon(outcome.tag)

    @property
    def over(self) -> bool:
        """The output is complete, or ends at a failure, and every node has ended."""
        return self.merge.cut is not None and self._source_ended and len(self._outcomes) == len(self._nodes)

    def failure(self) -> BaseException | None:
        """The failure that a sequential run meets first; None: there was none."""
        failed = [outcome for outcome in self._outcomes if outcome.error is not None]
        first = min(failed, key=lambda outcome: outcome.tag, default=None)
        if self.blocks.error is not None and (
            first is None or tag_of_serial(self.blocks.rows + 1) < first.tag
        ):
            return self.blocks.error
        return None if first is None else _failure(first, self.blocks.rows)

    def _followed(self) -> int:
        """The last tuple that is known to be followed to the end, with or without outputs; 0: none is."""
        cut = self.merge.cut
        if cut is None:
            return 0
        if cut in (END, self._suspended) or cut[:1] == AT_END:
            return self.blocks.rows
        failed = source_serial(cut) if cut else None
        return max(0, failed - 1) if failed is not None else 0

    def let_go(self) -> None:
        """Of what is no figure, behind the end: the source's rows, and errors. The traceback of one that is
        raised has the frames of the reader, and those have the data.
        """
        self.blocks.let_go()
        self._outcomes = [replace(outcome, error=None, cause=None) for outcome in self._outcomes]

    def shed(self) -> ShedOutcome:
        """What the shed operators of the nodes that have ended left behind."""
        ended = sorted(self._outcomes, key=lambda one: (one.fragment, one.node))
        return shed_together([one.shed for one in ended if one.shed is not None])

    def told(self, figures: Figures) -> None:
        """What a node has done so far."""
        self._figures[figures.fragment, figures.node] = figures

    def missing(self) -> set[tuple[int, int]]:
        """Fragment and node of those that have not ended."""
        return self._nodes - {(one.fragment, one.node) for one in self._outcomes}

    def report(self, seconds: float) -> Any:
        """The report of all nodes: complete once `over`, before of what they have told last."""
        serial = self.blocks.rows
        through = max(self._least, self.emitted_through, OrderTag(self._followed()))
        nodes = (self._figures | {(one.fragment, one.node): one for one in self._outcomes}).values()
        found = report_of(self.topology, nodes, seconds, through)
        if not self.over:
            rate = serial / seconds if seconds > 0 else 0.0
            found = replace(found, tuples=serial, rows_out=self.rows_out, tuples_per_second=rate)
        channels = channels_of(self.topology, nodes, self.out.figures, self.merge.awaited)
        together = reports_together(found.shedding)
        balance = {} if self._balancing is None else self._balancing.report()
        return replace(
            found, channels=channels, grouping=self._spread.report(), balance=balance, shedding=together
        )


def _delivered(serials: Int64s, index: Int64s, through: OrderTag) -> int:
    """How many of these outputs have a tag up to `through`."""
    before = (serials < through.serial) | ((serials == through.serial) & (index <= through.index))
    return int(np.count_nonzero(before))


def _failure(outcome: Outcome, rows: int) -> BaseException:
    """The error as a run in one process raises it; what failed at the end of the stream has the last
    tuple's serial.
    """
    error = outcome.error
    assert error is not None
    if outcome.tag[:1] == AT_END:
        error = OperatorError(error.operator, rows, error.row, error.reason, error.place)
    if isinstance(outcome.cause, MemoryError):
        return with_place(outcome.cause, error)
    error.__cause__ = outcome.cause
    return error


def combines(topology: Topology) -> Topology | None:
    """The same run with the first half of its last operator in the nodes in front, where it has halves and
    there are several such nodes.
    """
    fragments = fragmenting.combined(topology.fragments)
    if fragments == topology.fragments or topology.fragments[-2].nodes(topology.processes) == 1:
        return None
    return replace(topology, fragments=tuple(fragments))


def reads_twice(data: Any) -> bool:
    """Whether data can be read again from its beginning."""
    if isinstance(data, list | tuple):
        return all(isinstance(item, pa.RecordBatch | pa.Table) for item in data)
    return isinstance(data, pa.Table | pa.RecordBatch) or (
        isinstance(data, Sized) and hasattr(data, "__arrow_c_stream__")
    )


def with_tags(schema: pa.Schema, tags: bool) -> pa.Schema:
    """The schema of the output; with `tags`, its order tags' columns behind it."""
    for name in TAG_NAMES if tags else ():
        schema = schema.append(pa.field(name, pa.int64()))
    return schema

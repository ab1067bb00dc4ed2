"""What a node receives: the rows of several senders, each sorted by tag, as one sequence by tag.

Each sender also says how far it is: its *low*, a tag below which it sends nothing any more. Rows below the
smallest low of all senders are complete and go on, so nothing waits for a row that nobody will send.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from ordstream.fragments.mark_kinds import kind_of
from ordstream.ground.arrow_memory import POOL
from ordstream.ground.ordertags import merge_sorted, tags_of

#: A low, or a cut, behind every tag.
END = b"\xff"
#: Rows that are handed on together, about.
MERGED_ROWS = 16_384


def behind(tag: bytes) -> bytes:
    """The smallest tag that is greater."""
    return tag + b"\x00"


class _Rows:
    """A batch in an inbox, with its first and last tag, the bytes that its sender counts for it, and when it
    came.
    """

    __slots__ = ("arrived_ns", "batch", "first", "last", "size")

    def __init__(self, batch: pa.RecordBatch, size: int, arrived_ns: int) -> None:
        tags = tags_of(batch)
        self.batch, self.size, self.arrived_ns = batch, size, arrived_ns
        self.first: bytes = tags[0].as_py()
        self.last: bytes = tags[-1].as_py()


class _Inbox:
    """What came from one sender and was not handed on."""

    __slots__ = ("ended", "first", "low", "queue")

    def __init__(self) -> None:
        self.queue: deque[_Rows] = deque()
        self.low = b""
        self.first = END  # the tag in front; END where there is none
        self.ended = False

    def changed(self) -> None:
        """Rows in front were taken."""
        self.first = self.queue[0].first if self.queue else END


class TagMerge(Iterator[pa.RecordBatch]):
    """The rows of several senders by ascending tag.

    Parameters
    ----------
    senders : int
    consumed : callable
        Hears (sender, bytes) when so much of what the sender sent was handed on or dropped.
    rows_at_once : int
        Rows that are handed on together, about.

    Attributes
    ----------
    events : int
        Grows with everything that comes, and where a marker is passed.
    unheard : collection of int
        Kinds of markers that stand in front of no row here: they are told of (`new_marks`), and that is all.
    arrived_ns : int
        When the oldest of the rows that were handed on last came (`time.monotonic_ns`).
    """

    def __init__(
        self, senders: int, consumed: Callable[[int, int], None], rows_at_once: int = MERGED_ROWS
    ) -> None:
        self._inboxes = [_Inbox() for _ in range(senders)]
        self.waiting = 0  # rows that were not handed on
        self.events = self.arrived_ns = 0
        # of all inboxes; None: to be looked for again
        self._bound_now: bytes | None = None
        self._first_now: bytes | None = None
        self._any_ended = False
        self.unheard: frozenset[int] = frozenset()
        self._consumed = consumed
        self._dropping = False
        self._marks: deque[tuple[int, bytes]] = deque()
        self._new_marks: deque[tuple[int, bytes]] = deque()  # of these, those that nobody has asked for yet
        self._marked = b"", 0  # the last one
        self.awaited = [0.0] * senders  # seconds, per sender
        self.notes: deque[bytes] = deque()  # messages of senders, for the node
        self.rows_at_once = rows_at_once

    # ------------------------------------------------------------------------------------ from senders

    def rows(self, sender: int, batch: pa.RecordBatch, size: int) -> None:
        """The sender's next rows, at least one; `size`: the bytes that it counts for them."""
        if self._dropping:
            self._consumed(sender, size)
            return
        inbox, rows = self._inboxes[sender], _Rows(batch, size, time.monotonic_ns())
        inbox.queue.append(rows)
        if rows.first < inbox.first:
            inbox.first = rows.first
            self._first_now = None
        self.events += 1
        self.waiting += batch.num_rows
        self.set_low(sender, behind(rows.last))

    def set_low(self, sender: int, low: bytes) -> None:
        """The sender sends nothing below this tag any more."""
        inbox = self._inboxes[sender]
        if not inbox.ended and low > inbox.low:
            if inbox.low == self._bound_now:
                self._bound_now = None
            inbox.low = low
            self.events += 1

    def end(self, sender: int, cut: bytes) -> None:
        """The sender sends nothing any more.

        `cut`: the tag of the failure that ended it, from which on rows may be missing; `END`: none did.
        """
        inbox = self._inboxes[sender]
        inbox.low, inbox.ended = cut, True
        self._any_ended = True
        self._bound_now = None
        self.events += 1

    def mark(self, number: int, tag: bytes) -> None:
        """A marker stands in front of every row of this tag or a greater one. Each sender says so before it
        sends one of those, and the first who does counts. Tags ascend; and numbers, of one tag.
        """
        if (tag, number) > self._marked and not self._dropping:
            self._marked = tag, number
            if kind_of(number) not in self.unheard:
                self._marks.append((number, tag))
            self._new_marks.append((number, tag))
            self.events += 1

    # ------------------------------------------------------------------------------------ to the node

    @property
    def marks(self) -> Sequence[tuple[int, bytes]]:
        """(number, tag) of the markers that rows were not handed on up to, or the node did not pass yet."""
        return self._marks

    def new_marks(self) -> Iterator[tuple[int, bytes]]:
        """The markers that came since the last call, `unheard` ones included."""
        while self._new_marks:
            yield self._new_marks.popleft()

    @property
    def at_mark(self) -> int | None:
        """The marker that everything in front of was handed on; rows behind it wait for `pass_mark`."""
        if not self._marks:
            return None
        number, tag = self._marks[0]
        return number if self.low >= tag else None

    def pass_mark(self) -> None:
        """Go on behind the marker."""
        passed = self._marks.popleft()
        if self._new_marks and self._new_marks[0] == passed:
            self._new_marks.popleft()
        self.events += 1  # rows, or the end, may stand behind it

    @property
    def _until(self) -> bytes:
        """Rows below this tag can be handed on."""
        bound = self._bound
        return min(bound, self._marks[0][1]) if self._marks else bound

    @property
    def _bound(self) -> bytes:
        if self._bound_now is None:
            self._bound_now = min([inbox.low for inbox in self._inboxes])
        return self._bound_now

    @property
    def _first(self) -> bytes:
        if self._first_now is None:
            self._first_now = min([inbox.first for inbox in self._inboxes])
        return self._first_now

    @property
    def low(self) -> bytes:
        """Every row that is still to be handed on has this tag or a greater one."""
        return min(self._bound, self._first)

    def ready(self) -> bool:
        """Whether rows can be handed on now."""
        first, bound = self._first_now, self._bound_now
        if first is None or bound is None:
            first, bound = self._first, self._bound
        return first < bound and not (self._marks and first >= self._marks[0][1])

    def __next__(self) -> pa.RecordBatch:
        """The next rows; StopIteration where none is ready."""
        return self._next(self._until)

    def marks_there(self, kind: int, most: int) -> int:
        """How many markers of a kind, in front of all of other kinds, are not behind rows that are still to
        come; `most`: no more are looked at.
        """
        count, bound = 0, self._bound
        for number, tag in islice(self._marks, most):
            if kind_of(number) != kind or tag > bound:
                break
            count += 1
        return count

    def marked(self, count: int) -> tuple[pa.RecordBatch | None, list[bytes]]:
        """The next rows through so many markers (`marks_there`), and behind them up to the next one, as far
        as they are here; and the tags of the markers that none of the others' rows is in front of, passed.
        """
        marks = [*islice(self._marks, count + 1)]
        bound = min(self._bound, marks[count][1]) if len(marks) > count else self._bound
        rows = self._next(bound) if self._first < bound else None
        tags, low = [], self.low
        for _, tag in marks[:count]:
            if tag > low:
                break
            tags.append(tag)
            self.pass_mark()
        return rows, tags

    def _next(self, bound: bytes) -> pa.RecordBatch:
        """The next rows below a tag; StopIteration where there are none."""
        alone = self._alone(bound)
        if alone is not None:
            return alone
        self.arrived_ns = time.monotonic_ns()
        active = [sender for sender, inbox in enumerate(self._inboxes) if inbox.first < bound]
        if not active:
            raise StopIteration
        for sender in active:
            bound = min(bound, self._enough(sender, self.rows_at_once // len(active), bound))
        parts = [[*self._taken(sender, bound)] for sender in active]
        self._first_now = None
        found = [part for of_sender in parts for part in of_sender]
        self.waiting -= sum(part.num_rows for part in found)
        if sum(1 for of_sender in parts if of_sender) > 1:
            return merge_sorted(found)
        return found[0] if len(found) == 1 else pa.concat_batches(found, memory_pool=POOL)

    def _alone(self, bound: bytes) -> pa.RecordBatch | None:
        """A batch that stands in front of all others and has no follower, taken out; None: it is not so."""
        found: _Inbox | None = None
        of = 0
        for sender, inbox in enumerate(self._inboxes):
            if inbox.first < bound:
                if found is not None or len(inbox.queue) > 1:
                    return None
                found, of = inbox, sender
        if found is None or found.queue[0].last >= bound:
            return None
        rows = found.queue.popleft()
        found.first = END
        self._first_now = None
        self.waiting -= rows.batch.num_rows
        self.arrived_ns = rows.arrived_ns
        self._consumed(of, rows.size)
        return rows.batch

    def _enough(self, sender: int, rows: int, bound: bytes) -> bytes:
        """A tag such that about so many rows of the sender are below it; END: fewer are below `bound`."""
        count = 0
        for item in self._inboxes[sender].queue:
            if item.first >= bound:
                break
            count += item.batch.num_rows
            if count >= rows:
                return behind(item.last)
        return END

    def _taken(self, sender: int, bound: bytes) -> Iterator[pa.RecordBatch]:
        """The sender's rows below a tag, taken out."""
        queue = self._inboxes[sender].queue
        while queue and queue[0].first < bound:
            rows = queue.popleft()
            self.arrived_ns = min(self.arrived_ns, rows.arrived_ns)
            if rows.last < bound:
                self._consumed(sender, rows.size)
                yield rows.batch
                continue
            n = bisect_left(Tags(tags_of(rows.batch)), bound)
            queue.appendleft(_Rows(rows.batch.slice(n), rows.size, rows.arrived_ns))
            yield rows.batch.slice(0, n)
        self._inboxes[sender].changed()

    @property
    def slowest(self) -> int | None:
        """The sender that the next row waits for; None: rows can be handed on, or nothing more comes."""
        if self.ready() or self.cut is not None:
            return None
        return min(range(len(self._inboxes)), key=lambda sender: self._inboxes[sender].low)

    @property
    def cut(self) -> bytes | None:
        """Once every row that counts was handed on: the tag at which the rows end, `END` at the end of the
        stream. None: more is to come.
        """
        if not self._any_ended:  # each step asks
            return None
        bound = self._bound
        if self._marks and self._marks[0][1] <= bound:
            return None
        if self._first < bound or not any(inbox.ended and inbox.low == bound for inbox in self._inboxes):
            return None
        return bound

    def drop(self) -> bool:
        """Take no more rows: what is here and what comes is dropped. Returns whether anything was here."""
        self._dropping = True
        self._marks.clear()
        self._new_marks.clear()
        dropped = False
        for sender, inbox in enumerate(self._inboxes):
            size = sum(item.size for item in inbox.queue)
            inbox.queue.clear()
            inbox.changed()
            if size:
                self._consumed(sender, size)
                dropped = True
        self._first_now = None
        self.waiting = 0
        return dropped


class Tags(Sequence[bytes]):
    """Tags as Python values, one at a time, for bisection."""

    def __init__(self, tags: pa.Array) -> None:
        self._tags = tags

    def __len__(self) -> int:
        return len(self._tags)

    def __getitem__(self, index: Any) -> Any:
        return self._tags[index].as_py()

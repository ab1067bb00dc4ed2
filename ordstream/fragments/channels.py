"""What a node sends: each row to the node that its route names, over one channel per receiver.

A channel has a credit in bytes: what was sent and not yet handed on by the receiver. Where it is used up,
rows for that receiver wait here, and the node makes no more; the other receivers get theirs, and all of them
hear how far the node is. docs/architecture.md says why nothing waits for ever.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.fragments.merging import END, behind
from ordstream.ground.numbers import integers
from ordstream.ground.ordertags import rows_at, tags_of
from ordstream.ground.slices import without_view
from ordstream.node.source import parts


class Link(Protocol):
    """The way to one receiver. Nothing here waits; what is sent arrives in this order."""

    def rows(self, batch: pa.RecordBatch) -> int:
        """Send rows; the bytes that the receiver gives back in all when it has handed them on."""

    def low(self, tag: bytes) -> None:
        """Say that nothing below this tag comes any more. A later one may overtake it."""

    def note(self, body: bytes) -> None:
        """Send a message about rows that come behind it."""

    def marks(self, marks: Sequence[tuple[int, bytes]]) -> None:
        """Say where markers stand, their numbers and tags (`TagMerge.mark`)."""

    def end(self, cut: bytes) -> None:
        """Say that nothing comes any more (`TagMerge.end`)."""


@dataclass
class ChannelFigures:
    """What went over one channel so far.

    Attributes
    ----------
    low : bytes
        The receiver gets nothing below this tag any more.
    rows, bytes : int
    waited : float
        Seconds for which rows waited here for the receiver.
    most : int
        Largest number of bytes that the receiver had and had not handed on.
    """

    low: bytes = b""
    rows: int = 0
    bytes: int = 0
    waited: float = 0.0
    most: int = 0


class _Channel:
    """The sender's side of one channel."""

    __slots__ = ("cap", "figures", "held", "link", "low", "outstanding", "since", "told")

    def __init__(self, link: Link, cap: int) -> None:
        self.link, self.cap = link, cap
        self.held: deque[pa.RecordBatch] = deque()
        self.outstanding = 0
        self.low = self.told = b""
        self.figures = ChannelFigures()
        self.since = 0.0

    def pump(self) -> bool:
        """Send what there is credit for, then how far the sender is."""
        sent = False
        while self.held and self.outstanding < self.cap:
            batch = self.held.popleft()
            size = self.link.rows(batch)
            self.outstanding += size
            self.figures.rows += batch.num_rows
            self.figures.bytes += size
            self.figures.most = max(self.figures.most, self.outstanding)
            self.told = behind(tags_of(batch)[-1].as_py())
            sent = True
        if self.held:
            self.since = self.since or time.monotonic()
            low = tags_of(self.held[0])[0].as_py()
        else:
            if self.since:
                self.figures.waited += time.monotonic() - self.since
                self.since = 0.0
            low = self.low
        if low > self.told:
            self.told = low
            self.link.low(low)
            sent = True
        return sent

    def now(self) -> ChannelFigures:
        """The figures, with the wait that goes on."""
        waits = time.monotonic() - self.since if self.since else 0.0
        return replace(self.figures, waited=self.figures.waited + waits, low=self.told)


class Outbox:
    """The channels of one sender.

    Parameters
    ----------
    links : sequence of Link
        One per receiver.
    cap : int
        Bytes that one receiver may have and not have handed on, but for the batch that exceeds them.

    Attributes
    ----------
    events : int
        Grows where a receiver gives credit that rows wait for.
    """

    def __init__(self, links: Sequence[Link], cap: int) -> None:
        self.events = 0
        self._stale = False  # `pump` may have something to send
        self._channels = [_Channel(link, cap) for link in links]
        self._cap = cap
        self._plain: pa.Schema | None = None  # of the last batch: without string views

    @property
    def blocked(self) -> bool:
        """Rows wait for a receiver."""
        return any(channel.held for channel in self._channels)

    @property
    def wanted(self) -> bool:
        """A receiver has nothing that it has not handed on."""
        return any(not channel.outstanding and not channel.held for channel in self._channels)

    @property
    def rests(self) -> bool:
        """No receiver has anything that it has not handed on."""
        return not any(channel.outstanding or channel.held for channel in self._channels)

    def free(self) -> list[int]:
        """The receivers that may be sent more, the one with the least to do first."""
        found = [k for k, channel in enumerate(self._channels) if channel.outstanding < self._cap]
        return sorted(found, key=lambda k: self._channels[k].outstanding)

    @property
    def figures(self) -> list[ChannelFigures]:
        """Per receiver, as of now."""
        return [channel.now() for channel in self._channels]

    def offer(self, batch: pa.RecordBatch, nodes: npt.NDArray[np.int32] | int = 0) -> None:
        """Send rows, in the order of their tags, to the receiver of each, or all to one."""
        if self._plain is None or not batch.schema.equals(self._plain):
            batch = without_views(batch)
            self._plain = batch.schema
        last = behind(tags_of(batch)[-1].as_py())
        small = batch.nbytes <= self._cap
        self._stale = True
        for receiver, rows in _divided(batch, nodes, len(self._channels)):
            channel = self._channels[receiver]
            if small:
                channel.held.append(rows)
            else:
                channel.held.extend(parts(rows, rows.num_rows, self._cap))
        self.set_low(last)

    def note(self, receiver: int, body: bytes) -> None:
        """Send a message to a receiver, in front of rows that are offered after it."""
        self._channels[receiver].link.note(body)

    def set_low(self, low: bytes) -> None:
        """Nothing below this tag is offered any more."""
        for channel in self._channels:
            if low > channel.low:
                channel.low = low
                self._stale = True

    def mark(self, number: int, tag: bytes) -> None:
        """Say to all where a marker stands, before a row of its tag or a greater one is offered. It needs no
        credit, and may overtake rows that wait: what stands in front of it their tags say.
        """
        self.marks([(number, tag)])

    def marks(self, marks: Sequence[tuple[int, bytes]]) -> None:
        """As `mark`, of several, in order."""
        if marks:
            for channel in self._channels:
                channel.link.marks(marks)

    def pump(self) -> bool:
        """Send what there is credit for. Returns whether anything was sent."""
        if not self._stale:
            return False
        self._stale = False  # rows that stay wait for credit
        return any([channel.pump() for channel in self._channels])

    def acknowledged(self, receiver: int, size: int) -> None:
        """The receiver has handed so many bytes on."""
        channel = self._channels[receiver]
        channel.outstanding -= size
        if channel.held:
            self._stale = True
            self.events += 1

    def end(self, cut: bytes = END) -> None:
        """Say to all that nothing comes any more; not while rows wait."""
        for channel in self._channels:
            channel.told = cut
            channel.link.end(cut)


def _divided(batch: pa.RecordBatch, nodes: Any, receivers: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each receiver that gets any."""
    if isinstance(nodes, int):
        yield nodes, batch
        return
    if len(nodes) == 1:
        yield int(nodes[0]), batch
        return
    counts = np.bincount(nodes, minlength=receivers)
    if counts.max() == len(nodes):
        yield int(nodes[0]), batch
        return
    # NumPy counts small numbers in place of comparing them
    small = nodes.astype(np.uint8) if receivers <= 256 else nodes
    batch = rows_at(batch, integers(np.argsort(small, kind="stable")))
    start = 0
    for receiver, count in enumerate(counts.tolist()):
        if count:
            yield receiver, batch.slice(start, count)
        start += count


def without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with views of texts and bytes as such: Arrow takes no rows of some of them."""
    kinds = [without_view(kind) for kind in batch.schema.types]
    if kinds == batch.schema.types:
        return batch
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    # not the batch: Arrow's cast breaks a slice of lists of nulls, also where it leaves the type as it is
    columns = [
        column if column.type.equals(kind) else column.cast(kind)
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

"""Which nodes a run has, and who sends to whom.

Fragments follow each other; *edge* k leads to the nodes of fragment k, the last edge to the caller, who also
sends the source's rows. Node j of a fragment lives in process j.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ordstream.fragments.exchange import Route
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.merging import MERGED_ROWS

if TYPE_CHECKING:
    from ordstream.balance.mixed.table import Assignment
    from ordstream.fragments.grouping import Chosen
    from ordstream.fragments.moving_route import MovingRoute

#: Bytes that one receiver may have of one sender; and of all senders of a process together, about.
CHANNEL_BYTES = 4 << 20
PROCESS_BYTES = 256 << 20
LEAST_CHANNEL_BYTES = 64 << 10
#: Rows of a block of the source, at most; and these, and `MERGED_ROWS`, where the source is there as a
#: whole.
BLOCK_ROWS = 16_384
WHOLE_BLOCK_ROWS, WHOLE_MERGED_ROWS = 32_768, 65_536


@dataclass(frozen=True, eq=False)
class Topology:
    """See the module. What each process gets to know.

    Attributes
    ----------
    fragments : tuple of Fragment
    processes : int
    options : mapping
        Of every node.
    channel_bytes : int, optional
        Bytes that one receiver may have of one sender. None: from the number of channels.
    tables : mapping of int to Assignment
        Fragment -> the route table that it begins with, of those whose keys may move.
    groupings : mapping of int to Chosen
        Fragment -> what chooses a row's node, where that is not the hash of its key.
    live : bool
        The source gives rows when they come, not when it is asked: so nodes can be overloaded.
    """

    fragments: tuple[Fragment, ...]
    processes: int
    options: Mapping[str, Any]
    channel_bytes: int | None = None
    groupings: Mapping[int, Chosen] = field(default_factory=dict)
    tables: Mapping[int, Assignment] = field(default_factory=dict)
    live: bool = True

    @cached_property
    def first(self) -> int:
        """The first fragment with nodes. One without operators has none: the caller sends its rows."""
        return 1 if len(self.fragments) > 1 and not self.fragments[0].operators else 0

    @property
    def whole(self) -> bool:
        """The source is there as a whole, and no key moves: only throughput counts, so that much is done at
        a time.
        """
        return not self.live and not self.tables

    @property
    def block_rows(self) -> int:
        """Rows of a block of the source, at most. One that goes to a single node is not larger for a source
        that is there as a whole: nodes get as much to do.
        """
        return WHOLE_BLOCK_ROWS if self.whole and self.route(self.first) is not None else BLOCK_ROWS

    @property
    def merged_rows(self) -> int:
        """Rows that a merge hands on together, about."""
        return WHOLE_MERGED_ROWS if self.whole else MERGED_ROWS

    @property
    def last_edge(self) -> int:
        """The edge to the caller."""
        return len(self.fragments)

    @cached_property
    def cap(self) -> int:
        """Bytes that one receiver may have of one sender."""
        if self.channel_bytes is not None:
            return self.channel_bytes
        channels = self.processes * (len(self.fragments) + 1)
        return max(LEAST_CHANNEL_BYTES, min(CHANNEL_BYTES, PROCESS_BYTES // channels))

    def senders(self, edge: int) -> int:
        """How many nodes send over an edge."""
        return 1 if edge == self.first else self.fragments[edge - 1].nodes(self.processes)

    def receivers(self, edge: int) -> int:
        """How many nodes receive from an edge."""
        return 1 if edge == self.last_edge else self.fragments[edge].nodes(self.processes)

    def route(self, edge: int) -> Route | MovingRoute | None:
        """What chooses the receiver of a row; None: there is one, or it is any."""
        if edge == self.last_edge or not self.fragments[edge].key:
            return None
        fragment, key = self.fragments[edge], self.fragments[edge].key or ()
        if edge in self.tables:
            from ordstream.fragments.moving_route import MovingRoute

            return MovingRoute(fragment.source, key, self.tables[edge])
        chosen = self.groupings.get(edge)
        grouping = None if chosen is None else chosen.grouping
        return Route(fragment.source, key, self.receivers(edge), grouping)

    def of_process(self, process: int) -> list[int]:
        """The fragments that have a node in a process."""
        numbers = range(self.first, len(self.fragments))
        return [k for k in numbers if process < self.fragments[k].nodes(self.processes)]

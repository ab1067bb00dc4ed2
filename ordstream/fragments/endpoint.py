"""One process's part of a run: which socket leads to which node, and what comes over it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ordstream.fragments.channels import Link, Outbox
from ordstream.fragments.live_node import DirectLink
from ordstream.fragments.merging import TagMerge
from ordstream.fragments.topology import Topology
from ordstream.fragments.wire import (
    ACK,
    CALLER,
    END_OF_ROWS,
    LOW,
    MARK,
    NOTE,
    NUMBER,
    ROWS,
    SCHEMA,
    Mesh,
    SocketLink,
    marks_of,
)

#: Part of a channel's credit that a receiver may keep to itself.
LATE_ACKS = 4


class Endpoint:
    """See the module.

    Parameters
    ----------
    topology : Topology
    mesh : Mesh
    process : int
        This one.
    run : int
        Number of the run: frames of others are not for it.

    Attributes
    ----------
    merges, outs : dict
        Edge -> what receives from it, and what sends over it, in this process.
    """

    def __init__(self, topology: Topology, mesh: Mesh, process: int, run: int) -> None:
        self.topology, self.process, self.run = topology, process, run
        self._mesh = mesh
        self.merges: dict[int, TagMerge] = {}
        self.outs: dict[int, Outbox] = {}
        self.heard: Callable[[int, bytes], None] | None = None  # what nodes say of the caller's rows
        self._schemas: dict[tuple[int, int], pa.Schema] = {}

    def links(self, edge: int) -> list[Link]:
        """From this process's node in front of an edge to all receivers."""
        return [self._link(edge, receiver) for receiver in range(self.topology.receivers(edge))]

    def _link(self, edge: int, receiver: int) -> Link:
        to = CALLER if edge == self.topology.last_edge else receiver
        if to == self.process:
            return DirectLink(lambda: self.merges[edge], self.process)
        return SocketLink(self._mesh, to, edge, self.run)

    def consumed(self, edge: int) -> Callable[[int, int], None]:
        """What this process's node behind an edge tells its senders (`TagMerge`): the caller at once, since
        it goes by who has nothing to do; others when it is much of their credit.
        """
        least = 0 if edge == self.topology.first else self.topology.cap // LATE_ACKS

        def hear(sender: int, size: int) -> None:
            of = CALLER if edge == self.topology.first else sender
            if of == self.process:
                self.outs[edge].acknowledged(self.process, size)
            else:
                self._mesh.ack(of, edge, self.run, size, least)

        return hear

    def handle(self, process: int, kind: int, edge: int, body: Any) -> None:
        """A frame of this run from another process."""
        other = max(process, 0)  # the caller sends and receives alone
        if kind == ROWS:
            batch = pa.ipc.read_record_batch(body, self._schemas[process, edge])
            self.merges[edge].rows(other, batch, body.size)
        elif kind == SCHEMA:
            self._schemas[process, edge] = pa.ipc.read_schema(body)
        elif kind == LOW:
            self.merges[edge].set_low(other, bytes(body))
        elif kind == MARK:
            for number, tag in marks_of(bytes(body)):
                self.merges[edge].mark(number, tag)
        elif kind == END_OF_ROWS:
            self.merges[edge].end(other, bytes(body))
        elif kind == NOTE and self.heard is not None:
            self.heard(process, bytes(body))
        elif kind == NOTE:
            self.merges[edge].notes.append(bytes(body))
        elif kind == ACK:
            self.outs[edge].acknowledged(other, NUMBER.unpack(bytes(body))[0])

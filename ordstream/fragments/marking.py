"""Snapshots of a run over several nodes: the caller puts markers into the order, hears what the nodes know
at each, and makes one snapshot of it.

A marker stands between two tuples of the source, so in front of a tag (`TagMerge.mark`). Each node takes its
state when it has taken every row in front of that tag and none behind it; no node waits for another. The
caller meets the marker behind the last output in front of it. When every node's state is there, and the
reader has these outputs, it is a snapshot like any other (`ordstream.node.snapshotting`): it says nothing of
nodes, and a run of another number of them, or in one process, goes on from it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ordstream.fragments.node_state import NodeState, Parsed
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import OrderTag
from ordstream.node.positions import Positions
from ordstream.node.settings import Settings
from ordstream.node.snapshotting import SnapshotFuture, Snapshotting, together
from ordstream.plan.plan import Plan

#: Markers that may be under way: the states of so many snapshots may lie in memory.
MOST_MARKERS = 2


@dataclass
class _Marker:
    """One that is under way."""

    number: int
    serial: int
    served: int  # requests that it answers
    missing: int  # nodes that did not tell their state
    parts: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    nanoseconds: int = 0
    routes: Mapping[str, bytes] = field(default_factory=dict)
    latest: int | None = None  # time of the clock
    # The commit point and the last output in front of it, once the caller has met it.
    through: tuple[OrderTag, OrderTag] | None = None


class Marking:
    """See the module. To `Snapshotting` it is what a core run is in one node.

    Thread safety: `request` from any thread, everything else from the reading thread.

    Parameters
    ----------
    plan : Plan
        The whole one.
    settings : Settings
    topology : Topology
    data : Arrow data
        The source; `data` is what is read in its place.

    Attributes
    ----------
    data : Any
    snapshots : Snapshotting
    emitted_through : int
        Serial of the marker that is being published.
    suspends : bool
        The stream does not end with its data.

    Raises
    ------
    PlanError, CheckpointError, SourceError
        As a stream in one node raises them when it is made.
    """

    def __init__(self, plan: Plan, settings: Settings, topology: Topology, data: Any) -> None:
        self.snapshots = Snapshotting(plan, settings)
        self.begin = self.snapshots.begin
        self.suspends = settings.end == "suspend"
        self.emitted_through = self.begin.serial
        self._topology = topology
        self._operators = {one.name: (k, one) for k, one in enumerate(plan.operators) if one.stateful}
        self.snapshots.bind(self._operators)
        self._schemas = {name: one.state_schema() for name, (_, one) in self._operators.items()}
        self.data: Any = data
        self._positions: Positions | None = None
        if settings.checkpoint is not None or hasattr(data, "seek"):
            self.data = self._positions = self.snapshots.positions(data)
        self.wake: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._requested = self._served = 0
        self._marked = self.begin.serial  # of the last marker
        self._under_way: deque[_Marker] = deque()
        self._publishing: _Marker | None = None

    # ---------------------------------------------------------------------------------------- beginning

    def states(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of state that the run goes on from, as the operators take them in."""
        for name, (rows, adapt) in self.snapshots.states.items():
            for batch in together(rows.batches()):
                yield name, adapt(batch)

    # ---------------------------------------------------------------------------------------- asking

    def request(self, reader: Callable[[], int | None], *, closed: bool = False) -> SnapshotFuture:
        """A snapshot where the source is now. Any thread."""
        future = self.snapshots.request(None if closed else self, reader)
        self.wake()
        return future

    def request_snapshot(self) -> int:
        """As a core run's."""
        with self._lock:
            self._requested += 1
            return self._requested

    # ---------------------------------------------------------------------------------------- the source

    @property
    def asked(self) -> bool:
        """A marker was asked for that is not in the order yet."""
        return self._requested > self._served

    @property
    def full(self) -> bool:
        """No more may be under way."""
        return len(self._under_way) >= MOST_MARKERS

    def due(self, serial: int) -> bool:
        """A marker belongs behind this tuple, if another one follows."""
        rows = self.snapshots.rows
        return bool(rows) and serial > self._marked and (serial - self.begin.serial) % rows == 0

    def rows_until_due(self, serial: int) -> int | None:
        """Tuples behind this one that come in front of the next marker; None: any number."""
        rows = self.snapshots.rows
        return rows - (serial - self.begin.serial) % rows if rows else None

    def put(self, number: int, serial: int, routes: Mapping[str, bytes], latest: int | None = None) -> None:
        """A marker of this number goes into the order behind this tuple; `routes`, and `latest` as
        `latest_time`: of `Snapshot`.
        """
        with self._lock:
            self._served = self._requested
        self._marked = serial
        nodes = sum(
            self._topology.fragments[k].nodes(self._topology.processes)
            for k in range(self._topology.first, self._topology.last_edge)
        )
        self._under_way.append(_Marker(number, serial, self._served, nodes, routes=routes, latest=latest))

    def _of(self, number: int) -> _Marker:
        return next(marker for marker in self._under_way if marker.number == number)

    # ---------------------------------------------------------------------------------------- the nodes

    def heard(self, said: Parsed) -> None:
        """A frame of a node's state."""
        marker = self._of(said.number)
        if said.name:
            batch = said.batch(self._schemas[said.name])
            marker.parts.setdefault(said.name, []).append(batch)
        else:
            marker.nanoseconds += said.nanoseconds
            marker.missing -= 1

    def told(self, state: NodeState) -> None:
        """A node's state, in the same process."""
        marker = self._of(state.number)
        for name, batches in state.states.items():
            marker.parts.setdefault(name, []).extend(batches)
        marker.nanoseconds += state.nanoseconds
        marker.missing -= 1

    # ---------------------------------------------------------------------------------------- the output

    def met(self, number: int, emitted_through: OrderTag) -> None:
        """The caller has everything in front of a marker; `emitted_through`: the last output's tag."""
        marker = self._of(number)
        same = emitted_through.serial == marker.serial
        marker.through = emitted_through if same else OrderTag(marker.serial), emitted_through

    def publish(self, given: int = 0) -> None:
        """Make the snapshots that are complete; the reader has what is in front of those that were `met`.
        `given`: tuples of the source that were given out; what is asked for later stands behind them.
        """
        if not self._under_way and self._positions is not None and self._positions.many:
            self._positions.forget(given)
        while self._under_way:
            marker = self._under_way[0]
            if marker.missing or marker.through is None:
                return
            self._publishing, self.emitted_through = marker, marker.serial
            try:
                self.snapshots.passed(self, marker.number, marker.through, self._position, {}, marker.routes)
            finally:
                self._publishing = None
                self._under_way.popleft()

    def exported(self, number: int, schemas: Any) -> list[Any]:
        """As a core run's."""
        marker = self._publishing
        assert marker is not None
        assert marker.number == number
        found: list[Any] = [
            (number, self._operators[name][0], batches, None, 0) for name, batches in marker.parts.items()
        ]
        return [(number, -1, [], (marker.served, marker.latest), 0), *found]

    def let_go(self) -> None:
        """Of the source, behind the end."""
        self.data = self._positions = None

    def _position(self, serial: int) -> Any:
        if self._positions is None:
            return None
        found = self._positions.at(serial)
        self._positions.forget(serial)
        return found

"""State on its way between a node and the caller: frames of Arrow rows, and which node a row belongs to."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ordstream.balance.grouping import Instances
from ordstream.balance.keys import Words
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.graph_cut import key_places
from ordstream.fragments.moving_route import MovingRoute
from ordstream.fragments.topology import Topology
from ordstream.ground.numbers import mask

#: Rows of state in one frame.
FRAME_ROWS = 1 << 16
# Number of the marker (0: none), nanoseconds that its copy took, bytes of the operator's name; the name and
# the rows as one Arrow IPC message follow. Without a name: there is no more of this marker.
_HEAD = struct.Struct("<QQI")

States = Mapping[str, Sequence[pa.RecordBatch]]
"""Operator name -> the rows of its state."""


@dataclass(frozen=True, eq=False)
class NodeState:
    """What one node knows at a marker.

    Attributes
    ----------
    number : int
        The marker's.
    fragment, node : int
    states : mapping of str to sequence of pyarrow.RecordBatch
        Of each of its operators that keeps a state.
    nanoseconds : int
        That the copy took.
    """

    number: int
    fragment: int
    node: int
    states: States
    nanoseconds: int = 0

    def frames(self) -> Iterator[list[Any]]:
        """Bodies of frames, in parts."""
        for name, batches in self.states.items():
            for batch in batches:
                for start in range(0, batch.num_rows, FRAME_ROWS):
                    yield frame(self.number, name, batch.slice(start, FRAME_ROWS))
        yield [_HEAD.pack(self.number, self.nanoseconds, 0)]


def frame(number: int, name: str, batch: pa.RecordBatch) -> list[Any]:
    """Rows of one operator's state as the parts of a frame."""
    called = name.encode()
    return [_HEAD.pack(number, 0, len(called)) + called, batch.serialize()]


@dataclass(frozen=True)
class Parsed:
    """A frame that came. `name`: "" at the end of a node's state."""

    number: int
    nanoseconds: int
    name: str
    rows: Any

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """The rows, of an operator with this `state_schema`."""
        return pa.ipc.read_record_batch(self.rows, schema)


def parsed(body: Any) -> Parsed:
    """What a frame says."""
    view = memoryview(body)
    number, took, called = _HEAD.unpack(view[: _HEAD.size])
    at = _HEAD.size + called
    return Parsed(number, took, bytes(view[_HEAD.size : at]).decode(), pa.py_buffer(view[at:]))


def key_columns(fragment: Fragment, name: str) -> tuple[int, ...]:
    """Columns of an operator's state that hold the key by which the fragment's rows are spread: rows of a
    key that the operator does not know all of are together, so its own key has them.
    """
    operator = next(one for one in fragment.operators if one.name == name)
    return tuple(
        next(column for column, index in enumerate(operator.key) if index in found)
        for found in key_places(fragment.plan, fragment.key or (), name)
    )


class Watch(Protocol):
    """Hears of rows of state that have their nodes by a route table."""

    def restored(self, fragment: int, words: Words, nodes: Instances, rows: pa.RecordBatch) -> None:
        """Rows that a run goes on from, the words of their keys, and the node of each."""


def placed(
    topology: Topology, states: Iterable[tuple[str, pa.RecordBatch]], watch: Watch | None = None
) -> Iterator[tuple[int, int, str, pa.RecordBatch]]:
    """Stored rows of state with the node that holds their keys: (fragment, node, operator, rows)."""
    fragment_of = {
        operator.name: k for k, one in enumerate(topology.fragments) for operator in one.operators
    }
    for name, rows in states:
        k = fragment_of[name]
        route = topology.route(k)
        if route is None or not rows.num_rows:
            yield k, 0, name, rows
            continue
        mine = route.of(rows.schema, key_columns(topology.fragments[k], name))
        if isinstance(mine, MovingRoute):
            words = mine.words(rows)
            nodes = mine.table.route_words(words)
            if watch is not None:
                watch.restored(k, words, nodes, rows)
        else:
            nodes = mine(rows)
        for node in np.unique(nodes).tolist():
            yield k, node, name, rows.filter(mask(nodes == node))

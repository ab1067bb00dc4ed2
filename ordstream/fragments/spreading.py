"""How the caller spreads the rows of the stateless operators in front over their nodes
(`ordstream.fragments.grouping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.dkg import DKG
from ordstream.balance.memory import KeyMemory
from ordstream.balance.posg import POSG
from ordstream.errors import PlanError, shown
from ordstream.fragments.moving_route import MovingRoute, Step
from ordstream.fragments.proactive import Proactive, keys_of, parameters_for
from ordstream.fragments.topology import Topology


class Spreading(Protocol):
    """What chooses the nodes of a block.

    Attributes
    ----------
    block_rows, cap : int or None
        Rows of a block, and bytes that a node may have, where these matter.
    any_node : bool
        A row may go to any node, so that one without rows should not wait.
    whole_blocks : bool
        All rows of a block go to one node.
    """

    block_rows: int | None
    cap: int | None
    any_node: bool
    whole_blocks: bool

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> Any:
        """The node of each row, or of all.

        Parameters
        ----------
        first : int
            Serial of the first row.
        rows : pyarrow.RecordBatch
        free : sequence of int
            The nodes that have room, the one with the least to do first.
        """

    def notes(self) -> list[tuple[int, bytes]]:
        """Node and message: what is sent in front of the last block."""

    def hear(self, node: int, body: bytes) -> None:
        """A node's message."""

    def report(self) -> dict[str, Any]:
        """For `Report.grouping`."""


class _Plain:
    """A spreading that hears nothing."""

    block_rows: int | None = None
    cap: int | None = None
    any_node = False
    whole_blocks = False
    name = ""

    def notes(self) -> list[tuple[int, bytes]]:
        return []

    def hear(self, node: int, body: bytes) -> None:
        raise AssertionError

    def report(self) -> dict[str, Any]:
        return {"name": self.name} if self.name else {}


class LeastOutstanding(_Plain):
    """Each block to the node with the fewest bytes to do."""

    any_node = True
    whole_blocks = True

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> int:
        return free[0]


class BlocksInTurn(_Plain):
    """Block i to node i mod k."""

    any_node = True
    whole_blocks = True
    name = "blocks"

    def __init__(self, nodes: int) -> None:
        self._nodes, self._next = nodes, -1

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> int:
        self._next = (self._next + 1) % self._nodes
        return self._next


class RowsInTurn(_Plain):
    """The row with serial i to node (i - 1) mod k."""

    any_node = True
    name = "round_robin"

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> npt.NDArray[np.int32]:
        return (np.arange(first - 1, first - 1 + rows.num_rows) % self._nodes).astype(np.int32)


class Routed(_Plain):
    """Each row where a function of rows says."""

    def __init__(
        self,
        route: Callable[[pa.RecordBatch], npt.NDArray[np.int32]],
        name: str = "",
        any_node: bool = False,
    ) -> None:
        self._route, self.name, self.any_node = route, name, any_node

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> npt.NDArray[np.int32]:
        return self._route(rows)


class ByTable(Routed):
    """Each row where the route table in force says."""

    def __init__(self, route: MovingRoute) -> None:
        super().__init__(route)
        self._moving = route

    def switch(self, step: Step) -> None:
        """What comes from now on goes by the table behind a step."""
        self._moving.switch(b"", step)


class LearntMap(_Plain):
    """DKG while rows come: a map that changes in front of the rows with serial 1 + i·m, and nowhere else.

    It is made of the keys of all rows in front, of which older ones count less
    (`ordstream.balance.memory.KeyMemory`). So a row's node is a pure function of the keys of the rows up to
    it. Without evidence keys go by buckets.

    Parameters
    ----------
    parameters : DKG
        `m`: rows from one map to the next; 0: there is no next one.
    nodes : int
    key : tuple of int
    """

    def __init__(self, parameters: DKG, nodes: int, key: tuple[int, ...]) -> None:
        self._parameters, self._key = parameters, key
        self._memory = KeyMemory(parameters)
        self._learner = parameters.learner(nodes)
        self._map = self._learner.build()
        self._nodes = nodes
        self._maps = self._moved = 0

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> npt.NDArray[np.int32]:
        if not self._parameters.m:  # it learns from none
            return self._map.route(keys_of(rows, self._key))
        found, start = [], 0
        while start < rows.num_rows:
            if self._learner.full:
                self._new_map()
            count = min(rows.num_rows - start, self._parameters.m - self._learner.learnt)
            keys = keys_of(rows.slice(start, count), self._key)
            self._learner.learn(keys)
            found.append(self._map.route(keys))
            start += count
        return np.concatenate(found)

    def _new_map(self) -> None:
        made = self._memory.take(self._learner)
        if made is not None:
            self._map = made
        self._maps += 1
        self._learner = self._parameters.learner(self._nodes)

    def report(self) -> dict[str, Any]:
        return {"name": "dkg", "maps": self._maps, "heavy": len(self._map.heavy)}


def checked_nodes(found: Any, rows: int, nodes: int, name: str) -> npt.NDArray[np.int32]:
    """What a grouping's `route(keys)` gave, as node numbers.

    Parameters
    ----------
    found : object
        Should be integers, one per row.
    rows, nodes : int
        How many there are.
    name : str
        Of the grouping and its operator, for the error.

    Raises
    ------
    PlanError
        It is anything else than an integer from 0 to nodes - 1 for each row.
    """
    try:
        given = np.asarray(found)
    except ValueError:  # rows of different lengths
        given = np.empty(())
    if given.shape == (rows,) and (given.dtype.kind in "iu" or not rows):
        if not rows or (given.min() >= 0 and given.max() < nodes):
            return given.astype(np.int32, copy=False)
        odd = int(given.min() if given.min() < 0 else given.max())
        what = f"node {odd}"
    elif given.shape == (rows,):
        what = f"{shown(given[0], 80)} ({given.dtype})"
    else:
        what = f"{shown(found, 80)} for {rows:,} keys"
    raise PlanError(
        f"grouping: {name} gave {what}; route(keys) must give an integer array as long as the keys, each "
        f"from 0 to {nodes - 1}"
    )


def spreading_of(topology: Topology) -> Spreading:
    """What sends the source's rows to the first nodes."""
    first, nodes = topology.first, topology.receivers(topology.first)
    chosen = topology.groupings.get(first)
    route = topology.route(first)
    if isinstance(route, MovingRoute):
        return ByTable(route)
    if route is not None:
        return Routed(route)
    if chosen is None:
        return LeastOutstanding()
    given, key = chosen.grouping, chosen.key
    if given == "blocks":
        return BlocksInTurn(nodes)
    if given == "round_robin":
        return RowsInTurn(nodes)
    if isinstance(given, POSG):
        return Proactive(parameters_for(given, nodes), key)
    if isinstance(given, DKG):
        return LearntMap(given, nodes, key)
    name = type(given).__name__
    of = ", ".join(repr(operator.name) for operator in topology.fragments[first].operators[:1])

    def checked(rows: pa.RecordBatch) -> npt.NDArray[np.int32]:
        return checked_nodes(given.route(keys_of(rows, key)), rows.num_rows, nodes, f"{name} of {of}")

    return Routed(checked, name, any_node=True)

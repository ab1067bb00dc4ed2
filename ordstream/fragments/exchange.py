"""Rows on their way from the nodes of one fragment to those of the next: where each goes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.ground.ordertags import ranges_of
from ordstream.node.source import conform

if TYPE_CHECKING:
    from ordstream.balance.grouping import Grouping

NODE = "__ordstream_node"

# The core spreads rows over buckets, and over its maps' slots, by the hash's bits as they are: nodes use
# others.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Route:
    """Where the rows of a schema go: a pure function of their key, and where keys are split also of the rows
    before.

    Attributes
    ----------
    schema : pyarrow.Schema
    key : tuple of int
        Key columns; (): all rows to node 0.
    nodes : int
    grouping : Grouping, optional
        What chooses the node in place of the hash (`ordstream.balance.grouping`). One that counts what it
        sent must be new.
    """

    schema: pa.Schema
    key: tuple[int, ...]
    nodes: int
    grouping: Grouping | None = None

    def of(self, schema: pa.Schema, key: tuple[int, ...]) -> Route:
        """The same for other rows that have the key."""
        return replace(self, schema=schema, key=key)

    def keys(self, batch: pa.RecordBatch) -> Any:
        """The keys of the rows as groupings take them."""
        columns = tuple(batch.column(index) for index in self.key)
        return columns[0] if len(columns) == 1 else columns

    @cached_property
    def _columns(self) -> tuple[pa.Schema, Any, Any]:
        """The key's columns: schema, layout and formats of the core, which it takes longer to make than to
        hash a few rows.
        """
        from ordstream._core.ground import arrow, chunk
        from ordstream._core.ground.imported_batch import BatchFormats

        columns = pa.schema([self.schema.field(index) for index in self.key])
        core = arrow.core_schema(columns)
        return core, chunk.layout_of(columns), BatchFormats(core)

    def __getstate__(self) -> dict[str, Any]:
        return {one.name: getattr(self, one.name) for one in fields(self)}  # not what is made of them

    def __call__(self, batch: pa.RecordBatch, tags: pa.Array | None = None) -> npt.NDArray[np.int32]:
        """The node of each row, from 0; whatever its tag is."""
        from ordstream._core.state import routing

        if not self.key or self.nodes == 1:
            return np.zeros(batch.num_rows, dtype=np.int32)
        if self.grouping is not None:
            return self.grouping.route(self.keys(batch))
        core, layout, formats = self._columns
        rows = conform(batch.select(list(self.key)), core)
        hashes = routing.key_hashes(rows, range(len(self.key)), layout, formats)
        return ((hashes * _SPREAD >> np.uint64(32)) % np.uint64(self.nodes)).astype(np.int32)


@dataclass(frozen=True)
class RangeRoute:
    """Where the rows of a pipeline's output go, so that those of a partition come before those of the next
    one: by the range of the tuple that caused a row, which its tag has.

    What the end of the stream causes is in no range. Its rows stay together as they are in their nodes, in
    partitions behind the ranges, until somebody sorts them.

    Attributes
    ----------
    ranges : int
    at_end : int
        First partition of what the end of the stream causes.
    spread : int
        There are so many of them.
    own : int
        Number of the node.
    """

    ranges: int
    at_end: int
    spread: int = 1
    own: int = 0

    def __call__(self, batch: pa.RecordBatch, tags: pa.Array) -> npt.NDArray[np.int32]:
        """The partition of each row, from 0."""
        ranges, at_end = ranges_of(tags)
        found = np.minimum(ranges, self.ranges - 1).astype(np.int32)
        found[at_end] = self.at_end + self.own % self.spread
        return found

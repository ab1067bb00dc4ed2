"""A map of a table's keys, where their hash would give one process much more than its share.

What a table has is known before its first row goes. So of a large one some rows are looked at, in even
distances, and where DKG's map of their keys (heavy hitters and buckets, by their rows) spreads them better
than the hash does, rows go by it. The output is the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.balance.dkg import DKG
from ordstream.errors import SourceError
from ordstream.fragments.exchange import Route
from ordstream.fragments.grouping import Chosen
from ordstream.fragments.topology import Topology
from ordstream.node.source import conform

#: Rows of a table from which on it is worth a look; slices that are looked at, and rows of each.
LEAST_ROWS, SLICES, SLICE_ROWS = 200_000, 64, 4_096
#: Of the fullest process' rows: what a map must bring. In Spark more (`ordstream.spark.grouping`), where all
#: rows may pass Python once more for it.
WORTH = 1.05
#: Share of the rows from which on a key has a place of its own, and buckets per process for the others.
THETA, BUCKETS = 0.005, 16


def with_learnt(topology: Topology, data: Any) -> Topology:
    """The topology with a map for the first key, where one is worth it; else as it is.

    Parameters
    ----------
    topology : Topology
        Without a marking and without keys that move. One that has groupings is left alone, as is one where
        operators run in front of the first key.
    data : object
        The source; only a table is looked at.
    """
    fragments, processes = topology.fragments, topology.processes
    if topology.groupings or not isinstance(data, pa.Table) or data.num_rows < LEAST_ROWS:
        return topology
    if topology.first != 1 or not fragments[1].key or fragments[1].nodes(processes) < 2:
        return topology
    fragment = fragments[1]
    names = [fragment.source.names[index] for index in fragment.key or ()]
    try:
        rows = looked_at(data, pa.schema([fragment.source.field(name) for name in names]))
    except (SourceError, KeyError, pa.ArrowException):  # the run says it, with the row
        return topology
    by_hash = Route(rows.schema, tuple(range(len(names))), processes)
    made = DKG(theta=THETA, mu=BUCKETS, m=rows.num_rows).fit(by_hash.keys(rows), processes)
    by_map = replace(by_hash, grouping=made)
    fullest = [np.bincount(route(rows), minlength=processes).max() for route in (by_hash, by_map)]
    if fullest[0] <= WORTH * fullest[1]:
        return topology
    return replace(topology, groupings={1: Chosen(made, fragment.key or ())})


def looked_at(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a table in even distances, with these columns only."""
    least = min(SLICE_ROWS, table.num_rows)
    starts = np.linspace(0, table.num_rows - least, SLICES).astype(np.int64).tolist()
    parts = [table.select(schema.names).slice(start, least) for start in starts]
    rows = [conform(batch, schema) for part in parts for batch in part.to_batches()]
    (found,) = pa.Table.from_batches(rows).combine_chunks().to_batches()
    return found

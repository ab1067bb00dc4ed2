"""The five queries cut over three nodes, every profile and emit mode: the output and tags of one node,
on real rows.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.same_process import run_here
from ordstream.tpcxbb import DataFolder
from ordstream.tpcxbb.queries import QUERIES


@pytest.mark.parametrize("emit", ["updates", "final"])
@pytest.mark.parametrize("profile", ["batch", "paper"])
@pytest.mark.parametrize("name", list(QUERIES))
@pytest.mark.thin(10)
def test_a_query_over_nodes_is_the_query(shared_data, name, profile, emit):
    data, query = DataFolder(shared_data), QUERIES[name]
    rows = data.clicks() if query.source == "web_clickstreams" else data.sales()
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows))
    pipeline = query.build(data.side_tables(), **query.profiles[profile])
    expected = pipeline.run(table, workers=0, tags=True, emit=emit).table
    assert len(fragments_of(pipeline.plan)) > 1
    assert run_here(pipeline, table, 3, {"tags": True, "emit": emit}, channel_bytes=50_000).table.equals(
        expected
    )

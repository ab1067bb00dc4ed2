"""Nodes that take turns in one process: what can make them wait for each other."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments.same_process import run_here

TABLE = pa.table({"v": list(range(400))})


def checked(row):
    if row.v == 3:
        raise ValueError("three")
    return (row.v,)


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("block_rows", [5, 20, 100])
@pytest.mark.parametrize("channel_bytes", [1, 200, 5_000])
def test_nodes_behind_a_failure_come_to_their_end(channel_bytes, block_rows, seed):
    """What they still give is nobody's any more, but has to be taken off their channels."""
    pipeline = od.Pipeline(TABLE.schema).map(checked, schema=TABLE.schema)
    with pytest.raises(od.OperatorError, match="serial 4"):
        run_here(
            pipeline, TABLE, 3, {"workers": 0}, block_rows=block_rows, channel_bytes=channel_bytes, seed=seed
        )

"""Batches have as many rows at both ends: those of a source, and those that the core gives."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.batches import BATCH_ROWS
from ordstream.node.source import batches

pytest.importorskip("ordstream._core")

MANY = pa.table({"x": pa.array(range(3 * BATCH_ROWS + 17))})


def test_a_table_comes_in_whole_batches():
    found = [batch.num_rows for batch in batches(MANY, MANY.schema)]
    assert found == [BATCH_ROWS] * 3 + [17]


def test_what_passes_is_handed_on_in_one_piece():
    with od.Pipeline(MANY.schema).stream(MANY, partial=False, workers=0) as stream:
        assert [batch.num_rows for batch in stream] == [BATCH_ROWS] * 3 + [17]


@pytest.mark.parametrize("chunk_rows", [1_000, 4_096])
def test_an_output_batch_of_the_core_is_full_with_as_many_rows(chunk_rows):
    """An eighth more at most, so that no chunk is cut."""
    pipeline = od.Pipeline(MANY.schema).with_columns(y=od.col("x") + 1)
    with pipeline.stream(MANY, partial=False, workers=0, chunk_rows=chunk_rows) as stream:
        *full, _ = [batch.num_rows for batch in stream]
    assert len(full) >= 2
    assert all(BATCH_ROWS <= rows < BATCH_ROWS + chunk_rows for rows in full), full

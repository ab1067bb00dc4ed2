"""How many rows are read at a time: as many as are some bytes, of the columns that are read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.ground import long_rows


@pytest.fixture
def wide(tmp_path):
    """100 rows of 1,000 bytes in two columns, beside a short one."""
    text = [f"{i:03}".ljust(1000, "x")[::-1] for i in range(100)]
    struct = [{"a": one} for one in text]
    path = tmp_path / "wide.parquet"
    table = pa.table({"n": range(100), "s.t": text, "st": struct})
    pq.write_table(table, path, use_dictionary=False, compression="none")
    return path, table


@pytest.mark.parametrize(
    ("columns", "fewest", "most"),
    [(None, 9, 11), (["n"], 100, 100), (["s.t"], 18, 22), (["n", "st"], 18, 22), ([], 100, 100)],
)
def test_rows_are_as_many_as_their_columns_allow(wide, monkeypatch, columns, fewest, most):
    monkeypatch.setattr(long_rows, "BYTES", 20_000)
    with pq.ParquetFile(wide[0]) as file:
        assert fewest <= long_rows.of_groups(100, file.metadata, range(1), columns) <= most


def test_a_row_longer_than_all_comes_alone(wide, monkeypatch):
    monkeypatch.setattr(long_rows, "BYTES", 10)
    with pq.ParquetFile(wide[0]) as file:
        assert long_rows.of_groups(100, file.metadata, range(1)) == 1


@pytest.mark.parametrize("columns", [None, ["n"], ["st", "n"]])
def test_parquet_source_reads_long_rows_in_small_batches(wide, monkeypatch, columns):
    monkeypatch.setattr(long_rows, "BYTES", 20_000)
    path, table = wide
    table = table if columns is None else table.select(columns)
    seen = []
    pipeline = od.Pipeline(table.schema).map_batches(
        lambda batch: seen.append(len(batch["n"])) or batch, schema=table.schema
    )
    source = od.ParquetSource(path, **({} if columns is None else {"columns": columns}))
    assert pipeline.run(source, workers=0).table.equals(table)
    assert (max(seen) > 22) == (columns == ["n"])

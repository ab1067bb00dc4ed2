"""inspect: each tuple once."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od

DATA = pa.table({"x": range(5000)})


def test_inspect_shows_each_tuple_once_and_fails_where_its_function_does():
    seen: list[int] = []
    pipeline = od.Pipeline(DATA.schema).inspect(lambda row: seen.append(row.x))
    assert pipeline.run(DATA, workers=2, chunk_rows=64).table.equals(DATA)
    assert sorted(seen) == list(range(5000))
    assert "inspect" in pipeline.explain()
    failing = od.Pipeline(DATA.schema).inspect(lambda row: 1 // (row.x - 7), name="look")
    with pytest.raises(od.OperatorError, match="'look' failed at serial 8"):
        failing.run(DATA)

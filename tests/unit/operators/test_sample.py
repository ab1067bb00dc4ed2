"""sample: the same tuples in every run."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

DATA = pa.table({"x": range(5000)})


def test_the_same_tuples_in_every_run():
    pipeline = od.Pipeline(DATA.schema).filter(od.col("x") % 3 != 0).sample(0.3, seed=11)
    expected = run_serial(pipeline, DATA).table
    assert abs(len(expected) / 3333 - 0.3) < 0.05
    for workers, rows in ((0, 1), (2, 7), (2, 4096)):
        assert pipeline.run(DATA, workers=workers, chunk_rows=rows).table.equals(expected)
    other = od.Pipeline(DATA.schema).filter(od.col("x") % 3 != 0).sample(0.3, seed=12)
    assert not other.run(DATA).table.equals(expected)


def test_all_and_none():
    assert od.Pipeline(DATA.schema).sample(1).run(DATA).table.equals(DATA)
    assert len(od.Pipeline(DATA.schema).sample(0).run(DATA).table) == 0


def test_tuples_of_one_serial_share_their_fate():
    data = pa.table({"l": [[1, 2, 3]] * 400})
    rows = od.Pipeline(data.schema).flat_map(od.explode("l", "item")).sample(0.5).run(data).table
    assert 0 < len(rows) < 1200
    assert rows["item"].to_pylist() == [1, 2, 3] * (len(rows) // 3)


@pytest.mark.parametrize(("fraction", "seed"), [(-0.1, 0), (1.5, 0), ("a", 0), (0.5, -1), (0.5, 2**64)])
def test_mistakes(fraction, seed):
    with pytest.raises(od.PlanError, match="must be"):
        od.Pipeline(DATA.schema).sample(fraction, seed)


def test_several_nodes_refuse_it():
    """They count serials each for itself."""
    keyed = od.Pipeline(pa.schema({"x": pa.int64(), "k": pa.int64()})).key_by("k")
    for pipeline in (keyed.count().sample(0.5), od.Pipeline(DATA.schema).sample(0.5)):
        with pytest.raises(od.PlanError, match="serials"):
            pipeline.explain(2)
        with pytest.raises(od.PlanError, match="serials"):
            pipeline.run(DATA, processes=2)

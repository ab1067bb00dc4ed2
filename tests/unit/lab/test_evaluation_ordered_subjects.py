"""Subjects of the ordered paper's experiments: checked before they are measured; repeated streams."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ordstream.errors import OrdstreamError
from ordstream.lab.evaluation import ordered_runs, parametric
from ordstream.lab.evaluation.experiment import Options
from ordstream.lab.evaluation.ordered_runs import Mismatch, Subject, compare, measure, one_run
from ordstream.lab.evaluation.ordered_subjects import Data, generated, later, operators, query
from ordstream.lab.evaluation.parametric import Parametric
from ordstream.reference.run_serial import run_serial

# --- checked before measured ----------------------------------------------------------------------

TINY = Options(1, runs=2, seconds=0.01, workers=(1, 2), clicks=3_000)


def small() -> Subject:
    return operators(
        "small",
        parametric.uniform_keys(500, 7),
        Parametric(0.0),
        Parametric(0.0, state_bytes=8),
        check_rows=60,
    )


def test_every_contestant_is_checked_first() -> None:
    subject = small()
    wanted = subject.serial
    found = measure(subject, {"a": {"workers": 1}, "b": {"workers": 2, "chunk_rows": 1}}, TINY, 0.01)
    assert [len(one.runs) for one in found.values()] == [2, 2]
    assert found["a"].tuples == found["b"].tuples >= 60
    assert found["a"].throughput > 0
    assert found["a"].latency() > 0
    assert sum(found["b"].shares.values()) == pytest.approx(1.0)
    wrong = run_serial(subject.pipeline, subject.source(61))
    wanted.tags[:], wanted._storage[:] = wrong.tags, wrong._storage
    with pytest.raises(Mismatch, match="60 rows, the sequential run gives 61"):
        measure(subject, {"a": {"workers": 1}}, TINY, 0.01)


def test_a_wrong_value_and_a_wrong_tag_are_found() -> None:
    subject = small()
    got = ordered_runs.node.run(subject.pipeline, subject.source(60), tags=True).table
    compare("x", got, subject.serial)
    for name in ("v0", "_index"):
        values = got[name].to_numpy().copy()
        values[41] += 1
        wrong = got.set_column(got.schema.get_field_index(name), got.schema.field(name), pa.array(values))
        with pytest.raises(Mismatch, match="differ from row 41 on"):
            compare("x", wrong.cast(got.schema), subject.serial)


def test_a_failing_pipeline_is_not_measured() -> None:
    batch = parametric.tuples(parametric.uniform_keys(50, 3), 8)
    bad = batch.set_column(1, "v0", pa.array(np.full(50, 0.5))).cast(batch.schema)
    given = operators("bad", parametric.uniform_keys(50, 3), Parametric(0.0, tuple_bytes=8))
    with pytest.raises(OrdstreamError, match="no whole number"):
        measure(Subject("bad", given.pipeline, lambda rows: [bad]), {"a": {"workers": 1}}, TINY, 0.01)


def test_markers_are_at_equal_tuple_intervals() -> None:
    subject = small()
    run = one_run(subject.pipeline, subject.source(4_000), {"workers": 2, "chunk_rows": 1})
    steps = np.diff(run.markers[:, 0])
    assert set(steps) == {4}
    assert run.report.latency["processing"].markers == pytest.approx(0.6 * len(run.markers), abs=2)
    assert (np.diff(run.markers[:, 3]) >= 0).all()


# --- subjects -------------------------------------------------------------------------------------


def test_a_repeated_stream_goes_on_in_time() -> None:
    data = generated(3_000, 1)
    for table in data.streams:
        rows = data.streams[table].num_rows
        twice = pa.Table.from_batches(data.batches(table, 2 * rows + 5))
        assert twice.num_rows == 2 * rows + 5
        assert (np.diff(twice["ts"].to_numpy()) >= 0).all()
        assert twice.slice(0, rows).equals(data.streams[table])
        if "ticket" in twice.schema.names:
            assert not set(twice["ticket"].slice(0, rows).to_pylist()) & set(
                twice["ticket"].slice(rows, rows).to_pylist()
            )
    assert isinstance(data, Data)
    whole = data.streams["web_clickstreams"]
    assert later(whole, whole, 0) is whole


@pytest.mark.parametrize("name", ["q1", "q2", "q3", "q4", "q15"])
def test_the_queries_have_output_to_compare(name: str) -> None:
    subject = query(name, 20_000, 1)
    assert len(subject.serial.tags) > 0
    subject.check({"workers": 2, "chunk_rows": 1})

"""The report: percentiles, shapes, JSON, text."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.ordertags import OrderTag
from ordstream.node import node
from ordstream.node.histogram import FEW
from ordstream.node.report import Latency, Skipped, first_of, make_report, percentiles


def operator(name, **figures):
    base = {
        "name": name, "kind": "SL", "tuples_in": 0, "tuples_out": 0, "worker_ns": 0.0, "chunks": 0,
        "slices": 0, "reorder_height": 0, "skipped": 0, "first_skipped": None, "buckets": None,
        "max_waited": 0, "sampled_rows": 0, "sampled_ns": 0, "sampled_max_ns": 0,
    }  # fmt: skip
    return base | figures


def report(operators=(), samples=(), seconds=2.0, within=None, **figures):
    statistics = {
        "operators": list(operators), "tuples": 100, "rows_out": 50, "chunk_rows": 10, "decisions": 3,
        "aged": 1, "throttled": 0, "peak_bytes": 7, "parks": 2, "chunks_issued": 10,
        "time_punctuations": 4, "snapshot_markers": 5, "elastic": None,
    }  # fmt: skip
    settings = {"scheduler": "ct", "partitioning": "hybrid", "reorder": "lock", "workers": 2}
    return make_report(
        statistics | figures,
        samples,
        seconds=seconds,
        emitted_through=OrderTag(99, 2),
        leaked_chunks=0,
        settings=settings,
        within=within,
    )


def test_percentiles_of_nothing():
    assert percentiles([], None) == Latency(None, None, None, None, 0)
    assert percentiles([], (20, 80)) == Latency(None, None, None, None, 0)


def test_percentiles_are_microseconds():
    found = percentiles([k * 1000 for k in range(1, 101)], None)
    assert found.p50_us == pytest.approx(50.5)
    assert found.p95_us == pytest.approx(95.05)
    assert found.p99_us == pytest.approx(99.01)
    assert found.mean_us == pytest.approx(50.5)
    assert found.markers == 100


@pytest.mark.parametrize("n", [1, 2, 3, 20, 21, FEW, FEW + 1, 1000])
def test_percentiles_are_those_of_numpy(n):
    values = np.random.default_rng(n).integers(0, 10**10, n)
    found = percentiles(values, None)
    assert [found.p50_us, found.p95_us, found.p99_us] == pytest.approx(
        np.percentile(values, [50, 95, 99]) / 1e3, rel=1e-12
    )
    assert (found.mean_us, found.sum_ns) == (pytest.approx(values.mean() / 1e3), values.sum())


def test_percentiles_within_are_of_position_not_of_value():
    """The paper drops the first and the last fifth of the markers, whatever their latency."""
    values = [9_000_000] * 20 + [1_000] * 60 + [9_000_000] * 20
    found = percentiles(values, (20, 80))
    assert (found.p50_us, found.p99_us, found.markers) == (1.0, 1.0, 60)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_percentiles_within_keep_at_least_one(n):
    assert percentiles([5_000] * n, (20, 80)).markers >= 1


def test_throughput_between_markers_leaves_start_and_end_out():
    """Ten markers, 100 tuples apart: 1 s for the first and the last fifth of them, 1 ms apart in between."""
    times = [0, 10**9, *(10**9 + k * 10**6 for k in range(1, 7)), 2 * 10**9, 3 * 10**9]
    samples = [(100 * k, 0, 0, time) for k, time in enumerate(times, 1)]
    assert report(samples=samples, within=(20, 80)).marker_tuples_per_second == pytest.approx(100 / 1e-3)
    assert report(samples=samples).marker_tuples_per_second == pytest.approx(900 / 3)
    assert report(samples=samples[:1]).marker_tuples_per_second is None


def test_operators_are_shaped():
    two = [
        operator("a", tuples_in=10, tuples_out=5, worker_ns=3_000.0),
        operator(
            "b",
            kind="PS",
            tuples_in=5,
            worker_ns=1_000.0,
            buckets=4,
            bucket_tuples_max=4,
            bucket_tuples_mean=2.0,
            sampled_rows=2,
            sampled_ns=500,
            sampled_max_ns=400,
        ),
        operator("c"),
    ]
    a, b, c = report(two).operators
    assert (a.cost_ns, a.selectivity, a.worker_share) == (300.0, 0.5, 0.75)
    assert (b.selectivity, b.worker_share, b.buckets, b.bucket_skew) == (0.0, 0.25, 4, 2.0)
    assert (b.sampled_cost_ns, b.sampled_max_ns, a.sampled_cost_ns) == (250.0, 400, None)
    assert (c.cost_ns, c.selectivity, c.worker_share, c.bucket_skew) == (0.0, 0.0, 0.0, None)


def test_throughput():
    assert report().tuples_per_second == 50.0
    assert report(seconds=0.0).tuples_per_second == 0.0


def test_latency_takes_both_columns_of_the_samples():
    latency = report(samples=[(1, 1_000, 5_000, 10), (2, 3_000, 7_000, 20)]).latency
    assert (latency["processing"].p50_us, latency["end_to_end"].p50_us) == (2.0, 6.0)


def test_json_round_trip():
    found = report([operator("é", tuples_in=1)], samples=[(1, 1_000, 2_000, 10)])
    back = json.loads(found.to_json())
    assert back == json.loads(json.dumps(found.to_dict()))
    assert back["operators"][0]["name"] == "é"
    assert back["latency"]["end_to_end"]["p95_us"] == 2.0
    assert back["emitted_through"] == {"serial": 99, "index": 2}


def test_text_says_what_was_dropped():
    """A line for each operator that skipped something, and none for the others."""
    noted = (17, False, 5, "ValueError: x is 3")
    found = report(
        [
            operator("a", tuples_in=1000, skipped=361, first_skipped=noted),
            operator("b", kind="PS", tuples_in=639, skipped=2, first_skipped=(1000, True, 1, "too large")),
            operator("c", tuples_in=5),
        ]
    )
    assert str(found).splitlines()[-2:] == [
        "skipped 361 tuples in 'a' (on_error=\"skip\"), of 1,000 tuples; first at serial 17: ValueError: "
        "x is 3",
        "skipped 2 tuples and steps of punctuations in 'b' (on_error=\"skip\"), of 639 tuples; first at "
        "serial 1000: "
        "OverflowError: too large",
    ]
    assert "skip" not in str(report([operator("a")]))
    assert found.skipped == 363
    assert found.to_dict()["operators"][0]["first_skipped"] == {"serial": 17, "reason": "ValueError: x is 3"}


def test_the_first_of_several_nodes_is_that_of_the_smallest_serial():
    late, early, ending = Skipped(20, "late"), Skipped(3, "early"), Skipped(None, "at the end")
    assert first_of([late, None, early, ending]) == early
    assert first_of([None, ending]) == ending
    assert first_of([None]) is None


def test_text():
    text = str(report([operator("a", tuples_in=1234)], samples=[(1, 1_000, 5_000, 10)]))
    assert "100 tuples in 2.000 s: 50 tuples/s, 2 workers" in text
    assert "end-to-end latency: p50 5 us" in text
    assert "1,234" in text


@pytest.mark.parametrize("workers", [0, 2])
def test_a_report_is_made_once_when_it_is_asked_for(workers, monkeypatch):
    made = []
    monkeypatch.setattr(node, "make_report", lambda *core, **f: made.append(1) or make_report(*core, **f))
    table = pa.table({"x": [1, 2, 3]})
    pipeline = od.Pipeline(table.schema).filter(od.col("x") > 1)
    result = pipeline.run(table, workers=workers)
    with pipeline.stream(table, workers=workers) as stream:
        rows = sum(batch.num_rows for batch in stream)
    assert (result.table.num_rows, rows, stream.emitted_through) == (2, 2, OrderTag(3, 0))
    assert made == []
    assert result.report is result.report
    assert stream.report is stream.report
    assert (result.report.rows_out, stream.report.emitted_through) == (2, OrderTag(3, 0))
    assert made == [1, 1]


def test_a_result_takes_its_report_along():
    table = pa.table({"x": [1, 2, 3]})
    result = od.Pipeline(table.schema).filter(od.col("x") > 1).run(table)
    for made in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert made.report.to_dict() == result.report.to_dict()

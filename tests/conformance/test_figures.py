"""The promise, 8: what a run did is counted, the figures fit together, and JSON has the promised names."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import ordstream as od

N = 5_000
DATA = pa.table(
    {
        "i": pa.array(range(N), pa.int64()),
        "key": [i % 9 for i in range(N)],
        "l": [[1, 2, 3][: i % 4] for i in range(N)],
    }
)


def pipeline():
    return (
        od.Pipeline(DATA.schema)
        .filter(od.col("i") % 2 == 0, name="even")
        .key_by("key")
        .scan(n=od.count(), name="scan")
        .flat_map(od.explode("l", carry=["key"]), name="explode")
        .count(name="count")
    )


def test_tuples_add_up(how):
    report = pipeline().run(DATA, **how).report
    figures = {o.name: (o.kind, o.tuples_in, o.tuples_out) for o in report.operators}
    elements = sum(len(items) for items in DATA["l"].to_pylist()[::2])
    assert figures == {
        "even": ("SL", N, N // 2),
        "scan": ("PS", N // 2, N // 2),
        "explode": ("SL", N // 2, elements),
        "count": ("SF", elements, elements),
    }
    assert (report.tuples, report.rows_out) == (N, elements)
    for operator in report.operators:
        assert operator.selectivity == operator.tuples_out / operator.tuples_in
        assert operator.cost_ns > 0
        assert operator.chunks > 0
        assert operator.slices > 0
        assert (operator.buckets is None) == (operator.kind != "PS")
    assert sum(o.worker_share for o in report.operators) == pytest.approx(1.0)
    assert report.decisions > 0
    assert report.leaked_chunks == 0
    assert report.seconds > 0
    assert report.tuples_per_second == pytest.approx(N / report.seconds)


@pytest.mark.parametrize("chunk_rows", [1, 10])
def test_tuples_are_counted_whatever_the_chunk(how, chunk_rows):
    report = pipeline().run(DATA.slice(0, 300), chunk_rows=chunk_rows, **how).report
    assert report.operators[0].tuples_in == 300
    assert report.operators[0].chunks >= 300 // chunk_rows
    assert report.chunk_rows == chunk_rows


def test_json_has_the_promised_names(how):
    out = json.loads(pipeline().run(DATA, marker_every=50, **how).report.to_json())
    for latency in ("processing", "end_to_end"):
        figures = out["latency"][latency]
        assert 0 < figures["p50_us"] <= figures["p95_us"] <= figures["p99_us"]
        assert figures["markers"] > 0
    processing, end_to_end = out["latency"]["processing"], out["latency"]["end_to_end"]
    assert processing["p50_us"] <= end_to_end["p50_us"]
    names = {"name", "kind", "tuples_in", "tuples_out", "cost_ns", "selectivity", "worker_share"}
    for operator in out["operators"]:
        assert names <= set(operator)
    assert out["emitted_through"] == {"serial": N, "index": -1}
    assert {out[name] for name in ("workers", "scheduler", "partitioning", "reorder")} == set(how.values())


def test_report_without_rows(how):
    report = pipeline().run(DATA.slice(0, 0), **how).report
    assert report.tuples == report.rows_out == 0
    assert report.emitted_through == od.OrderTag(0, -1)
    assert [o.selectivity for o in report.operators] == [0.0] * 4
    assert report.latency["processing"].p50_us is None
    json.loads(report.to_json())
    assert "0 tuples" in str(report)


def test_marker_percentiles_keep_the_middle(workers):
    few = (
        pipeline()
        .run(DATA, workers=workers, chunk_rows=10, marker_every=10, marker_percentiles=(20, 80))
        .report
    )
    all_ = pipeline().run(DATA, workers=workers, chunk_rows=10, marker_every=10).report
    assert few.latency["processing"].markers == pytest.approx(
        0.6 * all_.latency["processing"].markers, abs=2
    )


def test_progress_reaches_the_end(how):
    told = []
    pipeline().run(DATA, progress=lambda issued, emitted: told.append((issued, emitted)), **how)
    assert told[-1] == (N, N)
    assert told == sorted(told)


def test_report_of_a_stream_comes_at_its_end(workers):
    with pipeline().stream(DATA, workers=workers) as out:
        next(out)
        if workers:
            with pytest.raises(RuntimeError, match="complete"):
                _ = out.report
        for _ in out:
            pass
        assert out.report.tuples == N
    assert out.progress() == (N, N, N)


def test_chunks_of_a_short_run_grow_at_once() -> None:
    """The first look at what rows cost came after sixteen slices: 13,000 small chunks."""
    rows = pa.table({"x": range(1_000_000), "y": range(1_000_000)})
    report = od.Pipeline(rows.schema).drop("y").run(rows, workers=1).report
    assert report.operators[0].chunks < 3_000

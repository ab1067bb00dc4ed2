"""The examples with windows, on a million rows, beside Polars."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from ordstream.testing import run_serial

N = 1_000_000
PATH = Path(__file__).parents[2] / "examples" / "windows.py"


@pytest.fixture(scope="module")
def examples():
    spec = importlib.util.spec_from_file_location("windows_example", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def clicks(examples):
    rng = np.random.default_rng(7)
    ts = np.arange(N) // 5  # five a second: ties
    columns = [ts, rng.zipf(1.3, N) % 20_000, rng.integers(0, 50, N), rng.normal(50, 20, N)]
    arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, examples.CLICKS, strict=True)]
    return pa.table(arrays, schema=examples.CLICKS)


def frames(pipeline, data, *by):
    """Our rows in order of these columns."""
    return pl.from_arrow(pipeline.run(data, workers=2).table).sort(by)


def first_rows_agree(pipeline, data):
    """The definition, on what it can do in a moment."""
    some = data.slice(0, 3_000)
    assert pipeline.run(some, workers=2).table == run_serial(pipeline, some).table


def test_counts_per_minute(examples, clicks):
    found = frames(examples.counts_per_minute(), clicks, "start", "page")
    wanted = pl.from_arrow(clicks).group_by(pl.col("ts").dt.truncate("1m").alias("start"), "page").agg(
        clicks=pl.len().cast(pl.Int64), slowest=pl.col("ms").max()
    )  # fmt: skip
    assert (
        found.drop("end").select("start", "page", "clicks", "slowest").equals(wanted.sort("start", "page"))
    )
    first_rows_agree(examples.counts_per_minute(), clicks)


def test_sliding_mean(examples, clicks):
    """Of rows with the same time Polars sees the later ones too; so one row in five is compared."""
    some = clicks.take(np.arange(0, N, 5))
    found = frames(examples.sliding_mean(), some, "page", "ts")
    frame = pl.from_arrow(some).sort("page", "ts")
    ms = pl.col("ms")
    wanted = frame.rolling("ts", period="5m", group_by="page").agg(mean=ms.mean(), spread=ms.std())
    assert np.allclose(found["mean"], wanted["mean"], rtol=1e-9)
    assert np.allclose(found["spread"].fill_null(-1), wanted["spread"].fill_null(-1), rtol=1e-6)
    first_rows_agree(examples.sliding_mean(), clicks)


def test_top_three_per_minute(examples, clicks):
    found = pl.from_arrow(examples.top_three_per_minute().run(clicks, workers=2).table)
    counts = pl.from_arrow(clicks).group_by(pl.col("ts").dt.truncate("1m").alias("start"), "page").len()
    best = counts.sort("start", "len", "page", descending=[False, True, False])
    wanted = best.group_by("start", maintain_order=True).head(3)
    assert found["start"].to_list() == wanted["start"].to_list()
    assert found["page"].to_list() == wanted["page"].to_list()
    first_rows_agree(examples.top_three_per_minute(), clicks)


def test_sessions(examples, clicks):
    found = frames(examples.sessions(), clicks, "user", "start")
    gap = pl.col("ts").diff().over("user") > pl.duration(minutes=30)
    numbered = pl.from_arrow(clicks).with_columns(visit=gap.fill_null(False).cum_sum().over("user"))
    wanted = numbered.group_by("user", "visit").agg(
        start=pl.col("ts").min(), clicks=pl.len().cast(pl.Int64), last=pl.col("page").last()
    )
    wanted = wanted.sort("user", "start")
    assert found.select("user", "start", "clicks", "last").equals(
        wanted.select("user", "start", "clicks", "last")
    )
    first_rows_agree(examples.sessions(), clicks)


def test_late_rows(examples, clicks):
    rng = np.random.default_rng(8)
    delay = np.where(rng.random(N) < 0.001, 60, rng.integers(0, 5, N))  # one in a thousand is far too late
    shuffled = clicks.take(np.argsort(np.arange(N) // 5 + delay, kind="stable"))
    result = examples.late_rows().run(shuffled, workers=2)
    late = next(one.skipped for one in result.report.operators if one.name == "in order")
    assert 500 < late < 2_000
    assert f"{late}" in str(result.report)
    starts = result.table["start"].to_pylist()
    assert starts == sorted(starts)
    assert sum(result.table["clicks"].to_pylist()) == N - late
    first_rows_agree(examples.late_rows(), shuffled)


def test_each_is_short(examples):
    lines = PATH.read_text().split("\n\n\ndef ")[1:]
    assert len(lines) == 5
    assert max(part.count("\n") for part in lines) < 25

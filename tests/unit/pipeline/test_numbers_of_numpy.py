"""Numbers and spans as NumPy and pandas have them, wherever Python's are taken."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.duration import nanoseconds
from ordstream.node.run_options import RunOptions
from ordstream.testing import run_serial

pd = pytest.importorskip("pandas")

TABLE = pa.table(
    {
        "k": [1, 1, 2] * 10,
        "n": list(range(30)),
        "ts": pa.array([7 * 10**6 * row for row in range(30)], pa.timestamp("us")),
        "text": ["one two three"] * 30,
    }
)
BASE = od.Pipeline(TABLE.schema)
FIVE = [np.int64(5), np.uint8(5), pd.Series([5]).max()]

NUMBERS = {
    "tumbling": lambda n: BASE.key_by("k").window(od.tumbling(n), time="n").aggregate(c=od.count()),
    "hopping": lambda n: (
        BASE.key_by("k").window(od.hopping(n * n, every=n), time="n").aggregate(c=od.count())
    ),
    "rolling": lambda n: BASE.key_by("k").window(od.rolling(n), time="n").aggregate(c=od.count()),
    "rows": lambda n: BASE.key_by("k").window(od.rows(n)).aggregate(c=od.count()),
    "sessionize": lambda n: BASE.key_by("k").sessionize(time="n", timeout=n),
    "reorder": lambda n: BASE.reorder("n", slack=n),
    "deduplicate": lambda n: BASE.deduplicate(["k"], within=n, time="n"),
    "head": lambda n: BASE.key_by("k").head(n),
    "tail": lambda n: BASE.key_by("k").tail(n),
    "top_k": lambda n: BASE.top_k(n, by="n"),
    "lag": lambda n: BASE.key_by("k").lag({"before": "n"}, n=n),
    "preceding": lambda n: BASE.key_by("k").preceding(n, "n"),
    "collect": lambda n: BASE.key_by("k").scan(last=od.collect("n", n)),
    "buckets": lambda n: BASE.key_by("k", buckets=n).count("c"),
    "sample": lambda n: BASE.sample(0.5, seed=n),
    "round": lambda n: BASE.select(x=(od.col("n") / 7).round(n)),
    "slice": lambda n: BASE.select(x=od.col("text").str.slice(n, n)),
    "pad": lambda n: BASE.select(x=od.col("text").str.pad_start(n + 20)),
    "split": lambda n: BASE.select(x=od.col("text").str.split(" ", n=n)),
    "retry": lambda n: BASE.map(lambda row: {"n": row.n}, schema={"n": int}, on_error=od.retry(n)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numpys_integers_are_integers(name):
    expected = run_serial(NUMBERS[name](5), TABLE).table
    for five in FIVE:
        pipeline = NUMBERS[name](five)
        assert pipeline.run(TABLE).table.equals(expected)
        assert pipeline.explain() == NUMBERS[name](5).explain()


SPANS = [
    np.timedelta64(5, "m"),
    np.timedelta64(300_000, "ms"),
    pd.Timedelta("5m"),
    datetime.timedelta(minutes=5),
    "5 m",
    "0.5m 4.5min",
]


@pytest.mark.parametrize("span", SPANS, ids=repr)
def test_a_span_may_be_of_numpy_or_pandas(span, tmp_path):
    def build(span):
        return BASE.reorder("ts", slack=span).key_by("k").window(od.tumbling(span), time="ts").aggregate(
            c=od.count()
        )  # fmt: skip

    expected = run_serial(build("5m"), TABLE).table
    found = build(span).run(TABLE, checkpoint=tmp_path, every=span)
    assert found.table.equals(expected)
    assert nanoseconds(span, "span") == 300 * 10**9


NO_SPANS = [np.timedelta64("NaT"), np.timedelta64(5, "M"), np.timedelta64(5), pd.NaT, 5.0, True, "5 months"]


@pytest.mark.parametrize("span", NO_SPANS, ids=repr)
def test_what_has_no_length_is_refused(span):
    with pytest.raises(od.PlanError, match="slack"):
        BASE.reorder("ts", slack=span)


COUNTED = ["workers", "max_workers", "buckets", "chunk_rows", "max_bytes", "max_state_bytes", "max_chunks"]
COUNTED += ["marker_every", "snapshot_every", "sample_every", "depth", "seed", "max_ready", "shed_partition"]
COUNTED += ["processes", "slice_us", "window_us", "capacity", "chunk_us", "every"]
WRONG = [-1, float("nan"), float("inf"), 10**40, True, "2", b"2", [1], {}, np.timedelta64(1, "s"), object()]


@pytest.mark.parametrize("name", COUNTED)
def test_an_option_that_is_no_number_is_told_by_its_name(name, tmp_path):
    """NumPy counts a `timedelta64` among its integers."""
    assert name in RunOptions.__annotations__ or name in ("depth", "processes")
    pipeline = BASE.key_by("k").count("c")
    more = {"every": {"checkpoint": tmp_path}, "max_workers": {"workers": "auto"}}.get(name, {})
    for value in WRONG:
        spared = name == "every" and isinstance(value, np.timedelta64)  # it is a time
        spared |= value == 10**40 and name.endswith(("_us", "capacity")) if isinstance(value, int) else False
        if not spared:
            with pytest.raises(od.PlanError, match=rf"^{name}\b"):
                pipeline.run(TABLE, **more, **{name: value})
    sixteen = {"max_bytes": 1 << 24, "max_state_bytes": 1 << 24}.get(name, 2)
    assert pipeline.run(TABLE, **more, **{name: np.int64(sixteen)}).table.num_rows == 30


@pytest.mark.parametrize("log", ["x", 1, {}])
def test_a_log_of_shedding_that_is_none_is_refused_where_nothing_sheds(log):
    with pytest.raises(od.PlanError, match="shed_log is the table"):
        BASE.key_by("k").count("c").run(TABLE, shed_log=log)


def test_numpys_floats_are_numbers():
    share, rate = np.float32(0.5), np.float32(2)
    assert BASE.sample(share).explain() == BASE.sample(0.5).explain()
    assert od.Frozen(rate, workers=np.int64(2), seed=np.int8(3)) == od.Frozen(2.0, 2.0, 3)
    shed = BASE.shed("1ms", "k", most_dropped=share, window=np.int64(64), seed=np.int64(1))
    assert shed.explain() == BASE.shed("1ms", "k", most_dropped=0.5, window=64, seed=1).explain()
    for wrong in (True, np.True_, np.float32("nan"), np.float32(-1), "1"):
        with pytest.raises(od.PlanError, match="sample_1: fraction must be a number"):
            BASE.sample(wrong)
        with pytest.raises(od.PlanError, match="Frozen: rate must be a positive number"):
            od.Frozen(wrong)

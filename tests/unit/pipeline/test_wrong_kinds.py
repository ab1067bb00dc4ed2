"""Arguments of another kind than is meant: told by name, where they are given."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

DATA = pa.table({"k": ["a"], "ts": pa.array([1], pa.timestamp("us")), "tags": [[1]]})
P = od.Pipeline(DATA.schema)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: run_serial(DATA, P), r"run_serial\(pipeline, data\); got Table"),
        (lambda: run_serial(None, DATA), "got NoneType"),
        (lambda: run_serial(pd.DataFrame({"plan": [1]}), DATA), "got DataFrame"),
        (lambda: od.ParquetSource(None), "a pattern or a list of paths is needed, in order, got None"),
        (lambda: od.IpcSource([None]), r"a list of paths is needed, in order, got \[None\]"),
        (lambda: od.Checkpoint(""), r"a checkpoint needs the name of a folder, got ''"),
        (lambda: od.Checkpoint("a\0b"), r"a checkpoint needs the name of a folder, got 'a\\x00b'"),
        (lambda: od.Checkpoint(None), r"a checkpoint is a folder, such as .*; got None"),
        (lambda: P.join_asof(P, "k", time="ts", suffix=None), "join_asof: suffix must be a non-empty str"),
        (
            lambda: P.join_interval(P, "k", within=("0s", "1s"), time="ts", suffix=""),
            "join_interval: suffix must be a non-empty str, got ''",
        ),
        (
            lambda: P.key_by("k").sessionize("ts", "1m", aggregate=[od.count()]),
            r"sessionize_1: aggregate is a mapping, such as aggregate=\{'n': od\.count\(\)\}",
        ),
        (
            lambda: P.key_by("k").count().explain(processes=2, worker=2),
            "explain has no option 'worker'; it has nodes, emit, processes, grouping, grouping_key and",
        ),
        (lambda: P.key_by("\udc80"), r"unknown column '\\udc80' in key_by"),
        (lambda: P.filter(od.col("k") == "\udc80"), r"filter_1: .*surrogates not allowed"),
        (lambda: P.select(y=od.lit("\udc80")), r"the constant '\\udc80' is no text: surrogates not allowed"),
        (lambda: od.explode("tags", name=3), "explode: a name must be a non-empty str, got 3"),
        (lambda: od.pairs("tags", left=None), "pairs: left: a name must be a non-empty str, got None"),
    ],
)
def test_it_is_told(make, text):
    with pytest.raises(od.OrdstreamError, match=text):
        make()


@pytest.mark.parametrize("method", ["run", "stream"])
@pytest.mark.parametrize("other", [4, {"a": 1}, "ts", None])
def test_what_stands_behind_the_data_is_told_to_have_a_name(method, other):
    pipeline = od.Pipeline({"a": int})
    with pytest.raises(od.PlanError, match=rf"^{method} takes the data, and options by their names"):
        getattr(pipeline, method)(pa.table({"a": [1]}), other)

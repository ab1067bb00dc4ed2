"""Arguments of another kind than is meant: told by name, where they are given."""

from __future__ import annotations

import numpy as np
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
            r"unknown option 'worker'\. Did you mean 'workers'\? Options are ",
        ),
        (lambda: P.key_by("\udc80"), r"unknown column '\\udc80' in key_by"),
        (lambda: P.filter(od.col("k") == "\udc80"), r"filter_1: .*surrogates not allowed"),
        (lambda: P.select(y=od.lit("\udc80")), r"the constant '\\udc80' is no text: surrogates not allowed"),
        (lambda: od.explode("tags", name=3), "explode: a name must be a non-empty str, got 3"),
        (lambda: od.pairs("tags", left=None), "pairs: left: a name must be a non-empty str, got None"),
        (lambda: P.key_by("k").top_k(2, "ts", window="ts"), "top_k_1: behind key_by top_k takes no window"),
        (lambda: P.key_by("k").top_k(2, "ts", key="k"), "top_k_1: behind key_by top_k takes no window"),
        (lambda: P.top_k(2, "ts", key={"k"}), r"top_k_1: column names are needed, got \{'k'\}"),
        (lambda: P.deduplicate({"k": 1}), r"deduplicate_1: column names are needed, got \{'k': 1\}"),
        (lambda: P.aggregate(od.count().alias(""), emit="final"), r"od.count\(...\).alias: a name must"),
        (lambda: P.cum_count(""), "cum_count_1: output: a name must be a non-empty str, got ''"),
        (lambda: P.filter(od.col("k") == "a", name="\udc80"), r"a name must be text, '\\udc80' has half"),
        (lambda: P.map(len, schema=P.schema, compiled="no"), "compiled must be True or False, got 'no'"),
        (lambda: P.aggregate(n=od.count(), emit=np.array([1, 2])), "emit must be 'updates' or 'final'"),
        (lambda: P.join_lookup(pa.array([1]), "k"), "an Arrow table is needed .* one column without a name"),
        (lambda: od.quantile("ts", np.timedelta64(1, "s")), "quantile: q must be a number from 0 to 1"),
        (lambda: od.col("ts").dt.convert_time_zone(""), "convert_time_zone: time_zone must be a zone"),
        (lambda: od.col("x").log(float("inf")), "log: base must be a positive finite number, and not 1"),
        (lambda: od.col("x").lookup(pa.nulls(2)), "lookup needs a table of integers or floats, got null"),
        (lambda: od.ranges(b"k"), "ranges: the bounds must be a sequence, such as .*, got b'k'"),
        (lambda: od.OrderTag(True), "an order tag is made of two ints, got True and -1"),
        (lambda: od.OrderTag(1, 2.0), "an order tag is made of two ints, got 1 and 2.0"),
        (lambda: od.OrderTag(1 << 64), "an order tag has a serial from 0 and an index from -1"),
        (lambda: od.OrderTag.from_bytes(None), "an order tag has 16 bytes, got None"),
        (lambda: od.ParquetSource("a\0b"), r"a path has a name, without zero bytes, got 'a\\x00b'"),
        (lambda: od.ParquetSource(""), "a path has a name, without zero bytes, got ''"),
        (lambda: od.IpcSource(np.array(3)), "a list of paths is needed, in order, got array"),
        (lambda: od.Pipeline(np.array(3)), "expected a pyarrow.Schema or a mapping of name to type"),
        (lambda: od.DKG(mu=np.timedelta64(1, "s")), "DKG: mu must be a number, got np.timedelta64"),
        (lambda: od.DKG(theta=2), r"^DKG: theta must lie in \(0, 1\], not 2"),
        (lambda: od.DKG(variant="x"), "^DKG: the variant is one of"),
        (lambda: od.DKG(cost="x"), "^DKG: the cost is 'linear'"),
        (lambda: od.Mixed(theta=-1), "^Mixed: theta must be finite and not negative, not -1"),
        (lambda: od.Mixed(table=-1), "^Mixed: table, the size of the routing table, must be"),
        (lambda: od.Mixed(degree=3), "^Mixed: the degree of discretisation R must be a power of 2"),
        (lambda: od.POSG(epsilon=-1), "^POSG: epsilon must be positive, not -1"),
        (lambda: od.POSG(0), r"^POSG: instances must be 1 to 2\^20, not 0"),
        (lambda: od.DKG(guaranteed="no"), "DKG: guaranteed must be True or False, got 'no'"),
        (lambda: od.DKG().fit([1], 1 << 40), "the number of instances must be an int of at least 1"),
        (lambda: od.Mixed().ring(1 << 40), "the number of instances must be an int of at least 1"),
        (lambda: od.Mixed().ring("12"), "instances must be their number, or a list of their numbers"),
        (lambda: od.POSG(2).instance("1"), "an instance of 2 has an index from 0 to 1, not '1'"),
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


def test_a_checkpoint_takes_a_snapshot(tmp_path):
    checkpoint = od.Checkpoint(tmp_path / "state")
    with pytest.raises(od.PlanError, match=r"write takes a snapshot, such as .*, got 3"):
        checkpoint.write(3)
    with pytest.raises(od.PlanError, match="latest: verify must be True or False, got 'yes'"):
        checkpoint.latest(verify="yes")


def test_an_order_tag_has_python_ints():
    tag = od.OrderTag(np.int64(3), np.int8(-1))
    assert (type(tag.serial), type(tag.index)) == (int, int)
    assert tag == od.OrderTag.from_bytes(bytes(tag))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: od.Pipeline([{"k": 1}]), r"rows in dicts become a table by pyarrow\.Table\.from_pylist"),
        (lambda: od.Pipeline([(1,), (2,)]), r"rows in tuples become a table by .*from_pylist\(\[dict\(zip"),
        (lambda: od.Pipeline([(1, 2), (2, 3)]), r"a str, got 1; rows in tuples become a table by"),
        (lambda: od.Pipeline({"k": [1, 2]}), r"can't be \[1, 2\].*become a table by pyarrow\.table\(data\)"),
        (lambda: od.Pipeline({"k": ["a"]}), r"columns with values become a table by pyarrow\.table\(data\)"),
        (lambda: od.Pipeline({"k": np.arange(2)}), r"columns with values become a table by"),
        (lambda: od.Pipeline({"k": list[int]}), r"write pa\.list_\(type\)"),
        (lambda: od.Pipeline({"k": [int]}), r"write pa\.list_\(type\)"),
        (lambda: P.run([(1,), (2,)]), r"it gave tuple; rows in tuples become a table by"),
        (lambda: P.run([{"k": 1}]), r"it gave dict; rows in dicts become a table by"),
        (lambda: od.union(P, pa.table({"k": range(1000)})), r"union takes pipelines, .*; got Table$"),
    ],
)
def test_rows_and_values_are_answered_with_the_table_they_make(given, text):
    with pytest.raises(od.OrdstreamError, match=text):
        given()

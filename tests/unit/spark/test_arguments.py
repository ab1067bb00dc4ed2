"""Arguments that are looked at before Spark is."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.plan.shedding import only_shed
from ordstream.spark import inputs, layout

P = od.Pipeline({"k": int, "ts": int}).key_by("k").count("n")


@pytest.mark.parametrize("order", [np.array([1, 2]), pd.NA, od.col("k"), 5])
def test_an_order_is_one_of_three(order):
    with pytest.raises(od.PlanError, match="order is one of 'total', 'by_key', 'none', got"):
        od.spark.apply(P, None, order_by="ts", order=order)


def test_a_stream_takes_one_frame(tmp_path):
    one, other = (od.Pipeline({"k": int, "ts": int}, source=name) for name in "ab")
    with pytest.raises(od.PlanError, match="one streaming DataFrame: unite yours by unionByName"):
        od.spark.stream(one.join_asof(other, on="k", time="ts"), {"a": None, "b": None}, checkpoint=tmp_path)


@pytest.mark.parametrize("option", [{"idle": "1s"}, {"merge_log": False}])
def test_options_of_a_merge_are_not_spark_s(option):
    both = od.union(*(od.Pipeline({"k": int, "ts": int}, source=name) for name in "ab"))
    with pytest.raises(od.PlanError, match="Spark sorts whole frames by merge_by"):
        od.spark.apply(both, {"a": None, "b": None}, merge_by="ts", **option)


@pytest.mark.parametrize("late", ["no", 1, pd.NA, od.col("k")])
def test_late_rows_are_asked_for_by_a_flag(late, tmp_path):
    with pytest.raises(od.PlanError, match="read_output: late must be True or False, got"):
        od.spark.read_output(tmp_path, late=late)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"outputs": {"a": P}}, r"outputs .* one output; run a stream for each"),
        ({"merge_by": "ts"}, r"merge_by .* one source"),
        ({"report": print}, r"report .* query\.epochs"),
        ({"tags": True}, r"tags .* always have them"),
    ],
)
def test_a_stream_says_what_is_in_the_place_of_an_option(option, why):
    stream = pytest.importorskip("ordstream.spark.streaming.stream")
    with pytest.raises(od.PlanError, match=why):
        stream._checked(P, option, None)


@pytest.mark.parametrize("schema", [None, 5, "k", {"k": int}, P])
def test_a_schema_is_pyarrows(schema):
    with pytest.raises(od.SchemaError, match=r"spark_schema takes a pyarrow\.Schema, such as"):
        od.spark.spark_schema(schema)


@pytest.mark.parametrize("spark", [0, 5, "local[2]", {}])
def test_a_session_is_sparks(spark, tmp_path):
    calls = (
        lambda: od.spark.explain(P, spark=spark),
        lambda: od.spark.state(tmp_path, "count_1", spark=spark),
        lambda: od.spark.read_output(tmp_path, spark=spark),
        lambda: od.spark.finish(tmp_path, P, spark=spark),
    )
    for call in calls:
        with pytest.raises(od.PlanError, match=r"spark must be a SparkSession, got"):
            call()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"progress": lambda: None}, r"progress: it is called as progress\(rows\)"),
        ({"report": lambda report: None}, r"report: it is called as report\(task, report\)"),
    ],
)
def test_what_is_told_has_its_arguments(options, text):
    """What a function of other arguments raised was a warning of a thread, when the job was over."""
    with pytest.raises(od.PlanError, match=text):
        od.spark.apply(P, None, order_by="ts", **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"punctuate": "1m"}, r"punctuate must be od\.every\(column, period\), got '1m'"),
        ({"punctuate": 60}, r"punctuate must be od\.every\(column, period\), got 60"),
        ({"emit": "finally"}, r"emit must be one of updates, final; got 'finally'"),
        ({"emit": np.array([1, 2])}, r"emit must be one of updates, final; got array"),
        ({"workers": "many"}, r"workers must be"),
        ({"scheduler": "fast"}, r"scheduler must be one of"),
    ],
)
def test_options_are_looked_at_before_the_layout_is_made(options, text):
    """What is no `od.every` was an AttributeError of the layout, which asked it for its column."""
    with pytest.raises(od.PlanError, match=text):
        od.spark.apply(P, None, order_by="ts", **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"report": 5}, r"report takes a function of \(task, report\), or a Channel; got 5"),
        ({"progress": lambda: None}, r"progress: it is called as progress\(rows\)"),
        ({"restore": np.array([1, 2])}, r"restore can't be combined with Spark"),
        ({"every": 0}, r"every can't be combined with Spark"),
    ],
)
def test_options_of_a_node_that_is_made_by_hand(options, text):
    with pytest.raises(od.PlanError, match=text):
        od.spark.node_function(P, ("ts",), **options)


@pytest.mark.parametrize(
    ("df", "merge_by", "text"),
    [
        (5, None, "a Spark DataFrame is needed, got int"),
        ({"a": "b"}, None, "a Spark DataFrame is needed, got str"),
        (None, "ts", "merge_by is for a pipeline of several sources; this one has one"),
    ],
)
def test_what_is_explained_is_what_can_run(df, merge_by, text):
    """`explain` told how a job would run that `apply` refuses."""
    with pytest.raises(od.PlanError, match=text):
        inputs.of_one_source(P, df, merge_by)


@pytest.mark.parametrize("nodes", [0, -1, True, 10**30, 1.5, "many", np.array([1, 2]), od.col("k"), pd.NA])
@pytest.mark.parametrize("name", ["nodes", "nodes_per_executor"])
def test_nodes_are_a_number_or_auto(name, nodes):
    """10**30 went as far as Java, and an array has no truth value for `==`."""
    given = {"nodes": "auto", "per_executor": "auto", name.removeprefix("nodes_"): nodes}
    with pytest.raises(od.PlanError, match=f"{name} must be 'auto' or a whole number from 1 to 65536, got"):
        layout.make_layout(None, P, **given)


@pytest.mark.parametrize("name", ["none", 5, np.array([1, 2]), od.col("k"), pd.NA])
def test_a_shed_operator_has_a_name(name):
    shedding = od.Pipeline({"k": int}).shed("50ms", cost_key="k")
    with pytest.raises(od.PlanError, match="there is no shed operator"):
        only_shed(shedding.plan, name)


def test_a_shell_completes_to_names_that_are_for_users():
    """`TYPE_CHECKING`, `annotations` and modules of ours stood among them."""
    pytest.importorskip("pyspark")
    for module in (od.spark, od.spark.sinks):
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, name) for name in dir(module))


def test_a_misspelt_checkpoint_is_told_before_anything_else(tmp_path):
    """It said that finish needs the pipeline."""
    pytest.importorskip("pyspark")
    for options in ({}, {"pipeline": P}):
        with pytest.raises(od.CheckpointError, match="nix: there is no such folder: name the folder that"):
            od.spark.finish(tmp_path / "nix", **options)


@pytest.mark.parametrize(
    "slack",
    ["90s", datetime.timedelta(seconds=90), np.timedelta64(90, "s"), pa.scalar(90, pa.duration("s"))],
)
def test_slack_is_a_duration_of_any_library(slack, monkeypatch):
    stream_arguments = pytest.importorskip("ordstream.spark.streaming.stream_arguments")
    types = pytest.importorskip("pyspark.sql.types")
    monkeypatch.setattr(stream_arguments, "kind_of", lambda df, name: types.TimestampType())
    assert stream_arguments.slack_of(slack, None, ("ts",)) == 90_000_000

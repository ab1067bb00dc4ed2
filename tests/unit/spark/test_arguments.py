"""Arguments that are looked at before Spark is."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import ordstream as od

P = od.Pipeline({"k": int, "ts": int}).key_by("k").count("n")


@pytest.mark.parametrize("order", [np.array([1, 2]), pd.NA, od.col("k"), 5])
def test_an_order_is_one_of_three(order):
    with pytest.raises(od.PlanError, match="order is one of 'total', 'by_key', 'none', got"):
        od.spark.apply(P, None, order_by="ts", order=order)


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

"""`final`: the pipeline whose whole output is the answer at the end of the stream."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from plan_tools import final

import ordstream as od
from ordstream.node.settings import make_settings
from ordstream.reference.run_serial import run_serial

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("x", pa.float64())])
ROWS = pa.table(
    {
        "a": [3, 1, None, 3, 2, 3, None, 1, 2],
        "b": ["p", "q", "q", "p", None, "r", "q", "q", "p"],
        "x": [0.0, -0.0, math.nan, 1.5, math.nan, None, 1.5, 0.0, None],
    },
    schema=SCHEMA,
)


def latest(rows, nkeys):
    """The last row of each key, by ascending key (nulls first, NaN last)."""
    found = {}
    for row in rows:
        found[tuple("nan" if v != v else v for v in row[:nkeys])] = row

    def order(row):
        return [(v is not None, v != v, 0 if v is None or v != v else v) for v in row[:nkeys]]

    return sorted(found.values(), key=order)


@pytest.mark.parametrize("key", [("a",), ("b",), ("x",), ("b", "a"), ("x", "b", "a")])
@pytest.mark.parametrize("workers", [0, 1, 2])
def test_count_gives_each_keys_last_update(key, workers):
    pipeline = od.Pipeline(SCHEMA).key_by(*key, buckets=3).count()
    updates = run_serial(pipeline, ROWS).rows
    expected = repr(latest(updates, len(key)))
    assert repr(run_serial(final(pipeline), ROWS).rows) == expected
    result = pipeline.run(ROWS, workers=workers, emit="final")
    assert repr([tuple(row.values()) for row in result.table.to_pylist()]) == expected
    assert result.table.schema == pipeline.schema


@pytest.mark.parametrize("k", [1, 2, 3, 100])
@pytest.mark.parametrize("key", [("a",), ("b", "a"), ("x", "b")])
def test_top_k_of_counts_is_the_same_with_and_without_early_combination(key, k):
    pipeline = od.Pipeline(SCHEMA).key_by(*key, buckets=3).count().top_k(k, by="count")
    counted = final(pipeline).plan.operators[0]
    assert (counted.emit, counted.best) == ("final", k)
    expected = run_serial(pipeline, ROWS)
    found = run_serial(final(pipeline), ROWS)
    assert (repr(found.rows), found.tags) == (repr(expected.rows), expected.tags)
    for workers in (0, 1, 2):
        table = pipeline.run(ROWS, workers=workers, emit="final", tags=True).table
        assert repr([tuple(row.values())[:-2] for row in table.to_pylist()]) == repr(expected.rows)
        assert (
            list(zip(table["_serial"].to_pylist(), table["_index"].to_pylist(), strict=True))
            == expected.tags
        )


def test_only_a_ranking_by_that_count_is_combined_early():
    counts = od.Pipeline(SCHEMA).key_by("b", "a").count()
    renamed = counts.rename({"count": "n"}).top_k(2, by="n")
    other_ties = counts.top_k(2, by="count", key=["a", "b"])
    by_key = counts.top_k(2, by="a", key=["b", "count"])
    part_of_key = counts.top_k(2, by="count", key=["b"])
    unkeyed = od.Pipeline(SCHEMA).count().with_columns(a=od.lit(1)).top_k(2, by="count")
    for pipeline in (renamed, other_ties, by_key, part_of_key, unkeyed):
        assert not any(getattr(stage, "best", 0) for stage in final(pipeline).plan.operators)
    for pipeline in (renamed, other_ties, part_of_key):
        expected = run_serial(pipeline, ROWS).rows
        assert run_serial(final(pipeline), ROWS).rows == expected
        assert [
            tuple(row.values()) for row in pipeline.run(ROWS, workers=2, emit="final").table.to_pylist()
        ] == expected


def test_no_tuples_no_rows():
    empty = ROWS.slice(0, 0)
    for pipeline in (
        od.Pipeline(SCHEMA).count(),
        od.Pipeline(SCHEMA).key_by("a").count().top_k(3, by="count"),
    ):
        assert run_serial(final(pipeline), empty).rows == []
        assert pipeline.run(empty, emit="final", workers=1).table.num_rows == 0


def test_what_already_is_final_stays_as_it_is():
    pipeline = od.Pipeline(SCHEMA).count(emit="final")
    assert final(pipeline).plan.operators == pipeline.plan.operators
    assert final(final(od.Pipeline(SCHEMA).key_by("a").count())).plan.operators[0].emit == "final"


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (od.Pipeline(SCHEMA), "a pipeline without operators"),
        (
            od.Pipeline(SCHEMA).count().filter(od.col("count") > 1, name="big"),
            r"operator 'big' \(filter\) has no answer",
        ),
        (
            od.Pipeline(SCHEMA).scan(n=od.count(), name="running"),
            r"operator 'running' \(scan\) has no answer",
        ),
    ],
)
def test_without_an_answer_at_the_end(pipeline, message):
    with pytest.raises(od.PlanError, match=message):
        final(pipeline)
    with pytest.raises(od.PlanError, match=message):
        pipeline.run(ROWS, emit="final")


def test_several_outputs_have_no_answer_together():
    """The error named the operator that brings them together, which nobody wrote."""
    counts = od.Pipeline(SCHEMA).key_by("a").count()
    text = "a run with several outputs takes it from none; give emit='final' to the operators"
    with pytest.raises(od.PlanError, match=text):
        counts.run(ROWS, outputs={"n": counts}, emit="final")
    with pytest.raises(od.PlanError, match=r"\(union\) has no answer at the end"):
        od.union(counts, counts).run(ROWS, emit="final")


def test_the_option():
    assert make_settings({}).emit == "updates"
    with pytest.raises(od.PlanError, match="emit must be one of updates, final; got 'last'"):
        make_settings({"emit": "last"})
    counts = od.Pipeline(SCHEMA).count()
    assert counts.run(ROWS, workers=1, emit="updates").table["count"].to_pylist() == list(range(1, 10))
    with counts.stream(ROWS, workers=1, emit="final") as out:
        assert [row for batch in out for row in batch.to_pylist()] == [{"count": 9}]
    assert out.report.options["emit"] == "final"


def test_explain_shows_it():
    text = final(od.Pipeline(SCHEMA).key_by("a").count().top_k(7, by="count")).explain()
    assert "count by a, final, the 7 best of each bucket" in text
    assert text == od.Pipeline(SCHEMA).key_by("a").count().top_k(7, by="count").explain(emit="final")


def test_windows_are_never_combined_early():
    counts = od.Pipeline(SCHEMA).key_by("b").count(window=2, time="a")
    for top in (counts.top_k(2, by="count", window="window"), counts.top_k(2, by="count")):
        assert [vars(stage) for stage in final(top).plan.operators] == [
            vars(stage) for stage in top.plan.operators
        ]

"""Rewrites leave the output as it is: each of them switched off gives the same rows, tags and errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from plan_tools import final

import ordstream as od
from ordstream.plan import rewrites
from ordstream.plan.final import final as final_plan
from ordstream.plan.rewrites import ALWAYS, AT_END, REWRITES, rewritten
from ordstream.reference.run_serial import run_serial

ROWS = pa.table(
    {
        "k": [None if i % 11 == 0 else i * i % 7 for i in range(400)],
        "t": list(range(400)),
        "v": [i * 37 % 5 for i in range(400)],
        "unread": [f"{i}" for i in range(400)],
    }
)
START = od.Pipeline(ROWS.schema)
LAST = {"a": od.last("t", where=od.col("v") == 0), "b": od.last("t", where=od.col("v") == 3)}
SESSIONS = START.key_by("k").sessionize("t", 3, aggregate=LAST)

TUMBLING = START.key_by("k").window(od.tumbling(50), time="t").aggregate(n=od.count(), least=od.min("v"))

#: Pipelines that a rewrite changes.
CHANGED = {
    "best_of_each_bucket": [
        START.key_by("k").count().top_k(2, "count"),
        START.key_by("v", "k").count().top_k(3, "count", rank="r"),
    ],
    "growing": [
        START.key_by("k").count().top_k(2, "count", emit="updates"),
        START.key_by("v").count().top_k(1, "count"),
        TUMBLING.top_k(2, "least", window="start"),
        TUMBLING.top_k(1, "n", window="start", emit="updates"),
        TUMBLING.top_k(2, "least", window="start", key="k", rank="r"),
    ],
    "needed_columns": [
        SESSIONS.select("k", "b"),
        SESSIONS.filter(od.col("count") > 1).aggregate(n=od.sum("count"), emit="final"),
    ],
    "dropped_rows": [
        SESSIONS.filter(od.col("a").is_not_null()).select("k", "a"),
        SESSIONS.filter(od.col("b").is_null()),
    ],
}


def test_every_rewrite_has_a_case() -> None:
    assert set(CHANGED) == set(REWRITES)


@pytest.mark.parametrize(
    ("name", "pipeline"), [(name, pipeline) for name, given in CHANGED.items() for pipeline in given]
)
def test_the_output_is_the_same_without_it(
    name: str, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = "final" if name in AT_END else "updates"
    plan = pipeline.plan
    with_it = final_plan(plan) if emit == "final" else rewritten(plan)
    without_it = final_plan(plan, without=[name]) if emit == "final" else rewritten(plan, without=[name])
    assert [vars(o) for o in with_it.operators] != [vars(o) for o in without_it.operators], (
        "the rewrite does nothing here"
    )

    expected = run_serial(final(pipeline) if emit == "final" else pipeline, ROWS)
    assert expected.rows
    for off in (False, True):
        if off:
            monkeypatch.delitem(AT_END if name in AT_END else ALWAYS, name)
        for workers in (0, 1, 2):
            for options in (
                {},
                {"chunk_rows": 1, "buckets": 3},
                {"chunk_rows": 7, "partitioning": "shared"},
            ):
                table = pipeline.run(ROWS, workers=workers, tags=True, emit=emit, **options).table
                rows = [tuple(row.values()) for row in table.to_pylist()]
                assert [row[:-2] for row in rows] == expected.rows
                assert [row[-2:] for row in rows] == expected.tags


@pytest.mark.parametrize("emit", ["updates", "both"])
def test_windows_that_are_shown_more_than_once_may_fall(emit: Any) -> None:
    windows = START.key_by("k").window(od.tumbling(50), time="t").aggregate(least=od.min("v"), emit=emit)
    (top,) = rewritten(windows.top_k(2, "least", window="start").plan).operators[-1:]
    assert not top.by_grows
    (top,) = rewritten(TUMBLING.top_k(2, "n", window="end", key=["k"]).plan).operators[-1:]
    assert not top.by_grows  # of one end, but that is nothing that the windows say


def test_a_failing_row_shows_the_same_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = SESSIONS.filter(od.col("a").is_not_null()).select(x=od.col("a") // (od.col("k") - 2))

    def error() -> tuple[Any, ...]:
        with pytest.raises(od.OperatorError) as caught:
            pipeline.run(ROWS, workers=2)
        return caught.value.operator, caught.value.serial, caught.value.reason, str(caught.value.row)

    found = error()
    for name in list(ALWAYS):
        monkeypatch.delitem(rewrites.ALWAYS, name)
    operator, serial, reason, _ = error()
    assert (operator, serial, reason) == found[:3]

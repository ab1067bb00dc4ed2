"""max_state_bytes: a cap on the state of all operators of a run."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

import ordstream as od

SCHEMA = pa.schema({"k": pa.int64(), "s": pa.string(), "ts": pa.int64()})
MOST = 1 << 20


def rows(n, keys=None):
    """Row n has key n, but for `keys`: so many different ones."""
    numbers = range(n)
    return pa.table([[k % (keys or n) for k in numbers], [f"s{k}" for k in numbers], numbers], schema=SCHEMA)


def collects(row, state, emit):
    state.text += "x" * (1000 if row.k == 7 else 1)


P = od.Pipeline(SCHEMA)
TWO = P.key_by("k").cum_count(name="first").key_by("s").lag({"before": "ts"}, name="second")
GROWING = {
    "counts": P.key_by("k").count(name="f"),
    "counts, skip": P.key_by("k").count(name="f", on_error="skip"),
    "strings": P.key_by("s", "k").lag({"before": "s"}, name="f"),
    "reorder": P.reorder("ts", slack=1 << 40, name="f"),
    "one state": P.tail(1 << 20, name="f"),
}


@pytest.mark.parametrize("way", [{"workers": 0}, {"workers": 2, "chunk_rows": 16}], ids=str)
@pytest.mark.parametrize("pipeline", GROWING.values(), ids=GROWING)
def test_the_operator_fails_where_there_is_too_much(pipeline, way):
    data = rows(60_000)
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(data, max_state_bytes=MOST, **way)
    error = caught.value
    assert error.operator == "f"
    assert 1000 < error.serial < 60_000
    assert error.row["k"] == error.serial - 1
    total, most, here = map(int, re.findall(r"\d+", error.reason)[:3])
    assert most == MOST < total
    assert here == total  # there is one operator with a state
    assert ("largest key: " in error.reason) == bool(pipeline.plan.operators[-1].key)


@pytest.mark.parametrize("way", [{"workers": 0}, {"workers": 2, "chunk_rows": 16}], ids=str)
def test_windows_without_gaps_name_what_keeps_their_keys(way):
    window = P.key_by("k").window(od.tumbling(9), time="ts", fill_gaps=True)
    pipeline = window.aggregate(n=od.count(), name="f")
    told = r"operator 'f: gaps' failed at serial \d+: the run's state has .* largest key: \d+, with"
    with pytest.raises(od.OperatorError, match=told):
        pipeline.run(rows(60_000), max_state_bytes=MOST, **way)


def test_nothing_changes_below_it():
    data = rows(5000, keys=100)
    for pipeline in (TWO, *GROWING.values()):
        free = pipeline.run(data)
        needed = sum(one.state_bytes or 0 for one in free.report.operators)
        bounded = pipeline.run(data, max_state_bytes=4 * needed + (1 << 20))
        assert bounded.table == free.table


def test_all_operators_count():
    """Each alone has room; the second has most of it, and its row is the one that fails."""
    data = rows(30_000)
    states = [one.state_bytes for one in TWO.run(data, workers=0).report.operators]
    most = max(states) + min(states) // 2
    with pytest.raises(od.OperatorError) as caught:
        TWO.run(data, workers=0, max_state_bytes=most)
    assert caught.value.operator in ("first", "second")
    assert f"max_state_bytes is {most}" in caught.value.reason


def test_the_largest_key():
    pipeline = P.key_by("k").process(collects, schema={"n": int}, state={"text": str}, name="f")
    kept = od.collect("ts", 1 << 20)
    windows = P.key_by("k").window(od.tumbling(1 << 40), time="ts").aggregate(kept=kept, name="f")
    data = rows(500)
    large = pa.table([pa.repeat(7, 60_000), pa.repeat("y", 60_000), range(500, 60_500)], schema=SCHEMA)
    with pytest.raises(od.OperatorError, match=r"largest key: 7, with \d{4,}"):
        windows.run(pa.concat_tables([data, large]), max_state_bytes=1 << 19)
    with pytest.raises(od.OperatorError, match=r"largest key: 7, with \d{4,}"):
        pipeline.run(rows(10_000, keys=9000), max_state_bytes=1 << 18)


GIVEN = {
    "text": ({"kept": str}, lambda row, kept: kept + "x" * 1_000, 60),
    "bytes": ({"kept": bytes}, lambda row, kept: kept + b"x" * 1_000, 60),
    "numbers": ({"kept": pa.list_(pa.int64())}, lambda row, kept: [*kept, *range(40)], 60),
    "texts": ({"kept": pa.list_(pa.string())}, lambda row, kept: [*kept, "x" * 1_000], 60),
}


@pytest.mark.parametrize(
    "way", [{"workers": 0, "chunk_rows": 64}, {"workers": 2, "chunk_rows": 16}], ids=str
)
@pytest.mark.parametrize("kind", GIVEN)
def test_states_of_functions_that_grow(kind, way):
    """Their number of keys alone was counted."""
    state, more, keys = GIVEN[kind]

    def keeps(row, state, emit):
        state.kept = more(row, state.kept)
        emit(len(state.kept))

    pipeline = P.key_by("k").process(keeps, schema={"n": int}, state=state, name="f")
    with pytest.raises(od.OperatorError, match=r"the run's state has .*largest key: \d+, with") as caught:
        pipeline.run(rows(6_000, keys=keys), max_state_bytes=MOST, **way)
    assert 200 < caught.value.serial < 1_700  # a thousand bytes or more each
    free = pipeline.run(rows(1_200, keys=keys), **way)
    assert free.report.operators[0].state_bytes > 1_100_000


def test_what_a_function_gives_back_does_not_count(tmp_path):
    """Texts that become short, keys that are forgotten, rows that are taken back, timers, snapshots."""

    def keeps(row, state, emit):
        state.kept = "x" * 10_000 if row.ts % 2 else ""
        if row.ts % 5 == 0:
            raise ValueError
        if row.ts % 7 == 0:
            return od.FORGET
        emit(len(state.kept))

    pipeline = P.key_by("k").process(
        keeps, schema={"n": int}, state={"kept": str}, on_error="skip", name="f"
    )
    data = rows(20_000, keys=40)
    whole = pipeline.run(data, max_state_bytes=MOST)
    for first, behind in ((0, 7_000), (7_000, 20_000)):
        restore = {"restore": tmp_path} if first else {}
        run = pipeline.run(data[first:behind], max_state_bytes=MOST, end="suspend", **restore)
        od.Checkpoint(tmp_path).write(run.snapshot)
    parts, one = (found.report.operators[0].state_bytes for found in (run, whole))
    assert one < MOST
    assert abs(parts - one) < 5_000  # half a text: holes in a bucket's list count as well
    assert whole.table[-len(run.table) :] == run.table


def test_a_key_is_text_that_can_be_read():
    pipeline = P.key_by("s").process(collects, schema={"n": int}, state={"text": str}, name="f")
    for key, told in (("é" * 30, "é" * 12 + "..."), ("a\0b\n", "a?b?"), ("x" * 24, "x" * 24), ("", "")):
        data = pa.table([[7] * 5_000, [key] * 5_000, range(5_000)], schema=SCHEMA)
        with pytest.raises(od.OperatorError) as caught:
            pipeline.run(data, max_state_bytes=1 << 18)
        assert f"largest key: '{told}', with" in caught.value.reason


def test_what_it_may_be():
    for wrong in (0, -1, True, 1.5, "1 GB"):
        with pytest.raises(od.PlanError, match="max_state_bytes must be a whole number"):
            P.run(rows(1), max_state_bytes=wrong)

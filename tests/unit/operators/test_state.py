"""The state of operators as rows: which rows, what is refused, and that removed keys give their memory
back."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from state_runs import Segment, exact_rows, run_cut
from unit.core.test_packed_counts import keys_of_one_page

import ordstream as od
from ordstream.testing import run_serial

WAYS = [{"workers": 0, "buckets": 3}, {"workers": 2, "buckets": 1}]
MIXED = pa.table(
    {
        "k": pa.array([5, None, 5, 2**62, -1, None, -1, -1], pa.int64()),
        "j": pa.array([1, 1, 1, 2, 0, 1, 0, 0], pa.int64()),
    }
)


def state_of(pipeline, data, **options):
    with Segment(pipeline, **(options or WAYS[0])) as segment:
        segment.push(data)
        (table,) = segment.state().values()
    return table


# ---------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("emit", ["updates", "final"])
def test_counts_of_packed_and_other_keys_are_rows_alike(way, emit):
    """Of two columns 2^62 and null do not pack: their keys lie in the general map."""
    state = state_of(od.Pipeline(MIXED.schema).key_by("k", "j").count("hits", emit=emit), MIXED, **way)
    assert state.schema == pa.schema([("k", pa.int64()), ("j", pa.int64()), ("count", pa.int64())])
    assert state.to_pylist() == [
        {"k": None, "j": 1, "count": 2},
        {"k": -1, "j": 0, "count": 3},
        {"k": 5, "j": 1, "count": 2},
        {"k": 2**62, "j": 2, "count": 1},
    ]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_float_key_has_one_zero_and_one_nan(way):
    data = pa.table({"x": [0.0, -0.0, math.nan, -math.nan]})
    state = state_of(od.Pipeline(data.schema).key_by("x").count(), data, **way)
    assert exact_rows([state], state.schema) == [((0.0, 1.0), 2), ("NaN", 2)]


def test_values_of_an_aggregation_are_null_where_there_is_none_yet():
    numbers = {"x": pa.array([3, 4, None], pa.int16()), "f": pa.array([-0.0, None, None], pa.float32())}
    data = pa.table({"k": ["a", "a", "b"], **numbers})
    built = (
        od.Pipeline(data.schema)
        .key_by("k")
        .aggregate(n=od.count("x"), s=od.sum("x"), m=od.mean("f"), low=od.min("x"), one=od.first("f"))
    )
    state = state_of(built, data)
    types = {
        "n": pa.int64(),
        "s": pa.int64(),
        "m.sum": pa.float64(),
        "m.count": pa.int64(),
        "low": pa.int16(),
    }
    assert state.schema == pa.schema([("k", pa.string()), *types.items(), ("one", pa.float32())])
    assert exact_rows([state], state.schema) == [
        ("a", 2, 7, (0.0, 1.0), 1, 3, (0.0, -1.0)),  # 0.0 + -0.0 is 0.0
        ("b", 0, None, None, 0, None, None),
    ]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_key_whose_only_tuple_failed_has_no_row(way):
    """The map has its key: an overflow is found behind the lookup. A failing condition is found in front of
    it."""
    data = pa.table({"k": [1, 2, 1, 3], "u": pa.array([2, 2**64 - 1, 1, 5], pa.uint64()), "x": [2, 1, 1, 0]})
    keyed = od.Pipeline(data.schema).key_by("k")
    built = keyed.aggregate(s=od.sum("u"), n=od.count(where=4 // od.col("x") > 0), on_error="skip")
    assert state_of(built, data, **way).to_pylist() == [{"k": 1, "s": 3, "n": 2}]
    with Segment(built, **way) as segment:
        segment.push(data)
        (name,) = segment.stages
        keys = pa.table([[1, 2, 3], [0] * 3, [0] * 3], schema=segment.stages[name][1].state_schema())
        assert segment.remove(name, keys) == 1  # those that a tuple left something for
        segment.push(data.slice(1, 1))
        segment.install({name: keys})
        assert segment.state_of(name).equals(keys)


def test_an_operator_without_a_key_has_one_row_or_none():
    data = pa.table({"x": [1, 2, 3]})
    for built, row in (
        (od.Pipeline(data.schema).count(), {"count": 3}),
        (od.Pipeline(data.schema).aggregate(s=od.sum("x"), m=od.max("x")), {"s": 6, "m": 3}),
    ):
        assert state_of(built, data).to_pylist() == [row]
        with Segment(built, workers=0) as segment:
            (name,) = segment.stages
            assert segment.state_of(name).to_pylist() == []
            segment.push(data)
            state = segment.state_of(name)
            assert segment.remove(name, state) == 1
            assert segment.remove(name, state) == 0
            assert segment.state_of(name).to_pylist() == []


@pytest.mark.parametrize("key", [("k", "j"), ("s",)])
@pytest.mark.parametrize("aggregate", [False, True])
def test_only_the_keys_that_are_named_leave(key, aggregate):
    data = MIXED.append_column("s", pa.array(["", None, "", "a", "b" * 30, None, "c", "c"]))
    keyed = od.Pipeline(data.schema).key_by(*key)
    built = keyed.aggregate(n=od.sum("j")) if aggregate else keyed.count()
    everything = state_of(built, data)
    absent = state_of(built, pa.table([[77], [0], ["absent"]], schema=data.schema))
    named = pa.concat_tables([everything.slice(1, 2), absent]).combine_chunks().to_batches()[0]
    for way in WAYS:
        with Segment(built, **way) as segment:
            segment.push(data)
            (name,) = segment.stages
            for most in (1, 100):
                assert segment.state_of(name, most, named).equals(everything.slice(1, 2))


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("build", "key"),
    [
        (lambda p: p.key_by("k", "j").count(), {"k": 5, "j": 1}),
        (lambda p: p.key_by("k", "j").count(), {"k": None, "j": 1}),
        (lambda p: p.key_by("k").aggregate(m=od.mean("j")), {"k": -1}),
        (lambda p: p.key_by("k").scan(m=od.mean("j")), {"k": 2**62}),
    ],
)
def test_a_key_that_is_there_already_is_refused_by_name(build, key, way):
    built = build(od.Pipeline(MIXED.schema))
    with Segment(built, **way) as segment:
        segment.push(MIXED)
        (name,) = segment.stages
        state = segment.state_of(name)
        (row,) = [row for row in state.to_pylist() if key.items() <= row.items()]
        with pytest.raises(od.PlanError, match="the key is there already") as raised:
            segment.install({name: pa.Table.from_pylist([row], state.schema)})
        assert repr(name) in str(raised.value)
        assert str(key) in str(raised.value)
        assert segment.state_of(name).equals(state)  # and nothing changed
        one = pa.Table.from_pylist([row], state.schema)
        assert segment.remove(name, state.slice(0, 0)) == 0
        assert segment.remove(name, one) == 1
        segment.install({name: one})
        assert segment.state_of(name).equals(state)


def test_a_second_row_of_an_operator_without_a_key_is_refused():
    built = od.Pipeline(MIXED.schema).count(name="all")
    with (
        Segment(built, workers=0) as segment,
        pytest.raises(od.PlanError, match="one state, and it is there already"),
    ):
        segment.install({"all": pa.table({"count": [1, 2]})})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"count": pa.array([0], pa.int64())}, "null, 0 or negative"),
        ({"count": pa.array([None], pa.int64())}, "null, 0 or negative"),
        ({"n": pa.array([-1], pa.int64()), "m.sum": [0.5], "m.count": [1]}, "null or negative"),
        ({"n": pa.array([1]), "m.sum": [0.5], "m.count": [0]}, "its count is not 0"),
        (
            {"n": pa.array([1]), "m.sum": pa.array([None], pa.float64()), "m.count": [1]},
            "its count is not 0",
        ),
        (
            {"n": pa.array([1]), "m.sum": [0.5], "m.count": pa.array([None], pa.int64())},
            "count of a mean is null",
        ),
    ],
)
def test_values_that_no_state_has_are_refused(rows, message):
    data = pa.table({"k": [1], "x": [0.5]})
    for key in (["k"], []):
        keyed = od.Pipeline(data.schema).key_by("k") if key else od.Pipeline(data.schema)
        built = keyed.count() if "count" in rows else keyed.aggregate(n=od.count(), m=od.mean("x"))
        with Segment(built, workers=0) as segment:
            (name,) = segment.stages
            with pytest.raises(od.PlanError, match=message):
                segment.install({name: pa.table({**({"k": [1]} if key else {}), **rows})})
            assert segment.state_of(name).num_rows == 0
            good = {"count": [2]} if "count" in rows else {"n": [1], "m.sum": [0.5], "m.count": [1]}
            segment.install({name: pa.table({**({"k": [1]} if key else {}), **good})})
            assert segment.state_of(name).num_rows == 1


@pytest.mark.parametrize(
    ("table", "difference"),
    [
        (pa.table({"k": [1], "n": [1]}), "column 1 is 'n', not 'count'"),
        (pa.table({"k": ["1"], "count": [1]}), "column 'k' is string, not int64"),
        (pa.table({"k": [1]}), r"columns \['count'\] are missing"),
        (pa.table({"k": [1], "count": [1], "more": [1]}), r"columns \['more'\] are too many"),
    ],
)
def test_rows_of_another_schema_are_refused_by_their_difference(table, difference):
    built = od.Pipeline(MIXED.schema).key_by("k").count(name="hits")
    with (
        Segment(built, workers=0) as segment,
        pytest.raises(od.SchemaError, match=f"operator 'hits' .*{difference}"),
    ):
        segment.install({"hits": table})


def test_an_operator_whose_state_stays_says_so():
    data = pa.table({"u": [1], "t": [1]})
    keyed = od.Pipeline(data.schema).key_by("u")
    built = keyed.process(lambda row, state, emit: None, schema={"n": int}, init=list, name="visits")
    with (
        Segment(built, workers=0) as segment,
        pytest.raises(
            od.PlanError, match=r"operator 'visits' \(python_process\): its state is not declared"
        ),
    ):
        segment.state()
    with pytest.raises(od.PlanError, match=r"od\.codec"):
        built.plan.operators[0].state_schema()


def test_state_is_not_touched_while_tuples_are_on_their_way():
    built = od.Pipeline(MIXED.schema).key_by("k").count()
    with Segment(built, workers=0) as segment:
        segment._stream._core.push(MIXED.to_batches()[0])
        with pytest.raises(RuntimeError, match="not quiescent"):
            segment.state()


# ---------------------------------------------------------------------------------------------- memory


def keyed_data(kind, low, high):
    numbers = np.arange(low, high)
    if kind == "packed":
        return pa.table({"k": pa.array(numbers * 7919)})
    if kind == "strings":
        return pa.table({"k": pa.array([f"key number {n}" * (1 + n % 4) for n in numbers])})
    return pa.table({"k": pa.array(numbers.astype(float))})


@pytest.mark.parametrize("kind", ["packed", "floats", "strings"])
@pytest.mark.parametrize("aggregate", [False, True])
def test_removing_old_keys_keeps_memory_flat(kind, aggregate):
    """Ever new keys, of which the last 6,000 or so stay: what a bucket holds does not grow, and goes when
    all of them go."""
    step, rounds = 3_000, 24
    data = keyed_data(kind, 0, 1)
    keyed = od.Pipeline(data.schema).key_by("k")
    built = keyed.aggregate(n=od.count(), emit="final") if aggregate else keyed.count(emit="final")
    with Segment(built, workers=0, buckets=2) as segment:
        (name,) = segment.stages
        empty = segment.bytes(name)
        held = []
        for turn in range(rounds):
            segment.push(keyed_data(kind, turn * step, (turn + 1) * step), rows=step)
            old = keyed_data(kind, (turn - 2) * step, (turn - 1) * step) if turn > 1 else data.slice(0, 0)
            zeros = pa.array(np.zeros(len(old), np.int64))
            assert segment.remove(
                name, pa.table([old["k"], zeros], schema=segment.stages[name][1].state_schema())
            ) == len(old)
            held.append(segment.bytes(name))
        assert max(held[8:]) <= max(held[:8])
        everything = segment.state_of(name)
        assert len(everything) == 2 * step
        assert segment.remove(name, everything.slice(0, 2 * step - 10)) == 2 * step - 10
        assert segment.bytes(name) <= 4 * empty + 2 * 4096
        assert segment.state_of(name).equals(everything.slice(2 * step - 10))
        segment.finish()
        assert len(exact_rows(segment.batches, built.schema)) == 10


def test_a_large_map_gives_its_memory_back():
    """Pages that split, and the buffers of keys that wait: 200,000 keys in one bucket, then every hundredth
    of them."""
    n = 200_000
    keys = np.arange(n) * 31
    data = pa.table({"k": keys})
    built = od.Pipeline(data.schema).key_by("k").count(emit="final", name="hits")
    with Segment(built, workers=0, buckets=1) as segment:
        segment.push(data, rows=50_000)
        before = segment.bytes("hits")
        index, stage = segment.stages["hits"]
        exported = pa.Table.from_batches(segment.door.export(index, stage.state_schema(), 70_000))
        assert (np.sort(exported["k"].to_numpy()) == keys).all()
        gone = exported.filter(pa.array(exported["k"].to_numpy() % 3100 != 0))
        assert segment.remove("hits", gone) == len(gone) == n - n // 100
        assert segment.bytes("hits") * 3 < before
        segment.push(data.slice(0, n // 2), rows=50_000)
        segment.finish()
    found = pa.Table.from_batches(segment.batches)
    counts = (keys % 3100 == 0).astype(int) + (np.arange(n) < n // 2)
    assert (found["k"].to_numpy() == keys[counts > 0]).all()
    assert (found["count"].to_numpy() == counts[counts > 0]).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_keys_of_a_page_that_cannot_split_come_leave_and_go(workers):
    """Behind a closed page its further keys lie in the spill."""
    keys = np.array(keys_of_one_page(14_000))
    data = pa.table({"k": np.concatenate([keys, keys[::2]])})
    built = od.Pipeline(data.schema).key_by("k").count(emit="final", name="count")
    expected = exact_rows([run_serial(built, data).table], built.schema)
    options = {"workers": workers, "buckets": 1, "rows": 20_000, "most": 50_000}
    batches, _ = run_cut(built, data, [12_500, 15_000], [options])
    assert exact_rows(batches, built.schema) == expected
    with Segment(built, workers=workers, buckets=1) as segment:
        segment.push(data, rows=20_000)
        state = segment.state_of("count", 50_000)
        gone = state.filter(pa.array(np.arange(len(state)) % 3 != 1))
        assert segment.remove("count", gone) == len(gone)
        segment.finish()
        assert exact_rows(segment.batches, built.schema) == expected[1::3]

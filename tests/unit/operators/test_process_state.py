"""The state of functions of the user's as rows: which rows, what is refused by operator and key, and that
removed keys give memory back.
"""

from __future__ import annotations

import copy
import datetime
import gc
import math
import pickle
import re
import weakref

import numpy as np
import pyarrow as pa
import pytest
from state_runs import Segment, configurations, exact_rows, run_cut, same_states

import ordstream as od
from ordstream._core.lab import testing_udf
from ordstream.testing import run_serial

WAYS = [{"workers": 0, "buckets": 3}, {"workers": 2, "buckets": 1}]
DATA = pa.table({"k": ["a", "b", None, "a", "c"], "x": [1, 2, 3, 4, -5]})
OUT = {"n": pa.int64()}


def adds(row, state, emit):
    if row.x < 0:
        raise ValueError("negative")
    state.n += row.x
    emit(state.n)


def adds_to_a_list(row, state, emit):
    if row.x < 0:
        raise ValueError("negative")
    state.append(row.x)
    emit(sum(state))


def at_the_end(key, state, emit):
    emit(0)


def refuses_7(state):
    if 7 in state:
        raise LookupError("no sevens here")
    return bytes(state)


def decodes(data):
    if 7 in data:
        raise LookupError("no sevens here")
    return list(data)


def built(fn=adds, key=("k",), schema=DATA.schema, state=None, **options):
    pipeline = od.Pipeline(schema)
    keyed = pipeline.key_by(*key) if key else pipeline
    return keyed.process(fn, schema=OUT, state=state or {"n": int}, on_error="skip", name="fold", **options)


def coded(encode=refuses_7, decode=decodes, **options):
    return built(adds_to_a_list, state=od.codec(encode, decode, list), **options)


VARIANTS = [
    built(),
    built(compiled=True),
    built(compiled=True, on_flush=at_the_end),
    coded(),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("pipeline", VARIANTS, ids=["declared", "compiled", "with flush", "codec"])
def test_a_key_whose_only_tuple_failed_has_no_row(pipeline, way):
    with Segment(pipeline, **way) as segment:
        segment.push(DATA)
        state = segment.state_of("fold")
        values = [b"\x03", b"\x01\x04", b"\x02"] if pipeline is VARIANTS[3] else [3, 5, 2]
        assert [list(row.values()) for row in state.to_pylist()] == [
            [key, value] for key, value in zip([None, "a", "b"], values, strict=True)
        ]
        named = pa.table([["c", "b", "?"], state.column(1)], schema=state.schema).to_batches()[0]
        assert segment.state_of("fold", 1, named).equals(state.slice(2))
        assert segment.remove("fold", pa.Table.from_batches([named])) == 1
        assert segment.state_of("fold").equals(state.slice(0, 2))


def test_every_declared_type_comes_back_exactly():
    fields = {
        "t": pa.timestamp("ns", "Europe/Berlin"),
        "d": pa.date64(),
        "e": pa.duration("us"),
        "c": pa.time32("ms"),
        "f": pa.float32(),
        "x": pa.float64(),
        "u": pa.uint64(),
        "i": pa.int8(),
        "s": pa.large_string(),
        "b": pa.large_binary(),
        "o": pa.bool_(),
    }
    values = {
        "t": datetime.datetime(2031, 7, 1, 12, 0, 0, 17, datetime.UTC),
        "d": datetime.date(1931, 1, 2),
        "e": datetime.timedelta(days=-3, microseconds=1),
        "c": datetime.time(23, 59, 59, 999_000),
        "f": -0.0,
        "x": math.nan,
        "u": 2**64 - 1,
        "i": -128,
        "s": "\x00é\U0001f600",
        "b": b"\xff\x00",
        "o": True,
    }

    def sets(row, state, emit):
        if row.x == 1:
            for name, value in values.items():
                setattr(state, name, value)
        emit(*(getattr(state, name) for name in fields))

    keyed = od.Pipeline(DATA.schema).key_by("k")
    pipeline = keyed.process(sets, schema=fields, state=fields, name="fold")
    with Segment(pipeline, workers=0) as segment:
        segment.push(DATA)
        before = exact_rows(segment.batches, pipeline.schema)
        state = segment.state_of("fold")
    with Segment(pipeline, workers=2) as segment:
        segment.install({"fold": state})
        assert segment.state_of("fold").equals(state) or exact_rows([state], state.schema) == exact_rows(
            [segment.state_of("fold")], state.schema
        )
        segment.push(DATA.slice(1))
        assert exact_rows(segment.batches, pipeline.schema) == [before[i] for i in (1, 2, 0, 4)]


def test_a_c_function_goes_on_behind_cuts():
    """Against the same in Python; there is no reference of a C function."""

    def totals(row, state, emit):
        state.n += 1
        state.total += row.x
        if row.x == -1:
            raise ValueError("after the state was changed")
        emit(row.k, state.n, state.total)

    fields = {"n": pa.int64(), "total": pa.int64()}
    out = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("k", *fields)])
    source = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in ("k", "x")])
    numbers = np.arange(400)
    data = pa.table([numbers * 7 % 23, numbers * 13 % 11 - 1], schema=source)
    options = {"schema": out, "state": fields, "on_error": "skip", "name": "fold"}
    keyed = od.Pipeline(source).key_by("k")
    native = keyed.process(testing_udf.__pyx_capi__["native_total"], compiled=True, **options)
    expected = exact_rows([run_serial(keyed.process(totals, **options), data).table], out)
    batches, states = run_cut(native, data, [1, 150, 399], configurations())
    assert exact_rows(batches, out) == expected
    batches, others = run_cut(keyed.process(totals, **options), data, [1, 150, 399], configurations()[1:])
    assert exact_rows(batches, out) == expected
    assert all(same_states(one, other) for one, other in zip(states, others, strict=True))


# ---------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_codec_that_raises_is_named_with_its_key(way):
    data = pa.table({"k": ["a", "b"], "x": [1, 7]})
    with Segment(coded(), **way) as segment:
        segment.push(data)
        text = r"operator 'fold' \(python_process\), key 'b': encode of its codec raised LookupError: no sev"
        with pytest.raises(od.CheckpointError, match=text) as raised:
            segment.state()
        assert isinstance(raised.value.__cause__, LookupError)
        segment.push(data.slice(0, 1))  # and the run goes on
        assert exact_rows(segment.batches[-1:], segment.batches[0].schema) == [(2,)]
    with Segment(coded(), **way) as segment:
        rows = pa.table({"k": ["a", "b", "c"], "state": [b"\x01", b"\x07", b"\x02"]})
        text = r"operator 'fold' \(python_process\), key 'b': decode of its codec raised LookupError"
        with pytest.raises(od.CheckpointError, match=text):
            segment.install({"fold": rows})
        assert "b" not in segment.state_of("fold")["k"].to_pylist()


def test_a_codec_that_gives_no_bytes_is_refused():
    with Segment(coded(encode=sum, key=()), workers=0) as segment:
        segment.push(DATA.slice(0, 1))
        with pytest.raises(od.CheckpointError, match=r"\): encode of its codec raised TypeError: expected"):
            segment.state()


@pytest.mark.parametrize("pipeline", VARIANTS, ids=["declared", "compiled", "with flush", "codec"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_key_that_is_there_and_a_null_are_refused(pipeline, way):
    with Segment(pipeline, **way) as segment:
        segment.push(DATA)
        state = segment.state_of("fold")
        with pytest.raises(od.PlanError, match=r"key .*'a'.*the key is there already"):
            segment.install({"fold": state.slice(1, 1)})
        empty = pa.table([["z"], pa.nulls(1, state.schema.types[1])], schema=state.schema)
        with pytest.raises(od.PlanError, match="a column is null, which no state has"):
            segment.install({"fold": empty})
        segment.install({"fold": pa.table([["c"], state.column(1).slice(1, 1)], schema=state.schema)})
        assert segment.state_of("fold").num_rows == 4


def test_a_string_that_is_no_utf8_is_refused_by_its_row():
    pipeline = built(state={"s": str}, fn=lambda row, state, emit: None)
    strings = pa.array([b"good", b"\xff\xfe"]).view(pa.string())
    with Segment(pipeline, workers=0, buckets=1) as segment:
        with pytest.raises(od.PlanError, match=r"key \{'k': 'b'\}: UnicodeDecodeError"):
            segment.install({"fold": pa.table({"k": ["a", "b"], "s": strings})})
        assert segment.state_of("fold").to_pylist() == [{"k": "a", "s": "good"}]


@pytest.mark.parametrize("key", [("k",), ()])
def test_an_operator_without_a_key_has_one_state(key):
    for pipeline in (built(key=key), built(key=key, compiled=True), coded(key=key)):
        with Segment(pipeline, workers=0) as segment:
            assert segment.state_of("fold").num_rows == 0
            segment.push(DATA)
            state = segment.state_of("fold")
            assert state.num_rows == (3 if key else 1)
            assert segment.remove("fold", state) == state.num_rows
            assert segment.remove("fold", state) == 0
            assert segment.state_of("fold").num_rows == 0
            segment.install({"fold": state})
            if not key:
                with pytest.raises(od.PlanError, match="one state, and it is there already"):
                    segment.install({"fold": state})
            assert segment.state_of("fold").equals(state)


# ---------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("pipeline", VARIANTS, ids=["declared", "compiled", "with flush", "codec"])
def test_removing_old_keys_keeps_memory_flat(pipeline):
    """Ever new keys, of which the last 2,000 or so stay."""
    step, rounds = 1_000, 24

    def keys(turn):
        return pa.array([f"key number {n}" * (1 + n % 4) for n in range(turn * step, (turn + 1) * step)])

    with Segment(pipeline, workers=0, buckets=2) as segment:
        schema = segment.stages["fold"][1].state_schema()
        empty = segment.bytes("fold")
        held = []
        for turn in range(rounds):
            segment.push(pa.table({"k": keys(turn), "x": np.full(step, 5)}), rows=step)
            if turn > 1:
                old = pa.table([keys(turn - 2), pa.nulls(step, schema.types[1])], schema=schema)
                assert segment.remove("fold", old) == step
            held.append(segment.bytes("fold"))
        assert max(held[8:]) <= 1.05 * max(held[:8])  # of the holes in a list a few more or fewer
        assert held[0] - empty > step * 20  # the keys' strings are counted
        everything = segment.state_of("fold")
        assert len(everything) == 2 * step
        assert segment.remove("fold", everything.slice(10)) == 2 * step - 10
        assert segment.state_of("fold").equals(everything.slice(0, 10))
        assert segment.bytes("fold") <= 4 * empty + 2 * 4096


class Noted(list):
    """A list that can be watched."""


@pytest.mark.parametrize("key", [("k",), ()])
def test_the_object_of_a_removed_key_is_let_go(key):
    """Also where so few keys went that the list of states keeps its holes."""
    objects = []

    def makes():
        one = Noted()
        objects.append(weakref.ref(one))
        return one

    pipeline = built(adds_to_a_list, state=od.codec(bytes, Noted, makes), key=key)
    with Segment(pipeline, workers=0, buckets=1) as segment:
        segment.push(pa.table({"k": [str(n) for n in range(50)], "x": np.ones(50, np.int64)}))
        state = segment.state_of("fold")
        for low in range(0, len(state), 5):
            assert segment.remove("fold", state.slice(low, 5)) == min(5, len(state))
            gc.collect()
            assert sum(one() is not None for one in objects) == max(0, len(state) - low - 5)
            assert segment.state_of("fold").equals(state.slice(low + 5))


# ------------------------------------------------------------------------------------------------ lists


def last_three(row, state, emit):
    assert type(state.last) is tuple
    state.last = (*state.last, row.x)[-3:]
    if row.x < 0:
        raise ValueError("negative")
    emit(sum(state.last))


LISTS = {"last": pa.list_(pa.int8())}


def test_a_field_has_its_name_as_an_index_too():
    def fn(row, state, emit):
        state["n"] += row["v"]
        state.odd = state["a b"] + "."
        state["a b"] = state["odd"]
        emit(row.k, state.n, state["a b"], "n" in state, "zz" in state)

    data = pa.table({"k": [1, 2, 1], "v": [5, 6, 7]})
    out = {"k": int, "n": int, "text": str, "there": bool, "not there": bool}
    state = {"n": int, "odd": str, "a b": str}
    pipeline = od.Pipeline(data.schema).key_by("k").process(fn, schema=out, state=state)
    found = pipeline.run(data).table
    assert found.equals(run_serial(pipeline, data).table)
    assert found.drop_columns("k").to_pylist()[2] == {
        "n": 12,
        "text": "..",
        "there": True,
        "not there": False,
    }


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda state: state["zz"], "the declared state has no field 'zz'; it has: n"),
        (lambda state: state.__setitem__("zz", 1), "the declared state has no field 'zz'; it has: n"),
        (lambda state: state.__setitem__("n", "x"), "column 'state.n' is int64, got str 'x'"),
        (lambda state: state[0], "the declared state has no field 0; it has: n"),
        (list, "a declared state can't be gone through: its fields are n"),
    ],
)
def test_an_index_of_a_state_that_is_no_field(use, text):
    data = pa.table({"k": [1]})
    pipeline = (
        od.Pipeline(data.schema)
        .key_by("k")
        .process(lambda row, state, emit: use(state), schema={"k": int}, state={"n": int})
    )
    assert text in str(run_serial(pipeline, data).error)
    with pytest.raises(od.OperatorError, match=re.escape(text)):
        pipeline.run(data)


def test_a_list_is_a_field_without_a_codec():
    pipeline = built(last_three, state=LISTS)
    expected = run_serial(pipeline, DATA)
    assert [row[0] for row in expected.rows] == [1, 2, 3, 5]
    for way in WAYS:
        assert pipeline.run(DATA, **way).table.equals(expected.table)
    first = pipeline.run(DATA.slice(0, 3), end="suspend", workers=0)
    assert first.snapshot is not None
    with Segment(pipeline, workers=0, buckets=2) as segment:
        segment.push(DATA)
        state = segment.state()["fold"]
        assert state["last"].type == pa.list_(pa.int8())
        assert sorted(state["last"].to_pylist()) == [[1, 4], [2], [3]]  # that of the row that failed is none
    with Segment(pipeline, workers=0, buckets=3) as segment:
        segment.install({"fold": state})
        assert same_states(segment.state(), {"fold": state})
        segment.push(DATA.slice(0, 1))
        assert [row["n"] for batch in segment.batches for row in batch.to_pylist()] == [6]


def last_names(row, state, emit):
    state.names = (*state.names, row.k, "é" * row.x)[-3:]
    state.some = [None, *state.some, row.x][-2:]
    emit(sum(len(one or "") for one in state.names) + sum(one or 0 for one in state.some))


#: A list of texts is their bytes and sizes, a list of numbers zeros and the places of None.
HELD = {"names": pa.list_(pa.string()), "some": pa.list_(pa.int8())}
HELD_ROWS = [
    {"k": "a", "names": "éaéééé".encode(), "names.sizes": [2, 1, 8], "some": [1, 4], "some.nulls": []},
    {"k": None, "names": "ééé".encode(), "names.sizes": [-1, 6], "some": [0, 3], "some.nulls": [0]},
]


def test_a_list_may_have_texts_and_none():
    pipeline = built(last_names, state=HELD)
    table = pa.table({"k": ["a", None, "a"], "x": [1, 3, 4]})
    expected = run_serial(pipeline, table)
    assert [row[0] for row in expected.rows] == [3, 6, 11]
    for way in WAYS:
        assert pipeline.run(table, **way).table.equals(expected.table)
    with Segment(pipeline, workers=0, buckets=2) as segment:
        segment.push(table)
        state = segment.state()["fold"]
    assert sorted(state.to_pylist(), key=str) == HELD_ROWS
    with Segment(pipeline, workers=0, buckets=3) as segment:
        segment.install({"fold": state})
        assert same_states(segment.state(), {"fold": state})
        segment.push(table)
        assert [row["n"] for batch in segment.batches for row in batch.to_pylist()] == [11, 12, 11]


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("names.sizes", [2, 1], "11 bytes are not 2 texts of the sizes that are given"),
        ("names", b"\xff" * 11, "can't decode byte 0xff"),
        ("some.nulls", [2], "a list of 2 elements has none at 2"),
    ],
)
def test_rows_that_are_no_list_of_a_state(column, value, text):
    pipeline = built(last_names, state=HELD)
    table = pa.table({"k": ["a", "a"], "x": [1, 4]})
    with Segment(pipeline, workers=0) as segment:
        segment.push(table)
        state = segment.state()["fold"]
    at = state.schema.get_field_index(column)
    wrong = state.set_column(at, state.schema.field(at), pa.array([value], state.schema.field(at).type))
    with Segment(pipeline, workers=0) as segment, pytest.raises(od.PlanError, match=text):
        segment.install({"fold": wrong})


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, "'last' is list<item: int8> and can't be None"),
        ([128], OverflowError, "state.last"),
        (["a"], TypeError, "state.last"),
        (7, TypeError, "state.last"),
        ("append", AttributeError, "'tuple' object has no attribute 'append'"),
    ],
)
def test_what_a_list_field_refuses(value, error, text):
    def fn(row, state, emit):
        if value == "append":
            state.last.append(1)
        state.last = value

    pipeline = od.Pipeline(DATA.schema).process(fn, schema=OUT, state=LISTS, name="fold")
    assert text in str(run_serial(pipeline, DATA).error)
    with pytest.raises(od.OperatorError) as found:
        pipeline.run(DATA)
    assert text in str(found.value)
    assert isinstance(found.value.__cause__, error)


def test_lists_that_a_state_can_t_have():
    for item in (pa.list_(pa.int64()), pa.list_(pa.string()), pa.decimal128(9, 2)):
        with pytest.raises(od.SchemaError, match=r"'last' can't be list<item: .*use scalars, lists of them"):
            built(state={"last": pa.list_(item)})
    with pytest.raises(od.SchemaError, match="a compiled function has scalars only"):
        built(state=LISTS, compiled=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_function_may_copy_its_state_but_not_make_one(way):
    def tries(row, state, emit):
        kept, deep, made = copy.copy(state), copy.deepcopy(state), type(state)()
        kept.n += 10
        assert repr(deep) == repr(state)
        for use in (repr, dir, copy.copy, lambda one: setattr(one, "n", 1)):
            with pytest.raises(TypeError, match="copy the one that it is given"):
                use(made)
        with pytest.raises((AttributeError, TypeError)):
            print(made.n)
        for one in (state, made):
            with pytest.raises(TypeError, match="take its fields"):
                pickle.dumps(one)
        state.n += 1
        emit(state.n, kept.n)

    for fields in ({"n": int}, {"n": int, "odd name": str}):
        made = od.Pipeline(DATA.schema).key_by("k").process(tries, schema={"n": int, "m": int}, state=fields)
        found = made.run(DATA, **way).table
        assert found.to_pydict() == {"n": [1, 1, 1, 2, 1], "m": [10, 10, 10, 11, 10]}

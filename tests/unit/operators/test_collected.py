"""Lists of values of any type, by `collect` and by `sessionize`; first and last lists; sums of durations."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from property.compare import agree, run_core
from state_runs import Segment, check_memory_comes_back, check_state_moves

import ordstream as od
from ordstream.testing import run_serial

POOLS = {
    "s": (pa.string(), ["", "a", "b" * 40, "ä"]),
    "z": (pa.binary(), [b"", b"\0", b"\xff" * 30]),
    "n": (pa.decimal128(9, 2), [Decimal("-1.25"), Decimal("0.00"), Decimal("9999999.99")]),
    "w": (pa.decimal128(38, 3), [Decimal("-1.250"), Decimal("0.000"), Decimal(10) ** 30 + Decimal("0.001")]),
    "i": (pa.list_(pa.int32()), [[], [1], [2, None, 3], [None]]),
    "b": (pa.list_(pa.bool_()), [[True, None, False], [], [False]]),
    "t": (pa.list_(pa.string()), [["a", None], [], ["long" * 10]]),
    "f": (pa.list_(pa.int16(), 2), [[1, 2], [None, 3]]),
    "x": (pa.binary(3), [b"abc", b"\0\0\0"]),
    "h": (pa.float16(), [0.5, -2.0]),
    "r": (pa.struct({"a": pa.int8(), "b": pa.string()}), [{"a": 1, "b": "q"}, {"a": None, "b": None}]),
    "m": (pa.map_(pa.string(), pa.float64()), [[("k", 1.5)], [], [("k", None), ("l", 2.0)]]),
    "d": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
    "u": (pa.duration("us"), [dt.timedelta(microseconds=-7), dt.timedelta(days=3)]),
}
TYPES = {name: type_ for name, (type_, _) in POOLS.items()}
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int64(), **TYPES})


def table(n, seed=1, keys=3, nulls=True):
    rng = random.Random(seed)
    now, times = 0, []
    for _ in range(n):
        now += rng.choice([0, 0, 1, 2, 7])
        times.append(now)
    columns = [pa.array(times), pa.array([rng.randrange(keys) for _ in range(n)])]
    for type_, pool in POOLS.values():
        columns.append(pa.array([rng.choice([*pool, None] if nulls else pool) for _ in range(n)], type_))
    return pa.table(columns, schema=SCHEMA)


CALLS = {
    **{f"{name}_list": od.collect(name, n) for n, name in enumerate(POOLS, 1)},
    **{f"{name}_all": od.collect(name) for name in "sib"},
    **{f"{name}_where": od.collect(name, 2, where=od.col("ts") % 3 > 0) for name in ("s", "n", "i", "r")},
    **{f"{end}_{name}": getattr(od, end)(name) for name in "ibt" for end in ("first", "last")},
    **{f"{name}_at": od.arg_max(name, "s") for name in ("i", "b", "r", "w")},
    "sum": od.sum("u"),
    "mean": od.mean("u"),
    "least": od.min("u"),
}
KINDS = {
    "scan": lambda p: p.scan(**CALLS),
    "aggregate": lambda p: p.aggregate(**CALLS),
    "final": lambda p: p.aggregate(**CALLS, emit="final"),
    "tumbling": lambda p: p.window(od.tumbling(9), time="ts").aggregate(**CALLS, emit="both"),
    "hopping": lambda p: p.window(od.hopping(12, every=5), time="ts").aggregate(**CALLS, emit="both"),
    "session": lambda p: p.window(od.session(2), time="ts").aggregate(**CALLS),
    "rolling": lambda p: p.window(od.rolling(9), time="ts").aggregate(**CALLS),
    "left": lambda p: p.window(od.rolling(9, closed="left"), time="ts").aggregate(**CALLS),
    "rows": lambda p: p.window(od.rows(4)).aggregate(**CALLS),
    "sessionize": lambda p: p.sessionize(
        "ts", 2, list(POOLS), aggregate={"sum": od.sum("u"), "mean": od.mean("u")}
    ),
}
WAYS = ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 7, "buckets": 3}, {"workers": 1})


def built(kind):
    return KINDS[kind](od.Pipeline(SCHEMA).key_by("k"))


def rows_for(kind, n, **how):
    return table(n, nulls=kind != "sessionize", **how)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thin(5)
def test_the_same_everywhere(kind):
    for rows in (0, 1, 150):
        data, pipeline = rows_for(kind, rows), built(kind)
        expected = run_serial(pipeline, data)
        for way in WAYS:
            agree(pipeline, expected, run_core(pipeline, data, **way))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "final"])
def test_their_state_moves(kind):
    check_state_moves(built(kind), rows_for(kind, 60, seed=4))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "final"])
def test_memory_comes_back(kind):
    data = rows_for(kind, 400, keys=200)
    closes_nothing = data.set_column(0, "ts", pa.array([5] * 400))
    check_memory_comes_back(built(kind), closes_nothing)


def test_long_lists_of_long_texts_of_a_session():
    """Blocks grow by more than a class at once, and a list by more than a block."""
    texts = ["t" * (3**n) for n in range(11)] * 3
    data = pa.table({"k": [n % 2 for n in range(33)], "ts": range(33), "s": texts})
    pipeline = od.Pipeline(data.schema).key_by("k").sessionize("ts", 5, {"all": "s"})
    for way in WAYS:
        assert pipeline.run(data, **way).table["all"].to_pylist() == [texts[::2], texts[1::2]]


def test_wide_offsets():
    types = {"k": pa.int64(), "ts": pa.int64(), "s": pa.large_string(), "i": pa.large_list(pa.int64())}
    columns = [[1] * 3, range(3), ["x", "y" * 100, "z"], [[7], [], [8, None]]]
    data = pa.table(columns, schema=pa.schema(types))
    keyed = od.Pipeline(data.schema).key_by("k")
    for pipeline in (
        keyed.scan(a=od.collect("s", 2), b=od.collect("i", 2), c=od.last("i"), d=od.first("i")),
        keyed.sessionize("ts", 5, ["s", "i"]),
    ):
        agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, workers=1))


def test_a_null_in_a_session_is_an_error_at_its_row():
    data = table(20)
    first = data["s"].to_pylist().index(None)
    with pytest.raises(od.OperatorError, match="null") as found:
        od.Pipeline(SCHEMA).key_by("k").sessionize("ts", 2, ["s"]).run(data)
    assert found.value.serial == first + 1


def test_what_can_not_be_collected():
    odd = pa.schema({"k": pa.int64(), "ts": pa.int64(), "e": pa.uuid()})
    keyed = od.Pipeline(odd).key_by("k")
    for make in (lambda: keyed.scan(a=od.collect("e", 2)), lambda: keyed.sessionize("ts", 1, ["e"])):
        with pytest.raises(od.SchemaError, match=r"'e' can't be collected.*keep one value with od\.last"):
            make()
    data = pa.table([[1], [1], pa.array([uuid.UUID(int=5).bytes], pa.uuid())], schema=odd)
    assert keyed.scan(a=od.last("e")).run(data).table["a"].to_pylist() == [uuid.UUID(int=5)]


@pytest.mark.parametrize(
    ("column", "bad"),
    [("last.values", b"\1\0\0"), ("last.values", (9).to_bytes(8, "little")), ("all.values", b"x" * 15)],
)
def test_a_damaged_state_is_refused(column, bad):
    pipeline = od.Pipeline(SCHEMA).key_by("k").scan(last=od.last("i"), all=od.collect("w", 3), name="s")
    with Segment(pipeline, workers=0) as segment:
        segment.push(table(30))
        state = segment.state_of("s")
    row = {**state.to_pylist()[0], column: len(bad).to_bytes(8, "little") + bad}
    with Segment(pipeline, workers=0) as segment, pytest.raises(od.PlanError, match="are cut off"):
        segment.install({"s": pa.Table.from_pylist([row], state.schema)})


def test_durations_add_up():
    lengths = [dt.timedelta(seconds=1), None, dt.timedelta(microseconds=1), dt.timedelta(microseconds=-4)]
    data = pa.table({"k": [1] * 4, "u": pa.array(lengths, pa.duration("us"))})
    pipeline = od.Pipeline(data.schema).key_by("k").scan(total=od.sum("u"), mean=od.mean("u"))
    found = pipeline.run(data).table
    assert found.schema.field("total").type == found.schema.field("mean").type == pa.duration("us")
    micro = dt.timedelta(microseconds=1)
    assert [one / micro for one in found["total"].to_pylist()] == [1e6, 1e6, 1e6 + 1, 1e6 - 3]
    assert [one / micro for one in found["mean"].to_pylist()] == [1e6, 1e6, 500_001, 333_332]
    most = pa.table({"k": [1, 1], "u": pa.array([2**63 - 1, 1], pa.int64()).cast(pa.duration("ns"))})
    with pytest.raises(od.OperatorError, match="overflow in sum"):
        od.Pipeline(most.schema).key_by("k").scan(total=od.sum("u")).run(most)


def test_what_to_do_instead():
    schema = pa.schema({"k": pa.int64(), "b": pa.bool_(), "t": pa.timestamp("us"), "p": pa.decimal128(9, 2)})
    keyed = od.Pipeline(schema).key_by("k")
    for call, message in (
        (od.sum("b"), r"sum\('b'\) is not defined for bool: .*od.count\(where=od.col\('b'\)\)"),
        (od.mean("b"), r"give it a number, such as .*od.col\('b'\).cast\(pa.int64\(\)\)"),
        (od.mean("t"), r"give it a number, such as .*od.col\('t'\).cast\(pa.int64\(\)\)"),
        (od.median("t"), r"give it a number, such as .*od.col\('t'\).cast\(pa.int64\(\)\)"),
        (od.median("p"), r"give it a float64 column, .*od.col\('p'\).cast\(pa.float64\(\)\)"),
    ):
        with pytest.raises(od.SchemaError, match=message):
            keyed.scan(a=call)
    numbers = {name: od.col(name).cast(pa.int64()) for name in "bt"}
    as_numbers = od.Pipeline(schema).with_columns(**numbers).key_by("k")
    assert as_numbers.scan(share=od.mean("b"), middle=od.mean("t")).schema.names[4:] == ["share", "middle"]


def test_collect_without_a_number_is_all_of_them():
    data = pa.table({"k": [1, 2, 1, 1, 2], "x": [5, None, 7, 5, 8]})
    keyed = od.Pipeline(data.schema).key_by("k")
    pipeline = keyed.aggregate(x=od.collect("x"), emit="final")
    assert pipeline.run(data).table.to_pylist() == [{"k": 1, "x": [5, 7, 5]}, {"k": 2, "x": [8]}]
    assert run_serial(pipeline, data).table.equals(pipeline.run(data).table)
    assert "collect(x), final" in pipeline.explain()
    with pytest.raises(od.PlanError, match=r"collect: n must be an int of at least 1, got 0"):
        od.collect("x", 0)

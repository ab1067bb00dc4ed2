"""Every type that a pipeline carries, through every kind of operator: the core against `run_serial`."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

D, T = decimal.Decimal, datetime.datetime
C = od.col

#: Six values each, nulls at every level among them.
COLUMNS: dict[str, pa.Array] = {
    "struct": pa.array(
        [{"a": 1, "b": "x"}, None, {"a": None, "b": ""}, {"a": 2**62, "b": None}, {"a": -1, "b": "ü"}, None],
        pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())]),
    ),
    "texts": pa.array([["a", None], None, [], ["c" * 40], ["d", "", "e"], [None]]),
    "lists": pa.array([[[1, None], None, []], None, [], [[2]], [None], [[None]]]),
    "structs": pa.array([[{"a": 1, "b": ["x"]}, None], None, [], [{"a": None, "b": None}], [], [None]]),
    "map": pa.array(
        [[("a", 1), ("b", None)], None, [], [("", 2)], [("a", 3)], []], pa.map_(pa.string(), pa.int16())
    ),
    "pairs": pa.array([[1, None], None, [3, 4], [5, 6], [None, None], [7, 8]], pa.list_(pa.int8(), 2)),
    "bytes": pa.array([b"abc", None, b"\0\0\0", b"xyz", b"abc", None], pa.binary(3)),
    "uuid": pa.array([uuid.UUID(int=i).bytes if i % 2 else None for i in range(6)], pa.uuid()),
    "null": pa.nulls(6),
    "half": pa.array([1.5, None, -0.0, float("inf"), 2.0, 0.25], pa.float16()),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3]), None] * 3),
    "decimal32": pa.array([D("1.20"), None] * 3, pa.decimal32(5, 2)),
    "decimal256": pa.array([D(10) ** 45, None] * 3, pa.decimal256(50, 2)),
    "decimals": pa.array(
        [[D("1.5"), None], None, [], [D("-2.5")], [None], []], pa.list_(pa.decimal128(5, 1))
    ),
    "wide": pa.array([[D("1.5"), None], None, [], [D("-2.5")], [None], []], pa.list_(pa.decimal128(30, 1))),
    "times": pa.array([[T(2020, 1, 1), None], None, [], [None], [T(1960, 1, 1)], []]),
    "numbers": pa.array([[1, None], None, [], [2**63 - 1], [None], [3, 4]]),
    "bools": pa.array([[True, None], None, [], [False], [None], [True, True]]),
    "bools inside": pa.array(
        [[[True, False], [None]], None, [], [[False, True, True], []], [None], [[True]]]
    ),
    "bools in a struct": pa.array([{"a": [True, False]}, None, {"a": [None]}, {"a": []}, {"a": None}, None]),
    "small": pa.array([[1, None], None, [], [-128], [None], [3, 4]], pa.large_list(pa.int8())),
    "deep": pa.array(
        [
            {"x": [{"y": {"z": [["q"], None]}}]},
            None,
            {"x": None},
            {"x": []},
            {"x": [None]},
            {"x": [{"y": None}]},
        ]
    ),
}

#: In other layouts; a pipeline carries them as its plain type.
LAYOUTS: dict[str, pa.Array] = {
    "dictionary inside": pa.StructArray.from_arrays(
        [pa.array(["a", None, "a", "b", "b", None]).dictionary_encode(), pa.nulls(6)], ["a", "n"]
    ),
    "view inside": pa.array([{"a": "x" * 20}, None, {"a": ""}] * 2, pa.struct([("a", pa.string_view())])),
    "large inside": pa.array([[["x"], None], None, []] * 2, pa.large_list(pa.list_(pa.large_string()))),
    "list view": pa.array([[1, 2], None, [], [3], [4], [5]], pa.list_view(pa.int64())),
    "list views inside": pa.array(
        [{"a": [1, 2]}, None, {"a": None}] * 2, pa.struct([("a", pa.list_view(pa.int64()))])
    ),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 6], ["a", None]),
    "binary view": pa.array([b"x" * 20, None, b""] * 2, pa.binary_view()),
}

STRUCTS = pa.array([{"x": 1, "y": ["a"]}, {"x": None, "y": None}, {"x": 3, "y": []}])
CODED = pa.DictionaryArray.from_arrays([0, 2, None, 1, 0, 2], STRUCTS)
RUNS = pa.RunEndEncodedArray.from_arrays([2, 3, 6], pa.array(["a", None, "b"]))
LAYOUTS |= {
    "runs in a struct": pa.StructArray.from_arrays([RUNS], ["a"]),
    "runs in lists": pa.ListArray.from_arrays([0, 1, 1, 3, 4, 5, 6], RUNS),
    "a dictionary of lists of runs": pa.DictionaryArray.from_arrays(
        [0, 1, 1, None, 0, 1], pa.ListArray.from_arrays([0, 2, 6], RUNS)
    ),
    "structs in a dictionary in views": pa.ListViewArray.from_arrays(
        [0, 3, 2, 0, 5, 1], [2, 3, 0, 6, 1, 3], CODED, mask=pa.array([False] * 5 + [True])
    ),
    "structs in a dictionary in a map": pa.MapArray.from_arrays(
        [0, 1, 1, 3, 4, 5, 6], pa.array(range(6)), CODED
    ),
    "lists of nulls in lists of one": pa.FixedSizeListArray.from_arrays(
        pa.ListArray.from_arrays([0, 0, 2, 5, 5, 6, 9], pa.nulls(9)).cast(pa.large_list(pa.null())), 1
    ),
}

Made = Callable[[Any], Any]

OPERATORS: dict[str, Made] = {
    "nothing": lambda p: p,
    "filter": lambda p: p.filter(C("ts") % 2 == 0),
    "is_not_null": lambda p: p.filter(C("v").is_not_null()),
    "select": lambda p: p.select("v", n=C("ts") + 1),
    "rename": lambda p: p.rename({"v": "w"}),
    "lag": lambda p: p.key_by("k").lag("v"),
    "lead": lambda p: p.key_by("k").lead("v"),
    "first": lambda p: p.deduplicate("k"),
    "last": lambda p: p.deduplicate("k", keep="last"),
    "within": lambda p: p.deduplicate("k", within=2, time="ts"),
    "last within": lambda p: p.deduplicate("k", keep="last", within=2, time="ts"),
    "tail": lambda p: p.key_by("k").tail(2),
    "best": lambda p: p.key_by("k").top_k(2, by="ts", emit="updates"),
    "best of all": lambda p: p.key_by("k").top_k(9, by="ts"),
    "reorder": lambda p: p.reorder("ts", slack=2),
    "window": lambda p: p.key_by("k").window(od.rolling(3), time="ts").aggregate(n=od.count()),
    "branch": lambda p: od.union(*p.branch(C("k") == 1)),
    "join": lambda p: p.join_lookup(pa.table({"k": [1, 3], "z": ["a", "b"]}), on="k", how="left"),
    "anti join": lambda p: p.join_lookup(pa.table({"k": [1, 1]}), on="k", how="anti"),
    "interval": lambda p: p.join_interval(p, on="k", within=(-2, 0), time="ts", suffix="_r"),
    "map": lambda p: p.map(lambda row: (row.k, row.v), schema={"k": int, "v": p.schema.field("v").type}),
    "map_batches": lambda p: p.map_batches(lambda batch: batch, schema=p.schema, format="arrow"),
    "twice": lambda p: p.flat_map(lambda row: [(row.v,)] * 2, schema={"v": p.schema.field("v").type}),
}

#: Not of plain lists, whose values the operators of numbers don't take.
OF_PACKED: dict[str, Made] = {
    "forward_fill": lambda p: p.key_by("k").forward_fill("v"),
    "od.last": lambda p: p.key_by("k").aggregate(x=od.last("v")),
    "od.first": lambda p: p.key_by("k").scan(x=od.first("v")),
    "arg_max": lambda p: p.key_by("k").scan(x=od.arg_max("v", "ts")),
    "tumbling": lambda p: p.key_by("k").window(od.tumbling(3), time="ts").aggregate(x=od.last("v")),
}


def table(column: pa.Array, times: int = 1) -> pa.Table:
    rows = len(column) * times
    one = pa.concat_arrays([column] * times) if times > 1 else column
    return pa.table({"k": [1 + i % 2 for i in range(rows)], "ts": range(rows), "v": one})


def check(pipeline: Any, data: pa.Table, **options: Any) -> None:
    expected = run_serial(pipeline, data).table
    found = pipeline.run(data, **options).table
    found.validate(full=True)
    assert found.schema.equals(expected.schema)
    assert repr(found.to_pylist()) == repr(expected.to_pylist())


def decoded(array: pa.Array) -> pa.Array:
    """pyarrow's values of runs at the top are those of a scalar of runs."""
    return pa.array([one.as_py() for one in array]) if pa.types.is_run_end_encoded(array.type) else array


def plain(name: str) -> bool:
    return name in ("times", "numbers", "bools", "small")


EVERY = [
    *((name, operator) for name in COLUMNS for operator in OPERATORS),
    *((name, operator) for name in COLUMNS if not plain(name) for operator in OF_PACKED),
]


@pytest.mark.parametrize(("name", "operator"), EVERY)
@pytest.mark.thin(270)
def test_every_type_through_every_operator(name, operator):
    data = table(COLUMNS[name])
    pipeline = {**OPERATORS, **OF_PACKED}[operator](od.Pipeline(data.schema))
    for workers in (0, 2):
        for rows in (1, 4, "auto"):
            check(pipeline, data, workers=workers, chunk_rows=rows)
    check(pipeline, data.slice(1, 4), workers=1)
    check(pipeline, data.slice(0, 0), workers=1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_other_layouts(name):
    data = table(LAYOUTS[name])
    for made in (OPERATORS["filter"], OPERATORS["lag"], OPERATORS["map"]):
        check(made(od.Pipeline(data.schema)), data, workers=2, chunk_rows=2)
        check(made(od.Pipeline(data.schema)), data.slice(1, 4), workers=0)
    values = decoded(LAYOUTS[name]).to_pylist()
    for given in (data, data.to_batches(), data.to_reader(), iter(data.to_batches())):
        assert od.Pipeline(data.schema).run(given).table["v"].to_pylist() == values
    rows = iter([data.slice(place, 1).to_batches()[0] for place in range(6)])
    assert od.Pipeline(data.schema).run(rows).table["v"].to_pylist() == values


@pytest.mark.thin(20)
def test_all_at_once_in_every_way(how):
    """Wide rows, many of them, in every way to run."""
    many = 300
    columns = {name: pa.concat_arrays([column] * many) for name, column in COLUMNS.items()}
    rows = 6 * many
    data = pa.table({"k": [i % 7 for i in range(rows)], "ts": range(rows), **columns})
    kept = od.Pipeline(data.schema).filter(C("ts") % 5 != 0).key_by("k").lag(list(COLUMNS))
    check(kept.deduplicate("k", within=3, time="ts"), data, **how)


@pytest.mark.parametrize(
    "name", [one for one in (*COLUMNS, *LAYOUTS) if one in ("texts", "lists", "structs", "pairs", "decimals",
             "wide", "times", "numbers", "bools", "small", "large inside", "list view")]
)  # fmt: skip
def test_explode(name):
    data = table({**COLUMNS, **LAYOUTS}[name], 40)
    pipeline = od.Pipeline(data.schema).flat_map(od.explode("v", "item", carry=["ts", "v"]))
    for rows in (1, "auto"):
        check(pipeline, data, workers=2, chunk_rows=rows)
    check(pipeline.filter(C("item").is_not_null()), data, workers=0)


@pytest.mark.parametrize(
    "name", ["texts", "lists", "structs", "pairs", "decimals", "numbers", "bools", "small"]
)
def test_length(name):
    data = table(COLUMNS[name])
    check(od.Pipeline(data.schema).with_columns(n=C("v").length()).filter(C("n") > 0), data, workers=1)


def test_pairs_are_of_what_is_there():
    data = pa.table({"v": [[3, None, 1, None], [None], None, [2, 1]]})
    pipeline = od.Pipeline(data.schema).flat_map(od.pairs("v"))
    check(pipeline, data, workers=1)
    assert pipeline.run(data).table.to_pylist() == [{"left": 1, "right": 3}, {"left": 1, "right": 2}]
    check(od.Pipeline(data.schema).flat_map(od.pairs("v", anchor=1)), data, workers=1)


@pytest.mark.parametrize("name", [one for one in COLUMNS if not plain(one)])
def test_what_nothing_computes_on(name):
    data = table(COLUMNS[name])
    pipeline = od.Pipeline(data.schema)
    refused = (
        lambda: pipeline.key_by("v").count(),
        lambda: pipeline.deduplicate("v"),
        lambda: pipeline.filter(C("v") == C("v")),
        lambda: pipeline.key_by("k").scan(x=od.min("v")),
        lambda: pipeline.key_by("k").scan(x=od.count_distinct("v")),
        lambda: pipeline.key_by("k").top_k(1, by="v"),
        lambda: pipeline.reorder("v", slack=1),
    )
    for made in refused:
        with pytest.raises((od.SchemaError, od.PlanError), match="v"):
            made()
    if name == "null":  # nothing but nulls takes the type of what it stands beside
        check(pipeline.with_columns(x=C("v") + 1), data, workers=1)
        assert pipeline.with_columns(x=C("v") + 1).run(data).table["x"].to_pylist() == [None] * len(data)
    else:
        with pytest.raises(od.SchemaError, match="v"):
            pipeline.with_columns(x=C("v") + 1)


@pytest.mark.parametrize("name", COLUMNS)
def test_state_goes_on_in_another_run(name):
    """State is stored as Arrow has it, and taken up again in another number of buckets."""
    data = table(COLUMNS[name], 3)
    for made in (OPERATORS[name] for name in ("lag", "lead", "last within", "reorder", "interval")):
        pipeline = made(od.Pipeline(data.schema))
        head = pipeline.run(data.slice(0, 7), end="suspend", workers=2, buckets=4)
        rest = pipeline.run(data.slice(7), restore=head.snapshot, workers=1, buckets=3)
        together = [*head.table.to_pylist(), *rest.table.to_pylist()]
        assert repr(together) == repr(run_serial(pipeline, data).table.to_pylist())


def decimals_before() -> tuple[Any, pa.Table]:
    rows = 30
    data = pa.table({"k": [i % 3 for i in range(rows)], "v": pa.array([D(i) / 4 for i in range(rows)], D92)})
    return od.Pipeline(data.schema).key_by("k").preceding(2, {"before": "v"}, carry=["v"]), data


D92 = pa.decimal128(9, 2)


def test_an_operators_own_list_of_decimals_is_stored():
    """It is no packed value: the kernel fills it."""
    pipeline, data = decimals_before()
    expected = run_serial(pipeline, data).table.to_pylist()
    head = pipeline.run(data.slice(0, 14), end="suspend", workers=2)
    rest = pipeline.run(data.slice(14), restore=head.snapshot, workers=1, buckets=2)
    assert [*head.table.to_pylist(), *rest.table.to_pylist()] == expected


def test_an_older_versions_list_of_decimals_is_taken():
    pipeline, _ = decimals_before()
    operator = pipeline.plan.operators[-1]
    wanted = operator.state_schema()
    older = pa.schema([(f.name, pa.list_(D92) if f.name == "v" else f.type) for f in wanted])
    assert not older.equals(wanted)
    stored = pa.record_batch([[1], [[D("1.25"), D("0")]], [None]], schema=older)
    adapt = operator.adapt_state(operator.state_identity(), older)
    assert adapt(stored).schema.equals(wanted)
    assert adapt(stored).to_pylist() == stored.to_pylist()
    other = pa.schema([(f.name, pa.list_(pa.decimal128(9, 3)) if f.name == "v" else f.type) for f in wanted])
    with pytest.raises(od.CheckpointError, match="v: list<item: decimal128"):
        operator.adapt_state(operator.state_identity(), other)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_failing_row_is_told(name):
    """With its values; what no operator reads and a copy did not take along is shown as null, or empty."""
    data = table(COLUMNS[name], 3)
    fails = od.lit(1) // (C("ts") - 4) > -9
    for made in (OPERATORS["nothing"], OPERATORS["lag"], OPERATORS["map"]):
        pipeline = made(od.Pipeline(data.schema))
        ts = "ts" if "ts" in pipeline.schema.names else "k"
        for workers in (0, 2):
            with pytest.raises(od.OperatorError) as caught:
                pipeline.filter(fails if ts == "ts" else od.lit(1) // (C("k") - 2) > 0).run(
                    data, workers=workers
                )
            row = COLUMNS[name][caught.value.serial - 1].as_py()
            assert repr(caught.value.row["v"]) == repr(row)
    exploded = pa.table({"items": [[0, 4]] * 18, "v": data["v"]})
    pipeline = od.Pipeline(exploded.schema).flat_map(od.explode("items", carry=["v"]))
    pipeline = pipeline.select("items", x=od.lit(1) // C("items"))
    with pytest.raises(od.OperatorError, match="zero"):
        pipeline.run(exploded, workers=1)


@pytest.mark.parametrize("name", COLUMNS)
def test_several_sources_and_outputs(name):
    """Columns that one source has not, rows that fail, and late ones."""
    data = table(COLUMNS[name])
    other = pa.table({"ts": [1, 3, 4], "w": ["a", "b", "c"]})
    a = od.Pipeline(data.schema, source="a")
    b = od.Pipeline(other.schema, source="b").filter(C("ts") > 0)
    made = a.map(lambda row: (1 // (row.ts % 2), row.v), schema={"x": int, "v": data.schema.field("v").type},
                 on_error="dead_letter", name="halves")  # fmt: skip
    outputs = {"good": made, "bad": made.side_output("halves"), "other": b}
    given = {"a": data, "b": other}
    expected = run_serial(made, given, merge_by="ts", outputs=outputs).outputs
    for workers in (0, 2):
        found = made.run(given, merge_by="ts", outputs=outputs, workers=workers)
        for output, rows in found.items():
            rows.validate(full=True)
            wanted = expected[output].select(rows.schema.names)
            assert repr(rows.to_pylist()) == repr(wanted.to_pylist()), output
        assert found["bad"].num_rows == found["good"].num_rows == 3


@pytest.mark.parametrize("name", COLUMNS)
def test_late_rows(name):
    data = table(COLUMNS[name]).take([3, 0, 1, 5, 2, 4])
    made = od.Pipeline(data.schema).reorder("ts", slack=1, late="side_output", name="order")
    outputs = {"rows": made, "late": made.side_output("order")}
    expected = run_serial(made, data, outputs=outputs).outputs
    found = made.run(data, outputs=outputs, workers=2)
    assert found["late"].num_rows == 3
    for output, rows in found.items():
        wanted = expected[output].select(rows.schema.names)
        assert repr(rows.to_pylist()) == repr(wanted.to_pylist()), output

"""join_lookup: its meaning on a few rows, any key, any Arrow table; Polars' and DuckDB's answers on many."""

from __future__ import annotations

import datetime
import math
import pickle

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from state_runs import exact_rows
from unit.kernel_check import ROWS, check, pipeline

import ordstream as od
from ordstream.testing import run_serial

SALES = pa.table({"row": [0, 1, 2, 3, 4], "item": [7, 8, None, 9, 7], "shop": ["a", "b", "a", None, "é"]})
ITEMS = pa.table({"item": [8, 7, None], "name": ["tea", "milk", "nothing"], "price": [None, 1.5, 0.0]})


def checked(made: od.Pipeline, data: pa.Table) -> list[dict]:
    """The rows that every run gives, with their tags."""
    expected = run_serial(made, data)
    for workers, size in ((0, 1), (1, 3), (2, 64), (0, None)):
        found = made.run(data, workers=workers, chunk_rows=size, tags=True).table
        rows = exact_rows([found.drop(["_serial", "_index"])], made.schema)
        assert rows == exact_rows([expected.table], made.schema)
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
    return found.to_pylist()


def shown(rows: list[dict], *names: str) -> list[tuple]:
    """Some columns of rows."""
    return [tuple(row[name] for name in names) for row in rows]


def sales() -> od.Pipeline:
    return od.Pipeline(SALES.schema)


def test_inner_gives_tuples_with_a_row_and_left_gives_all():
    rows = checked(sales().join_lookup(ITEMS, "item"), SALES)
    assert [(r["row"], r["name"], r["price"]) for r in rows] == [
        (0, "milk", 1.5),
        (1, "tea", None),
        (4, "milk", 1.5),
    ]
    rows = checked(sales().join_lookup(ITEMS, on="item", how="left"), SALES)
    assert [(r["row"], r["name"]) for r in rows] == [
        (0, "milk"),
        (1, "tea"),
        (2, None),
        (3, None),
        (4, "milk"),
    ]
    assert list(rows[0]) == ["row", "item", "shop", "name", "price", "_serial", "_index"]


def test_a_key_that_the_table_has_twice_gives_a_row_each_in_the_order_of_the_table():
    names = pa.table({"item": [7, 9, 7, 7], "name": ["x", "y", "z", None]})
    rows = checked(sales().join_lookup(names, "item", "left"), SALES)
    assert [(r["row"], r["name"], r["_index"]) for r in rows] == [
        *((0, "x", 0), (0, "z", 1), (0, None, 2), (1, None, 0), (2, None, 0), (3, "y", 0)),
        *((4, "x", 0), (4, "z", 1), (4, None, 2)),
    ]
    assert [r["row"] for r in checked(sales().join_lookup(names, "item"), SALES)] == [0, 0, 0, 3, 4, 4, 4]
    with pytest.raises(od.PlanError, match=r"validate='m:1'.* the key item 7 twice, in the rows 0 and 2"):
        sales().join_lookup(names, "item", validate="m:1")
    two = pa.table({"item": [7, None, None, 7], "shop": ["a", "b", "b", "é"]})
    sales().join_lookup(two, ["item", "shop"], validate="m:1")


def test_names_that_differ_and_names_that_clash():
    table = pa.table({"id": [7], "branch": ["é"], "row": [-1]})
    made = sales().join_lookup(table, {"item": "id", "shop": "branch"})
    assert checked(made, SALES) == [
        {"row": 4, "item": 7, "shop": "é", "row_right": -1, "_serial": 5, "_index": 0}
    ]
    assert sales().join_lookup(table, {"item": "id"}, suffix="_of_it").schema.names[-2:] == [
        "branch",
        "row_of_it",
    ]
    with pytest.raises(od.SchemaError, match=r"'row' would be called 'row_right'.*another suffix="):
        made.join_lookup(table, {"item": "id"})
    assert "join_lookup inner on item = id, shop = branch, a table of 1 rows: row_right" in made.explain()


def test_a_table_of_keys_alone_keeps_or_passes_tuples():
    keys = pa.table({"item": [9, 8]})
    assert [r["row"] for r in checked(sales().join_lookup(keys, "item"), SALES)] == [1, 3]
    assert len(checked(sales().join_lookup(keys, "item", "left"), SALES)) == 5


def test_semi_keeps_tuples_with_a_row_and_anti_the_others():
    twice = pa.concat_tables([ITEMS, ITEMS])
    for table in (ITEMS, twice, twice.append_column("row", twice["item"])):
        rows = checked(sales().join_lookup(table, "item", "semi"), SALES)
        assert shown(rows, "row", "_serial", "_index") == [(0, 1, 0), (1, 2, 0), (4, 5, 0)]
        assert list(rows[0]) == ["row", "item", "shop", "_serial", "_index"]
        rows = checked(sales().join_lookup(table, on="item", how="anti"), SALES)
        assert shown(rows, "row", "item") == [(2, None), (3, 9)]  # null equals nothing
    both = pa.table({"branch": ["é", "a", None], "item": [7, None, 9]})
    on = {"shop": "branch", "item": "item"}
    made = sales().join_lookup(both, on, "semi")
    assert shown(checked(made, SALES), "row") == [(4,)]
    assert shown(checked(sales().join_lookup(both, on, "anti"), SALES), "row") == [(0,), (1,), (2,), (3,)]
    assert "join_lookup semi on shop = branch, item, a table of 3 rows\n" in made.explain() + "\n"


def test_other_columns_of_the_table_are_nothing_to_semi_and_anti():
    union = ITEMS.append_column("s", pa.chunked_array([pa.concat_arrays([UNION] * 3)]))
    assert len(checked(sales().join_lookup(union, "item", "semi"), SALES)) == 3
    with pytest.raises(od.PlanError, match="the key item 7 twice, in the rows 0 and 1"):
        sales().join_lookup(pa.table({"item": [7, 7]}), "item", "semi", validate="m:1")


def test_an_empty_table_and_an_empty_stream():
    empty = ITEMS.slice(0, 0)
    assert checked(sales().join_lookup(empty, "item"), SALES) == []
    assert [r["name"] for r in checked(sales().join_lookup(empty, "item", "left"), SALES)] == [None] * 5
    assert checked(sales().join_lookup(empty, "item", "semi"), SALES) == []
    assert len(checked(sales().join_lookup(empty, "item", "anti"), SALES)) == 5
    assert checked(sales().join_lookup(ITEMS, "item", "left"), SALES.slice(0, 0)) == []


KEYS = {
    "int8": (pa.int8(), [1, -128]), "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "bool": (pa.bool_(), [True, False]),
    "float": (pa.float64(), [-0.0, math.nan]), "float32": (pa.float32(), [0.5, math.nan]),
    "string": (pa.string(), ["", "ключ"]), "large": (pa.large_string(), ["a\0", "a"]),
    "binary": (pa.binary(), [b"", b"\xff"]), "date": (pa.date32(), [datetime.date(2020, 2, 29)] * 2),
    "time": (pa.time64("ns"), [1, 2]), "instant": (pa.timestamp("us", "UTC"), [0, -1]),
    "duration": (pa.duration("ms"), [5, 6]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEYS)
def test_any_key(kind):
    type_, (one, other) = KEYS[kind]
    data = pa.table({"k": pa.array([one, other, None, one], type_)})
    table = pa.table({"k": pa.array([one, None], type_), "v": [1, 2]})
    found = [r["v"] for r in checked(od.Pipeline(data.schema).join_lookup(table, "k", "left"), data)]
    assert found == [1, 1 if one == other else None, None, 1]
    for how in ("semi", "anti"):
        kept = checked(od.Pipeline(data.schema).join_lookup(table, "k", how), data)
        assert [r["_serial"] for r in kept] == [i + 1 for i in range(4) if bool(found[i]) == (how == "semi")]


def test_zero_and_minus_zero_are_one_key_and_so_is_nan():
    data = pa.table({"k": [0.0, -0.0, math.nan, 1.0]})
    table = pa.table({"k": [-0.0, math.nan], "v": [1, 2]})
    assert [r["v"] for r in checked(od.Pipeline(data.schema).join_lookup(table, "k"), data)] == [1, 1, 2]


def test_integers_of_any_width_are_compared_by_value_and_other_types_are_refused():
    table = pa.table({"item": pa.array([9, 7], pa.uint8()), "v": [1, 2]})
    assert [r["v"] for r in checked(sales().join_lookup(table, "item"), SALES)] == [2, 1, 2]
    small = od.Pipeline({"item": pa.decimal128(3, 1)})
    with pytest.raises(od.SchemaError, match=r"'item' of the table is decimal128\(9, 1\), and has values"):
        small.join_lookup(pa.table({"item": pa.array([1000], pa.decimal128(9, 1))}), "item")
    with pytest.raises(od.SchemaError, match=r"'item' is int64, 'item' of the table is double.*cast one of"):
        sales().join_lookup(pa.table({"item": [1.0]}), "item")
    times = od.Pipeline({"t": pa.timestamp("us", "UTC")})
    times.join_lookup(pa.table({"t": pa.array([0], pa.timestamp("us", "Europe/Rome"))}), "t")
    for other in (pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.int64()):
        with pytest.raises(od.SchemaError, match="cast one of them"):
            times.join_lookup(pa.table({"t": pa.array([0], other)}), "t")


@pytest.mark.parametrize(
    "kind", ["polars", "duckdb", "batch", "reader", "dictionary", "view", "slice", "chunked"]
)
def test_any_arrow_table(kind):
    whole = pa.table({"item": [8, 7], "name": ["tea", "milk"], "l": [[1], []]})
    tables = {
        "polars": lambda: pl.from_arrow(whole),
        "duckdb": lambda: duckdb.from_arrow(whole),
        "batch": lambda: whole.to_batches()[0],
        "reader": lambda: whole.to_reader(),
        "dictionary": lambda: whole.set_column(1, "name", whole["name"].dictionary_encode()),
        "view": lambda: whole.set_column(1, "name", whole["name"].cast(pa.string_view())),
        "slice": lambda: pa.concat_tables([whole] * 3).combine_chunks().slice(2, 2),
        "chunked": lambda: pa.concat_tables([whole.slice(1), whole.slice(0, 1)]),
    }
    made = sales().join_lookup(tables[kind](), "item")
    assert [(r["name"], r["l"]) for r in checked(made, SALES)] == [("milk", []), ("tea", [1]), ("milk", [])]
    assert made.schema.field("name").type == pa.string()
    assert pickle.loads(pickle.dumps(made)).run(SALES).table.equals(made.run(SALES).table)


def encoded(values: pa.Array) -> pa.Array:
    """As a dictionary, which may hold what `dictionary_encode` doesn't take."""
    return pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1], pa.uint8()).take([1, 3, 0]), values)


INTS, TEXTS = pa.array([[1], [2, 2], []], pa.list_(pa.int64())), pa.array(["a", "bb", "é" * 9])
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), TEXTS.cast(pa.string_view())[:2])


@pytest.mark.parametrize(
    "column",
    [
        TEXTS.cast(pa.binary()).cast(pa.binary_view()),
        encoded(TEXTS.cast(pa.string_view())),  # Polars has categories and enums so
        encoded(TEXTS.cast(pa.binary()).cast(pa.binary_view())),
        encoded(INTS),
        encoded(pa.array([{"n": 1}, {"n": None}, None])),
        RUNS,
        pa.array(INTS.to_pylist(), pa.large_list_view(pa.int64())),
        pa.ListArray.from_arrays([0, 2, 2, 3], encoded(pa.array([4, 5, 6]))),
        pa.LargeListArray.from_arrays([0, 0, 2, 3], encoded(TEXTS)),
    ],
    ids=lambda column: str(column.type),
)
@pytest.mark.parametrize("chunks", ["none", "one", "two"])
def test_a_column_in_any_layout(column, chunks):
    table = pa.table({"i": [0, 1, 2], "x": column})
    if chunks == "two":
        table = pa.concat_tables([table.slice(2), table.slice(0, 2)])
    if chunks == "none":
        table = pa.Table.from_batches([], schema=table.schema)
    rows = pa.table({"i": [2, 0, 1, 7]})
    joined = od.Pipeline(rows.schema).join_lookup(table, on="i", how="left")
    known = dict(zip(table["i"].to_pylist(), table["x"].to_pylist(), strict=True))
    for result in (joined.run(rows), run_serial(joined, rows)):
        assert result.table["x"].to_pylist() == [known.get(i) for i in (2, 0, 1, 7)]


def test_a_key_in_a_layout_of_polars():
    table = pl.DataFrame(
        {"c": ["a", "b"], "b": [b"x", b"y"], "n": [1, 2]},
        schema={"c": pl.Categorical, "b": pl.Binary, "n": pl.Int8},
    )
    rows = pa.table({"c": ["b", "a", "b"], "b": [b"y", b"x", b"x"]})
    joined = od.Pipeline(rows.schema).join_lookup(table, on=["c", "b"], how="left")
    assert joined.run(rows).table["n"].to_pylist() == [2, 1, None]
    assert run_serial(joined, rows).table["n"].to_pylist() == [2, 1, None]


def test_a_slice_of_a_table_travels_without_the_rest():
    long = pa.table({"item": np.arange(200_000), "name": np.arange(200_000).astype(str)})
    made = sales().join_lookup(long.slice(7, 3), "item")
    assert len(pickle.dumps(made)) < 10_000


UNION = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"item": [1]}, "item"), "an Arrow table is needed .*got dict"),
        ((ITEMS, "nme"), "unknown column 'nme'"),
        ((ITEMS, {"item": "nme"}), "join_lookup_1, the table.*Did you mean 'name'"),
        ((ITEMS, []), "at least one key column"),
        ((ITEMS, {"item": "item", "row": "item"}), "named twice"),
        ((ITEMS, "item", "outer"), "how must be 'inner', 'left', 'semi' or 'anti', got 'outer'$"),
        ((ITEMS, "item", "left_anti"), "got 'left_anti'; write how='anti'"),
        ((pa.table([[7], [1], [2]], names=["item", "x", "x"]), "item"), "the table: duplicate column name"),
        (
            (pa.table({"item": [7], "s": UNION}), "item"),
            r"'s': type sparse_union.*table.drop_columns\(\['s'\]\)",
        ),
        ((ITEMS.append_column("row", ITEMS["item"]), "item", "left"), None),
    ],
)
def test_mistakes_are_told(arguments, message):
    if message is None:
        assert sales().join_lookup(*arguments).schema.names[-1] == "row_right"
        return
    with pytest.raises((od.PlanError, od.SchemaError), match=message):
        sales().join_lookup(*arguments)


def test_a_decimal_of_many_digits_is_shown_and_a_key():
    cents = pa.array([1, 2], pa.decimal128(29, 2))
    table = pa.table({"item": [7, 8], "cents": cents})
    made = sales().join_lookup(table, "item")
    assert [r["cents"] for r in checked(made, SALES)] == [
        cents[0].as_py(),
        cents[1].as_py(),
        cents[0].as_py(),
    ]
    back = made.join_lookup(table.rename_columns(["i", "cents"]), "cents")
    assert [row["i"] for row in checked(back, SALES)] == [7, 8, 7]


SIDE = pa.table({
    "j": pa.array([0, 1, -1, 2, 1, None], pa.int32()),
    "s": ["a", "b", None, "", "a", "a"],
    "x": [1.5, None, 2.0, 3.0, 4.0, 5.0],
    "l": pa.array([[1], None, [2, 3], [], [4], [5]], pa.list_(pa.int64())),
})  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(rows=ROWS)
def test_the_kernel_equals_the_reference(rows):
    for how in ("inner", "left", "semi", "anti"):
        check(pipeline().join_lookup(SIDE, ["j", "s"], how), rows)
        check(pipeline().join_lookup(SIDE, "j", how), rows)
        check(pipeline().join_lookup(SIDE, "s", how), rows)


def many(n: int = 20_000) -> tuple[pa.Table, pa.Table]:
    """Tuples and a table with keys that either lacks."""
    rng = np.random.default_rng(3)
    data = pa.table(
        {"row": np.arange(n), "a": rng.integers(0, 9000, n), "b": rng.integers(0, 3, n).astype(str)}
    )
    m = n // 2
    keys = {"a": rng.integers(0, 12_000, m), "b": rng.integers(0, 3, m).astype(str)}
    return data, pa.table({**keys, "at": np.arange(m), "text": np.arange(m).astype(str)})


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("on", ["a", ["a", "b"]])
def test_the_answers_of_polars_and_duckdb(how, on):
    data, table = many()
    found = od.Pipeline(data.schema).join_lookup(table, on, how).run(data, workers=2).table
    frame = pl.from_arrow(data).join(pl.from_arrow(table), on=on, how=how, maintain_order="left_right")
    assert found.equals(frame.select(found.schema.names).to_arrow().cast(found.schema))
    keys = [on] if isinstance(on, str) else on
    others = [name for name in table.schema.names if name not in keys]
    columns = ", ".join(f't."{n}"' + f' as "{n}_right"' * (n in data.schema.names) for n in others)
    same = " and ".join(f"d.{key} = t.{key}" for key in keys)
    query = f'select d.*, {columns} from data d {how} join "table" t on {same} order by d.row, t.at'
    connection = duckdb.connect()
    connection.register("data", data)
    connection.register("table", table)
    assert found.equals(connection.sql(query).to_arrow_table().cast(found.schema))


@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("on", ["a", ["a", "b"]])
def test_tuples_that_polars_and_duckdb_keep(how, on):
    data, table = many()
    holes = pa.array(np.arange(len(data)) % 7 == 0)
    data = data.set_column(1, "a", pc.if_else(holes, None, data["a"]))
    table = table.set_column(0, "a", pc.if_else(holes.slice(0, len(table)), None, table["a"]))
    found = od.Pipeline(data.schema).join_lookup(table, on, how).run(data, workers=2).table
    assert 1000 < len(found) < len(data) - 1000
    frame = pl.from_arrow(data).join(pl.from_arrow(table), on=on, how=how, maintain_order="left")
    assert found.equals(frame.to_arrow().cast(found.schema))
    same = " and ".join(f"d.{key} = t.{key}" for key in ([on] if isinstance(on, str) else on))
    connection = duckdb.connect()
    connection.register("data", data)
    connection.register("table", table)
    joined = connection.sql(f'select d.* from data d {how} join "table" t on {same} order by d.row')
    assert found.equals(joined.to_arrow_table().cast(found.schema))


@pytest.mark.parametrize("key", [pa.int64(), pa.int32()], ids=str)
def test_keys_of_one_hash_are_told_apart(key):
    """Of so many keys some share all 32 bits of the hash that the index keeps: about nine pairs."""
    n = 200_000
    table = pa.table({"k": pa.array(np.arange(n) * 2, key), "v": pa.array(np.arange(n))})
    others = pa.table({"k": pa.array(np.arange(n) * 2 + 1, key)})
    assert od.Pipeline(others.schema).join_lookup(table, "k").run(others, workers=1).table.num_rows == 0
    found = od.Pipeline(others.schema).join_lookup(table, "k").run(table.select(["k"]), workers=1).table
    assert found["v"].to_pylist() == list(range(n))
    for kept, rows in (("semi", 0), ("anti", n)):
        assert od.Pipeline(others.schema).join_lookup(table, "k", kept).run(others).table.num_rows == rows


@pytest.mark.parametrize("kind", ["empty slices", "lists without elements"])
def test_batches_that_arrow_does_not_join(kind):
    """Slices of a batch, and of lists, which have lost buffers on their way into the table."""
    if kind == "empty slices":
        batch = pa.record_batch({"i": [0, 1, 2], "x": [10, 20, 30]})
        table = pa.Table.from_batches([batch.slice(0, 2), batch.slice(2, 0), batch.slice(2)])
    else:
        offsets = pa.array([0, 0], pa.int32()).buffers()[1]
        behind = pa.array([7, 8, 9]).slice(2, 0)
        lists = pa.Array.from_buffers(pa.list_(pa.int64()), 1, [None, offsets], children=[behind])
        table = pa.table({"i": [0, 1], "x": pa.chunked_array([lists, pa.array([[1]])])})
    rows = pa.table({"i": [1, 0]})
    joined = od.Pipeline(rows.schema).join_lookup(table, on="i")
    expected = [table["x"].to_pylist()[i] for i in (1, 0)]
    for result in (joined.run(rows), run_serial(joined, rows)):
        assert result.table["x"].to_pylist() == expected


@pytest.mark.parametrize(
    "tuples", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()], ids=str
)
@pytest.mark.parametrize("of_table", [pa.int8(), pa.uint16(), pa.int64(), pa.uint64()], ids=str)
def test_a_key_that_no_tuple_can_have_matches_nothing(tuples, of_table):
    def some(type_):
        bits = type_.bit_width - pa.types.is_signed_integer(type_)
        return [0, 1, 2**bits - 1] + ([-1, -(2**bits)] if pa.types.is_signed_integer(type_) else [])

    keys = [*some(of_table), None]
    table = pa.table({"k": pa.array(keys, of_table), "v": range(len(keys))})
    rows = pa.table({"k": pa.array([*some(tuples), None], tuples)})
    expected = [keys.index(k) if k is not None and k in keys else None for k in rows["k"].to_pylist()]
    joined = od.Pipeline(rows.schema).join_lookup(table, "k", "left", validate="m:1")
    for result in (joined.run(rows), run_serial(joined, rows)):
        assert result.table["v"].to_pylist() == expected


@pytest.mark.parametrize("type_", [pa.string_view(), pa.binary_view(), pa.string(), pa.int8()], ids=str)
def test_a_key_of_nothing_but_nulls_is_in_no_tuple(type_):
    rows = pa.table({"k": pa.array([None, None], type_), "x": [1, 2]})
    table = pa.table({"k": pa.nulls(3), "v": [7, 8, 9]})
    joined = od.Pipeline(rows.schema).join_lookup(table, on="k", how="left")
    for found in (joined.run(rows, workers=1).table, run_serial(joined, rows).table):
        assert found["v"].to_pylist() == [None, None]

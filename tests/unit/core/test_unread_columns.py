"""Columns that no operator looks at: read from the source's own buffers, and only for rows that are left.
Behind operators with and without state, and in graphs.

Every table is compared, unsorted, with what plain Python makes of it (`run_serial`).
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream._core.lab import testing_run
from ordstream.plan.physical import physical
from ordstream.testing import run_serial

C = od.col
ROWS = 9_000


def rows_of(n: int) -> pa.Table:
    """Columns in each layout of the source's that may pass unread, and in two that may not (decimals)."""
    row = np.arange(n)
    numbers = row.tolist()
    texts = [
        None if i % 11 == 0 else "x" * (i % 20) + ("long " * 30 if i % 97 == 0 else "") for i in numbers
    ]
    under_null = pa.StringArray.from_buffers(  # nulls that have bytes
        n,
        pa.py_buffer(np.arange(0, 5 * n + 1, 5, dtype=np.int32)),
        pa.py_buffer(b"abcde" * n),
        pa.py_buffer(np.packbits(row % 3 != 0, bitorder="little")),
    )
    return pa.table({
        "row": pa.array(row),
        "small": pa.array(row % 100, pa.int8()),
        "ts": pa.array(row * 7, pa.timestamp("ms")),
        "hole": pa.array(row, mask=row % 3 == 0),
        "flag": pa.array(row % 5 == 0),
        "hole_flag": pa.array(row % 5 == 0, mask=row % 7 == 0),
        "s": pa.array(texts),
        "full": pa.array([f"{i:o}" for i in numbers]),
        "under_null": under_null,
        "empty": pa.array([""] * n),
        "large": pa.array(texts, pa.large_string()),
        "b": pa.array([str(i).encode() for i in numbers], pa.binary()),
        "word": pa.array([f"word {i % 7}" for i in numbers]).dictionary_encode(),
        "items": pa.array([None if i % 13 == 0 else [i] * (i % 4) for i in numbers], pa.list_(pa.int64())),
        "shorts": pa.array([[i % 50] * (i % 3) for i in numbers], pa.large_list(pa.int16())),
        "flags": pa.array([[i % 2 == 0] * (i % 3) for i in numbers], pa.list_(pa.bool_())),
        "price": pa.array([i % 100 for i in numbers], pa.int64()).cast(pa.decimal128(19, 0)),
        "wide": pa.array([i % 100 for i in numbers], pa.int64()).cast(pa.decimal128(30, 2)),
        "nested": pa.array([None if i % 17 == 0 else {"a": i, "b": [str(i)] * (i % 3)} for i in numbers],
                           pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        "map": pa.array([[("k", i)] * (i % 2) for i in numbers], pa.map_(pa.string(), pa.int64())),
    })  # fmt: skip


DATA = rows_of(ROWS)
HASHED = C("row") * 2_654_435_761 % 1_000
PIPELINES = {
    "rename": lambda p: p.rename({"s": "text"}),
    "all": lambda p: p.filter(C("row") >= 0),
    "every second": lambda p: p.filter(C("row") % 2 == 0),
    "at random": lambda p: p.filter(HASHED < 500),
    "few": lambda p: p.filter(HASHED < 20),
    "none": lambda p: p.filter(C("row") < 0),
    "some in the middle": lambda p: p.filter((C("row") < 5_000) | (C("row") > 5_010)),
    "a column twice": lambda p: p.select("s", "row", t="s", u="items").filter(C("row") % 3 > 0),
    "in another order": lambda p: p.select(*reversed(DATA.column_names)).filter(HASHED < 700),
    "read, then dropped": lambda p: p.filter(C("s").str.contains("xx")).drop("s", "large"),
    "computed beside": lambda p: p.with_columns(a=C("row") + 1).filter(C("a") % 2 == 0),
    "sample": lambda p: p.sample(0.3),
    "asserted": lambda p: p.assert_that(C("row") >= 0).filter(HASHED < 300),
    "only nulls are tested": lambda p: p.filter(C("hole").is_null()),
    "replaced": lambda p: p.with_columns(s=C("row")).filter(HASHED < 300),
}
NAMES = pa.table({"small": range(0, 100, 2), "name": [f"name of {i}" for i in range(0, 100, 2)]})
TWICE = pa.concat_tables([NAMES, NAMES.slice(5)])


def keyed(pipeline):
    return pipeline.key_by("small")


def ways(pipeline, **made):
    """A branch whose first way has one more column, computed, and both united."""
    hit, miss = pipeline.branch(HASHED < 400)
    return od.union(hit.with_columns(way=C("row") + 1), miss.with_columns(way=-C("row")))


def as_of(pipeline, key):
    """Each row of one way with the last of the other."""
    left, right = pipeline.branch(HASHED < 600)
    return left.join_asof(right.select(key, "row", "hole", "full", "ts"), on=key, time="ts")


def times(pipeline, function):
    """Every row goes both ways."""
    return od.union(pipeline, function(pipeline))


BEHIND_STATES = {
    "running sum": lambda p: keyed(p).cum_sum("row", "total"),
    "of some": lambda p: keyed(p.filter(HASHED < 300)).cum_count("n").filter(C("n") % 2 == 0),
    "strings ahead": lambda p: keyed(p).scan(longest=od.max("s"), first=od.first("b")),
    "one state": lambda p: p.scan(total=od.sum("row")),
    "lag": lambda p: keyed(p).lag({"before": "row"}),
    "lag of strings": lambda p: keyed(p).lag({"before": "s"}, 2),
    "difference": lambda p: keyed(p).diff("row"),
    "first of each": lambda p: keyed(p).head(3),
    "no repetition": lambda p: p.deduplicate(["small", "flag"]),
    "now and then": lambda p: p.deduplicate("small", within="5s", time="ts"),
    "filled in place": lambda p: keyed(p).forward_fill("hole"),
    "filled anew": lambda p: keyed(p).forward_fill("under_null", "hole"),
    "last rows": lambda p: keyed(p).window(od.rows(3)).aggregate(a=od.sum("row")),
    "last rows of strings": lambda p: keyed(p).window(od.rows(3)).aggregate(a=od.max("full")),
    "a span": lambda p: keyed(p).window(od.rolling("2s"), time="ts").aggregate(a=od.count()),
    "a computed clock": lambda p: keyed(p.with_columns(t=C("ts") + od.lit(5).cast(pa.duration("ms"))))
        .window(od.rolling("2s"), time="t").aggregate(a=od.count()),
    "before": lambda p: keyed(p).preceding(2, {"a": "row"}, carry=["row", "s", "items", "nested"]),
    "in order": lambda p: p.assert_ordered("row").filter(HASHED < 500),
    "two keys": lambda p: keyed(p.key_by("flag").cum_count("m")).cum_sum("m").key_by("full").head(1),
}  # fmt: skip
MADE_ANEW = {
    "exploded": lambda p: p.flat_map(od.explode("items", "item", carry=DATA.column_names)),
    "exploded, kept": lambda p: p.flat_map(od.explode("shorts", "i", carry=["s", "row", "map"]))
        .filter(C("i") > 9),
    "nested ahead": lambda p: p.with_columns(b=C("nested").struct.field("b"))
        .flat_map(od.explode("b", "one", carry=["row", "s", "hole", "nested", "map"])),
    "pairs": lambda p: p.flat_map(od.pairs("shorts", carry=["row", "s", "items", "under_null"])),
    "a function": lambda p: p.filter(lambda row: row.row % 3 == 1),
    "looked at": lambda p: p.inspect(lambda row: row.row + 1).filter(HASHED < 700),
    "as of": lambda p: as_of(p, "small"),
    "as of, keys of floats": lambda p: as_of(p.with_columns(f=C("small").cast(float)), "f"),
    "looked up": lambda p: p.join_lookup(NAMES, "small"),
    "looked up, all": lambda p: p.join_lookup(NAMES, "small", how="left"),
    "looked up twice": lambda p: p.join_lookup(TWICE, "small").filter(HASHED < 500),
    "not in a table": lambda p: p.join_lookup(NAMES, "small", how="anti"),
    "two ways": ways,
    "two ways, few left": lambda p: ways(p.filter(HASHED % 100 < 7)),
    "two ways, states": lambda p: keyed(ways(p)).cum_sum("way", "total"),
    "every row twice": lambda p: times(p, lambda q: q.filter(C("row") % 2 == 0)),
    "one way exploded": lambda p: times(
        p.select("row", "s", "nested", item=C("row")),
        lambda q: p.flat_map(od.explode("items", "item", carry=["row", "s", "nested"]))),
    "ways in ways": lambda p: ways(times(p, lambda q: ways(q).drop("way").filter(C("flag")))),
    "some have no column": lambda p: od.union(
        p.filter(HASHED < 500).drop("s", "items"), p.filter(HASHED >= 500), how="diagonal"),
    "another in its place": lambda p: od.union(
        *(f(one) for f, one in zip((lambda a: a, lambda b: b.with_columns(s=C("full"))),
                                   p.branch(HASHED < 500), strict=True))),
}  # fmt: skip


class Limit:
    """A method of an object is a function too."""

    def holds(self, row):
        return row["row"] % 3 == 0


def counted(row, state, emit):
    state.n += row.row
    emit(row.hole, state.n)


def with_letters(kept):
    return od.union(kept, kept.side_output(), how="diagonal")


COUNTED = {"schema": {"hole": pa.int64(), "n": pa.int64()}, "state": {"n": pa.int64()}}
BEHIND_FUNCTIONS = {
    "of texts": lambda p: p.filter(lambda row: row.s is not None and "xx" in row.s),
    "of nothing": lambda p: p.filter(lambda row: True),
    "of the whole row": lambda p: p.filter(lambda row: len(row) == len(DATA.column_names)),
    "a method": lambda p: p.filter(Limit().holds).key_by("small").cum_sum("row"),
    "tried again": lambda p: p.filter(lambda row: len(row.items or ()) > 1, on_error=od.retry(2)),
    "skipping": lambda p: p.filter(lambda row: 1 // (row.row % 3) == 1, on_error="skip"),
    "to rows": lambda p: p.map(
        lambda row: (row.row, row.nested), schema=DATA.select(["row", "nested"]).schema),
    "to many rows": lambda p: p.filter(HASHED < 600).flat_map(
        lambda row: [(row.row, one) for one in row.items or ()],
        schema={"row": pa.int64(), "item": pa.int64()}),
    "with a state": lambda p: p.key_by("small").process(counted, **COUNTED),
    "with one state": lambda p: p.filter(lambda row: row.flag).process(counted, **COUNTED),
    "functions on two ways": lambda p: times(
        p.filter(lambda row: row.small < 50), lambda q: q.filter(lambda row: row.flag)),
    "rejected": lambda p: with_letters(
        p.filter(lambda row: 1 // (row.row % 3) == 1, on_error="dead_letter")),
}  # fmt: skip
PIPELINES |= BEHIND_STATES | MADE_ANEW | BEHIND_FUNCTIONS


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize(("workers", "chunk_rows", "size"), [
    (0, None, 20_000), (0, 64, 300), (1, 1000, 4500), (2, None, 20_000), (2, 7, 4500), (4, 1000, 300),
])  # fmt: skip
@pytest.mark.thin(36)
def test_as_row_by_row(name, workers, chunk_rows, size):
    data = DATA.slice(3).combine_chunks()
    pipeline = PIPELINES[name](od.Pipeline(DATA.schema))
    batches = data.to_batches(max_chunksize=size)
    result = pipeline.run(batches, workers=workers, chunk_rows=chunk_rows).table
    assert result.to_pylist() == run_serial(pipeline, data).table.to_pylist()
    result.validate(full=True)


def test_only_what_nobody_reads_passes_unread():
    def unread(pipeline):
        found = physical(pipeline.plan, workers=1)
        return {found.plan.source.names[column] for column in found.unread.values()}

    p = od.Pipeline(DATA.schema)
    names = set(DATA.column_names)
    assert unread(p) == names
    assert unread(p.rename({"s": "text"})) == names
    assert unread(p.filter(C("row") > 0)) == names - {"row"}
    assert unread(p.filter(C("hole").is_null())) == names - {"hole"}
    assert unread(p.with_columns(a=C("row") + C("small")).filter(C("a") > 0)) == names - {"row", "small"}
    assert unread(p.select("s", "row").rename({"row": "r"}).filter(C("r") > 0)) == {"s"}
    assert unread(p.key_by("row").cum_count("n")) == names - {"row"}
    assert unread(od.union(*p.branch(C("row") > 0))) == names - {"row"}
    assert unread(p.flat_map(od.explode("items", carry=["row", "s"]))) == {"row", "s"}
    # on some ways only, or another column's values
    some = [p.filter(C("row") > 0).drop("s"), p]
    assert unread(od.union(*some, how="diagonal")) == names - {"row", "s"}
    replaced = [p.filter(C("row") > 0).with_columns(s=C("full")), p]
    assert unread(od.union(*replaced)) == names - {"row", "s", "full"}
    assert unread(p.inspect(lambda row: print(row.row))) == names - {"row"}
    assert unread(p.filter(lambda row: row["row"] > row.small)) == names - {"row", "small"}
    # others show rows later, keep them, or hand them to a function
    assert unread(p.filter(lambda row: print(row))) == set()
    assert unread(with_letters(p.filter(lambda row: row.row, on_error="dead_letter"))) == set()
    assert unread(p.key_by("row").lead("small")) == set()
    assert unread(p.key_by("row").tail(1)) == set()
    assert unread(p.map_batches(lambda columns: columns, schema=p.schema)) == set()


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_row_that_fails_is_shown_whole(workers):
    pipeline = (
        od.Pipeline(DATA.schema).filter(C("row") != 5).rename({"s": "text"}).assert_that(C("row") < 70)
    )
    with pytest.raises(od.OperatorError) as raised:
        pipeline.run(DATA, workers=workers)
    expected = DATA.slice(70, 1).rename_columns(pipeline.schema.names).to_pylist()[0]
    assert (raised.value.serial, raised.value.row) == (71, expected)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", [
    "running sum", "lag of strings", "filled anew", "before", "exploded", "nested ahead", "looked up twice",
    "two ways", "every row twice", "ways in ways", "some have no column", "of texts", "a method",
])  # fmt: skip
def test_a_row_that_fails_behind_others_is_shown_whole(name, workers):
    """Also where the operators in front have made the rows anew, without what nobody reads."""
    pipeline = PIPELINES[name](od.Pipeline(DATA.schema)).assert_that(C("row") < 70, name="check")
    expected = run_serial(pipeline, DATA).error
    with pytest.raises(od.OperatorError) as raised:
        pipeline.run(DATA, workers=workers)
    assert (raised.value.operator, raised.value.serial) == ("check", expected.serial)
    assert raised.value.row == expected.row


@pytest.mark.parametrize("nulls", [1, 3_000])
@pytest.mark.parametrize("item", [pa.int8(), pa.bool_(), pa.int64()])
def test_lists_with_null_elements(nulls, item):
    """Rows that are lent, copied at once, and copied one by one; the first null comes late in a batch."""
    lists = [None, [], [1, 0] * 40, *([[1, None], [0], [None]] * nulls)]
    data = pa.table(
        {"row": range(len(lists)), "items": pa.array(lists, pa.list_(pa.int64())).cast(pa.list_(item))}
    ).slice(1)
    for kept in (C("row") >= 0, C("row") % 3 != 1, C("row") < 4):
        pipeline = od.Pipeline(data.schema).filter(kept)
        found = pipeline.run(data, workers=0).table
        found.validate(full=True)
        assert found.to_pylist() == run_serial(pipeline, data).table.to_pylist()


@pytest.fixture
def offsets_end_at():
    """Output batches hold so many bytes, or elements, per column."""
    before = testing_run.set_offset_limit(1_000)
    yield
    testing_run.set_offset_limit(before)


@pytest.mark.parametrize("column", ["s", "items", "large"])
def test_batches_end_where_offsets_do(offsets_end_at, column):
    data = DATA.select(["row", column])
    pipeline = od.Pipeline(data.schema).filter(HASHED < 800)
    found = pipeline.run(data, workers=1)
    assert len(found.batches) > 5
    assert found.table.to_pylist() == run_serial(pipeline, data).table.to_pylist()


@pytest.mark.parametrize(("wide", "text"), [
    ("x" * 1_001, "a value of 1001 bytes"), ([7] * 1_001, "a value of 1001 elements"),
])  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_value_that_no_batch_holds(offsets_end_at, wide, text, first):
    """The run fails at its row, which is shown without it."""
    data = pa.table({"row": [1, 2, 3], "v": [wide[:2], wide, wide[:3]], "t": ["a", None, "c"]})
    if first:
        data = data.slice(1)
    found = []
    with (
        pytest.raises(od.OperatorError, match=re.escape(text)) as raised,
        od.Pipeline(data.schema).filter(C("row") > 0).stream(data, workers=0) as stream,
    ):
        found.extend(stream)
    assert [row for batch in found for row in batch.to_pylist()] == ([] if first else data.to_pylist()[:1])
    assert raised.value.row == {"row": 2, "v": None, "t": None}


def test_a_value_that_no_batch_holds_behind_rows_made_anew(offsets_end_at):
    data = pa.table({"row": [1, 2, 3], "v": ["ab", "x" * 1_001, "abc"], "i": [[7], [8, 9], [1]]})
    pipeline = od.Pipeline(data.schema).flat_map(od.explode("i", carry=["row", "v"]))
    found = []
    with (
        pytest.raises(od.OperatorError, match="a value of 1001 bytes") as raised,
        pipeline.stream(data, workers=0) as stream,
    ):
        found.extend(stream)
    assert [row for batch in found for row in batch.to_pylist()] == [{"row": 1, "v": "ab", "i": 7}]
    assert raised.value.serial == 2
    assert raised.value.row == {"row": 2, "v": None, "i": 8}


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_hardly_any_rows(rows):
    data = DATA.slice(0, rows)
    for name, made in PIPELINES.items():
        pipeline = made(od.Pipeline(DATA.schema))
        result = pipeline.run(data, workers=0)
        assert result.table.to_pylist() == run_serial(pipeline, data).table.to_pylist(), name


def test_the_cap_counts_them():
    """What passes is pinned, and counts, whether it is read or not."""
    text = pa.array(["x" * 1_000] * 20_000)
    data = pa.table({"row": range(20_000), "s": text})
    report = (
        od.Pipeline(data.schema).filter(C("row") % 2 == 0).run(data, workers=0, max_bytes=4 << 20).report
    )
    assert 200_000 < report.peak_bytes < 8 << 20

"""The promise, 1 to 4: the output of the sequential reference, in its order, each row once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from property.compare import agree, run_core

import ordstream as od
from ordstream.reference.run_serial import run_serial

N = 300


def numbers(n=N):
    """Rows of a key with a hot value, an ascending number, a time and a list."""
    rows = range(n)
    return pa.table(
        {
            "key": pa.array([i * i % 7 if i % 3 else 0 for i in rows], pa.int64()),
            "i": pa.array(rows, pa.int64()),
            "time": pa.array([i // 4 for i in rows], pa.int64()),
            "items": pa.array([list(range(i % 4)) for i in rows], pa.list_(pa.int64())),
        }
    )


def chain(schema):
    """Every kind of operator: stateless, partitioned, one that multiplies, one with a state for all."""
    return (
        od.Pipeline(schema)
        .filter(od.col("i") % 5 != 4)
        .key_by("key")
        .scan(total=od.sum("i"), seen=od.count())
        .flat_map(od.explode("items", "item", carry=["key", "total"]))
        .key_by("item")
        .count("n")
        .scan(all=od.sum("n"))
    )


def test_order_and_values(how):
    data = numbers()
    pipeline = chain(data.schema)
    expected = run_serial(pipeline, data)
    assert expected.error is None
    assert len(expected.rows) > N / 2
    for chunk_rows in (1, 7, None):
        agree(pipeline, expected, run_core(pipeline, data, chunk_rows=chunk_rows, **how))


def test_every_row_exactly_once(how):
    data = numbers(2_000).select(["i", "key"])
    pipeline = od.Pipeline(data.schema).key_by("key").scan(n=od.count())
    out = pipeline.run(data, chunk_rows=3, **how)
    assert out.table["i"].to_pylist() == list(range(2_000))
    assert out.report.tuples == out.report.rows_out == 2_000


def test_source_batches_and_chunks_do_not_show(how):
    data = numbers()
    pipeline = chain(data.schema)
    expected = run_serial(pipeline, data)
    batches = [data.slice(i, 1).to_batches()[0] for i in range(60)]
    batches += data.slice(60, 140).to_batches(10) + data.slice(200).to_batches(50)
    agree(pipeline, expected, run_core(pipeline, batches, **how))


def test_first_tuples_give_a_prefix(how):
    """Without a flush, the output of a shorter source is the beginning of that of a longer one."""
    data = numbers()
    pipeline = chain(data.schema)
    whole = pipeline.run(data, **how).table
    for k in (0, 1, 17, 150):
        part = pipeline.run(data.slice(0, k), chunk_rows=5, **how).table
        assert part.equals(whole.slice(0, part.num_rows))
        assert part.num_rows == len(run_serial(pipeline, data.slice(0, k)).rows)


def test_flush_is_in_key_order_then_flows_downstream(how):
    data = numbers()
    pipeline = (
        od.Pipeline(data.schema)
        .key_by("key")
        .count("n", emit="final")
        .key_by("n")
        .scan(first=od.first("key"))
        .key_by("first")
        .count("m", emit="final")
        .top_k(3, by="m", key="first")
    )
    expected = run_serial(pipeline, data)
    assert len(expected.rows) == 3
    agree(pipeline, expected, run_core(pipeline, data, buckets=5, chunk_rows=4, **how))


@pytest.mark.thin(12)
def test_gaps_ends_and_patterns(how):
    """Empty windows, first and last values of a part, and patterns that are asked of some texts only."""
    data = numbers()
    text = od.col("text").str
    words = ["x" * 40, "error: 17", None, "an error: 3 of error: 4", ""]
    data = data.append_column("text", pa.array([words[i * i % 5] for i in range(N)]))
    source = od.Pipeline(data.schema).filter(od.col("i") % 11 != 5)
    found = source.select(
        "key", "time", "text",
        n=text.count_matches(r"error: \d"), is_one=text.contains("r+or: ", regex=True),
        cut=text.replace("error: (.)", r"<\1>", regex=True), of=text.extract(r"error: (\d+)"),
    )  # fmt: skip
    ends = found.key_by("key").aggregate(
        a=od.first("text"), b=od.last("cut"), c=od.last("of"), n=od.sum("n"), emit="final"
    )
    windows = source.key_by("key").window(od.tumbling(2), time="time", fill_gaps=True)
    gaps = windows.aggregate(n=od.count(), first=od.first("text"), all=od.collect("i"))
    assert any(n == 0 for _, _, _, n, _, _ in run_serial(gaps, data).rows)
    for pipeline in (found, ends, gaps, gaps.key_by("n").cum_count()):
        expected = run_serial(pipeline, data)
        assert expected.error is None
        for chunk_rows, buckets in ((1, 3), (7, 16), (None, None)):
            agree(
                pipeline, expected, run_core(pipeline, data, chunk_rows=chunk_rows, buckets=buckets, **how)
            )


def test_keys_sort_as_arrow_sorts(how):
    floats = [2.5, float("nan"), None, -0.0, 0.0, float("inf"), -1.0, float("-inf"), float("nan"), None]
    texts = ["é", None, "", "z", "é", "𝄞", "\uffff", "", None, "a"]
    data = pa.table({"x": pa.array(floats, from_pandas=False), "s": pa.array(texts)})
    pipeline = od.Pipeline(data.schema).key_by("x").count(emit="final")
    found = run_core(pipeline, data, buckets=4, chunk_rows=1, **how)
    agree(pipeline, run_serial(pipeline, data), found)
    assert [count for _, (_, count) in found.rows] == [2, 1, 1, 2, 1, 1, 2]
    pipeline = od.Pipeline(data.schema).key_by("s").count(emit="final")
    result = pipeline.run(data, buckets=4, chunk_rows=1, **how).table["s"].to_pylist()
    assert result == [None, *sorted(set(texts) - {None}, key=str.encode)]


@pytest.mark.parametrize("chunk_rows", [1, 64, None])
def test_sums_of_floats_are_not_reassociated(how, chunk_rows):
    values = np.array([1e16, 1.0, -1e16, 3.0, 1e-3] * 60)
    data = pa.table({"k": [i % 2 for i in range(300)], "x": values})
    pipeline = od.Pipeline(data.schema).key_by("k").scan(total=od.sum("x"), mean=od.mean("x"))
    agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, chunk_rows=chunk_rows, **how))


# ------------------------------------------------------------------------------------- small and odd


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_single(how, rows):
    data = numbers().slice(5, rows)
    for pipeline in (
        od.Pipeline(data.schema),
        chain(data.schema),
        od.Pipeline(data.schema).count("n", emit="final"),
        od.Pipeline(data.schema).key_by("key").count("n", emit="final").top_k(1, by="n"),
        od.Pipeline(data.schema).key_by("key").sessionize("time", 1, ["i"]),
    ):
        agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, **how))


def test_no_batches_at_all(how):
    pipeline = chain(numbers().schema)
    out = pipeline.run([], **how)
    assert out.table.num_rows == 0
    assert out.table.schema.equals(pipeline.schema)
    assert out.report.emitted_through.serial == 0


def test_no_operators(how):
    data = numbers()
    out = od.Pipeline(data.schema).run(data, **how)
    assert out.table.equals(data)


def test_wide_schema(how):
    data = pa.table({f"c{j}": pa.array([i * j for i in range(50)], pa.int32()) for j in range(200)})
    pipeline = (
        od.Pipeline(data.schema)
        .filter(od.col("c1") % 3 != 0)
        .key_by("c199")
        .scan(*(od.sum(f"c{j}").alias(f"s{j}") for j in range(40)))
    )
    agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, chunk_rows=8, **how))


def test_unicode_in_names_and_values(how):
    words = ["ключ", "", "日本語のかなり長い文字列", "𝄞" * 20, "a\x00b", None, "é"]
    data = pa.table({"имя": words * 10, "列": list(range(70))})
    pipeline = (
        od.Pipeline(data.schema)
        .filter(od.col("имя") != "é", name="фильтр")
        .key_by("имя")
        .scan(od.sum("列").alias("Σ"), name="сумма")
    )
    found = run_core(pipeline, data, chunk_rows=4, **how)
    agree(pipeline, run_serial(pipeline, data), found)
    assert [o.name for o in found.report.operators] == ["фильтр", "сумма"]


def test_all_null_columns(how):
    types = [
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.string(),
        pa.bool_(),
        pa.timestamp("us"),
        pa.list_(pa.int64()),
    ]
    data = pa.table([pa.nulls(20, t) for t in types], names=[str(t) for t in types])
    first, *_ = data.schema.names
    pipeline = (
        od.Pipeline(data.schema)
        .with_columns(z=od.col(first) + 1)
        .key_by("string")
        .scan(total=od.sum("float"), low=od.min(first), n=od.count("bool"))
        .key_by("timestamp[us]", "bool")
        .count("rows", emit="final")
    )
    found = run_core(pipeline, data, chunk_rows=3, **how)
    agree(pipeline, run_serial(pipeline, data), found)
    assert len(found.rows) == 1


def test_the_source_is_not_changed(workers):
    data = numbers()
    before = data.to_pydict()
    od.Pipeline(data.schema).with_columns(i=-od.col("i"), key=od.lit(0)).key_by("key").scan(
        t=od.sum("i")
    ).run(data, workers=workers)
    assert data.to_pydict() == before


# ------------------------------------------------------------------------------------- functions


def test_python_functions_see_rows_in_order(how):
    """A state for all sees every tuple, one after the other."""
    data = numbers()
    seen = []

    def fn(row, state, emit):
        state.n += 1
        seen.append(row.i)
        emit(row.i, state.n)

    pipeline = od.Pipeline(data.schema).process(fn, schema={"i": int, "n": int}, state={"n": int})
    out = pipeline.run(data, chunk_rows=7, **how)
    assert seen == list(range(N))
    assert out.table["n"].to_pylist() == list(range(1, N + 1))


def test_python_functions_of_a_key_see_its_rows_in_order(how):
    data = numbers()

    def fn(row, state, emit):
        emit(row.key, state.last, row.i)
        state.last = row.i

    schema = {"key": int, "before": int, "i": int}
    pipeline = (
        od.Pipeline(data.schema)
        .map(lambda row: (row.key, row.i), schema={"key": int, "i": int})
        .key_by("key")
        .process(fn, schema=schema, state={"last": int})
        .flat_map(lambda row: [(row.i, row.before)] * (row.i % 3), schema={"i": int, "before": int})
    )
    agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, chunk_rows=5, **how))


def test_debug_cuts_chunks_at_random(workers):
    """`debug=True` shows a batch function that is not row-wise: docs/ordering.md, promise 1."""
    # the first some thousand may go in chunks of one row
    data = pa.table({"i": pa.array(range(1 << 16), pa.int64())})
    sizes = []

    def fn(columns):
        sizes.append(len(columns["i"]))
        return columns

    pipeline = od.Pipeline(data.schema).map_batches(fn, schema=data.schema)
    assert pipeline.run(data, workers=workers, debug=True).table.equals(data)
    assert sum(sizes) == 1 << 16
    assert len(set(sizes)) > 2, f"one size of batches only: {set(sizes)}"

"""Functions that change the lists, dicts and arrays that they are given: that is their own affair, and no
other try, operator or reference sees it.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.reference.run_serial import run_serial

DATA = pa.table(
    {
        "k": [1, 2, 3],
        "items": [[1, 2], [3], []],
        "s": [{"a": [1]}, {"a": [2]}, None],
        "m": pa.array([[("x", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    }
)
SOURCE = od.Pipeline(DATA.schema)
SEEN = pa.schema({"k": pa.int64(), "items": pa.list_(pa.int64()), "a": pa.list_(pa.int64())})


def spoiled(row):
    """What the row had, and nothing of it is left."""
    found = (row.k, list(row.items), None if row.s is None else list(row.s["a"]))
    row.items.clear()
    if row.s is not None:
        row.s["a"].append(-1)
        row.m.append(("y", 2))
    return found


def fails_once_a_row(read):
    """A function whose first try of each row changes the row and raises."""
    tried = set()

    def down(k):
        if k not in tried:
            tried.add(k)
            raise ConnectionError("down")

    def whole(row):
        found = spoiled(row)  # handed on, so it is a tuple of all columns
        down(row.k)
        return found

    def named(row):
        found = (row.k, list(row.items), None if row.s is None else list(row.s["a"]))
        row.items.clear()
        if row.s is not None:
            row.s["a"].append(-1)
        down(row.k)
        return found

    return {"whole": whole, "named": named}[read]


@pytest.mark.parametrize("read", ["whole", "named"])
@pytest.mark.parametrize("kind", ["map", "flat_map", "filter", "inspect", "process"])
def test_each_try_gets_the_row_as_it_was(kind, read):
    def pipeline():
        fn = fails_once_a_row(read)
        again = od.retry(1)
        if kind == "map":
            return SOURCE.map(fn, schema=SEEN, on_error=again)
        if kind == "flat_map":
            return SOURCE.flat_map(lambda row: iter([fn(row)]), schema=SEEN, on_error=again)
        if kind == "filter":
            return SOURCE.filter(lambda row: bool(fn(row)[1]), on_error=again)
        if kind == "inspect":
            return SOURCE.inspect(lambda row: seen.append(fn(row)), on_error=again)
        return SOURCE.process(
            lambda row, state, emit: emit(*fn(row)), schema=SEEN, state={"n": int}, on_error=again
        )

    what = [(1, [1, 2], [1]), (2, [3], [2]), (3, [], None)]
    if kind in ("filter", "inspect"):
        expected = DATA.slice(0, 2) if kind == "filter" else DATA
    else:
        expected = pa.table([list(column) for column in zip(*what, strict=True)], schema=SEEN)
    for options in (None, {"workers": 0}, {"workers": 2, "chunk_rows": 1}):
        seen = []
        made = pipeline()
        found = run_serial(made, DATA) if options is None else made.run(DATA, **options)
        assert found.table.to_pylist() == expected.to_pylist(), options
        assert seen == (what if kind == "inspect" else [])


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_function_changes_is_not_in_the_rows_behind_it(workers):
    """`run_serial` gave the function the lists and dicts of the row itself."""
    pipeline = SOURCE.inspect(spoiled).filter(lambda row: spoiled(row) is not None)
    assert run_serial(pipeline, DATA).table.equals(DATA)
    assert pipeline.run(DATA, workers=workers).table.equals(DATA)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_function_may_write_into_its_arrays(workers):
    """In `run_serial` it failed: "assignment destination is read-only"."""
    data = pa.table({"n": [1, 2, 3], "t": ["a", "b", "c"]})

    def adds(columns):
        columns["n"] += 10
        columns["t"][:] = "x"
        return {"n": columns["n"], "t": columns["t"]}

    pipeline = od.Pipeline(data.schema).map_batches(adds, schema=data.schema)
    expected = {"n": [11, 12, 13], "t": ["x", "x", "x"]}
    assert run_serial(pipeline, data).table.to_pydict() == expected
    assert pipeline.run(data, workers=workers).table.to_pydict() == expected
    assert data["n"].to_pylist() == [1, 2, 3]

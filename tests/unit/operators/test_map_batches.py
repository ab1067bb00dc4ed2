"""map_batches on its kernel: arrays in and out, wrong results, failures, whose memory it is."""

from __future__ import annotations

import datetime
import itertools
import sys

import numpy as np
import pyarrow as pa
import pytest
from unit.function_check import I64, check_serial, door
from value_columns import COLUMNS

import ordstream as od
from ordstream._core.state import python_values
from ordstream.testing import run_serial

NUMBERS = pa.schema({"k": I64, "x": pa.float64()})
FULL = pa.record_batch([pa.array([1, 2, 3, 4]), pa.array([0.5, -1.0, 4.0, 9.0])], schema=NUMBERS)


def roots(columns):
    if (columns["x"] < 0).any():
        raise ValueError("negative")
    return {"k": columns["k"] + 1, "root": np.sqrt(columns["x"])}


ROOTS = {"k": int, "root": float}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_failing_row_is_found(on_error):
    pipeline = od.Pipeline(NUMBERS).map_batches(roots, schema=ROOTS, on_error=on_error)
    rows = check_serial(pipeline, FULL)
    assert [row[0] for row in rows] == ([2] if on_error == "fail" else [2, 4, 5])


def test_whole_batch_in_one_call():
    lengths = []

    def note(columns):
        lengths.append(len(columns["k"]))
        return columns

    kernel = door(od.Pipeline(NUMBERS).map_batches(note, schema=NUMBERS))
    assert kernel.apply(FULL)[0] == [(1, 0.5), (2, -1.0), (3, 4.0), (4, 9.0)]
    assert kernel.apply(FULL, select=[3, 0]) == ([(4, 9.0), (1, 0.5)], [3, 0])
    assert lengths == [4, 2]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_nulls_are_errors_in_numpy(on_error):
    data = pa.record_batch([pa.array([1, 2, None, 4]), pa.array([0.5, 1.0, 4.0, None])], schema=NUMBERS)
    pipeline = od.Pipeline(NUMBERS).map_batches(lambda c: c, schema=NUMBERS, on_error=on_error)
    assert check_serial(pipeline, data) == [(1, 0.5), (2, 1.0)]


def test_a_failure_before_a_null_comes_first():
    data = pa.record_batch([pa.array([1, 2, None]), pa.array([0.5, -1.0, 4.0])], schema=NUMBERS)
    check_serial(od.Pipeline(NUMBERS).map_batches(roots, schema=ROOTS), data)


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("format", ["numpy", "arrow"])
def test_every_type(name, format):
    type_, values = COLUMNS[name]
    schema = pa.schema({"c": type_})
    data = pa.record_batch([pa.array(values * 2, type_)], schema=schema)
    seen = []
    pipeline = od.Pipeline(schema).map_batches(
        lambda batch: seen.append(batch) or batch, schema=schema, format=format
    )
    rows = check_serial(pipeline, data)
    if format == "arrow":
        assert rows == [(value,) for value in values * 2]
    elif name in ("holes", "three"):  # whose lists of numbers have nulls: an error at the first
        assert rows == []
    else:
        expected = data.column(0).to_numpy(zero_copy_only=False)
        given = next(columns["c"] for columns in seen if len(columns["c"]) == len(data))
        assert given.dtype == expected.dtype
        assert str(given.tolist()) == str(expected.tolist())


@pytest.mark.parametrize("name", COLUMNS)
def test_arrow_nulls_and_slices(name):
    type_, values = COLUMNS[name]
    schema = pa.schema({"c": type_})
    data = pa.record_batch([pa.array([None, *values, None], type_)], schema=schema)

    def shifted(batch):
        longer = pa.concat_arrays([pa.nulls(3, type_), batch.column(0), pa.nulls(1, type_)])
        return pa.RecordBatch.from_arrays([longer.slice(3, len(batch))], names=["c"])

    pipeline = od.Pipeline(schema).map_batches(shifted, schema=schema, format="arrow")
    assert check_serial(pipeline, data) == [(None,), *[(v,) for v in values], (None,)]


@pytest.mark.parametrize(
    "result",
    [
        None, {}, {"k": np.array([1])}, {"k": np.arange(4), "x": np.arange(4)[:3]},
        {"k": np.arange(4), "x": 5.0}, {"k": np.arange(4) + 0.5, "x": np.arange(4)},
        {"k": np.arange(4), "x": np.arange(4), "y": np.arange(4)},
        {"k": np.arange(4).reshape(4, 1), "x": np.arange(4)},
        {"k": np.array(["a"] * 4), "x": np.arange(4)},
    ],
)  # fmt: skip
def test_wrong_results(result):
    kernel = door(od.Pipeline(NUMBERS).map_batches(lambda columns: result, schema=NUMBERS))
    assert kernel.apply(FULL)[0] == []
    assert kernel.failure[0] == 0


@pytest.mark.parametrize("dtype", ["i4", "u1", "f4"])
def test_other_dtypes_are_converted(dtype):
    def convert(columns):
        return {"k": columns["k"], "x": columns["k"].astype(dtype)}

    assert check_serial(od.Pipeline(NUMBERS).map_batches(convert, schema=NUMBERS), FULL)[3] == (4, 4.0)


def test_strided_and_lists():
    def strided(columns):
        return {"k": np.repeat(columns["k"], 2)[::2], "x": [float(x) for x in columns["x"]]}

    assert check_serial(od.Pipeline(NUMBERS).map_batches(strided, schema=NUMBERS), FULL)[2] == (3, 4.0)


def test_arrays_are_the_users():
    """What a function keeps or changes is never touched again, and changes nothing else."""
    kept = []

    def keep(columns):
        kept.append((columns["k"], columns["x"][1:]))
        columns["k"] += 100
        return {"k": columns["k"], "x": columns["x"]}

    kernel = door(od.Pipeline(NUMBERS).map_batches(keep, schema=NUMBERS))
    for _ in range(5):
        assert kernel.apply(FULL)[0] == [(101, 0.5), (102, -1.0), (103, 4.0), (104, 9.0)]
    assert len({array.ctypes.data for array, _ in kept}) == 5
    for k, x in kept:
        assert k.tolist() == [101, 102, 103, 104]
        assert x.tolist() == [-1.0, 4.0, 9.0]


@pytest.mark.parametrize("shown", ["new", "the input", "a view of it"])
def test_arrays_are_reused_when_nobody_keeps_them(shown):
    addresses = []

    def note(columns):
        addresses.append(columns["k"].ctypes.data)
        k = columns["k"]
        return {"k": k + 1 if shown == "new" else k if shown == "the input" else k[:], "x": columns["x"]}

    kernel = door(od.Pipeline(NUMBERS).map_batches(note, schema=NUMBERS))
    for _ in range(5):
        assert kernel.apply(FULL)[0][0] == (2 if shown == "new" else 1, 0.5)
    assert len(set(addresses)) == 1


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # NumPy 2.5
def test_arrays_that_were_changed_are_not_reused():
    """Each call gets writable arrays of one dimension."""

    def change(columns):
        k, x = columns["k"], columns["x"]
        assert k.shape == (4,)
        assert x.flags.writeable
        answer = {"k": k.copy(), "x": x}
        k.shape = (2, 2)
        x.flags.writeable = False
        return answer

    kernel = door(od.Pipeline(NUMBERS).map_batches(change, schema=NUMBERS))
    for _ in range(3):
        assert kernel.apply(FULL)[0] == [(1, 0.5), (2, -1.0), (3, 4.0), (4, 9.0)]


def test_workers():
    pipeline = od.Pipeline(NUMBERS)
    bound = 1 if getattr(sys, "_is_gil_enabled", lambda: True)() else 0
    assert door(pipeline.map_batches(roots, schema=ROOTS)).max_workers == bound
    assert door(pipeline.map_batches(roots, schema=ROOTS, releases_gil=True)).max_workers == 0


@pytest.mark.parametrize(
    "type_",
    [pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
    ids=str,
)
def test_dates_and_times_pass_as_numpy_has_them(type_):
    """A date64 came back as datetime64[ms], a time32 as objects in us: both were refused."""
    unit = 86_400_000 if type_ == pa.date64() else 1_000
    counts = pa.array([0, unit, 5 * unit], pa.int32() if type_.bit_width == 32 else pa.int64())
    data = pa.table({"x": counts.cast(type_)})
    pipeline = od.Pipeline(data.schema).map_batches(lambda batch: {"x": batch["x"]}, schema=data.schema)
    assert run_serial(pipeline, data).table.equals(data)
    for rows in (1, 64):
        assert pipeline.run(data, workers=0, chunk_rows=rows).table.equals(data)


def test_a_time_of_day_is_no_date():
    data = pa.table({"x": [0]})
    schema = pa.schema([("x", pa.date64())])
    late = np.array(["2024-02-29T12"], "M8[ms]")
    pipeline = od.Pipeline(data.schema).map_batches(lambda _: {"x": late}, schema=schema)
    with pytest.raises(od.OperatorError, match="a time of day among its dates"):
        pipeline.run(data, workers=0)


RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([7, None]))


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        (RUNS, pa.int64()),
        (pa.array([[1], [], None], pa.list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array([[1], [], None], pa.large_list_view(pa.int64())), pa.list_(pa.int64())),
        (pa.array(["a", "b", None], pa.string_view()).dictionary_encode(), pa.string()),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_an_array_in_any_layout_is_its_values(given, type_):
    def shown(batch: pa.RecordBatch) -> pa.RecordBatch:
        part = given.slice(batch["x"][0].as_py(), len(batch))
        return pa.RecordBatch.from_arrays([part], ["y"])

    rows = pa.table({"x": [0, 1, 2]})
    p = od.Pipeline(rows.schema).map_batches(shown, schema=pa.schema({"y": type_}), format="arrow")
    for result in (run_serial(p, rows), p.run(rows), p.run(rows, chunk_rows=2), p.run(rows, workers=0)):
        assert result.table["y"].to_pylist() == given.to_pylist()


@pytest.mark.parametrize("format_", ["numpy", "arrow"])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_few_failing_rows_take_few_calls(format_, on_error):
    """One bad row in a thousand made a model's `predict` be called for each row."""
    lengths = []
    bad = [700, 1_300, 1_301, 3_999]

    def halved(batch):
        values = np.asarray(batch["x"])
        lengths.append(len(values))
        if np.isin(values, bad).any():
            raise ValueError("bad")
        return {"y": values // 2} if format_ == "numpy" else pa.record_batch({"y": pa.array(values // 2)})

    data = pa.table({"x": range(4_000)})
    pipeline = od.Pipeline(data.schema).map_batches(
        halved, schema={"y": int}, format=format_, on_error=on_error
    )
    expected = run_serial(pipeline, data)
    for rows in (1, 64, 1_000, 4_000):
        lengths.clear()
        with pipeline.stream(data, chunk_rows=rows, workers=0) as stream:
            batches, found = [], None
            try:
                batches.extend(stream)
            except od.OperatorError as error:
                found = error.serial
            assert found == (expected.error.serial if on_error == "fail" else None)
            assert pa.Table.from_batches(batches, stream.schema).equals(expected.table)
            assert stream.report.operators[0].skipped == len(expected.skipped) == (on_error == "skip") * 4
        if rows > 1:
            assert len(lengths) <= 2 * len(bad) * (rows.bit_length() + 1) + len(data) // rows


def arrays_given(name="columns"):
    """The names of the arrays that the caller was given."""
    return sorted(sys._getframe(1).f_locals[name])


def reads_one(columns):
    SEEN.append(arrays_given())
    return {"y": columns["k"] + 1}


def reads_all(columns):
    SEEN.append(arrays_given())
    return {"y": columns["k"] + len(columns)}


def reads_items(columns):
    SEEN.append(arrays_given())
    return {"y": columns["k"] + len(columns.items())}


SEEN: list[list[str]] = []
MANY = {"k": [1, 2, 3], "s": ["a", "b", "c"], "items": [["x"], [], ["y"]], "t": [1.5, 2.5, -0.0]}


@pytest.mark.parametrize(
    ("function", "given"), [(reads_one, ["k"]), (reads_all, sorted(MANY)), (reads_items, sorted(MANY))]
)
@pytest.mark.parametrize("policy", ["fail", "skip", od.retry(1)])
def test_arrays_are_made_of_what_the_function_reads(function, given, policy):
    """All columns became arrays, a text or a list a Python object each, though one number is read."""
    data = pa.table(MANY)
    pipeline = od.Pipeline(data.schema).map_batches(function, schema={"y": int}, on_error=policy)
    expected = run_serial(pipeline, data).table
    for options in ({"chunk_rows": 1}, {"workers": 2}, {}):
        SEEN.clear()
        assert pipeline.run(data, **options).table.equals(expected)
        assert SEEN
        assert all(one == given for one in SEEN)


def test_a_null_in_a_column_that_is_not_read_fails_its_row():
    data = pa.table({"k": [1, 2, 3], "s": ["a", None, "c"]})
    for policy in ("fail", "skip"):
        pipeline = od.Pipeline(data.schema).map_batches(reads_one, schema={"y": int}, on_error=policy)
        check_serial(pipeline, data.combine_chunks().to_batches()[0])


@pytest.mark.parametrize("made", [list, tuple, lambda values: np.array([*values, None], object)[:-1]])
def test_lists_and_structs_that_are_python_s(made, monkeypatch):
    """Each value became an array of Arrow's of its own: 12 us for a list of two texts, 16 for a struct."""
    schema = pa.schema(
        {"t": pa.list_(pa.string()), "s": pa.struct({"a": pa.int8(), "b": pa.string()}), "m": pa.int64()}
    )

    def texts(columns):
        x = columns["x"].tolist()
        return {
            "t": made([None if one % 7 == 1 else ["a", None, f"{one}"][: one % 4] for one in x]),
            "s": made([{"a": one, "b": "x"} for one in x]),
            "m": columns["x"],
        }

    data = pa.table({"x": range(400)})
    skips = od.Pipeline(data.schema).map_batches(texts, schema=schema, on_error="skip")
    expected = run_serial(skips, data)
    assert len(expected.skipped) == 400 - 128  # an int8 holds no more
    for options in ({"chunk_rows": 1}, {"workers": 2, "chunk_rows": 50}, {}):
        assert skips.run(data, **options).table.equals(expected.table)
    fails = od.Pipeline(data.schema).map_batches(texts, schema=schema)
    with monkeypatch.context() as patch:
        patch.setattr(python_values, "to_storage", None)
        assert fails.run(data[:128]).table.equals(expected.table)
    with pytest.raises(od.OperatorError, match=r"serial 129.*128 is out of range"):
        fails.run(data)


@pytest.mark.parametrize("values", [[["a"]] * 2, [], "a", {"b": 1}, 3, iter([["a"]])])
def test_what_is_no_list_of_so_many_values_has_run_serial_s_error(values):
    data = pa.record_batch({"x": [1]})
    pipeline = od.Pipeline(data.schema).map_batches(
        lambda _: {"t": values}, schema={"t": pa.list_(pa.string())}
    )
    check_serial(pipeline, data)


def test_a_text_of_numpy_has_what_is_behind_its_first_nul():
    """Arrow's conversion of NumPy's own texts stops there."""
    rows = pa.table({"s": ["a\0b", "c", "\0\0d"]})

    def shout(columns):
        return {"s": np.strings.add(columns["s"].astype(str), "!")}

    shouted = od.Pipeline(rows.schema).map_batches(shout, schema=rows.schema)
    for result in (shouted.run(rows), run_serial(shouted, rows)):
        assert result.table["s"].to_pylist() == ["a\0b!", "c!", "\0\0d!"]


@pytest.mark.parametrize("lists", [
    pa.array([[2**53 + 1], [2**53 + 1, None]]),
    pa.array([[1.5], [None]]),
    pa.array([[[1]], [[2], [3, None]]]),
    pa.array([[1.5, 2.0], [None, 1.0]], pa.list_(pa.float64(), 2)),
], ids=lambda lists: str(lists.type))  # fmt: skip
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_null_among_the_numbers_of_a_list_is_an_error(lists, on_error):
    """NumPy would have NaN, and floats for integers."""
    rows = pa.record_batch({"l": lists})
    same = od.Pipeline(rows.schema).map_batches(
        lambda columns: columns, schema=rows.schema, on_error=on_error
    )
    check_serial(same, rows)
    if on_error == "skip":
        assert same.run(rows).table.to_pylist() == rows.slice(0, 1).to_pylist()
    else:
        with pytest.raises(od.OperatorError, match=r"serial 2.*null in a list"):
            same.run(rows)


DAY = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.UTC)
LISTS = {
    pa.date32(): [DAY.date()],
    pa.date64(): [DAY.date()],
    pa.time32("s"): [DAY.time()],
    pa.time64("ns"): [DAY.time()],
    pa.timestamp("us", "Europe/Berlin"): [DAY, DAY + datetime.timedelta(days=90)],
    pa.timestamp("s"): [DAY.replace(tzinfo=None)],
    pa.duration("ms"): [datetime.timedelta(1)],
    pa.string(): ["a", None],
    pa.bool_(): [True, False],
}


@pytest.mark.parametrize("item", LISTS, ids=str)
def test_lists_that_a_function_of_numpy_passes_on(item):
    rows = pa.record_batch({"l": pa.array([LISTS[item], [], LISTS[item] * 2], pa.list_(item))})
    same = od.Pipeline(rows.schema).map_batches(lambda columns: columns, schema=rows.schema)
    for result in (same.run(rows), run_serial(same, rows)):
        assert result.table["l"].combine_chunks().equals(rows["l"])

    def without_middle(columns):
        for place, one in enumerate(columns["l"]):
            if not len(one):
                columns["l"][place] = None
        return columns

    some = od.Pipeline(rows.schema).map_batches(without_middle, schema=rows.schema)
    for result in (some.run(rows), run_serial(some, rows)):
        assert result.table["l"].to_pylist() == [rows["l"][0].as_py(), None, rows["l"][2].as_py()]


INSIDE = pa.struct([("i", pa.int64()), ("b", pa.bool_()), ("at", pa.date32())])
TO_53 = 2**53 + 1


@pytest.mark.parametrize(
    ("type_", "values", "texts"),
    [
        (INSIDE,
         [{"i": TO_53, "b": True, "at": None}, {"i": None, "b": None, "at": datetime.date(2024, 2, 29)}],
         [f"{{'i': {TO_53}, 'b': True, 'at': None}}",
          "{'i': None, 'b': None, 'at': datetime.date(2024, 2, 29)}"]),
        (pa.struct([("s", pa.string()), ("f", pa.float64()), ("l", pa.list_(pa.string()))]),
         [{"s": "a", "f": 1.5, "l": ["b"]}, {"s": None, "f": None, "l": [None, "c"]}],
         ["{'s': 'a', 'f': 1.5, 'l': array(['b'], dtype=object)}",
          "{'s': None, 'f': None, 'l': array([None, 'c'], dtype=object)}"]),
        (pa.list_(pa.bool_()), [[True], [None, False]],
         ["array([ True])", "array([None, False], dtype=object)"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk_rows", [1, 2, 7])
def test_what_a_row_is_given_does_not_hang_on_the_rows_beside_it(type_, values, texts, chunk_rows):
    """Arrow makes floats of a struct's integers, and objects of bools, beside a row that has a null."""
    rows = pa.table({"x": pa.array(values * 3, type_)})
    shown = od.Pipeline(rows.schema).map_batches(
        lambda batch: {"text": np.array([repr(one) for one in batch["x"]], object)}, schema={"text": str}
    )
    found = shown.run(rows, workers=1, chunk_rows=chunk_rows).table
    assert found["text"].to_pylist() == texts * 3
    assert found.equals(run_serial(shown, rows).table)


@pytest.mark.parametrize(
    ("type_", "fine", "odd"),
    [
        (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", TO_53), ("b", None)]),
        (pa.struct([("l", pa.list_(pa.int64()))]), {"l": None}, {"l": [TO_53, None]}),
        (pa.list_(pa.struct([("i", pa.int64())])), [{"i": 1}], [{"i": TO_53}, {"i": None}]),
    ],
)
def test_a_null_among_numbers_is_told_wherever_it_is(type_, fine, odd):
    """NumPy would have TO_53 as 2.0**53."""
    rows = pa.table({"x": pa.array([fine, fine, odd], type_)})
    same = od.Pipeline(rows.schema).map_batches(lambda batch: batch, schema=rows.schema)
    assert same.run(rows.slice(0, 2), workers=1).table.equals(rows.slice(0, 2))
    with pytest.raises(od.OperatorError, match=r"serial 3.*null in a list"):
        same.run(rows, workers=1)
    assert "null in a list" in str(run_serial(same, rows).error)


def storage_of(type_, values):
    return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))


ODD = [
    storage_of(pa.uuid(), [b"a" * 16, b"b" * 16]),
    storage_of(pa.json_(), ["{}", "[1]"]),
    storage_of(pa.bool8(), [1, 0]),
    storage_of(pa.fixed_shape_tensor(pa.int8(), [2]), [[1, 2], [3, 4]]),
]
INTERVALS = pa.array([pa.MonthDayNano([1, 2, 3])] * 2)


@pytest.mark.parametrize(
    ("column", "format_"),
    [
        *itertools.product([*ODD, INTERVALS], ["numpy", "pandas", "arrow"]),
        *((column, "polars") for column in ODD),  # which has no intervals
    ],
    ids=lambda given: given if isinstance(given, str) else str(given.type),
)
def test_a_column_of_an_odd_type_goes_out_as_it_came(column, format_):
    rows = pa.table({"x": column})
    same = od.Pipeline(rows.schema).map_batches(lambda batch: batch, schema=rows.schema, format=format_)
    assert same.run(rows, workers=1).table.equals(rows)
    assert run_serial(same, rows).table.equals(rows)


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (pa.json_(), storage_of(pa.opaque(pa.string(), "a", "b"), ["{}"])),
        (pa.opaque(pa.string(), "a", "b"), storage_of(pa.opaque(pa.string(), "a", "c"), ["{}"])),
        (pa.bool8(), pa.array([0.5])),
    ],
)
def test_an_array_of_another_extension_type_is_refused(type_, given):
    made = od.Pipeline({"k": int}).map_batches(
        lambda batch: pa.record_batch([given], names=["x"]), schema={"x": type_}, format="arrow"
    )
    with pytest.raises(od.OperatorError, match=r"column 'x' is extension.*, got an array of"):
        made.run(pa.table({"k": [1]}), workers=1)


@pytest.mark.parametrize("format_", ["numpy", "pandas"])
def test_a_time_of_day_with_nanoseconds_says_what_to_do(format_):
    rows = pa.table({"x": pa.array([1_000, 1], pa.time64("ns"))})
    same = od.Pipeline(rows.schema).map_batches(lambda batch: batch, schema=rows.schema, format=format_)
    with pytest.raises(od.OperatorError, match=r"serial 2.*nanoseconds.*cast"):
        same.run(rows, workers=1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("chunk_rows", [7, 64, None])
def test_a_batch_that_fails_and_none_of_its_rows(workers, chunk_rows):
    """It was given again in pieces until it worked: rows that are not there twice, say, stayed twice."""
    table = pa.table({"k": [i % 3 for i in range(1_000)]})
    options = {"workers": workers, "chunk_rows": chunk_rows}

    def once_each(batch):
        return batch.drop_duplicates()

    def short(batch):
        if len(batch) > 3:
            raise OSError("at most 3")
        return batch

    for function, text in ((once_each, "ValueError: column 'k' has 3 values for"), (short, "OSError: at")):
        pipeline = od.Pipeline(table.schema).map_batches(function, schema={"k": int}, format="pandas")
        with pytest.raises(od.OperatorError, match=rf"on none of them alone: {text}.*flat_map and") as run:
            pipeline.run(table, **options)
        assert isinstance(run.value.__cause__.__cause__, ValueError | OSError)
        before = pipeline.stream(table, **options)
        with pytest.raises(od.OperatorError):
            assert sum(batch.num_rows for batch in before) < run.value.serial


def test_a_row_that_fails_once_is_not_tried_again():
    """Who wants that says so: od.retry."""
    left = [ValueError("busy")]

    def at_times(batch):
        if left:
            raise left.pop()
        return batch

    table = pa.table({"k": [1]})
    pipeline = od.Pipeline(table.schema).map_batches(at_times, schema={"k": int}, format="arrow")
    with pytest.raises(od.OperatorError, match=r"serial 1: ValueError: busy"):
        pipeline.run(table)
    left.append(ValueError("busy"))
    again = od.Pipeline(table.schema).map_batches(
        at_times, schema={"k": int}, format="arrow", on_error=od.retry(1)
    )
    assert again.run(table).table == table

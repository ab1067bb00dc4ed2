"""`row["x"]` in functions: in every class of rows, in Python and in the core."""

from __future__ import annotations

import itertools
import operator

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground import rows as plain
from ordstream.ground.rows import NoSuchColumn, row_class, slotted_rows
from ordstream.testing import run_serial

core = pytest.importorskip("ordstream._core.state.named_rows", reason="the core is not built")
NAMES = ["x", "a b", "count", "__len__", "_fields", "__places__", "é"]
VALUES = (1, "two", 3.0, None, 5, [6], 7)
TUPLES = [plain.NamedTuple, core.NamedTuple]


@pytest.mark.parametrize("base", TUPLES)
def test_a_row_takes_names_and_places(base):
    row = row_class(NAMES, base)(VALUES)
    assert [row[name] for name in NAMES] == [row[place] for place in range(7)] == list(row) == list(VALUES)
    assert (row.x, getattr(row, "a b"), row.count, row.é) == (1, "two", 3.0, 7)
    assert len(row) == 7
    assert row[-1] == row["é"] == operator.itemgetter("é")(row) == 7
    assert row[1:3] == ("two", 3.0)
    assert type(row[1:3]) is tuple
    assert row[True] == "two"
    assert row == VALUES
    assert repr(row_class(["x"], base)((1,))) == "Row(x=1)"


@pytest.mark.parametrize("base", TUPLES)
def test_other_names_are_told_with_the_columns(base):
    row = row_class(["x", "y"], base)((1, 2))
    with pytest.raises(NoSuchColumn) as told:
        row["z"]
    assert str(told.value) == "this row has no column 'z'; it has: x, y"
    assert isinstance(told.value, KeyError)
    with pytest.raises(AttributeError, match=r"^this row has no column 'z'; it has: x, y$"):
        row.z  # noqa: B018
    for place in (2, -3, 1 << 70):
        with pytest.raises(IndexError):
            row[place]
    for key in (None, 1.0, b"x"):
        with pytest.raises(TypeError, match="tuple indices must be integers or slices"):
            row[key]
    with pytest.raises(TypeError):
        row["x"] = 1
    with pytest.raises(IndexError):
        row_class(["x", "y"], base)((1,))["y"]


@pytest.mark.parametrize("base", [plain.NamedSlots, core.NamedSlots])
def test_a_row_of_what_is_read_takes_names(base):
    row = slotted_rows(["x", "y"], base)()
    row.x = [1]
    assert row["x"] is row.x
    with pytest.raises(AttributeError):
        row["y"]
    assert not hasattr(row, "__dict__")


N = 300
DATA = pa.table(
    {
        "k": [n % 5 for n in range(N)],
        "x": [n % 7 for n in range(N)],
        "a b": [f"é{n}" for n in range(N)],
        "at": pa.array(range(N), pa.timestamp("s")),
    }
)
OUT = {"x": int, "t": str}


def twice(row):
    return row["x"] * 2, row["a b"]


def read(row):
    return row["x"] + row.k, "read"


def whole(row):
    return row[1] + row["k"] + len(row), str(row["at"])


def named(row):
    return sum(row[name] for name in ("k", "x")), row["a b"]


def adds(row, state, emit):
    state.n += row["x"]
    emit(state.n, row["a b"])


PIPELINE = od.Pipeline(DATA.schema)
USES = {
    **{f"map {fn.__name__}": PIPELINE.map(fn, schema=OUT) for fn in (twice, read, whole, named)},
    "filter": PIPELINE.filter(lambda row: row["x"] > 2),
    "filter, whole": PIPELINE.filter(lambda row: row["x"] > 2 and row[0] < 4),
    "flat_map": PIPELINE.flat_map(lambda row: [(row["x"], row["a b"])] * (row["k"] % 3), schema=OUT),
    "process": PIPELINE.key_by("k").process(adds, schema=OUT, state={"n": int}),
    "second": PIPELINE.map(read, schema=OUT).map(lambda row: (row["x"], row["t"]), schema=OUT),
}


@pytest.mark.parametrize("use", USES)
def test_functions_of_rows(use):
    pipeline = USES[use]
    expected = run_serial(pipeline, DATA)
    assert expected.error is None
    assert len(expected.rows) > 50
    for workers, rows in itertools.product((0, 1, 2), (1, 7, "auto")):
        assert pipeline.run(DATA, workers=workers, chunk_rows=rows).table.equals(expected.table)


@pytest.mark.parametrize("fn", [lambda row: row["xs"] > 1, lambda row: row["x" + "s"] > 1 and row["x"]])
def test_an_unknown_name_is_an_error_at_the_row(fn):
    pipeline = PIPELINE.filter(fn)
    text = "filter_1' failed at serial 1: NoSuchColumn: this row has no column 'xs'; it has: k, x, a b, at"
    assert text in str(run_serial(pipeline, DATA).error)
    with pytest.raises(od.OperatorError) as told:
        pipeline.run(DATA)
    assert text in str(told.value)
    assert isinstance(told.value.__cause__, KeyError)


def test_compiled_functions_take_names():
    pytest.importorskip("numba")

    def doubled(row, emit):
        if row["x"] is not None and row["x"] > 2:
            emit(row["x"] * 2 + row.k)

    pipeline = PIPELINE.flat_map(doubled, schema={"y": int}, compiled=True)
    assert pipeline.run(DATA).table.equals(run_serial(pipeline, DATA).table)
    assert len(run_serial(pipeline, DATA).rows) > 50

    def wrong(row, emit):
        emit(row["xs"])

    with pytest.raises(od.PlanError, match="no column 'xs'; it has: k, x, a b, at"):
        PIPELINE.map(wrong, schema={"y": int}, compiled=True).run(DATA)

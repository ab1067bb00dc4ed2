"""What frames of pandas and Polars hold beside their columns, wherever one is given."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.frames import readable
from ordstream.reference.run_serial import run_serial

FRAME = pd.DataFrame({"user": [1, 1, 2, 2], "page": list("aabb")}, index=[10, 11, 12, 13])
ROWS = [{"user": 1, "page": "a"}, {"user": 2, "page": "b"}]


def test_labels_of_rows_are_no_data():
    """A column `__index_level_0__` made each row another one."""
    pipeline = od.Pipeline(FRAME).deduplicate()
    assert pipeline.schema.names == ["user", "page"]
    assert pipeline.run(FRAME).table.to_pylist() == ROWS
    assert pipeline.run([FRAME, FRAME]).table.to_pylist() == ROWS
    assert pipeline.run(iter([FRAME])).table.to_pylist() == ROWS
    with pipeline.stream(FRAME) as stream:
        assert pa.table(stream).to_pylist() == ROWS
    assert len(run_serial(pipeline, FRAME).tags) == 2
    assert FRAME.index.tolist() == [10, 11, 12, 13]


def test_a_pipeline_of_a_filtered_frame_takes_one_that_is_whole():
    pipeline = od.Pipeline(FRAME[FRAME.user == 1])
    assert pipeline.run(FRAME.reset_index(drop=True)).report.tuples == 4


def test_a_looked_up_table_has_no_labels():
    joined = od.Pipeline({"user": int}).join_lookup(FRAME.drop_duplicates("user"), on="user")
    assert joined.schema.names == ["user", "page"]


@pytest.mark.parametrize(
    ("index", "names"),
    [
        (pd.RangeIndex(4), ["x"]),
        (pd.RangeIndex(4, 8, name="n"), ["x", "n"]),
        (pd.RangeIndex(4, 8, name="x"), ["x"]),
        (pd.Index([9, 8, 7, 6], name="x"), ["x"]),
        (pd.MultiIndex.from_arrays([[1, 2, 3, 4], list("abcd")], names=["x", "k"]), ["x", "k"]),
        (pd.Index(list("abcd")), ["x"]),
        (pd.date_range("2024", periods=4), ["x"]),
        (pd.Index(list("abcd"), name="k"), ["x", "k"]),
        (pd.MultiIndex.from_arrays([[1, 2, 3, 4], list("abcd")]), ["x"]),
        (pd.MultiIndex.from_arrays([[1, 2, 3, 4], list("abcd")], names=[None, "k"]), ["x", "k"]),
        (pd.MultiIndex.from_arrays([[1, 2, 3, 4], list("abcd")], names=["i", "k"]), ["x", "i", "k"]),
    ],
)
def test_levels_with_a_name_are_columns(index, names):
    frame = pd.DataFrame({"x": np.arange(4.0)}, index=index)
    table = od.Pipeline(frame).run(frame).table
    assert table.schema.names == names
    assert table["x"].to_pylist() == [0, 1, 2, 3]
    if "n" in names:
        assert table["n"].to_pylist() == [4, 5, 6, 7]
    if "k" in names:
        assert table["k"].to_pylist() == list("abcd")
    assert frame.index is index


def test_other_data_stays_what_it_is():
    for data in (pa.table({"x": [1]}), pl.DataFrame({"x": [1]}), FRAME.set_index("user"), [1], None):
        assert readable(data, "", od.SourceError) is data


OBJECTS = pl.DataFrame({"x": [object(), object()], "y": [1, 2]})
TOLD = r"column 'x' is an Object of Polars, .*frame\.drop\('x'\)"


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (lambda: od.Pipeline(OBJECTS), od.SchemaError),
        (lambda: od.Pipeline(OBJECTS.schema), od.SchemaError),
        (lambda: od.Pipeline({"y": int}).run(OBJECTS), od.SourceError),
        (lambda: od.Pipeline({"y": int}).run([OBJECTS]), od.SourceError),
        (lambda: od.Pipeline({"y": int}).join_lookup(OBJECTS, on="y"), od.PlanError),
        (lambda: od.Pipeline(pl.Schema({"x": pl.Struct({"o": pl.Object})})), od.SchemaError),
        (lambda: od.Pipeline(pl.Schema({"x": pl.List(pl.Object)})), od.SchemaError),
    ],
)
def test_objects_of_polars_are_refused(given, error):
    """Polars exports where they lie in memory, as bytes."""
    with pytest.raises(error, match=TOLD):
        given()


def test_other_columns_of_polars_pass():
    frame = OBJECTS.drop("x").with_columns(s=pl.struct("y"), l=pl.concat_list("y"))
    assert od.Pipeline(frame).run(frame).table.num_rows == 2
    assert od.Pipeline(frame.schema).schema.names == ["y", "s", "l"]


def test_two_columns_of_one_name():
    twice = pd.DataFrame([[1, 2, 3]], columns=["k", "a", "a"])
    for make, error in (
        (lambda: od.Pipeline(twice), od.SchemaError),
        (lambda: od.Pipeline({"k": int}).join_lookup(twice, on="k"), od.PlanError),
        (lambda: od.Pipeline({"k": int}).run(twice), od.SourceError),
    ):
        with pytest.raises(error, match=r"duplicate column name\(s\) 'a'"):
            make()


def test_an_integer_of_over_64_bits_among_objects_names_its_column():
    """pandas keeps it as an object of Python's; Arrow raises an OverflowError that names nothing."""
    wide = pd.DataFrame({"k": [1], "wide": [2**64]})
    pipeline = od.Pipeline({"k": int, "wide": int}).select("wide")
    for make, error in (
        (lambda: od.Pipeline(wide), od.SchemaError),
        (lambda: od.Pipeline({"k": int}).join_lookup(wide, on="k"), od.PlanError),
        (lambda: pipeline.run(wide), od.SourceError),
        (lambda: run_serial(pipeline, wide).table, od.SourceError),
    ):
        with pytest.raises(error, match=r"Arrow refuses: .*column 'wide'; cast it, or leave it out"):
            make()

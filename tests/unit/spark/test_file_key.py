"""Numbers that order files as their paths do."""

import random

import pytest

pytest.importorskip("pyspark")
from hypothesis import given
from hypothesis import strategies as st

from ordstream.spark.file_key import _names_in_one_folder, number_at


@given(st.lists(st.text("a01.-", min_size=1), min_size=1, unique=True))
def test_a_number_in_all_names_orders_them(names):
    names = sorted(names)
    at = number_at(names)
    if at is not None:
        numbers = [int(name[at[0] : at[0] + at[1]]) for name in names]
        assert numbers == sorted({*numbers})
        assert len(numbers) == len(names)


def test_where_the_number_stands():
    written = [f"part-{n:05}-7f3a1b2c-c000.snappy.parquet" for n in (0, 7, 10, 123)]
    assert number_at(written) == (5, 5)
    assert number_at(["part-00007-x.parquet"]) is None  # nothing to tell apart
    assert number_at(["f1.parquet", "f2.parquet"]) == (1, 1)
    assert number_at(["f10.parquet", "f2.parquet"]) == (1, 1)  # "1" is enough
    assert number_at(["f1.parquet", "f10.parquet", "f2.parquet"]) is None
    assert number_at(["a.parquet", "b.parquet"]) is None
    assert number_at(["part-00001-a", "part-00001-b"]) is None  # two jobs wrote into one folder
    assert number_at([f"{n:020}" for n in range(3)]) is None
    assert number_at([]) is None


def test_files_of_one_folder():
    paths = [f"file:///data/{name}.parquet" for name in "cab"]
    random.shuffle(paths)
    assert _names_in_one_folder(paths) == ["a.parquet", "b.parquet", "c.parquet"]
    assert _names_in_one_folder([*paths, "file:///data/more/d.parquet"]) == []
    assert _names_in_one_folder([*paths, paths[0]]) == []
    assert _names_in_one_folder(["file:///data/a%20b.parquet"]) == []  # or "a b.parquet": nobody knows
    assert _names_in_one_folder([]) == []

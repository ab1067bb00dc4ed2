"""Casts of structs, lists and maps: values stay, whatever slice they are, and no null gets lost."""

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.nested_cast import align, cast_column, nullable_inside
from ordstream.testing import run_serial

INNER = pa.struct([("x", pa.int64())])
LOOSE = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), INNER))])
STRICT = pa.struct(
    [
        pa.field("a", pa.int64(), False),
        pa.field("l", pa.list_(pa.field("element", pa.large_string(), False)), False),
        pa.field(
            "m",
            pa.map_(pa.string(), pa.field("v", pa.struct([pa.field("x", pa.int8(), False)]), False)),
            False,
        ),
    ]
)
VALUES = [
    None,
    {"a": 1, "l": [], "m": []},
    None,
    {"a": 2, "l": ["x", ""], "m": [("k", {"x": 3}), ("q", {"x": -1})]},
    {"a": 3, "l": ["y"], "m": []},
]


def test_nulls_under_a_null_are_none_of_the_field():
    inner = pa.array([None, 1, None, 2], pa.int32())  # as Spark's batches have it
    given = pa.StructArray.from_arrays([inner], ["a"], mask=pa.array([True, False, True, False]))
    found = cast_column(given, pa.struct([pa.field("a", pa.int64(), False)]))
    assert found.to_pylist() == [None, {"a": 1}, None, {"a": 2}]
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()),
        pa.array([1, None, None, 2], pa.int32()),
        mask=pa.array([False, True, False]),
    )
    strict = pa.list_(pa.field("item", pa.int64(), False))
    assert cast_column(lists, strict).to_pylist() == [[1], None, [2]]


@pytest.mark.parametrize(("start", "count"), [(0, 5), (1, 4), (2, 1), (3, 2), (0, 0)])
def test_every_slice_has_its_values(start, count):
    given = pa.array(VALUES, LOOSE).slice(start, count)
    found = cast_column(given, STRICT)
    found.validate(full=True)
    assert found.type.equals(STRICT)
    assert found.to_pylist() == VALUES[start : start + count]
    assert cast_column(found, LOOSE).equals(given)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": None, "l": [], "m": []}, "'a' is declared without nulls"),
        ({"a": 1, "l": None, "m": []}, "'l' is declared without nulls"),
        ({"a": 1, "l": [None], "m": []}, "'element' is declared without nulls"),
        ({"a": 1, "l": [], "m": [("k", None)]}, "'v' is declared without nulls"),
        ({"a": 1, "l": [], "m": [("k", {"x": None})]}, "'x' is declared without nulls"),
        ({"a": 1, "l": [], "m": [("k", {"x": 1000})]}, "1000 not in range"),
    ],
)
def test_what_does_not_fit(value, why):
    with pytest.raises(pa.ArrowInvalid, match=why):
        cast_column(pa.array([*VALUES, value], LOOSE), STRICT)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.list_(pa.int64(), 2), pa.list_(pa.int8())),
        (pa.list_(pa.int64()), pa.list_(pa.int8(), 2)),
        (pa.list_view(pa.int64()), pa.large_list(pa.int32())),
        (pa.large_list(pa.int64()), pa.list_(pa.int16())),
    ],
)
def test_lists_of_every_layout(given, wanted):
    values = [[1, 2], None, [3, None], [4, 5]]
    for start in (0, 1, 3):
        found = cast_column(pa.array(values, given).slice(start), wanted)
        found.validate(full=True)
        assert (found.type, found.to_pylist()) == (wanted, values[start:])


def test_extension_types_dictionaries_and_columns_of_nothing():
    ids = pa.array([[b"a" * 16], None, []])
    there = cast_column(ids, pa.list_(pa.uuid()))
    assert there.type == pa.list_(pa.uuid())
    assert cast_column(there, pa.list_(pa.binary())).equals(ids)
    coded = pa.array([["a", "b", "a"], None], pa.list_(pa.dictionary(pa.int8(), pa.string())))
    assert cast_column(coded, pa.list_(pa.string())).to_pylist() == [["a", "b", "a"], None]
    assert cast_column(pa.nulls(2), STRICT).to_pylist() == [None, None]
    empty = pa.array([{}, None], pa.struct([]))
    assert cast_column(empty, pa.struct([])) is empty


@pytest.mark.parametrize(
    "wanted", [pa.struct([("a", pa.int32())]), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())]
)
def test_what_is_no_such_column(wanted):
    with pytest.raises(pa.ArrowException):
        cast_column(pa.array(VALUES, LOOSE), wanted)


def test_a_batch_gets_the_names_and_types_of_a_schema():
    batch = pa.record_batch({"c0": pa.array(VALUES, LOOSE), "c1": pa.array(range(5), pa.int64())})
    schema = pa.schema([("s", STRICT), ("n", pa.int8())])
    found = align(batch, schema)
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"s": value, "n": n} for n, value in enumerate(VALUES)]
    assert align(found, schema) is found


def test_nulls_are_allowed_at_every_level():
    entries = pa.map_(pa.string(), pa.struct([("x", pa.int8())]))
    loose = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.large_string())), ("m", entries)])
    assert nullable_inside(STRICT).equals(loose)
    for type_ in (pa.list_(pa.int8(), 2), pa.large_list(pa.int8()), pa.string(), pa.uuid()):
        assert nullable_inside(type_) == type_


@pytest.mark.parametrize("given", [pa.list_(pa.null()), pa.large_list(pa.null())])
@pytest.mark.parametrize("wanted", [pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_(pa.string())])
def test_lists_without_a_value_are_lists_of_any_type(given, wanted):
    """pandas and Polars have a batch of empty lists so. The core and the reference take the same."""
    rows = pa.table({"x": pa.array([[], None, [None]], given)}).slice(1)
    pipeline = od.Pipeline({"x": wanted}).select("x")
    for found in (pipeline.run(rows).table, run_serial(pipeline, rows).table):
        assert found["x"].to_pylist() == [None, [None]]
        assert found.schema.field("x").type == wanted

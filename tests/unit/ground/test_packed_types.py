"""Packed types: which types they are, arrays in plain types, and what functions may return."""

from __future__ import annotations

import decimal
import random
import uuid

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.nested_cast import cast_column
from ordstream.ground.packed_types import as_plain, carried, packed_format, plain
from ordstream.ground.types import to_storage
from ordstream.testing import run_serial

POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])
VIEW = pa.string_view()
POINT_OF_VIEWS = pa.struct([("x", VIEW)])


@pytest.mark.parametrize(
    ("type_", "format_"),
    [
        (pa.int64(), None), (pa.string(), None), (pa.decimal128(30, 2), None), (pa.list_(pa.int8()), None),
        (pa.large_list(pa.bool_()), None), (pa.list_(pa.string()), "Pls"), (pa.binary(3), "PF3;"),
        (POINT, "P{F8;s}"), (pa.map_(pa.string(), pa.list_(pa.int16())), "Pl{slF2;}"),
        (pa.list_(pa.list_(pa.bool_()), 2), "Pf2;lb"), (pa.float16(), "PF2;"), (pa.null(), "Pn"),
        (pa.uuid(), "PF16;"), (pa.json_(), "Ps"), (pa.month_day_nano_interval(), "PF16;"),
        (pa.list_(pa.decimal128(3, 1)), "PlF16;"), (pa.struct([]), "P{}"),
    ],
)  # fmt: skip
def test_formats(type_, format_):
    assert packed_format(type_) == format_


@pytest.mark.parametrize("made", [pa.list_, lambda inner: pa.struct([("a", inner)])])
def test_depth_has_an_end(made):
    """A hostile schema is told, and nothing recurses without end; such data is told, too."""
    type_: pa.DataType = pa.int64()
    for _ in range(60):
        type_ = made(type_)
    deep = pa.table({"v": pa.array([None], type_)})
    assert od.Pipeline(deep.schema).run(deep).table.equals(deep)
    for more in (1, 100, 1_000):
        for _ in range(more):
            type_ = made(type_)
        with pytest.raises(od.SchemaError, match=r"'v': type .* with more than 60 levels, or a part"):
            od.Pipeline({"v": type_})
        with pytest.raises(od.SourceError, match="column 'v': expected"):
            od.Pipeline(deep.schema).run(pa.table({"v": pa.nulls(1, type_)}))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.dictionary(pa.int8(), pa.int64()), pa.int64()),
        (pa.run_end_encoded(pa.int32(), POINT), POINT),
        (pa.list_view(pa.int64()), pa.list_(pa.int64())),
        (pa.large_list(pa.int64()), pa.large_list(pa.int64())),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))]), pa.struct([("a", pa.string())])),
        (pa.list_(pa.field("item", pa.string(), nullable=False)), pa.list_(pa.string())),
        (pa.string_view(), pa.string_view()),
    ],
)
def test_what_a_pipeline_has(given, wanted):
    assert carried(given) == wanted
    assert od.Pipeline({"v": given}).schema.field("v").type == wanted


def nested(chance: random.Random, depth: int) -> pa.DataType:
    """A random type in random layouts."""
    kind = chance.randrange(9 if depth else 5)
    if kind < 5:
        return (pa.int16(), pa.string_view(), pa.bool_(), pa.null(), pa.large_binary())[kind]
    inner = nested(chance, depth - 1)
    if kind == 5:
        return pa.struct([("a", inner), ("b", nested(chance, depth - 1))])
    return (pa.large_list(inner), pa.list_view(inner), pa.map_(pa.int8(), inner))[kind - 6]


def value(chance: random.Random, type_: pa.DataType) -> object:
    if pa.types.is_null(type_) or chance.random() < 0.2:
        return None
    if pa.types.is_struct(type_):
        return {field.name: value(chance, field.type) for field in type_}
    if pa.types.is_map(type_):
        return [(chance.randrange(9), value(chance, type_.item_type)) for _ in range(chance.randrange(3))]
    if hasattr(type_, "value_type"):
        return [value(chance, type_.value_type) for _ in range(chance.randrange(4))]
    if pa.types.is_boolean(type_):
        return chance.random() < 0.5
    if pa.types.is_integer(type_):
        return chance.randrange(-9, 9)
    return "x" * chance.randrange(20) if pa.types.is_string_view(type_) else b"y" * chance.randrange(20)


@pytest.mark.parametrize("values", [["a", None, "b" * 9], [{"x": "a"}, None, {"x": None}], [1, None, 2**40]])
@pytest.mark.parametrize("null", [0, 1])
def test_encoded_arrays_of_any_values_in_plain_types(values, null):
    """pyarrow decodes no dictionary of views, and no runs of views or structs."""
    values = pa.array(values, {str: VIEW, dict: POINT_OF_VIEWS, int: pa.int64()}[type(values[0])])
    places = pa.array([0, 1, 2, 2, 0], mask=np.array([False, False, False, bool(null), False]))
    coded = pa.DictionaryArray.from_arrays(places, values)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 4, 9], pa.int16()), values)
    for array in (coded, coded.slice(1, 3), runs, runs.slice(3, 4), runs.slice(9)):
        found = as_plain(array)
        found.validate(full=True)
        assert found.type == plain(array.type)
        assert found.to_pylist() == array.to_pylist()


@pytest.mark.parametrize("seed", range(60))
def test_nested_arrays_in_plain_types(seed):
    """Slices with an offset, too, and through a run."""
    chance = random.Random(seed)
    type_ = pa.struct([("v", nested(chance, 3))])
    values = [value(chance, type_) for _ in range(20)]
    array = pa.array(values, type_)
    for part in (array, array.slice(3, 11), array.slice(20)):
        found = as_plain(part)
        found.validate(full=True)
        assert found.type == plain(type_)
        assert found.to_pylist() == part.to_pylist()
    rows = pa.table({"v": array, "k": [1] * 20}).slice(2)
    result = od.Pipeline(rows.schema).key_by("k").lag("v").run(rows, workers=1).table
    result.validate(full=True)
    assert result["v_lag"].to_pylist() == [None, *rows["v"].to_pylist()[:-1]]


@pytest.mark.parametrize(
    ("type_", "given", "stored"),
    [
        (POINT, {"x": 1, "y": None}, {"x": 1, "y": None}),
        (pa.list_(pa.string()), ("a", None), ["a", None]),
        (pa.list_(pa.int8(), 2), np.array([1, 2]), [1, 2]),
        (pa.map_(pa.string(), pa.int8()), {"a": 1}, [("a", 1)]),
        (pa.map_(pa.string(), pa.int8()), [("a", 1), ("a", 2)], [("a", 1), ("a", 2)]),
        (pa.uuid(), uuid.UUID(int=7), uuid.UUID(int=7).bytes),
        (pa.uuid(), uuid.UUID(int=7).bytes, uuid.UUID(int=7).bytes),
        (pa.binary(2), b"ab", b"ab"),
        (pa.float16(), 0.5, 0.5),
        (pa.decimal256(50, 1), decimal.Decimal("1.5"), decimal.Decimal("1.5")),
        (pa.bool8(), True, 1),
        (pa.bool8(), np.False_, 0),
        (pa.fixed_shape_tensor(pa.int8(), [2]), np.array([1, 2]), [1, 2]),
    ],
)
def test_what_a_function_may_return(type_, given, stored):
    assert to_storage(given, type_, "c") == stored
    rows = pa.table({"k": [1, 2]})
    made = od.Pipeline(rows.schema).map(lambda row: (given,), schema={"c": type_})
    found = made.run(rows, workers=1).table["c"].combine_chunks()
    found = found.storage if isinstance(found, pa.ExtensionArray) else found
    assert found.to_pylist() == [stored] * 2


@pytest.mark.parametrize(
    ("type_", "given"),
    [
        (POINT, {"x": 1}), (POINT, {"x": 1, "y": "a", "z": 2}), (POINT, {"x": None, "y": "a"}),
        (POINT, {"x": 1.5, "y": "a"}), (POINT, {"x": 2**63, "y": "a"}), (POINT, (1, "a")), (POINT, 5),
        (pa.list_(pa.string()), "ab"), (pa.list_(pa.string()), ["a", 1]), (pa.list_(pa.string()), {"a": 1}),
        (pa.list_(pa.int8(), 2), [1]), (pa.list_(pa.int8(), 2), [1, 300]),
        (pa.map_(pa.string(), pa.int8()), {"a": "b"}), (pa.map_(pa.string(), pa.int8()), ["ab"]),
        (pa.map_(pa.string(), pa.int8()), {None: 1}), (pa.uuid(), "x"), (pa.uuid(), b"short"),
        (pa.binary(2), b"abc"), (pa.binary(2), "ab"), (pa.float16(), "a"), (pa.float16(), 0.1),
        (pa.null(), 1), (pa.decimal256(50, 1), decimal.Decimal("1.55")),
        # pyarrow makes 0, [1, 2] and 1 of these
        (pa.bool8(), 0.1), (pa.fixed_shape_tensor(pa.int8(), [2]), [1.7, 2.9]),
        (pa.bool8(), uuid.UUID(int=1)),
        # no order, or no list
        (pa.list_(pa.string()), {"a", "b"}), (pa.list_(pa.float16()), bytearray(b"ab")),
    ],
)  # fmt: skip
def test_what_it_may_not(type_, given):
    with pytest.raises((TypeError, ValueError, OverflowError), match="'c'"):
        to_storage(given, type_, "c")
    rows = pa.table({"k": [1, 2]})
    made = od.Pipeline(rows.schema).map(lambda row: (given if row.k == 2 else None,), schema={"c": type_})
    with pytest.raises(od.OperatorError, match="'c'") as caught:
        made.run(rows, workers=1)
    assert caught.value.serial == 2


def test_a_function_may_give_back_a_bool8_of_its_row():
    values = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8()))
    rows = pa.table({"x": values})
    found = od.Pipeline(rows.schema).map(lambda row: (row.x,), schema=rows.schema).run(rows, workers=1)
    assert found.table["x"].to_pylist() == [True, False, None]


def smaller(type_):
    """The type with 32-bit offsets in lists."""
    if pa.types.is_large_list(type_):
        return pa.list_(smaller(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, smaller(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, smaller(field.type)) for field in type_])
    return pa.list_(smaller(type_.value_type)) if pa.types.is_list(type_) else type_


@pytest.mark.parametrize(
    ("type_", "full"),
    [
        (pa.large_list(pa.float64()), [1.5, 2.5]),
        (pa.large_list(pa.bool_()), [True, False]),
        (pa.large_list(pa.string()), ["a", "bc"]),
        (pa.large_list(pa.large_list(pa.int16())), [[1], [2, 3]]),
        (pa.large_list(POINT), [{"x": 1, "y": "a"}]),
        (pa.list_(pa.map_(pa.string(), pa.large_list(pa.int8()))), [[("a", [1])]]),
        (pa.struct([("a", pa.large_list(pa.int64()))]), {"a": [1, 2]}),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
@pytest.mark.parametrize("empty", [None, "[]"])
@pytest.mark.parametrize("make", [as_plain, lambda part: cast_column(part, smaller(part.type))])
def test_lists_without_elements_behind_others_can_be_joined_and_written(type_, full, empty, make):
    """They come through Arrow's C interface, as from a source, and one batch behind the other in a merge."""
    last = ({"a": []} if pa.types.is_struct(type_) else []) if empty else None
    array = pa.array([full] * 9 + [last] * 3, type_)
    parts = []
    for part in (array.slice(0, 9), array.slice(9), array.slice(9, 1)):
        batch = pa.record_batch([make(part)], ["a"])
        there = pa.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())
        parts.append(pa.ipc.read_record_batch(there.serialize(), there.schema))
        assert parts[-1].equals(batch)
        parts.append(there)
    joined = pa.concat_batches(parts)
    joined.validate(full=True)
    wanted = array.to_pylist()
    assert joined["a"].to_pylist() == [
        value for rows in (wanted[:9], wanted[9:], wanted[9:10]) for value in rows * 2
    ]


@pytest.mark.parametrize("inside", [False, True], ids=["lists", "lists in structs"])
@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"processes": 2}], ids=str)
def test_a_slice_that_was_cast_is_joined_and_written(inside, options):
    """Arrow's cast leaves such lists behind, and `pyarrow.table` breaks them: a run mends them."""

    def type_of(lists):
        return pa.struct([("a", lists)]) if inside else lists

    rows = [{"a": [1, 2]} if inside else [1, 2]] * 9 + [None] * 3
    array = pa.array(rows, type_of(pa.large_list(pa.int16())))
    data = []
    for part in (array.slice(0, 9), array.slice(9)):
        columns = [pa.array([1] * len(part)), part.cast(type_of(pa.list_(pa.int16())))]
        data += pa.table(pa.record_batch(columns, ["k", "v"])).to_batches()
    with pytest.raises(pa.ArrowException):  # else Arrow needs no help any more
        pa.concat_batches(data)
    found = od.Pipeline(data[0].schema).key_by("k").scan(n=od.count()).run(iter(data), **options).table
    assert found.combine_chunks()["v"].to_pylist() == array.to_pylist()
    for batch in found.to_batches():
        assert pa.ipc.read_record_batch(batch.serialize(), batch.schema).equals(batch)


@pytest.mark.parametrize("value", [pa.string(), VIEW, pa.int32(), POINT, pa.list_(pa.string())], ids=str)
def test_null_structs_over_a_dictionary_without_values(value):
    """A batch of null structs, as pyarrow makes it: its indices are of no value."""
    type_ = pa.struct([("a", pa.dictionary(pa.int8(), value))])
    schema = pa.schema([("c", type_)])
    none = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([], value), safe=False)
    nulls = pa.StructArray.from_arrays([none], fields=[*type_], mask=pa.array([True, True]))
    batch = pa.RecordBatch.from_arrays([nulls], schema=schema)
    pipeline = od.Pipeline(schema).filter(od.col("c").is_null())
    expected = run_serial(pipeline, [batch]).table.to_pylist()
    for workers in (0, 2):
        assert pipeline.run([batch], workers=workers).table.to_pylist() == expected == [{"c": None}] * 2

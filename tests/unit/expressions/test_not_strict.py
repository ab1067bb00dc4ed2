"""strict=False: null in place of an error, for text that says no such value and numbers out of range."""

from __future__ import annotations

import datetime
import math
import random

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions import not_strict
from ordstream.testing import run_serial

TEXTS = ["1", "x", None, "3.5", " 7", "-12", "99999999999", "300", "", "nan", "1e400", "true", "-0", "+5",
         "++5", "+-5", "+", "+0x1F", "0x1F", "+007", "+9223372036854775808", "+5 ", "5+", "+1e2", "+300",
         "9223372036854775808", "2024-02-30", "2024-02-29", "2024-02-29T10:00:00", "12:30"]  # fmt: skip
FLOATS = [0.0, -0.0, 1.9, -1.9, math.nan, math.inf, -math.inf, 2.0**63, -(2.0**63), -(2.0**63) - 2048,
          None, 127.9, 128.0, -128.9, 255.99, 256.0, -0.99, -1.0, 2.0**31, 2.0**63 - 1024]  # fmt: skip
INTS = [0, -1, 127, 128, -129, 255, 256, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), None]
WIDTHS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]


def by_arrow(value, source, target):
    """What Arrow's cast makes of a value, or None; of whole numbers it reads 64 bits, as a strict cast."""
    try:
        if pa.types.is_integer(target):
            if isinstance(value, str) and value[:1] == "+" and value[1:].isdigit():
                value = value[1:]  # Arrow reads the sign of floats alone
            value, source = pa.array([value], source).cast(pa.int64())[0].as_py(), pa.int64()
        return pa.array([value], source).cast(target)[0].as_py()
    except pa.ArrowInvalid:
        return None


def range_of(name):
    bits = int(name.strip("uint"))
    return (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def whole(value, name):
    """A number cut off to an integer of a type, or None."""
    least, most = range_of(name)
    if value is None or not math.isfinite(value) or not least <= math.trunc(value) <= most:
        return None
    return math.trunc(value)


def same(pipeline, table):
    """The pipeline's output, which is that of run_serial with any chunks and workers."""
    serial = run_serial(pipeline, table)
    assert serial.error is None
    for options in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 64}, {}):
        found = pipeline.run(table, **options).table
        assert list(map(str, found.to_pylist())) == list(map(str, serial.table.to_pylist()))
    return serial.table


@pytest.mark.parametrize(
    "name", [*WIDTHS, "float", "double", "bool", "timestamp[us]", "timestamp[s]", "date32"]
)
def test_text_that_says_no_such_value_is_null(name):
    texts = pa.table({"x": random.Random(name).choices(TEXTS, k=700)})
    found = same(od.Pipeline(texts.schema).select(y=od.col("x").cast(name, strict=False)), texts)
    type_ = found.schema.field("y").type
    expected = [by_arrow(value, pa.string(), type_) for value in texts["x"].to_pylist()]
    assert list(map(str, found["y"].to_pylist())) == list(map(str, expected))


@pytest.mark.parametrize("name", WIDTHS)
def test_numbers_out_of_range_are_null(name):
    table = pa.table(
        {"f": random.Random(1).choices(FLOATS, k=300), "i": random.Random(2).choices(INTS, k=300)}
    )
    made = {"f": od.col("f").cast(name, strict=False), "i": od.col("i").cast(name, strict=False)}
    found = same(od.Pipeline(table.schema).select(**made), table)
    for column in ("f", "i"):
        assert found[column].to_pylist() == [whole(value, name) for value in table[column].to_pylist()]


def test_unsigned_numbers_of_64_bits():
    table = pa.table({"x": ["0", "-1", "9223372036854775807", "y"], "f": [-0.5, -1.0, 2.0**62, math.nan]})
    made = {"x": od.col("x").cast("uint64", strict=False), "f": od.col("f").cast("uint64", strict=False)}
    found = same(od.Pipeline(table.schema).select(**made), table)
    assert found.to_pydict() == {"x": [0, None, 2**63 - 1, None], "f": [0, None, 2**62, None]}


def test_times_by_a_format():
    texts = pa.table(
        {"x": ["29.02.2024 10:00", "30.02.2024 10:00", None, "soon", "", "29.02.2023 00:00"] * 50}
    )
    at = od.col("x").str.to_datetime("%d.%m.%Y %H:%M", time_unit="s", strict=False)
    day = od.col("x").str.slice(0, 10).str.to_date("%d.%m.%Y", strict=False)
    found = same(od.Pipeline(texts.schema).select(at=at, day=day), texts)
    assert found["at"].to_pylist() == [datetime.datetime(2024, 2, 29, 10), *[None] * 5] * 50
    assert found["day"].to_pylist() == [datetime.date(2024, 2, 29), *[None] * 5] * 50


def test_it_is_part_of_an_expression_and_of_state():
    rows = pa.table({"k": [1, 1, 2, 1], "x": ["3", "?", "4", "2.5"]})
    value = od.col("x").cast(float, strict=False).fill_null(0.0) * 2
    found = same(od.Pipeline(rows.schema).key_by("k").scan(total=od.sum(value)), rows)
    assert found["total"].to_pylist() == [6.0, 6.0, 8.0, 11.0]


def test_a_constant_without_a_type():
    rows = pa.table({"x": [1]})
    made = od.Pipeline(rows.schema).select(y=od.lit(None).cast(int, strict=False))
    assert same(made, rows).to_pydict() == {"y": [None]}


def test_what_it_is_not_for():
    pipeline = od.Pipeline({"n": pa.int64(), "d": pa.decimal128(9, 2), "t": str})
    with pytest.raises(od.SchemaError, match="strict=False is for casts of text and between numbers"):
        pipeline.select(y=od.col("n").cast(pa.timestamp("s"), strict=False))
    for column, target in (("d", pa.int32()), ("n", pa.decimal128(5, 0))):
        with pytest.raises(od.SchemaError, match="no cast from"):
            pipeline.select(y=od.col(column).cast(target, strict=False))
    with pytest.raises(od.SchemaError, match=r"Arrow's cast refuses.*time64"):
        pipeline.select(y=od.col("t").cast("time64[us]", strict=False))
    with pytest.raises(AttributeError, match=r"write cast\(type, strict=False\)"):
        od.col("t").try_cast(int)


def test_an_error_of_a_strict_one_leads_to_it():
    rows = pa.table({"x": ["1", "x"]})
    for made in (od.col("x").cast(int), od.col("x").str.to_datetime("%d")):
        pipeline = od.Pipeline(rows.schema).select(y=made)
        with pytest.raises(od.OperatorError, match="with strict=False it is null"):
            pipeline.run(rows)
        assert "with strict=False it is null" in str(run_serial(pipeline, rows).error)


def test_it_is_shown_as_it_is_written():
    x = od.col("x")
    shown = {
        repr(x.cast(int, strict=False)): "cast(x, int64, strict=False)",
        repr(x.str.to_datetime()): "x.str.to_datetime()",
        repr(x.str.to_datetime("%d", time_unit="s", strict=False)):
            "x.str.to_datetime('%d', time_unit='s', strict=False)",
        repr(x.str.to_date("%d", strict=False)): "x.str.to_date('%d', strict=False)",
    }  # fmt: skip
    assert list(shown) == list(shown.values())


def test_what_is_the_same_is_refused_once(monkeypatch):
    """Arrow tells of one text at a time, and a refusal is slow."""
    sizes, halves = [], not_strict._by_halves

    def counting(values, call):
        sizes.append(len(values))
        return halves(values, call)

    monkeypatch.setattr(not_strict, "_by_halves", counting)
    texts = pa.array(["9" * 19, "7", None, "8" * 30] * 500)
    p = od.Pipeline({"x": pa.string()}).select(y=od.col("x").cast(int, strict=False))
    found = p.run(pa.table({"x": texts}), workers=0, chunk_rows=2_000).table
    assert found["y"].to_pylist() == [None, 7, None, None] * 500
    assert 0 < len(sizes) < 20
    assert max(sizes) <= 4  # null's place may hold a text of its own


def test_what_looks_like_no_value_is_not_tried(monkeypatch):
    """200,000 distinct texts of which 1 % were no dates took 33 us each, 30 % 293."""
    monkeypatch.setattr(not_strict, "_by_halves", None)
    texts = [f"n/a {i}" if i % 3 else str(i) for i in range(3_000)]
    dates = [f"{i} Foo" if i % 3 else "2024-02-29" for i in range(3_000)]
    made = {
        "whole": od.col("x").cast(int, strict=False),
        "number": od.col("x").cast(float, strict=False),
        "truth": od.col("x").cast(bool, strict=False),
        "narrow": od.col("x").cast(pa.uint8(), strict=False),
        "date": od.col("d").str.to_date(strict=False),
        "day": od.col("d").str.to_date("%Y-%m-%d", strict=False),
    }
    rows = pa.table({"x": texts, "d": dates})
    found = od.Pipeline(rows.schema).select(**made).run(rows, workers=0).table.to_pydict()
    assert found["whole"] == [None if i % 3 else i for i in range(3_000)]
    assert found["number"] == found["whole"]
    assert found["truth"] == [False if i == 0 else None for i in range(3_000)]
    assert found["narrow"] == [None if i % 3 or i > 255 else i for i in range(3_000)]
    assert found["date"] == found["day"]
    assert found["day"] == [None if i % 3 else datetime.date(2024, 2, 29) for i in range(3_000)]


LOOKS = ["12", "-5", "+7", "0x1F", "1_000", "3.5", "-.5", "5.", "1e5", "iNf", "-nan", "Infinity", "nan(1)",
         "2024-01-02", "2024-01-02T10:11", "2024-01-02 10:11:12.5", "2024-01-02T10Z", "12024-01-02",
         "tRUE", "false", "0", "\n1", "1\n", "\u0663"]  # fmt: skip


@pytest.mark.parametrize("name", ["int64", "int16", "double", "float", "bool", "timestamp[us]", "date32"])
def test_what_is_left_out_is_what_arrow_refuses(name):
    """Texts that nearly look right, each beside Arrow's cast of it alone."""
    draw = random.Random(name)
    texts = []
    for _ in range(1_500):
        text = list(draw.choice(LOOKS))
        for _ in range(draw.randrange(3)):
            place = draw.randrange(len(text) + 1)
            text[place : place + draw.randrange(2)] = draw.choice(["", *"0123456789-+.:eExXTZ nNaAiIfF\n"])
        texts.append("".join(text))
    rows = pa.table({"x": texts})
    found = od.Pipeline(rows.schema).select(y=od.col("x").cast(name, strict=False)).run(rows).table
    expected = [by_arrow(one, pa.string(), found.schema.field("y").type) for one in texts]
    assert list(map(str, found["y"].to_pylist())) == list(map(str, expected))
    assert 0 < found["y"].null_count < len(texts)


def test_a_thread_keeps_no_long_texts():
    """It keeps its last column, for the second of two questions about it."""
    texts = pa.array(["7" * 18 + " " * 5_000] * 1_000 + ["7"], pa.large_string())
    found = not_strict.answers(texts, lambda values: values.cast(pa.int64()), "cast", (("to", pa.int64()),))
    assert found.null_count == 1_000
    assert not_strict._LAST.values is not texts


def test_a_plus_is_part_of_an_integer():
    """As of a float: with strict=False it was null."""
    data = pa.table({"x": ["+5", "6", None, "-7", "+008"]})
    pipeline = od.Pipeline(data.schema).select(
        a=od.col("x").cast(int), b=od.col("x").cast(int, strict=False), c=od.col("x").cast("int8")
    )
    found = same(pipeline, data)
    for name in "abc":
        assert found[name].to_pylist() == [5, 6, None, -7, 8]
    wrong = od.Pipeline(data.schema).select(a=od.col("x").cast(int))
    for text in ("++5", "+-5", "+0x1F", "+"):
        with pytest.raises(od.OperatorError, match="Failed to parse string"):
            wrong.run(pa.table({"x": ["+1", text]}))

"""Casts to decimals, and of decimals to text: beside Python's decimal module and `run_serial`."""

import decimal
import math
import random
import re
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ordstream as od
from ordstream.expressions import decimal_casts, not_strict
from ordstream.expressions.evaluate import evaluate
from ordstream.expressions.lowering import lower
from ordstream.reference.run_serial import run_serial

col, D = od.col, pa.decimal128
MONEY = D(10, 2)
_EXACT = decimal.Context(prec=3_000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
TYPES = [
    MONEY,
    D(18, 6),
    D(18, 0),
    D(5, 5),
    D(1, 0),
    D(19, 2),
    D(38, 0),
    D(38, 9),
    D(38, 31),
    D(38, 38),
]


def agreed(pipeline, table):
    """The rows that every run gives."""
    expected = run_serial(pipeline, table)
    assert expected.error is None, expected.error
    for workers, size in ((0, 1), (1, 7), (2, None), (0, None)):
        found = pipeline.run(table, workers=workers, chunk_rows=size).table
        found.validate(full=True)
        assert found.schema.equals(expected.table.schema)
        assert found.to_pylist() == expected.table.to_pylist()
    return expected.table


def failed(expr, table):
    """The row and the reason of the error that every run ends with."""
    pipeline = od.Pipeline(table.schema).select(y=expr)
    expected = run_serial(pipeline, table).error
    assert expected is not None
    for size in (1, 7, None):
        with pytest.raises(od.OperatorError) as found:
            pipeline.run(table, chunk_rows=size)
        assert (found.value.serial, found.value.reason) == (expected.serial, expected.reason)
    return expected.serial, expected.reason


def rounded(value, to, how=decimal.ROUND_HALF_UP):
    """The nearest decimal of a type, or None where it has none."""
    if value is None or not value.is_finite():
        return None
    made = value.quantize(Decimal(1).scaleb(-to.scale), rounding=how, context=_EXACT)
    return made if not made or made.adjusted() + to.scale < to.precision else None


def read(text, to):
    """What a text says, or None: every place of it has room."""
    if text is None or not re.fullmatch(
        r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,9})?", text, re.ASCII
    ):
        return None
    value = _EXACT.create_decimal(text)
    if value and not -100 < value.adjusted() < 100:
        return None
    made = rounded(value, to)
    return made if made is not None and made == value else None


def column(values, type_):
    return pa.table({"x": pa.array(values, type_)})


def in_parts(table, *types):
    """What a column is as each of the types, without its errors: as a whole, in slices and none of it."""
    casts = {str(n): col("x").cast(type_, strict=False) for n, type_ in enumerate(types)}
    pipeline = od.Pipeline(table.schema).select(**casts)
    whole = agreed(pipeline, table)
    assert whole.schema.types == list(types)
    half = len(table) // 2
    for part, rows in ((table[:half], whole[:half]), (table[half:], whole[half:]), (table[:0], whole[:0])):
        assert pipeline.run(part, workers=0).table.to_pylist() == rows.to_pylist()
    made = [column.to_pylist() for column in whole.columns]
    return made if len(made) > 1 else made[0]


# ---------------------------------------------------------------------------------------------- from text

TEXTS = [
    "1", "1.05", "-0.01", "+1", ".5", "5.", "-.5", "0", "-0", "00012.50", "1.000", "1.005",
    "-1.005", "99999999.99", "99999999.995", "100000000", "1e3", "1E-2", "1e-3", "-1.5e1", "5.e1",
    ".5e1", "1e+2", "0e50", "1e37", "1e38", "9e38", "-9e38", "1e-40", "1e400", "1e-400",
    "1e2147483648", "1e99999999999999999999", "9" * 38, "-" + "9" * 38, "9" * 39, "0." + "9" * 38,
    "0." + "0" * 45, "1." + "0" * 45, "0" * 45 + "1.5", "13311535604", str(2**128 + 5), str(2**128 +
    5) + ".00", "0.00001", "12345678901234567.12", "", ".", "-", "+", "e", "e5", "1e", "1.2e",
    ".e3", "--1", "+-1", " 1", "1 ", "1\n", "nan", "inf", "-Infinity", "0x1F", "1_000", "1,000.00",
    "\u0661", "1.2.3", "1e1.5", None,
]  # fmt: skip


@pytest.mark.parametrize("to", TYPES, ids=str)
def test_a_text_is_the_decimal_that_it_says_or_null(to):
    table = column(TEXTS, pa.string())
    assert in_parts(table, to) == [read(text, to) for text in TEXTS]


@pytest.mark.parametrize("to", [MONEY, D(18, 6), D(38, 9), D(38, 31)], ids=str)
def test_texts_nearly_numbers(to):
    draw = random.Random(str(to))
    texts = []
    for _ in range(1_500):
        text = list(draw.choice(["12.50", "-0.001", "1e5", "7" * 30, "1" * 7, "0.12345678", "5", "+3."]))
        for _ in range(draw.randrange(3)):
            place = draw.randrange(len(text) + 1)
            text[place : place + draw.randrange(2)] = draw.choice(["", *"0123456789-+.eE \n"])
        texts.append("".join(text))
    found = in_parts(column(texts, pa.string()), to)
    assert found == [read(text, to) for text in texts]
    assert 0 < found.count(None) < len(texts)


@pytest.mark.parametrize("to", TYPES, ids=str)
def test_what_arrow_reads_is_read(to):
    """Where its own product does not leave 128 bits."""
    for text in TEXTS:
        try:
            arrow = pa.array([text], pa.string()).cast(to)[0].as_py()
        except pa.ArrowInvalid:
            continue
        if text is None or arrow == _EXACT.create_decimal(text):
            assert read(text, to) == arrow


@given(
    st.lists(st.from_regex(r"\A[-+]?[0-9]{0,22}(\.[0-9]{0,20})?(e-?[0-9])?\Z"), max_size=12),
    st.sampled_from(TYPES),
)
def test_any_texts(texts, to):
    assert in_parts(column(texts, pa.string()), to) == [read(text, to) for text in texts]


@pytest.mark.parametrize(
    ("text", "to", "words"),
    [
        ("soon", MONEY, "Failed to parse string: 'soon' as a scalar of type decimal128(10, 2)"),
        ("", D(38, 2), "Failed to parse string: '' as a scalar of type decimal128(38, 2)"),
        ("nan", MONEY, "Failed to parse string: 'nan'"),
        (
            "1.005",
            MONEY,
            "'1.005' has more than 2 places; a cast to more of them, then to decimal128(10, 2), rounds",
        ),
        ("123456789", MONEY, "'123456789' does not fit into decimal128(10, 2)"),
        (str(2**128 + 5), D(38, 2), "does not fit into decimal128(38, 2)"),
        ("1e400", MONEY, "does not fit"),
    ],
)
def test_a_text_without_a_decimal_names_its_row(text, to, words):
    table = column(["1.5" if to.scale else "1", None, text, "2", text] * 3, pa.string())
    serial, reason = failed(col("x").cast(to), table)
    assert serial == 3
    assert reason.startswith("ValueError: ")
    assert words in reason
    assert reason.endswith("; with strict=False it is null")


def test_rows_without_a_decimal_are_skipped_alone():
    table = pa.table({"n": range(len(TEXTS)), "x": TEXTS})
    pipeline = od.Pipeline(table.schema).select("n", y=col("x").cast(MONEY), on_error="skip")
    for size in (1, 7, None):
        found = pipeline.run(table, workers=0, chunk_rows=size).table
        wanted = [(n, read(x, MONEY)) for n, x in enumerate(TEXTS)]
        assert list(zip(*found.to_pydict().values(), strict=True)) == [
            (n, y) for n, y in wanted if y is not None or TEXTS[n] is None
        ]


# ------------------------------------------------------------------------------------------- from decimals

SCALED = [*TYPES, D(5, -2), D(30, -5)]


def edges(type_):
    """Units at the ends of a type, and halves of what may be rounded away."""
    most = 10**type_.precision - 1
    some = {
        0,
        1,
        4,
        5,
        6,
        14,
        15,
        25,
        49,
        50,
        51,
        149,
        150,
        10**5 // 2,
        10**6 // 2 - 1,
        10**9 * 5,
        most,
        most - 4,
    }
    some |= {most - 10**k // 2 for k in range(0, type_.precision, 5)}
    units = sorted({sign * one for one in some if one <= most for sign in (1, -1)})
    return [*(_EXACT.scaleb(Decimal(one), -type_.scale) for one in units), None]


@pytest.mark.parametrize("given_type", SCALED, ids=str)
def test_a_decimal_is_rounded_half_away_from_zero_or_null(given_type):
    values = edges(given_type)
    table = column(values, given_type)
    for to, found in zip(SCALED, in_parts(table, *SCALED), strict=True):
        assert found == [rounded(value, to) for value in values], to


@given(st.data())
def test_any_decimals(data):
    given_type, to = data.draw(st.sampled_from(SCALED)), data.draw(st.sampled_from(SCALED))
    most = 10**given_type.precision - 1
    units = data.draw(
        st.lists(st.one_of(st.none(), st.integers(-most, most), st.integers(-60, 60)), max_size=9)
    )
    values = [
        None if one is None or abs(one) > most else _EXACT.scaleb(Decimal(one), -given_type.scale)
        for one in units
    ]
    table = column(values, given_type)
    assert in_parts(table, to) == [rounded(value, to) for value in values]


def test_it_is_duckdb_s():
    draw = random.Random(5)
    values = [Decimal(draw.randrange(-(10**9), 10**9)).scaleb(-draw.choice((4, 5))) for _ in range(3_000)]
    table = column(values, D(20, 5))
    gross = (col("x") * Decimal("1.195")).cast(D(12, 0))
    pipeline = od.Pipeline(table.schema).select(
        a=col("x").cast(D(18, 2)), b=col("x").cast(D(38, 4)), c=gross
    )
    found = agreed(pipeline, table)
    connection = duckdb.connect()
    connection.register("t", table)
    wanted = connection.sql(
        "select x::decimal(18, 2) a, x::decimal(38, 4) b, (x * 1.195)::decimal(12, 0) c from t"
    ).to_arrow_table()
    assert found.to_pydict() == wanted.to_pydict()


@pytest.mark.parametrize(
    ("given_type", "to"),
    [(MONEY, D(5, 1)), (MONEY, D(9, 2)), (D(30, 4), D(8, 2)), (D(38, 2), D(38, 3)), (MONEY, D(38, 38))],
    ids=str,
)
def test_a_decimal_that_does_not_fit_names_its_row(given_type, to):
    most = _EXACT.scaleb(Decimal(10**given_type.precision - 1), -given_type.scale)
    table = column([Decimal(0), None, most.copy_negate(), Decimal(0)], given_type)
    serial, reason = failed(col("x").cast(to), table)
    assert serial == 3
    assert reason == f"OverflowError: -{most:f} does not fit into {to}; with strict=False it is null"


def test_rows_without_a_place_are_skipped_together(monkeypatch):
    """Of decimals of 64 and of 128 bits and of floats: in one call, not by a call for each row."""
    draw = random.Random(8)
    units = [None if n % 7 == 0 else draw.randrange(-(10**6), 10**6) for n in range(500)]
    money = [None if one is None else Decimal(one).scaleb(-2) for one in units]
    floats = [None if one is None else one / 128 for one in units]
    calls, asked = [], decimal_casts.decimal_or_null

    def counted(values, to):
        calls.append(len(values))
        return asked(values, to)

    monkeypatch.setattr(decimal_casts, "decimal_or_null", counted)
    monkeypatch.setattr(not_strict, "decimal_or_null", counted)
    for given_type, values in ((MONEY, money), (D(30, 2), money), (pa.float64(), floats)):
        how = decimal.ROUND_HALF_EVEN if given_type == pa.float64() else decimal.ROUND_HALF_UP
        wanted = [None if value is None else rounded(Decimal(value), D(4, 1), how) for value in values]
        table = pa.table({"n": pa.array(range(500)), "x": pa.array(values, given_type)})
        pipeline = od.Pipeline(table.schema).select("n", y=col("x").cast(D(4, 1)), on_error="skip")
        kept = [(n, y) for n, y in enumerate(wanted) if y is not None or values[n] is None]
        assert 50 < len(kept) < 450
        for size in (1, 7, 500):
            calls.clear()
            found = pipeline.run(table, workers=0, chunk_rows=size).table
            assert list(zip(*found.to_pydict().values(), strict=True)) == kept
        assert len(calls) < 10, calls


def test_money_is_rounded_in_every_part_of_a_pipeline():
    """From text to a sum, through each operator that computes."""
    draw = random.Random(2)
    texts = [
        draw.choice([None, "x", *(f"{draw.randrange(10**6) / 1000:.3f}" for _ in range(8))])
        for _ in range(300)
    ]
    table = pa.table({"n": range(300), "k": [n % 3 for n in range(300)], "x": texts})
    price = col("x").cast(D(12, 3), strict=False)
    gross = (price * Decimal("1.195")).cast(MONEY)
    wide = (price * price * price).cast(D(20, 2))
    prices = [read(text, D(12, 3)) for text in texts]
    wanted = [None if one is None else rounded(one * Decimal("1.195"), MONEY) for one in prices]
    cubes = [None if one is None else rounded(one * one * one, D(20, 2)) for one in prices]
    pipeline = od.Pipeline(table.schema)
    found = agreed(pipeline.with_columns(gross=gross, wide=wide, text=gross.cast(str)), table)
    assert found["gross"].to_pylist() == wanted
    assert found["wide"].to_pylist() == cubes
    assert found["text"].to_pylist() == [None if one is None else str(one) for one in wanted]
    kept = agreed(pipeline.filter(gross.cast(D(9, 0)) > 500).select("n"), table)
    assert kept["n"].to_pylist() == [
        n for n, y in enumerate(wanted) if y is not None and rounded(y, D(9, 0)) > 500
    ]
    chosen = agreed(pipeline.select(y=od.when(price > 500, gross).otherwise(od.lit(Decimal("1.00")))), table)
    assert chosen["y"].to_pylist() == [
        y if p is not None and p > 500 else 1 for p, y in zip(prices, wanted, strict=True)
    ]
    sums = agreed(
        pipeline.key_by("k").aggregate(total=od.sum(gross), most=od.max(wide), emit="final"), table
    )
    for k, total, most in zip(*sums.to_pydict().values(), strict=True):
        assert total == sum(y for y in wanted[k::3] if y is not None)
        assert most == max(y for y in cubes[k::3] if y is not None)
    keyed = agreed(pipeline.with_columns(g=gross.cast(D(20, 0))).key_by("g").scan(c=od.count()), table)
    assert keyed.num_rows == 300


def test_constants_are_cast_too():
    table = pa.table({"n": [1, 2]})
    made = od.Pipeline(table.schema).select(
        a=od.lit("1.5").cast(MONEY),
        b=od.lit(Decimal("2.345")).cast(MONEY),
        c=od.lit("x").cast(D(38, 2), strict=False),
        d=od.lit(Decimal("12345678901234567890.5")).cast(D(38, 0)),
        e=od.lit(0.125).cast(D(38, 2)),
        f=od.lit(Decimal("12345678901234567890.5")).cast(str),
        g=od.lit(None).cast(MONEY),
        h=od.lit(None).cast(D(38, 2), strict=False),
    )
    found = agreed(made, table).to_pylist()
    assert list(found[0].values()) == [
        Decimal("1.50"),
        Decimal("2.35"),
        None,
        12345678901234567891,
        Decimal("0.12"),
        "12345678901234567890.5",
        None,
        None,
    ]
    assert "does not fit" in failed(od.lit(Decimal("123.4")).cast(D(2, 1)), table)[1]


def test_what_a_null_hides_is_not_looked_at():
    """Bytes under nulls that are no value of the type."""
    for given_type in (MONEY, D(38, 2)):
        data = pa.py_buffer(b"\xff" * 15 + b"\x7f" + (150).to_bytes(16, "little"))
        table = pa.table({"x": pa.Array.from_buffers(given_type, 2, [pa.py_buffer(b"\x02"), data])})
        for to in (D(3, 1), D(38, 1), D(38, 38), D(2, 0)):
            value = rounded(Decimal("1.50"), to)
            assert in_parts(table, to) == [None, value]
        assert decimal_casts.to_decimal(table["x"].chunk(0), D(20, 0)).to_pylist() == [None, 2]
        assert decimal_casts.decimal_text(table["x"].chunk(0)).to_pylist() == [None, "1.50"]


# ---------------------------------------------------------------------------------------------- from floats

FLOATS = [0.0, -0.0, 0.005, 0.125, 0.375, -0.125, 2.5, 3.5, 1.005, 2.675, 99999999.99, 99999999.994,
          99999999.995, -99999999.995, 1e8, 1e18, 2.0**63, 1e22, 1e23, 1e37, 1e38, 1.7e38, 1e300,
          5e-324, math.nan, math.inf, -math.inf, None]  # fmt: skip


@pytest.mark.parametrize("to", [MONEY, D(18, 6), D(18, 0), D(1, 0), D(19, 2), D(38, 0), D(38, 9)], ids=str)
def test_a_float_is_the_nearest_decimal_a_tie_the_even_one(to):
    draw = random.Random(3)
    values = [*FLOATS, *(draw.uniform(-1e4, 1e4) for _ in range(200)), *(n / 8 for n in range(-60, 60))]
    exact = [None if value is None else Decimal(value) for value in values]
    wanted = [rounded(value, to, decimal.ROUND_HALF_EVEN) for value in exact]
    assert in_parts(column(values, pa.float64()), to) == wanted


@given(st.lists(st.floats(), max_size=9), st.sampled_from(TYPES))
def test_any_floats(values, to):
    """As Arrow casts each alone."""
    wanted = []
    for value in values:
        try:
            wanted.append(pa.array([value], pa.float64()).cast(to)[0].as_py())
        except pa.ArrowInvalid:
            wanted.append(None)
    assert in_parts(column(values, pa.float64()), to) == wanted


def test_a_float32_is_the_float64_that_it_is():
    table = column([0.1, 2.675, None], pa.float32())
    assert in_parts(table, D(18, 10)) == [Decimal("0.1000000015"), Decimal("2.6749999523"), None]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e8, -99999999.995])
def test_a_float_that_does_not_fit_names_its_row(value):
    table = column([1.0, None, value, 2.0, value], pa.float64())
    serial, reason = failed(col("x").cast(MONEY), table)
    assert serial == 3
    assert reason == f"OverflowError: {value} does not fit into {MONEY}; with strict=False it is null"


# ------------------------------------------------------------------------------------------------- to text


@pytest.mark.parametrize("type_", SCALED, ids=str)
def test_a_decimal_is_written_in_plain_digits(type_):
    values = edges(type_)
    table = column(values, type_)
    found = agreed(od.Pipeline(table.schema).select(y=col("x").cast(str)), table)
    assert found.schema.field("y").type == pa.string()
    assert found["y"].to_pylist() == [None if value is None else f"{value:f}" for value in values]
    assert agreed(od.Pipeline(table.schema).select(y=col("x").cast(str, strict=False)), table) == found
    if type_.scale >= 0:
        back = agreed(od.Pipeline(found.schema).select(x=col("y").cast(type_)), found)
        assert back == table


def test_a_decimal_stands_beside_a_text():
    table = column([Decimal("1.50"), None], MONEY)
    found = agreed(od.Pipeline(table.schema).select(y=col("x").cast(str) + " EUR"), table)
    assert found["y"].to_pylist() == ["1.50 EUR", None]


# ------------------------------------------------------------------------------------------------ elsewhere


def test_what_keeps_every_value_calls_no_function():
    schema = pa.schema([("x", MONEY), ("i", pa.int64())])
    for expr in (
        col("x").cast(D(14, 4)), col("x").cast(D(38, 2), strict=False), col("x").cast(MONEY, strict=False),
        col("x").cast(float, strict=False), col("i").cast(D(19, 0), strict=False),
    ):  # fmt: skip
        assert not lower(expr, schema, "test").calls_arrow()


def test_what_is_refused_says_what_to_do():
    schema = pa.schema(
        [("x", MONEY), ("i", pa.int64()), ("s", pa.string()), ("f", pa.float64()), ("b", pa.bool_())]
    )
    for expr, words in (
        (col("i").cast(MONEY), "multiply it by a Decimal"),
        (col("i").cast(MONEY, strict=False), "multiply it by a Decimal"),
        (col("x").cast(int, strict=False), "may lose digits"),
        (col("s").cast(D(10, -2)), "a scale is from 0 to the precision"),
        (col("f").cast(D(10, -2), strict=False), "a scale is from 0 to the precision"),
        (col("x").cast(D(2, 4)), "a scale is from 0 to the precision"),
        (col("x").cast(pa.decimal256(50, 2)), "may lose digits"),
        (col("s").cast(pa.decimal256(50, 2)), "no cast from string to decimal256"),
        (col("s").cast(pa.decimal256(50, 2), strict=False), "strict=False is for casts of text and"),
        (col("b").cast(MONEY), "no cast from bool to decimal128"),
    ):
        with pytest.raises(od.SchemaError, match=words):
            lower(expr, schema, "test")


def test_one_row_by_the_reference():
    schema = pa.schema([("x", D(38, 4)), ("s", pa.string())])
    row = [-(10**37) - 50, "1.5"]
    assert evaluate(col("x").cast(D(38, 2)), row, schema) == -(10**35) - 1
    assert evaluate(col("s").cast(D(38, 2)), row, schema) == 150
    assert evaluate(col("s").cast(MONEY), row, schema) == 150
    assert evaluate(col("x").cast(str), row, schema) == "-1000000000000000000000000000000000.0050"


def test_state_and_snapshots_of_what_is_cast(tmp_path):
    table = pa.table({"x": [f"{n}.5" for n in range(40)]})
    pipeline = od.Pipeline(table.schema).scan(total=od.sum(col("x").cast(MONEY)))
    begun = pipeline.run(table[:17], end="suspend")
    od.Checkpoint(tmp_path / "state").write(begun.snapshot)
    rest = pipeline.run(table[17:], restore=tmp_path / "state")
    assert begun.table.to_pylist() + rest.table.to_pylist() == agreed(pipeline, table).to_pylist()

"""Text: read, written, cut, joined; parts of times and durations. Arrow's or Python's answers, in the core
and in the reference.
"""

from __future__ import annotations

import datetime
import decimal
import math
import random
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
TEXTS = pa.array(
    [
        "  Äbc ",
        "",
        "日本語x",
        None,
        "hello World",
        "ß\t",
        "a-1-b22",
        "ll",
        "12",
        'GET "/x" 404',
        "--7--",
        "x" * 70,
    ]
)
WHOLE = pa.array(["0", "-17", None, "9223372036854775807", "-9223372036854775808", "42"])
REAL = pa.array(["0", "-1.5", None, "1e300", "nan", "inf", "3.25"])
ISO = pa.array(["2024-02-29 12:30:01", None, "1969-12-31 23:59:59", "2038-01-19T03:14:08"])
INTS = pa.array([0, -1, None, 2**63 - 1, -(2**63), 42])
FLOATS = pa.array([0.0, -1.5, None, 1e300, math.nan, math.inf, 0.1, -0.0])
BOOLS = pa.array([True, None, False])
NUMBERS = [0, -1, 999, 1000, None, -1001, 951_782_400_123, -62_135_596_800_000]
MILLIS = pa.array(NUMBERS, pa.timestamp("ms"))
ROME = pa.array(NUMBERS, pa.timestamp("ms", "Europe/Rome"))
DAYS = pa.array([0, -1, 59, None, 11_016, -719_468], pa.date32())
SPANS = pa.array(
    [0, 1, -1, 86_399_999, 86_400_000, -86_399_999, -86_400_001, None, 10**15], pa.duration("ms")
)


def each(column, function, type_):
    """A Python function of each value."""
    return pa.array([None if value is None else function(value) for value in column.to_pylist()], type_)


def group(pattern, index):
    def found(text):
        match = re.search(pattern, text)
        return match and match[index]

    return lambda a: each(a, found, pa.string())


def whole(span, of):
    """Truncated, as Polars counts."""
    ms = span // datetime.timedelta(milliseconds=1)
    return (abs(ms) // of) * (1 if ms >= 0 else -1)


TEXT_CASES = [
    (X.str.strip_chars(), pc.utf8_trim_whitespace),
    (X.str.strip_chars("-x"), lambda a: pc.utf8_trim(a, "-x")),
    (X.str.strip_chars_start(), pc.utf8_ltrim_whitespace),
    (X.str.strip_chars_end("-"), lambda a: pc.utf8_rtrim(a, "-")),
    (X.str.pad_start(6, "日"), lambda a: pc.utf8_lpad(a, 6, "日")),
    (X.str.pad_end(6), lambda a: pc.utf8_rpad(a, 6)),
    (X.str.reverse(), pc.utf8_reverse),
    (X.str.head(3), lambda a: pc.utf8_slice_codeunits(a, 0, 3)),
    (X.str.tail(3), lambda a: pc.utf8_slice_codeunits(a, -3)),
    (X.str.tail(0), lambda a: each(a, lambda _: "", pa.string())),
    (X.str.count_matches("[0-9]+"), lambda a: pc.count_substring_regex(a, "[0-9]+")),
    (X.str.count_matches("-", literal=True), lambda a: pc.count_substring(a, "-")),
    (X.str.extract(r"(\d+)"), group(r"(\d+)", 1)),
    (X.str.extract(r"(\d+)-(?:(b)(\d))", 3), group(r"(\d+)-(?:(b)(\d))", 3)),
    (X.str.extract(r"[(\]a-z]+", 0), group(r"[(\]a-z]+", 0)),
    (X.str.extract(r'\("?|[[:alpha:](]+ "(?P<path>[^"(]*)" (\d+)', 2),
     group(r'[a-zA-Z(]+ "([^"(]*)" (\d+)', 2)),
    (X.str.extract(r"\Q(\E|(l)"), group(r"(l)", 1)),
    (X + "!", lambda a: each(a, lambda text: text + "!", pa.string())),
    ("<" + X + X, lambda a: each(a, lambda text: "<" + text + text, pa.string())),
    (X.str.upper() + "|" + X.str.reverse(), lambda a: pc.binary_join_element_wise(
        pc.utf8_upper(a), pc.utf8_reverse(a), "|")),
]  # fmt: skip
CASES = [
    *((TEXTS, *case) for case in TEXT_CASES),
    (WHOLE, X.cast(int), lambda a: a.cast(pa.int64())),
    (REAL, X.cast(float), lambda a: a.cast(pa.float64())),
    (pa.array(["true", "false", None, "1"]), X.cast(bool), lambda a: a.cast(pa.bool_())),
    (pa.array(["-3", None, "127"]), X.cast("int8"), lambda a: a.cast(pa.int8())),
    (ISO, X.cast(pa.timestamp("ms")), lambda a: a.cast(pa.timestamp("ms"))),
    (ISO, X.str.to_datetime(), lambda a: a.cast(pa.timestamp("us"))),
    (ISO.slice(0, 3), X.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ns"),
     lambda a: pc.strptime(a, format="%Y-%m-%d %H:%M:%S", unit="ns")),
    (pa.array(["29/Feb/2024", None, "31/Dec/1969"]), X.str.to_date("%d/%b/%Y"),
     lambda a: pc.strptime(a, format="%d/%b/%Y", unit="s").cast(pa.date32())),
    (pa.array(["2024-02-29", None]), X.str.to_date(), lambda a: a.cast(pa.date32())),
    *((column, X.cast(str), lambda a: a.cast(pa.string()))
      for column in (INTS, FLOATS, BOOLS, MILLIS, ROME, DAYS)),
    (pa.array([2**32 - 1, None, 0], pa.uint32()), X.cast("string"), lambda a: a.cast(pa.string())),
    (MILLIS, X.cast(pa.timestamp("s")), lambda a: pc.floor_temporal(a, 1, "second").cast(pa.timestamp("s"))),
    (MILLIS, X.cast(pa.timestamp("us")), lambda a: a.cast(pa.timestamp("us"))),
    (SPANS, X.cast(pa.duration("us")), lambda a: a.cast(pa.duration("us"))),
    (DAYS.slice(0, 5), X.cast(pa.timestamp("ms")), lambda a: a.cast(pa.timestamp("ms"))),
    *((column, made, lambda a: each(a, lambda at: at.date(), pa.date32()))
      for column in (MILLIS, ROME) for made in (X.dt.date(), X.cast(pa.date32()))),
    *((column, X.dt.strftime("%d.%m.%Y %H:%M:%S"), lambda a: each(
        a, lambda at: f"{at:%d.%m.}{at.year:04} {at:%H:%M:%S}", pa.string())) for column in (MILLIS, ROME)),
    (DAYS, X.dt.to_string("%Y-%j"), lambda a: pc.strftime(a, "%Y-%j")),
    *((column, X.dt.millisecond(), pc.millisecond) for column in (MILLIS, ROME)),
    (MILLIS, X.dt.microsecond(), lambda a: pc.multiply(pc.millisecond(a), 1000)),
    (MILLIS.cast(pa.timestamp("us")), X.dt.millisecond(), pc.millisecond),
    (MILLIS, X.dt.nanosecond(), lambda a: pc.multiply(pc.millisecond(a), 10**6)),
    *((SPANS, made, lambda a, of=of: each(a, lambda span: whole(span, of), pa.int64())) for made, of in (
        (X.dt.total_days(), 86_400_000), (X.dt.total_hours(), 3_600_000), (X.dt.total_minutes(), 60_000),
        (X.dt.total_seconds(), 1000), (X.dt.total_milliseconds(), 1))),
    (SPANS, X.dt.total_microseconds(), lambda a: a.cast(pa.duration("us")).cast(pa.int64())),
    (SPANS.slice(0, 8).cast(pa.duration("us")), X.dt.total_nanoseconds(),
     lambda a: pc.multiply(a.cast(pa.int64()), 1000)),
    (FLOATS, X.is_nan(), pc.is_nan),
    (FLOATS, X.is_not_nan(), lambda a: pc.invert(pc.is_nan(a))),
    (FLOATS, X.fill_nan(7.0), lambda a: pc.if_else(pc.is_nan(a), 7.0, a)),
    (FLOATS, X.clip(-1, 1), lambda a: pc.if_else(pc.is_nan(a), a, pc.max_element_wise(pc.min_element_wise(
        a, 1.0, skip_nulls=False), -1.0, skip_nulls=False))),
    (INTS, X.clip(upper_bound=5), lambda a: pc.min_element_wise(a, 5, skip_nulls=False)),
    (pa.array([1.25, -0.35, None, 1e300, 2.0**60, math.nan, 0.125]), X.round(2), lambda a: each(
        a, lambda f: round(f * 100) / 100 if abs(f) < 1e15 else f, pa.float64())),
    (pa.array([149, 150, -250, None]), X.round(-2), lambda a: pa.array([100.0, 200.0, -200.0, None])),
    (pa.array([8.0, 1.0, None, 0.5]), X.log(2),
     lambda a: each(a, lambda f: math.log(f) / math.log(2), pa.float64())),
    (pa.array([1.0, None, 0.5]), X.log10(),
     lambda a: each(a, math.log10, pa.float64())),
    (pa.array([2, None, -3]), X.pow(2).cast(int) + X.abs(), lambda a: each(
        a, lambda i: i * i + abs(i), pa.int64())),
    (INTS, X.is_in([0, 42]), lambda a: pc.if_else(pc.is_null(a), pa.scalar(None, pa.bool_()), pc.is_in(
        a, pa.array([0, 42])))),
    (INTS, X.is_between(-1, 42), lambda a: each(a, lambda i: -1 <= i <= 42, pa.bool_())),
]  # fmt: skip


@pytest.mark.parametrize(
    ("column", "expression", "expected"),
    CASES,
    ids=[f"{i} {e!r:.60} of {c.type}" for i, (c, e, _) in enumerate(CASES)],
)
def test_the_answer_is_that_of_arrow_or_python(column, expression, expected):
    data = pa.table({"x": column})
    pipeline = od.Pipeline(data.schema).select(y=expression)
    wanted = expected(column).cast(pipeline.schema.field("y").type)
    assert repr(run_serial(pipeline, data).table["y"].to_pylist()) == repr(wanted.to_pylist())
    for rows in (1, 4, 64):
        found = pipeline.run(data, workers=0, chunk_rows=rows).table["y"]
        assert repr(found.to_pylist()) == repr(wanted.to_pylist())
    wide = pa.concat_tables([data] * 30)
    assert pipeline.run(wide, workers=2, chunk_rows=7).table.num_rows == 30 * len(column)


@pytest.mark.parametrize("processes", [None, 2])
def test_joined_strings_live_as_long_as_their_row(processes):
    """In filters, keys, states and behind other operators; of columns with nulls, constants, long texts."""
    draw = random.Random(3)
    texts = [
        None if draw.random() < 0.1 else "ab"[: draw.randint(0, 2)] * draw.choice([1, 1, 40])
        for _ in range(900)
    ]
    data = pa.table({"x": texts, "y": texts[::-1], "n": range(900)})
    key = od.col("x") + "/" + od.col("y")
    pipeline = (
        od.Pipeline(data.schema)
        .with_columns(key=key, number="n=" + od.col("n").cast(str))
        .filter((od.col("key") + od.col("number")) != "b/n=3")
        .key_by("key").lag("number")
        .with_columns(both=od.col("number") + od.col("number_lag"))
        .select("n", "number_lag", "both", part=(od.col("key") + ".").str.slice(1))
    )  # fmt: skip
    expected = run_serial(pipeline, data).table
    assert expected["both"].null_count > 20
    for rows in (1, 5, 200):
        options = {"processes": processes} if processes else {"workers": 2}
        assert pipeline.run(data, chunk_rows=rows, **options).table.equals(expected)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_text_that_says_no_value_is_an_error_at_its_row(on_error):
    data = pa.table({"x": ["1", "-2", None, "three", "4", "5.0"]})
    pipeline = od.Pipeline(data.schema).select(y=X.cast(int), on_error=on_error, name="parse")
    expected = run_serial(pipeline, data)
    for rows in (1, 4, 64):
        if on_error == "skip":
            assert pipeline.run(data, chunk_rows=rows).table.equals(expected.table)
            assert expected.table["y"].to_pylist() == [1, -2, None, 4]
            continue
        with pytest.raises(od.OperatorError, match=r"'parse' failed at serial 4.*'?three") as failure:
            pipeline.run(data, chunk_rows=rows)
        assert isinstance(failure.value.__cause__, type(expected.error.__cause__))


@pytest.mark.parametrize("processes", [None, 2])
def test_a_clock_that_text_tells(processes):
    """The time of a window is read from text; of rows whose text says none it moves no clock."""
    starts = [datetime.datetime(2024, 2, 29, 23, 50) + datetime.timedelta(seconds=7 * i) for i in range(300)]
    lines = [f"{at:%d/%b/%Y:%H:%M:%S} host{i % 7}" if i % 11 else "no time" for i, at in enumerate(starts)]
    data = pa.table({"line": lines})
    pipeline = (
        od.Pipeline(data.schema)
        .with_columns(
            at=od.col("line").str.extract(r"^(\S+) h").str.to_datetime("%d/%b/%Y:%H:%M:%S", time_unit="s"),
            host="h" + od.col("line").str.extract(r"host(\d)"),
        )
        .filter(od.col("at").is_not_null())
        .key_by("host").window(od.tumbling("1m"), time="at").aggregate(n=od.count())
        .with_columns(label=od.col("host") + od.col("start").dt.strftime(" %H:%M"))
    )  # fmt: skip
    expected = run_serial(pipeline, data).table
    assert sum(expected["n"].to_pylist()) == 272
    for rows in (1, 64):
        options = {"processes": processes} if processes else {"workers": 2}
        assert pipeline.run(data, chunk_rows=rows, **options).table.equals(expected)


def test_when_then_is_when_with_two_arguments():
    data = pa.table({"x": [5, None, -1, 0]})
    polars = od.when(X > 1).then("big").when(X < 0).then("small").otherwise("else")
    ours = od.when(X > 1, "big").when(X < 0, "small").otherwise("else")
    pipeline = od.Pipeline(data.schema).select(a=polars, b=ours, c=od.when(X > 1).then(X).otherwise(None))
    expected = {
        "a": ["big", "else", "small", "else"],
        "b": ["big", "else", "small", "else"],
        "c": [5, None, None, None],
    }
    assert pipeline.run(data).table.to_pydict() == run_serial(pipeline, data).table.to_pydict() == expected
    with pytest.raises(od.SchemaError, match=r"add \.then\(value\)"):
        od.Pipeline(data.schema).select(a=od.when(X > 1))


@pytest.mark.parametrize(
    ("column", "make", "text"),
    [
        (TEXTS, lambda: X.str.extract("a(b)", 2), r"has the groups 0 \(all of it\) to 1, got 2"),
        (TEXTS, lambda: X.str.extract("a("), "missing"),
        (TEXTS, lambda: X.str.pad_start(3, "ab"), "must be one character"),
        (TEXTS, lambda: X.str.count_matches(""), "must not be empty"),
        (TEXTS, lambda: X.str.to_datetime(time_unit="min"), "time_unit must be"),
        (TEXTS, lambda: X + 1, "int64 beside a string .* cast it to str first"),
        (TEXTS, lambda: datetime.datetime(2024, 1, 1) < X, "write the time as a datetime object, or cast"),
        (MILLIS, lambda: X.dt.total_seconds(), "is for durations"),
        (pa.array([1], pa.time32("s")), lambda: X.dt.date(), "a time of day has no date"),
        (ROME, lambda: X.cast(pa.timestamp("ms")), "replace_time_zone change zones"),
        (INTS, lambda: X.cast("int33"), "'int33' is no type: "),
        (pa.array([decimal.Decimal("1.5")]), lambda: X.cast(int), "no cast .* may lose digits"),
        (FLOATS, lambda: X.round(1.5), "decimals must be an int"),
        (FLOATS, lambda: X.log(1), "base must be a positive finite number"),
        # Arrow crashed with these two: it reads beyond an empty format, and multiplies a width by four
        (TEXTS, lambda: X.str.to_datetime(""), "to_datetime: format must not be empty"),
        (TEXTS, lambda: X.str.pad_start(1 << 62), "pad_start: length must be at most 1,048,576"),
        (TEXTS, lambda: X.str.to_date(""), "to_date: format must not be empty"),
        (TEXTS, lambda: X.str.split(" ", n=1 << 70), "split: n must be at most 9,223"),
    ],
)
def test_what_cannot_be_is_said_where_the_pipeline_is_written(column, make, text):
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(pa.schema({"x": column.type})).select(y=make(), name="here")


@pytest.mark.parametrize(
    ("reach", "text"),
    [
        (lambda: X.shift, r"one row; write pipeline\.key_by\(\.\.\.\)\.lag\(column, n\)"),
        (lambda: X.sum, r"od\.sum\(column\)"),
        (lambda: X.astype, r"write cast\(type\)"),
        (lambda: X.startswith, r"write str\.starts_with"),
        (lambda: X.str.strip, r"write str\.strip_chars\(\)"),
        (lambda: X.dt.dayofweek, r"write dt\.weekday\(\)"),
        (lambda: X.nothing_of_the_kind, "an expression has no 'nothing_of_the_kind'$"),
    ],
)
def test_names_of_other_systems_lead_to_ours(reach, text):
    with pytest.raises(AttributeError, match=text):
        reach()
    assert not hasattr(X, "__arrow_c_stream__")


@pytest.mark.parametrize("method", ["head", "tail"])
def test_characters_at_an_end_are_counted_from_0(method):
    """That of `head` was told as the length of `str.slice`, which nobody had written."""
    with pytest.raises(od.SchemaError, match=rf"^str\.{method}: n must be an int of at least 0, got -3$"):
        getattr(X.str, method)(-3)

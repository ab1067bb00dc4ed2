"""`.str` and `.dt`: Arrow's answers, whatever computes them, in the core and in the reference."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
TEXTS = pa.array(["Äbc", "", "日本語x", None, "hello World", "ß", "a\x00b", "ll", "İstanbul"])
NUMBERS = [
    0,
    -1,
    86_399,
    86_400,
    None,
    -86_401,
    951_782_400,
    1_763_892_345,
    -62_135_596_800,
    253_402_300_799,
]
SECONDS = pa.array(NUMBERS, pa.timestamp("s"))
ROME = pa.array(NUMBERS, pa.timestamp("s", "Europe/Rome"))
UTC = pa.array(NUMBERS, pa.timestamp("s", "UTC"))
DAYS = pa.array([0, -1, 59, 60, None, 11_016, -719_468, 2_932_896, -146_097, 10_957], pa.date32())

#: Expression, Arrow's answer, columns.
STRINGS = [
    (X.str.length(), pc.utf8_length),
    (X.str.lower(), pc.utf8_lower),
    (X.str.upper(), pc.utf8_upper),
    (X.str.contains("l"), lambda a: pc.match_substring(a, "l")),
    (X.str.contains(""), lambda a: pc.match_substring(a, "")),
    (X.str.contains("[A-Z]o", regex=True), lambda a: pc.match_substring_regex(a, "[A-Z]o")),
    (X.str.starts_with("日本"), lambda a: pc.starts_with(a, "日本")),
    (X.str.ends_with("b"), lambda a: pc.ends_with(a, "b")),
    (X.str.slice(1, 2), lambda a: pc.utf8_slice_codeunits(a, 1, 3)),
    (X.str.slice(1, 2**63 - 1), lambda a: pc.utf8_slice_codeunits(a, 1)),
    (X.str.slice(-2, 2**70), lambda a: pc.utf8_slice_codeunits(a, -2)),
    (X.str.slice(-(2**80)), lambda a: a),
    (X.str.slice(2**80, 3), lambda a: pc.utf8_slice_codeunits(a, 0, 0)),
    (X.str.slice(-3), lambda a: pc.utf8_slice_codeunits(a, -3)),
    (X.str.slice(-3, 2), lambda a: pc.utf8_slice_codeunits(a, -3, -1)),
    (X.str.slice(-3, 3), lambda a: pc.utf8_slice_codeunits(a, -3)),
    (X.str.replace("l", "LL"), lambda a: pc.replace_substring(a, "l", "LL")),
    (X.str.replace("l", "", n=1), lambda a: pc.replace_substring(a, "l", "", max_replacements=1)),
    (X.str.replace("(l+)", r"<\1>", regex=True), lambda a: pc.replace_substring_regex(a, "(l+)", r"<\1>")),
]
DATES = [
    (X.dt.year(), pc.year),
    (X.dt.quarter(), pc.quarter),
    (X.dt.month(), pc.month),
    (X.dt.week(), pc.iso_week),
    (X.dt.day(), pc.day),
    (X.dt.ordinal_day(), pc.day_of_year),
    (X.dt.weekday(), lambda a: pc.day_of_week(a, count_from_zero=False)),
    (X.dt.truncate("1d"), lambda a: pc.floor_temporal(a, 1, "day")),
    (X.dt.truncate("1w"), lambda a: pc.floor_temporal(a, 1, "week")),
    (X.dt.truncate("1mo"), lambda a: pc.floor_temporal(a, 1, "month")),
    (X.dt.truncate("1q"), lambda a: pc.floor_temporal(a, 1, "quarter")),
    (X.dt.truncate("1y"), lambda a: pc.floor_temporal(a, 1, "year")),
]
CLOCKS = [
    (X.dt.hour(), pc.hour),
    (X.dt.minute(), pc.minute),
    (X.dt.second(), lambda a: pc.second(a if a.type.tz is None else pc.local_timestamp(a))),
    (X.dt.truncate("15m"), lambda a: pc.floor_temporal(a, 15, "minute")),
    (X.dt.epoch("s"), lambda a: a.cast(pa.int64())),
    (X.dt.epoch("d"), lambda a: pc.floor(pc.divide(a.cast(pa.int64()).cast(pa.float64()), 86_400))),
    (X.dt.replace_time_zone(None), lambda a: a if a.type.tz is None else pc.local_timestamp(a)),
]
CASES = [
    *((TEXTS, *case) for case in STRINGS),
    *((column, *case) for column in (SECONDS, UTC, ROME, DAYS) for case in DATES),
    *((column, *case) for column in (SECONDS, UTC, ROME) for case in CLOCKS),
    (ROME, X.dt.convert_time_zone("Asia/Kolkata"), lambda a: a.cast(pa.timestamp("s", "Asia/Kolkata"))),
]


@pytest.mark.parametrize(
    ("column", "expression", "arrow"), CASES, ids=[f"{e!r} of {c.type}" for c, e, _ in CASES]
)
def test_the_answer_is_arrows(column, expression, arrow):
    data = pa.table({"x": column})
    pipeline = od.Pipeline(data.schema).select(y=expression)
    type_ = pipeline.schema.field("y").type
    wanted = arrow(column).cast(type_)
    assert run_serial(pipeline, data).table["y"].combine_chunks().equals(wanted)
    for rows in (1, 4, 64):
        assert pipeline.run(data, workers=0, chunk_rows=rows).table["y"].combine_chunks().equals(wanted)


def test_of_a_constant_and_of_another_column():
    data = pa.table({"x": ["ab", "b", None], "y": ["b", "B", "b"]})
    pipeline = od.Pipeline(data.schema).select(
        a=X.str.ends_with(od.col("y")),
        b=X.str.upper().str.contains(od.col("y").str.upper()),
        c=od.lit("Ü").str.lower(),
        d=od.lit(None, pa.string()).str.lower(),
    )
    expected = {"a": [True, False, None], "b": [True, True, None], "c": ["ü"] * 3, "d": [None] * 3}
    assert pipeline.run(data).table.to_pydict() == run_serial(pipeline, data).table.to_pydict() == expected


def test_case_of_ascii_alone_is_arrows():
    every = "".join(map(chr, range(128)))
    data = pa.table({"x": [every, None, "", "Zz", every * 3], "more": ["é", "a", None, "Ä", "B"]})
    more = od.col("more")
    pipeline = od.Pipeline(data.schema).select(
        a=X.str.lower(), b=X.str.upper(), c=more.str.upper(), d=X.str.upper().str.lower()
    )
    for rows in (1, 64):
        found = pipeline.run(data, chunk_rows=rows).table
        assert found["a"].equals(pc.utf8_lower(data["x"]))
        assert found["b"].equals(pc.utf8_upper(data["x"]))
        assert found["c"].equals(pc.utf8_upper(data["more"]))
        assert found["d"].equals(pc.utf8_lower(data["x"]))


def test_every_day_of_four_centuries():
    data = pa.table({"x": pa.array(range(-146_097, 146_097), pa.int32()).cast(pa.date32())})
    pipeline = od.Pipeline(data.schema).select(year=X.dt.year(), month=X.dt.month(), day=X.dt.day())
    found = pipeline.run(data).table
    for name, part in (("year", pc.year), ("month", pc.month), ("day", pc.day)):
        assert found[name].equals(part(data["x"]))
    few = data.filter(pc.less(pc.day(data["x"]), 2)).slice(0, 2000)
    assert run_serial(pipeline, few).table.equals(pipeline.run(few).table)


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_a_string_that_was_made_lives_as_long_as_its_row(rows):
    """Behind one function of Arrow comes another, which has the same scratch."""
    data = pa.table({"x": [f"Text {i}" * (i % 5) for i in range(200)]})
    pipeline = (
        od.Pipeline(data.schema)
        .with_columns(up=X.str.upper())
        .with_columns(low=X.str.replace("e", "something else").str.lower())
        .filter(od.col("low").str.replace("s", "z").str.length() >= 0)
    )
    expected = run_serial(pipeline, data).table
    for workers in (0, 2):
        assert pipeline.run(data, workers=workers, chunk_rows=rows).table.equals(expected)


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_reading_that_is_none_or_two_is_an_error_at_its_row(on_error):
    readings = ["2025-10-26 01:30:00", "2025-10-26 02:30:00", None, "2025-03-30 02:30:00"] * 3
    times = pc.strptime(pa.array(readings), format="%Y-%m-%d %H:%M:%S", unit="s")
    data = pa.table({"x": times, "s": ["A", "b", None, "Ç"] * 3})
    pipeline = od.Pipeline(data.schema).select(
        x=X.dt.replace_time_zone("Europe/Rome"), s=od.col("s").str.lower(), on_error=on_error, name="zone"
    )
    expected = run_serial(pipeline, data)
    for rows in (1, 5, 64):
        with pipeline.stream(data, workers=1, chunk_rows=rows) as stream:
            if on_error == "skip":
                assert pa.Table.from_batches(stream, stream.schema).equals(expected.table)
                assert len(expected.skipped) == stream.report.operators[0].skipped == 6
                continue
            with pytest.raises(od.OperatorError, match=r"'zone' failed at serial 2") as failure:
                for _ in stream:
                    pass
            assert isinstance(failure.value.__cause__, type(expected.error.__cause__))
    earliest = od.Pipeline(data.schema).select(
        x=X.dt.replace_time_zone("Europe/Rome", ambiguous="earliest", non_existent="latest")
    )
    assert earliest.run(data).table.equals(run_serial(earliest, data).table)


@pytest.mark.parametrize(
    ("column", "make", "text"),
    [
        (SECONDS, lambda: X.str.lower(), r"is for strings, got timestamp\[s\]"),
        (TEXTS, lambda: X.dt.year(), "is for dates and times, got string"),
        (DAYS, lambda: X.dt.hour(), "a date has no time of day"),
        (pa.array([1], pa.time32("s")), lambda: X.dt.year(), "a time of day has no date"),
        (TEXTS, lambda: X.str.contains("[", regex=True), "missing ]"),
        (TEXTS, lambda: X.str.starts_with(3), "a str is needed, got 3"),
        (TEXTS, lambda: X.str.slice("a"), "offset must be an int"),
        (TEXTS, lambda: X.str.replace("", "a"), "must not be empty"),
        (SECONDS, lambda: X.dt.truncate("1 fortnight"), "an interval such as '15m'"),
        (SECONDS, lambda: X.dt.truncate("250ms"), "not a whole number of units"),
        (SECONDS, lambda: X.dt.truncate("2mo"), "one at a time"),
        (SECONDS, lambda: X.dt.epoch("h"), "the unit must be"),
        (SECONDS, lambda: X.dt.convert_time_zone("UTC"), "replace_time_zone gives it one"),
        (ROME, lambda: X.dt.convert_time_zone("Mars/Olympus"), "Mars/Olympus"),
    ],
)
def test_what_cannot_be_is_said_where_the_pipeline_is_written(column, make, text):
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(pa.schema({"x": column.type})).select(y=make(), name="here")


def test_a_large_unsigned_number_is_not_null():
    data = pa.table({"x": pa.array([2**64 - 1, None, 3], pa.uint64())})
    pipeline = od.Pipeline(data.schema).select(there=X.is_not_null(), x="x")
    kept = od.Pipeline(data.schema).filter(X.is_not_null())
    assert pipeline.run(data).table["there"].to_pylist() == [True, False, True]
    for one in (pipeline, kept):
        assert one.run(data).table.equals(run_serial(one, data).table)

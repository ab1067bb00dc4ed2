"""Dates that text says by a format: those of Python's `strptime`, and no others. And dates as text."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
FORMATS = [
    *(
        "%Y-%m-%d",
        "%d/%b/%Y:%H:%M:%S",
        "%Y%m%d",
        "%m/%d/%y",
        "%Y-%j",
        "%j %Y",
        "%a %d %b %Y",
        "%H:%M %d. %B %Y",
    ),
    *("%Y-%m-%d %H:%M:%S %z", "on %d of %m, %Y", "%d%m%Y", "%Y-%m-%d %I:%M %p"),
]


def read(texts, format_):
    """What the reference and the core read; text that says no date is None."""
    data = pa.table({"n": range(len(texts)), "x": texts})
    pipeline = od.Pipeline(data.schema).select(
        "n", at=X.str.to_datetime(format_), day=X.str.to_date(format_), on_error="skip"
    )
    expected = run_serial(pipeline, data).table
    for options in ({"workers": 0}, {"workers": 2, "chunk_rows": 3}):
        assert pipeline.run(data, **options).table.equals(expected)
    found = dict.fromkeys(range(len(texts)))
    for row in expected.to_pylist():
        assert row["day"] == row["at"].date()
        found[row["n"]] = row["at"]
    return list(found.values())


@pytest.mark.parametrize("format_", FORMATS)
def test_days_that_no_month_has_are_errors(format_):
    """The 30th of February was the first of March."""
    draw, texts, expected = random.Random(format_), [], []
    for _ in range(150):
        at = datetime.datetime(draw.choice([1999, 2000, 2023, 2024]), draw.randint(1, 12), 1, 12, 30)
        at += datetime.timedelta(days=draw.randint(0, 27), hours=draw.randint(-12, 11))
        zone = datetime.timezone(datetime.timedelta(hours=draw.randint(-11, 12)))
        text = at.replace(tzinfo=zone).strftime(format_)
        if draw.random() < 0.5:  # another day, which there is not always
            day = draw.randint(28, 31)
            text = at.replace(day=28, tzinfo=zone).strftime(format_.replace("%d", f"{day:02}"))
            text = (
                text
                if "%j" not in format_
                else at.strftime(format_.replace("%j", str(draw.choice([365, 366, 367]))))
            )
        texts.append(text)
        try:
            one = datetime.datetime.strptime(text, format_)
            if format_ == "%Y-%j" or format_ == "%j %Y":
                assert f"{one:%Y}" in text  # Python takes the day 366 for the next year's first
            expected.append(one.astimezone(datetime.UTC) if one.tzinfo else one)
        except (ValueError, AssertionError):
            expected.append(None)
    assert 0 < expected.count(None) < len(texts)
    assert read(texts, format_) == expected


def test_spaces_short_numbers_and_leap_seconds():
    midnight = datetime.datetime(2017, 1, 1)
    assert read(["2016-12-31 23:59:60", "2016-12-31 23:59:59"], "%Y-%m-%d %H:%M:%S") == [
        midnight, midnight - datetime.timedelta(seconds=1),
    ]  # fmt: skip
    day = datetime.datetime(2024, 2, 29)
    assert read(["2024229", "20240229", "2024 2 29", "2024230"], "%Y%m%d") == [day, day, day, None]
    assert read(["29.2.2024", "9.2.2024", " 1. 3.2024"], "%e.%m.%Y") == [
        day, datetime.datetime(2024, 2, 9), datetime.datetime(2024, 3, 1),
    ]  # fmt: skip
    assert read(["02/30/24", "02/29/24"], "%D") == [None, day]
    assert read(["2024-02-30", "2024-02-29"], "%F") == [None, day]


def test_an_error_tells_the_text():
    data = pa.table({"x": ["2024-02-29", "2023-02-29"]})
    pipeline = od.Pipeline(data.schema).select(y=X.str.to_date("%Y-%m-%d"))
    with pytest.raises(od.OperatorError, match=r"serial 2: .*'2023-02-29' says no date: there is no day 29"):
        pipeline.run(data, workers=0)


@pytest.mark.parametrize("format_", ["%G-W%V-%u", "%Y %U", "%W of %Y", "%g"])
def test_what_leads_to_no_date_is_refused(format_):
    """ISO weeks were all the first of January 1900."""
    with pytest.raises(od.SchemaError, match="does not lead to a date in C's strptime"):
        od.Pipeline(pa.schema([("x", pa.string())])).select(y=X.str.to_datetime(format_))
    assert read(["10 2024 1"], "%U %Y %w") == [datetime.datetime(2024, 3, 11)]


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("%Y-%m-%d %H:%M:%S.%f", "does not know %f; without a format ISO 8601 is read, with fractions"),
        ("%Y-%m-%d %H:%M:%S%.f", r"does not know %\.;"),
        ("%Y-%m-%d%Q", "does not know %Q;"),
        ("%Y-%m-%d%", "does not know %;"),
        ("yyyy-MM-dd", r"a format has letters, such as '%Y-%m-%d %H:%M:%S', got 'yyyy-MM-dd'"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_format_that_c_does_not_know_is_refused(format_, text, strict):
    """With strict=False all was null."""
    schema = pa.schema([("x", pa.string())])
    with pytest.raises(od.SchemaError, match=text):
        od.Pipeline(schema).select(y=X.str.to_datetime(format_, strict=strict))
    od.Pipeline(schema).select(a=X.str.to_datetime("%-d.%-m.%Y"), b=X.str.to_datetime("%s"))


@pytest.mark.parametrize("letter", ["%f", "%-d", "%s", "%k", "%L", "%Q", "%5Y", "%", "%:z"])
def test_letters_that_are_not_written_are_refused(letter):
    """They were in the text of each row as they are."""
    times = pa.schema([("x", pa.timestamp("us"))])
    with pytest.raises(od.SchemaError, match=r"dt\.strftime.* is not known"):
        od.Pipeline(times).select(y=X.dt.strftime(f"%Y {letter}"))


@pytest.mark.parametrize("letter", list("aAbBcCdDeFgGhHIjmMnprRStTuUVwWxXyYzZ%"))
def test_letters_are_pythons(letter):
    times = [datetime.datetime(2024, 2, 29, 13, 5, 9), datetime.datetime(2021, 1, 3, 0, 7)]
    data = pa.table({"x": pa.array(times, pa.timestamp("us", "UTC"))})
    pipeline = od.Pipeline(data.schema).select(y=X.dt.strftime(f"<%{letter}>"))
    found = pipeline.run(data, workers=0).table
    assert found.equals(run_serial(pipeline, data).table)
    assert found["y"].to_pylist() == [
        at.replace(tzinfo=datetime.UTC).strftime(f"<%{letter}>") for at in times
    ]


def test_an_offset_that_is_read_makes_instants():
    """They were UTC's readings without a zone: to put one there moved them."""
    data = pa.table({"x": ["2024-02-29T12:00:01+0200", "2024-02-29T12:00:01Z", None]})
    at = X.str.to_datetime("%Y-%m-%dT%H:%M:%S%z", time_unit="s")
    pipeline = od.Pipeline(data.schema).select(
        at=at,
        there=at.dt.convert_time_zone("Europe/Athens"),
        nulls=X.str.to_datetime("%Y-%m-%dT%H:%M:%S%z", strict=False),
        without=X.str.to_datetime("%Y-%m-%dT%H:%M:%S", strict=False),
    )
    assert pipeline.schema.field("at").type == pa.timestamp("s", "UTC")
    assert pipeline.schema.field("nulls").type == pa.timestamp("us", "UTC")
    assert pipeline.schema.field("without").type == pa.timestamp("us")
    found = pipeline.run(data).table
    assert found.equals(run_serial(pipeline, data).table)
    utc = [datetime.datetime(2024, 2, 29, hour, 0, 1, tzinfo=datetime.UTC) for hour in (10, 12)]
    assert found["at"].to_pylist() == [*utc, None]
    assert found["nulls"].to_pylist() == [*utc, None]
    assert [None if one is None else one.hour for one in found["there"].to_pylist()] == [12, 14, None]


def test_a_day_of_the_year_needs_a_year():
    """C's strptime makes January of it: 29 days were read, and others refused as no days."""
    for format_ in ("%j", "%j %H", "%m %j"):
        with pytest.raises(od.SchemaError, match="%j, the day of a year, needs a year: %Y or %y"):
            od.Pipeline({"s": str}).select(t=od.col("s").str.to_datetime(format_))

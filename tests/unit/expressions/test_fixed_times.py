"""Times at the same places of all texts are read as Arrow reads them, and not one by one."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions import strptime
from ordstream.testing import run_serial

FORMATS = [
    "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%d/%b/%Y:%H:%M:%S", "%Y%m%d", "%d.%m.%Y %H:%M", "%F %T", "%b %d %Y",
    "%d%b%Y", "%Y-%m-%dT%H:%M:%SZ", "%Y %%%m-%d", "é%Y/%m/%d", "%d  %m %Y",
]  # fmt: skip
#: No day, two of one, names of any length, or letters that move: Arrow's.
OTHERS = ["%H:%M", "%D", "%Y-%j", "%Y-%m-%d %I %p", "%B %d %Y", "%Y %m %d %m", "%Ey-%m-%d", "%d %b%bx %Y"]
OTHERS += ["%buary %d %Y"]  # Arrow takes "January" for the month, and nothing is left


def drawn(random_, format_, n):
    texts = []
    for _ in range(n):
        begin = datetime.datetime(random_.choice([1, 1700, 1970, 2023, 2024, 2300, 9999]), 1, 1)
        at = begin + datetime.timedelta(seconds=random_.randint(0, 86_400 * 364))
        text = at.strftime(format_.replace("%Y", f"{at.year:04}").replace("%F", f"{at.year:04}-%m-%d"))
        if random_.random() < 0.3 / n:
            place = random_.randrange(len(text))
            text = text[:place] + random_.choice("09 x-:J") + text[place + random_.choice([0, 1]) :]
        texts.append(None if random_.random() < 0.1 else text.upper() if random_.random() < 0.02 else text)
    return texts


def found(values, format_, unit):
    try:
        return strptime.read_times(values, format_, unit, False).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        return "an error"


@pytest.mark.parametrize("format_", [*FORMATS, *OTHERS[:2], OTHERS[-1]])
def test_as_arrow_reads_them(format_, monkeypatch):
    random_ = random.Random(format_)
    for _ in range(150):
        texts = [None, *drawn(random_, format_, random_.choice([1, 16, 40]))]
        values = pa.array(texts, pa.large_string()).slice(random_.choice([0, 1]))
        unit = random_.choice(["s", "ms", "us", "ns"])
        read = found(values, format_, unit)
        with monkeypatch.context() as patch:
            patch.setattr(strptime, "read_fixed", lambda *_: None)
            assert read == found(values, format_, unit), (unit, texts)


def test_a_slice_is_read_from_its_first_text():
    """Also where no text is null: then nothing was copied to the front."""
    values = pa.array([f"2024-01-{1 + i:02}" for i in range(30)], pa.large_string()).slice(7)
    days = strptime.read_times(values, "%Y-%m-%d", "s", False).to_pylist()
    assert [day.day for day in days] == list(range(8, 31))


def test_which_formats_have_places():
    assert all(strptime._places(one) is not None for one in FORMATS)
    assert all(strptime._places(one) is None for one in OTHERS)


@pytest.mark.parametrize("format_", FORMATS)
def test_arrow_is_not_asked(format_, monkeypatch):
    """0.4 us a row, where Polars takes 0.07."""
    begin = datetime.datetime(2024, 1, 1)
    data = pa.table({"x": [(begin + datetime.timedelta(hours=7 * i)).strftime(format_)
                           if i % 5 else None for i in range(300)]})  # fmt: skip
    for strict in (True, False):
        pipeline = od.Pipeline(data.schema).select(
            at=od.col("x").str.to_datetime(format_, strict=strict), day=od.col("x").str.to_date(format_)
        )
        expected = run_serial(pipeline, data).table
        with monkeypatch.context() as patch:
            patch.setattr(strptime, "_STRPTIME", None)
            assert pipeline.run(data, chunk_rows=100, workers=2).table.equals(expected)

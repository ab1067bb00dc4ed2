"""How often Arrow is asked: it was once for each row of a chunk in which one has no answer."""

from __future__ import annotations

import datetime
import random

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions.arrow_call import ArrowCall
from ordstream.testing import run_serial

X = od.col("x")


@pytest.fixture
def calls(monkeypatch):
    """How many values each call of a function was given."""
    asked = []
    real = ArrowCall._plain

    def plain(self, values):
        asked.append(len(values))
        return real(self, values)

    monkeypatch.setattr(ArrowCall, "_plain", plain)
    return asked


def texts(n, seed, good, bad):
    random_ = random.Random(seed)
    return pa.table({"x": [None if i % 11 == 3 else random_.choice([good(i), bad(i)]) for i in range(n)]})


CASES = {
    "int": (X.cast(int), str, lambda i: f"{i}x"),
    "int8": (X.cast(pa.int8()), lambda i: str(i % 100), lambda i: str(300 + i)),
    "float": (X.cast(float), lambda i: f"{i}.5", lambda i: "" if i % 2 else "1.2.3"),
    "float32": (X.cast(pa.float32()), lambda i: f"{i}.1", lambda i: "none"),
    "bool": (X.cast(bool), lambda i: "true", lambda i: "yes"),
    "timestamp": (X.cast(pa.timestamp("us")), lambda i: f"2024-02-{i % 29 + 1:02}", lambda i: "2023-02-29"),
    "date": (X.str.to_date("%Y-%m-%d"), lambda i: f"2024-02-{i % 29 + 1:02}", lambda i: f"2024-{i}"),
    "time": (X.str.to_datetime("%d.%m.%Y %H:%M"), lambda i: f"{i % 28 + 1}.1.2024 7:{i % 60}", str),
}


@pytest.mark.parametrize("name", CASES)
def test_texts_without_a_value_are_skipped_at_once(name, calls):
    """A third of the rows without a number, on_error="skip": 12 us a row, with to_date 62."""
    expression, good, bad = CASES[name]
    data = texts(2_000, name, good, bad)
    pipeline = od.Pipeline(data.schema).select(y=expression, on_error="skip", name="parse")
    serial = run_serial(pipeline, data)
    assert len(serial.skipped) > 500
    for workers, rows in ((0, 1_000), (2, 64)):
        calls.clear()
        found = pipeline.run(data, workers=workers, chunk_rows=rows)
        assert found.table.equals(serial.table)
        assert found.report.operators[0].skipped == len(serial.skipped)
        assert len(calls) < 30 * (len(data) // rows + 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_few_rows_without_an_answer_are_found_by_halves(workers, calls):
    hours = [datetime.datetime(2025, 10, 25) + datetime.timedelta(minutes=30 * i) for i in range(2_000)]
    data = pa.table({"x": pa.array([None, *hours], pa.timestamp("s"))})
    pipeline = od.Pipeline(data.schema).select(y=X.dt.replace_time_zone("Europe/Rome"), on_error="skip")
    serial = run_serial(pipeline, data)
    assert len(serial.skipped) == 2  # the hour that comes twice
    calls.clear()
    found = pipeline.run(data, workers=workers, chunk_rows=1_000)
    assert found.table.equals(serial.table)
    assert len(calls) < 100

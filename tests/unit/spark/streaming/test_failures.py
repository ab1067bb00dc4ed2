"""How what ends a micro-batch is told, without Spark."""

import datetime
import pickle

import pytest

pytest.importorskip("pyspark")
from ordstream import errors
from ordstream.errors import OperatorError, OrdstreamError
from ordstream.spark.streaming.failures import told_by_task


def in_spark(error):
    told = f"ordstream.errors.{type(error).__name__}: {error}"
    return RuntimeError(
        f"Job aborted: PythonException: Traceback:\n  File 'x.py'\n{told}\n\n\tat java.lang.Thread"
    )


@pytest.mark.parametrize(
    "given",
    [
        OperatorError("map_1", 2, {"ts": 2, "a": "x\n  at: y"}, "ValueError: ?", "/a.py:3, in f"),
        OperatorError("it's", 0, reason="TypeError: a: b"),
        OperatorError("a", 7, {"x": 1}),
        OperatorError("a", 7, {"x": datetime.date(2020, 1, 1)}, "KeyError: 1", "/a.py:3, in f"),
        OperatorError("a", 7, {"x": "é" * 1_000}, "KeyError: 1"),
        OperatorError("a", 7),
    ],
)
def test_an_operators_error_keeps_its_class(given):
    """It was a bare OrdstreamError, where `run` raises an OperatorError."""
    found = told_by_task(in_spark(given))
    assert type(found) is OperatorError
    assert str(found) == str(given)
    assert (found.operator, found.serial) == (given.operator, given.serial)
    again = pickle.loads(pickle.dumps(found))
    assert str(again) == str(given)


def test_place_and_reason_are_where_they_are_looked_for():
    given = OperatorError("map_1", 2, {"ts": 2, "user": "é"}, "ValueError: no", "/a.py:3, in f")
    found = told_by_task(in_spark(given))
    assert (found.reason, found.place, found.row) == (given.reason, given.place, given.row)


@pytest.mark.parametrize(
    "name", ["NodeLost", "SinkError", "Cancelled", "Uncopied", "SchemaError", "PlanError"]
)
def test_any_error_of_ours_keeps_its_class(name):
    kind = getattr(errors, name)
    found = told_by_task(in_spark(kind("what it was")))
    assert type(found) is kind
    assert str(found) == "what it was"


@pytest.mark.parametrize("name", ["OperatorError", "Any", "shown", "NoSuch"])
def test_what_has_no_such_class_is_ours(name):
    found = told_by_task(RuntimeError(f"Job aborted\nordstream.errors.{name}: what it was\n"))
    assert type(found) is OrdstreamError
    assert str(found) == "what it was"


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
        "[STREAM_FAILED] Concurrent update to the log. Multiple streaming jobs detected for 9",
        "o1.start.\n: Multiple streaming queries are concurrently using file:/a/spark/offsets",
    ],
)
def test_two_drivers_are_told_however_spark_says_it(text):
    """This run's own epoch of that number may be committed: the sentence is true then, too."""
    found = told_by_task(RuntimeError(text))
    assert type(found) is errors.CheckpointError
    assert "publishes no further epoch; what is committed stays" in str(found)

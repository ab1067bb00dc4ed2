"""What a running stream answers when Spark has ended, without Spark."""

import copy
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import SparkSession

from ordstream.errors import NodeLost, PlanError, SourceError
from ordstream.spark.running_session import running_session
from ordstream.spark.streaming import stream
from ordstream.spark.streaming.query import StreamQuery

STOPPED = RuntimeError("o94.stop.\n: IllegalStateException: Cannot call methods on a stopped SparkContext.")
GONE = (ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("1s"), Py4JError("o9.stop"))


class Spark:
    """Spark's query: it runs until `ended_by` is what each call raises."""

    def __init__(self, ended_by=None, active=True, session_stopped=False):
        self.ended_by, self.active, self.calls = ended_by, active, []
        context = SimpleNamespace(isStopped=lambda: session_stopped)
        self._jsq = SimpleNamespace(sparkSession=lambda: SimpleNamespace(sparkContext=lambda: context))

    def _called(self, name, found=None):
        self.calls.append(name)
        if self.ended_by is not None:
            raise self.ended_by
        return found

    @property
    def isActive(self):
        return self._called("isActive", self.active)

    def awaitTermination(self, timeout):
        return self._called("awaitTermination", not self.active)

    def processAllAvailable(self):
        return self._called("processAllAvailable")

    def exception(self):
        return self._called("exception")

    def stop(self):
        self.active = False
        self._called("stop")


def made(spark, failure=None):
    closed = []
    batches = SimpleNamespace(
        log=SimpleNamespace(folder="cp"),
        failure=failure,
        stopping=False,
        thread=None,
        busy=threading.Lock(),
        quiet=threading.Event(),
        close=lambda: closed.append(True),
    )
    return StreamQuery(spark, batches), closed


@pytest.mark.parametrize("error", GONE)
def test_a_query_whose_java_has_ended_says_so(error):
    query, closed = made(Spark(error))
    for wait in (query.awaitTermination, lambda: query.awaitTermination(5), query.processAllAvailable):
        with pytest.raises(NodeLost, match=r"Java process has ended, .* start Python again"):
            wait()
    assert closed
    assert not query.isActive
    assert repr(query) == "StreamQuery('cp', active=False)"
    assert type(query.exception()) is NodeLost
    query.stop()
    query.give_way()


def test_a_stream_that_had_ended_is_not_lost_with_java():
    for failure in (None, SourceError("no")):
        spark = Spark(active=False)
        query, _ = made(spark, failure)
        assert not query.isActive
        spark.ended_by = GONE[0]
        assert not query.isActive
        assert query.exception() is failure
        assert query.awaitTermination() is True
    spark = Spark()
    query, _ = made(spark)
    query.stop()
    spark.ended_by = GONE[0]
    assert query.exception() is None
    assert query.awaitTermination() is True


def test_what_ended_the_stream_is_told_where_java_has_ended_since():
    query, _ = made(Spark(GONE[0]), SourceError("no"))
    with pytest.raises(SourceError, match="no"):
        query.awaitTermination()


def test_a_stream_ends_with_its_session():
    """Java's thread goes on until the next micro-batch: who waited for it waited for ever."""
    spark = Spark(session_stopped=True)
    query, closed = made(spark)
    with pytest.raises(NodeLost, match=r"session was stopped, .* start another session"):
        query.awaitTermination()
    assert "awaitTermination" not in spark.calls
    assert "stop" in spark.calls
    assert closed
    query, _ = made(Spark(STOPPED))
    query.stop()
    assert "session was stopped" in str(query.exception())


def test_what_is_not_sparks_end_is_raised_as_it_is():
    query, _ = made(Spark(ValueError("timeout")))
    for call in (query.awaitTermination, query.stop, query.exception, lambda: query.isActive):
        with pytest.raises(ValueError, match="timeout"):
            call()


def test_a_copy_of_a_query_has_what_it_has():
    query, _ = made(Spark())
    again = copy.copy(query)
    assert again.query is query.query
    assert not hasattr(StreamQuery.__new__(StreamQuery), "query")


def test_another_query_that_stays_is_told_before_anything_begins(tmp_path, monkeypatch):
    """Spark refused it when the sinks were open, with Java's trace."""
    query, _ = made(Spark())
    query.query.id = "a"
    monkeypatch.setitem(stream._started, tmp_path.resolve(), (None, {"query": query}))
    active = [SimpleNamespace(id="a", name="mine"), SimpleNamespace(id="b", name="other")]

    def session(ends):
        return SimpleNamespace(
            conf=SimpleNamespace(get=lambda name: ends), streams=SimpleNamespace(active=active)
        )

    with pytest.raises(PlanError, match=r"still runs: stop it .*stopActiveRunOnRestart=true"):
        stream._check_free(tmp_path, session("false"), None)
    for name in (None, "mine", "new"):  # the former one of this checkpoint gives way
        stream._check_free(tmp_path, session("true"), name)
    for path, name in ((tmp_path, "other"), (tmp_path / "b", "mine")):
        with pytest.raises(PlanError, match=f"name='{name}': another query of this session has this name"):
            stream._check_free(path, session("true"), name)


# --- the session that a function works in -----------------------------------------------------------------


def test_a_session_is_found_where_none_is_active(monkeypatch):
    """Of another thread, or behind Ctrl-C in a call of Java's."""
    session = SimpleNamespace(createDataFrame=None, conf=None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    assert running_session(None, "finish") is session
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(PlanError, match="finish needs a Spark session: start one"):
        running_session(None, "finish")


def test_a_session_whose_java_has_ended_is_none(monkeypatch):
    def refused():
        raise GONE[0]

    monkeypatch.setattr(SparkSession, "getActiveSession", refused)
    with pytest.raises(PlanError, match="and Spark's Java process has ended: start Python again"):
        running_session(None, "state")

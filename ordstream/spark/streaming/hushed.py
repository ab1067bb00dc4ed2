"""What Spark logs of a query that is being stopped: it tells of the stop as if it were a failure."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

#: By this Spark's logs say in the query's thread which run they tell of.
RUN = "RUN_ID"
_lock = threading.Lock()
#: Filters of stops that have ended.
_ended: list[Any] = []


@contextlib.contextmanager
def hushed(query: StreamingQuery) -> Iterator[None]:
    """A stop interrupts the query's thread in Java, which logs that as an error, with a trace; so does
    whatever it calls at this moment, such as Hadoop where it waits for a process. What this thread logs is
    dropped, and what others log of the run. Their last words may come late: of a run that was ended here
    nothing is told any more. If it could not be ended all is told.
    """
    with _lock:
        _remove(_ended)
    filters = _filters(query)
    try:
        yield
    except BaseException:
        _remove(filters)
        raise
    with _lock:
        _ended.extend(filters)


def _filters(query: StreamingQuery) -> list[Any]:
    """Log4j's, in its configuration now. None in another version of Spark, which may print a trace."""
    found: list[Any] = []
    with contextlib.suppress(Exception):
        run, gateway = str(query.runId), _gateway()
        core = gateway.jvm.org.apache.logging.log4j.core
        drop, keep = core.Filter.Result.DENY, core.Filter.Result.NEUTRAL
        pairs = gateway.new_array(core.util.KeyValuePair, 1)
        pairs[0] = core.util.KeyValuePair(RUN, run)
        by = core.filter
        for made in (
            by.ThreadContextMapFilter.createFilter(pairs, "or", drop, keep),
            by.RegexFilter.createFilter(f"(?s).*{run}.*", None, True, drop, keep),
        ):
            _context().addFilter(made)
            found.append(made)
    return found


def _remove(filters: list[Any]) -> None:
    with contextlib.suppress(Exception):  # Java has ended meanwhile
        for one in filters:
            _context().removeFilter(one)
    filters.clear()


def _gateway() -> Any:
    return SparkContext._gateway


def _context() -> Any:
    return _gateway().jvm.org.apache.logging.log4j.LogManager.getContext(False)

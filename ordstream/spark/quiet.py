"""What PySpark prints that is no trouble, kept quiet."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from contextvars import ContextVar

from pyspark.logger import PySparkLogger

PANDAS_NOTICE = "PySpark does not yet fully support pandas"


@contextlib.contextmanager
def without_notice() -> Iterator[None]:
    """Without PySpark's notice on pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
        yield


_asking: ContextVar[bool] = ContextVar("asking", default=False)


def _is_told(record: logging.LogRecord) -> bool:
    return not _asking.get()


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is an answer here, Java trace and all.

    Of this thread only: another one that asks at the same time neither hears this one's errors nor leaves
    the log off behind it.
    """
    # PySpark's own kind: if an ordinary logger had this name, PySpark could not log to it, and every later
    # analysis error of the session would be a TypeError.
    PySparkLogger.getLogger("DataFrameQueryContextLogger").addFilter(_is_told)  # once, however often
    asked = _asking.set(True)
    try:
        yield
    finally:
        _asking.reset(asked)

"""What PySpark prints that is no trouble, kept quiet."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

from pyspark.logger import PySparkLogger

PANDAS_NOTICE = "PySpark does not yet fully support pandas"


@contextlib.contextmanager
def without_notice() -> Iterator[None]:
    """Without PySpark's notice on pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
        yield


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keep PySpark from logging an analysis error that is an answer here, Java trace and all."""
    # PySpark's own kind: if an ordinary logger had this name, PySpark could not log to it, and every later
    # analysis error of the session would be a TypeError.
    logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before

"""What PySpark does not print while it is asked, without Spark."""

import logging
import threading

import pytest

pytest.importorskip("pyspark")
from pyspark.logger import PySparkLogger

from ordstream.spark.quiet import unlogged


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


@pytest.fixture
def log():
    """PySpark's logger of analysis errors, and what it was told."""
    logger, kept = PySparkLogger.getLogger("DataFrameQueryContextLogger"), Kept()
    logger.addHandler(kept)
    yield logger, kept.texts
    logger.removeHandler(kept)


def test_two_threads_that_ask_at_a_time_are_both_quiet_and_leave_the_log_on(log):
    logger, texts = log
    first_left, second_asks = threading.Event(), threading.Event()

    def second():
        with unlogged():
            second_asks.set()
            first_left.wait(60)
            logger.error("of the second, which still asks")

    thread = threading.Thread(target=second)
    with unlogged():
        thread.start()
        assert second_asks.wait(60)
    first_left.set()
    thread.join()
    assert texts == []
    logger.error("of the user")
    assert texts == ["of the user"]


def test_errors_of_other_threads_are_told_meanwhile(log):
    logger, texts = log
    with unlogged():
        thread = threading.Thread(target=logger.error, args=("of the user",))
        thread.start()
        thread.join()
        with unlogged():
            logger.error("asked twice")
        logger.error("asked")
    assert texts == ["of the user"]

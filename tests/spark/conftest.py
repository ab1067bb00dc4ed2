"""One Spark session for all Spark tests: two cores, one node of two at a time, one retry of a failed task:
each starts another Python.
"""

import zlib

import pytest


@pytest.fixture(scope="session")
def spark(java):
    pytest.importorskip("pyspark")
    from ordstream.spark import local_session

    session = local_session(2, retries=1, memory="1g")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def small_batches(request, monkeypatch):
    """By its name a test's small micro-batches run in the driver, as by default, or all as tasks."""
    if (
        request.module.__name__.endswith("test_stream_on_driver")
        or zlib.crc32(request.node.name.encode()) % 2
    ):
        return
    on_driver = pytest.importorskip("ordstream.spark.streaming.on_driver")
    monkeypatch.setattr(on_driver, "AUTO_ROWS", 0)

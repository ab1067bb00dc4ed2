"""One Spark session for all Spark tests: two cores, one node of two at a time, three retries of a failed
task.
"""

import pytest


@pytest.fixture(scope="session")
def spark(java):
    pytest.importorskip("pyspark")
    from ordstream.spark import local_session

    session = local_session(2, retries=3, memory="1g")
    yield session
    session.stop()

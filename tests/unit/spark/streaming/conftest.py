"""Tasks of epochs, without Spark."""

import pytest


@pytest.fixture
def tasks(monkeypatch):
    """Tasks ask `epoch_frames.Frame` where they are."""
    pytest.importorskip("pyspark")
    from epoch_frames import install

    install(monkeypatch)

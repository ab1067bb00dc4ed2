"""Spark's daemon of Python workers, whose workers have the faults of `stream_faults` from their start: a
task that runs none of the pipeline's functions would not import them.
"""

from __future__ import annotations

from typing import Any

from pyspark import daemon

plain = daemon.worker


def worker(*given: Any) -> Any:
    """Behind the fork."""
    import stream_faults  # noqa: F401 - it reads what faults there are

    return plain(*given)


daemon.worker = worker

if __name__ == "__main__":
    daemon.manager()

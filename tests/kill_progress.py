"""What a suite of kills tells while it runs, and when it has had its time.

``ORDSTREAM_KILLS_MINUTES``: so many minutes after its start no further fault fires. The jobs that run then
go on to their ends, and what they gave is compared all the same.
"""

from __future__ import annotations

import os
import time

_STARTED = time.monotonic()
_MINUTES = float(os.environ.get("ORDSTREAM_KILLS_MINUTES", "inf"))
_told = 0


def over() -> bool:
    """The time is up."""
    return time.monotonic() - _STARTED >= 60 * _MINUTES


def told(what: str, seconds: float) -> None:
    """One kill more, of a process that is back, or at its end, after so many seconds. `tools/kills.py`
    counts these lines.
    """
    global _told
    _told += 1
    print(f"kill {_told}: {seconds:5.1f} s: {what}", flush=True)

"""What memory a Python worker may have, where `spark.executor.pyspark.memory` bounds its address space."""

from __future__ import annotations

import os
from pathlib import Path

# A node has in flight at most this part of what is left of the address space: beside it there are Arrow's
# batches on their way in and out, states and threads.
SHARE = 4
LEAST = 4 << 20  # bytes in flight, however little is left
NO_ROOM = (
    "This Python worker may have {:,} MiB of address space, by spark.executor.pyspark.memory, of which its "
    "libraries take some 300: give it more, or smaller batches "
    "(spark.sql.execution.arrow.maxBytesPerBatch), or each node fewer keys (nodes=)"
)


def limit() -> int | None:
    """Bytes of address space that this process may have; None: as many as there are."""
    import resource  # which a driver on another system may lack

    found = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if found == resource.RLIM_INFINITY else found


def tell_no_room(error: BaseException) -> None:
    """Add to an error that says that memory is used up what to set, where this process has a limit."""
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        most = limit()
        if most is not None:
            error.add_note(NO_ROOM.format(most >> 20))


def in_flight(default: int) -> dict[str, int]:
    """The option for a node's bytes in flight, where this process has room for less than the default."""
    most = limit()
    if most is None:
        return {}
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # no Linux
        used = 0
    share = max((most - used) // SHARE, LEAST)
    return {"max_bytes": share} if share < default else {}

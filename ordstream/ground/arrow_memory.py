"""Where batches that pass between processes lie: memory of the C library, not of Arrow's own allocator.

Such a batch lives for some milliseconds, and the next one is as large. Arrow's allocator gives its pages
back to the system in between, which zeroes them again for each batch.
"""

from __future__ import annotations

import pyarrow as pa

#: Of the batches that a stream over processes makes.
POOL: pa.MemoryPool = pa.system_memory_pool()


def use_for_all() -> None:
    """Have this process's Arrow take all memory so: for processes that do nothing else."""
    pa.set_memory_pool(POOL)

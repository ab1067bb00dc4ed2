"""All memory goes while a user's function runs, and comes back a chunk later: the run ends with an error or
gives all rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ordstream as od

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="bounds a process by RLIMIT_AS"),
    pytest.mark.skipif("ORDSTREAM_SANITIZE" in os.environ, reason="a sanitizer's shadow takes all there is"),
]

PROGRAM = """
    import ctypes, resource, sys
    import pyarrow as pa
    import ordstream as od

    kind, workers, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    rows = pa.table({"i": list(range(5_000)), "k": [i % 7 for i in range(5_000)]})
    get, let = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    get.restype, get.argtypes, let.argtypes = ctypes.c_void_p, (ctypes.c_size_t,), (ctypes.c_void_p,)
    held = [None] * 4_000_000  # room, while there is memory

    def take():
        n, size = 0, 1 << 22
        while size >= 16:
            block = get(size)
            if block is None:
                size >>= 1
            else:
                held[n] = block
                n += 1

    def free():
        for n, block in enumerate(held):
            if block is None:
                break
            let(block)
            held[n] = None

    def meet(i):
        if i > 3_000 and held[0] is not None:
            free()
        if i == 3_000:
            take()
            if how == "raises":
                raise MemoryError
        return True

    def of_map(row):
        meet(row.i)
        return (row.i,)

    def of_flat_map(row):
        meet(row.i)
        yield (row.i,)
        yield (row.i,)

    def of_filter(row):
        return meet(row.i)

    def of_process(row, state, emit):
        meet(row.i)
        emit(row.i)

    out = pa.schema([("i", pa.int64())])
    p = od.Pipeline(rows.schema)
    plan = {
        "map": lambda: p.map(of_map, schema=out),
        "flat_map": lambda: p.flat_map(of_flat_map, schema=out),
        "filter": lambda: p.filter(of_filter),
        "process": lambda: p.key_by("k").process(of_process, schema=out, state={"n": int}),
    }[kind]()
    wanted = 10_000 if kind == "flat_map" else 5_000
    now = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (now + (300 << 20), resource.RLIM_INFINITY))
    told = None
    try:
        found = plan.run(rows, workers=workers, chunk_rows=64).table.num_rows
    except (MemoryError, RuntimeError, od.OrdstreamError) as error:
        told = "an error"
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    free()
    print(told or ("all" if found == wanted else f"{found} of {wanted} rows"))
"""


@pytest.mark.parametrize("how", ["raises", "goes on"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["map", "flat_map", "filter", "process"])
def test_no_row_is_missing_without_an_error(kind: str, workers: int, how: str) -> None:
    """There was no memory even for the chunk's failure, so the run went on without its rows; and an
    exception without a traceback ended the process."""
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), kind, str(workers), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (("an error",) if how == "raises" else ("an error", "all"))

"""Threads that run user code: their stacks bear what the main thread's bears, and the user's own setting
stays.
"""

from __future__ import annotations

import contextvars
import decimal
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node import worker_threads
from ordstream.testing import run_serial

# Run in a process of its own: where a stack ends too soon, it is the process that ends.
PROGRAM = """
import functools, json, random, re, sys, threading
import pyarrow as pa
import ordstream as od
from ordstream.reference.run_serial import run_serial

sys.setrecursionlimit({limit})

class Tree:
    def __init__(self, children):
        self.children = children
    def __lt__(self, other):
        sorted(self.children)
        return False

def by_sorting(depth):
    tree = Tree([])
    for _ in range(depth):
        tree = Tree([Tree([]), tree])
    sorted(tree.children)

def by_mapping(depth):
    return list(map(by_mapping, [depth - 1])) if depth > 0 else []

def by_substituting(depth):
    return re.sub("a", lambda _: by_substituting(depth - 1), "a") if depth > 0 else "b"

def by_folding(depth):
    return functools.reduce(lambda a, b: by_folding(depth - 1), [1, 2]) if depth > 0 else 0

def by_encoding(depth):
    nested = []
    for _ in range(depth):
        nested = [nested]
    json.dumps(nested)

WAYS = [by_sorting, by_mapping, by_substituting, by_folding, by_encoding]

def end(x):
    try:
        WAYS[x % len(WAYS)](x)
    except RecursionError:
        return -1
    return 1

# Frames that are there already differ from thread to thread: a depth is far below the limit, or far beyond.
rng = random.Random({limit})
LOW, HIGH = {limit} // 6, 3 * {limit}
DEPTHS = [rng.choice([rng.randrange(1, LOW), rng.randrange(HIGH, 2 * HIGH)]) for _ in range(8)]
DEPTHS += [*range(LOW - len(WAYS), LOW), *range(HIGH, HIGH + len(WAYS))]

IN = pa.schema([pa.field("x", pa.int64(), nullable=False)])
OUT = pa.schema([("x", pa.int64()), ("end", pa.int64())])

def rows(fed):
    for x in DEPTHS:
        fed.append(end(x))
        yield pa.record_batch([pa.array([x], pa.int64())], schema=IN)

def fold(row, state, emit):
    state.x = row.x
    emit(row.x, end(row.x))

def flush(key, state, emit):
    emit(-key, end(state.x))

pipeline = (
    od.Pipeline(IN)
    .filter(lambda row: end(row.x) in (-1, 1))
    .flat_map(lambda row: [(row.x, end(row.x))], schema=OUT)
    .key_by("x")
    .process(fold, schema=OUT, state={{"x": int}}, on_flush=flush)
)

def on_a_large_stack():
    wanted.append(run_serial(pipeline, list(rows([]))).table)
    ends.extend(end(x) for x in DEPTHS)

wanted, ends = [], []
threading.stack_size(512 << 20)
reference = threading.Thread(target=on_a_large_stack)
reference.start()
reference.join()
threading.stack_size(0)
assert ends.count(-1) >= 4 and ends.count(1) >= 5, ends
for workers in {workers}:
    fed = []
    got = pipeline.run(rows(fed), workers=workers).table
    assert fed == ends, (workers, fed)
    assert got.equals(wanted[0]), (workers, got.to_pydict(), wanted[0].to_pydict())
print("done")
"""


@pytest.mark.parametrize(
    # A limit that was raised is too much for the main thread of some interpreters: there only our threads
    # are asked.
    ("limit", "workers"),
    [(1_000, (0, 1, 2, 4)), (2_500, (1, 2))],
)
def test_a_recursion_through_c_ends_everywhere_as_on_a_large_stack(
    limit: int, workers: tuple[int, ...]
) -> None:
    """Functions, state, flushes and the source's own generator, on the caller's thread, the feeder's and
    the workers'.
    """
    program = PROGRAM.format(limit=limit, workers=workers)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr[-2_000:]


def stack_size() -> int:
    """The size for the next threads. Python's own function sets it to 0 where it is asked without a size."""
    size = threading.stack_size()
    threading.stack_size(size)
    return size


@pytest.mark.parametrize("own", [0, 1 << 20, 48 << 20])
def test_the_users_stack_size_stays_and_is_a_lower_bound(own: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    start = threading.Thread.start

    def noting(thread: threading.Thread) -> None:
        if thread.name.startswith("ordstream"):
            sizes.append(stack_size())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noting)
    before = threading.stack_size(own)
    try:
        schema = pa.schema([("x", pa.int64())])
        rows = (pa.record_batch([pa.array([k])], schema=schema) for k in range(4))
        od.Pipeline(schema).filter(lambda row: True).run(rows, workers=2)
        assert stack_size() == own
    finally:
        threading.stack_size(before)
    assert len(sizes) == 3, "two workers and the feeder"
    assert all(size >= max(own, worker_threads.LEAST_STACK_BYTES) for size in sizes)


def test_the_stack_grows_with_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    try:
        sizes = []
        for levels in (1_000, 2_000, 8_000, 10**9):
            sys.setrecursionlimit(min(levels, 2**31 - 1))
            sizes.append(worker_threads.stack_bytes())
    finally:
        sys.setrecursionlimit(limit)
    assert sizes == sorted(sizes)
    assert sizes[1] >= 2_000 * worker_threads.LEVEL_BYTES
    assert sizes[-1] <= 1 << 30


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("can't start new thread", "allow more"),
        ("can't create new thread at interpreter shutdown", "have the main thread wait"),
    ],
)
def test_a_thread_that_can_not_start_is_named_with_what_to_do(
    said: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second: Python before 3.12.3, in a thread that goes on when the main thread has ended."""
    begin = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "ordstream-worker-1":
            raise RuntimeError(said)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    rows = pa.table({"x": range(10)})
    with pytest.raises(RuntimeError, match=f"thread 'ordstream-worker-1': {said}; {advice}"):
        od.Pipeline(rows.schema).filter(od.col("x") > 3).run(rows, workers=2)
    monkeypatch.undo()
    assert not [one.name for one in threading.enumerate() if one.name.startswith("ordstream-worker")]


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="Windows has no such signal")
@pytest.mark.parametrize("starts", ["ordstream-worker", "ordstream-snapshots"])
def test_what_a_signal_s_handler_raises_at_a_thread_s_start_is_raised(starts, monkeypatch, tmp_path):
    class TooLong(Exception):
        pass

    def too_long(*_):
        raise TooLong

    def start(thread):
        if thread.name.startswith(starts):
            signal.raise_signal(signal.SIGALRM)
        begin(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    table = pa.table({"x": range(10_000)})
    pipeline = od.Pipeline(table.schema).cum_count()
    before = signal.signal(signal.SIGALRM, too_long)
    try:
        with pytest.raises(TooLong):
            list(pipeline.stream(table, workers=2, chunk_rows=100, checkpoint=tmp_path, every=1000))
        assert signal.getsignal(signal.SIGALRM) is too_long
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not [one.name for one in threading.enumerate() if one.name.startswith("ordstream")]


CALLER = contextvars.ContextVar("CALLER", default="nobody")


def in_context(row):
    with np.errstate(**np.geterr()):
        return str(decimal.Decimal(1) / decimal.Decimal(row.x)), CALLER.get(), np.geterr()["divide"]


def source_in_context(seen):
    for x in range(1, 5):
        seen.append(CALLER.get())
        yield pa.table({"x": [x]})


@pytest.mark.parametrize("workers", [0, 1, 2, "auto"])
def test_functions_and_sources_run_in_the_context_of_the_caller(workers):
    """So that what they make does not depend on the number of workers."""
    schema = {"third": "string", "by": "string", "divide": "string"}
    pipeline = od.Pipeline({"x": int}).map(in_context, schema=schema)
    data = pa.table({"x": [3, 7]})
    seen = []

    def run():
        CALLER.set("somebody")
        decimal.setcontext(decimal.Context(prec=5))  # of its own: the other one is all tests'
        with np.errstate(divide="raise"):
            found = pipeline.run(data, workers=workers).table
            assert found.equals(run_serial(pipeline, data).table)
            pipeline.run(source_in_context(seen), workers=workers)
        return found.to_pylist()

    found = contextvars.copy_context().run(run)
    assert [list(row.values()) for row in found] == [
        ["0.33333", "somebody", "raise"], ["0.14286", "somebody", "raise"]
    ]  # fmt: skip
    assert seen == ["somebody"] * 4


def test_a_worker_that_is_wanted_later_and_cannot_start_is_done_without(monkeypatch):
    class Core:
        def __init__(self):
            self.wanted = iter([range(1), range(1, 3), range(3, 4)])

        def hire(self):
            return next(self.wanted, ())

    def refuse(thread, size):
        if not thread.name.endswith("-0"):
            raise RuntimeError("can't start new thread")
        threads.started.append(thread.name)

    threads = worker_threads.WorkerThreads(Core())
    threads.started = []
    monkeypatch.setattr(worker_threads, "start_surely", refuse)
    for _ in range(4):
        threads.start()
        assert len(threads) == 1
    assert threads.started == ["ordstream-worker-0"]
    first = worker_threads.WorkerThreads(Core())
    monkeypatch.setattr(first._core, "hire", lambda: range(1, 3))
    with pytest.raises(RuntimeError, match="'ordstream-worker-1': can't start new thread; allow more"):
        first.start()


@pytest.mark.parametrize("kept", ["sys.unraisablehook = lambda u: None", "sys.kept = stream", "pass"])
def test_a_stream_that_nobody_read_ends_quietly_with_the_interpreter(kept):
    program = f"""
import sys
import pyarrow as pa
import ordstream as od
stream = od.Pipeline({{"x": int}}).filter(od.col("x") > 0).stream(pa.table({{"x": [1]}}))
{kept}
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

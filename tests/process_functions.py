"""Functions that spawned processes import by name: pytest's test modules can't be imported there."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import ordstream as od

SOURCE = pa.schema([("user", pa.int64()), ("item", pa.string()), ("n", pa.int64())])


def rows(n=20_000):
    numbers = np.arange(n)
    user = [None if k % 11 == 0 else int(k * k % 97) for k in numbers]
    return pa.table([user, [f"é{k % 5}" for k in numbers], numbers], schema=SOURCE)


def sleeps_long(seed, number):
    time.sleep(60)


def takes_a_while(row):
    """Row(user, item)"""
    time.sleep(0.0006)
    return (row.user, row.item)


def allocator(row):
    return (row.user, pa.default_memory_pool().backend_name)


def doubled(row):
    return [(row.user, row.item, row.n), (row.user, row.item, -row.n)]


def fails_late(row):
    if row.n in (15_000, 15_003):  # of two keys, and so perhaps in two processes
        raise ValueError(f"no {row.n}")
    return tuple(row)


def refuses(row):
    if row.n % 1_000 in (3, 4):
        raise ValueError(f"no {row.n}")
    return tuple(row)


def never_at_3000(row):
    return bool(1 / (row.x - 3_000))


def totals(row, state, emit):
    if row.n == 12_345:
        raise ValueError("not this one")
    state.n += row.n % 7
    if row.n % 3:
        emit(row.user, state.n)


def totals_at_end(key, state, emit):
    if key == 4:
        raise ValueError("not this key")
    emit(key, -state.n)
    emit(key, None)


def dies(row):
    if row.n == 9_000:
        os.kill(os.getpid(), signal.SIGKILL)
    return tuple(row)


def lives(row):
    return tuple(row)


def sleeps(row):
    Path(os.environ["ORDSTREAM_TEST_BEAT"]).touch()
    time.sleep(0.02)
    return tuple(row)


def slow_for_some(row):
    if row.user is not None and row.user % 4 == 1:
        time.sleep(0.0002)
    return tuple(row)


def holds_gil(row):
    """Tells its process over a pipe that stays open as long as that lives, and never ends."""
    import re

    pipe = os.open(os.environ["ORDSTREAM_TEST_PIDS"], os.O_WRONLY)
    os.write(pipe, f"{os.getpid()}\n".encode())
    re.match(r"(a+)+$", "a" * 64 + "b")  # takes longer than the universe has, in C
    return tuple(row)


def build(*steps):
    pipeline = od.Pipeline(SOURCE).filter(od.col("user").is_not_null())
    for step in steps:
        pipeline = step(pipeline)
    return (
        pipeline.key_by("user")
        .scan(seen=od.count(), least=od.min("n"))
        .key_by("item", "seen")
        .count("m")
        .top_k(40, by="m")
    )


def starts_processes(row):
    """Row(user, item, n)"""
    if row.n == 700:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            return (row.user, row.item, pool.map(abs, [-row.n])[0])
    return (row.user, row.item, row.n)


def leaves_a_process(row):
    """Row(user, item, n)"""
    if row.n == 700:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        child.start()
        Path(os.environ["ORDSTREAM_TEST_BEAT"]).write_text(str(child.pid))
    return (row.user, row.item, row.n)


def forks_and_comes_back(row):
    """Row(user, item, n)"""
    if row.n == 700:
        child = os.fork()
        if not child:
            return (row.user, row.item, -1)
        os.waitpid(child, 0)
    if row.n == 900:
        child = os.fork()
        if not child:
            raise ValueError("of a child")
        os.waitpid(child, 0)
    return (row.user, row.item, row.n)


def forks_and_dies(row):
    """Row(user, item, n)"""
    if row.n == 700:
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        Path(os.environ["ORDSTREAM_TEST_BEAT"]).write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    return (row.user, row.item, row.n)


def slow_here(row):
    """Row(user, process)"""
    time.sleep(0.002)
    return (row.user, os.getpid())


def spun(row, state, emit):
    """The key, how often it came, and a number that takes some time."""
    code = 0
    for step in range(60):
        code = (code * 31 + row.n + step) % 65_521
    state.n += 1
    emit(row.k, state.n, code)


def counts_to_three(row, state, emit):
    """The key, and how often it came; then its state is forgotten."""
    state.n += 1
    emit(row.k, state.n)
    return od.FORGET if state.n == 3 else None

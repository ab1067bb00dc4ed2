"""Ctrl-C while a worker's thread is in a function that does not return: the run ends all the same."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node import worker_threads

DATA = pa.table({"k": np.arange(20_000) % 7, "v": np.arange(20_000)})
STUCK = 9_000
COUNTED = {"schema": {"v": int}, "state": {"n": pa.int64()}}


def of_ours():
    return [one for one in threading.enumerate() if one.name.startswith("ordstream")]


def assert_all_go() -> None:
    """The threads that were left behind end as soon as they can."""
    until = time.monotonic() + 60
    while of_ours() and time.monotonic() < until:
        time.sleep(0.01)
    assert of_ours() == []


@pytest.fixture
def press():
    """Sends Ctrl-C as soon as the function, which calls this, is at it."""
    came = threading.Event()

    def send():
        if came.wait(60):
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    yield came.set
    came.set()
    sender.join()


def run(pipeline, workers):
    pipeline.run(DATA, workers=workers)


def stream(pipeline, workers):
    for _ in pipeline.stream(DATA.to_batches(max_chunksize=500), workers=workers):
        pass


def live(pipeline, workers):
    with pipeline.stream(iter(DATA.to_batches(max_chunksize=500)), workers=workers) as batches:
        for _ in batches:
            pass


def of_state(function):
    def step(row, state, emit):
        function(row)
        emit(row.v)

    return step


def generating(function):
    def rows(row):
        yield (row.v,)
        function(row)

    return rows


MAKE = {
    "filter": lambda p, f: p.filter(f),
    "flat_map": lambda p, f: p.flat_map(generating(f), schema={"v": int}),
    "process": lambda p, f: p.key_by("k").process(of_state(f), **COUNTED),
    "skipping": lambda p, f: p.filter(f, on_error="skip"),
    "tried again": lambda p, f: p.filter(f, on_error=od.retry(5)),
    "map_batches": lambda p, f: p.map_batches(
        lambda batch: f(batch) and batch, schema=p.schema, format="arrow"),
}  # fmt: skip


@pytest.mark.parametrize("read", [run, stream, live])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", MAKE)
@pytest.mark.thin(12)
def test_a_function_that_goes_on_is_interrupted(press, name, workers, read):
    met = []

    def endless(row):
        if name == "map_batches" or row.v == STUCK:
            try:
                press()
                while True:
                    pass
            except BaseException as error:
                met.append(type(error))
                raise
        return True

    with pytest.raises(KeyboardInterrupt):
        read(MAKE[name](od.Pipeline(DATA.schema), endless), workers)
    assert met == [KeyboardInterrupt]
    assert of_ours() == []


def waiting(press, lock):
    """A function that waits in C, behind Ctrl-C, for a lock that the test has."""

    def waits(row):
        if row.v == STUCK:
            press()
            with lock:
                pass
        return True

    return waits


@pytest.mark.parametrize("read", [run, stream, live])
def test_one_that_waits_in_c_is_left_behind(press, monkeypatch, read):
    monkeypatch.setattr(worker_threads, "GIVEN_UP_S", 0.5)
    lock = threading.Lock()
    lock.acquire()
    with (
        pytest.warns(RuntimeWarning, match="ordstream-worker-.* left behind") as told,
        pytest.raises(KeyboardInterrupt),
    ):
        read(od.Pipeline(DATA.schema).filter(waiting(press, lock)), 2)
    assert len(told) == 1
    assert [one.daemon for one in of_ours()] == [True] * 2  # it, and the one that waits for it
    # everything else goes on, and what was left behind goes as soon as it can
    assert od.Pipeline(DATA.schema).filter(lambda row: row.v < 5).run(DATA, workers=2).table.num_rows == 5
    lock.release()
    assert_all_go()


def test_the_warning_does_not_replace_the_interrupt(press, monkeypatch):
    """`except Exception` caught Ctrl-C where warnings are errors."""
    monkeypatch.setattr(worker_threads, "GIVEN_UP_S", 0.5)
    lock = threading.Lock()
    lock.acquire()
    try:
        with warnings.catch_warnings(action="error"), pytest.raises(KeyboardInterrupt) as told:
            run(od.Pipeline(DATA.schema).filter(waiting(press, lock)), 2)
    finally:
        lock.release()
    assert "left behind" in "".join(told.value.__notes__)
    assert_all_go()


def test_a_function_that_ends_in_time_is_not_interrupted(press, monkeypatch):
    monkeypatch.setattr(worker_threads, "MAY_END_S", 60)
    ended = []

    def slow(row):
        if row.v == STUCK:
            press()
            time.sleep(0.05)
            ended.append(row.v)
        return True

    with warnings.catch_warnings(action="error"), pytest.raises(KeyboardInterrupt):
        run(od.Pipeline(DATA.schema).filter(slow), 2)
    assert ended == [STUCK]
    assert of_ours() == []


def test_a_second_press_waits_no_longer(press, monkeypatch):
    monkeypatch.setattr(worker_threads, "GIVEN_UP_S", 600)
    lock = threading.Lock()
    lock.acquire()

    def interrupt(inside, seconds):
        once(inside, seconds)
        os.kill(os.getpid(), signal.SIGINT)

    once = worker_threads.interrupt
    monkeypatch.setattr(worker_threads, "interrupt", interrupt)
    with pytest.warns(RuntimeWarning, match="left behind"), pytest.raises(KeyboardInterrupt):
        run(od.Pipeline(DATA.schema).filter(waiting(press, lock)), 2)
    lock.release()
    assert_all_go()

"""Parking: the event count alone, and the handshake of parking workers around a queue (hazard C6: no
lost wake-up).
"""

from __future__ import annotations

import threading
import time

import pytest
from core_threads import together

from ordstream._core.lab.testing_event_count import PyEventCount


def test_wait_times_out() -> None:
    event = PyEventCount()
    start = time.perf_counter()
    assert not event.wait(event.prepare(), 0.02)
    assert time.perf_counter() - start > 0.015


def test_notify_between_prepare_and_wait_is_not_lost() -> None:
    event = PyEventCount()
    for notify in (event.notify_one, event.notify_all):
        seen = event.prepare()
        notify()
        start = time.perf_counter()
        assert event.wait(seen, 60)
        assert time.perf_counter() - start < 20  # a lost notification takes the whole wait
        assert event.prepare() == seen + 1


def test_notify_wakes_a_waiter() -> None:
    event = PyEventCount()
    seen = event.prepare()
    timer = threading.Timer(0.05, event.notify_one)
    timer.start()
    start = time.perf_counter()
    assert event.wait(seen, 60)
    assert time.perf_counter() - start < 20
    timer.join()


def test_notify_all_wakes_every_waiter() -> None:
    event = PyEventCount()
    seen = event.prepare()

    def notify() -> bool:
        time.sleep(0.05)
        event.notify_all()
        return True

    assert together(notify, *[lambda: event.wait(seen, 60)] * 4) == [True] * 5


@pytest.mark.parametrize("consumers", [1, 2, 6])
@pytest.mark.parametrize("capacity", [2, 64])
def test_handshake(consumers: int, capacity: int) -> None:
    """Consumers park the moment there is nothing: no item waits for a park to time out."""
    n = 4_000
    event = PyEventCount(capacity)
    pushed, *taken = together(lambda: event.produce(n, 3), *[lambda: event.consume(n, 20.0)] * consumers)
    assert pushed == n
    assert sum(taken) == n
    assert event.figures["parks"] > 0
    assert event.figures["timeouts"] == 0

"""Moves are decided in a thread of their own, while the caller hands rows on."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ordstream as od
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.table import Assignment
from ordstream.fragments import balancing as balancing_module
from ordstream.fragments.balancing import DECIDES, Balancing
from ordstream.fragments.moving import Moved

KEYS = np.arange(100, dtype=np.uint64)


class Slow(Controller):
    """Decides when it may: half of the keys to the other node, and back; or fails."""

    def __init__(self) -> None:
        super().__init__(od.Mixed(table=None), 2)
        self.may, self.asked = threading.Event(), threading.Event()
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None

    def decide(self) -> Move | None:
        self.asked.set()
        assert self.may.wait(20)
        self.threads.append(threading.current_thread())
        if self.error is not None:
            raise self.error
        self._collect()
        to = 1 - self.assignment.route_words(KEYS[::2])
        return self._propose(Assignment(self.assignment.ring, KEYS[::2], to), self.assignment)


def report(node: int, interval: int) -> tuple[int, Report, Any]:
    ones = np.ones(len(KEYS))
    return 1, Report(node, interval, KEYS, ones.astype(np.int64), ones, ones.astype(np.int64), 1.0), 0 * ones


def balancing(controller: Slow) -> tuple[Balancing, threading.Event]:
    made, woken = Balancing({1: controller}, 2, interval=400), threading.Event()
    made.wake = woken.set
    return made, woken


def asked(made: Balancing, interval: int, serial: int) -> None:
    until = time.monotonic() + 20
    while not made.wants_report(serial):
        assert time.monotonic() < until
        time.sleep(0.001)
    made.asked(interval, serial)
    for node in (0, 1):
        made.heard(report(node, interval))


def test_the_caller_goes_on_meanwhile() -> None:
    controller = Slow()
    made, woken = balancing(controller)
    asked(made, 1, 400)
    assert controller.asked.wait(20)
    assert not made.wants_move()
    assert not made.wants_report(10_000)  # the controllers are the thread's
    assert not woken.is_set()
    controller.may.set()
    assert woken.wait(20)
    assert made.wants_move()
    assert controller.threads[0] is not threading.current_thread()
    shift = made.begin(2, 900)
    for node in (0, 1):
        made.heard(Moved(shift.number, 1, node))
    assert [one.serial for one in made.figures] == [900]
    assert controller.version == 1
    step, before = shift.step, Assignment(controller.assignment.ring)
    assert np.array_equal(controller.assignment.route_words(step.words), step.to)
    assert np.array_equal(controller.assignment.route_words(KEYS), step.behind(before).route_words(KEYS))


def test_a_step_that_ends_waits_for_the_reports_to_be_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come while keys move: the controller has one thread at a time."""
    controller = Slow()
    made, woken = balancing(controller)
    controller.may.set()
    asked(made, 1, 400)
    assert woken.wait(20)
    assert made.wants_move()
    shift = made.begin(2, 900)
    taken, order = Controller.report, list[str]()

    def slowly(self: Controller, one: Report) -> bool:
        time.sleep(0.05)
        order.append("report")
        return taken(self, one)

    def committed(self: Controller, move: Move) -> None:
        order.append("commit")
        Controller.commit(self, move)

    monkeypatch.setattr(Slow, "report", slowly)
    monkeypatch.setattr(Slow, "commit", committed)
    asked(made, 3, 2_000)
    for node in (0, 1):
        made.heard(Moved(shift.number, 1, node))
    assert order == ["report", "report", "commit"]
    assert made._has_thought(wait=True)


def test_where_rows_are_fast_nodes_report_as_often_as_there_is_time_to_decide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a million rows a second the caller decided for most of the time."""
    now = [0.0]
    clock = SimpleNamespace(
        perf_counter=lambda: now[0], thread_time=itertools.count().__next__, process_time=float, sleep=float
    )
    monkeypatch.setattr(balancing_module, "time", clock)
    controller = Slow()
    made, woken = balancing(controller)
    controller.may.set()
    for serial in (100, 200, 400):  # the first ones are not held back
        woken.clear()
        asked(made, serial, serial)
        assert woken.wait(20)
        while made.wants_move():
            shift = made.begin(serial + 1, serial)
            for node in (0, 1):
                made.heard(Moved(shift.number, 1, node))
    assert not made.wants_report(1_000_000)  # a second of CPU was spent: the next is due 10 s behind
    now[0] = 1 / DECIDES - 0.1
    assert not made.wants_report(1_000_000)
    now[0] = 1 / DECIDES + 0.1
    assert made.wants_report(1_000_000)


def test_what_goes_wrong_there_is_the_callers() -> None:
    controller = Slow()
    controller.error = ValueError("no plan")
    made, woken = balancing(controller)
    controller.may.set()
    asked(made, 1, 400)
    assert woken.wait(20)
    with pytest.raises(ValueError, match="no plan"):
        made.wants_move()


@pytest.mark.parametrize("decided", [False, True])
def test_a_move_is_cancelled_as_soon_as_it_is_decided(decided: bool) -> None:
    controller = Slow()
    made, woken = balancing(controller)
    asked(made, 1, 400)
    if decided:
        controller.may.set()
        assert woken.wait(20)
    else:
        threading.Timer(0.1, controller.may.set).start()
    assert made.cancel()
    assert not made.wants_move()
    assert controller.pending is None

"""What a move cost a run: the caller's clock and the nodes' work as they are given here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_moves import GivenMoves

import ordstream as od
from ordstream.balance.mixed import Controller, Payback, Report
from ordstream.fragments import balancing as balancing_module
from ordstream.fragments.balancing import Balancing, controller_of
from ordstream.fragments.move_pace import MovePace
from ordstream.fragments.moving import Moved

RING = od.Mixed().ring(2)
SOME = np.arange(400, dtype=np.uint64)
KEYS = np.concatenate([SOME[RING.route_words(SOME) == node][:50] for node in (0, 1)])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_move_costs_the_rows_that_did_not_go_out() -> None:
    clock = Clock()
    pace = MovePace(clock)
    for serial in (0, 1_000, 2_000):  # 1,000 rows in 2 s, for which the fullest node works 1 s
        pace.reports_at(serial)
        pace.worked(1.0)
        clock.now += 2.0
    pace.moves_at(3_000)
    clock.now += 0.5
    pace.moves_at(3_100)  # its second step
    clock.now += 2.5
    assert pace.moved(3_500) == pytest.approx((3.0 - 1.0) * 0.5)
    # the interval that had a move in it tells nothing
    clock.now += 50.0
    pace.reports_at(3_600)
    pace.worked(50.0)
    clock.now += 2.0
    pace.reports_at(4_600)
    pace.worked(1.0)
    pace.moves_at(4_600)
    clock.now += 1.0
    assert pace.moved(5_100) == pytest.approx(0.0)
    pace.moves_at(6_000)
    assert pace.moved(9_000) == 0.0  # more went out than else


def test_what_is_not_known_is_not_told() -> None:
    pace = MovePace(Clock())
    pace.reports_at(100)
    pace.worked(1.0)
    pace.moves_at(100)
    assert pace.moved(200) is None
    assert pace.moved(200) is None  # given up before its first step


def reports(interval: int, share: float) -> list[Any]:
    """Of two nodes; the first has so much of 1 s and of the tuples."""
    told = []
    for node, seconds in ((0, share), (1, 1 - share)):
        mine = RING.route_words(KEYS) == node
        count, ones = int(mine.sum()), np.ones(int(mine.sum()))
        tuples = np.full(count, round(20_000 * seconds) // count)
        cost = ones * seconds / count
        told.append((1, Report(node, interval, KEYS[mine], tuples, cost, 8 * ones), 0 * ones))
    return told


def asked(made: Balancing, interval: int, serial: int, share: float) -> None:
    assert made.wants_report(serial)
    made.asked(interval, serial)
    for one in reports(interval, share):
        made.heard(one)
    made._has_thought(wait=True)


def test_costs_are_learnt_where_moves_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on at half its pace while 50 keys move: one second of 2 s was lost."""
    clock = Clock()
    monkeypatch.setattr(balancing_module.time, "perf_counter", clock)
    controller = GivenMoves(2, [([], []), ([], []), (KEYS[:50].astype(np.int64), np.ones(50, np.int32))])
    controller.payback = Payback()
    made = Balancing({1: controller}, 2, interval=1_000)
    made.wake = lambda: None
    before = controller.payback.costs.of(50, 400)
    for number, serial in enumerate((1_000, 2_000, 3_000)):
        clock.now = 2.0 * number
        asked(made, number, serial, 0.5)
    assert made.wants_move()
    shift = made.begin(7, 3_000)
    clock.now += 2.0
    assert not made.wants_report(3_500)
    for node in (0, 1):
        made.heard(Moved(shift.number, 1, node))
    (found,) = made.figures
    # in 2 s 500 rows in place of 1,000; the fullest node had worked a quarter of the time
    assert found.lost == pytest.approx((2.0 - 1.0) * 0.25)
    assert controller.payback.costs.moves == [(50, pytest.approx(400, rel=0.1), found.lost)]
    assert controller.payback.costs.of(50, 400) > 2 * before
    (told,) = made.report().values()
    assert (told["moves"], told["lost_seconds"]) == (controller.version, found.lost)


def test_work_for_other_operators_in_the_same_process_counts() -> None:
    """One fragment's fuller node is where another's has less: together they are even."""
    made = {}
    for shares in ((0.75, 0.5), (0.75, 0.25)):
        controllers = {k: controller_of(od.Mixed(), 2) for k in (1, 2)}
        for one in controllers.values():
            assert one.payback is not None
            one.payback.processors = None
        balancing = Balancing(controllers, 2, interval=1_000)
        for number in range(4):
            serial = 1_000 * (number + 1)
            if not balancing.wants_report(serial):
                break
            balancing.asked(number, serial)
            for fragment, share in zip(controllers, shares, strict=True):
                for _, report, times in reports(number, share):
                    balancing.heard((fragment, report, times))
        made[shares] = balancing.wants_move()
    assert made == {(0.75, 0.5): True, (0.75, 0.25): False}


def test_nothing_is_weighed_without_payback() -> None:
    one: Controller = controller_of(od.Mixed(payback=0), 2)
    assert one.payback is None
    made = Balancing({1: one}, 2, interval=1_000)
    asked(made, 0, 1_000, 0.8)
    assert made.wants_move()
    assert made.report() == {}

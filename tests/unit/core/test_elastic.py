"""The controller of workers="auto" through its door, in virtual time: synthetic curves of throughput over
workers, noise, loads that change. The curves are the oracle: the best number and its throughput are known.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ordstream._core.flow.elastic import PyElasticDoor

MS = 1_000_000
Figure = Callable[[int, float], float]  # of (active workers, seconds)

CURVES: dict[str, Callable[[int], float]] = {
    "linear": lambda n: n,
    "flat": lambda n: 1.0,
    "linear to 4, then flat": lambda n: min(n, 4),
    "linear to 16, then flat": lambda n: min(n, 16),
    "Amdahl, 5 % serial": lambda n: 1 / (0.05 + 0.95 / n),
    "logarithmic": lambda n: math.log2(1 + n),
    "falls after 4": lambda n: n / (1 + (n / 4) ** 2),
    "falls after 12": lambda n: n / (1 + (n / 12) ** 2),
    "falls after 30": lambda n: n / (1 + (n / 30) ** 2),
    "falls at once": lambda n: 1 / n,
}


@dataclass
class Driven:
    door: PyElasticDoor
    steps: list[tuple[float, int, float]]  # end in seconds, active workers, length in seconds

    def numbers(self, begin: float, end: float) -> list[int]:
        return [n for at, n, _ in self.steps if begin <= at < end]

    def share_of_best(self, curve: Figure, most: int, begin: float, end: float = math.inf) -> float:
        """Work done over the work that the best number would have done."""
        part = [step for step in self.steps if begin <= step[0] < end]
        best = sum(max(curve(n, at) for n in range(1, most + 1)) * length for at, _, length in part)
        return sum(curve(n, at) * length for at, n, length in part) / best


def drive(
    most: int, curve: Figure, seconds: float, *, noise: float = 0.05, drift: float = 0.0, seed: int = 1,
    start: int = 1, busy: Figure = lambda n, at: n, waiting: Callable[[int, float], bool] = lambda n,
    at: True,
) -> Driven:  # fmt: skip
    """Virtual time in steps of about a millisecond; noise: relative, of each step, plus half as much
    that lasts for some 10 ms.
    """
    rng = random.Random(seed)
    driven = Driven(PyElasticDoor(most, start), [])
    now, n, slow, work, worker_time = 0, start, 0.0, 0.0, 0.0
    while now < seconds * 1e9:
        step = round(MS * rng.uniform(0.7, 1.5))
        now += step
        at = now / 1e9
        slow = 0.9 * slow + 0.1 * rng.gauss(0, 2 * noise)
        work += curve(n, at) * math.exp(rng.gauss(0, noise) + slow + drift * at) * step
        worker_time += busy(n, at) * step
        driven.steps.append((at, n, step / 1e9))
        n = driven.door.observe(now, work, worker_time, int(worker_time / 100e3), waiting(n, at))
    return driven


def of(curve: Callable[[int], float]) -> Figure:
    return lambda n, at: curve(n)


@pytest.mark.parametrize("most", [1, 2, 3, 8, 16, 33, 64])
@pytest.mark.parametrize("name", CURVES)
def test_within_ten_per_cent_of_the_best(name: str, most: int) -> None:
    """From the start on, slow start and comparisons included."""
    curve = of(CURVES[name])
    for seed in range(3):
        driven = drive(most, curve, 2.0, seed=seed)
        assert driven.share_of_best(curve, most, 0.0) > 0.9
        assert {n for _, n, _ in driven.steps} <= set(range(1, most + 1))


@pytest.mark.parametrize(
    ("name", "least", "largest"),
    [
        ("linear", 64, 64),
        ("flat", 1, 1),
        ("linear to 4, then flat", 4, 5),
        ("linear to 16, then flat", 15, 24),
        ("falls at once", 1, 1),
    ],
)
def test_settles_on_the_useful_number(name: str, least: int, largest: int) -> None:
    """Workers that bring nothing are given up, although they cost no throughput."""
    for seed in range(5):
        driven = drive(64, of(CURVES[name]), 3.0, seed=seed)
        assert least <= driven.door.state()["base"] <= largest


def test_converges_in_a_fraction_of_a_second() -> None:
    for name, curve in CURVES.items():
        assert drive(64, of(curve), 0.5).share_of_best(of(curve), 64, 0.25) > 0.9, name


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.2])
@pytest.mark.parametrize("drift", [-1.0, 0.0, 1.0])
def test_noise_and_drift(noise: float, drift: float) -> None:
    """A rate that moves by 100 % in a second, and steps that differ by 20 % for no reason, do not lead
    it astray.
    """
    for name in ("linear to 4, then flat", "falls after 12", "linear"):
        curve = of(CURVES[name])
        share = drive(16, curve, 3.0, noise=noise, drift=drift).share_of_best(curve, 16, 0.5)
        assert share > 0.85 if noise >= 0.2 else share > 0.9, (name, noise, drift)


def test_few_changes_once_it_is_settled() -> None:
    """Hysteresis: checks become rare, and a worker that brings exactly what it should does not make it
    swing.
    """
    driven = drive(2, of(CURVES["linear"]), 20.0)
    late = driven.numbers(10.0, 20.0)
    assert late.count(2) / len(late) > 0.98
    changes = sum(a != b for a, b in itertools.pairwise(late))
    assert 0 < changes < 30  # it looks now and then


def test_follows_a_load_that_changes() -> None:
    """The best number is 12, then 2, then 12 again: within 10 % of the best a quarter of a second after
    each change.
    """

    def curve(n: int, at: float) -> float:
        peak = 2 if 2.0 <= at < 4.0 else 12
        return n / (1 + (n / peak) ** 2)

    driven = drive(32, curve, 6.0)
    for begin in (0.0, 2.0, 4.0):
        assert driven.share_of_best(curve, 32, begin + 0.25, begin + 2.0) > 0.9, begin


def test_idle_burst_idle() -> None:
    """An open loop at 10 % of the capacity of 8 needs two workers; a burst gets all within 50 ms; then
    it shrinks again.
    """
    burst = (1.0, 2.0)

    def offered(at: float) -> float:
        return 20.0 if burst[0] <= at < burst[1] else 0.8

    driven = drive(
        8,
        lambda n, at: min(n, offered(at)),
        3.0,
        busy=lambda n, at: min(n, offered(at)),
        waiting=lambda n, at: offered(at) > n,
    )
    assert set(driven.numbers(0.2, 1.0)) == {2}
    assert min(driven.numbers(1.05, 1.06)) == 8
    share = driven.share_of_best(lambda n, at: min(n, offered(at)), 8, *burst)
    assert share > 0.95
    assert set(driven.numbers(2.2, 3.0)) == {2}


def pieces(takes_ms: float, apart_ms: float, seconds: float, most: int = 8) -> list[tuple[float, int]]:
    """Input that comes in pieces, each so much work of one worker: (time, active workers) at each look,
    about a millisecond apart while there is work, as the runtime looks; nothing looks while nothing happens.
    """
    door, looks = PyElasticDoor(most, 1), []
    n, now, worked, looked = 1, 0.0, 0.0, 0.0
    for piece in range(int(seconds * 1e3 / apart_ms)):
        now = max(now, piece * apart_ms)
        left = takes_ms
        while left > 0:
            now += 0.02
            left -= 0.02 * n
            worked += 0.02 * n
            if now - looked >= 1.0:
                looked = now
                n = door.observe(int(now * MS), worked, worked * MS, int(worked / 0.02), left > 0)
                looks.append((now / 1e3, n))
    return looks


@pytest.mark.parametrize("takes_ms", [0.5, 1.5, 3.0])
def test_input_in_pieces_that_one_worker_does_in_time_has_one(takes_ms: float) -> None:
    """Several workers would only share what one does while the next piece is on its way."""
    assert {n for at, n in pieces(takes_ms, 15.0, 3.0) if at > 0.1} == {1}


def test_input_in_pieces_that_take_long_has_more() -> None:
    """A piece that one worker does not do in time is shared before the next one comes."""
    looks = pieces(22.0, 15.0, 3.0)
    assert max(n for at, n in looks if at > 0.1) > 1
    assert looks[-1][0] < 3.1  # none is late


def test_idle_needs_one() -> None:
    driven = drive(8, lambda n, at: 0.0, 1.0, busy=lambda n, at: 0.0, waiting=lambda n, at: False, start=8)
    assert set(driven.numbers(0.2, 1.0)) == {1}


def test_a_serial_bottleneck_needs_few() -> None:
    """Input waits, but only 1.25 of 16 workers are ever busy (an operator of one worker takes 80 % of
    the work).
    """
    curve: Figure = lambda n, at: min(n, 1.25)  # noqa: E731
    driven = drive(16, curve, 2.0, busy=lambda n, at: min(n, 1.25), start=16)
    assert set(driven.numbers(1.0, 2.0)) <= {1, 2, 3, 4}
    assert driven.door.state()["base"] == 2
    assert driven.share_of_best(curve, 16, 0.1) > 0.95


def test_a_flush_tells_nothing() -> None:
    """No work is counted while the end of the stream is flushed: the number stays, nothing divides by
    zero.
    """
    driven = drive(8, lambda n, at: n if at < 1.0 else 0.0, 2.0, noise=0.0)
    assert driven.numbers(0.5, 1.0)[-1] == 8
    assert set(driven.numbers(1.1, 2.0)) == {8}


def test_stalled_workers_get_company() -> None:
    door = PyElasticDoor(3)
    assert [door.stalled(k * MS) for k in range(4)] == [2, 3, 3, 3]


def test_a_run_with_much_waiting_begins_with_two() -> None:
    assert [
        PyElasticDoor(most).hurry(MS, backlog) for most, backlog in ((1, 1e9), (2, 1e5), (2, 1e6), (64, 1e9))
    ] == [1, 1, 2, 2]
    door = PyElasticDoor(8)
    door.observe(1, 0.0, 0.0, 0, True)
    assert door.hurry(MS, 1e9) == 1  # too late: the controller has begun
    door = PyElasticDoor(2)
    assert door.hurry(1, 1e9) == 2
    number, busy = 2, 0.0
    for k in range(1, 1_000):  # a second worker brings nothing: it goes back to one
        busy += number * MS
        number = door.observe(k * MS, k * MS, busy, 40 * k, True)
    assert number == 1


def test_slots_with_missing_workers_are_dropped() -> None:
    """A driver whose workers have not started yet restarts the slot: nothing is decided meanwhile."""
    door = PyElasticDoor(8)
    for k in range(1, 500):
        door.restart(k * MS)
        assert door.observe(k * MS, k * 1e6, k * 1e6, k * 10, True) == 1


def test_figures() -> None:
    driven = drive(4, of(CURVES["linear"]), 1.0, start=2)
    state: dict[str, Any] = driven.door.state()
    mean = state["worker_time"] / (state["seen"] - state["began"])
    weighted = sum(n * length for _, n, length in driven.steps[1:]) / sum(
        length for _, _, length in driven.steps[1:]
    )
    assert mean == pytest.approx(weighted, rel=0.01)
    assert (state["least"], state["largest"]) == (min(n for _, n, _ in driven.steps), 4)
    numbers = driven.numbers(0, 2)
    assert abs(state["changes"] - sum(a != b for a, b in itertools.pairwise(numbers))) <= 1


def test_same_input_same_answer() -> None:
    curve = of(CURVES["falls after 12"])
    assert drive(64, curve, 1.0, seed=3).steps == drive(64, curve, 1.0, seed=3).steps


@pytest.mark.parametrize(("most", "start"), [(0, 1), (4, 0), (4, 5), (-1, 1)])
def test_start_out_of_range(most: int, start: int) -> None:
    with pytest.raises(ValueError, match="start must be from 1 to most"):
        PyElasticDoor(most, start)


@pytest.mark.parametrize("interval", [0.0, -1.0, float("nan")])
def test_interval_out_of_range(interval: float) -> None:
    with pytest.raises(ValueError, match="interval_us must be at least"):
        PyElasticDoor(2, interval_us=interval)

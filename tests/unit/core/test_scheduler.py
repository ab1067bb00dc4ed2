"""The schedulers through their door: eq. 1 to 3 and LP by table, corner input, ageing, budgets, and a
run in virtual time.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest

from ordstream._core.flow.scheduler import PySchedulerDoor

HEURISTICS = ["ct", "lp", "et", "qst", "random"]
MAX_BUDGET = 1 << 20
MAX_WAIT = 256


def door(heuristic: str, n: int = 3, **options: Any) -> PySchedulerDoor:
    return PySchedulerDoor(heuristic, [8] * n, **options)


def measured(
    heuristic: str, costs: list[float], selectivities: list[float], **options: Any
) -> PySchedulerDoor:
    """A door whose operators were measured: so many ns per tuple, so many out per in; T is the same for
    all (100 ms).
    """
    scheduler = door(heuristic, len(costs), **options)
    for i, (cost, selectivity) in enumerate(zip(costs, selectivities, strict=True)):
        tuples = round(100e6 / cost)
        scheduler.account(i, cost * tuples, tuples, round(tuples * selectivity))
    return scheduler


# --- the four heuristics --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worklists", "chosen"),
    [([5, 5, 5], 2), ([5, 5, 0], 1), ([5, 0, 0], 0), ([0, 0, 0], None), ([1, 10**9, 1], 2)],
)
def test_lp_takes_the_last_operator_with_input(worklists: list[int], chosen: int | None) -> None:
    answer = door("lp").choose(0, worklists, [0, 0, 0])
    assert (answer[0] if answer else None) == chosen


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_only_schedulable_operators_are_chosen(heuristic: str) -> None:
    """Input and w < M; or what the driver says."""
    scheduler = PySchedulerDoor(heuristic, [1, 2, 4])
    for worklists, workers in itertools.product(
        itertools.product([0, 3], repeat=3), itertools.product([0, 1, 2], repeat=3)
    ):
        answer = scheduler.choose(0, worklists, workers)
        allowed = [i for i in range(3) if worklists[i] > 0 and workers[i] < (1, 2, 4)[i]]
        assert (answer is None) == (not allowed)
        assert answer is None or answer[0] in allowed
    assert scheduler.choose(0, [9, 9, 9], [0, 0, 0], schedulable=[0, 1, 0])[0] == 1
    assert scheduler.choose(0, [0, 0, 0], [0, 0, 0], schedulable=[0, 0, 1])[0] == 2
    assert scheduler.choose(0, [9, 9, 9], [0, 0, 0], schedulable=[0, 0, 0]) is None


@pytest.mark.parametrize(
    ("costs", "worklists", "workers", "chosen"),
    [
        ([100, 100, 100], [10, 30, 20], [0, 0, 0], 1),  # I
        ([100, 100, 900], [10, 30, 20], [0, 0, 0], 2),  # I c
        ([100, 100, 900], [10, 300, 20], [0, 0, 1], 1),
        ([100, 100, 900], [10, 30, 20], [0, 0, 7], 1),  # I c / (w + 1): 1000, 3000, 2250
        ([100, 100, 900], [100, 30, 20], [0, 0, 7], 0),
    ],
)
def test_et_equation_2(costs: list[float], worklists: list[int], workers: list[int], chosen: int) -> None:
    assert measured("et", costs, [1, 1, 1]).choose(1, worklists, workers)[0] == chosen


@pytest.mark.parametrize(
    ("costs", "selectivities", "workers", "chosen"),
    [
        # n_i = (T_i + w_i s) / (c_i cs_i), T = 100 ms for all
        ([100, 400, 200], [1, 1, 1], [0, 0, 0], 1),  # the dearest per tuple went through least
        ([100, 400, 200], [1, 0.1, 1], [0, 0, 0], 0),  # cs = 1, .1, .1: 1e6, 2.5e6, 5e6
        ([100, 400, 200], [10, 1, 1], [0, 0, 0], 1),  # cs = 10, 10, 10
        # workers on it count as if they had worked s = 100 us each
        ([100, 400, 399], [1, 1, 1], [0, 5, 0], 2),
    ],
)
def test_ct_equation_3(
    costs: list[float], selectivities: list[float], workers: list[int], chosen: int
) -> None:
    scheduler = measured("ct", costs, selectivities, window_us=1e9, slice_us=1_000)
    assert scheduler.choose(1, [9, 9, 9], workers)[0] == chosen


def test_ct_window_forgets() -> None:
    scheduler = door("ct", 2, window_us=100.0)
    scheduler.account(0, 1e6, 1000, 1000)
    assert scheduler.choose(50_000, [1, 1], [0, 0])[0] == 1
    assert scheduler.stats(0)["T"] == 1e6
    scheduler.choose(200_000, [1, 0], [0, 0])
    assert scheduler.stats(0)["T"] == 0
    # the cost is not forgotten with the window
    assert scheduler.stats(0)["c"] == pytest.approx(1000, rel=0.01)


def test_ct_counts_a_running_slice_as_long_as_slices_were() -> None:
    scheduler = door("ct", 2, slice_us=100.0, window_us=1e9)
    for _ in range(10):
        scheduler.account(0, 5e6, 50, 50)  # 5 ms, 0.1 ms per tuple
        scheduler.account(1, 5e6, 50, 50)
    scheduler.account(1, 4e5, 4, 4)
    assert scheduler.choose(1, [1, 1], [1, 0])[0] == 1  # 5 ms in hand against 0.4 ms more
    assert scheduler.choose(1, [1, 1], [0, 0])[0] == 0


def test_a_ct_window_begins_with_what_waits() -> None:
    """Half of the tuples pass the first operator: 100 in a later worklist are 200 of the source."""
    scheduler = measured("ct", [100, 400, 200], [0.5, 1, 1], window_us=100.0)
    scheduler.choose(200_000, [999, 100, 100], [0, 0, 0])
    figures = [scheduler.stats(i) for i in range(3)]
    assert [one["T"] for one in figures] == pytest.approx(
        [100 * (200 + 200), 400 * 0.5 * 200, 0.0], rel=0.01
    )
    assert scheduler.choose(200_001, [999, 100, 100], [0, 0, 0])[0] == 2


@pytest.mark.parametrize(
    ("selectivities", "worklists", "chosen"),
    [
        # C = 900: T_i = C cs_i / sum cs; operator i may run while I_(i+1) < T_i
        ([1, 1, 1], [9, 299, 0], 0),
        ([1, 1, 1], [9, 301, 0], 1),
        ([1, 1, 1], [9, 301, 301], 2),
        ([1, 1, 1], [0, 10, 0], 1),
        ([0.5, 1, 1], [9, 299, 0], 0),  # cs = .5, .5, .5: the same thresholds
        ([1, 0.5, 1], [9, 449, 0], 0),  # cs = 1, .5, .5: 450, 225, 225
        ([1, 0.5, 1], [9, 451, 224], 1),
        ([1, 0.5, 1], [9, 451, 226], 2),
    ],
)
def test_qst_equation_1(selectivities: list[float], worklists: list[int], chosen: int) -> None:
    scheduler = measured("qst", [100, 100, 100], selectivities, capacity=900)
    assert scheduler.choose(1, worklists, [0, 0, 0])[0] == chosen


def test_qst_over_every_threshold_drains_the_latest() -> None:
    scheduler = door("qst", 3, capacity=1e-6)
    assert scheduler.choose(0, [5, 5, 5], [0, 0, 0])[0] == 2
    assert scheduler.choose(0, [5, 5, 0], [0, 0, 0])[0] == 1


def test_random_is_seeded_and_reaches_everybody() -> None:
    def choices(seed: int) -> list[int]:
        scheduler = door("random", 4, seed=seed)
        return [scheduler.choose(0, [1] * 4, [0] * 4)[0] for _ in range(200)]

    assert choices(7) == choices(7)
    assert choices(7) != choices(8)
    assert set(choices(7)) == {0, 1, 2, 3}


@pytest.mark.parametrize("heuristic", ["ct", "et"])
def test_ties_go_round(heuristic: str) -> None:
    scheduler = door(heuristic, 3)
    chosen = {scheduler.choose(0, [5, 5, 5], [0, 0, 0])[0] for _ in range(9)}
    assert chosen == {0, 1, 2}


# --- corner input ---------------------------------------------------------------------------------


def finite(scheduler: PySchedulerDoor) -> None:
    for i in range(scheduler.n):
        for name in ("c", "s", "cs", "T", "worker_ns"):
            value = scheduler.stats(i)[name]
            assert math.isfinite(value), (i, name, value)
        assert scheduler.stats(i)["c"] > 0
        assert scheduler.stats(i)["s"] > 0


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_before_the_first_measurement(heuristic: str) -> None:
    scheduler = door(heuristic)
    for _ in range(10):
        best, budget = scheduler.choose(0, [10, 10, 10], [0, 0, 0])
        assert best in (0, 1, 2)
        assert budget == 100  # a slice of 100 us at the prior cost of 1 us
    finite(scheduler)


CORNERS = {
    "drops everything": (1e5, 10_000, 0),
    "never a tuple": (1e5, 0, 0),
    "no time": (0.0, 10_000, 10_000),
    "nothing at all": (0.0, 0, 0),
    "one tuple, a minute": (60e9, 1, 1),
    "flood": (1e3, 1, 10**12),
    "huge": (1e18, 10**15, 10**15),
    "out without in": (1e3, 0, 1_000_000),
}


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("operator", [0, 1, 2])
@pytest.mark.thin(40)
def test_corner_measurements_starve_nobody(heuristic: str, corner: str, operator: int) -> None:
    """Selectivity 0, unknown cost, costs above the slice: finite priorities, budgets in bounds,
    everybody runs.
    """
    scheduler = door(heuristic)
    last = [0, 0, 0]
    worst = 0
    now = 0
    for step in range(1, 3_000):
        best, budget = scheduler.choose(now, [50, 50, 50], [0, 0, 0])
        assert 1 <= budget <= MAX_BUDGET
        worst = max(worst, step - min(last))
        last[best] = step
        if best == operator:
            scheduler.account(best, *CORNERS[corner])
        else:
            scheduler.account(best, budget * 500.0, budget, budget)
        finite(scheduler)
        now += 50_000
    assert worst <= MAX_WAIT + scheduler.n + 1


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_ageing_bounds_every_wait(heuristic: str, n: int) -> None:
    """Any state of the worklists, adversarial: who has input is passed over at most max_wait + n times."""
    rng = random.Random(n)
    scheduler = door(heuristic, n)
    waited = [0] * n
    for step in range(4_000):
        worklists = [rng.choice([1, 5, 10**6, 10**12]) for _ in range(n)]
        best, _ = scheduler.choose(step * 1_000, worklists, [rng.randrange(8) for _ in range(n)])
        waited = [0 if i == best else w + 1 for i, w in enumerate(waited)]
        assert max(waited) <= MAX_WAIT + n
        assert scheduler.stats(best)["waited"] == 0
        scheduler.account(
            best, rng.choice([0.0, 1e2, 1e9]), rng.choice([0, 1, 1000]), rng.choice([0, 1, 10**6])
        )
    assert max(scheduler.stats(i)["max_waited"] for i in range(n)) <= MAX_WAIT + n


def test_lp_would_starve_without_ageing() -> None:
    """The bound above means something: LP passes the first operator over until ageing steps in."""
    scheduler = door("lp", 2)
    chosen = [scheduler.choose(0, [5, 5], [0, 0])[0] for _ in range(600)]
    assert chosen.count(0) == 2
    assert scheduler.aged == 2
    assert chosen.index(0) == MAX_WAIT + 1


def test_ageing_counts_only_waits_with_input() -> None:
    scheduler = door("lp", 2)
    for _ in range(1_000):
        assert scheduler.choose(0, [0, 5], [0, 0])[0] == 1
    assert scheduler.stats(0)["waited"] == 0
    assert scheduler.aged == 0


@pytest.mark.parametrize(
    ("cost", "slice_us", "budget"),
    [
        (100, 100.0, 1_000),
        (1e9, 100.0, 1),
        (200_000, 100.0, 1),
        (0.0, 1e6, MAX_BUDGET),
        (1_000, 1e-3, 1),
        (50, 1e9, MAX_BUDGET),
    ],
)
def test_budget(cost: float, slice_us: float, budget: int) -> None:
    """s / c_i tuples, at least one, at most 2^20."""
    scheduler = door("ct", 1, slice_us=slice_us)
    for _ in range(200):
        scheduler.account(0, cost * 1_000, 1_000, 1_000)
    assert scheduler.choose(0, [1], [0])[1] == pytest.approx(budget, rel=0.02)


def settled(workers: int, buckets: int, row_ns: float, part_ns: float) -> int:
    """The chunk size that comes of itself where a partitioned operator pays `part_ns` for each part of a
    chunk, beside `row_ns` for each row; from the smallest on.
    """
    scheduler: Any = PySchedulerDoor("ct", [buckets], workers=workers, buckets=[buckets])
    rows = 64
    for _ in range(300):
        parts = min(rows, buckets)
        kernel = row_ns * rows / parts, max(1, rows // parts)
        scheduler.account(0, 10 * (rows * row_ns + parts * part_ns), 10 * rows, 10 * rows, 10, kernel)
        rows = scheduler.chunk_rows(100e3, 64, 4096)
    return rows


@pytest.mark.parametrize(("workers", "buckets"), [(2, 4), (16, 32), (16, 64), (64, 128)])
@pytest.mark.parametrize("part_ns", [100.0, 2_000.0, 20_000.0])
def test_what_a_part_costs_does_not_make_chunks_small(workers: int, buckets: int, part_ns: float) -> None:
    """If it did, parts would be smaller still, and a row dearer: the smallest chunk would be left, and of 16
    workers less than of one (so it was: Q2 took nine times as long on 16 cores as on 6).
    """
    assert settled(workers, buckets, 50.0, part_ns) >= 1_900
    # some 50 us of work for each worker that has a part of it
    assert settled(workers, buckets, 2_000.0, part_ns) == pytest.approx(max(64, 25 * workers), rel=0.1)


def test_one_worker_works_on_a_chunk_of_a_stateful_operator() -> None:
    assert settled(16, 1, 200.0, 0.0) == pytest.approx(500, rel=0.05)


def test_old_costs_fade() -> None:
    scheduler = door("ct", 1)
    scheduler.account(0, 1e9, 1_000_000, 0)
    for _ in range(60):
        scheduler.account(0, 10e6, 1_000, 3_000)
    stats = scheduler.stats(0)
    assert stats["c"] == pytest.approx(10_000, rel=0.1)


def test_cumulative_selectivity_is_bounded() -> None:
    scheduler = measured("ct", [100] * 8, [1e-4] * 8)
    scheduler.choose(0, [1] * 8, [0] * 8)
    assert scheduler.stats(7)["cs"] == 1e-9
    assert scheduler.stats(1)["cs"] == pytest.approx(1e-8, rel=0.1)
    scheduler = measured("ct", [100] * 8, [1e3] * 8)
    scheduler.choose(0, [1] * 8, [0] * 8)
    assert scheduler.stats(7)["cs"] == 1e9


@pytest.mark.parametrize("operators", [0, 65])
def test_door_refuses(operators: int) -> None:
    with pytest.raises(ValueError, match="1 to 64"):
        PySchedulerDoor("ct", [1] * operators)
    with pytest.raises(ValueError, match="unknown scheduler"):
        PySchedulerDoor("fifo", [1])


# --- virtual time ---------------------------------------------------------------------------------


def simulate(heuristic: str, workers: int, tuples: int, costs: list[float], selectivities: list[float],
             parallelism: list[int]) -> tuple[float, list[int], int]:  # fmt: skip
    """Virtual time: (makespan ns, tuples processed per operator, choices). No clock, no thread: the door
    is all it needs.
    """
    n = len(costs)
    scheduler = PySchedulerDoor(heuristic, parallelism, capacity=4_096)
    queues = [tuples] + [0] * (n - 1)
    credit = [0.0] * n  # fractions of output tuples
    at_work = [0] * n
    processed = [0] * n
    now = 0
    free = list(range(workers))
    busy: list[tuple[int, int, int, int]] = []  # end, worker, operator, tuples
    choices = 0
    while True:
        while free:
            answer = scheduler.choose(now, queues, at_work)
            if answer is None:
                break
            choices += 1
            assert choices < 1_000_000, "the schedule does not end"
            operator, budget = answer
            taken = min(budget, queues[operator])
            queues[operator] -= taken
            at_work[operator] += 1
            busy.append((now + max(1, round(taken * costs[operator])), free.pop(), operator, taken))
        if not busy:
            return now, processed, choices
        busy.sort(reverse=True)
        end, worker, operator, taken = busy.pop()
        elapsed = max(1, round(taken * costs[operator]))
        now = end
        free.append(worker)
        at_work[operator] -= 1
        processed[operator] += taken
        credit[operator] += taken * selectivities[operator]
        out = int(credit[operator])
        credit[operator] -= out
        if operator + 1 < n:
            queues[operator + 1] += out
        scheduler.account(operator, elapsed, taken, out)


@pytest.mark.parametrize("heuristic", HEURISTICS)
@pytest.mark.parametrize("workers", [1, 4, 64])
@pytest.mark.parametrize(
    ("costs", "selectivities", "parallelism"),
    [
        ([100, 1000, 100], [1, 1, 1], [64, 64, 1]),
        ([100, 1000, 100], [0, 1, 1], [64, 64, 64]),  # the first drops everything
        ([100, 300_000, 100], [0.01, 3, 1], [64, 2, 1]),  # one tuple is dearer than a slice
        ([50, 50, 50, 50, 50], [5, 0.2, 5, 0.2, 1], [64, 1, 64, 1, 64]),
    ],
)
def test_same_code_in_virtual_time(
    heuristic: str, workers: int, costs: list[float], selectivities: list[float], parallelism: list[int]
) -> None:
    """Everything drains; the makespan lies between the bounds that work and parallelism set."""
    tuples = 20_000
    makespan, processed, _ = simulate(heuristic, workers, tuples, costs, selectivities, parallelism)
    expected = [float(tuples)]
    for selectivity in selectivities[:-1]:
        expected.append(expected[-1] * selectivity)
    assert processed == pytest.approx(expected, abs=1 + len(costs) * 6)
    work = sum(p * c for p, c in zip(processed, costs, strict=True))
    longest = max(p * c / min(m, workers) for p, c, m in zip(processed, costs, parallelism, strict=True))
    assert makespan >= max(work / workers, longest) * 0.999
    assert makespan <= work + 1e6  # no worker idles while there is work
    again = simulate(heuristic, workers, tuples, costs, selectivities, parallelism)
    assert again[0] == makespan  # virtual time is deterministic

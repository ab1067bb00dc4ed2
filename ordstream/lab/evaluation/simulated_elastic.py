"""The controller of `workers="auto"` in virtual time: how near it comes to the best fixed number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ordstream._core.flow.elastic import PyElasticDoor
from ordstream.lab.evaluation.experiment import Chart, Claim, Curve, Options, Result
from ordstream.lab.simulation.cost_model import CostModel, chosen_path
from ordstream.lab.simulation.node import Node, Outcome, Stage, simulate


def controlled(most: int, start: int = 1, interval_us: float = 4000.0) -> Callable[[Node, float], int]:
    """The controller of workers="auto" as a function that a simulated run asks for the number of active
    workers.

    What it is told is what the runtime tells it (`_core/flow/runtime`, adapt_workers): tuples of all
    operators, weighted by what they cost when the search began; worker time, slices that go on included;
    whether the source has more.
    """
    door = PyElasticDoor(most, start, interval_us)
    weights: list[float] = []
    searches = -1

    def controller(simulated: Node, now: float) -> int:
        nonlocal weights, searches
        figures = simulated.figures()
        operators = figures["operators"]
        if door.state()["searches"] != searches:
            searches = door.state()["searches"]
            weights = [one["cost"] for one in operators]
            door.restart(int(now))
        work = sum(weight * one["tuples_in"] for weight, one in zip(weights, operators, strict=True))
        busy = sum(figures["busy_ns"]) + figures["running_ns"]
        # Closed loop: input waits until the last source tuple was issued.
        waiting = figures["issued"] < simulated.tuples
        return int(door.observe(int(now), work, busy, sum(one["slices"] for one in operators), waiting))

    return controller


def always(number: int) -> Callable[[Node, float], int]:
    """No controller: so many active workers."""
    return lambda _node, _now: number


def elastic_share(
    stages: Sequence[Stage], model: CostModel, most: int, seconds: float, chunk: int | None, best: float
) -> tuple[float, int, Outcome]:
    """(work done over what the best fixed number would have done, its median number in the second half,
    the run).
    """
    tuples = max(50_000, int(best * seconds))
    controller = controlled(most)
    outcome = simulate(
        stages, model, most, tuples, chunk_rows=chunk, controller=controller, period_us=1000.0, start=1
    )
    late = [number for at, number in outcome.active if at > outcome.seconds / 2]
    return tuples / outcome.seconds / best, int(np.median(late)), outcome


def useful(limit: int) -> tuple[Stage, ...]:
    """A pipeline that about `limit` workers speed up: 1/limit of the work has one state."""
    total = 20_000.0
    return (Stage("spread", "SL", total * (1 - 1 / limit)), Stage("one state", "SF", total / limit))


def elastic(options: Options) -> Result:
    """The controller from 1 to 64 useful workers, against every fixed number."""
    model = CostModel.load(chosen_path())
    most = max(options.workers, default=64)
    seconds = options.seconds or 2.0
    rows: list[list[Any]] = []
    fixed_numbers = sorted(
        {number for number in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64) if number <= most} | {most}
    )
    for limit in (1, 2, 3, 4, 8, 16, 32, 64):
        if limit > most:
            break
        stages = useful(limit)
        fixed = {}
        for number in fixed_numbers:
            # A run for `most` workers of which so many are active: what the controller chooses between.
            outcome = simulate(
                stages, model, most, 4_000 * min(number, limit) + 8_000, chunk_rows=64, start=number,
                controller=always(number), period_us=20_000.0,
            )  # fmt: skip
            fixed[number] = outcome.throughput
        best = max(fixed, key=lambda number: fixed[number])
        share, ended, outcome = elastic_share(stages, model, most, seconds, 64, fixed[best])
        changes = sum(a[1] != b[1] for a, b in zip(outcome.active, outcome.active[1:], strict=False))
        rows.append([limit, best, fixed[best], ended, fixed[best] * share, share, changes])
    lines = [
        f"{'useful':>6} {'best fixed':>10} {'M tuples/s':>10} {'mostly':>8} {'controller':>10} {'share':>6} "
        f"{'changes':>7}"
    ]
    lines += [
        f"{r[0]:>6} {r[1]:>10} {r[2] / 1e6:>10.4f} {r[3]:>8} {r[4] / 1e6:>10.4f} {r[5]:>6.1%} {r[6]:>7}"
        for r in rows
    ]
    worst = min(rows, key=lambda row: row[5])
    claims = [
        Claim(
            f"the controller is within 10 % of the best fixed number, 1 to {most} useful workers, start "
            "included",
            f"worst {worst[5]:.1%} at {worst[0]} useful workers, over {seconds:g} virtual seconds",
            worst[5] >= 0.9,
        )
    ]
    columns = [
        "useful_workers",
        "best_fixed",
        "best_tuples_per_s",
        "mostly",
        "tuples_per_s",
        "share_of_best",
        "changes",
    ]
    chart = Chart(
        "useful workers",
        "share of the best fixed number",
        [Curve("controller", [r[0] for r in rows], [r[5] for r in rows])],
        log_x=True,
    )
    return Result(columns, rows, [chart], claims, lines)

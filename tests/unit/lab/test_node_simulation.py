"""The simulated node: conservation, order, determinism, costs that add up, and bounds that no number of
workers passes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordstream._core.flow.scheduler import PySchedulerDoor
from ordstream.errors import PlanError
from ordstream.lab.simulation.cost_model import CostModel, PathCosts
from ordstream.lab.simulation.node import (
    MOST_WORKERS,
    Node,
    Outcome,
    Stage,
    planned,
    planned_stages,
    routes,
    simulate,
)

FREE = PathCosts(*[0.0] * 19)
#: A machine whose runtime costs next to nothing: only functions take time.
IDEAL = CostModel(0, 0, 0, 0, 1.0, 0, 1.0, 0, 0, 10.0, 0, 0, 1.0, FREE, FREE)


@pytest.fixture(scope="module")
def model() -> CostModel:
    return CostModel.load()


def hashes(keys: int, n: int = 20_000, alpha: float = 1.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, keys + 1) ** alpha
    words = rng.integers(0, 1 << 63, keys, dtype=np.int64).astype(np.uint64) * np.uint64(2)
    return words[rng.choice(keys, n, p=weights / weights.sum())]


def chain(*kinds: str, work: float = 500.0, keys: int = 100, **options: Any) -> list[Stage]:
    return [
        Stage(f"{i} {kind}", kind, work, hashes=hashes(keys) if kind == "PS" else None, **options)
        for i, kind in enumerate(kinds)
    ]


def busy_ns(outcome: Outcome) -> float:
    return sum(one["path_ns"] for one in outcome.figures["operators"])


# --- what must hold whatever the parameters ----------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["SL", "PS", "SF"]), min_size=1, max_size=4),
    workers=st.sampled_from([1, 2, 3, 5, 16, 64]),
    chunk=st.sampled_from([1, 7, 64, None]),
    scheduler=st.sampled_from(["ct", "lp", "et", "qst", "random"]),
    selectivity=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    depth=st.sampled_from([2, 8, None]),
    max_chunks=st.sampled_from([1, 5, None]),
    seed=st.integers(1, 3),
)
def test_tuples_are_conserved_and_ordered(
    kinds: list[str], workers: int, chunk: int | None, scheduler: str, selectivity: float, depth: int | None,
    max_chunks: int | None, seed: int,
) -> None:  # fmt: skip
    """Every source tuple is delivered once, in order; each operator's outputs are its inputs times its
    selectivity; nothing hangs.
    """
    stages = chain(*kinds, work=200.0, keys=7, selectivity=selectivity)
    options: dict[str, Any] = {
        "chunk_rows": chunk,
        "scheduler": scheduler,
        "depth": depth,
        "max_chunks": max_chunks,
        "seed": seed,
    }
    model = CostModel.load()
    outcome = simulate(stages, model, workers, 3_000, **options)
    figures = outcome.figures
    assert outcome.tuples == 3_000
    assert figures["disorder"] == 0
    assert figures["chunks"] == figures["retired"]
    expected = 3_000.0
    run = planned_stages(planned(stages, workers, chunk))
    for one, (stage, _) in zip(figures["operators"], run, strict=True):
        # Slices that have not been accounted for when the last tuple leaves are the only ones missing.
        assert one["tuples_in"] <= expected + 1
        expected = expected * stage.selectivity
    assert abs(outcome.rows_out - expected) <= len(kinds) * 2.0 ** len(kinds)
    again = simulate(stages, model, workers, 3_000, **options)
    assert again.figures == figures


@pytest.mark.parametrize("kinds", [("SL",), ("PS",), ("SL", "PS", "SL"), ("SL", "PS", "SF")])
@pytest.mark.parametrize("chunk", [1, 64])
def test_one_worker_takes_the_sum_of_all_costs(kinds: tuple[str, ...], chunk: int) -> None:
    outcome = simulate(chain(*kinds), IDEAL, 1, 50_000, chunk_rows=chunk)
    assert outcome.seconds * 1e9 == pytest.approx(50_000 * 500.0 * len(kinds), rel=0.01)


def test_one_worker_with_the_measured_model(model: CostModel) -> None:
    """Work, path, ingress, egress, decisions: nothing else, and nothing twice."""
    outcome = simulate(chain("SL", work=1000.0), model, 1, 50_000, chunk_rows=64)
    chunks = outcome.figures["chunks"]
    path = model.alone
    expected = 50_000 * (1000.0 + path.sl_tuple + path.egress_tuple) + chunks * (
        path.sl_chunk + path.hold + path.egress_chunk + 2.0
    )
    expected += outcome.figures["decisions"] * (model.decide + model.decide_each + model.slice)
    assert outcome.seconds * 1e9 == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("workers", [1, 2, 4, 16, 64])
@pytest.mark.parametrize("kinds", [("SL",), ("SL", "SL"), ("PS",), ("SL", "PS")])
def test_no_more_than_workers_times_one(model: CostModel, kinds: tuple[str, ...], workers: int) -> None:
    for chunk in (1, 64):
        outcome = simulate(chain(*kinds), model, workers, 40_000, chunk_rows=chunk)
        assert outcome.throughput <= 1.03 * workers * 1e9 / (500.0 * len(kinds))
        assert all(share <= 1.02 for share in outcome.limits.values()), outcome.limits


@pytest.mark.parametrize("workers", [2, 4, 16, 64])
def test_a_hot_key_bounds_a_partitioned_operator(model: CostModel, workers: int) -> None:
    """Its tuples go through one bucket, which one worker has at a time: at most 1 / (share of the
    fullest bucket).
    """
    stage = Stage("count", "PS", 1000.0, hashes=hashes(50, alpha=1.5))
    for chunk in (1, 64):
        p = planned([stage], workers, chunk).operators[0].buckets
        assert stage.hashes is not None
        fullest = np.bincount(routes(stage.hashes, p)).max() / len(stage.hashes)
        outcome = simulate([stage], model, workers, 40_000, chunk_rows=chunk)
        assert outcome.throughput <= 1.05 * min(workers, 1 / fullest) * 1e6
        if workers >= 16:
            assert outcome.throughput <= 0.5 * workers * 1e6


def test_one_state_is_one_worker() -> None:
    outcome = simulate(chain("SL", "SF", work=1000.0), IDEAL, 8, 40_000, chunk_rows=64)
    assert outcome.throughput == pytest.approx(1e6, rel=0.04)
    assert outcome.bottleneck[0] == "1 SF: one state"


def test_an_ideal_machine_scales() -> None:
    for workers in (2, 8, 32):
        outcome = simulate(chain("SL", work=1000.0), IDEAL, workers, 400_000, chunk_rows=64)
        assert outcome.throughput == pytest.approx(workers * 1e6, rel=0.03)


# --- the machine -------------------------------------------------------------------------------------------


def test_a_dearer_line_costs_throughput(model: CostModel) -> None:
    found = [
        simulate(chain("SL"), replace(model, transfer=t), 4, 40_000, chunk_rows=1).throughput
        for t in (10.0, 60.0, 300.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1.5 * found[-1]


def test_a_line_passes_one_transfer_at_a_time(model: CostModel) -> None:
    """At one tuple per chunk each unit takes the flag's line: however many workers, no more than one
    unit per transfer.
    """
    dear = replace(model, transfer=2_000.0)
    for workers in (4, 32):
        outcome = simulate(chain("SL"), dear, workers, 20_000, chunk_rows=1)
        releases = outcome.figures["operators"][0]["releases"]
        assert outcome.seconds * 1e9 >= 0.95 * 2_000.0 * releases * (workers - 1) / workers / 2


@pytest.mark.parametrize("kind", ["SL", "PS"])
def test_quick_units_are_sent_together(model: CostModel, kind: str) -> None:
    """A few microseconds of work share one hold of the release flag; what takes longer is sent by itself."""

    def releases_per_unit(work: float) -> float:
        last = simulate(chain(kind, work=work), model, 2, 20_000, chunk_rows=1).figures["operators"][-1]
        return float(last["releases"] / last["delivered"])

    assert releases_per_unit(500.0) < 0.35
    assert releases_per_unit(20_000.0) > 0.45  # two that end together may share one


def test_claims_save_transfers(model: CostModel) -> None:
    """With dear lines, parts that are quick enough to be claimed together cost less runtime each than
    slow ones.
    """

    def runtime_ns(work: float) -> float:
        outcome = simulate(chain("PS", work=work), replace(model, transfer=300.0), 2, 20_000, chunk_rows=1)
        return float(2 * 1e9 / outcome.throughput - work)

    assert runtime_ns(1_000.0) < 0.7 * runtime_ns(20_000.0)


def test_decisions_are_the_schedulers(model: CostModel) -> None:
    """Equal statistics, equal answers: the door in Python chooses as the simulated node did first."""
    for heuristic in ("ct", "lp", "et", "qst"):
        node = Node(chain("SL", "SL"), model, 1, 1_000, scheduler=heuristic, chunk_rows=1)
        node.advance(1.0)
        assert [one["w"] for one in node.figures()["operators"]] == [1, 0]
        assert PySchedulerDoor(heuristic, [1, 1]).choose(0, [1_000, 0], [0, 0])[0] == 0


def test_a_parked_worker_costs_its_waking(model: CostModel) -> None:
    """An open loop with long gaps: every tuple is late by about the time that waking takes."""
    arrivals = np.arange(50, dtype=np.int64) * 5_000_000
    slow = replace(model, wake=200_000.0)
    outcome = simulate(chain("SL"), slow, 2, 50, chunk_rows=1, arrivals=arrivals)
    assert outcome.figures["parks"] > 50
    assert outcome.end_to_end_us is not None
    assert 100.0 < float(np.median(outcome.end_to_end_us)) < 260.0


# --- a controller ------------------------------------------------------------------------------------------


def test_fewer_active_workers_are_as_fast_as_that_many(model: CostModel) -> None:
    few = simulate(
        chain("SL", work=1000.0), model, 8, 100_000, chunk_rows=64, controller=lambda node, now: 3, start=3
    )
    assert few.throughput == pytest.approx(3e6, rel=0.1)
    assert sum(busy > 0 for busy in few.figures["busy_ns"]) == 3


def test_workers_come_back(model: CostModel) -> None:
    """Aside for the first half, then all: the answer is complete and in order, and the second half is
    faster.
    """
    outcome = simulate(
        chain("SL", "PS", work=1000.0),
        model,
        8,
        100_000,
        chunk_rows=64,
        controller=lambda node, now: 1 if now < 40e6 else 8,
        start=1,
    )
    assert outcome.figures["disorder"] == 0
    assert outcome.tuples == 100_000
    assert outcome.seconds < 0.1
    assert sum(busy > 0 for busy in outcome.figures["busy_ns"]) == 8


# --- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "options", "message"),
    [
        (0, {}, "1 to 256 workers"),
        (MOST_WORKERS + 1, {}, "1 to 256 workers"),
        (2, {"scheduler": "fifo"}, "scheduler must be one of"),
        (2, {"chunk_rows": 0}, "chunk_rows must be 1"),
        (2, {"arrivals": np.array([2, 1])}, "arrivals must be ascending"),
    ],
)
def test_parameters_out_of_range(
    model: CostModel, workers: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        simulate(chain("SL"), model, workers, 10, **options)


def test_stages_out_of_range() -> None:
    with pytest.raises(PlanError, match="'x': kind must be SL, PS or SF"):
        Stage("x", "XX", 1.0)
    with pytest.raises(PlanError, match="'x': work_ns must be finite"):
        Stage("x", "SL", -1.0)
    with pytest.raises(PlanError, match="'x': a partitioned operator needs key hashes"):
        Stage("x", "PS", 1.0)


def test_a_file_that_is_no_cost_model(tmp_path: Any, model: CostModel) -> None:
    path = tmp_path / "model.json"
    path.write_text('{"transfer": 1}')
    with pytest.raises(PlanError, match=r"model\.json is no cost model"):
        CostModel.load(path)
    model.save(path)
    assert CostModel.load(path) == model

"""The experiments over the simulated node, small: what they describe, what they predict, and the
controller.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import PlanError
from ordstream.lab.evaluation import ordered_subjects, simulated, simulated_elastic, simulation
from ordstream.lab.evaluation.experiment import Claim, Options
from ordstream.lab.simulation import calibrate, real
from ordstream.lab.simulation.cost_model import CostModel
from ordstream.lab.simulation.node import Stage, planned, planned_stages, simulate
from ordstream.node import node


@pytest.mark.parametrize("name", simulation.PIPELINES)
def test_real_pipelines_give_the_closed_form(name: str) -> None:
    """What a simulation is compared with is verified: every value, in order."""
    chain = real.Chain(tuple((kind, 3 + i) for i, (kind, _) in enumerate(simulation.PIPELINES[name])))
    for workers in (1, 2):
        for chunk in (1, 64):
            real.verify(chain, 5_000, workers=workers, chunk_rows=chunk)
    wrong = real.Chain((("SL", 4),))
    with pytest.raises(AssertionError, match="first difference at"):
        real.verify(
            type(
                "Off",
                (),
                {
                    "__getattr__": lambda self, name: getattr(wrong, name),
                    "expected": lambda self, n: chain.expected(n),
                },
            )(),
            100,
        )


def test_one_started_worker_of_two_gives_all_output() -> None:
    chain = real.Chain((("PS", 0),))
    ran = real.run(chain, chain.batches(20_000), threads=1, workers=2, chunk_rows=64)
    assert ran.tuples == 20_000
    assert len(ran.worker_ns) == 2
    assert all(ns > 0 for ns in ran.worker_ns)


def test_one_of_several_workers_is_alone() -> None:
    """What a worker among several costs is measured with nobody beside it: only one is started."""
    chain = real.Chain((("SL", 50), ("PS", 50)))
    with node.stream(chain, chain.batches(2 * real.BATCH), workers=2, chunk_rows=64) as out:
        out.start_only(1)
        next(iter(out))
        named = [thread.name for thread in threading.enumerate()]
        assert named.count("ordstream-worker-0") == 1
        assert "ordstream-worker-1" not in named
        with pytest.raises(ValueError, match="1 of 2 workers: a fixed number, before the start"):
            out.start_only(1)
    with node.stream(chain, [], workers="auto") as out, pytest.raises(ValueError, match="a fixed number"):
        out.start_only(1)


def test_a_run_without_its_end_emits_nothing_there() -> None:
    """A description is of the flow: what operators hold until the end of the stream is neither emitted
    nor counted.
    """
    batch = pa.record_batch({"key": pa.array([k % 7 for k in range(70_000)])})
    pipeline = od.Pipeline(batch.schema).key_by("key").count(emit="final").select("key")
    whole, flow = (
        real.run(pipeline, [batch], workers=1, chunk_rows=64, flush=flush) for flush in (True, False)
    )
    outputs = [[one.tuples_out for one in ran.report.operators] for ran in (whole, flow)]
    assert (outputs[0][0], outputs[1][0]) == (7, 0)
    assert whole.report.tuples == flow.report.tuples == 70_000


def test_a_chunk_without_rows_has_a_cost_of_its_own() -> None:
    """Behind a filter that lets nothing pass an operator still hands on every chunk; its function is not
    called.
    """
    model = CostModel.load()
    dear = replace(model, alone=replace(model.alone, next_empty=5_000.0))
    chain = [Stage("none", "SL", 100.0, selectivity=0.0), Stage("never", "SL", 1e6)]
    cheap_ns, dear_ns = (
        1e9 / simulate(chain, one, 1, 20_000, chunk_rows=1).throughput for one in (model, dear)
    )
    assert cheap_ns < 400
    assert dear_ns - cheap_ns == pytest.approx(5_000.0 - model.alone.next_empty, rel=0.02)


def test_straight_lines_have_no_negative_parts() -> None:
    rows = np.array([1.0, 16.0, 256.0])
    assert calibrate.fit_line([np.ones(3), rows], 7.0 + 2.0 * rows) == pytest.approx((7.0, 2.0))
    assert calibrate.fit_line([np.ones(3), rows], 2.0 * rows - 1.0)[0] == 0.0
    assert calibrate.holds_per_chunk(np.array([1, 4, 16, 64])) == pytest.approx([1 / 16, 1 / 4, 1, 1])


def test_two_threads_measure_a_line() -> None:
    # the fastest of several: beside other load both threads may share a core for one
    assert 0 <= calibrate.transfer(2.0) < 100_000
    notify, wake = calibrate.waking(5, 10)
    assert 0 < notify < 1e8
    assert 0 < wake < 1e8


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries described by short runs."""
    monkeypatch.setattr(simulated, "DESCRIBED", 20_000)
    monkeypatch.setattr(simulated, "DESCRIBED_SECONDS", 0.01)
    simulated.described.cache_clear()


@pytest.mark.usefixtures("short")
def test_query_two_is_described_by_its_own_runs() -> None:
    stages = simulated.query_stages("q2", 1)
    assert all(stage.work_ns + stage.chunk_ns >= 0 for stage in stages)
    assert any(stage.work_ns > 0 for stage in stages)
    assert [stage.kind for stage in stages] == ["SL", "PS", "SL", "PS", "SF"]
    assert 0.4 < stages[0].selectivity < 0.8
    assert stages[2].selectivity > 1
    assert all(
        stage.hashes is not None and len(stage.hashes) > 100 for stage in stages if stage.kind == "PS"
    )
    run = planned_stages(planned(stages, 4, 1))
    assert [stage.kind for stage, _ in run] == ["SL", "PS", "SL", "PS", "SF"]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("name", ["q15", "mixed"])
def test_a_validation_compares_the_same_pipeline(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real and simulated runs of a case: all tuples, in order, throughputs of one order of magnitude."""
    assert {case.pipeline for case in simulation.cases()} == {
        *simulation.PIPELINES,
        *ordered_subjects.QUERY_NAMES,
    }
    monkeypatch.setattr(simulation, "REAL_SECONDS", 0.01)
    case = simulation.Case(name, 64, "ct", 1)
    model = CostModel.load()
    (ran,) = simulation.measure_case(case, model, real.step_ns(), 1)
    predicted = simulation.predict(case, model, ran.slowdown, ran.transfer)
    assert predicted.figures["disorder"] == 0
    assert predicted.tuples > 0
    assert min(ran.slowdown, ran.throughput) > 0
    assert ran.other_load >= 0
    assert 0.02 < predicted.throughput / ran.throughput < 50


def test_only_cases_left_alone_are_judged() -> None:
    """(ratio of throughputs, cores that others used) per case."""

    def claims(*given: tuple[float, float]) -> list[Claim]:
        rows = [
            ["keyed", 64, "ct", 2, 1e6, ratio * 1e6, ratio, ratio, ratio, 1.0, 1.0, 30.0, 1.0, 1, load]
            for ratio, load in given
        ]
        return simulation.validation_claims(rows)

    (good,) = claims((1.1, 0.0), (0.9, 0.0))
    assert good.holds
    assert "2 of 2 cases" in good.found
    (bad,) = claims((1.1, 0.0), (0.8, 0.0))
    assert not bad.holds
    assert "outside: keyed chunk 64 ct 0.80" in bad.found
    (some,) = claims((1.1, 0.0), (3.0, 1.5))
    assert some.holds
    assert "1 cases never had the machine" in some.found
    assert not claims((1.0, 1.5))[0].holds


def test_cases_can_be_chosen() -> None:
    chosen = simulation.cases(Options(1, workers=(4,), chunks=(16,)))
    assert {(case.workers, case.chunk) for case in chosen} == {(4, 16)}
    assert len(chosen) == len(simulation.PIPELINES) - 1 + len(simulation.SCHEDULERS) + len(
        ordered_subjects.QUERY_NAMES
    )


def test_results_of_real_machines_are_set_beside_the_prediction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDSTREAM_SCALING", str(tmp_path))
    rows = [
        ["q1", 1, "ct", workers, 1e6 * rate, 0.0, "", 0.0, 0.0, ""]
        for workers, rate in ((1, 1.0), (2, 1.8), (4, 3.0))
    ]
    assert simulated.measured() == {}
    assert "no result" in simulated.beside(rows, {})[0]
    given = {"about": {"processor": "P", "cpus": 4, "commit": "abc"}, "rows": []}
    for workers, rate in ((1, 2e6), (2, 3e6)):
        given["rows"].append({"pipeline": "q1", "chunk": 1, "workers": workers, "tuples_per_s": rate})
    (tmp_path / "a.json").write_text(json.dumps(given))
    lines = simulated.beside(rows, simulated.measured())
    assert "P, 4 CPUs" in lines[0]
    assert lines[-1].split() == ["q1", "1", "2", "3.000", "1.800", "0.60", "1.50", "1.80"]
    assert len(lines) == 4
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(PlanError, match=r"b\.json is no result of bench/scaling\.py"):
        simulated.measured()


def test_results_that_come_with_the_package_can_be_read() -> None:
    found = simulated.measured()
    assert all(rate > 0 and machine for rate, machine in found.values())


@pytest.mark.usefixtures("short")
def test_figure_8_has_a_row_per_setting_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_subjects, "QUERY_NAMES", ("q15",))
    only = simulated.pipelines(1)
    monkeypatch.setattr(simulated, "pipelines", lambda seed, chunk=None, workers=1: only)
    monkeypatch.setattr(simulated, "VIRTUAL_NS", 1e6)
    result = simulated.fig8(Options(1, workers=(1, 4), chunks=(1,)))
    assert len(result.rows) == 2 * 2 * 4
    rates = {(row[0], row[2], row[3]): row[4] for row in result.rows}
    assert 3.0 < rates["10 us", "ct", 4] / rates["10 us", "ct", 1] <= 4.2
    assert len(result.claims) == 3
    assert any("10 us" in line and "workers busy" in line for line in result.lines)


def test_the_controller_finds_one_or_all() -> None:
    """The product's controller over the simulated node, 8 workers allowed: within 10 % of the best
    number wherever the knee is.
    """
    result = simulated_elastic.elastic(Options(1, workers=(8,), seconds=0.5))
    shares = {row[0]: row[5] for row in result.rows}
    assert set(shares) == {1, 2, 3, 4, 8}
    assert all(share > 0.9 for share in shares.values()), result.lines
    assert all(claim.holds for claim in result.claims)
    assert {row[0]: row[3] for row in result.rows}[8] >= 6


@pytest.mark.parametrize("scheduler", ["ct", "lp"])
@pytest.mark.parametrize("useful", [2, 4])
def test_workers_too_many_take_nothing_from_the_bottleneck(useful: int, scheduler: str) -> None:
    """Slices of a millisecond (64 tuples of 15 us): the one operator with one state works on, however
    many others there are.
    """
    model = CostModel.load()
    rates = [
        simulate(
            simulated_elastic.useful(useful), model, 8, 20_000, chunk_rows=64, scheduler=scheduler,
            start=number, controller=simulated_elastic.always(number), period_us=20_000.0,
        ).throughput
        for number in (useful, 6, 8)
    ]  # fmt: skip
    assert min(rates) > 0.9 * max(rates), rates


def test_a_prediction_knows_the_line() -> None:
    case = simulation.Case("stateless", 1, "ct", 2)
    model = CostModel.load()
    fast, slow = (simulation.predict(case, model, 1.0, transfer).throughput for transfer in (20.0, 400.0))
    assert slow < 0.8 * fast


def test_a_line_at_one_size_goes_through_what_was_measured_there() -> None:
    sizes = (1.0, 10.0, 100.0, 1000.0)
    found = simulated.Measured(sizes, sizes, (50.0, 68.0, 140.0, 5540.0))  # larger calls leave the cache
    for rows, ns in zip(found.rows, found.ns, strict=True):
        call, each = found.line_at(rows)
        assert call + each * rows == pytest.approx(ns)
        assert min(call, each) >= 0
    assert found.line_at(5.0) == pytest.approx((48.0, 2.0))
    assert found.line_at(0.5) == pytest.approx((48.0, 2.0))
    assert found.line_at(2000.0) == pytest.approx((0.0, 11540.0 / 2000))


@pytest.mark.usefixtures("short")
def test_several_workers_are_described_by_parts_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As among several workers a partitioned operator is called once per part; all rows reach it all the
    same.
    """
    # the same rows however fast the machine is now; half of them: whole chunks
    monkeypatch.setattr(simulated, "MOST_DESCRIBED", 8_192)
    fresh = simulated.described.__wrapped__  # what other tests had described was of other rows
    alone, several = fresh("q2", 1), fresh("q2", 1, True)
    assert [stage.name for stage in alone.stages] == [stage.name for stage in several.stages]
    for stage, one, many in zip(several.stages, alone.measured, several.measured, strict=True):
        assert many.reach == pytest.approx(one.reach, rel=0.15)  # the end of the stream counts as a chunk
        for place, chunk in enumerate(calibrate.CHUNKS):
            reach = max(1.0, many.reach[place])  # of a chunk that has rows at all
            parts = simulated.parts_of(stage, reach, chunk, 2) or 1.0
            assert many.rows[place] * parts == pytest.approx(reach)
        assert (many.rows[-1] < 0.5 * one.rows[-1]) == (stage.hashes is not None)
    for place, size in enumerate(calibrate.CHUNKS):
        for stage, measured in zip(several.at(size, 2), several.measured, strict=True):
            assert stage.chunk_ns + stage.work_ns * measured.rows[place] == pytest.approx(measured.ns[place])


def test_a_path_is_that_of_the_operators_place() -> None:
    """What the simulation adds by itself is taken off: partitioned or not, first, last, in front of a
    partitioned one.
    """
    path = CostModel.load().shared
    assert simulated.own_path("PS", path, 64, 50.0, 20.0, 4.0, None, False) == pytest.approx(
        path.ps_chunk + 50 * path.ps_tuple + 4 * path.ps_part + path.egress_chunk + 20 * path.egress_tuple
    )
    assert simulated.own_path("SL", path, 64, 64.0, 20.0, 0.0, 4.0, True) == pytest.approx(
        path.sl_chunk + 64 * path.sl_tuple + path.hold + path.enter_chunk
        + path.split_chunk + 20 * path.split_tuple + 4 * (path.split_part + path.enter_part)
    )  # fmt: skip
    assert simulated.own_path("SF", path, 64, 9.0, 9.0, 0.0, 0.0, False) == pytest.approx(
        path.sf_chunk + 9 * path.sf_tuple + path.enter_chunk
    )


@pytest.mark.usefixtures("short")
def test_a_query_at_one_chunk_size_has_the_costs_of_that_size() -> None:
    found = simulated.described("q2", 1)
    for place, size in enumerate(calibrate.CHUNKS):
        for stage, measured in zip(found.at(size, 1), found.measured, strict=True):
            rows, ns = measured.rows[place], measured.ns[place]
            assert stage.chunk_ns + stage.work_ns * rows == pytest.approx(ns)
    hashes = found.stages[1].hashes
    assert calibrate.mean_parts(1, 8, hashes) == 1
    assert 4 < calibrate.mean_parts(64, 8, hashes) <= 8

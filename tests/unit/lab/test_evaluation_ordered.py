"""The ordered paper's experiments: tiny runs are checked and have all columns; claims are computed from
rows, and fail where they must.
"""

from __future__ import annotations

import csv
import gc
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ordstream.commands import cli
from ordstream.errors import PlanError
from ordstream.lab import evaluation
from ordstream.lab.evaluation import ordered, ordered_load, ordered_runs, parametric
from ordstream.lab.evaluation import ordered_chunks as chunks
from ordstream.lab.evaluation import ordered_heuristics as heuristics
from ordstream.lab.evaluation import ordered_notes as notes
from ordstream.lab.evaluation import ordered_partitioning as partitioning
from ordstream.lab.evaluation import ordered_reordering as reordering
from ordstream.lab.evaluation.experiment import Claim, Options, Result
from ordstream.lab.evaluation.machine import columns
from ordstream.lab.evaluation.ordered_runs import Mismatch, one_run
from ordstream.lab.evaluation.ordered_subjects import operators
from ordstream.lab.evaluation.parametric import Parametric
from ordstream.lab.simulation import real

TINY = Options(1, runs=2, seconds=0.01, workers=(1, 2), clicks=3_000)
FIGURES = {one.name: one for one in ordered.EXPERIMENTS}
ABOUT = ("machine", "cores", "commit", "versions", "command")


# --- claims ---------------------------------------------------------------------------------------


def row(columns: tuple[str, ...], **given: Any) -> list[Any]:
    return [given.get(name, 1) for name in columns]


def holding(claims: list[Claim]) -> list[bool]:
    return [claim.holds for claim in claims]


def only(claims: list[Claim], words: str) -> Claim:
    found = [claim for claim in claims if words in claim.text]
    assert len(found) == 1, [claim.text for claim in claims]
    return found[0]


RATES = {"ct": 100.0, "lp": 80.0, "et": 50.0, "qst": 40.0}
DELAYS = {"ct": 12.0, "lp": 10.0, "et": 100.0, "qst": 200.0}


def fig8_rows(**changes: Any) -> list[list[Any]]:
    """Rows in which everything that the paper says is so; `changes`: "q2_ct_2" -> dict of columns."""
    rows = []
    for name in ("q1", "q2", "q15"):
        for workers in (1, 2):
            for heuristic in heuristics.HEURISTICS:
                rate = RATES["ct" if name != "q2" and heuristic == "lp" else heuristic] * workers
                given = {
                    "query": name, "chunk": "1", "workers": workers, "heuristic": heuristic,
                    "tuples_per_s": rate, "latency_us": DELAYS[heuristic], "worker_shares": "a=0.5 b=0.5",
                    "spread": 0.01, "in_flight": 3.0,
                }  # fmt: skip
                given |= changes.get(f"{name}_{heuristic}_{workers}", {})
                rows.append(row(heuristics.COLUMNS, **given))
    return rows


def test_all_of_the_papers_statements_on_heuristics_can_hold() -> None:
    claims = heuristics.claims(fig8_rows())
    assert all(holding(claims)), list(map(str, claims))
    assert len(claims) == 11
    assert "q2 1.25" in only(claims, "CT has the best").found


@pytest.mark.parametrize(("words", "changes"), [
    ("CT has the best throughput", {"q2_lp_2": {"tuples_per_s": 220.0}}),
    ("CT's latency is near the best", {"q1_ct_2": {"latency_us": 25.0}}),
    ("LP has the lowest latency", {"q15_et_2": {"latency_us": 9.0}}),
    ("ET has a high latency", {"q1_et_2": {"latency_us": 15.0}}),
    ("QST has a high latency", {"q2_qst_2": {"latency_us": 19.0}}),
    ("ET has a lower throughput", {"q1_et_2": {"tuples_per_s": 199.0}}),
    ("QST has a lower throughput", {"q1_qst_2": {"tuples_per_s": 199.0}}),
    ("LP's throughput is CT's", {"q15_lp_2": {"tuples_per_s": 150.0}}),
    ("LP's throughput is below", {"q2_lp_2": {"tuples_per_s": 195.0}}),
    ("grows nearly linearly", {"q1_ct_1": {"tuples_per_s": 150.0}}),
])  # fmt: skip
def test_a_statement_on_heuristics_fails_where_its_figures_do(words: str, changes: dict[str, Any]) -> None:
    assert not only(heuristics.claims(fig8_rows(**changes)), words).holds


def test_equal_shares_with_equal_throughput_are_not_the_papers_finding() -> None:
    rows = fig8_rows()
    at = heuristics.COLUMNS.index("tuples_per_s")
    for given in rows:
        given[at] = 100.0
    assert not only(heuristics.claims(rows), "distribution of worker time").holds
    shares = {
        h: {"worker_shares": f"a={0.2 * k:.1f} b={1 - 0.2 * k:.1f}"}
        for k, h in enumerate(heuristics.HEURISTICS)
    }
    apart = {f"{name}_{h}_2": shares[h] for name in ("q1", "q2", "q15") for h in heuristics.HEURISTICS}
    claim = only(heuristics.claims(fig8_rows(**apart)), "distribution of worker time")
    assert not claim.holds
    assert "distance 0.60" in claim.found


def test_the_control_chain_is_no_query_of_the_paper() -> None:
    rows = fig8_rows() + [
        row(heuristics.COLUMNS, query=heuristics.CONTROL, chunk="1", workers=w, heuristic=h,
            tuples_per_s=1.0, latency_us=1.0, worker_shares="a=1.0", spread=0.0, in_flight=1.0)
        for w in (1, 2) for h in heuristics.HEURISTICS
    ]  # fmt: skip
    assert all(holding(heuristics.claims(rows)))
    assert "the speed-up per worker is 0.50" in "\n".join(heuristics.explanation(rows))


def test_a_ratio_is_told_with_its_range_over_the_rounds() -> None:
    a = {"rates": "100 90 120", "tuples_per_s": 103.0, "cpu_ns": 1e7, "workers": 2}
    b = {"rates": "200 100 100", "tuples_per_s": 133.0}
    assert notes.by_round(a, b) == pytest.approx([0.5, 0.9, 1.2])
    assert notes.compared(a, b, True) == "0.77 [0.50 to 1.20]"
    assert notes.compared(a, b, False) == "0.77 [0.50 to 1.20] (no, not in every round)"
    assert notes.compared(a, {"rates": "200 200 200", "tuples_per_s": 200.0}, False).endswith("0.60] (no)")
    assert notes.busy(a) == pytest.approx(0.515)
    assert re.search(r"2 plain loops .* do \d\.\d\d times", notes.machine_line(2, 2))


def test_a_report_says_what_explains_it() -> None:
    """Busy workers, CPU per tuple and in flight for heuristics; few partitions for hybrid; CPU by scheme
    for reordering and chunks.
    """
    text = "\n".join(heuristics.explanation(fig8_rows()))
    assert "CPU used over what the workers can use" in text
    assert "q2: CPU per tuple CT 1 ns, 1.0 choices" in text
    rows = [
        row(
            partitioning.FIG11_COLUMNS,
            query=name,
            chunk="1",
            workers=2,
            scheme=scheme,
            tuples_per_s=rate,
            rates=f"{rate} {rate}",
        )
        for name in ("q1", "q4")
        for scheme, rate in (("hybrid", 80), ("partitioned", 100), (partitioning.FEW, 110))
    ]
    text = "\n".join(partitioning.fig11_explanation(rows))
    assert (
        "hybrid with 2 partitions over partitioned with 2 [range over rounds]: q1 1.10 [1.10 to 1.10]"
        in text
    )
    assert "hybrid with 100 partitions over hybrid with 2: q1 0.73" in text
    rows = [
        row(chunks.CHUNK_COLUMNS, pipeline="q1", chunk=size, way="default", cpu_ns=ns)
        for size, ns in (("1", 600.0), ("64", 150.0))
    ]
    assert "q1 600 to 150 (chunk 64; 75% less)" in chunks.chunk_explanation(rows)[0]
    rows = [
        row(reordering.FIG14_COLUMNS, query="q1", chunk="1", scheme=scheme) for scheme in reordering.SCHEMES
    ]
    assert "non-blocking and lock: q1 1 and 1" in reordering.fig14_explanation(rows)[0]


def test_loops_that_count_wrong_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = real.Chain((("PS", 2),))
    loops = chunks.Loops(chain, 3)
    loops.check()
    loops.check()  # counts begin anew
    monkeypatch.setattr(real.Chain, "expected", lambda self, tuples: np.zeros(tuples, np.int64))
    with pytest.raises(Mismatch, match="plain loops give other values"):
        loops.check()


def test_distance_of_distributions() -> None:
    assert heuristics.distance({"a": 1.0}, {"b": 1.0}) == 1.0
    assert heuristics.distance({"a": 0.5, "b": 0.5}, {"a": 0.25, "b": 0.75}) == pytest.approx(0.25)
    assert heuristics.shares_of("a=0.25 b=c=0.75") == {"a": 0.25, "b=c": 0.75}


def fig9_rows(hybrid: tuple[float, float], partitioned: tuple[float, float]) -> list[list[Any]]:
    """Throughput at sigma 0.1 and 1."""
    return [
        row(
            partitioning.FIG9_COLUMNS,
            sigma=sigma,
            work="products",
            chunk="1",
            workers=16,
            scheme=scheme,
            tuples_per_s=rates[k],
            largest_partition=0.3,
        )
        for scheme, rates in (("hybrid", hybrid), ("partitioned", partitioned))
        for k, sigma in enumerate((0.1, 1.0))
    ]


@pytest.mark.parametrize(("hybrid", "partitioned", "wanted"), [
    ((100, 102), (40, 100), [True, True, True, True]),
    ((30, 100), (40, 100), [False, True, False, True]),
    ((100, 100), (99, 100), [True, True, True, False]),
    ((100, 100), (40, 60), [True, False, True, True]),
])  # fmt: skip
def test_statements_on_skew(hybrid: Any, partitioned: Any, wanted: list[bool]) -> None:
    assert holding(partitioning.fig9_claims(fig9_rows(hybrid, partitioned))) == wanted


@pytest.mark.parametrize(("hybrid", "partitioned", "wanted"), [
    ((11, 110), (50, 500), [True, True]),
    ((11, 600), (50, 500), [False, False]),
    ((30, 110), (50, 500), [True, False]),
])  # fmt: skip
def test_statements_on_latency_over_cost(hybrid: Any, partitioned: Any, wanted: list[bool]) -> None:
    rows = [
        row(
            partitioning.FIG10_COLUMNS,
            cost_us=cost,
            chunk="1",
            workers=2,
            scheme=scheme,
            latency_us=float(delays[k]),
        )
        for scheme, delays in (("hybrid", hybrid), ("partitioned", partitioned))
        for k, cost in enumerate((10.0, 100.0))
    ]
    assert holding(partitioning.fig10_claims(rows)) == wanted


@pytest.mark.parametrize(("rates", "delays", "wanted"), [
    ({"q1": 2.0, "q2": 1.5, "q15": 1.0}, {"q1": 0.5, "q2": 0.5, "q15": 1.1}, [True, True, True]),
    ({"q1": 0.8, "q2": 1.5, "q15": 2.0}, {"q1": 0.5, "q2": 0.5, "q15": 1.5}, [False, False, False]),
    ({"q1": 2.0, "q2": 1.5, "q15": 1.0}, {"q1": 0.5, "q2": 1.2, "q15": 1.2}, [True, True, False]),
])  # fmt: skip
def test_statements_on_partitioning_of_queries(rates: Any, delays: Any, wanted: list[bool]) -> None:
    rows = [
        row(partitioning.FIG11_COLUMNS, query=name, chunk="1", workers=workers, scheme=scheme,
            tuples_per_s=(rates[name] if scheme == "hybrid" else 1.0) * (100 if workers == 2 else 10),
            latency_us=delays[name] if scheme == "hybrid" else 1.0)
        for name in rates for workers in (2, 4) for scheme in partitioning.SCHEMES
    ]  # fmt: skip
    assert holding(partitioning.fig11_claims(rows)) == wanted


@pytest.mark.parametrize(("free", "lock", "grows", "wanted"), [
    (190.0, 150.0, (10.0, 90.0), [True, True]),
    (120.0, 150.0, (90.0, 10.0), [False, False]),
    (149.0, 150.0, (9.0, 10.0), [True, True]),
])  # fmt: skip
def test_statements_on_reordering(free: float, lock: float, grows: Any, wanted: list[bool]) -> None:
    rows = [
        row(reordering.COLUMNS, cost_us=10.0, chunk="1", workers=workers, scheme=scheme,
            tuples_per_s=100.0 if workers == 1 else rate, speedup=1.0 if workers == 1 else rate / 100,
            cost_ns=100.0, cost_grows_ns=0.0 if workers == 1 else more, spread=0.01)
        for scheme, rate, more in (("nonblocking", free, grows[0]), ("lock", lock, grows[1]))
        for workers in (1, 2)
    ]  # fmt: skip
    assert holding(reordering.claims(rows, "light")) == wanted
    assert reordering.claims([given for given in rows if given[3] == 1], "light") == []


@pytest.mark.parametrize(
    ("ratio", "delay", "wanted"),
    [(1.2, 1.0, [True, True]), (0.9, 1.0, [False, True]), (1.0, 1.6, [True, False])],
)
def test_statements_on_reordering_of_queries(ratio: float, delay: float, wanted: list[bool]) -> None:
    rows = [
        row(reordering.FIG14_COLUMNS, query=name, chunk="1", workers=2, scheme=scheme, spread=0.02,
            tuples_per_s=ratio if (name, scheme) == ("q2", "nonblocking") else 1.0,
            latency_us=delay if (name, scheme) == ("q2", "nonblocking") else 1.0)
        for name in ("q1", "q2") for scheme in reordering.SCHEMES
    ]  # fmt: skip
    assert holding(reordering.fig14_claims(rows)) == wanted


# --- the figures ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Every figure, in runs too short to say anything but that they are right; fewer costs and sigmas
    than the paper's.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partitioning, "COSTS_US", (10.0, 1_000.0))
        patched.setattr(partitioning, "SIGMAS", (0.1, 1.0))
        patched.setattr(partitioning, "WAIT_US", 200.0)
        patched.setattr(reordering, "HEAVY_US", 10.0)
        return {
            name: FIGURES[name].run(replace(TINY, runs=1, clicks=1_000))
            for name in (f"fig{k}" for k in range(8, 15))
        }


def test_a_heap_that_was_frozen_stays_frozen() -> None:
    """conftest.py freezes what was collected: without it each run looked through all tests, for 0.3 s."""
    assert gc.get_freeze_count() > 0
    with ordered_runs.frozen_heap():
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() > 0


def test_the_paper_has_seven_figures() -> None:
    assert {f"fig{k}" for k in range(8, 15)} <= set(FIGURES)
    assert all(experiment.timed for experiment in FIGURES.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"fig{k}" for k in range(8, 15)])
def test_a_tiny_run_has_rows_charts_and_claims(name: str, results: dict[str, Result]) -> None:
    result = results[name]
    assert result.rows
    assert all(len(given) == len(result.columns) for given in result.rows)
    assert {"chunk", "workers", "tuples_per_s", "tuples", "runs", "other_load"} <= set(result.columns)
    assert set(result.column("runs")) == {1}
    assert set(result.column("chunk")) == {"1"}
    assert all(rate > 0 for rate in result.column("tuples_per_s"))
    assert result.charts
    assert result.claims
    assert result.lines


@pytest.mark.slow
def test_figure_8_has_every_query_heuristic_and_number_of_workers(results: dict[str, Result]) -> None:
    found = {tuple(given[:4]) for given in results["fig8"].rows}
    names = ("q1", "q2", "q3", "q4", "q15", heuristics.CONTROL)
    assert found == {
        (name, "1", workers, h) for name in names for workers in (1, 2) for h in heuristics.HEURISTICS
    }


@pytest.mark.slow
def test_figure_10_counts_from_the_start_of_the_work(results: dict[str, Result]) -> None:
    """No tuple can leave before its own work is done, which takes about its cost."""
    result = results["fig10"]
    for cost, p50 in zip(result.column("cost_us"), result.column("p50_us"), strict=True):
        assert p50 > 0.3 * cost


def test_the_command_writes_what_it_was_measured_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "bench",
        "fig12",
        "--seconds",
        "0.01",
        "--runs",
        "1",
        "--workers",
        "1,2",
        "--chunk",
        "1,auto",
        "--out",
        str(tmp_path),
    ]
    assert cli.main(arguments) == 0
    with (tmp_path / "fig12.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[-5:] == ABOUT
    assert all(rows[0][name] for name in ABOUT)
    assert (
        rows[0]["command"]
        == "ordstream bench fig12 --seed 1 --seconds 0.01 --runs 1 --workers 1,2 --chunk 1,auto"
    )
    assert "numpy" in rows[0]["versions"]
    assert {given["chunk"] for given in rows} == {"1", "auto"}
    assert {given["workers"] for given in rows} == {"1", "2"}
    pytest.importorskip("matplotlib")
    assert (tmp_path / "fig12.png").exists()
    assert (tmp_path / "fig12.svg").exists()
    printed = capsys.readouterr().out
    assert printed.count("holds: ") + printed.count("DOES NOT HOLD: ") == 2 * 2 * len(reordering.LIGHT_US)


def test_the_command_refuses_options_of_the_other_kind(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, name in [
        (["fig12", "--streams", "3"], "streams"),
        (["dkg-fig4", "--seconds", "1"], "seconds"),
    ]:
        assert cli.main(["bench", *arguments]) == 2
        assert f"it takes no --{name}" in capsys.readouterr().err
    assert cli.main(["bench", "fig12", "--workers", "2,x"]) == 2
    assert cli.main(["bench", "fig12", "--chunk", "0"]) == 2


@pytest.mark.parametrize(
    "wrong", [{"seconds": 0.0}, {"runs": 0}, {"workers": (0,)}, {"chunks": (1, 0)}, {"clicks": 0}]
)
def test_options_of_measured_runs_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Options(1, **wrong)


def test_nothing_in_a_file_names_a_host_or_a_path() -> None:
    import platform

    found = columns("ordstream bench x")
    assert tuple(found) == ABOUT
    assert int(found["cores"]) >= 1
    assert platform.node() not in " ".join(found.values()).split()
    assert "/home" not in " ".join(found.values())


def test_names_are_known_to_the_command() -> None:
    assert set(FIGURES) <= set(evaluation.experiments())


# --- beyond the figures ---------------------------------------------------------------------------


BEYOND = {
    "chunks": replace(TINY, runs=1, chunks=(1, 64, None)),
    "load": replace(TINY, runs=1, chunks=(None,), workers=(2,)),
    "idle": replace(TINY, runs=1, seconds=0.05),
    "order-cost": replace(TINY, runs=1, workers=(2,), chunks=(1, 64)),
    "head-of-line": replace(TINY, runs=1, chunks=(1,), seconds=0.1),
    "zipf": replace(TINY, runs=1, chunks=(None,)),
}


@pytest.mark.parametrize("name", BEYOND)
@pytest.mark.thin(3)
def test_beyond_the_figures(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_load, "HEAD_S", 0.1)
    monkeypatch.setattr(real, "BATCH", 1 << 12)
    monkeypatch.setattr(real, "data", cache(real.data.__wrapped__))
    result = FIGURES[name].run(BEYOND[name])
    assert result.rows
    assert all(len(given) == len(result.columns) for given in result.rows)
    assert {"workers", "tuples", "runs"} <= set(result.columns)
    assert result.charts
    assert result.claims
    assert result.lines
    if name == "load":
        assert result.column("load") == list(ordered_load.LOADS)
        assert all(
            low <= high
            for low, high in zip(
                result.column("end_to_end_p50_us"), result.column("end_to_end_p99_us"), strict=True
            )
        )
    if name == "order-cost":
        assert {(given[0], given[1], given[2]) for given in result.rows} == {
            (operator, work, chunk)
            for operator in ("stateless", "keyed")
            for work in (0.0, 1.0)
            for chunk in ("1", "64")
        }
        assert all(ordered > 0 for ordered in result.column("ordered_ns"))
    if name == "chunks":
        assert set(result.column("chunk")) == {"1", "64", "auto"}
        assert set(result.column("way")) == {"default", "lock", "partitioned"}


def test_statements_on_chunks() -> None:
    def claims(fast: float, auto: float, wait: float) -> list[Claim]:
        rates, delays = {"1": 1.0, "64": fast, "auto": auto}, {"1": 1.0, "64": wait, "auto": 1.0}
        rows = [
            row(
                chunks.CHUNK_COLUMNS,
                pipeline="q1",
                chunk=size,
                way="default",
                tuples_per_s=rates[size],
                latency_us=delays[size],
            )
            for size in rates
        ]
        return chunks.chunk_claims(rows)

    assert holding(claims(4.0, 4.0, 2.0)) == [True, True, True]
    assert holding(claims(1.5, 1.0, 0.5)) == [False, False, False]


def test_statements_on_zipf_keys() -> None:
    rows = [
        row(chunks.ZIPF_COLUMNS, alpha=alpha, chunk="1", scheme=scheme, tuples_per_s=rate if alpha else 1.0)
        for alpha in (0.0, 2.0)
        for scheme, rate in (("hybrid", 1.0), ("partitioned", 0.5), ("shared", 1.2))
    ]
    assert holding(chunks.zipf_claims(rows)) == [True, False]
    assert (
        "CPU ns per tuple, by alpha: hybrid 1, 1; partitioned 1, 1; shared 1, 1"
        in chunks.zipf_explanation(rows)[1]
    )


def test_a_report_says_what_others_used() -> None:
    def last_line(*loads: float) -> str:
        result = Result(["other_load"], [[load] for load in loads], [], [], ["a table"])
        return ordered.with_load(lambda options: result)(TINY).lines[-1]

    assert (
        last_line(0.0, 0.04)
        == "others used at most 0.04 cores during a run; 0 of 2 settings had more than 0.1 in one"
    )
    assert last_line(1.5, 0.0).endswith("1 of 2 settings had more than 0.1 in one: their figures say less")


def test_statement_on_the_cost_of_order() -> None:
    def claims(many: float) -> list[bool]:
        given = {"operator": "stateless", "work_us": 0.0, "workers": 2}
        rows = [
            row(chunks.COST_COLUMNS, **given, chunk=size, difference_ns=cost)
            for size, cost in (("1", 100.0), ("64", many))
        ]
        return holding(chunks.cost_claims(rows))

    assert (claims(5.0), claims(20.0)) == ([True], [False])
    assert chunks.cost_claims([]) == []


def test_statements_on_load_and_head() -> None:
    def loads(p50: tuple[float, float]) -> list[bool]:
        rows = [
            row(ordered_load.LOAD_COLUMNS, load=share, chunk="1", end_to_end_p50_us=p50[k])
            for k, share in enumerate((50, 95))
        ]
        return holding(ordered_load.load_claims(rows))

    assert loads((5.0, 900.0)) == [True, True]
    assert loads((500.0, 90.0)) == [False, False]
    good = row(ordered_load.HEAD_COLUMNS, peak_mb=20.0, peak_without_mb=10.0, recovery_s=0.9, backlog_s=1.0)
    bad = row(
        ordered_load.HEAD_COLUMNS,
        peak_mb=200.0,
        peak_without_mb=10.0,
        recovery_s=float("nan"),
        backlog_s=1.0,
    )
    assert holding(ordered_load.head_claims([good])) == [True, True]
    assert holding(ordered_load.head_claims([good, bad])) == [False, False]


def test_recovery_counts_from_the_heads_release() -> None:
    second = 10**9
    markers = [(1, second, second, second)]  # the head: dispatched at 0, out at 1 s
    markers += [(k, second - 10**6 * k, second, second + k) for k in range(2, 12)]  # held back by it
    markers += [(k, 1_000, 500, second + 10**8 + k) for k in range(12, 32)]  # as ever, from 1.1 s on
    sampled = np.array(markers, np.int64)
    run = ordered_runs.Run(1.0, {}, 1.0, 0.0, 1.0, None, sampled)  # type: ignore[arg-type]
    seconds, waiting = ordered_load.recovery(run, 1_000.0)
    assert seconds == pytest.approx(0.1, rel=0.01)
    assert waiting == 11
    assert np.isnan(ordered_load.recovery(run, 100.0)[0])


def test_waiting_is_no_work_of_a_core() -> None:
    given = Parametric(0.0, state_bytes=8, wait_us=2_000.0)
    subject = operators("waits", parametric.uniform_keys(64, 64), given, check_rows=64)
    run = one_run(subject.pipeline, subject.source(64), {"workers": 8, "chunk_rows": 1, "buckets": 64})
    assert run.seconds > 64 * 0.002 / 8
    assert run.cpu_ns < 1_000_000
    subject.check({"workers": 8, "chunk_rows": 1})

"""POSG's experiments: the stream they are built on, Theorem 4.3 by enumeration, what synchronisation is
worth, and each command.
"""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ordstream._core.lab.posg_policies import Posg, RoundRobin
from ordstream.balance.posg import POSG
from ordstream.commands import cli
from ordstream.lab.evaluation import posg
from ordstream.lab.evaluation.experiment import Options
from ordstream.lab.evaluation.machine import columns
from ordstream.lab.evaluation.posg import Found, Setting, Stream, measure_series, stream, theorem_4_3


def test_theorem_4_3_is_the_mean_over_all_functions() -> None:
    """n = 5 items, 3 columns: every one of the 3^5 functions."""
    w = [1.0, 2.0, 4.0, 8.0, 16.0]
    columns = 3
    found = np.zeros(5)
    for cells in product(range(columns), repeat=5):
        for v in range(5):
            mates = [w[u] for u in range(5) if cells[u] == cells[v]]
            found[v] += sum(mates) / len(mates)
    assert theorem_4_3(np.array(w), sum(w), 5, columns) == pytest.approx(found / columns**5, rel=1e-12)


def test_a_stream_is_the_papers() -> None:
    given = stream(1, 0, Setting())
    assert len(given.items) == 32_768
    assert set(np.unique(given.times)) <= set(range(1, 65))
    time_of = dict(zip(given.items.tolist(), given.times.tolist(), strict=True))
    assert [time_of[item] for item in given.items.tolist()] == given.times.tolist()
    share = np.bincount(given.items, minlength=4_096) / len(given.items)
    harmonic = sum(1 / i for i in range(1, 4_097))
    assert share[0] == pytest.approx(1 / harmonic, rel=0.05)
    assert share[9] == pytest.approx(0.1 / harmonic, rel=0.2)
    gaps = np.diff(given.arrivals)
    assert gaps == pytest.approx(given.times.mean() / 5, rel=1e-9)
    assert len(given.learning) == 2 * 1_024 * 5
    # Any setting of one stream number has the same items: points of a figure differ by the setting alone.
    assert np.array_equal(stream(1, 0, Setting(provisioning=1.1, w_max=8.0)).items, given.items)
    assert not np.array_equal(stream(1, 1, Setting()).items, given.items)
    slower = stream(1, 0, Setting(provisioning=1.1)).arrivals
    assert slower[-1] == pytest.approx(1.1 * given.arrivals[-1])


def test_warm_starts_in_run_and_cold_does_not() -> None:
    given = stream(1, 0, Setting(m=30_000))
    warm, cold = given.posg(warm=True), given.posg(warm=False)
    assert (warm.run_from, cold.run_from) == (0, -1)
    outcomes = [given.run(policy) for policy in (warm, cold, RoundRobin())]
    assert warm.run_from == 0
    assert 2 * 1_024 * 5 < cold.run_from < 30_000
    first = min(at for at, _ in cold.matrices_at)
    assert outcomes[1].instance[:first].tolist() == outcomes[2].instance[:first].tolist()
    assert outcomes[0].instance[:first].tolist() != outcomes[2].instance[:first].tolist()


def without_synchronisation(given: Stream) -> Posg:
    parameters = replace(given.parameters(), resync=0)
    scheduler = parameters.scheduler()
    scheduler.deploy([_learnt(given, parameters, index) for index in range(given.setting.k)])
    learners = [parameters.instance(index).learner for index in range(given.setting.k)]
    return Posg(scheduler.core, learners)


def _learnt(given: Stream, parameters: POSG, index: int):  # type: ignore[no-untyped-def]
    model = parameters.times()
    model.update_many(
        given.learning[index :: given.setting.k], given.learning_times[index :: given.setting.k]
    )
    return model


def test_posg_beats_round_robin_and_not_without_synchronisation() -> None:
    """Zipf-1 at 100 %: mean S_L over ten streams above 1.1; without synchronisation much of it is gone."""
    speed_up = []
    for number in range(10):
        given = stream(1, number, Setting())
        plain = given.run(RoundRobin()).mean_completion()
        speed_up.append(
            [
                plain / given.run(policy).mean_completion()
                for policy in (given.posg(warm=True), without_synchronisation(given))
            ]
        )
    synchronised, not_synchronised = np.mean(speed_up, axis=0)
    assert synchronised > 1.1
    assert not_synchronised < synchronised - 0.1


def test_posg_matches_full_knowledge_on_a_skewed_stream() -> None:
    found = Found(Options(5), [Setting(alpha=2.5), Setting(k=1, m=5_000)], posg.ALGORITHMS)
    assert found.values.shape == (5, 2, 5)
    assert (found.mean("POSG") / found.mean("Full Knowledge"))[0] <= 1.1
    assert (found.mean("Round-Robin") / found.mean("POSG"))[0] >= 1.5
    assert (found.values[:, 1] == found.values[:, 1, :1]).all()  # k = 1: all the same
    columns, rows = found.table("x", ["a", "b"])
    assert columns[:4] == ["x", "POSG max", "POSG mean", "POSG min"]
    assert columns[-6:] == [
        "S_L max",
        "S_L mean",
        "S_L min",
        "S_L cold max",
        "S_L cold mean",
        "S_L cold min",
    ]
    assert [len(row) for row in rows] == [len(columns)] * 2
    assert rows[0][1:4] == [
        found.of("POSG")[:, 0].max(),
        found.mean("POSG")[0],
        found.of("POSG")[:, 0].min(),
    ]


def test_a_series_knows_its_phases() -> None:
    one = measure_series(1, 0, 60_000, 40_000)
    assert one.posg.shape == one.plain.shape == (3, 30)
    assert (one.posg[0] >= one.posg[1]).all()
    assert (one.posg[1] >= one.posg[2]).all()
    assert one.differs_from <= one.run_from < 40_000 < one.updated
    assert (
        one.posg[:, : one.differs_from // posg.STEP].tolist()
        == one.plain[:, : one.differs_from // posg.STEP].tolist()
    )
    assert one.speed_up > 1


def small(seed: int, number: int, setting: Setting) -> Stream:
    return stream(seed, number, replace(setting, m=2_000 if setting.m == Setting.m else setting.m))


@pytest.mark.parametrize("name", [experiment.name for experiment in posg.EXPERIMENTS])
def test_each_command_writes_its_file_and_claims(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiny: two streams of 2,000 tuples (Figure 10 and the steady state: 40,000). What the claims find
    does not matter here.
    """
    monkeypatch.setattr(posg, "stream", small)
    monkeypatch.setattr(posg, "LONG", 40_000)
    monkeypatch.setattr(posg, "CHANGE", 20_000)
    monkeypatch.setattr(posg, "STEADY_FROM", 10_000)
    assert (
        cli.main(["bench", name, "--streams", "2", "--processes", "1", "--out", str(tmp_path), "--no-plot"])
        == 0
    )
    printed = capsys.readouterr().out
    assert printed.count("holds: ") + printed.count("DOES NOT HOLD: ") >= 2
    with (tmp_path / f"{name}.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert len(rows) >= 5
    assert {len(row) for row in rows} == {len(header)}
    figures = len(header) - len(columns(""))
    assert header[figures:] == list(columns(""))
    assert all(math.isfinite(float(value)) for row in rows for value in row[1:figures])
    triples = [column[:-4] for column in header if column.endswith(" max")]
    assert triples
    for row in rows:
        named = dict(zip(header, row, strict=True))
        for triple in triples:
            assert float(named[f"{triple} min"]) <= float(named[f"{triple} mean"]) + 1e-9
            assert float(named[f"{triple} mean"]) <= float(named[f"{triple} max"]) + 1e-9

"""LAS's experiments: the streams are what they say, every experiment runs, and small forms show what the
full ones claim.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from ordstream.commands.cli import main
from ordstream.lab.evaluation import experiments, las
from ordstream.lab.evaluation.experiment import Options

ONE = Options(streams=1)


def test_all_are_commands() -> None:
    names = [name for name in experiments() if name.startswith("las-")]
    assert names == ["las-fig3", "las-tau", "las-load", "las-epsilon", "las-bursts", "las-drift"]


def test_tweets_have_the_papers_numbers() -> None:
    stream = las.tweets(np.random.default_rng(1))
    assert len(stream.keys) == 500_000
    assert las.ENTITIES == 35_000
    cost = dict(zip(stream.keys.tolist(), stream.times.tolist(), strict=True))
    assert all(
        cost[key] == time
        for key, time in zip(stream.keys[:10_000].tolist(), stream.times[:10_000].tolist(), strict=True)
    )
    assert sum(len(times) for _, times in las.ENTITY_CLASSES) == 110
    every = np.concatenate([times for _, times in las.ENTITY_CLASSES])
    assert len(np.unique(every)) == 110
    assert (every.min(), every.max()) == (1.0, 152.0)
    assert stream.times.sum() / (stream.arrivals[-1] + stream.times.mean() / las.FIG3_LOAD) == pytest.approx(
        las.FIG3_LOAD, rel=1e-3
    )


def test_streams_are_repeatable_and_differ() -> None:
    first, again, other = (las.zipf_stream(np.random.default_rng([1, n]), 1000, 1.5)[0] for n in (0, 0, 1))
    assert (first.keys == again.keys).all()
    assert not (first.keys == other.keys).all()


def test_bursts_come_and_go() -> None:
    stream, _ = las.bursts(np.random.default_rng(1), 20_000)
    gaps = np.diff(stream.arrivals)
    assert gaps[9_000] == pytest.approx(stream.times.mean() / las.BURST_LOAD)
    assert gaps[5_000] == pytest.approx(stream.times.mean() / las.CALM_LOAD)


def test_drift_keeps_the_time_of_an_item() -> None:
    stream, learnt = las.drift(np.random.default_rng(1), 20_000, 100)
    cost: dict[int, float] = {}
    for given in (learnt, stream):
        for key, time in zip(given.keys.tolist(), given.times.tolist(), strict=True):
            assert cost.setdefault(key, time) == time
    dear = stream.times > 32
    assert dear.mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("run", "m", "columns"),
    [
        (las.over_tau, 3_000, 16),
        (las.over_load, 3_000, 13),
        (las.over_epsilon, 3_000, 10),
        (las.in_bursts, 20_000, 5),
        (las.in_drift, 3_000, 13),
        (las.fig3, 40_000, 5),
    ],
)
def test_every_experiment_runs_small(run: object, m: int, columns: int) -> None:
    result = run(ONE, m)  # type: ignore[operator]
    assert len(result.columns) == columns
    assert {len(row) for row in result.rows} == {columns}
    assert result.claims
    assert result.charts
    full = [claim for claim in result.claims if claim.text.startswith("Full Knowledge")]
    assert all(claim.holds for claim in full)


def test_figure_3_in_small() -> None:
    # The order of magnitude between Straw-Man and LAS needs the length of the stream; that LAS is near Full
    # Knowledge does not.
    found = las.measure_fig3(1, 0, 60_000)
    full, learnt, straw, nothing = found[:, -2]
    assert learnt < 2 * full
    assert straw > 4 * learnt
    assert straw == pytest.approx(nothing, rel=0.1)
    assert 0.03 < found[0, -1] < 0.12


def test_sizes_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = las.over_tau(Options(streams=1, tuples=2_000, keys=200))
    assert result.rows == las.over_tau(Options(streams=1, keys=200), 2_000).rows
    assert result.rows != las.over_tau(Options(streams=1), 2_000).rows
    command = [
        "bench",
        "las-drift",
        "--streams",
        "1",
        "--processes",
        "1",
        "--no-plot",
        "--out",
        str(tmp_path),
        "--tuples",
        "3000",
    ]
    assert main([*command, "--keys", "256"]) == 0
    assert "3,000 tuples; 256 keys; 1 streams" in capsys.readouterr().out
    stream = las.tweets(np.random.default_rng(1), 2_000, n=500)
    assert stream.keys.max() < 500
    for wrong in (["--tuples", "10"], ["--keys", "5"]):
        assert main(["bench", "las-tau", *wrong]) != 0
        assert "must be at least" in capsys.readouterr().err
    assert main(["bench", "dkg-fig2", "--tuples", "5000"]) != 0
    assert "dkg-fig2 has its own numbers" in capsys.readouterr().err


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "las-bursts", "--streams", "1", "--processes", "1", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("holds:") == 5
    with (tmp_path / "las-bursts.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == las.UNFOLD
    assert (tmp_path / "las-bursts.png").stat().st_size > 10_000

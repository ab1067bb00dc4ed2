"""What experiments share: streams over processes, CSV, plots, claims, and the command."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ordstream
from ordstream.commands import cli
from ordstream.errors import PlanError
from ordstream.lab import evaluation
from ordstream.lab.evaluation import dkg
from ordstream.lab.evaluation.experiment import (
    Chart,
    Claim,
    Curve,
    Options,
    Result,
    draw,
    over_streams,
    write_csv,
)


def numbered(seed: int, number: int, factor: float) -> list[float]:
    return [factor * number, float(seed)]


def test_streams_come_in_order() -> None:
    assert over_streams(numbered, Options(5, seed=3), 2.0) == [[2.0 * number, 3.0] for number in range(5)]


def test_figures_do_not_depend_on_the_number_of_processes() -> None:
    found = [over_streams(dkg.measure_sigma, Options(5, 3, processes), (2,)) for processes in (1, 2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert len({one.tobytes() for one in found[0]}) == 5


def test_a_failing_stream_ends_the_run_early() -> None:
    with pytest.raises(PlanError, match="alpha=-1"):
        over_streams(dkg.stream, Options(1_000_000, 3, 2), -1.0)


CTRL_C = """
import sys
from process_functions import sleeps_long
from ordstream.lab.evaluation.experiment import Options, over_streams
if __name__ == "__main__":
    print("begins", flush=True)
    try:
        over_streams(sleeps_long, Options(4, 1, 2))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@pytest.mark.parametrize("after", [0.1, 1.5], ids=["while processes start", "while they work"])
def test_ctrl_c_ends_it_at_once(tmp_path: Path, after: float) -> None:
    """A terminal interrupts the whole group: a child that was still starting used to leave a pool that
    never ended.
    """
    if os.name != "posix":
        pytest.skip("no process groups here")
    script = tmp_path / "script.py"
    script.write_text(CTRL_C)
    paths = [str(Path(__file__).parents[3] / "tests"), str(Path(ordstream.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    process = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=40)  # the children sleep for a minute
    assert (process.returncode, out, error) == (0, "interrupted\n", "")


@pytest.mark.parametrize(
    "wrong", [{"streams": 0}, {"streams": 1, "processes": 0}, {"streams": 1, "seed": -1}]
)
def test_options_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError):
        Options(**wrong)


RESULT = Result(
    ["k", "DKG Mean"],
    [[1, 0.5], [2, 1.5]],
    [
        Chart("k", "λ", [Curve("DKG", [1, 2], [0.5, 1.5], [0.1, 1.0], [0.9, 2.0])], log_x=True),
        Chart("k", "n", [Curve("a", [1, 2], [3, 4]), Curve("b", [1, 2], [4, 3])], kind="bar"),
        Chart("µ", "Θ", kind="heat", cells=([0.1, 0.2], [1, 2], np.array([[1.0, 2.0], [3.0, 4.0]]))),
        Chart("k", "λ", [Curve("DKG", [1], [1])]),
    ],
    [Claim("it is so", "1.5", True), Claim("it is not so", "2", False)],
)


def test_csv_has_the_columns_and_rows(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv", RESULT)
    with (tmp_path / "x.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["k", "DKG Mean"], ["1", "0.5"], ["2", "1.5"]]
    assert RESULT.column("DKG Mean") == [0.5, 1.5]


def test_plots_are_drawn_and_equal_for_equal_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first = draw("x", "title", RESULT, tmp_path)
    assert [path.name for path in first] == ["x.png", "x.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    kept = first[1].read_bytes()
    assert b"<svg" in kept
    draw("x", "title", RESULT, tmp_path)
    assert first[1].read_bytes() == kept
    assert draw("y", "title", Result(["k"], [], [], []), tmp_path) == []


def test_a_claim_says_whether_it_holds() -> None:
    assert [str(claim) for claim in RESULT.claims] == [
        "holds: it is so: 1.5",
        "DOES NOT HOLD: it is not so: 2",
    ]


def test_experiments_have_names_of_their_own() -> None:
    found = evaluation.experiments()
    assert all(name == experiment.name for name, experiment in found.items())
    assert {"dkg-table1", "dkg-fig2", "dkg-fig9", "dkg-fig13", "dkg-fig14"} <= set(found)


def test_the_command_writes_and_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "bench",
        "dkg-fig4",
        "--streams",
        "3",
        "--processes",
        "1",
        "--out",
        str(tmp_path / "new"),
        "--no-plot",
    ]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "dkg-fig4: DKG Fig. 4" in printed
    assert "3 streams, seed 1" in printed
    assert printed.count("holds: k=") + printed.count("DOES NOT HOLD: k=") == 4
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["dkg-fig4.csv"]
    before = (tmp_path / "new" / "dkg-fig4.csv").read_bytes()
    assert cli.main(arguments) == 0
    assert (tmp_path / "new" / "dkg-fig4.csv").read_bytes() == before


def test_the_command_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "dkg-fig99"]) == 2
    assert cli.main(["bench", "dkg-fig4", "--streams", "0"]) == 2
    assert "streams" in capsys.readouterr().err

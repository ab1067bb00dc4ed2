"""What a command writes is there whole or not at all; what can't be written is told with its file, and
shown where it was computed.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ordstream.ground.whole_file import ADVICE, write_whole

LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="a limit on the size of files stands for a full disk"
)

FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
"""

BENCH = (
    FULL
    + """
from ordstream.commands import cli
from ordstream.commands import bench
from ordstream.lab.evaluation.experiment import Chart, Curve, Experiment, Result

rows = [[k, k * k] for k in range({rows})]
chart = Chart(title="t", x_label="x", y_label="y", curves=[Curve("c", [1, 2], [3, 4])])
result = Result(["k", "square"], rows, [chart], [], ["a line"])
one = Experiment("made-up", "title", 1, lambda options: result)
bench.experiments = lambda: {{"made-up": one}}
sys.exit(cli.main(["bench", "made-up", "--out", sys.argv[1], *sys.argv[2:]]))
"""
)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # -B: what has no room for a file would leave half of a module's byte code, for whoever imports it next
    command = [sys.executable, "-B", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@LINUX
@pytest.mark.parametrize("room", [0, 1, 4_095, 4_096, 50_000, 99_999])
@pytest.mark.parametrize("old", [None, "older answer\n"])
def test_the_old_file_stays_and_nothing_is_left(tmp_path: Path, room: int, old: str | None) -> None:
    """Wherever in the new content the disk ends."""
    path = tmp_path / "answer.json"
    if old is not None:
        path.write_text(old)
    program = (
        FULL.format(room=room) + "import pathlib\nfrom ordstream.ground.whole_file import write_whole\n"
    )
    program += "try:\n    write_whole(pathlib.Path(sys.argv[1]), 'x' * 100_000)\n"
    program += "except OSError as error:\n    print(error)"
    assert run(program, str(path)).stdout == f"{path} can't be written: File too large; {ADVICE}\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ([] if old is None else ["answer.json"])
    assert old is None or path.read_text() == old


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_whole(link, "new é")
    assert link.is_symlink()
    assert path.read_text(encoding="utf-8") == "new é"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    write_whole(tmp_path / "fresh", b"bytes")
    plain = tmp_path / "plain"
    plain.touch()
    assert (tmp_path / "fresh").stat().st_mode == plain.stat().st_mode
    assert len(list(tmp_path.iterdir())) == 4


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_device_is_written_as_it_is() -> None:
    write_whole(Path("/dev/null"), "text")
    with pytest.raises(OSError, match="/dev/full can't be written: No space left on device"):
        write_whole(Path("/dev/full"), "text")


@LINUX
def test_bench_shows_rows_that_it_can_not_save(tmp_path: Path) -> None:
    older = tmp_path / "made-up.csv"
    older.write_text("older rows")
    ended = run(BENCH.format(room=8_192, rows=2_000), str(tmp_path), "--no-plot")
    assert ended.returncode == 2
    assert (
        ended.stderr
        == f"ordstream: {older} can't be written: File too large; {ADVICE}; the rows are on stdout\n"
    )
    assert "a line\n" in ended.stdout
    shown = ended.stdout[ended.stdout.index("k,square") :].splitlines()
    assert [line.split(",")[:2] for line in shown] == [
        ["k", "square"],
        *([str(k), str(k * k)] for k in range(2_000)),
    ]
    assert older.read_text() == "older rows"
    assert list(tmp_path.iterdir()) == [older]


@LINUX
def test_bench_says_where_rows_are_whose_plot_it_can_not_save(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert run(BENCH.format(room=-1, rows=3), str(tmp_path)).returncode == 0
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes.keys() == {"made-up.csv", "made-up.png", "made-up.svg"}
    largest = max(sizes, key=lambda name: sizes[name])
    assert largest != "made-up.csv"
    before = (tmp_path / largest).read_bytes()
    ended = run(BENCH.format(room=sizes[largest] - 1, rows=3), str(tmp_path))
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith(f"the rows are in {tmp_path / 'made-up.csv'}")
    assert (tmp_path / largest).read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 3


@LINUX
def test_a_cost_model_that_can_not_be_saved(tmp_path: Path) -> None:
    from ordstream.lab.simulation.cost_model import CostModel

    path = tmp_path / "model.json"
    model = CostModel.load()
    model.save(path)
    before = path.read_bytes()
    assert json.loads(before)
    program = (
        FULL.format(room=len(before) // 2)
        + "import pathlib\nfrom ordstream.lab.simulation.cost_model import CostModel\n"
    )
    program += "try:\n    CostModel.load().save(pathlib.Path(sys.argv[1]))\n"
    program += "except OSError as error:\n    print(error)"
    assert run(program, str(path)).stdout == f"{path} can't be written: File too large; {ADVICE}\n"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]

"""Two prototype experiments and their jobs, small: one process with a Spark of its own, whose nodes overlap
and meet.

The other experiments run the same jobs; what they make of them is in tests/unit/lab/test_prototypes.py.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream as od
from ordstream.ground.cpus import allowed_cpus

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from ordstream.commands import cli
small = ["--tuples", "1000", "--no-plot", "--out", sys.argv[1]]
sys.exit(
    cli.main(["bench", "posg-fig12", "--busy-wait", "--time-scale", "0.03", *small])
    or cli.main(["bench", "dkg-fig11", "--time-scale", "0.2", *small])
)
"""


def table(path, columns):
    """The first columns of a CSV file, as numbers; those behind tell about the machine."""
    with path.open(newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head[: len(columns)] == columns
    return [[float(value) for value in row[: len(columns)]] for row in rows]


@pytest.mark.skipif("ORDSTREAM_LONG" not in os.environ, reason="the long form: ORDSTREAM_LONG=1 make test")
def test_prototype_experiments_write_their_figures(java, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.lower().count("hold") >= 4, ended.stdout
    mean = table(
        tmp_path / "posg-fig12.csv",
        ["k", "POSG", "Round-Robin", "S_L", "S_L min", "S_L max", "S_L simulated"],
    )
    # a node needs a processor to compute
    assert [row[0] for row in mean] == [k for k in (1, 2, 4, 8) if k <= allowed_cpus()]
    assert all(row[1] > 0 and 0 < row[4] <= row[3] <= row[5] for row in mean)
    assert mean[0][6] == 1  # in virtual time nothing disturbs one node
    parts = table(
        tmp_path / "dkg-fig11.csv",
        ["part", "DKG min", "DKG mean", "DKG max", "Modulo min", "Modulo mean", "Modulo max"],
    )
    assert [row[0] for row in parts] == list(range(5, 101, 5))
    assert all(0 <= row[1] <= row[2] <= row[3] <= 1.01 for row in parts)

"""The command line's engine `spark`, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tpcxbb_definition import ANSWERS, Tables
from tpcxbb_folders import cut_in_files

import ordstream

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark


def test_the_command_line_runs_spark_with_two_nodes(java, tmp_path):
    folder = cut_in_files(tmp_path / "data")
    command = [
        sys.executable,
        "-m",
        "ordstream",
        "run",
        "q2",
        "--engine",
        "spark",
        "--data",
        str(folder.path),
    ]
    command += ["--profile", "paper", "--nodes", "2", "--verify", "--json", "answer.json"]
    # the build under test
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "verified: equal to the batch answer"
    found = json.loads((tmp_path / "answer.json").read_text())
    assert (found["engine"], found["profile"], found["verified"]) == ("spark", "paper", True)
    assert found["answer"] == [list(row) for row in ANSWERS["q2"](Tables(folder))]
    assert [operator["kind"] for operator in found["operators"]].count("SF") == 1

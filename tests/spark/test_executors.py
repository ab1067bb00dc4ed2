"""Executors that are processes of their own, in a session of their own kind: the program in
tests/spark_tools.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import spark_cancel
import spark_tools

import ordstream as od

pytest.importorskip("pyspark")
pytestmark = pytest.mark.spark

# seconds; as in test_cut.py
LONGEST_AFTER_CANCEL = 5.0


def test_executors_that_are_processes_of_their_own(java, tmp_path):
    import pyspark

    home = tmp_path / "spark"  # a standalone executor writes to $SPARK_HOME/work
    home.mkdir()
    for name in ("bin", "sbin", "jars", "python", "data", "licenses"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    paths = [
        str(Path(file).parent)
        for file in (Path(od.__file__).parent, spark_tools.__file__, spark_cancel.__file__)
    ]
    environment = os.environ | {"SPARK_HOME": str(home), "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, spark_tools.__file__, str(tmp_path)]
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    for nodes in (2, 3):
        assert found[f"equal {nodes}"]
        assert found[f"tags {nodes}"]
        assert [found[f"reports {nodes}"].count(r) for r in found[f"reports {nodes}"]] == [1] * len(
            found[f"reports {nodes}"]
        )
    assert (tmp_path / "flag").exists()
    assert found["executors"] == 2
    assert found["presorted"] == 0
    assert found["attempts 2"] >= 1
    assert (
        found["explain"]
        == "2 nodes: plain Python functions: one node per core; a node works on the task's own thread"
    )
    for turn in (1, 2):
        assert found[f"grouped {turn}"]
        assert found[f"killed {turn}"]
    assert found["learnt"] == [True, ["scan_5"]]
    after = {name: value for name, value in found.items() if name.startswith("cancel")}
    print(after)
    assert len(after) == 2
    assert max(after.values()) < LONGEST_AFTER_CANCEL

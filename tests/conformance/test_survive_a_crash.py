"""The example of a stream that is killed, as a reader would run it."""

import os
import subprocess
import sys
from pathlib import Path

import ordstream as od

EXAMPLE = Path(__file__).parents[2] / "examples" / "survive_a_crash.py"


def test_the_output_is_that_of_one_run():
    environment = os.environ | {"PYTHONPATH": str(Path(od.__file__).parents[1])}  # the package under test
    command = [sys.executable, str(EXAMPLE)]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("killed after ")
    assert found.stdout.rstrip().endswith("the output is the same")


def test_it_can_be_read_at_once():
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 60

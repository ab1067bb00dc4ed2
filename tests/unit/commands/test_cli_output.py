"""The command line where its output can't be written: one sentence at most, and an exit status that
tells.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "ordstream", "--help"]
# argparse swallows errors of writing
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

FULL = Path("/dev/full")


def test_a_reader_that_has_gone_is_no_error():
    """As in `ordstream --help | head -1`."""
    process = subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)
    process.stdout.close()  # before anything was written
    error = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), error) == (141, b"")


def test_a_full_disk_is_told():
    if not FULL.exists():
        pytest.skip("no /dev/full here")
    with FULL.open("w") as full:
        ended = subprocess.run(
            COMMAND, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT
        )
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == ["ordstream: [Errno 28] No space left on device"]

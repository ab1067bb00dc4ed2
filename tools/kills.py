"""The long form of the tests in tests/kills: processes that are killed and started again.

Usage, from anywhere, with the interpreter that has the project's requirements::

    python tools/kills.py [--kills N] [--minutes M] [--seed S] node stream ...

Prints each kill as it comes, with the seconds since the one before it, and at last how many there were.
After `--minutes` no further kill is made: the outputs of what was killed until then are compared, and what
is left of the N is not tried. Another seed draws other moments, data and orders of faults; one that fails
fails again with the same seed, but for the random moments. Exit status: pytest's.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = {"node": "tests/kills/test_node_kills.py", "stream": "tests/kills/test_stream_kills.py"}
#: A line of `tests/kill_progress.py`.
KILL = re.compile(r"kill \d+: ")


def main() -> int:
    """Run the suites that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("suites", nargs="+", metavar="suite", help=f"any of {', '.join(SUITES)}")
    parser.add_argument("--kills", type=int, default=100, help="kills of each suite (100)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="make no kill after so many")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if unknown := [name for name in asked.suites if name not in SUITES]:
        parser.error(f"no suite {unknown[0]!r}: there is {', '.join(SUITES)}")
    if asked.kills < 1:
        parser.error("--kills is a number from 1")
    if not asked.minutes > 0:
        parser.error("--minutes is a number above 0")
    environment = os.environ | {
        "ORDSTREAM_CASES": "all",
        "ORDSTREAM_KILLS": str(asked.kills),
        "ORDSTREAM_KILLS_SEED": str(asked.seed),
        "ORDSTREAM_KILLS_MINUTES": str(asked.minutes),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "pytest", "-v", "-s", *(SUITES[name] for name in asked.suites)]
    return told(command, environment, asked.kills * len(asked.suites))


def told(command: list[str], environment: dict[str, str], kills: int) -> int:
    """Run it, pass on what it prints, and say how many kills there were; its exit status."""
    began, count = time.monotonic(), 0
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            count += KILL.search(line) is not None
            print(line, end="", flush=True)
    minutes = (time.monotonic() - began) / 60
    right = "every output is the reference's" if running.returncode == 0 else "see what failed"
    print(f"{count} kills, of {kills} that were asked for, in {minutes:.1f} minutes: {right}", flush=True)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main())

"""The long form of the tests in tests/kills: processes that are killed and started again.

Usage, from anywhere, with the interpreter that has the project's requirements::

    python tools/kills.py [--kills N] [--seed S] node stream ...

Prints each kill as it comes. Another seed draws other moments, data and orders of faults; one that fails
fails again with the same seed, but for the random moments. Exit status: pytest's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITES = {"node": "tests/kills/test_node_kills.py", "stream": "tests/kills/test_stream_kills.py"}


def main() -> int:
    """Run the suites that are named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("suites", nargs="+", metavar="suite", help=f"any of {', '.join(SUITES)}")
    parser.add_argument("--kills", type=int, default=100, help="kills of each suite (100)")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if unknown := [name for name in asked.suites if name not in SUITES]:
        parser.error(f"no suite {unknown[0]!r}: there is {', '.join(SUITES)}")
    if asked.kills < 1:
        parser.error("--kills is a number from 1")
    environment = os.environ | {
        "ORDSTREAM_KILLS": str(asked.kills),
        "ORDSTREAM_KILLS_SEED": str(asked.seed),
    }
    command = [sys.executable, "-m", "pytest", "-v", *(SUITES[name] for name in asked.suites)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Processes of a script that is no file: it is read from the standard input, or was taken away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}  # the build under test
SCRIPT = """
import pyarrow as pa
import ordstream as od

def numbered(row, state, emit):
    state.n += 1
    emit(row.user, state.n)

if __name__ == "__main__":
    import os, sys
    if sys.argv[1:] == ["gone"]:
        os.unlink(__file__)
    rows = pa.table({"user": [1, 1, 2] * 500})
    schema = pa.schema([("user", pa.int64()), ("n", pa.int64())])
    state = {"n": pa.int64()}
    counted = od.Pipeline(rows.schema).key_by("user").process(numbered, state=state, schema=schema)
    print(counted.run(rows, processes=2).table.equals(counted.run(rows).table))
"""


UNGUARDED = """
import pyarrow as pa
import ordstream as od

rows = pa.table({"user": [1, 1, 2] * 500})
counted = od.Pipeline(rows.schema).key_by("user").count("n")
try:
    print(%s)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("call", "processes"),
    [("counted.run(rows, processes=3)", 3), ("[*counted.stream(rows, processes=2)]", 2)],
)
def test_a_script_that_does_not_guard_what_it_starts(call: str, processes: int, tmp_path: Path) -> None:
    """A sentence, once, and not a trace of multiprocessing's from each process."""
    (tmp_path / "script.py").write_text(UNGUARDED % call)
    command = [sys.executable, "script.py"]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    (line,) = ended.stdout.splitlines()
    assert line.startswith(f"PlanError processes={processes}: each process imports ")
    assert line.endswith(
        "script.py, which would start processes again: put what the script runs, its imports and functions "
        'apart, behind if __name__ == "__main__":'
    )


@pytest.mark.parametrize("how", ["-", "file", "gone"])
@pytest.mark.thin(1)
def test_a_script_from_anywhere(how: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = [sys.executable, *(["-"] if how == "-" else ["script.py", how])]
    ended = subprocess.run(
        command, input=SCRIPT, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=120
    )
    assert (ended.stdout, ended.returncode) == ("True\n", 0), ended.stderr
    assert ended.stderr == ""

"""The checker of wheels sees what a wheel must not have, what it lacks, and that it is too large."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check_wheel.py"
spec = importlib.util.spec_from_file_location("check_wheel", TOOL)
check_wheel = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_wheel)

MODULES = check_wheel.compiled_modules()
RIGHT = {
    **{f"{name}.cpython-311-x86_64-linux-gnu.so": b"\x7fELF" for name in MODULES},
    **dict.fromkeys(check_wheel.NEEDED, b""),
    "ordstream/__init__.py": b"",
    "ordstream-0.1.0.dist-info/METADATA": b"Name: ordstream\n",
    "ordstream.libs/libstdc++-1a2b.so.6": b"",
}
ADDED = {
    "ordstream/_core/lab/testing.cpython-311-darwin.so": "it carries the laboratory: ordstream/_core/lab/t",
    "ordstream/_core/lab/simulator.pyd": "it carries the laboratory: ordstream/_core/lab/simulator",
    "ordstream/lab/__init__.py": "it carries the laboratory: ordstream/lab/__init__.py",
    "ordstream/_core/flow/run.pyx": "it carries sources: ordstream/_core/flow/run.pyx",
    "ordstream/_core/flow/run.cpp": "it carries sources: ordstream/_core/flow/run.cpp",
    "tests/conftest.py": "it carries a file of nobody's: tests/conftest.py",
}


def packed(folder, files):
    wheel = folder / "ordstream-0.1.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return wheel


def test_a_right_wheel(tmp_path):
    assert check_wheel.wrong_in(packed(tmp_path, RIGHT), MODULES) == []


@pytest.mark.parametrize("name", ADDED)
def test_what_must_not_be_in_it(name, tmp_path):
    (line,) = check_wheel.wrong_in(packed(tmp_path, RIGHT | {name: b""}), MODULES)
    assert line.startswith(ADDED[name])


ONE = "ordstream/_core/flow/run.cpython-311-x86_64-linux-gnu.so"
SHARED = f"{check_wheel.SHARED}.cpython-311-x86_64-linux-gnu.so"


@pytest.mark.parametrize("name", [*check_wheel.NEEDED, ONE, SHARED])
def test_what_must_be_in_it(name, tmp_path):
    files = {key: value for key, value in RIGHT.items() if key != name}
    (line,) = check_wheel.wrong_in(packed(tmp_path, files), MODULES)
    assert line.startswith("it lacks ")
    assert name.partition(".cpython")[0] in line


def test_size(tmp_path):
    wheel = packed(tmp_path, RIGHT)
    size = wheel.stat().st_size
    assert check_wheel.wrong_in(wheel, MODULES, size + 1) == []
    assert check_wheel.wrong_in(wheel, MODULES, size) == [f"it has {size:,} bytes, {size:,} are too many"]


def test_the_laboratory_is_no_module_of_a_wheel():
    assert {"ordstream/_core/flow/run", "ordstream/_core/balance/las"} < MODULES
    assert not [name for name in MODULES if "/lab/" in name]


def test_no_module_of_a_wheel_needs_the_laboratory():
    """A wheel without it would not load."""
    import architecture

    taken, _ = architecture.imports(architecture.ROOT)
    below = ("ordstream._core.lab", "ordstream.lab")
    wrong = [
        one.place
        for one in taken
        if one.target.startswith(below) and not one.module.startswith((*below, "ordstream.commands.bench"))
    ]
    assert wrong == []


def test_command(tmp_path):
    """It prints what is in a wheel, and exits with what is wrong."""
    wheel = packed(tmp_path, RIGHT)
    command = [sys.executable, str(TOOL), str(wheel)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "compiled modules" in ended.stdout
    packed(tmp_path, RIGHT | {"ordstream/lab/__init__.py": b""})
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "it carries the laboratory" in ended.stderr) == (1, True)

"""Ctrl-C and a command: one line and exit status 130, whichever import or line it hits; nothing else on
stderr.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream
from ordstream.commands import cli, ctrl_c

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to itself")

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}  # the build under test
TOLD = (130, "", "ordstream: interrupted\n")

# What is imported before Ctrl-C is heard: nothing heavy.
BEFORE = ("ordstream", "ordstream.__main__", "ordstream.commands", "ordstream.commands.ctrl_c")

# The command line, which gets SIGINT at its n-th import from the moment on at which it listens. It says on
# stderr what came before that moment, and at the end how many imports there were.
AT_IMPORT = """
import os, runpy, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # as from a terminal; a background job's is ignored
moment = int(sys.argv.pop(1))

class Finder:
    before, seen = [], 0

    def find_spec(self, name, path=None, target=None):
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self.before.append(name)
        else:
            Finder.seen += 1
            if Finder.seen == moment:
                os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
try:
    runpy.run_module("ordstream", run_name="__main__", alter_sys=True)
finally:
    if not moment:
        print(Finder.seen, *Finder.before, file=sys.stderr)
"""


def run(program: str, *arguments: object, folder: Path | None = None) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a Python program."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT, cwd=folder
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_at_any_import(tmp_path: Path) -> None:
    asked = ("generate", "--rows", 500, "--out", tmp_path / "rows")
    status, _, errors = run(AT_IMPORT, 0, *asked)
    imports, *before = errors.splitlines()[-1].split()
    assert status == 0
    assert set(before) == {*BEFORE}
    assert int(imports) > 300
    for moment in (1, 2, *(int(imports) * share // 100 for share in (10, 35, 60, 85))):
        status, out, errors = run(AT_IMPORT, moment, *asked[:-1], tmp_path / str(moment))
        *bar, last = errors.splitlines()
        assert (status, out, last) == (130, "", "ordstream: interrupted"), (
            f"at import {moment} of {imports}: {errors}"
        )
        assert all(line.startswith("generating ") for line in bar), errors
        assert not (tmp_path / str(moment)).exists()


COMMAND = """
import atexit, os, signal, sys, time
from ordstream.commands import ctrl_c

signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0)

def command():
    {body}
    return 0

ctrl_c.listen()
sys.exit(ctrl_c.run(command))
"""


def of(body: str) -> tuple[int, str, str]:
    """What comes of a command that does so."""
    return run(COMMAND.format(body=body.strip("\n").replace("\n", "\n    ")))


def test_while_the_command_runs() -> None:
    """What it has open is closed."""
    body = "try:\n    interrupt()\n    print('went on')\nfinally:\n    sys.stderr.write('closed\\n')"
    assert of(body) == (130, "", "closed\nordstream: interrupted\n")


def test_an_interrupt_that_is_swallowed_is_told_all_the_same() -> None:
    assert of("try:\n    interrupt()\nexcept BaseException:\n    pass") == TOLD


def test_an_interrupt_in_a_destructor_is_raised_again() -> None:
    """Python drops it there, with a trace; it must not be lost."""
    body = (
        "class Dropped:\n    def __del__(self):\n        interrupt()\nDropped()\nfor _ in range(1000):\n   "
        " time.sleep(0.01)"
    )
    assert of(body) == TOLD


def test_other_exceptions_in_destructors_are_shown() -> None:
    status, _, errors = of(
        "class Dropped:\n    def __del__(self):\n        raise ValueError('mine')\nDropped()"
    )
    assert status == 0
    assert "ValueError: mine" in errors


def test_the_second_does_not_disturb_what_the_first_closes() -> None:
    status, out, errors = of("try:\n    interrupt()\nfinally:\n    interrupt()\n    print('closed')")
    assert (status, out, errors) == (130, "closed\n", "ordstream: interrupted\n")


def test_a_later_one_leaves_at_once() -> None:
    body = (
        "ctrl_c.PATIENCE = 0.0\ntry:\n    interrupt()\nfinally:\n    interrupt()\n    print('closed', "
        "flush=True)"
    )
    assert of(body) == TOLD


def test_afterwards_it_is_ignored() -> None:
    """What was asked for has been done and told."""
    assert of("atexit.register(interrupt)\nprint('the answer')") == (0, "the answer\n", "")


def test_while_output_is_written_it_leaves_at_once() -> None:
    assert of("ctrl_c.writing()\ninterrupt()\nprint('went on', flush=True)") == TOLD


def test_where_it_is_ignored_it_stays_ignored() -> None:
    """As a shell's background job."""
    assert of("pass\nprint('went on')") == (0, "went on\n", "")
    program = COMMAND.replace("signal.default_int_handler", "signal.SIG_IGN").format(
        body="interrupt(); print('went on')"
    )
    assert run(program) == (0, "went on\n", "")


@pytest.mark.parametrize(
    "error", [ImportError("numpy failed"), SystemError("error return without exception"), OSError("closed")]
)
def test_an_error_that_an_interrupt_became_is_told_as_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Imports and C code make other exceptions of it."""

    def command(chosen: argparse.Namespace) -> int:
        raise error

    class Parser:
        def parse_args(self, arguments: object) -> argparse.Namespace:
            return argparse.Namespace(command=command)

    monkeypatch.setattr(cli, "_parser", Parser)
    monkeypatch.setattr(ctrl_c, "_first", 1.0)
    monkeypatch.setattr(ctrl_c, "_told", False)
    assert cli.main([]) == 130
    assert capsys.readouterr().err == "ordstream: interrupted\n"


APART = """
import os, signal, subprocess, sys, threading, time
from ordstream.commands.apart import apart

signal.signal(signal.SIGINT, signal.default_int_handler)
closed = []

def work():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        child.wait()
        raise RuntimeError("its Java has gone")
    finally:
        closed.append(child.returncode)

assert apart(lambda: 7) == 7
try:
    apart(lambda: {}["absent"])
except KeyError:
    pass
try:
    apart(work)
except KeyboardInterrupt:
    print(*closed)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="finds a process that is not yet connected in /proc")
def test_what_runs_apart_loses_its_java_process() -> None:
    """The interrupt meets the main thread only; the other one sees that its process has ended, and
    closes what it holds.
    """
    assert run(APART) == (0, f"-{signal.SIGTERM.value}\n", "")

"""The command line where its output can't be written: one sentence at most, and an exit status that
tells.
"""

from __future__ import annotations

import argparse
import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import ordstream
from ordstream.commands import cli, stream_demo

COMMAND = [sys.executable, "-m", "ordstream", "--help"]
# argparse swallows errors of writing
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

BUILD = {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}  # the build under test

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
    assert ended.stderr.splitlines() == ["ordstream: the output can't be written: No space left on device"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_a_full_disk_is_told_without_a_buffer_too(arguments):
    """argparse drops what fails in writing, and then nothing is left that could fail."""
    if not FULL.exists():
        pytest.skip("no /dev/full here")
    with FULL.open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "ordstream", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | BUILD | {"PYTHONUNBUFFERED": "1"},
        )
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == ["ordstream: the output can't be written: No space left on device"]


def test_a_closed_stdout_is_told():
    """The answer was gone, with status 0."""
    ended = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=ENVIRONMENT | BUILD,
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("ordstream: the output can't be written: stdout is closed")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "ascii:surrogateescape"])
def test_signs_that_the_terminal_has_not_are_escaped(encoding):
    """A Greek letter in the help ended the command."""
    shown = "from ordstream.commands import cli; cli._show_any_text(); print('k \\u03bb')"
    ended = subprocess.run(
        [sys.executable, "-c", shown],
        capture_output=True,
        check=False,
        env=ENVIRONMENT | BUILD | {"PYTHONIOENCODING": encoding},
    )
    assert ended.stdout == b"k \\u03bb\n", ended.stderr
    ended = subprocess.run(
        [sys.executable, "-m", "ordstream", "bench", "--help"],
        capture_output=True,
        check=False,
        env=ENVIRONMENT | BUILD | {"PYTHONIOENCODING": encoding},
    )
    assert ended.returncode == 0 or b"the laboratory is part of a checkout" in ended.stderr, ended.stderr


def test_a_folder_that_is_no_text_in_the_locale_is_named_with_what_to_do(tmp_path):
    """pyarrow said "'utf-8' codec can't encode characters"."""
    folder = tmp_path / "\u00fc"
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "ordstream", "run", "q4", "--data", "."],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT | BUILD | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )
    assert ended.returncode == 2
    assert "\\xfc' is no text in this locale, and pyarrow can't open it: start Python with" in ended.stderr


def test_a_path_that_fails_later_is_told_too(monkeypatch, capsys):
    def command(chosen):
        "a\udcff".encode()

    parser = argparse.ArgumentParser()
    parser.set_defaults(command=command)
    monkeypatch.setattr(cli, "_parser", lambda: parser)
    assert cli.main([]) == 2
    assert "'a\\udcff' has bytes in its name that are not UTF-8" in capsys.readouterr().err


def test_a_reader_that_goes_in_the_middle_is_no_error_either(monkeypatch, capsys):
    """With PYTHONUNBUFFERED, as in containers, or of much output it told "[Errno 32] Broken pipe"."""

    def command(chosen):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    parser = argparse.ArgumentParser()
    parser.set_defaults(command=command)
    monkeypatch.setattr(cli, "_parser", lambda: parser)
    assert cli.main([]) == 141
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("arguments", [["rewind", "folder", "3"], ["demo", "more"], ["epochs", "x", "--no"]])
def test_an_argument_too_many_points_to_the_help_of_its_command(arguments, capsys):
    assert cli.main(arguments) == 2
    command, *_, last = arguments
    assert capsys.readouterr() == (
        "", f"ordstream: unrecognized arguments: {last} (ordstream {command} --help)\n"
    )  # fmt: skip


def test_each_command_says_with_what_it_takes_no_options_of_a_node(capsys):
    for command, other in (("run", "--engine sql"), ("demo", "--stream")):
        assert cli.main([command, "--help"]) == 0
        assert f"ordered node, not with {other}:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("finished", "serials", "rows", "states", "line"),
    [
        (False, (1, 1_000), [60, 8], 871, "micro-batch 4: clicks 1 to 1,000, 68 outputs, 871 rows of state"),
        (False, (7, 7), [1], 1, "micro-batch 4: clicks 7 to 7, 1 output, 1 row of state"),
        (True, (8_001, 8_000), [40], 0, "end of the stream: 40 outputs, 0 rows of state"),
    ],
)
def test_the_stream_demo_tells_no_clicks_of_the_end(finished, serials, rows, states, line):
    epoch = SimpleNamespace(
        number=4, finished=finished, serials=serials, state_rows=states, output=[{"rows": n} for n in rows]
    )
    assert stream_demo._told(epoch) == f"  {line}: committed"


def test_a_command_that_finds_the_disk_full_says_that_it_is_the_output(monkeypatch, capsys):
    class Parser:
        def parse_args(self, arguments):
            return argparse.Namespace(command=self.print)

        def print(self, chosen):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cli, "_parser", Parser)
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err == "ordstream: the output can't be written: No space left on device\n"

"""The command line: ``ordstream bench``, ``demo``, ``epochs``, ``generate``, ``rewind``, ``run``.

A command's module is imported when the command is chosen: what can be run is listed without NumPy, pyarrow
and the laboratory.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import ordstream
from ordstream.commands import ctrl_c
from ordstream.errors import OrdstreamError

#: Each command, its line in ``--help``, and the function of a module of this folder that adds its arguments.
COMMANDS = (
    ("bench", "run a paper's experiment again", "bench", "add_bench"),
    ("demo", "run TPCx-BB query 2 in Spark on an ordered node and check the answer", "run", "add_demo"),
    ("epochs", "list what a stream in Spark has committed", "epochs", "add_epochs"),
    ("generate", "write TPCx-BB tables as Parquet", "generate", "add_generate"),
    (
        "rewind",
        "take a stream in Spark, and Spark's own log of it, back to an epoch",
        "epochs",
        "add_rewind",
    ),
    ("run", "run a TPCx-BB query", "run", "add_run"),
)

#: What is told in one sentence; any other exception is a fault of ours, and shown with its trace.
TOLD = (OrdstreamError, ValueError, OSError, RuntimeError, ImportError, MemoryError)


NO_STDOUT = "the output can't be written: stdout is closed (>/dev/null drops it)"


class _Unwritten(OSError):
    """The help can't be written."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

    def _print_message(self, message: str, file: Any = None) -> None:
        """As argparse's, which drops what fails: with PYTHONUNBUFFERED nothing is left to write then, and
        nobody would be told.
        """
        if not message or file is None:
            return
        try:
            file.write(message)
        except BrokenPipeError:
            raise
        except OSError as error:
            if file is sys.stdout:
                raise _Unwritten(error.errno, error.strerror) from error

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"ordstream: {message} ({self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Returns
    -------
    int
        0; 1 if an answer differs from the batch answer; 2 if the command could not be run, or its output not
        be written; 130 after Ctrl-C; 141 when the reader of the output has gone (`ordstream ... | head -1`).
    """
    _show_any_text()
    # what Java writes to descriptor 1 would go into whichever file has it by then
    status, reason = (2, NO_STDOUT) if sys.stdout is None else _run(arguments)
    ctrl_c.writing()
    unwritten = _flush()
    if status == ctrl_c.STATUS:
        return ctrl_c.tell()
    if isinstance(unwritten, BrokenPipeError):
        return 141
    if unwritten is not None and not reason:
        status, reason = 2, f"the output can't be written: {unwritten.strerror or unwritten}"
    if reason and sys.stderr is not None:  # print() would take stdout in its place
        with contextlib.suppress(OSError):
            print(f"ordstream: {reason}", file=sys.stderr)
    return status


def _run(arguments: Sequence[str] | None) -> tuple[int, str]:
    """Exit status, and what went wrong in one sentence."""
    try:
        chosen = _parser().parse_args(arguments)
        command: Callable[[argparse.Namespace], int] = chosen.command
        return command(chosen), ""
    except SystemExit as end:  # --help, or a wrong argument, which has been told
        return int(end.code or 0), ""
    except KeyboardInterrupt:
        return ctrl_c.STATUS, ""
    except Exception as error:
        if ctrl_c.came():  # this is what became of the interrupt on its way through others' code
            return ctrl_c.STATUS, ""
        if isinstance(error, BrokenPipeError):
            return 141, ""  # whoever read has what it wanted, as above
        if isinstance(error, UnicodeEncodeError) and isinstance(error.object, str):
            from ordstream.commands.argument_types import not_utf8

            return 2, not_utf8(error.object) or str(error)
        if isinstance(error, OSError) and (
            isinstance(error, _Unwritten) or (error.errno == errno.ENOSPC and error.filename is None)
        ):  # files have names
            return 2, f"the output can't be written: {error.strerror or error}"
        if isinstance(error, TOLD):
            return 2, str(error) or type(error).__name__
        raise


def _show_any_text() -> None:
    """What the terminal's encoding has no sign for is shown as an escape: it ended the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # in UTF-8 this shows the bytes of a file's name as they are
            if stream.errors == "surrogateescape" and codecs.lookup(stream.encoding).name == "utf-8":
                continue
            stream.reconfigure(errors="backslashreplace")


def _flush() -> OSError | None:
    """Write what stdout still holds; where that fails, drop it, or the interpreter would complain at
    exit.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # not a file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


class Command(_Parser):
    """The parser of one command, which gets its arguments when the command is chosen."""

    def __init__(self, *, module: str = "", function: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._home = module, function
        self._is_filled = False

    def fill(self) -> None:
        """Import the command's module and add its arguments, once."""
        if not self._is_filled:
            self._is_filled = True
            ctrl_c.starting(self._fill)

    def _fill(self) -> None:
        module, function = self._home
        getattr(importlib.import_module(f"ordstream.commands.{module}"), function)(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ever, after `fill`; what is left over is told here, where it says whose help to read."""
        self.fill()
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ordstream", description="Ordered stream processing on all cores.")
    parser.add_argument("--version", action="version", version=f"ordstream {ordstream.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Command)
    for name, text, module, function in COMMANDS:
        commands.add_parser(name, help=text, module=module, function=function)
    return parser

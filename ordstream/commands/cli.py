"""The command line: ``ordstream bench``, ``demo``, ``generate``, ``run``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from ordstream.commands import ctrl_c
from ordstream.commands.bench import add_bench
from ordstream.commands.generate import add_generate
from ordstream.commands.run import add_demo, add_run
from ordstream.errors import OrdstreamError

#: What is told in one sentence; any other exception is a fault of ours, and shown with its trace.
TOLD = (OrdstreamError, ValueError, OSError, RuntimeError, ImportError, MemoryError)


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one sentence."""

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
        0; 1 if an answer differs from the batch answer; 2 if the command could not be run, or its output not be written; 130
        after Ctrl-C; 141 when the reader of the output has gone (`ordstream ... | head -1`).
    """
    status, reason = _run(arguments)
    ctrl_c.writing()
    unwritten = _flush()
    if status == ctrl_c.STATUS:
        return ctrl_c.tell()
    if isinstance(unwritten, BrokenPipeError):
        return 141
    if unwritten is not None and not reason:
        status, reason = 2, str(unwritten)
    if reason:
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
            return 141, str(error)
        if isinstance(error, TOLD):
            return 2, str(error) or type(error).__name__
        raise


def _flush() -> OSError | None:
    """Write what stdout still holds; where that fails, drop it, or the interpreter would complain at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):  # not a file
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="ordstream", description="Ordered stream processing on all cores.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_bench(commands)
    add_demo(commands)
    add_generate(commands)
    add_run(commands)
    return parser

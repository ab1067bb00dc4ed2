"""Where in the user's code an exception was raised: Spark and processes hand on a text, not a traceback."""

from __future__ import annotations

import functools
import os
import sysconfig
from pathlib import Path
from types import TracebackType

_PACKAGE = str(Path(__file__).resolve().parent.parent)


def place_of(error: BaseException | None) -> str:
    """ "job.py:12, in parse": the innermost line of the user's own code that an exception passed.

    A line of an installed library only where there is no other: then the first one behind ordstream's. ""
    where no Python code outside of ordstream raised it.
    """
    frames = [] if error is None else list(_frames(error.__traceback__))
    own = [frame for frame in frames if not frame[0].startswith(_libraries())]
    if not frames:
        return ""
    file, line, function = own[-1] if own else frames[0]
    return f"{file}:{line}, in {function}"


def _frames(trace: TracebackType | None) -> list[tuple[str, int, str]]:
    """(file, line, function) of the frames that are not ordstream's, outermost first."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        # compiled modules name their sources by a path that begins with the package
        if not code.co_filename.startswith((_PACKAGE + os.sep, "ordstream/")):
            found.append((code.co_filename, trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return found


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({f"{paths[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")}) + (
        "<frozen ",
    )

"""Ctrl-C at every place of the reading thread's Python code: whatever line it hits, the workers are gone
when the caller has it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from stress_tools import batches, keyed, keyed_rows, rows_of, stateless, table

import ordstream as od

PACKAGE = str(Path(od.__file__).parent) + os.sep
Place = tuple[str, int, str]


class Interrupt:
    """A trace function that raises KeyboardInterrupt the first time that a place not met before is met,
    and at no other.
    """

    def __init__(self) -> None:
        self.hit: set[Place] = set()
        self.last: Place | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE):
            return None
        place = (code.co_filename, frame.f_lineno, event)
        if event in ("call", "line") and place not in self.hit:
            self.hit.add(place)
            self.last = place
            raise KeyboardInterrupt
        return self

    def during(self, body: Callable[[], None]) -> bool:
        """Whether the body was interrupted; the check of threads is made while the exception, and its
        traceback, are alive.

        Python itself loses an interrupt that comes while it drops an object, as the source's generator: then
        nothing is raised.
        """
        self.last = None
        lost: list[type[BaseException]] = []
        hook = sys.unraisablehook
        sys.unraisablehook = lambda unraisable: lost.append(unraisable.exc_type)
        sys.settrace(self)
        try:
            body()
        except KeyboardInterrupt:
            sys.settrace(None)
            self.check_threads()
        else:
            sys.settrace(None)
            self.check_threads()
            assert (self.last is None) == (lost == []), f"the interrupt at {self.last} was swallowed"
        finally:
            sys.settrace(None)
            sys.unraisablehook = hook
        assert set(lost) <= {KeyboardInterrupt}, lost
        return self.last is not None

    def check_threads(self) -> None:
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("ordstream")]
        assert not left, f"interrupted at {self.last}: {left} are still there"


def read_all(live: bool, workers: int) -> None:
    data = iter(batches("few", 400, 100)) if live else batches("few", 400, 100)
    for _ in keyed().stream(data, workers=workers):
        pass


def read_some(live: bool, workers: int) -> None:
    data = iter(batches("few", 4_000, 10)) if live else batches("few", 4_000, 10)
    with stateless().stream(data, workers=workers, max_chunks=64, chunk_rows=1) as stream:
        next(stream)


def collect(live: bool, workers: int) -> None:
    data = iter(batches("few", 400, 100)) if live else batches("few", 400, 100)
    keyed().run(data, workers=workers, debug=True, seed=1)


@pytest.mark.parametrize(
    ("body", "live", "workers"),
    [
        (read_all, True, 2),
        (read_all, False, 2),
        (read_some, False, 2),
        (collect, True, 0),
        (collect, True, 2),
    ],
)
@pytest.mark.thin(2)
def test_ctrl_c_anywhere(body: Callable[[bool, int], None], live: bool, workers: int) -> None:
    body(live, workers)  # imports: interrupted anywhere in one, each next round would begin it anew
    interrupt = Interrupt()
    rounds = 0
    while interrupt.during(lambda: body(live, workers)):
        rounds += 1
        assert rounds < 2000
    assert rounds > 50  # the places of a run were really met
    assert rows_of(keyed().run(table("few", 500), workers=2).batches) == keyed_rows("few", 500)

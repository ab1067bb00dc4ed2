"""Ctrl-C for a process that is one command: one line on stderr and exit status 130, from the first line of
ours to the last.

What SIGINT does (`_heard`), in the order of the phases:

* **Starting**, while modules are imported (the command's own in `starting`): the process ends at once.
  Nothing is open that could be lost, and an interrupt raised inside an import comes out as anything: an
  ImportError of NumPy's, a trace, nothing at all.
* **Running** a command: KeyboardInterrupt, once. It closes what is open (streams, child processes, Java) on
  its way to `ordstream.commands.cli`. What becomes of it on the way does not matter (`came`): an interrupted
  command is told as interrupted. Where Python drops it, in a destructor, it is raised again (`_raise_lost`).
* **Writing** what stdout still holds: as while starting. A reader that does not read must not keep the
  process.
* **Done**: ignored, to the end of the interpreter. The command's output and status stand.

A second Ctrl-C within `PATIENCE` of the first is the same one for us (a shell and a wrapper both send it); a
later one ends the process at once, whatever is still being closed. Python's start and its `site`, and a
console script's own imports, come before our first line: there Python answers Ctrl-C its way.

Imports only what the interpreter has loaded already: until `listen` is called nothing here is in force.
"""

from __future__ import annotations

# What the module signal is made of: its enumerations take longer than all the rest here.
import _signal  # type: ignore[import-not-found]
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STATUS = 130
LINE = "ordstream: interrupted"
PATIENCE = 3.0  # seconds
AGAIN = 0.01  # seconds until an interrupt that Python dropped is raised again

LEAVES, RAISES = "leaves at once", "raises KeyboardInterrupt"

_answer = LEAVES
_first: float | None = None  # when the first Ctrl-C came
_told = False
_stderr: int | None = None  # the process's own: while Java starts, file descriptor 2 is a pipe to our filter


def listen() -> None:
    """Hear Ctrl-C from now on; at first the process leaves at once. Main thread only.

    Where SIGINT is ignored (a shell's background job), it stays ignored.
    """
    global _stderr
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_IGN:
        return
    _signal.signal(_signal.SIGINT, _heard)
    sys.unraisablehook = _raise_lost
    try:
        _stderr = os.dup(2)
    except OSError:  # it is closed
        _stderr = None


def run(command: Callable[[], int]) -> int:
    """Run a command, in which Ctrl-C raises KeyboardInterrupt; returns its exit status, or 130.
    Afterwards Ctrl-C is ignored.
    """
    global _answer
    try:
        _answer = RAISES
        status = command()
        writing()
    except KeyboardInterrupt:  # there is only one, so no other can come in here
        status = STATUS
    if came() and not _told:
        status = tell()
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    return status


def starting(work: Callable[[], None]) -> None:
    """Do what belongs to the start, the import of a command's modules: Ctrl-C leaves at once meanwhile."""
    global _answer
    before, _answer = _answer, LEAVES
    try:
        work()
    finally:
        _answer = before


def writing() -> None:
    """The command has ended; its output is being written: Ctrl-C leaves at once."""
    global _answer
    _answer = LEAVES


def came() -> bool:
    """Whether Ctrl-C came, whatever became of its KeyboardInterrupt."""
    return _first is not None


def tell() -> int:
    """Say on stderr that Ctrl-C came; returns the exit status."""
    global _told
    _told = True
    try:
        if _stderr is not None:
            os.write(_stderr, f"{LINE}\n".encode())
        else:
            print(LINE, file=sys.stderr)
    except (OSError, ValueError, AttributeError):  # closed, or there is none
        pass
    return STATUS


def _heard(number: int, frame: FrameType | None) -> None:
    global _first
    now = time.monotonic()
    if _first is None:
        _first = now
        if _answer is RAISES:
            raise KeyboardInterrupt
    elif now - _first < PATIENCE:
        return
    if not _told:
        tell()
    os._exit(STATUS)


def _raise_lost(unraisable: sys.UnraisableHookArgs) -> None:
    """Python has dropped an exception: our KeyboardInterrupt is raised anew, outside of what dropped it;
    others are shown as ever.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    import threading  # not before it is needed

    threading.Thread(target=_again, name="ordstream-ctrl-c", daemon=True).start()


def _again() -> None:
    global _first
    import _thread

    time.sleep(AGAIN)
    _first = None
    _thread.interrupt_main()

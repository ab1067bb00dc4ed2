"""The threads of a run's workers: started as the core wants them, and out of the core before it goes.

They know the core but not the stream, so that a stream that the user dropped is collected.

Ctrl-C may come while the reading thread starts one: then nobody can tell whether it runs. Each thread
therefore says so itself when it enters the core, or stays out once the door is shut.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from ordstream._core.flow.worker_thread import (
    have_left,
    interrupt,
    room_for_exceptions,
    start_surely,
    work,
)

if sys.platform != "win32":
    import resource

# Stack per level of Python's recursion limit. Through C it takes 2.5 KiB with CPython 3.11 and 3.12 and 5.0
# with 3.13 (`sorted` of objects whose `__lt__` sorts; json, repr, map, re, pickle, getattr take less): three
# times the most.
LEVEL_BYTES = 16 << 10
# What a thread gets at least, whatever the limit; and at most, unless the main thread has more. Virtual
# memory: only used pages count.
LEAST_STACK_BYTES = 16 << 20
MOST_STACK_BYTES = 256 << 20
# How long the end of a run waits for sources that block, together. Their threads are daemons, and touch
# nothing after it.
BLOCKED_SOURCE_S = 0.5
# How long a thread that is being started is given to show itself.
SHOW_S = 0.1
# After Ctrl-C: how long a function may go on before it is interrupted; between two interrupts, for it may be
# cleaning up; and until its thread is given up.
MAY_END_S, MAY_CLEAN_UP_S, GIVEN_UP_S = 0.3, 1.0, 3.0
# How long an interrupt waits to be raised: a thread in Python's code comes to it as soon as it has the GIL.
RAISED_IN_S = 0.1


def stack_bytes() -> int:
    """Bytes of stack for a thread that may run user code.

    What a function may do on the main thread it may do on ours: a recursion, also one through C (`sorted`
    with a `__lt__` that sorts), meets Python's recursion limit before the stack ends, and what returns there
    returns here. So the size follows the limit that is in force when the thread starts. (What the user has
    set with `threading.stack_size` counts where it is more: `start_surely`.)
    """
    main = 0
    if sys.platform != "win32":
        main = resource.getrlimit(resource.RLIMIT_STACK)[0]
    most = max(MOST_STACK_BYTES, min(main, 1 << 30) if main >= 0 else 1 << 30)
    return max(LEAST_STACK_BYTES, min(LEVEL_BYTES * sys.getrecursionlimit(), most))


class RunThread(threading.Thread):
    """A daemon that may run user code: in a copy of the context of the thread that makes it, so that what a
    function reads there (`decimal.getcontext()`, `numpy.errstate`, any ContextVar) is what it would read
    without threads.

    Parameters
    ----------
    target : callable
    name : str
    args : tuple
    context : contextvars.Context, optional
        A copy that no other thread is in.
    """

    def __init__(
        self,
        target: Callable[..., object],
        name: str,
        args: tuple[Any, ...] = (),
        context: contextvars.Context | None = None,
    ) -> None:
        within = contextvars.copy_context() if context is None else context
        super().__init__(target=within.run, args=(target, *args), name=name, daemon=True)


class SourceThread(RunThread):
    """Reads one of several sources for the thread that started it."""

    asked_by: threading.Thread


def asker(thread: threading.Thread) -> threading.Thread:
    """The thread for which this one reads a source, if it does; else itself."""
    return thread.asked_by if isinstance(thread, SourceThread) else thread


def start(thread: threading.Thread) -> None:
    """Start a thread that may run user code; an interrupt meanwhile is raised when it has started.

    Raises
    ------
    RuntimeError
        There can be no more threads, or no more now.
    """
    try:
        start_surely(thread, stack_bytes())
    except RuntimeError as error:
        if "start new thread" not in str(error) and "shutdown" not in str(error):
            raise  # of a handler of signals, or because one raised in the middle of it
        if "shutdown" in str(error):  # Python before 3.12.3, as soon as the main thread has ended
            advice = "have the main thread wait for the run: join the thread that runs it"
        else:
            advice = "allow more (ulimit -u), or use fewer workers (with workers=0 a table needs none)"
        raise RuntimeError(f"thread {thread.name!r}: {error}; {advice}") from error


class WorkerThreads:
    """Threads of the workers of one core run.

    Thread safety: `start` under the feeder's lock, everything else from any thread.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._context: contextvars.Context | None = None  # of who began to read
        self._threads: list[threading.Thread] = []
        self._entry = threading.RLock()  # a signal handler may close while this very thread holds it
        self._shut = False
        #: Some did not end, and nobody waits for them but a thread of its own.
        self.left_behind = False
        self._pressed_again = False
        # Of each thread that is, or was, in the core: held until it has left, and its identity.
        self._inside: list[tuple[threading.Lock, int]] = []

    def __len__(self) -> int:
        return len(self._threads)

    def __contains__(self, thread: object) -> bool:
        return thread in self._threads

    def start(self) -> None:
        """Threads for the workers that the core wants by now. Where one that it wants later, of as many as
        bring something, can't be started, the run goes on with those that it has.
        """
        wanted = self._core.hire()
        if not wanted:
            return
        room_for_exceptions()
        later = bool(self._threads)
        if self._context is None:
            self._context = contextvars.copy_context()
        for index in wanted:
            name = f"ordstream-worker-{index}"
            thread = RunThread(self._work, name, args=(index,), context=self._context.copy())
            self._threads.append(thread)
            try:
                start(thread)
            except RuntimeError:
                if later and thread.ident is None:
                    self._threads.remove(thread)
                    return
                raise

    def _work(self, index: int) -> None:
        left = threading.Lock()
        with self._entry:
            if self._shut:
                return
            left.acquire()
            self._inside.append((left, threading.get_ident()))
        with contextlib.suppress(KeyboardInterrupt):  # of `interrupt`: the function had just returned
            work(self._core, index, left)

    def shut(self) -> None:
        """From now on no thread enters the core."""
        with self._entry:
            self._shut = True

    def join(self, interrupting: bool = False) -> bool:
        """Wait until all have left the core, which was told to stop, and have ended. After `shut`.

        Parameters
        ----------
        interrupting : bool
            A function that goes on meanwhile is interrupted: KeyboardInterrupt is raised in it.

        Returns
        -------
        bool
            False, only with `interrupting`: a function goes on even then. It waits in C, or drops the
            interrupt.
        """
        if interrupting and not self._ended_by_interrupts():
            return False
        have_left(self._inside, -1)
        for thread in self._threads:
            join(thread)
        return True

    def leave_behind(self, then: Callable[[], None]) -> None:
        """Wait no more for threads that do not end; a daemon thread does, and calls `then`.

        Warns
        -----
        RuntimeWarning
            Names them.
        """
        self.left_behind = True
        names = ", ".join(thread.name for thread in self._threads if thread.is_alive())

        def wait() -> None:
            self.join()
            then()

        start(threading.Thread(target=wait, name="ordstream-closer", daemon=True))
        try:
            warnings.warn(
                f"a function that the run called did not return after Ctrl-C: {names} is left behind, and "
                "the run's memory with it, until the function returns. Give what it waits for a timeout",
                RuntimeWarning,
                stacklevel=3,
            )
        except RuntimeWarning as warning:  # by the user's filters: it must not replace the interrupt
            if warning.__context__ is not None:
                warning.__context__.add_note(str(warning))

    def _ended_by_interrupts(self) -> bool:
        """Whether all have left the core before they are given up: at once where Ctrl-C comes again."""
        if self._pressed_again:
            return have_left(self._inside, 0)
        began = time.monotonic()
        next_at = began + MAY_END_S
        try:
            while not have_left(self._inside, max(0.0, next_at - time.monotonic())):
                if next_at >= began + GIVEN_UP_S:
                    return False
                interrupt(self._inside, RAISED_IN_S)
                next_at = min(next_at + MAY_CLEAN_UP_S, began + GIVEN_UP_S)
        except KeyboardInterrupt:
            self._pressed_again = True
            raise
        return True


def join(thread: threading.Thread, seconds: float | None = None) -> None:
    """`thread.join`, also where Ctrl-C came while the thread was being started."""
    until = time.perf_counter() + SHOW_S
    while True:
        try:
            thread.join(seconds)
        except RuntimeError:  # not started, as far as Python knows
            if time.perf_counter() < until:
                time.sleep(0.001)
                continue
        return

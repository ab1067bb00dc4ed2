"""The threads of a run's workers: started as the core wants them, and out of the core before it goes.

They know the core but not the stream, so that a stream that the user dropped is collected.

Ctrl-C may come while the reading thread starts one: then nobody can tell whether it runs. Each thread therefore says so itself when it
enters the core, or stays out once the door is shut.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ordstream._core.reader import start_surely

WORKER_STACK_BYTES = 2 << 20
# How long a thread that is being started is given to show itself.
SHOW_S = 0.1


class WorkerThreads:
    """Threads of the workers of one core run.

    Thread safety: `start` under the feeder's lock, everything else from any thread.
    """

    def __init__(self, core: Any) -> None:
        self._core = core
        self._threads: list[threading.Thread] = []
        self._entry = threading.RLock()  # a signal handler may close while this very thread holds it
        self._shut = False
        # One for each thread that is, or was, in the core: set when it has left.
        self._left: list[threading.Event] = []

    def __len__(self) -> int:
        return len(self._threads)

    def __contains__(self, thread: object) -> bool:
        return thread in self._threads

    def start(self) -> None:
        """Threads for the workers that the core wants by now."""
        wanted = self._core.hire()
        if not wanted:
            return
        before = threading.stack_size(WORKER_STACK_BYTES)
        try:
            for index in wanted:
                thread = threading.Thread(target=self._work, args=(index,), name=f"ordstream-worker-{index}", daemon=True)
                self._threads.append(thread)
                start_surely(thread)
        finally:
            threading.stack_size(before)

    def _work(self, index: int) -> None:
        left = threading.Event()
        with self._entry:
            if self._shut:
                return
            self._left.append(left)
        try:
            self._core.worker(index)
        finally:
            left.set()

    def shut(self) -> None:
        """From now on no thread enters the core."""
        with self._entry:
            self._shut = True

    def join(self) -> None:
        """Wait until all have left the core, which was told to stop, and have ended. After `shut`."""
        for left in self._left:
            left.wait()
        for thread in self._threads:
            join(thread)


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

"""Running loops of the core's test doors in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def together(*bodies: Callable[[], Any], timeout: float = 240) -> list[Any]:
    """Run each body in a thread of its own; their results, in order. A body's exception is raised here.

    Bodies that wait for each other end by the time they had on a processor: `timeout` is for one that
    sleeps.
    """
    results: list[Any] = [None] * len(bodies)
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(bodies))

    def run(index: int) -> None:
        try:
            barrier.wait(timeout)
            results[index] = bodies[index]()
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [
        threading.Thread(target=run, args=(i,), name=f"test-{i}", daemon=True) for i in range(len(bodies))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), "a thread of the test hangs"
    if errors:
        raise errors[0]
    return results

"""Spark's part of a command runs in a thread of its own, so that Ctrl-C, which reaches the main thread
alone, never meets py4j or PySpark.

An interrupt inside them leaves by whatever line it hit: a connection in use asks for another answer
("reentrant call"), a Java process that was just started is forgotten, logs and destructors print traces. In
the main thread there is nothing to meet: it waits. Ctrl-C then ends Java, whatever it is doing, and with it
every call that the other thread is in.

This is for a process that ends afterwards. A Python session that goes on has `ordstream.spark.interrupt`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socketserver
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

WAKE_SECONDS = 0.2  # Windows hears Ctrl-C between two waits only
END_SECONDS = 5.0  # for Java to end when it is asked to, before it is made to


def apart(work: Callable[[], T]) -> T:
    """Run `work`, which may start one Spark session and stops it, in another thread; returns its result or
    raises its exception.

    Parameters
    ----------
    work : callable
        Called once. Whatever it holds when Ctrl-C comes is closed by it, as for any exception of Spark's:
        its calls fail then.

    Raises
    ------
    KeyboardInterrupt
        Java is gone then, and nothing more will be printed by it, by PySpark or by py4j.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    ended, given_up = threading.Event(), threading.Event()

    def body() -> None:
        try:
            if not given_up.is_set():
                results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=body, name="spark-command", daemon=True)
    try:
        thread.start()
        while not ended.wait(WAKE_SECONDS):
            pass
    except KeyboardInterrupt:
        given_up.set()
        _end(thread)
        raise
    if errors:
        raise errors[0]
    return results[0]


def _end(thread: threading.Thread) -> None:
    """End Java; wait for that, and for the thread, whose calls to Java fail from now on."""
    logging.disable()
    warnings.simplefilter("ignore")  # PySpark warns where it can't stop a context in order
    # accumulators: Java's end is a lost request
    socketserver.BaseServer.handle_error = _say_nothing  # type: ignore[method-assign]
    session = sys.modules.get("ordstream.spark.session")
    if session is not None:
        session.hush()
    until = time.monotonic() + END_SECONDS
    asked: set[int] = set()
    # Java may be just about to be started: look again until the thread has seen that there is none.
    while (thread.is_alive() or _running(thread)) and time.monotonic() < until:
        for process in _running(thread) - asked:
            _send(process, signal.SIGTERM)
            asked.add(process)
        thread.join(0.01)
        if asked:
            time.sleep(0.01)
    for process in _running(thread):
        _send(process, getattr(signal, "SIGKILL", signal.SIGTERM))


def _say_nothing(self: socketserver.BaseServer, request: Any, client_address: Any) -> None:
    """In place of a trace."""


def _send(process: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended
        os.kill(process, number)


def _running(thread: threading.Thread) -> set[int]:
    """Processes that the thread has started and that run: Java. Without /proc it is known as soon as
    PySpark is connected to it.
    """
    found: set[int] = set()
    with contextlib.suppress(OSError):
        found.update(map(int, Path(f"/proc/self/task/{thread.native_id}/children").read_text().split()))
    context = sys.modules.get("pyspark.core.context")
    gateway = getattr(getattr(context, "SparkContext", None), "_gateway", None)
    process = getattr(gateway, "proc", None)
    if process is not None:
        found.add(process.pid)
    return {pid for pid in found if _is_alive(pid)}


def _is_alive(pid: int) -> bool:
    """Whether a child of this process has not ended; PySpark is left to hear of its end itself."""
    if not hasattr(os, "waitid"):
        return False
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False

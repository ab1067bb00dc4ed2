"""One pipeline over several processes of this machine, with the key cut and the order tags of
`ordstream.fragments.fragmenting`.

For what threads can't spread: plain Python functions, which hold the GIL. Each process holds one node of
each fragment, all at the same time (`ordstream.fragments.node_process`), and they exchange rows while they
run. The source stays in the calling process. Processes are spawned, never forked: the caller may have
threads.

The output, order and errors are those of a run in one process (`ordstream.fragments.driver`).
"""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import process as processes
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from ordstream.errors import NodeLost, OrdstreamError, PlanError, told
from ordstream.fragments import fragmenting
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import OPTIONS
from ordstream.fragments.node_process import serve
from ordstream.fragments.wire import CALL, Handler, Mesh
from ordstream.ground.interrupts import kept_from_children
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.ground.types import names_beside
from ordstream.plan.clock import clock_of
from ordstream.udf import pickling as by_value

GUARD_ADVICE = 'Its error is on stderr; a script must guard what it starts by: if __name__ == "__main__":'
#: How a process ends whose script would start processes as it is imported.
UNGUARDED = 78
MEMORY_ADVICE = "If it was killed for memory, use fewer processes"
# How long a process may take to end, or to leave a run, when it was told to.
JOIN_S = 2.0
LEAVE_S = 30.0


@contextlib.contextmanager
def without_lost_script() -> Iterator[None]:
    """Processes that are spawned inside don't look for the main script where it is no file: read from the
    standard input, or gone since. They would end at once; what they need of it comes by value.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    # where multiprocessing looks: from the folder that the interpreter began in
    if path is None or (Path(getattr(processes, "ORIGINAL_DIR", None) or ".") / path).exists():
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


@contextlib.contextmanager
def enough_descriptors(n: int) -> Iterator[None]:
    """An OSError for too few file descriptors says whose they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        text = (
            f"{os.strerror(error.errno)}: processes={n} takes about {n + 10} file descriptors of this "
            "process, and more as it starts; allow more (ulimit -n), or use fewer processes"
        )
        raise OSError(error.errno, text) from error


class Processes:
    """Spawned processes, one per node, with a socket between each two of them and to this one. A context
    manager; leaving it ends them, whatever they are doing. One run at a time.

    Parameters
    ----------
    n : int

    Attributes
    ----------
    mesh : Mesh
        This process's sockets.
    run : int
        Number of the present run.

    Raises
    ------
    PlanError
        This process may start none.
    OSError
        There are too few file descriptors.
    """

    def __init__(self, n: int) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            # A process of a run imports the script that began the run, which says what to do.
            raise SystemExit(UNGUARDED)
        if multiprocessing.current_process().daemon:
            raise PlanError(
                f"processes={n} can't run in a worker of multiprocessing.Pool, or another daemonic process: "
                "such a process may start none; use concurrent.futures.ProcessPoolExecutor, or run without "
                "processes="
            )
        try:
            Path.cwd()
        except FileNotFoundError:  # it would be multiprocessing's, of no file at all
            raise PlanError(
                f"processes={n} can't run where the working folder was deleted: os.chdir(...) to one that "
                "is there, or run without processes="
            ) from None
        with enough_descriptors(n):
            self._start(n)

    def _start(self, n: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.run = 0
        self._handler: Handler | None = None
        self._gone: set[int] = set()
        self._left: set[int] = set()
        self.mesh = Mesh(weakly(self._handle), self._gone.add)
        self._processes: list[BaseProcess] = []
        sockets: list[socket.socket] = []
        try:
            for k in range(n):
                ours, theirs = socket.socketpair()
                sockets.append(ours)
                with theirs, kept_from_children(), without_lost_script():
                    process = context.Process(
                        target=serve, args=(theirs, k, n - 1), name=f"ordstream-node-{k}", daemon=True
                    )
                    process.start()
                self._processes.append(process)
            for k in range(n):
                for other in range(k):
                    self._introduce(sockets, k, other)
        except BaseException:
            self.close()
            for sock in sockets:
                sock.close()
            raise
        for k, sock in enumerate(sockets):
            self.mesh.add(k, sock)
        _started.add(self)

    def _introduce(self, sockets: list[socket.socket], one: int, other: int) -> None:
        """Give two processes a socket to each other."""
        ends = socket.socketpair()
        for to, of, end in ((one, other, ends[0]), (other, one, ends[1])):
            with end:
                while True:
                    try:
                        socket.send_fds(sockets[to], [of.to_bytes(4, "little")], [end.fileno()])
                        break
                    except BrokenPipeError:
                        raise self.lost(to) from None
                    except OSError as error:  # too many are under way to processes that still start
                        if error.errno != errno.ETOOMANYREFS:
                            raise
                        time.sleep(0.01)

    def __len__(self) -> int:
        return len(self._processes)

    def begin(self, work: bytes, handler: Handler) -> int:
        """Begin a run: every process gets the pickled work. The run's number.

        `handler` hears what processes send for it, until the next one begins.
        """
        self.run += 1
        self._handler = handler
        for k in range(len(self)):
            self.mesh.post(k, CALL, 0, self.run, [work])
        return self.run

    def leave(self) -> None:
        """Have all processes leave the present run, and wait for them.

        Raises
        ------
        NodeLost
            One has ended, or does not answer.
        """
        self._left.clear()
        self.begin(b"", lambda *frame: None)
        until = time.monotonic() + LEAVE_S
        while len(self._left) < len(self):
            self.check()
            if time.monotonic() > until:
                raise NodeLost("a node process does not leave its run")
            self.mesh.turn(0.1)

    def _handle(self, process: int, kind: int, edge: int, run: int, body: Any) -> None:
        if run != self.run:
            return
        if kind == CALL and body.size == len(LEFT) and bytes(body) == LEFT:
            self._left.add(process)
        elif self._handler is not None:
            self._handler(process, kind, edge, run, body)

    @property
    def has_lost(self) -> bool:
        """Whether a process has ended."""
        return bool(self._gone)

    def check(self) -> None:
        """Raise NodeLost where a process has ended."""
        if self._gone:
            raise self.lost(min(self._gone))

    def lost(self, k: int) -> OrdstreamError:
        """The error that names a process and how it ended."""
        process = self._processes[k]
        process.join(JOIN_S)
        code = process.exitcode
        if code == UNGUARDED:
            script = getattr(sys.modules["__main__"], "__file__", None) or "the script"
            return PlanError(
                f"processes={len(self._processes)}: each process imports {script}, which would start "
                "processes again: put what the script runs, its imports and functions apart, behind "
                'if __name__ == "__main__":'
            )
        how = (
            f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        )
        return NodeLost(
            f"process {k + 1} of {len(self._processes)} (pid {process.pid}) ended before its work did: "
            f"{how}. "
            f"{GUARD_ADVICE if code == 1 else MEMORY_ADVICE}"
        )

    def close(self) -> None:
        """End all processes. Idempotent."""
        for process in self._processes:
            process.terminate()
        end = time.monotonic() + JOIN_S
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._processes = []
        self.mesh.close()

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


#: Those of this process, for a fork of it.
_started: weakref.WeakSet[Processes] = weakref.WeakSet()


def _abandon_after_fork() -> None:
    """A child has the sockets no more: nodes hear of this process's end though the child lives on. Nor are
    the processes its own: Python's exit would end them.
    """
    # multiprocessing's own forks begin with none
    children: set[BaseProcess] = getattr(processes, "_children", set())
    for one in list(_started):
        one.mesh.abandon()
        children.difference_update(one._processes)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_after_fork)


def weakly(method: Callable[..., None]) -> Callable[..., None]:
    """A call of a method that does not keep its object, and does nothing once that is gone.

    The source's thread holds the mesh. If the mesh held the stream, a stream that its user has dropped would
    live, and its processes with it, until the source ends.
    """
    found = weakref.WeakMethod(method)

    def call(*given: Any) -> None:
        there = found()
        if there is not None:
            there(*given)

    return call


#: What a process answers when it has left a run.
LEFT = pickle.dumps(None)


def dumps(work: Any) -> bytes:
    """Pickle, by value where a library for that is there (functions of scripts, notebooks and lambdas).

    Raises
    ------
    PlanError
        A function of the pipeline can't be sent to another process.
    """
    library = by_value.library()
    try:
        return bytes((library or pickle).dumps(work))
    except Exception as error:  # also what a __getstate__ or __reduce__ of the user's raises
        owner, cause = _unsendable(library or pickle, work) or ("the pipeline", error)
        if library is None:
            advice = "define its functions at the top of a module, or install cloudpickle"
        else:
            advice = (
                "its function refers to something that belongs to this process, such as a lock, a "
                "connection or an open file: have the function make it, at its first call"
            )
        raise PlanError(f"{owner} can't be sent to another process: {told(cause)}; {advice}") from error


def _unsendable(library: Any, work: Any) -> tuple[str, Exception] | None:
    """The first operator that alone can't be pickled, and why."""
    for fragment in getattr(work, "fragments", ()):
        for operator in fragment.operators:
            try:
                library.dumps(operator)
            except Exception as error:
                return f"operator {operator.name!r}", error
    return None


def prepare(
    pipeline: Any, options: Mapping[str, Any], where: str, *, keeps_state: bool = False
) -> tuple[tuple[Fragment, ...], dict[str, Any], bool]:
    """The fragments, a node's options, and whether order tags are asked for. `keeps_state`: the caller
    takes snapshots, and goes on from them.
    """
    from ordstream.node.settings import OF_STATE, make_settings, refuse_state
    from ordstream.plan.final import final
    from ordstream.plan.rewrites import growing

    chosen = {name: value for name, value in options.items() if value is not None and name not in OPTIONS}
    settings = make_settings(chosen)
    if not keeps_state:
        refuse_state(settings, where)
    fragmenting.check_options(chosen, where)
    plan = final(pipeline.plan) if settings.emit == "final" else pipeline.plan
    if settings.tags:
        names_beside(plan.output.names, TAG_NAMES, "tags=True")
    for name in ("emit", "tags", "progress", "partial", "partial_after", "feeder", *OF_STATE):
        chosen.pop(name, None)
    if settings.keeps_state:
        chosen["snapshots"] = True
    else:
        plan = growing(plan)  # what a fragment can't see of the one in front
    if clock_of(plan, settings.punctuate) is not None:
        chosen["given_marks"] = True
    return fragmenting.fragments_of(plan, may_shed=True), {"workers": 0, **chosen}, settings.tags

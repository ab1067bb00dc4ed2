"""The body of a node process: it holds one node of each fragment, all at the same time, and lives until the
caller ends it, or ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import connection
from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError, told
from ordstream.fragments import answers
from ordstream.fragments.endpoint import Endpoint
from ordstream.fragments.live_node import LiveNode
from ordstream.fragments.node_state import NodeState, parsed
from ordstream.fragments.topology import Topology
from ordstream.fragments.wire import CALL, CALLER, FAILED, FIGURES, NOTE, SHIFT, STATE, Mesh
from ordstream.ground import arrow_memory
from ordstream.udf import pickling as by_value

#: How long a process whose workers are at it waits for sockets.
WORKING_S = 0.001


def serve(sock: socket.socket, process: int, others: int) -> None:
    """Body of process number `process`, which has `others` beside it."""
    # Ctrl-C reaches the whole group; the caller ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_caller()
    # a function may start processes of its own; the caller ends this one all the same when it ends
    multiprocessing.current_process().daemon = False
    arrow_memory.use_for_all()
    host = _Host(sock, process, others)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=host.forked)
    importlib.import_module("ordstream.node.polled_stream")  # the core, while the caller gets ready
    by_value.library()
    gc.collect()
    gc.freeze()  # else each full collection looks through all modules, for tens of milliseconds
    with contextlib.suppress(_CallerGone):
        host.loop()


class _CallerGone(Exception):
    """The socket to the caller has ended."""


class _Host:
    """The nodes of this process, one run after the other."""

    def __init__(self, sock: socket.socket, process: int, others: int) -> None:
        self._process = process
        self._mesh = Mesh(self._handle, self._lost)
        for _ in range(others):
            data, (fd,), _, _ = socket.recv_fds(sock, 4, 1)
            self._mesh.add(int.from_bytes(data, "little"), socket.socket(fileno=fd))
        self._mesh.add(CALLER, sock)
        self._nodes: list[LiveNode] = []
        self._told: set[int] = set()
        self._endpoint: Endpoint | None = None
        self._run = 0
        # State that a run goes on from comes in front of the run itself.
        self._states: list[tuple[int, int, Any]] = []
        self._early: list[tuple[int, int, int, int, Any]] = []  # frames of a run that did not begin here
        self._is_fork = self._has_children = False

    def forked(self) -> None:
        """This is a process that a user's function forked."""
        self._is_fork = True
        self._mesh.abandon()

    def loop(self) -> None:
        """Let the nodes take turns until the caller is gone."""
        while True:
            progressed = works = False
            try:
                for node in reversed(self._nodes):
                    progressed |= node.step()
                    works |= node.works
            except BaseException as error:  # whatever a user's function raised: the caller raises it
                if self._is_fork:
                    _end_fork(error)
                self._tell(error)
                self._leave()
            if self._is_fork:
                _end_fork(None)
            if not self._has_children and multiprocessing.active_children():
                self._has_children = True
                signal.signal(signal.SIGTERM, _end_with_children)
            for k, node in enumerate(self._nodes):
                for body in node.feedback():
                    self._mesh.post(CALLER, NOTE, node.fragment, self._run, [body])
                while node.taken:
                    for parts in node.taken.popleft().frames():
                        self._mesh.post(CALLER, STATE, node.fragment, self._run, parts)
                while node.said:
                    self._tell(node.said.popleft())
                if node.outcome is not None and k not in self._told:
                    self._told.add(k)
                    self._tell(node.outcome)
            more = progressed and not all(node.rests for node in self._nodes)
            self._turn(0.0 if more else WORKING_S if works else None)

    def _turn(self, seconds: float | None) -> None:
        """Look at the sockets; where there is nothing else to do, count who is waited for."""
        if seconds == 0.0:
            self._mesh.turn(seconds)
            return
        waits = [(node.merge, node.awaits) for node in self._nodes]
        began = time.monotonic()
        self._mesh.turn(seconds)
        waited = time.monotonic() - began
        for merge, sender in waits:
            if sender is not None:
                merge.awaited[sender] += waited

    def _tell(self, what: Any) -> None:
        self._mesh.post(CALLER, CALL, 0, self._run, [answers.dumps(what)])

    def _handle(self, process: int, kind: int, edge: int, run: int, body: Any) -> None:
        if kind == CALL and process == CALLER:  # only what the caller sends is unpickled
            self._call(run, body)
        elif kind == STATE and process == CALLER:
            self._states.append((run, edge, body))
        elif kind == FIGURES:
            if run == self._run:
                self._tell_figures()
        elif run > self._run:
            self._early.append((process, kind, edge, run, body))
        elif run == self._run and kind in (STATE, SHIFT, FAILED):
            self._hear_of_move(process, kind, edge, body)
        elif run == self._run and self._endpoint is not None:
            self._endpoint.handle(process, kind, edge, body)

    def _tell_figures(self) -> None:
        for node in self._nodes:
            if node.outcome is None:
                self._tell(node.figures())

    def _hear_of_move(self, process: int, kind: int, fragment: int, body: Any) -> None:
        """State from another node, or what the caller says of a move."""
        from ordstream.fragments.moving import Shift

        shift = Shift.from_bytes(bytes(body)) if kind == SHIFT else None
        for node in self._nodes:
            if kind == STATE and node.fragment == fragment:
                node.arrive(process, parsed(body))
            elif shift is not None:
                node.shifts[shift.number] = shift
            elif kind == FAILED:
                node.abandon(bytes(body))

    def _sender(self) -> Callable[[int, NodeState], None]:
        """How a node sends state to another one of its fragment."""

        def send(to: int, state: NodeState) -> None:
            for parts in state.frames():
                self._mesh.post(to, STATE, state.fragment, self._run, parts)

        return send

    def _call(self, run: int, body: Any) -> None:
        self._leave()
        self._run = run
        if not body.size:  # the run is over
            self._tell(None)
            return
        try:
            self._begin(_loaded(body), self._states)
            self._states = []
        except Exception as error:
            self._leave()
            self._tell(error)
        early, self._early = self._early, []
        for frame in early:
            self._handle(*frame)

    def _begin(self, topology: Topology, frames: list[tuple[int, int, Any]]) -> None:
        endpoint = self._endpoint = Endpoint(topology, self._mesh, self._process, self._run)
        states: dict[int, dict[str, list[pa.RecordBatch]]] = {}
        for run, k, body in frames:
            if run == self._run:
                schemas = {one.name: one.state_schema() for one in topology.fragments[k].operators}
                said = parsed(body)
                rows = states.setdefault(k, {}).setdefault(said.name, [])
                rows.append(said.batch(schemas[said.name]))
        for k in topology.of_process(self._process):
            node = LiveNode(
                topology, k, self._process, endpoint.links(k + 1), endpoint.consumed(k), states.get(k),
                self._sender(),
            )  # fmt: skip
            endpoint.merges[k], endpoint.outs[k + 1] = node.merge, node.out
            self._nodes.append(node)

    def _leave(self) -> None:
        for node in self._nodes:
            node.close()
        self._nodes, self._endpoint = [], None
        self._told.clear()

    def _lost(self, process: int) -> None:
        if process == CALLER:
            raise _CallerGone  # another one: the caller sees it too, and ends the run


def _end_fork(error: BaseException | None) -> None:
    """End a process that a user's function forked, and that came back from it: the node's rows are those of
    its parent alone.
    """
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    else:
        code = 1
        print(
            f"ordstream: process {os.getpid()} was forked by a function of the pipeline and came back from "
            f"it{'' if error is None else f' ({told(error)})'}: it ends here; let it end in the function, "
            "by os._exit(0)",
            file=sys.stderr,
        )
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _end_with_children(number: int, frame: Any) -> None:
    """The caller ends this process: so do those that functions started, which would never hear of it."""
    for child in multiprocessing.active_children():
        child.terminate()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _loaded(data: Any) -> Any:
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        raise PlanError(
            f"processes: a spawned process can't find the pipeline's functions ({type(error).__name__}: "
            f"{error}); "
            "define them at the top of a module that it can import, for example one in a folder on "
            "PYTHONPATH"
        ) from error
    except Exception as error:  # of a __setstate__ or an __init__ of the user's
        raise PlanError(
            "processes: what the pipeline's functions refer to can't be made again in a spawned process "
            f"({told(error)}): pickle.loads(pickle.dumps(...)) of it fails in the same way; have the "
            "function make it, at its first call"
        ) from error


def _end_with_caller() -> None:
    """Have this process end when the caller's does, however that ends."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    if sys.platform == "linux":
        import fcntl

        # The kernel kills this process when the other end of the pipe is closed, also while a function
        # holds the GIL. Not PR_SET_PDEATHSIG, which takes the end of a thread for that of its process.
        fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent.sentinel, 10, signal.SIGKILL)  # F_SETSIG
        flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
        fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="ordstream-caller", daemon=True).start()

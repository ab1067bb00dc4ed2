"""Frames between the processes of a run: over socket pairs that the caller made, so nobody else can connect.

A frame is a header and bytes: Arrow IPC for rows and their schema, plain bytes for tags. Nothing that comes
from another node is unpickled. What is written never waits; what is read is bounded by the channels' credit.
Of lows and acknowledgements the latest stands for all before, where they wait for the socket. An
acknowledgement that nobody waits for is not worth waking a process for: it goes with the next thing that is
said to it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ordstream.ground.arrow_memory import POOL

#: The caller's number among the processes.
CALLER = -1
ROWS, SCHEMA, LOW, END_OF_ROWS, ACK, CALL, MARK, STATE, SHIFT = range(9)
# The caller asks how far a node is; a message between a node and the one that sends it rows; the caller says
# at which tag a node failed, while keys move.
FIGURES, NOTE, FAILED = 16, 17, 18
HEADER = struct.Struct("<BxHIQ")  # kind, edge, run, bytes behind it
NUMBER = struct.Struct("<Q")
#: Of each marker of a frame: its number, and the bytes of the tag that follows.
MARK_HEAD = struct.Struct("<QI")
# Asked of the system for each direction of a socket, and read from one before the others' turn.
SOCKET_BYTES = 1 << 20
TURN_BYTES = 8 << 20
# Read at once: frames that fit are taken out of what came by one call of the system.
READ_BYTES = 64 << 10
# Buffers in one write.
IOV = 64

Handler = Callable[[int, int, int, int, Any], None]
"""Hears (process, kind, edge, run, bytes) of each frame."""


class _Peer:
    """One socket, what waits to be written, and the frame that is being read."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
        self.sock = sock
        self.out: deque[memoryview] = deque()
        self.lows: dict[tuple[int, int], bytes] = {}
        self.acks: dict[tuple[int, int], int] = {}
        self.told = True  # nothing of them has to be said now
        self.came = bytearray(READ_BYTES)
        self.have = 0  # bytes of `came`, which begin with a header
        # a frame that `came` has no room for: its header's figures, its bytes, and how many of them are here
        self.long: tuple[int, int, int] = (0, 0, 0)
        self.body: pa.Buffer | None = None
        self.at = 0
        self.writes = False  # the selector waits for room


class Mesh:
    """The sockets of one process.

    Parameters
    ----------
    sockets : mapping of int to socket
        Process -> the socket to it.
    handle : Handler
    lost : callable
        Hears of a process whose socket has ended.

    Attributes
    ----------
    read, written : int
        Bytes so far.
    """

    def __init__(self, handle: Handler, lost: Callable[[int], None]) -> None:
        self._peers: dict[int, _Peer] = {}
        self._handle, self._lost = handle, lost
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = os.pipe()
        # A thread may wake a mesh that is being closed, when another file may have its pipe's number.
        # Reentrant: an interrupt may ask for it inside close().
        self._waking = threading.RLock()
        for end in (self._wake_in, self._wake_out):
            os.set_blocking(end, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self.read = self.written = 0
        self._dead: list[int] = []  # a write to them failed

    def add(self, process: int, sock: socket.socket) -> None:
        """Take a socket to another process."""
        self._peers[process] = _Peer(sock)
        self._selector.register(sock, selectors.EVENT_READ, process)

    def wake(self) -> None:
        """Let `turn` return; nothing once it is closed. Any thread."""
        with self._waking, contextlib.suppress(BlockingIOError):  # it is awake
            if self._wake_out >= 0:
                os.write(self._wake_out, b"w")

    # ---------------------------------------------------------------------------------------- sending

    def post(self, process: int, kind: int, edge: int, run: int, parts: Iterable[Any] = ()) -> int:
        """Send a frame; the bytes behind its header."""
        peer = self._peers.get(process)
        views = [memoryview(part).cast("B") for part in parts]
        size = sum(view.nbytes for view in views)
        if peer is not None:
            peer.out.append(memoryview(HEADER.pack(kind, edge, run, size)))
            peer.out.extend(view for view in views if view.nbytes)
        return size

    def low(self, process: int, edge: int, run: int, tag: bytes) -> None:
        """Say how far a sender is."""
        peer = self._peers.get(process)
        if peer is not None:
            peer.lows[edge, run] = tag
            peer.told = False

    def ack(self, process: int, edge: int, run: int, size: int, least: int = 0) -> None:
        """Say that so many bytes were handed on: when these are at least `least` in all, or when something
        else is said to that process.
        """
        peer = self._peers.get(process)
        if peer is not None:
            size += peer.acks.get((edge, run), 0)
            peer.acks[edge, run] = size
            if size >= least:
                peer.told = False

    @staticmethod
    def _tell(peer: _Peer) -> None:
        """Put lows and acknowledgements behind what waits to be written."""
        peer.told = True
        if peer.acks:
            for (edge, run), size in peer.acks.items():
                peer.out.append(memoryview(HEADER.pack(ACK, edge, run, NUMBER.size) + NUMBER.pack(size)))
            peer.acks.clear()
        if peer.lows:
            for (edge, run), tag in peer.lows.items():
                peer.out.append(memoryview(HEADER.pack(LOW, edge, run, len(tag)) + tag))
            peer.lows.clear()

    def _write(self, process: int, peer: _Peer) -> None:
        try:
            if not peer.writes:
                self._tell(peer)  # with the rows, by one call of the system
            while True:
                if not peer.out:
                    if peer.told:
                        break
                    self._tell(peer)
                views = [peer.out[k] for k in range(min(IOV, len(peer.out)))]
                sent = peer.sock.sendmsg(views)
                self.written += sent
                while sent:
                    if sent >= peer.out[0].nbytes:
                        sent -= peer.out.popleft().nbytes
                    else:
                        peer.out[0] = peer.out[0][sent:]
                        sent = 0
        except BlockingIOError:
            pass
        except OSError:
            self._dead.append(process)
            return
        if peer.writes != bool(peer.out):
            peer.writes = bool(peer.out)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.writes else 0)
            self._selector.modify(peer.sock, events, process)

    # ---------------------------------------------------------------------------------------- receiving

    def write(self) -> None:
        """Write what can be written now."""
        for process, peer in self._peers.items():
            if peer.out or not peer.told:
                self._write(process, peer)
        while self._dead:
            self._drop(self._dead.pop())

    def turn(self, seconds: float | None) -> None:
        """Write what can be written; wait for something at most so long (None: until there is something),
        and take it.
        """
        self.write()
        for key, events in self._selector.select(seconds):
            if key.data is None:
                os.read(self._wake_in, 4096)
                continue
            peer_of = self._peers.get(key.data)
            if peer_of is not None and events & selectors.EVENT_READ:
                self._read(key.data, peer_of)

    def _read(self, process: int, peer: _Peer) -> None:
        taken = 0
        try:
            while taken < TURN_BYTES:
                if peer.body is None:
                    into = memoryview(peer.came)[peer.have :]
                else:
                    into = memoryview(peer.body).cast("B")[peer.at :]
                got = peer.sock.recv_into(into)
                if not got:
                    self._drop(process)
                    return
                taken += got
                if peer.body is None:
                    peer.have += got
                    self._take(process, peer)
                else:
                    peer.at += got
                    if peer.at == peer.body.size:
                        body, peer.body = peer.body, None
                        self._handle(process, *peer.long, body)
                if got < into.nbytes:  # nothing more is there
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            self._drop(process)
        self.read += taken

    def _take(self, process: int, peer: _Peer) -> None:
        """Hand over the frames that are there as a whole."""
        came, at = memoryview(peer.came), 0
        try:
            while peer.have - at >= HEADER.size:
                kind, edge, run, size = HEADER.unpack_from(came, at)
                begin, end = at + HEADER.size, at + HEADER.size + size
                if end > peer.have:
                    if HEADER.size + size > READ_BYTES:
                        peer.long, peer.at = (kind, edge, run), peer.have - begin
                        peer.body = pa.allocate_buffer(size, memory_pool=POOL)
                        memoryview(peer.body).cast("B")[: peer.at] = came[begin : peer.have]
                        at = peer.have
                    break
                at = end  # also where an interrupt ends this
                self._handle(process, kind, edge, run, pa.py_buffer(bytes(came[begin:end])))
        finally:
            came[: peer.have - at] = came[at : peer.have]
            peer.have -= at

    def _drop(self, process: int) -> None:
        peer = self._peers.pop(process, None)
        if peer is not None:
            self._selector.unregister(peer.sock)
            peer.sock.close()
            self._lost(process)

    def abandon(self) -> None:
        """In a forked child: let go of the parent's sockets, so that their other ends hear of the parent's
        end, whatever becomes of the child. Nothing of the mesh can be used any more.
        """
        for peer in self._peers.values():
            peer.sock.close()  # not unregistered: parent and child share what the selector has in the kernel
        self._peers.clear()

    def close(self) -> None:
        """Close all sockets. Idempotent."""
        for peer in self._peers.values():
            peer.sock.close()
        self._peers.clear()
        with self._waking:
            ends, self._wake_in, self._wake_out = (self._wake_in, self._wake_out), -1, -1
            if ends[1] >= 0:
                self._selector.close()
                for end in ends:
                    os.close(end)


def marks_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and tags of the markers of a frame."""
    at = 0
    while at < len(data):
        number, size = MARK_HEAD.unpack_from(data, at)
        at += MARK_HEAD.size + size
        yield number, data[at - size : at]


class SocketLink:
    """To a receiver in another process (`ordstream.fragments.channels.Link`)."""

    def __init__(self, mesh: Mesh, process: int, edge: int, run: int) -> None:
        self._mesh, self._to = mesh, (process, edge, run)
        self._schema: pa.Schema | None = None

    def _post(self, kind: int, *parts: Any) -> int:
        process, edge, run = self._to
        return self._mesh.post(process, kind, edge, run, parts)

    def rows(self, batch: pa.RecordBatch) -> int:
        if self._schema is None or not batch.schema.equals(self._schema, check_metadata=True):
            self._schema = batch.schema
            self._post(SCHEMA, batch.schema.serialize())
        return self._post(ROWS, batch.serialize(memory_pool=POOL))

    def low(self, tag: bytes) -> None:
        self._mesh.low(*self._to, tag)

    def note(self, body: bytes) -> None:
        self._post(NOTE, body)

    def marks(self, marks: Sequence[tuple[int, bytes]]) -> None:
        self._post(MARK, b"".join([MARK_HEAD.pack(number, len(tag)) + tag for number, tag in marks]))

    def end(self, cut: bytes) -> None:
        self._post(END_OF_ROWS, cut)

"""Frames between the processes of a run: over socket pairs that the caller made, so nobody else can connect.

A frame is a header and bytes: Arrow IPC for rows and their schema, plain bytes for tags. Nothing that comes
from another node is unpickled. What is written never waits; what is read is bounded by the channels' credit.
Lows and acknowledgements are sent where nothing else waits to be written, the latest in place of all before.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

#: The caller's number among the processes.
CALLER = -1
ROWS, SCHEMA, LOW, END_OF_ROWS, ACK, CALL, MARK, STATE, SHIFT = range(9)
# The caller asks how far a node is; a message between a node and the one that sends it rows.
FIGURES, NOTE = 16, 17
HEADER = struct.Struct("<BxHIQ")  # kind, edge, run, bytes behind it
NUMBER = struct.Struct("<Q")
# Asked of the system for each direction of a socket, and read from one before the others' turn.
SOCKET_BYTES = 1 << 20
TURN_BYTES = 8 << 20
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
        self.head = bytearray(HEADER.size)
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
        for end in (self._wake_in, self._wake_out):
            os.set_blocking(end, False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
        self.read = self.written = 0

    def add(self, process: int, sock: socket.socket) -> None:
        """Take a socket to another process."""
        self._peers[process] = _Peer(sock)
        self._selector.register(sock, selectors.EVENT_READ, process)

    def wake(self) -> None:
        """Let `turn` return. Any thread."""
        with contextlib.suppress(OSError):  # it is awake, or gone
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
        if process in self._peers:
            self._peers[process].lows[edge, run] = tag

    def ack(self, process: int, edge: int, run: int, size: int) -> None:
        """Say that so many bytes were handed on."""
        if process in self._peers:
            acks = self._peers[process].acks
            acks[edge, run] = acks.get((edge, run), 0) + size

    @staticmethod
    def _told(peer: _Peer) -> None:
        """Put lows and acknowledgements behind what waits to be written."""
        for (edge, run), size in peer.acks.items():
            peer.out.append(memoryview(HEADER.pack(ACK, edge, run, NUMBER.size) + NUMBER.pack(size)))
        for (edge, run), tag in peer.lows.items():
            peer.out.append(memoryview(HEADER.pack(LOW, edge, run, len(tag)) + tag))
        peer.acks.clear()
        peer.lows.clear()

    def _write(self, process: int, peer: _Peer) -> None:
        try:
            while True:
                if not peer.out:
                    self._told(peer)
                if not peer.out:
                    break
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
            self._drop(process)
            return
        if peer.writes != bool(peer.out):
            peer.writes = bool(peer.out)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.writes else 0)
            self._selector.modify(peer.sock, events, process)

    # ---------------------------------------------------------------------------------------- receiving

    def write(self) -> None:
        """Write what can be written now."""
        for process, peer in list(self._peers.items()):
            self._write(process, peer)

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
                into = memoryview(peer.head if peer.body is None else peer.body).cast("B")
                got = peer.sock.recv_into(into[peer.at :])
                if not got:
                    self._drop(process)
                    return
                taken += got
                peer.at += got
                if peer.at < into.nbytes:
                    continue
                kind, edge, run, size = HEADER.unpack(peer.head)
                body, peer.at = peer.body, 0
                if body is None and size:
                    peer.body = pa.allocate_buffer(size)
                    continue
                peer.body = None
                self._handle(process, kind, edge, run, body if body is not None else pa.py_buffer(b""))
        except BlockingIOError:
            pass
        except ConnectionError:
            self._drop(process)
        self.read += taken

    def _drop(self, process: int) -> None:
        peer = self._peers.pop(process, None)
        if peer is not None:
            self._selector.unregister(peer.sock)
            peer.sock.close()
            self._lost(process)

    def close(self) -> None:
        """Close all sockets."""
        for peer in self._peers.values():
            peer.sock.close()
        self._peers.clear()
        self._selector.close()
        os.close(self._wake_in)
        os.close(self._wake_out)


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
        return self._post(ROWS, batch.serialize())

    def low(self, tag: bytes) -> None:
        self._mesh.low(*self._to, tag)

    def note(self, body: bytes) -> None:
        self._post(NOTE, body)

    def mark(self, number: int, tag: bytes) -> None:
        self._post(MARK, NUMBER.pack(number) + tag)

    def end(self, cut: bytes) -> None:
        self._post(END_OF_ROWS, cut)

"""Frames over a socket: of any size, in any pieces, several at once; and acknowledgements that wait."""

from __future__ import annotations

import os
import random
import socket

import pytest

from ordstream.fragments import wire
from ordstream.fragments.wire import ACK, HEADER, LOW, NUMBER, ROWS, Mesh


@pytest.fixture
def ends():
    """A mesh, the other end of its socket, and what it hears."""
    heard: list[tuple[int, int, int, int, bytes]] = []
    ours, theirs = socket.socketpair()
    mesh = Mesh(lambda *frame: heard.append((*frame[:4], bytes(frame[4]))), lambda process: None)
    mesh.add(5, ours)
    yield mesh, theirs, heard
    mesh.close()
    theirs.close()


@pytest.mark.parametrize("seed", range(5))
def test_frames_arrive_whole_however_they_are_cut(ends, seed):
    mesh, theirs, heard = ends
    chance = random.Random(seed)
    around = wire.READ_BYTES - HEADER.size
    sizes = [0, 1, around - 1, around, around + 1, 3 * around, *(chance.randint(0, 90) for _ in range(40))]
    chance.shuffle(sizes)
    frames = [(ROWS, k, 7, chance.randbytes(size)) for k, size in enumerate(sizes)]
    data = b"".join(HEADER.pack(kind, edge, run, len(body)) + body for kind, edge, run, body in frames)
    while data:
        size = chance.choice([1, 7, HEADER.size, 200, 60_000])
        theirs.sendall(data[:size])
        data = data[size:]
        if chance.random() < 0.5:
            mesh.turn(0.0)
    while len(heard) < len(frames):
        mesh.turn(1.0)
    assert heard == [(5, *frame) for frame in frames]


def told(theirs):
    """Kind and number of what was written."""
    theirs.setblocking(False)
    try:
        data = theirs.recv(1 << 16)
    except BlockingIOError:
        return []
    found = []
    while data:
        kind, _, _, size = HEADER.unpack_from(data)
        body = data[HEADER.size : HEADER.size + size]
        found.append((kind, NUMBER.unpack(body)[0] if kind == ACK else body))
        data = data[HEADER.size + size :]
    return found


def test_acknowledgements_wait_for_company_or_until_they_are_many(ends):
    mesh, theirs, _ = ends
    mesh.ack(5, 2, 7, 10, 25)
    mesh.write()
    assert told(theirs) == []
    mesh.ack(5, 2, 7, 15, 25)
    mesh.write()
    assert told(theirs) == [(ACK, 25)]
    mesh.ack(5, 2, 7, 3, 25)
    mesh.low(5, 2, 7, b"tag")
    mesh.write()
    assert told(theirs) == [(ACK, 3), (LOW, b"tag")]
    mesh.ack(5, 2, 7, 4)
    mesh.write()
    assert told(theirs) == [(ACK, 4)]


def test_a_mesh_that_is_closed_wakes_nobody():
    """Another file may have the number of its pipe by then."""
    mesh = Mesh(lambda *frame: None, lambda process: None)
    pipe = mesh._wake_out
    mesh.close()
    read_end, write_end = os.pipe()
    spare = os.dup2(write_end, pipe)
    try:
        mesh.wake()
        mesh.close()
        os.set_blocking(read_end, False)
        with pytest.raises(BlockingIOError):
            os.read(read_end, 1)
        os.write(spare, b"x")  # nor did close() close it
    finally:
        for end in {read_end, write_end, spare}:
            os.close(end)

"""A process is killed in each step of a move of keys; the run that begins anew gives the same output, and
moves keys too.

Fig. 5's steps, by what the caller sees of them. ``ORDSTREAM_MOVE_KILLS=all`` kills in every one, of both
protocols; without it some are chosen.
"""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest
from process_functions import SOURCE, rows
from random_moves import RandomMoves

import ordstream as od
from ordstream.fragments.process_stream import ProcessStream
from ordstream.reference.run_serial import run_serial

TAGS = ["_serial", "_index"]
#: Method of the caller's balancing that is the step, and which of its calls, from 0.
STEPS = {
    "1 nodes report": ("asked", 0),
    "2 plan": ("_all_reported", 0),
    "3 table, 4 pause": ("begin", 0),
    "5 migrate": ("_moved", 0),  # the first node is done, the other one has what it gave or does not
    "6 acknowledge": ("_moved", 1),
    "7 resume": ("_step_done", 0),
}
ALL = os.environ.get("ORDSTREAM_MOVE_KILLS") == "all"
CHOSEN = {
    "hold": list(STEPS) if ALL else ["3 table, 4 pause", "5 migrate"],
    "pause": list(STEPS) if ALL else ["6 acknowledge"],
}


def updates():
    return od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).key_by("item").scan(at=od.last("seen"))


class Moves(RandomMoves):
    """Random moves by a protocol."""

    def __init__(self, seed, protocol):
        super().__init__(seed, 2)
        self.policy = od.Mixed(protocol=protocol)


def kills_at(stream, step, victim):
    """Have a run end in a kill at this step of its first move."""
    balancing = stream._balancing
    name, call = STEPS[step]
    original, calls = getattr(balancing, name), 0

    def killing(*arguments):
        nonlocal calls
        found = original(*arguments)
        if calls == call:
            os.kill(stream._pool._processes[victim].pid, signal.SIGKILL)
        calls += 1
        return found

    setattr(balancing, name, killing)


@pytest.mark.parametrize("protocol", ["hold", "pause"])
def test_a_process_is_killed_in_a_step_of_a_move(tmp_path, monkeypatch, protocol):
    monkeypatch.setattr("ordstream.fragments.balancing.DECIDES", 1e9)  # reports come as fast as rows do
    pipeline, table = updates(), rows(12_000)
    expected, batches, through, lost, moved = run_serial(pipeline, table), [], None, [], 0
    steps = [*CHOSEN[protocol], None]
    for attempt, step in enumerate(steps):
        options = {
            "tags": True, "checkpoint": tmp_path, "every": 1_000, "emitted_through": through,
            "balance": {1: Moves(attempt, protocol), 2: Moves(attempt + 9, protocol)},
        }  # fmt: skip
        stream = ProcessStream(pipeline, table, 2, options, block_rows=200, channel_bytes=10_000)
        balancing = stream._balancing
        balancing._interval = balancing._next = 300
        if step is not None:
            kills_at(stream, step, attempt % 2)
        try:
            with stream:
                for batch in stream:
                    batches.append(batch)
                    through = stream.emitted_through
        except od.NodeLost as error:
            lost.append(str(error))
        moved += len(stream.moves)
    assert len(lost) == len(steps) - 1
    assert moved > 0
    found = pa.Table.from_batches(batches, schema=stream.schema)
    assert found.drop(TAGS).equals(expected.table)
    assert list(zip(*(found[name].to_pylist() for name in TAGS), strict=True)) == expected.tags

"""A stream is killed at each step of an epoch's protocol, in its workers, its driver and Java, and started
again: the committed output is `run_serial`'s.

``make kills ARGS=stream`` is the long form: 100 kills (``ORDSTREAM_KILLS``) over jobs that differ. One Java
process serves all drivers, but for those that a fault takes it from: it has its own faults, and drivers are
killed with it and without it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kill_progress
import pytest
from kill_streams import (
    MOVING_DRIVER_STEPS,
    MOVING_WORKER_STEPS,
    Java,
    StreamFault,
    StreamJob,
    drawn,
)

import ordstream

KILLS = int(os.environ.get("ORDSTREAM_KILLS", "12"))
SEED = int(os.environ.get("ORDSTREAM_KILLS_SEED", "1"))
LONG = "ORDSTREAM_KILLS" in os.environ

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2400)]

#: One process lives through all of these but the last of each row.
SHORT = [
    StreamFault(2, "row read", "after"),
    StreamFault(3, "state created"),
    StreamFault(3, "output synced", "after"),
    StreamFault(4, "state synced"),
    StreamFault(4, "commit linked"),
    StreamFault(5, "state folder synced", "after", "zombie"),
    StreamFault(6, "output written", "before", "full"),
    StreamFault(6, "commit linked", "after"),
    StreamFault(7, "waiting synced"),
    StreamFault(8, "state written", "after"),
    StreamFault(9, "batch returned"),
    StreamFault(10, "output folder synced"),
]
#: Every step of a move (Fig. 5 of Mixed), before and after.
MOVING = [
    StreamFault(2, "keys told"),
    StreamFault(2, "keys planned"),
    StreamFault(3, "keys told", "after"),
    StreamFault(3, "keys planned", "after"),
    StreamFault(4, "known created"),
    StreamFault(4, "moved state read"),
    StreamFault(5, "known written"),
    StreamFault(5, "moved state read", "after"),
    StreamFault(6, "known synced", "after", "all"),
    StreamFault(6, "state written"),
    StreamFault(7, "commit linked"),
    StreamFault(7, "state synced", "after"),
    StreamFault(8, "commit linked", "after"),
    StreamFault(9, "state folder synced", "after", "zombie"),
    StreamFault(9, "batch returned"),
    StreamFault(7, "moved state read", "after", "java"),
]

#: Of these, in CI: a worker that has told its keys, one that has read what comes to it, the driver behind
#: the manifest that puts the table in force, before Spark's commit.
MOVING_SHORT = [
    StreamFault(1, "keys told", "after"),
    StreamFault(2, "moved state read", "after"),
    StreamFault(3, "commit linked", "after"),
]

#: A clock, rows that wait and rows that are too late: every file of an epoch, and the clock's own states.
CLOCKED = [
    StreamFault(2, "late written"),
    StreamFault(3, "late synced", "after"),
    StreamFault(4, "late folder synced", "after"),
    StreamFault(5, "waiting created", "after"),
    StreamFault(5, "waiting synced", "after"),
    StreamFault(6, "waiting folder synced"),
    StreamFault(6, "commit linked"),
    StreamFault(7, "state written", "after"),
    StreamFault(7, "commit linked", "after", "all"),
    StreamFault(8, "row read", "after"),
    StreamFault(8, "output synced"),
    StreamFault(9, "state folder synced", "after", "zombie"),
    StreamFault(9, "batch returned"),
    StreamFault(10, "output folder synced", "after"),
]
#: Of these, in CI.
CLOCKED_SHORT = [
    StreamFault(1, "late synced", "after"),
    StreamFault(2, "waiting synced"),
    StreamFault(3, "commit linked", "after"),
]
#: Steps of a worker, in the driver: each ends it, but for the full disk, which a task does not meet again.
ON_DRIVER = [
    StreamFault(2, "row read", "after"),
    StreamFault(3, "state written"),
    StreamFault(4, "output synced", "after"),
    StreamFault(5, "output written", "before", "full"),
    StreamFault(5, "late written", "after"),
    StreamFault(6, "commit linked"),
    StreamFault(7, "state folder synced", "after"),
    StreamFault(8, "commit linked", "after"),
    StreamFault(9, "batch returned"),
]
#: Of these, in CI.
ON_DRIVER_SHORT = [StreamFault(1, "output synced"), StreamFault(2, "output written", "before", "full")]
EACH = 1_000  # rows: more than a micro-batch of these jobs has

PER_JOB = 20
FILES = 12  # of a job with so many faults
NODES = (2, 3, 2, 1, 2)  # of the jobs


def jobs(kills: int) -> list[tuple[bool, list[StreamFault]]]:
    """(keys move, faults) of the jobs behind the first one, with so many kills in all: each step of a move
    once, then drawn ones.
    """
    found: list[tuple[bool, list[StreamFault]]] = []
    while kills > 0:
        number = len(found)
        moving = number in (0, 2)
        if number == 0:
            faults = MOVING
        elif moving:
            faults = drawn(PER_JOB, SEED, FILES - 3, MOVING_WORKER_STEPS, MOVING_DRIVER_STEPS)
        else:
            faults = drawn(PER_JOB - 1, SEED + number, FILES)
            faults.append(StreamFault(FILES - 1, "state synced", "before", "java"))
        found.append((moving, faults[-kills:]))
        kills -= len(found[-1][1])
    return found


JOBS = jobs(KILLS - len(SHORT)) if LONG else []


@pytest.fixture(scope="module")
def warm(java, tmp_path_factory):
    """A Java process for all drivers."""
    pytest.importorskip("pyspark")
    with Java(tmp_path_factory.mktemp("java")) as made:
        yield made


def test_output_after_kills(warm, tmp_path):
    job = StreamJob(tmp_path / "job", nodes=1, seed=SEED, java=warm)
    job.run(SHORT[:KILLS], forget=True)
    job.compare()
    assert len(SHORT) > KILLS or (job.folder / "faults" / "lingered").exists()


@pytest.mark.skipif(LONG, reason="each step of a move is killed in the long form")
def test_output_after_kills_while_keys_move(warm, tmp_path):
    # files enough for keys that move behind the second epoch: by measured costs, so now and then late
    job = StreamJob(tmp_path / "job", files=9, nodes=2, seed=SEED, moving=True, java=warm)
    job.run(MOVING_SHORT)
    job.compare()
    moves = job.moves()
    assert any(moves.values()), moves


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
@pytest.mark.parametrize("number", range(len(JOBS)))
def test_output_after_many_kills(warm, tmp_path, number):
    """Also where keys move: the same keys move again, and the output is `run_serial`'s."""
    moving, faults = JOBS[number]
    if kill_progress.over():
        pytest.skip(f"the time is up: {len(faults)} kills were not tried")
    job = StreamJob(
        tmp_path / "job", files=FILES, nodes=NODES[number % 5], seed=SEED + number, moving=moving, java=warm
    )
    job.run(faults, forget=number % 2 == 0)
    job.compare()
    if moving:
        moves = job.moves()
        assert sum(count > 0 for count in moves.values()) >= 3, moves


@pytest.mark.parametrize("driver", [False, True], ids=["tasks", "driver"])
@pytest.mark.thin(1)
def test_output_of_a_clock_after_kills(warm, tmp_path, driver):
    """Windows and timers close, rows wait and rows are too late, as in a run without kills; in the long form
    by drawn faults as well, over several nodes.
    """
    if LONG and kill_progress.over():
        pytest.skip("the time is up")
    files = FILES if LONG else 5
    short = ON_DRIVER_SHORT if driver else CLOCKED_SHORT
    job = StreamJob(
        tmp_path / "job", files=files, seed=SEED, clocked=True, driver_rows=EACH * driver, java=warm
    )
    job.run((ON_DRIVER if driver else CLOCKED) if LONG else short, forget=LONG)
    job.compare()
    assert sum(job.on_driver()) >= files // 2 if driver else not any(job.on_driver())


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_output_of_a_clock_after_drawn_kills(warm, tmp_path, nodes):
    if kill_progress.over():
        pytest.skip("the time is up")
    job = StreamJob(tmp_path / "job", files=FILES, nodes=nodes, seed=SEED + nodes, clocked=True, java=warm)
    job.run(drawn(min(PER_JOB, KILLS), SEED + nodes, FILES), forget=nodes == 2)
    job.compare()


def test_a_manifest_before_its_outputs_is_seen(warm, tmp_path):
    """The negative control: the driver dies between the manifest and the output's name."""
    job = StreamJob(tmp_path / "job", files=3, early=True, java=warm)
    job.run([StreamFault(1, "commits folder synced", "after")], to_the_end=False, all_of_them=True)
    with pytest.raises(AssertionError, match="is committed and missing"):
        job.compare()


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
def test_the_stream_demo_is_killed_and_goes_on(java, tmp_path):
    """Batches before the kill, the kill, the others, the answer: each batch is committed once."""
    if kill_progress.over():
        pytest.skip("the time is up")
    command = [sys.executable, "-m", "ordstream", "demo", "--stream", "--rows", "8000", "--json", "x.json"]
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr
    out = ended.stdout.splitlines()
    assert out[0].endswith("clicks in 8 files; each is one micro-batch of the stream")
    kill = next(n for n, line in enumerate(out) if line.startswith("kill -9: the driver and Java are gone"))
    there = int(re.search(r"(\d) of 8 micro-batches are committed", out[kill])[1])
    shown = [re.match(r"  (?:micro-batch (\d)|(end of the stream)): ", line) for line in out]
    numbers = [(n > kill, found[1]) for n, found in enumerate(shown) if found]
    assert numbers[:3] == [(False, "0"), (False, "1"), (False, "2")]
    assert numbers[3:] == [(True, str(number)) for number in range(there, 8)] + [(True, None)]
    assert out[-1] == "verified: equal to the batch answer, nothing twice"
    written = json.loads((tmp_path / "x.json").read_text())
    assert (written["query"], written["verified"], len(written["rows"])) == ("q2", True, 30)

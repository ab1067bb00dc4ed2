"""A stream is killed at each step of an epoch's protocol, in its workers, its driver and Java, and started
again: the committed output is `run_serial`'s.

``make kills ARGS=stream`` is the long form: 100 kills (``ORDSTREAM_KILLS``) over jobs that differ.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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
PER_JOB = 20


@pytest.fixture(scope="module")
def warm(java, tmp_path_factory):
    """In the short form one Java process serves all drivers; in the long form each has its own."""
    pytest.importorskip("pyspark")
    if LONG:
        yield None
        return
    with Java(tmp_path_factory.mktemp("java")) as made:
        yield made


def test_output_after_kills(warm, tmp_path):
    job = StreamJob(tmp_path / "job", nodes=1, seed=SEED, java=warm)
    job.run(SHORT, forget=True)
    job.compare()
    assert (job.folder / "faults" / "lingered").exists()


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
@pytest.mark.parametrize("number", range(-(-max(KILLS - len(SHORT), 0) // PER_JOB)) if LONG else [0])
def test_output_after_many_kills(java, tmp_path, number):
    files = 14
    job = StreamJob(tmp_path / "job", files=files, nodes=1 + number % 3, seed=SEED + number)
    faults = drawn(PER_JOB, SEED + number, files)
    faults.append(StreamFault(files - 1, "state synced", "before", "java"))
    job.run(faults, forget=number % 2 == 1)
    job.compare()


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
    StreamFault(6, "known synced", "after"),
    StreamFault(6, "state written"),
    StreamFault(7, "commit linked"),
    StreamFault(7, "state synced", "after"),
    StreamFault(8, "commit linked", "after"),
    StreamFault(9, "state folder synced", "after", "zombie"),
    StreamFault(9, "batch returned"),
    StreamFault(7, "moved state read", "after", "java"),
]


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
@pytest.mark.parametrize("number", range(2))
def test_output_after_kills_while_keys_move(java, tmp_path, number):
    """Once at every step of a move, then at random ones: the same keys move again, and the output is
    `run_serial`'s.
    """
    job = StreamJob(tmp_path / "job", nodes=2, seed=SEED + number, moving=True)
    faults = MOVING if not number else drawn(
        PER_JOB, SEED, job.files - 3, MOVING_WORKER_STEPS, MOVING_DRIVER_STEPS
    )  # fmt: skip
    job.run(faults, forget=not number)
    job.compare()
    moves = job.moves()
    assert sum(count > 0 for count in moves.values()) >= 3, moves


def test_a_manifest_before_its_outputs_is_seen(warm, tmp_path):
    """The negative control: the driver dies between the manifest and the output's name."""
    job = StreamJob(tmp_path / "job", files=3, early=True, java=warm)
    job.run([StreamFault(1, "commits folder synced", "after")], to_the_end=False)
    with pytest.raises(AssertionError, match="is committed and missing"):
        job.compare()


@pytest.mark.skipif(not LONG, reason="the long form: make kills ARGS=stream")
def test_the_stream_demo_is_killed_and_goes_on(java, tmp_path):
    """Batches before the kill, the kill, the others, the answer: each batch is committed once."""
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "ordstream", "demo", "--stream", "--rows", "8000"]
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

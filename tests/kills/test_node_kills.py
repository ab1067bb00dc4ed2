"""A process that runs a pipeline into files is killed at random moments and at each step of a snapshot, and
started again: the output is `run_serial`'s.

``make kills ARGS=node`` is the long form: 100 kills (``ORDSTREAM_KILLS``) over jobs that differ.
"""

from __future__ import annotations

import os

import kill_progress
import pytest
from kill_runs import OWN_STEPS, Fault, Job, drawn

#: Each before and after. "written" counts single writes: a state file has several; "copied" buckets, and
#: after it is behind some of a bucket's rows, and in front of others.
STEPS = (
    "state copied",
    "state written",
    "state synced",
    "state folder synced",
    "commit written",
    "commit synced",
    "commit linked",
    "commits folder synced",
    "commit removed",
    "state removed",
    *OWN_STEPS,
)
KILLS = int(os.environ.get("ORDSTREAM_KILLS", "12"))
SEED = int(os.environ.get("ORDSTREAM_KILLS_SEED", "1"))
PER_JOB = 12
FAULTS = [Fault("state copied", "after", 5), *drawn(STEPS, KILLS - 1, SEED)]
JOBS = [FAULTS[first : first + PER_JOB] for first in range(0, KILLS, PER_JOB)]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(len(JOBS)))
def test_output_after_kills(tmp_path, number):
    job = Job(
        tmp_path / "job",
        which=("sessions", "counts")[number % 2],
        workers=(2, 0, 1, 4)[number % 4],
        every=(200, 300, 211)[number % 3],
        seed=SEED + number,
    )
    for fault in JOBS[number]:
        if kill_progress.over():
            break
        job.run(fault)
    job.run()
    job.compare()
    assert kill_progress.over() or job.fired == JOBS[number]


def test_a_snapshot_published_before_its_outputs_is_seen(tmp_path):
    """The negative control: outputs are held back while snapshots go on, and a kill loses them."""
    job = Job(tmp_path / "job", which="counts", every=300, held=8)
    job.run(Fault("commits folder synced", "after", 4))
    job.run()
    with pytest.raises(AssertionError, match="run_serial gives"):
        job.compare()


def test_a_fault_that_never_fires_fails_the_test(tmp_path):
    job = Job(tmp_path / "job", which="counts", every=2000)
    with pytest.raises(AssertionError, match="never fired"):
        job.run(Fault("commits folder synced", "after", 1000))

"""States that a run exported, through files, into another run: it goes on as the first would have."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from state_runs import Segment
from unit.snapshots.checkpoints import snapshot, table

import ordstream as od

pytest.importorskip("ordstream._core.state.key_groups", reason="the core is not built")
from ordstream.snapshots.checkpoint import Checkpoint
from ordstream.snapshots.fit import begins_empty, check_can_snapshot
from ordstream.snapshots.snapshot import MemoryRows

SOURCE = pa.schema(
    [("user", pa.string()), ("item", pa.int32()), ("real", pa.float64()), ("value", pa.int64())]
)


def tuples(rows):
    rng = random.Random(rows)
    return pa.table(
        {
            "user": [rng.choice([None, "", *(f"user {i}" for i in range(40))]) for _ in range(rows)],
            "item": [rng.randrange(5) for _ in range(rows)],
            "real": [rng.choice([0.0, -0.0, float("nan"), 1.5, None]) for _ in range(rows)],
            "value": [rng.choice([None, *range(100)]) for _ in range(rows)],
        },
        schema=SOURCE,
    )


def pipeline():
    return (
        od.Pipeline(SOURCE)
        .key_by("user", "item")
        .forward_fill("value")
        .key_by("real")
        .aggregate(total=od.sum("value"), least=od.min("item"), number=od.count())
        .count()
    )


def stored(folder, segment):
    """Write what a run knows, in parts of a few rows, and read it."""
    states = {}
    for name, rows in segment.state(most=7).items():
        stage = segment.stages[name][1]
        states[name] = MemoryRows(
            stage.state_identity(), stage.state_schema(), rows.to_batches(5), len(stage.key)
        )
    Checkpoint(folder).write(snapshot(states))
    return Checkpoint(folder).latest()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_goes_on_from_files(tmp_path, workers):
    plan = pipeline()
    check_can_snapshot(plan.plan)
    data = tuples(900)
    with Segment(plan, workers=workers) as whole:
        whole.push(data)
        end = whole.state()
        rows = [row for batch in whole.batches for row in batch.to_pylist()]
    with Segment(plan, workers=2 - workers) as first:
        first.push(data.slice(0, 400))
        found = stored(tmp_path, first)
        rows_first = [row for batch in first.batches for row in batch.to_pylist()]
    assert begins_empty(plan.plan, found) == []
    with Segment(plan, workers=workers) as second:
        second.install({name: table(state) for name, state in found.states.items()})
        second.push(data.slice(400))
        again = second.state()
        rows_second = [row for batch in second.batches for row in batch.to_pylist()]
    assert repr(rows_first + rows_second) == repr(rows)
    assert {name: repr(state.to_pylist()) for name, state in again.items()} == {
        name: repr(state.to_pylist()) for name, state in end.items()
    }

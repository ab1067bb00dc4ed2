"""A checkpoint of format version 1, as it was stored once, is read for ever."""

from __future__ import annotations

import importlib.util
import math
import shutil
from pathlib import Path

import pytest
from unit.snapshots.checkpoints import contents, table

pytest.importorskip("ordstream._core.state.key_groups", reason="the core is not built")
from ordstream.snapshots.checkpoint import Checkpoint

DATA = Path(__file__).parents[2] / "data"


def maker():
    spec = importlib.util.spec_from_file_location("make_checkpoint_v1", DATA / "make_checkpoint_v1.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def stored(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(DATA / "checkpoint-v1", folder)
    return Checkpoint(folder)


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_stored_is_read(stored, number):
    wanted = maker().snapshots()[number - 1]
    found = stored.read(number, verify=True)
    for field in ("serial", "emitted_through", "last_output", "latest_time", "position", "models"):
        assert getattr(found, field) == getattr(wanted, field)
    assert list(found.states) == list(wanted.states)
    for name, rows in wanted.states.items():
        got = found.states[name]
        assert (got.identity, got.keys, got.num_rows) == (rows.identity, rows.keys, rows.num_rows)
        assert got.schema.equals(rows.schema, check_metadata=True)
        assert sorted(map(repr, table(got).to_pylist())) == sorted(map(repr, table(rows).to_pylist()))
        assert any(math.isnan(row.get("real", 0)) for row in table(got).to_pylist()) == (
            name == "every type/ä"
        )


def test_a_run_goes_on_from_it(stored):
    """The hash of the keys is that of then: what is written of the same rows has the same groups."""
    before = stored.latest()
    assert [info.number for info in stored.snapshots(verify=True) if info.intact] == [1, 2]
    assert stored.write(before).number == 3
    after = stored.latest(verify=True)
    for name, rows in before.states.items():
        assert [entry[:2] for entry in after.states[name].index] == [entry[:2] for entry in rows.index]
        groups = [entry[0] for entry in rows.index]
        for group in groups:
            assert repr(table(after.states[name], [group]).to_pylist()) == repr(
                table(rows, [group]).to_pylist()
            )
    assert [info.number for info in stored.snapshots()] == [2, 3]


def test_reading_changes_nothing(stored):
    before = contents(stored.folder)
    Checkpoint(stored.folder).latest(verify=True)
    assert contents(stored.folder) == before

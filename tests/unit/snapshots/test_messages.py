"""The messages of a state file that are made at once are those that Arrow makes one by one."""

import os

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("ordstream._core.state.group_messages", reason="the core is not built")
from ordstream._core.state.group_messages import MAX_COLUMNS
from ordstream.snapshots import messages
from ordstream.snapshots.canonical import alone, in_groups

KINDS = [
    pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.duration("ns"), pa.time32("s"),
]  # fmt: skip


def state(rows, kinds, seed=1):
    """Distinct keys in random order, and a column of each type."""
    rng = np.random.default_rng(seed)
    columns = [pa.array(rng.permutation(rows) * 7)]
    for kind in kinds:
        numbers = pa.array(rng.integers(0, 100, rows).astype(np.int32))
        columns.append((numbers if kind.bit_width < 64 else numbers.cast(pa.int64())).cast(kind))
    return pa.record_batch(columns, names=[f"c{j}" for j in range(len(columns))])


def by_arrow(batch, keys=1):
    return [(group, part.num_rows, part.serialize().to_pybytes()) for group, part in
            in_groups(batch, keys, batch.schema)]  # fmt: skip


def found(batch, keys=1, low=False):
    return [
        (group, count, bytes(part))
        for group, count, part in messages.in_messages(batch, keys, batch.schema, low=low)
    ]


@pytest.fixture
def only_at_once(monkeypatch):
    """Arrow's way is not taken."""
    monkeypatch.setattr(messages, "in_groups", None)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 1_023, 40_000])
def test_plain_states(only_at_once, rows, low):
    rng = np.random.default_rng(rows)
    for _ in range(3):
        batch = state(rows, [KINDS[j] for j in rng.integers(0, len(KINDS), rng.integers(0, 6))])
        assert found(batch, low=low) == by_arrow(batch)
        assert found(batch.slice(rows // 3), low=low) == by_arrow(batch.slice(rows // 3))
    two = state(rows, [pa.int32(), pa.int64()])
    assert found(two, keys=2, low=low) == by_arrow(two, keys=2)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.string(), pa.decimal128(21, 2), pa.list_(pa.int8())])
def test_others_are_written_by_arrow(kind):
    batch, value = state(50, []), [1, 2] if pa.types.is_list(kind) else 1
    column = pa.array([None if n % 3 else value for n in range(50)])
    batch = batch.append_column("more", column.cast(kind))
    assert found(batch) == by_arrow(batch)
    wide = state(50, [pa.int8()] * MAX_COLUMNS)
    assert found(wide) == by_arrow(wide)
    nulls = state(50, []).append_column("more", pa.array([None, *range(49)], pa.int64()))
    assert found(nulls) == by_arrow(nulls)
    assert found(nulls.slice(0, 0)) == []


def test_a_message_has_nothing_of_the_rows_beside_it():
    batch = state(3_000, [pa.int16(), pa.bool_()])
    for one in (batch, batch.select([0, 1])):
        for group, count, data in found(one):
            part = pa.ipc.read_record_batch(pa.py_buffer(data), one.schema)
            assert data == alone(part).serialize().to_pybytes(), group
            assert part.num_rows == count


def test_an_arrow_that_writes_otherwise_is_believed(monkeypatch):
    """Where the first message is not as Arrow's, all are Arrow's."""
    head = messages._head
    monkeypatch.setattr(messages, "_head", lambda *given: head(*given)[::-1])
    batch = state(300, [pa.int32()])
    assert found(batch) == by_arrow(batch)


def test_a_key_twice_is_refused():
    batch = pa.record_batch({"k": [1, 2, 1], "n": [1, 1, 1]})
    for low in (False, True):
        with pytest.raises(ValueError, match=r"row 2: its key is there twice"):
            found(batch, low=low)


def test_low_is_a_thread_of_its_own_with_a_lower_priority():
    from ordstream._core.lab.testing_low_priority import where

    thread, nice = where(False)
    assert nice == os.getpriority(os.PRIO_PROCESS, thread)
    low_thread, low_nice = where(True)
    if os.uname().sysname == "Linux":
        assert low_thread != thread
        assert low_nice == min(nice + 10, 19)
    assert where(False) == (thread, nice)

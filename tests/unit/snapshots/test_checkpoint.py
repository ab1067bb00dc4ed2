"""Checkpoint: what is written is read, in one canonical form; two writers; what is kept and collected."""

from __future__ import annotations

import ast
import json
import math
import multiprocessing
import pickle
import random
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from unit.snapshots import checkpoints
from unit.snapshots.checkpoints import (
    all_files,
    columns,
    contents,
    counts,
    memory,
    same_rows,
    snapshot,
    table,
)

from ordstream.errors import CheckpointError, PlanError

pytest.importorskip("ordstream._core.state.key_groups", reason="the core is not built")
from ordstream._core.state.key_groups import order
from ordstream.snapshots import canonical
from ordstream.snapshots.checkpoint import Checkpoint


def state_bytes(folder, batch, keys=1, parts=1):
    """The one state file of a checkpoint that has just been made."""
    Checkpoint(folder).write(snapshot({"op": memory(batch, keys, parts)}))
    (path,) = (folder / "state").iterdir()
    return path.read_bytes()


def test_a_snapshot_comes_back(tmp_path):
    checkpoint = Checkpoint(tmp_path / "new" / "folder")
    assert checkpoint.latest() is None
    assert checkpoint.snapshots() == []
    states = {"count": memory(counts(1000), parts=3), "a/b\\..": memory(columns(400), 2, key="user, item")}
    position = {"file": "a.parquet", "row": 17, "of": [1, 2.5, None, True]}
    models = {"shed": bytes(range(256))}
    written = checkpoint.write(snapshot(states, 42, latest_time=-3, position=position, models=models))
    assert (written.number, written.rows) == (1, 1400)
    assert written.bytes == sum(path.stat().st_size for path in (checkpoint.folder / "state").iterdir())
    assert min(written.sort_seconds, written.write_seconds, written.sync_seconds) > 0
    for verify in (False, True):
        found = Checkpoint(checkpoint.folder).latest(verify=verify)
        assert (found.serial, found.emitted_through) == (42, checkpoints.OrderTag(42, 2))
        assert (found.latest_time, found.position, found.models) == (-3, position, models)
        assert found.num_rows == 1400
        assert list(found.states) == list(states)
        for name, rows in states.items():
            assert found.states[name].identity == rows.identity
            assert found.states[name].schema == rows.schema
            assert found.states[name].keys == rows.keys
            assert found.states[name].num_rows == rows.num_rows
            assert same_rows(table(found.states[name]), table(rows))


@pytest.mark.parametrize("rows", [0, 1, 2, 5000])
def test_any_number_of_rows(tmp_path, rows):
    Checkpoint(tmp_path).write(snapshot({"op": memory(columns(rows), 2, parts=4)}))
    found = Checkpoint(tmp_path).latest(verify=True).states["op"]
    assert found.num_rows == rows
    assert same_rows(table(found), pa.Table.from_batches([columns(rows)]))


def test_a_state_without_a_key(tmp_path):
    row = pa.record_batch([pa.array([[1.5, None, 2.5]]), pa.array([3])], names=["values", "count"])
    Checkpoint(tmp_path).write(
        snapshot({"op": memory(row, keys=0), "none": memory(row.slice(0, 0), keys=0)})
    )
    found = Checkpoint(tmp_path).latest().states
    assert table(found["op"]).to_pylist() == row.to_pylist()
    assert [batch.num_rows for batch in found["op"].batches([0])] == [1]
    assert found["none"].num_rows == 0


def test_a_snapshot_without_states(tmp_path):
    Checkpoint(tmp_path).write(snapshot({}))
    assert Checkpoint(tmp_path).latest().states == {}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.integers(0, 300), parts=st.integers(1, 20), seed=st.randoms(use_true_random=False))
def test_the_same_rows_give_the_same_bytes(tmp_path_factory, rows, parts, seed):
    batch = columns(rows)
    places = list(range(rows))
    seed.shuffle(places)
    shuffled = batch.take(pa.array(places, pa.int64()))
    one = state_bytes(tmp_path_factory.mktemp("one"), batch, keys=2)
    other = state_bytes(tmp_path_factory.mktemp("other"), shuffled, keys=2, parts=parts)
    assert one == other


def test_what_no_row_says_is_not_in_the_bytes(tmp_path):
    """Values under nulls, bits behind the last row, offsets that do not begin at 0."""
    valid = pa.array([True, False, True]).buffers()[1]
    values = [pa.array([1, garbage, 3]).buffers()[1] for garbage in (5, -6)]
    texts = [pa.array([f"{garbage} here", "a", None, "b"])[1:] for garbage in ("long", "x")]
    lists = [pa.array([[garbage], [1], [], [2]])[1:] for garbage in (8, 9)]
    bits = [pa.array([True, False, True, garbage, garbage])[:3] for garbage in (True, False)]
    made = [
        state_bytes(
            tmp_path / str(i),
            pa.record_batch(
                [
                    pa.array([1, 2, 3]),
                    pa.Array.from_buffers(pa.int64(), 3, [valid, values[i]]),
                    texts[i],
                    lists[i],
                    bits[i],
                ],
                names=list("kvtlb"),
            ),
        )
        for i in range(2)
    ]
    assert made[0] == made[1]


def test_float_keys_have_one_form(tmp_path):
    batches = [
        pa.record_batch([pa.array(keys), pa.array([1, 2, 3])], names=["k", "v"])
        for keys in ([0.0, math.nan, 1.5], [-0.0, -math.nan, 1.5])
    ]
    one, other = (state_bytes(tmp_path / str(i), batch) for i, batch in enumerate(batches))
    assert one == other
    keys = table(Checkpoint(tmp_path / "1").latest().states["op"]).column("k").to_pylist()
    assert {str(key) for key in keys} == {"0.0", "nan", "1.5"}


def test_groups_are_read_alone(tmp_path):
    batch = counts(5000)
    Checkpoint(tmp_path).write(snapshot({"op": memory(batch)}))
    found = Checkpoint(tmp_path).latest().states["op"]
    rows, ends = order(batch, 1)
    for group in (0, 1, 500, 1023):
        low = int(ends[group - 1]) if group else 0
        wanted = batch.column(0).take(pa.array(rows[low : ends[group]]))
        assert table(found, [group]).column("k").to_pylist() == wanted.to_pylist()
    assert same_rows(table(found, range(1024)), table(found))
    assert list(found.batches([])) == []
    with pytest.raises(ValueError, match="key groups are 0 to 1023, not "):
        found.batches([1024])
    # The other groups are not looked at: their bytes may be anything.
    (path,) = (tmp_path / "state").iterdir()
    data = bytearray(path.read_bytes())
    _, _, at, size, _ = found.index[7]
    data[at : at + size] = b"\xff" * size
    path.write_bytes(data)
    assert table(found, [500]).num_rows == int(ends[500] - ends[499])
    with pytest.raises(CheckpointError, match="key group 7"):
        table(found, [7])


def test_huge_strings(tmp_path):
    keys = ["x" * 3_000_000 + str(i) for i in range(5)] + ["y" * (1 << 24), ""]
    batch = pa.record_batch([pa.array(keys), pa.array([key[::-1] for key in keys])], names=["k", "v"])
    Checkpoint(tmp_path).write(snapshot({"op": memory(batch, parts=3)}))
    found = table(Checkpoint(tmp_path).latest(verify=True).states["op"])
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == {
        key: key[::-1] for key in keys
    }


def test_more_strings_than_32_bits_can_count(tmp_path, monkeypatch):
    """The way of 2 GiB, taken with less: the file is the same."""
    batch = columns(300)
    narrow = state_bytes(tmp_path / "narrow", batch, keys=2)
    monkeypatch.setattr(canonical.one_batch, "__defaults__", (1,))
    assert canonical.one_batch(memory(batch, 2)).schema.field("texts").type == pa.large_list(
        pa.large_string()
    )
    assert state_bytes(tmp_path / "wide", batch, keys=2, parts=3) == narrow


def few_nulls(rows):
    values = pa.array([None if k % 500 == 3 else k for k in range(rows)])
    return pa.record_batch([pa.array(range(rows)), values], names=["k", "v"])


@pytest.mark.parametrize(("batch", "keys"), [(columns(3000), 2), (few_nulls(3000), 1), (counts(3000), 1)])
def test_gathered_in_blocks(tmp_path, monkeypatch, batch, keys):
    """The bytes of a group do not depend on the rows that are gathered with it."""
    once = state_bytes(tmp_path / "once", batch, keys)
    for most in (1, 100):
        monkeypatch.setattr(canonical, "ROWS", most)
        assert state_bytes(tmp_path / str(most), batch, keys) == once


@pytest.mark.slow
def test_a_million_keys(tmp_path):
    batch = counts(1_000_000, first=-500_000)
    Checkpoint(tmp_path).write(snapshot({"op": memory(batch, parts=17)}))
    found = table(Checkpoint(tmp_path).latest(verify=True).states["op"])
    assert found.sort_by("k").equals(pa.Table.from_batches([batch]))


NAMES = [
    "a/b",
    "..",
    ".",
    "",
    "A",
    "a",
    "Ä",
    "名前",
    "x" * 5000,
    "con",
    "a\x00b",
    "a\nb",
    "\ud800",
    "-",
    "a b",
    "%s{}",
]


def test_any_name_of_an_operator(tmp_path):
    states = {name: memory(counts(1 + i)) for i, name in enumerate(NAMES)}
    Checkpoint(tmp_path).write(snapshot(states))
    found = Checkpoint(tmp_path).latest(verify=True).states
    assert {name: rows.num_rows for name, rows in found.items()} == {
        name: 1 + i for i, name in enumerate(NAMES)
    }
    names = [path.name for path in all_files(tmp_path / "state")]
    assert len({name.lower() for name in names}) == len(NAMES)
    assert all(name.isascii() and len(name) < 160 for name in names)
    assert {path.parent for path in all_files(tmp_path)} == {
        tmp_path,
        tmp_path / "state",
        tmp_path / "commits",
    }


@pytest.mark.parametrize("position", [{1}, math.nan, (1, 2), {1: 2}, Ellipsis, b"x"], ids=repr)
def test_a_position_that_is_no_json_value(tmp_path, position):
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"the source's position can't be stored: .*position"):
        checkpoint.write(snapshot(position=position))
    assert all_files(tmp_path) == [tmp_path / "STREAM.json"]
    assert checkpoint.write(snapshot(position=[1, {"a": None}])).number == 1


@pytest.mark.parametrize("keys", [-1, 3])
def test_a_state_that_does_not_say_its_key(tmp_path, keys):
    checkpoint = Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"operator 'op': -?\d key columns of 2 columns.*keys="):
        checkpoint.write(snapshot({"op": memory(counts(3), keys)}))
    assert all_files(tmp_path) == [tmp_path / "STREAM.json"]


def test_a_key_twice_and_a_part_of_another_schema(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    twice = pa.record_batch([[1, 2, 1], [1, 1, 1]], names=["k", "count"])
    with pytest.raises(
        CheckpointError, match=r"operator 'op': its state can't be stored: row .: its key is there twice"
    ):
        checkpoint.write(snapshot({"op": memory(twice)}))
    other = checkpoints.MemoryRows({}, counts(1).schema, [pa.record_batch([["a"]], names=["k"])], 1)
    with pytest.raises(CheckpointError, match="operator 'op': its state can't be stored"):
        checkpoint.write(snapshot({"good": memory(counts(3)), "op": other}))
    assert all_files(tmp_path) == [tmp_path / "STREAM.json"]


# ------------------------------------------------------------------------------------------ the folder


def test_opening(tmp_path):
    with pytest.raises(PlanError, match="keep must be an int of 2 or more, not 1"):
        Checkpoint(tmp_path, keep=1)
    with pytest.raises(PlanError, match="keep"):
        Checkpoint(tmp_path, keep=True)
    assert all_files(tmp_path) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"is no checkpoint: it holds 'notes.txt'; name a new folder"):
        Checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match=r"notes.txt: the checkpoint can't be opened: it is no folder"):
        Checkpoint(tmp_path / "notes.txt")
    assert all_files(tmp_path) == [tmp_path / "notes.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="it is no folder, but a file, or a link to what is not there"):
        Checkpoint(tmp_path / "link")
    assert str(Checkpoint(str(tmp_path / "new"), keep=3)) == f"Checkpoint('{tmp_path / 'new'}', keep=3)"
    (tmp_path / "new" / "commits").rmdir()
    (tmp_path / "new" / "commits").write_text("a file in the way, in a folder that is one")
    with pytest.raises(CheckpointError, match="new/commits: the checkpoint can't be opened: it is no"):
        Checkpoint(tmp_path / "new")


def test_a_snapshot_from_a_folder_goes_to_another_process(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(snapshot({"op": memory(counts(40))}))
    given = checkpoint.read(1)
    sent = pickle.loads(pickle.dumps(given))
    assert sent.position == given.position
    assert list(sent.states["op"].batches()) == list(given.states["op"].batches())
    sent.states["op"].path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"\.arrows: key group \d+: damaged: it ends after 0 of"):
        list(sent.states["op"].batches())


@pytest.mark.parametrize("number", ["1", 1.0, None, [1]])
def test_a_snapshot_is_read_by_its_number(tmp_path, number):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(snapshot({"op": memory(counts(3))}, 5))
    with pytest.raises(PlanError, match=r"read takes the number of a snapshot, an int, got .*snapshots\(\)"):
        checkpoint.read(number)
    assert checkpoint.read(np.int64(1)).serial == 5


@pytest.mark.parametrize("folder_too", [False, True])
def test_manifests_that_are_lost(tmp_path, folder_too):
    """A run would begin anew, and give all its output again."""
    checkpoint = Checkpoint(tmp_path)
    for serial in (5, 9):
        checkpoint.write(snapshot({"op": memory(counts(3))}, serial))
    for path in (tmp_path / "commits").iterdir():
        path.unlink()
    if folder_too:
        (tmp_path / "commits").rmdir()
    with pytest.raises(CheckpointError, match=r"there is no manifest, and .* has files of snapshot 2"):
        Checkpoint(tmp_path)


def test_what_a_killed_first_writer_left_is_no_loss(tmp_path):
    Checkpoint(tmp_path)
    (tmp_path / "state" / "000000000001-op-a-b.arrows").write_bytes(b"half")
    assert Checkpoint(tmp_path).latest() is None


@pytest.mark.parametrize(
    ("name", "value"), [("version", 2), ("key_hash", 2), ("groups", 512), ("format", "something else")]
)
def test_a_folder_of_another_version(tmp_path, name, value):
    from ordstream.snapshots.checkpoint import STREAM_CONTENT
    from ordstream.snapshots.files import checked_json

    (tmp_path / "STREAM.json").write_bytes(checked_json({**STREAM_CONTENT, name: value}))
    with pytest.raises(
        CheckpointError, match=f"STREAM.json: {name} is {value!r}; this version of ordstream reads"
    ):
        Checkpoint(tmp_path)


def test_files_are_json_and_never_pickled(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(snapshot())
    for path in [tmp_path / "STREAM.json", *all_files(tmp_path / "commits")]:
        assert json.loads(path.read_text())["version"] == 1
    for source in Path(canonical.__file__).parent.glob("*.py"):
        imported = {
            name.name
            for node in ast.walk(ast.parse(source.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [*node.names, ast.alias(getattr(node, "module", None) or "")]
        }
        assert not imported & {"pickle", "marshal", "shelve", "cloudpickle", "ordstream.udf.pickling"}, (
            source
        )


# ------------------------------------------------------------------------------------------ kept, collected


def test_the_last_ones_are_kept(tmp_path):
    for keep in (2, 3):
        folder = tmp_path / str(keep)
        checkpoint = Checkpoint(folder, keep=keep)
        for number in range(1, 7):
            assert checkpoint.write(snapshot(serial=number * 10)).number == number
            there = [info.number for info in checkpoint.snapshots()]
            assert there == list(range(max(1, number - keep + 1), number + 1))
            assert len(all_files(folder / "state")) == len(there)
            assert len(all_files(folder / "commits")) == len(there)
        infos = checkpoint.snapshots(verify=True)
        assert all(info.intact for info in infos)
        assert [info.serial for info in infos] == [10 * info.number for info in infos]
        assert [info.rows for info in infos] == [40] * keep
        assert all(info.time.endswith("+00:00") for info in infos)
        assert checkpoint.read(5).serial == 50
        with pytest.raises(
            CheckpointError, match=r"there is no snapshot 1 in this checkpoint; there are: .*5, 6"
        ):
            checkpoint.read(1)


def test_an_old_snapshot_that_a_run_goes_on_from(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    for serial in (1, 2, 3):
        checkpoint.write(snapshot(serial=serial))
    again = Checkpoint(tmp_path)
    assert again.read(2).serial == 2
    assert again.write(snapshot(serial=30)).number == 4
    # 3 is not what 4 was made from; 2 is.
    assert [(info.number, info.serial) for info in again.snapshots()] == [(2, 2), (4, 30)]
    assert len(all_files(tmp_path / "state")) == 2


def test_leftovers_are_collected_but_not_what_is_under_way(tmp_path):
    checkpoint = Checkpoint(tmp_path)
    checkpoint.write(snapshot())
    for name in (
        "state/000000000002-op-00-1-dead.arrows",  # of an attempt to write 2, which fails or was killed
        "commits/.000000000002-1-dead.tmp",
        "state/000000000003-op-00-1-live.arrows",  # of one who is ahead
        "commits/.000000000003-1-live.tmp",
        "state/notes.txt",
        "commits/notes.txt",
    ):
        (tmp_path / name).write_text("x")
    before = contents(tmp_path)
    with pytest.raises(CheckpointError, match="position"):
        checkpoint.write(snapshot(position=math.nan))
    assert contents(tmp_path) == before
    assert checkpoint.write(snapshot()).number == 2
    gone = set(before) - set(contents(tmp_path))
    assert gone == {"state/000000000002-op-00-1-dead.arrows", "commits/.000000000002-1-dead.tmp"}


# ------------------------------------------------------------------------------------------ two writers


def test_the_second_writer_loses(tmp_path):
    one, other = Checkpoint(tmp_path), Checkpoint(tmp_path)
    assert one.write(snapshot(serial=1)).number == 1
    before = contents(tmp_path)
    for _ in range(2):
        with pytest.raises(
            CheckpointError, match=r"another run has written snapshot 1 to this checkpoint.*Stop one"
        ):
            other.write(snapshot(serial=2))
        assert contents(tmp_path) == before
    assert one.write(snapshot(serial=3)).number == 2
    other.latest()  # takes up from there
    assert other.write(snapshot(serial=4)).number == 3
    with pytest.raises(CheckpointError, match="another run"):
        one.write(snapshot(serial=5))


@pytest.mark.parametrize("leftovers_stay", [False, True])
def test_a_writer_that_was_overtaken_while_it_wrote(tmp_path, leftovers_stay):
    """Its number is free again, since the snapshot of that number was collected: it loses all the same."""
    one = Checkpoint(tmp_path)

    class Slow(checkpoints.FailingFiles):
        def link(self, source, target):
            if target.name != "STREAM.json":
                content = source.read_bytes()
                for serial in range(1, 5):
                    one.write(snapshot(serial=serial))
                assert not target.exists()
                assert not source.exists()
                if leftovers_stay:
                    source.write_bytes(content)
            super().link(source, target)

    files = Slow()
    slow = Checkpoint._with_files(tmp_path, files)
    with pytest.raises(CheckpointError, match="another run has written snapshot 1"):
        slow.write(snapshot(serial=99))
    assert [(info.number, info.serial, info.intact) for info in one.snapshots(verify=True)] == [
        (3, 3, True),
        (4, 4, True),
    ]
    assert not [path for path in all_files(tmp_path) if path.name.startswith(("000000000001", "."))]


@pytest.mark.parametrize("start", ["thread", "process"])
def test_writers_at_one_time(tmp_path, start):
    context = multiprocessing.get_context("spawn")
    count = 4 if start == "thread" else 2
    if start == "thread":
        import queue

        barrier, found = threading.Barrier(count), queue.Queue()
        make = threading.Thread
    else:
        barrier, found = context.Barrier(count), context.Queue()
        make = context.Process
    runs = [make(target=checkpoints.writes, args=(tmp_path, i, barrier, found)) for i in range(count)]
    for run in runs:
        run.start()
    results = dict(found.get(timeout=60) for _ in runs)
    for run in runs:
        run.join()
    won = [serial for serial, result in results.items() if result == 1]
    assert len(won) == 1
    assert all("another run has written snapshot 1" in result for result in results.values() if result != 1)
    assert Checkpoint(tmp_path).latest(verify=True).serial == won[0]
    assert len(all_files(tmp_path)) == 3


def test_many_who_open_a_new_folder(tmp_path):
    barrier = threading.Barrier(8)
    made = []

    def opens():
        barrier.wait()
        made.append(Checkpoint(tmp_path / "new"))

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert all_files(tmp_path) == [tmp_path / "new" / "STREAM.json"]


def test_random_order_of_operators_does_not_matter(tmp_path):
    names = [f"op {i}" for i in range(5)]
    random.Random(1).shuffle(names)
    Checkpoint(tmp_path).write(snapshot({name: memory(counts(3)) for name in names}))
    assert list(Checkpoint(tmp_path).latest().states) == names

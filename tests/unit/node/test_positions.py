"""Sources with positions: what `at` says of any serial, and that `resume` gives exactly the rows behind
it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.ground.batches import BATCH_ROWS
from ordstream.node import file_sources, source
from ordstream.node.positions import MemorySource, Positions

SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string())])


def rows_of(first, behind):
    return pa.record_batch(
        [list(range(first, behind)), [f"s{k}" for k in range(first, behind)]], schema=SCHEMA
    )


def cut(*sizes):
    """Batches of so many rows, counted on."""
    found, first = [], 0
    for size in sizes:
        found.append(rows_of(first, first + size))
        first += size
    return found


def resume(data, value):
    """The batches behind a place that `Positions.at` gave."""
    return iter(Positions(data, start=value))


def values(batches):
    return [value for batch in batches for value in batch.column("a").to_pylist()]


class Counted:
    """An iterable of batches with positions, as a user writes it: a cursor, like that of a file."""

    def __init__(self, batches):
        self.batches, self.at, self.sought = batches, 0, []

    def __iter__(self):
        while self.at < len(self.batches):
            self.at += 1
            yield self.batches[self.at - 1]

    def position(self):
        return {"offset": self.at}

    def seek(self, position):
        self.sought.append(position)
        self.at = position["offset"]


def parquet(folder, *files):
    """Files of row groups of so many rows, counted on."""
    first, paths = 0, []
    for number, groups in enumerate(files):
        paths.append(folder / f"part-{number}.parquet")
        with pq.ParquetWriter(paths[-1], SCHEMA) as writer:
            for size in groups:
                writer.write_batch(rows_of(first, first + size), row_group_size=max(size, 1))
                first += size
    return paths


def ipc(folder, make, *files):
    first, paths = 0, []
    for number, sizes in enumerate(files):
        paths.append(folder / f"part-{number}.arrow")
        with make(str(paths[-1]), SCHEMA) as writer:
            for size in sizes:
                writer.write_batch(rows_of(first, first + size))
                first += size
    return paths


SHAPES = [(), (0,), (3,), (1, 1, 1), (0, 4, 0, 0, 3, 0), (2, 0), (5, 1, 0, 2)]


def table_of(sizes):
    return pa.Table.from_batches(cut(*sizes), schema=SCHEMA)


def sources(kind, folder, sizes):
    """A function that gives the source anew, as a new process would."""
    if kind == "parquet":
        paths = parquet(folder, sizes[:2], sizes[2:])
        return lambda: od.ParquetSource(paths)
    if kind in ("file", "stream"):
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        paths = ipc(folder, make, sizes[:2], sizes[2:])
        return lambda: od.IpcSource(paths)
    if kind == "table":
        return lambda: table_of(sizes)
    return lambda: cut(*sizes) if kind == "list" else Counted(cut(*sizes))


KINDS = ["table", "list", "user", "parquet", "file", "stream"]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_serial_has_a_place_to_go_on_from(tmp_path, kind, sizes):
    make = sources(kind, tmp_path, sizes)
    total = sum(sizes)
    positions = Positions(make())
    assert positions.at(0)["rows"] == 0  # before the first batch was asked for
    given = list(positions)
    assert values(given) == list(range(total))
    for serial in range(total + 1):
        value = json.loads(json.dumps(positions.at(serial)))  # as it lies in a manifest
        assert values(resume(make(), value)) == list(range(serial, total)), serial


class OnePlace(Counted):
    """It says where it stands by one dict, which it changes as it goes on, and takes the one it is given."""

    def __init__(self, batches):
        super().__init__(batches)
        self.place = {"read": [0]}

    def __iter__(self):
        while self.place["read"][0] < len(self.batches):
            self.place["read"][0] += 1
            yield self.batches[self.place["read"][0] - 1]

    def position(self):
        return self.place

    def seek(self, position):
        self.place = position


def test_a_place_stays_though_the_source_changes_the_dict_that_it_gave():
    """Each place was that of the last batch read: rows were missing behind a snapshot, and nothing told."""
    positions = Positions(OnePlace(cut(2, 2, 2, 2)))
    assert positions.at(0)["source"] == {"read": [0]}
    list(positions)
    for serial in range(9):
        value = positions.at(serial)
        for _ in range(2):  # the value is no source's: the second one to be given it begins there, too
            assert values(resume(OnePlace(cut(2, 2, 2, 2)), value)) == list(range(serial, 8)), serial


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_over_such_a_source_goes_on_from_its_snapshots(tmp_path, workers):
    sizes = [10] * 30
    pipeline = od.Pipeline(SCHEMA).select("a")
    stream = pipeline.stream(OnePlace(cut(*sizes)), checkpoint=tmp_path, every=7, workers=workers)
    given = [next(stream)]
    while sum(batch.num_rows for batch in given) < 100:
        given.append(next(stream))
    through = stream.emitted_through
    stream.close()
    source_ = OnePlace(cut(*sizes))
    rest = pipeline.run(source_, checkpoint=tmp_path, emitted_through=through, workers=workers).table
    assert values(given) + rest["a"].to_pylist() == list(range(300))


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_was_resumed_is_resumed_again(tmp_path, kind):
    sizes = (5, 1, 0, 2, 7)
    make = sources(kind, tmp_path, sizes)
    for first in range(16):
        before = Positions(make())
        list(before)
        second = Positions(make(), first, before.at(first))
        assert second.at(first)["rows"] >= 0  # nothing was read yet
        assert values(second) == list(range(first, 15))
        for serial in range(first, 16):
            assert values(resume(make(), second.at(serial))) == list(range(serial, 15))
        with pytest.raises(LookupError):
            second.at(16)
        if first:
            with pytest.raises(LookupError):
                second.at(first - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_places_while_the_source_is_read(tmp_path, kind):
    """The place behind all that was given needs nothing of it, before the next batch is asked for."""
    sizes = (4, 3, 2)
    make = sources(kind, tmp_path, sizes)
    positions = Positions(make())
    given = 0
    for batch in positions:
        given += batch.num_rows
        assert positions.at(given)["rows"] == 0
        assert values(resume(make(), positions.at(given))) == list(range(given, 9))
        with pytest.raises(LookupError):
            positions.at(given + 1)


def test_what_lies_behind_is_forgotten():
    positions = Positions(cut(*[2] * 1000))
    list(positions)
    positions.forget(1500)
    assert len(positions._firsts) == len(positions._places) < 260
    with pytest.raises(LookupError):
        positions.at(1498)
    assert values(resume(cut(*[2] * 1000), positions.at(1500))) == list(range(1500, 2000))
    positions.forget(2000)
    assert len(positions._firsts) == 1
    assert list(resume(cut(*[2] * 1000), positions.at(2000))) == []


def test_rows_are_slices():
    data = cut(1000, 1000)
    (first, second) = resume(data, {"source": 0, "rows": 500})
    assert first.column("a").buffers()[1].address == data[0].column("a").buffers()[1].address
    assert first.num_rows == 500
    assert second.num_rows == 1000


def test_a_wide_and_a_huge_batch(tmp_path):
    wide = pa.record_batch([pa.array([k]) for k in range(3000)], names=[f"c{k}" for k in range(3000)])
    assert next(iter(resume([wide, wide], {"source": 0, "rows": 1}))).equals(wide)
    path = tmp_path / "huge.parquet"
    rows = 3 * BATCH_ROWS + 17
    pq.write_table(pa.table({"a": range(rows), "s": ["x"] * rows}, schema=SCHEMA), path, row_group_size=rows)
    positions = Positions(od.ParquetSource(path))
    batches = list(positions)
    assert max(batch.num_rows for batch in batches) <= BATCH_ROWS
    for serial in (0, 1, BATCH_ROWS, BATCH_ROWS + 1, rows - 1, rows):
        found = list(resume(od.ParquetSource(path), positions.at(serial)))
        assert sum(batch.num_rows for batch in found) == rows - serial
        assert not found or found[0].column("a")[0].as_py() == serial


def test_items_that_are_streams_themselves():
    tables = [pa.Table.from_batches(cut(2, 3)), pa.Table.from_batches([rows_of(5, 9)])]

    class OnlyStream:
        def __init__(self, table):
            self.table = table

        def __arrow_c_stream__(self, requested_schema=None):
            return self.table.__arrow_c_stream__(requested_schema)

    for items in (tables, [OnlyStream(table) for table in tables]):
        positions = Positions(Counted(items))
        list(positions)
        assert [positions.at(serial)["source"]["offset"] for serial in range(10)] == [0] * 5 + [1] * 4 + [2]
        for serial in range(10):
            assert values(resume(Counted(items), positions.at(serial))) == list(range(serial, 9))


def test_the_core_gets_the_same_rows():
    """Under `source.batches`, which cuts and casts, serials stay what `at` counts."""
    positions = Positions(Counted(cut(200_000, 3)))
    parts = list(source.batches(positions, SCHEMA))
    assert len(parts) > 2
    assert positions.at(150_000) == {"source": {"offset": 0}, "rows": 150_000}
    assert positions.at(200_001) == {"source": {"offset": 1}, "rows": 1}


# ------------------------------------------------------------ Parquet: what is read


def test_seeking_opens_no_earlier_file_and_reads_no_earlier_group(tmp_path, monkeypatch):
    paths = parquet(tmp_path, (3, 3), (2, 4, 5), (6,))
    opened, groups = [], []

    class Watched(pq.ParquetFile):
        def __init__(self, path, *args, **named):
            opened.append(Path(path).name)
            super().__init__(path, *args, **named)

        def iter_batches(self, *args, row_groups, **named):
            groups.extend(row_groups)
            return super().iter_batches(*args, row_groups=row_groups, **named)

    positions = Positions(od.ParquetSource(paths))
    list(positions)
    value = positions.at(6 + 2 + 4 + 1)  # in the last group of the second file
    monkeypatch.setattr(file_sources.pq, "ParquetFile", Watched)
    found = resume(od.ParquetSource(paths), value)
    assert opened == []
    assert values(found) == list(range(13, 23))
    assert opened == ["part-1.parquet", "part-2.parquet"]
    assert groups == [2, 0]
    opened.clear()
    assert values(resume(od.ParquetSource(paths), positions.at(17))) == list(range(17, 23))
    assert opened == ["part-2.parquet"]  # nothing of the file whose last row was the last one
    opened.clear()
    assert list(resume(od.ParquetSource(paths), positions.at(23))) == []
    assert opened == []


def test_patterns_lists_columns_and_a_second_run(tmp_path):
    paths = parquet(tmp_path, (3,), (2,))
    pattern = od.ParquetSource(str(tmp_path / "*.parquet"), columns=["a"])
    assert pattern.paths == [str(path) for path in paths]
    assert values(pattern) == values(pattern) == [0, 1, 2, 3, 4]
    assert next(iter(pattern)).schema.names == ["a"]
    assert values(od.ParquetSource(paths[::-1])) == [3, 4, 0, 1, 2]
    with pytest.raises(od.SourceError, match=r"has no column 'b'; it has 'a', 's'"):
        list(od.ParquetSource(paths, columns=["b"]))
    with pytest.raises(od.SourceError, match="no file matches"):
        od.ParquetSource(str(tmp_path / "*.orc"))
    with pytest.raises(od.SourceError, match="can't be read: No such file"):
        od.ParquetSource(tmp_path / "absent.parquet")
    with pytest.raises(od.SourceError, match="is a folder: give its files"):
        od.ParquetSource(tmp_path)
    (tmp_path / "year=2026").mkdir()
    with pytest.raises(od.SourceError, match="is a folder of partitions, whose names are columns"):
        od.ParquetSource(tmp_path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(od.SourceError, match=r"bad\.parquet can't be read"):
        list(od.ParquetSource(tmp_path / "bad.parquet"))


def place_in_second(paths, kind=None):
    positions = Positions((kind or od.ParquetSource)(paths))
    list(positions)
    return positions.at(6)  # in the middle of the second file, behind a group


def test_a_changed_list_of_files_is_refused(tmp_path):
    paths = parquet(tmp_path, (3,), (3, 3, 3), (4,))
    value = place_in_second(paths)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in paths:
        (moved / path.name).write_bytes(path.read_bytes())
    assert values(resume(od.ParquetSource(str(moved / "*")), value)) == list(range(6, 16))
    for wrong, what in (
        ([paths[1], paths[0], paths[2]], r"number 2 was 'part-1.parquet' with \d+ bytes, now it is 'part-0"),
        ([paths[2], paths[1]], r"number 2 was 'part-1.parquet' .* one before it was renamed, left out or"),
        (paths[:2], r"behind number 2, where it lies, 'part-2.parquet' is gone, and its rows were not read"),
        ([paths[0]], r"lies in file 2 of the source \('part-1.parquet'\), but there are 1 files"),
        ([], "but there are 0 files"),
    ):
        with pytest.raises(od.SourceError, match=what):
            resume(od.ParquetSource(wrong), value)
    parquet(tmp_path, (3,), (3, 3, 4), (4,))
    with pytest.raises(
        od.SourceError, match=r"number 2 was 'part-1.parquet' with \d+ bytes, now it is 'part-1"
    ):
        resume(od.ParquetSource(paths), value)


@pytest.mark.parametrize("known", [0, 1, 100])
def test_a_file_that_went_before_it_was_read_is_missed(tmp_path, monkeypatch, known):
    monkeypatch.setattr(file_sources, "NAMES_TO_COME", known)
    paths = parquet(tmp_path, (3,), (3, 3), (4,), (2,))
    value = json.loads(json.dumps(place_in_second(paths)))
    assert len(value["source"]["next"]) == min(known, 2)
    (tmp_path / "part-2.parquet").unlink()
    what = "'part-2.parquet' is gone" if known else "2 were to come, now 1 are"
    with pytest.raises(od.SourceError, match=f"behind number 2, where it lies, {what}, and its rows"):
        resume(od.ParquetSource(str(tmp_path / "*")), value)
    pq.write_table(pq.read_table(paths[0]).slice(0, 0), tmp_path / "part-2.parquet")  # as the error says
    assert values(resume(od.ParquetSource(str(tmp_path / "*")), value)) == [6, 7, 8, 13, 14]
    # Others may stand behind the place, in front of those that were to come, too.
    (tmp_path / "part-1b.parquet").write_bytes(paths[0].read_bytes())
    assert values(resume(od.ParquetSource(str(tmp_path / "*")), value)) == [6, 7, 8, 0, 1, 2, 13, 14]
    # A place of an older release says nothing of what was to come.
    older = {name: item for name, item in value["source"].items() if name not in ("to_come", "next")}
    assert values(resume(od.ParquetSource(paths[:2]), value | {"source": older})) == [6, 7, 8]


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream])
def test_a_rewritten_ipc_file_of_the_same_size_is_seen_at_its_end(tmp_path, make):
    (path,) = ipc(tmp_path, make, (2, 2, 2))
    kept = od.IpcSource(path)
    value = Positions(kept)
    list(value)
    position = kept.position() | {"file": 0, "part": 5, "files": kept._digest(1), "name": path.name}
    with pytest.raises(od.SourceError, match=r"part-0.arrow has fewer batches than the 5"):
        list(resume(od.IpcSource(path), {"source": position, "rows": 0}))


@pytest.mark.parametrize("value", [None, 3, {}, {"file": -1}, {"file": True, "part": 0, "row": 0}])
def test_a_place_of_another_source_is_refused(tmp_path, value):
    (path,) = parquet(tmp_path, (3,))
    with pytest.raises(od.SourceError, match="is no place in files"):
        resume(od.ParquetSource(path), {"source": value, "rows": 0})


# ------------------------------------------------------------ what is refused


def generator():
    yield from cut(3)


def test_a_source_shows_its_files(tmp_path):
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path in paths:
        pq.write_table(pa.table({"x": [1]}), path)
    assert repr(od.ParquetSource(paths[0])) == f"ParquetSource({str(paths[0])!r})"
    assert repr(od.ParquetSource(paths)) == f"ParquetSource({str(paths[0])!r}, 2 files)"
    assert repr(od.IpcSource([])) == "IpcSource(0 files)"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (generator(), r"generator has no position\(\) and no seek\(\)"),
        (table_of((3,)).to_reader(), "RecordBatchReader has no position"),
        ([table_of((3,)).to_reader()], "this list holds RecordBatchReader, which may be read only once"),
        (7, "int has no position"),
        (open, "position"),
    ],
)
def test_a_source_that_cannot_go_back(data, what):
    with pytest.raises(od.PlanError, match=what) as caught:
        Positions(data)
    assert "od.ParquetSource(paths)" in str(caught.value)


def test_a_frame_is_told_to_become_a_table():
    """Its rows are at hand, and one call makes them a source that can go back."""

    class Frame:  # as those of Polars and pandas
        def __arrow_c_stream__(self, requested_schema=None):
            return table_of((3,)).__arrow_c_stream__(requested_schema)

    with pytest.raises(od.PlanError, match=r"Frame has no position.*pyarrow\.table\(data\) is one that can"):
        Positions(Frame())
    with pytest.raises(od.PlanError, match=r"holds Frame.*pyarrow\.table\(item\) is one that can"):
        Positions([Frame()])
    assert values(Positions(pa.table(Frame()))) == [0, 1, 2]


def test_half_a_protocol_names_what_is_absent():
    class Half:
        def __iter__(self):
            return iter(())

        def position(self):
            return 0

    with pytest.raises(od.PlanError, match=r"Half has no seek\(\):"):
        Positions(Half())


@pytest.mark.parametrize("place", [{1: 2}, float("nan"), b"x", {"a": (1, 2)}, object()])
def test_a_position_that_is_no_json_value(place):
    found = Counted(cut(3))
    found.position = lambda: place
    positions = Positions(found)
    list(positions)
    with pytest.raises(od.SourceError, match=r"Counted.position\(\) gave .* no JSON value"):
        positions.at(2)


def test_a_method_of_the_users_that_raises():
    found = Counted(cut(3))
    found.seek = lambda place: 1 // 0
    with pytest.raises(od.SourceError, match=r"Counted.seek\(5\) failed: ZeroDivisionError") as caught:
        Positions(found, 5, {"source": 5, "rows": 0})
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("value", [3, {"source": 1}, {"source": 1, "rows": -1}, {"source": 1, "rows": "1"}])
def test_a_value_that_at_did_not_give(value):
    with pytest.raises(od.SourceError, match="a position is"):
        resume(cut(3), value)


def test_data_that_became_shorter():
    with pytest.raises(od.SourceError, match="lies behind 4 rows of the source, but this one has 3"):
        resume(cut(3), {"source": 4, "rows": 0})
    with pytest.raises(od.SourceError, match="a table's is a number of rows"):
        resume(cut(3), {"source": {"offset": 1}, "rows": 0})
    with pytest.raises(od.SourceError, match="lies 2 rows behind the end"):
        list(resume(Counted(cut(3)), {"source": {"offset": 0}, "rows": 5}))


def test_a_source_in_memory_is_read_again_from_its_start():
    data = MemorySource(cut(2, 3))
    assert values(data) == values(data) == [0, 1, 2, 3, 4]
    data.seek(3)
    assert values(data) == values(data) == [3, 4]
    data.seek(5)
    assert values(data) == []
    assert data.position() == 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("keep", [True, False])
def test_places_are_forgotten_though_nobody_asks_for_a_snapshot(tmp_path, workers, keep):
    """A stream with a checkpoint that is written only when asked had a place for each batch since; what is
    asked for at last has its place all the same."""
    batch = pa.record_batch({"x": [1] * 600})  # enough that it goes on alone
    most = [0]

    class Long:
        def __init__(self):
            self.given = 0

        def __iter__(self):
            while self.given < 1_500:
                self.given += 1
                yield batch
                most[0] = max(most[0], len(stream._positions._firsts))

        def position(self):
            return self.given

        def seek(self, place):
            self.given = place

    pipeline = od.Pipeline(batch.schema).filter((od.col("x") > 0) if keep else (od.col("x") > 5))
    stream = pipeline.stream(Long(), checkpoint=tmp_path, workers=workers, end="suspend", max_bytes=1 << 16)
    assert sum(found.num_rows for found in stream) == (900_000 if keep else 0)
    assert stream.snapshot.position == {"source": 1_500, "rows": 0}
    assert most[0] < 1_000

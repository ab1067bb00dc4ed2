"""Rows of micro-batches on their way to a node: late ones, those that wait, the order of the rest."""

import os
import random
import zlib
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
import pyarrow.parquet as pq

from ordstream.errors import CheckpointError, SourceError
from ordstream.spark.streaming.arriving import Arrival, Arriving, as_in_source
from ordstream.spark.streaming.epoch_files import EpochFiles


class Batches:
    """One micro-batch after the other, as manifests hand them on."""

    def __init__(self, folder, **options):
        for name in ("waiting", "late"):
            (folder / name).mkdir()
        self.folder, self.number, self.said = folder, 0, {}
        self.arrival = replace(Arrival(("c0",), ("ts",), "raise", None, None, None, None), **options)

    def take(self, rows, flush=False):
        """(ts, n) rows as Spark sorts them -> those that get serials."""
        rows = sorted(rows, key=lambda row: (row[0] is not None, row[0] or 0))
        batch = pa.record_batch([*zip(*rows, strict=True)] or [[], []], names=["c0", "c1"])
        batch = batch.cast(pa.schema([("c0", pa.int64()), ("c1", pa.int64())]))
        files = EpochFiles(os.fspath(self.folder), self.number, "0")
        arriving = Arriving(replace(self.arrival, flush=flush), iter([batch]), files)
        found = [tuple(row.values()) for part in arriving for row in part.to_pylist()]
        self.said = arriving.said()
        assert self.said["released"] == len(found)
        waiting = self.said["waiting"]
        self.arrival = replace(
            self.arrival,
            last=self.said["ingress"]["last"],
            latest=self.said["ingress"]["latest"],
            waiting=os.fspath(self.folder / "waiting" / waiting[0]["file"]) if waiting else None,
            waiting_crc32=waiting[0]["crc32"] if waiting else "",
        )
        self.number += 1
        return found


def test_rows_that_wait_are_those_that_were_written(tmp_path):
    batches = Batches(tmp_path, slack=100)
    assert batches.take([(n, 7 * n) for n in range(50)]) == []
    path = Path(batches.arrival.waiting)
    whole = path.read_bytes()
    for at in range(4, len(whole), 97):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(SourceError, match="rows that wait can't be read: the file is damaged"):
            batches.take([], flush=True)
    path.write_bytes(whole)
    assert batches.take([], flush=True) == [(n, 7 * n) for n in range(50)]


@pytest.mark.parametrize("seed", range(4))
def test_with_slack_rows_come_out_in_order_and_none_is_lost(tmp_path, seed):
    rng = random.Random(seed)
    times = [n // 2 + 6 - rng.randrange(6) for n in range(200)]
    batches = Batches(tmp_path, slack=6)
    found, held = [], []
    for low in range(0, 200, 23):
        found += batches.take([(times[n], n) for n in range(low, min(low + 23, 200))])
        held.append(sum(one["rows"] for one in batches.said["waiting"]))
        assert all(ts < max(times[: low + 23]) - 6 for ts, _ in found)
    assert min(held) > 0
    found += batches.take([], flush=True)
    assert found == sorted(((times[n], n) for n in range(200)), key=lambda row: row[0])


@pytest.mark.parametrize("slack", [None, 5])
@pytest.mark.parametrize("other", [pa.timestamp("us"), pa.string(), pa.date32(), pa.bool_()])
def test_a_column_of_order_by_that_has_become_of_another_kind(tmp_path, slack, other):
    """Its values have no order among those that came; rows that wait would be taken for others."""
    batches = Batches(tmp_path, slack=slack)
    batches.take([(1, 1)] if slack else [(1, 1), (9, 2)])
    assert bool(batches.said["waiting"]) == bool(slack)
    batch = pa.record_batch([pa.nulls(1, other), pa.array([3])], names=["c0", "c1"])
    files = EpochFiles(os.fspath(tmp_path), 7, "0")
    arriving = Arriving(replace(batches.arrival, slack=None), iter([batch]), files)
    with pytest.raises(SourceError, match=r"order_by column 'ts' is .*, and was int64 in the epochs .*Cast"):
        list(arriving)
    narrow = batch.set_column(0, "c0", pa.array([20], pa.int32()))
    files = EpochFiles(os.fspath(tmp_path), 8, "0")
    assert sum(map(len, Arriving(replace(batches.arrival, slack=None), iter([narrow]), files))) in (1, 2)


@pytest.mark.parametrize("late", ["raise", "drop", "side_output"])
def test_times_of_another_kind_are_not_taken_for_late_ones(tmp_path, late):
    """All rows wait: what tells the kind is what waits, and no row that has a serial."""
    batches = Batches(tmp_path, slack=5, late=late)
    assert batches.take([(10**15, 1)]) == []
    batch = pa.record_batch([pa.array([10**9], pa.timestamp("us")), pa.array([3])], names=["c0", "c1"])
    arriving = Arriving(batches.arrival, iter([batch]), EpochFiles(os.fspath(tmp_path), 7, "0"))
    with pytest.raises(SourceError, match=r"order_by column 'ts' is .*, and was int64 in the epochs .*Cast"):
        list(arriving)


def test_late_rows_are_refused_dropped_or_put_aside(tmp_path):
    late = [(5, 3), (None, 4), (9, 5), (4, 6)]
    for name in ("raise", "drop", "side_output"):
        (tmp_path / name).mkdir()
    raising = Batches(tmp_path / "raise")
    raising.take([(7, 1), (8, 2)])
    with pytest.raises(
        SourceError, match=r"3 row\(s\) .* came too late: ts None comes before ts 8.*wait \(slack=\), or"
    ):
        raising.take(late)
    for name in ("drop", "side_output"):
        batches = Batches(tmp_path / name, late=name)
        assert batches.take([(7, 1), (8, 2)]) == [(7, 1), (8, 2)]
        assert batches.take(late) == [(9, 5)]
        assert batches.said["late"] == 3
        assert batches.take([(9, 7)]) == [(9, 7)]
        assert batches.said["late"] == 0
        files = list((tmp_path / name / "late").iterdir())
        assert len(files) == (name == "side_output")
    rows = pq.ParquetFile(files[0]).read().to_pylist()
    assert [row["c1"] for row in rows] == [4, 6, 3]


def test_late_rows_have_the_names_and_types_of_the_source(tmp_path):
    """Those of the job are c0, o0, ...; a column that the order has as another type is there once."""
    named = {"c0": "ts", "c1": "n", "o0": "ts", "o1": "place"}
    source = pa.schema([("n", pa.int16()), ("unread", pa.string()), ("ts", pa.int32())])
    rows = pa.record_batch({"c0": [5], "c1": [7], "o0": [5.0], "o1": ["here"]})
    arrival = Arrival(("o0",), ("ts",), "raise", None, None, None, None, names=named, source=source)
    found = as_in_source(arrival, rows)
    assert found.to_pylist() == [{"ts": 5, "n": 7, "place": "here"}]
    assert found.schema.types == [pa.int32(), pa.int16(), pa.string()]
    with pytest.raises(SourceError, match=r"source: column 'n', value 40000: .*; cast it in Spark"):
        as_in_source(arrival, rows.set_column(1, "c1", pa.array([40_000])))


def test_a_row_behind_the_watermark_is_late_whatever_has_a_serial(tmp_path):
    """Nothing was released between 2 and 14: 9 would still find a place, and 14 less slack says no."""
    for name in ("raise", "drop"):
        (tmp_path / name).mkdir()
    batches = Batches(tmp_path / "drop", slack=4, late="drop")
    assert batches.take([(2, 1), (14, 2)]) == [(2, 1)]
    assert batches.take([(9, 3), (10, 4), (None, 5), (20, 6)]) == [(10, 4), (14, 2)]  # by the last commit's
    assert batches.said["late"] == 2
    assert batches.take([(16, 7)]) == []
    assert batches.said["late"] == 0
    raising = Batches(tmp_path / "raise", slack=4)
    raising.take([(2, 1), (14, 2)])
    with pytest.raises(SourceError, match=r"1 row.* ts 9 lies more than slack behind 14, .*a larger slack="):
        raising.take([(9, 3), (10, 4)])
    assert batches.take([], flush=True) == [(16, 7), (20, 6)]


def test_a_batch_out_of_order_is_an_error(tmp_path):
    arrival = Arrival(("c0",), ("ts",), "raise", None, None, None, None)
    batch = pa.record_batch({"c0": [1, 3, 2]})
    with pytest.raises(SourceError, match="row 3 of the micro-batch comes before row 2 in the order ts"):
        list(Arriving(arrival, iter([batch]), EpochFiles(os.fspath(tmp_path), 0, "0")))


def test_rows_that_wait_are_found_by_the_names_of_their_columns(tmp_path):
    """Between two runs the source's columns may change their places."""
    batches = Batches(tmp_path, slack=4, names={"c0": "ts", "c1": "n"})
    assert batches.take([(2, 1), (9, 2), (10, 3)]) == [(2, 1)]
    turned = replace(batches.arrival, ordering=("c1",), names={"c0": "n", "c1": "ts"})
    new = pa.record_batch({"c0": [4], "c1": pa.array([20], pa.int32())})
    arriving = Arriving(turned, iter([new]), EpochFiles(os.fspath(tmp_path), 1, "0"))
    assert [tuple(row.values()) for part in arriving for row in part.to_pylist()] == [(2, 9), (3, 10)]
    assert [one["rows"] for one in arriving.said()["waiting"]] == [1]
    wider = replace(batches.arrival, names={"c0": "ts", "c1": "n", "c2": "more"})
    new = pa.record_batch({"c0": [20], "c1": [4], "c2": [1]})
    with pytest.raises(
        SourceError, match=r"don't fit this pipeline's source: they were kept without 'more'"
    ):
        list(Arriving(wider, iter([new]), EpochFiles(os.fspath(tmp_path), 1, "0")))
    text = pa.record_batch({"c0": [20], "c1": [b"\xff"]})
    with pytest.raises(CheckpointError, match=r"column 'n' as int64, .* gets it as binary.* start that one"):
        list(Arriving(batches.arrival, iter([text]), EpochFiles(os.fspath(tmp_path), 1, "0")))
    assert batches.take([], flush=True) == [(9, 2), (10, 3)]


@pytest.mark.parametrize("flush", [False, True])
def test_rows_that_wait_keep_a_time_as_it_was_and_as_it_is_read(tmp_path, flush):
    """An instant of the frame, by which they are ordered, that the pipeline reads as a clock's reading; the
    clock is put back behind 10. Who ends the stream knows the pipeline only.
    """
    (tmp_path / "waiting").mkdir()
    instants = pa.array([10, 20, 30, 40], pa.timestamp("us", "UTC"))
    readings = pa.array([110, 105, 115, 125], pa.timestamp("us"))
    batch = pa.record_batch({"c0": readings, "c1": [1, 2, 3, 4], "o0": instants})
    names = {"c0": "ts", "c1": "n", "o0": "ts"}
    arrival = Arrival(("o0",), ("ts",), "raise", 1000, None, None, None, names=names)
    first = Arriving(arrival, iter([batch]), EpochFiles(os.fspath(tmp_path), 0, "0"))
    assert list(first) == []
    (waiting,) = first.said()["waiting"]
    path = os.fspath(tmp_path / "waiting" / waiting["file"])
    arrival = replace(arrival, waiting=path, waiting_crc32=waiting["crc32"], latest=40, slack=0)
    if flush:
        arrival = replace(arrival, ordering=("c0",), flush=True, names={"c0": "ts", "c1": "n"})
    new = pa.record_batch(
        {
            "c0": pa.array([135], pa.timestamp("us")),
            "c1": [5],
            "o0": pa.array([50], pa.timestamp("us", "UTC")),
        }
    )
    second = Arriving(arrival, iter([new]), EpochFiles(os.fspath(tmp_path), 1, "0"))
    found = pa.Table.from_batches(list(second))
    assert sum(one["rows"] for one in second.said()["waiting"]) == (not flush)
    assert found["c1"].to_pylist() == [1, 2, 3, 4]
    assert found["c0"].combine_chunks() == readings


INSTANT, WALL, DAY = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.date32()
AT = 1_719_788_400_000_000  # 30 June 2024, 23:00 UTC
NAMES = {"c0": "ts", "c1": "at"}


def _value(kind):
    return pa.array([AT // 86_400_000_000], pa.int32()).cast(kind) if kind == DAY else pa.array([AT], kind)


def _read(kind):
    return pa.schema([("ts", pa.int64()), ("at", kind)])


def _waiting(folder, batch, ordering="c0", names=NAMES, **given):
    """What goes on behind an epoch in which all rows of a batch wait."""
    (folder / "waiting").mkdir()
    arrival = Arrival((ordering,), ("ts",), "raise", 100, None, None, None, names=names, **given)
    arriving = Arriving(arrival, iter([batch]), EpochFiles(os.fspath(folder), 0, "0"))
    assert list(arriving) == []
    said = arriving.said()
    (one,), latest = said["waiting"], said["ingress"]["latest"]
    path = os.fspath(folder / "waiting" / one["file"])
    return replace(arrival, waiting=path, waiting_crc32=one["crc32"], latest=latest, slack=None)


def _gone_on(folder, arrival, batch=None):
    files = EpochFiles(os.fspath(folder), 1, "0")
    return pa.Table.from_batches(list(Arriving(arrival, iter([] if batch is None else [batch]), files)))


@pytest.mark.parametrize("new_rows", [True, False])
@pytest.mark.parametrize(
    ("was", "now"), [(a, b) for a in (INSTANT, WALL, DAY) for b in (INSTANT, WALL, DAY) if a != b]
)
@pytest.mark.parametrize("inside", [lambda kind: kind, pa.list_], ids=["plain", "list"])
def test_a_time_that_waits_is_not_taken_for_one_of_another_kind(tmp_path, was, now, new_rows, inside):
    """The session's zone was not asked: a waiting row had another day, or no time of the day."""
    if inside is not pa.list_:
        values, news = _value(was), _value(now)
    else:
        values, news = (pa.array([_value(kind).to_pylist()], pa.list_(kind)) for kind in (was, now))
    kept = pa.record_batch({"c0": [1], "c1": values})
    arrival = replace(
        _waiting(tmp_path, kept, source=_read(inside(was))), source=_read(inside(now)), flush=not new_rows
    )
    batch = pa.record_batch({"c0": [2], "c1": news}) if new_rows else None
    if (was, now) == (WALL, DAY):
        found = _gone_on(tmp_path, arrival, batch)["c1"].combine_chunks()
        assert found.slice(0, 1).cast(inside(DAY)).to_pylist() == news.cast(inside(DAY)).to_pylist()
        return
    with pytest.raises(CheckpointError) as told:
        _gone_on(tmp_path, arrival, batch)
    text = str(told.value).replace("<element:", "<item:")  # as Parquet calls it
    assert f"have column 'at' as {inside(was)}, and this pipeline gets it as {inside(now)}, which" in text
    assert "start that one until they have gone, or finish the stream with it" in text
    same = replace(arrival, source=_read(inside(was)), flush=True)
    assert _gone_on(tmp_path, same)["c1"].to_pylist() == values.to_pylist()


def test_a_count_of_a_clock_that_waits_is_not_taken_for_one_of_instants(tmp_path):
    """The pipeline read a wall clock's time and reads a number now: of new rows it would be an instant's."""
    arrival = _waiting(tmp_path, pa.record_batch({"c0": [1], "c1": _value(WALL)}), source=_read(WALL))
    counts = replace(arrival, source=_read(pa.int64()))
    with pytest.raises(CheckpointError, match=r"'at' as timestamp\[us\], .* gets it as int64"):
        _gone_on(tmp_path, replace(counts, flush=True))
    with pytest.raises(
        CheckpointError, match=r"'at' as timestamp\[us\], .* gets it as timestamp\[us, tz=UTC"
    ):
        _gone_on(tmp_path, counts, pa.record_batch({"c0": [2], "c1": _value(INSTANT)}))


def test_a_day_of_the_frame_may_be_read_as_a_clock(tmp_path):
    """So it waits as a day, and nothing is lost."""
    arrival = _waiting(tmp_path, pa.record_batch({"c0": [1], "c1": _value(DAY)}), source=_read(WALL))
    assert _gone_on(tmp_path, replace(arrival, flush=True))["c1"].to_pylist() == _value(DAY).to_pylist()


@pytest.mark.parametrize("flush", [False, True])
def test_what_the_frame_had_is_what_waits_where_the_pipeline_reads_it_now(tmp_path, flush):
    """Rows were ordered by instants and read as a clock; now both are instants. The refusal said of the
    frame's column that it had been no instant.
    """
    names = {"c0": "ts", "c1": "n", "o0": "ts"}
    clock, instant = pa.array([AT + 7200_000_000], WALL), pa.array([AT], INSTANT)
    source = pa.schema([("ts", WALL), ("n", pa.int64())])
    kept = pa.record_batch({"c0": clock, "c1": [1], "o0": instant})
    arrival = _waiting(tmp_path, kept, ordering="o0", names=names, source=source)
    arrival = replace(
        arrival,
        ordering=("c0",),
        names={"c0": "ts", "c1": "n"},
        flush=flush,
        source=source.set(0, pa.field("ts", INSTANT)),
    )
    new = None if flush else pa.record_batch({"c0": pa.array([AT + 5], INSTANT), "c1": [2]})
    found = _gone_on(tmp_path, arrival, new)
    assert found["c0"].cast(pa.int64()).to_pylist()[:1] == [AT]
    assert found["c1"].to_pylist() == [1] if flush else [1, 2]


def test_rows_that_wait_are_read_where_it_is_not_known_how_they_were(tmp_path):
    """A file of before it was written down."""
    kept = pa.record_batch({"c0": [1], "c1": _value(DAY)})
    arrival = _waiting(tmp_path, kept)
    table = pq.read_table(arrival.waiting)
    assert b"source" in table.schema.metadata
    path = tmp_path / "waiting" / "old.parquet"
    metadata = {k: v for k, v in table.schema.metadata.items() if k != b"source"}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    old = replace(
        arrival, waiting=os.fspath(path), waiting_crc32=f"{zlib.crc32(path.read_bytes()):08x}", flush=True
    )
    assert _gone_on(tmp_path, replace(old, source=_read(WALL)))["c1"].to_pylist() == _value(DAY).to_pylist()

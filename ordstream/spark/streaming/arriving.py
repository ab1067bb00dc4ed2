"""The rows of a micro-batch in a task: compared with what was before, put in order, given to a node.

With `slack` rows wait until the largest time that was seen is so far ahead of them; what waits lies in a
file that the epoch's manifest names, and comes in front of later rows that are equal in the order. The
largest time at the last commit less `slack` is its watermark: a row behind that is too late, whatever had
come until then. So is, with and without slack, a row that comes before the last one that got a serial.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pat

from ordstream.errors import CheckpointError, SourceError
from ordstream.ground.batches import BATCH_ROWS
from ordstream.ground.nested_cast import align
from ordstream.ground.ordercheck import OrderCheck
from ordstream.ground.packed_types import is_any_list
from ordstream.ground.types import is_temporal
from ordstream.spark.arrival import read_column
from ordstream.spark.kinds import fits
from ordstream.spark.streaming.epoch_files import EpochFiles, TableFile
from ordstream.spark.streaming.epoch_manifest import LATE, WAITING
from ordstream.spark.streaming.input_digest import InputDigest
from ordstream.spark.streaming.row_order import in_order, kind, packed, precede, unpacked

RAISE, DROP, SIDE_OUTPUT = "raise", "drop", "side_output"
LATE_ROWS = (RAISE, DROP, SIDE_OUTPUT)

#: In a waiting file's metadata: the source of the pipeline that kept the rows, as an Arrow schema.
_SOURCE = "source"
#: What to do about rows that wait and that this pipeline can't read.
_HAS_READ = (
    "Another pipeline has read them: start that one until they have gone, or finish the stream with it"
)


@dataclass(frozen=True)
class Arrival:
    """How a stream's rows arrive, and where the epoch in front ended.

    Attributes
    ----------
    ordering : tuple of str
        Columns that order, under their names in the job.
    order_by : tuple of str
        The same for the user.
    late : str
        What becomes of a row that is too late: one of `LATE_ROWS`.
    slack : int or None
        How far a row's time may lie behind the largest, in the units of the first column of `ordering`.
    last : str or None
        The row that got the last serial (`row_order.packed`).
    latest : int or None
        The largest time so far.
    waiting : str or None
        Path of the file of rows that wait.
    flush : bool
        The stream ends: nothing waits any longer.
    names : mapping of str to str
        Column under its name in the job -> its name in the pipeline's source. Rows that wait are found by
        the latter: another run may have another source.
    source : pyarrow.Schema
        Of the pipeline, in Spark's types: what rows that are too late are put aside as.
    no_rows : bool
        Nothing has come, whatever arrives.
    waiting_crc32 : str
        Of the file of rows that wait, as its manifest says it.
    """

    ordering: tuple[str, ...]
    order_by: tuple[str, ...]
    late: str
    slack: int | None
    last: str | None
    latest: int | None
    waiting: str | None
    flush: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    source: pa.Schema = field(default_factory=lambda: pa.schema([]))
    no_rows: bool = False
    waiting_crc32: str = ""


class Arriving(Iterator[pa.RecordBatch]):
    """An iterator of the rows that get serials now, in order; when it has ended, what is to be said of them.

    Parameters
    ----------
    arrival : Arrival
    batches : iterator of pyarrow.RecordBatch
        In order.
    files : EpochFiles
        Where rows that wait or are late go.

    Attributes
    ----------
    released : int
        Rows that got serials so far.
    """

    def __init__(self, arrival: Arrival, batches: Iterator[pa.RecordBatch], files: EpochFiles) -> None:
        self._arrival = arrival
        self._files = files
        self._digest = InputDigest()
        self._bytes = 0
        self._check = OrderCheck(arrival.ordering)
        self._last = None if arrival.last is None else unpacked(arrival.last)
        self._newest = self._last
        self._latest = arrival.latest
        behind = arrival.slack is None or arrival.latest is None
        self._watermark = None if behind else arrival.latest - arrival.slack  # type: ignore[operator]
        self._late: TableFile | None = None
        self._late_rows = 0
        self._waited: list[pa.RecordBatch] | None = None  # read when the columns of new rows are known
        self._aside: pa.Schema | None = None  # what late rows are, or would be, put aside as
        self._waiting: TableFile | None = None
        self.released = 0
        waits = arrival.slack is not None or arrival.waiting is not None
        rows = iter(()) if arrival.flush or arrival.no_rows else self._received(batches)
        self._rows = self._sorted(rows) if waits else rows

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._rows)
        while not batch.num_rows:
            batch = next(self._rows)
        self.released += batch.num_rows
        self._newest = batch.select(list(self._arrival.ordering)).slice(batch.num_rows - 1)
        return batch

    def _received(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """New rows, in order, without late ones."""
        for batch in batches:
            if self._waited is None and self._arrival.waiting is not None and batch.num_rows:
                # before one is late: times of another kind lie neither behind nor before the watermark
                self._waited = _waited(self._arrival, batch.schema)
            row = self._check.first_violation(batch)
            if row is not None:
                raise SourceError(
                    f"row {row + 1} of the micro-batch comes before row {row} in the order "
                    f"{', '.join(self._arrival.order_by)}"
                )
            self._digest.add(batch)
            self._bytes += batch.nbytes
            if self._aside is None and self._arrival.late == SIDE_OUTPUT:
                self._aside = as_in_source(self._arrival, batch.slice(0, 0)).schema
            yield self._in_time(batch)

    def _in_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ordering = list(self._arrival.ordering)
        late = np.zeros(batch.num_rows, dtype=np.bool_)
        if self._last is not None and ordering:
            _check_kinds(self._arrival, self._last.schema.types, batch.select(ordering).schema.types)
            late |= precede(batch.select(ordering), self._last)
        if self._watermark is not None:
            late |= units(batch.column(batch.schema.get_field_index(ordering[0]))) < self._watermark
        count = int(np.count_nonzero(late))
        if not count:
            return batch
        self._late_rows += count
        if self._arrival.late == RAISE:
            raise self._too_late(batch.slice(int(np.argmax(late)), 1), count)
        if self._arrival.late == SIDE_OUTPUT:
            aside = as_in_source(self._arrival, batch.filter(pa.array(late)))
            if self._late is None:
                self._late = self._files.table(LATE, aside.schema)
            self._late.write(aside)
        return batch.filter(pa.array(~late))

    def _too_late(self, row: pa.RecordBatch, count: int) -> SourceError:
        arrival, key = self._arrival, row.select(list(self._arrival.ordering))
        shown = _shown(key, arrival.order_by)
        if self._last is not None and precede(key, self._last).any():
            newest = _shown(self._last, arrival.order_by)
            why = f"{shown} comes before {newest}, which has its place in the order already"
        else:
            latest = pa.scalar(arrival.latest, pa.int64()).cast(key.column(0).type).as_py()
            why = f"{shown} lies more than slack behind {latest!r}, the largest before this micro-batch"
        wait = "wait (slack=)" if arrival.slack is None else "wait longer (a larger slack=)"
        return SourceError(
            f"{count:,} row(s) of this micro-batch came too late: {why}. Let rows {wait}, or say what "
            "becomes of late ones (late='drop', late='side_output')"
        )

    def _sorted(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """New rows and those that waited, in order, as far as they wait no longer."""
        arrival = self._arrival
        parts = [batch for batch in rows if batch.num_rows]
        came = bool(parts)
        if arrival.waiting is not None:
            parts = [*(_waited(arrival, None) if self._waited is None else self._waited), *parts]
        if not parts:
            return
        schema = parts[-1].schema
        table = pa.Table.from_batches([align(part, schema) for part in parts])
        if came:  # rows that wait are in order, also by what a pipeline that ends the stream has not
            table = in_order(table, arrival.ordering)
        if arrival.slack is not None and not arrival.flush:
            times = units(table.column(arrival.ordering[0]).combine_chunks())
            seen = times[times > NONE]
            if len(seen):
                self._latest = max(
                    int(seen.max()), self._latest if self._latest is not None else int(seen.max())
                )
            bound = NONE if self._latest is None else self._latest - arrival.slack
            go = int(np.searchsorted(times, max(bound, NONE + 1), side="left"))
            if go < table.num_rows:
                named = table.schema.with_metadata(kept_as(arrival, table.schema.names))
                self._waiting = self._files.table(WAITING, named)
                for part in table.slice(go).to_batches():
                    self._waiting.write(part)
            table = table.slice(0, go)
        yield from table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS)

    def said(self) -> dict[str, Any]:
        """For the manifest; after the last row. Files are on the disk then."""
        return {
            "input": {"rows": self._digest.rows, "digest": self._digest.hexdigest()},
            "input_bytes": self._bytes,
            "ingress": {
                "last": None if self._newest is None else packed(self._newest),
                "latest": self._latest,
                **({} if self._aside is None else {"aside": _in_text(self._aside)}),
            },
            "released": self.released,
            "late": self._late_rows,
            "late_output": [] if self._late is None else [self._late.finish()],
            "waiting": [] if self._waiting is None else [self._waiting.finish()],
        }


def _in_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode("ascii")


def _from_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


#: Below every time: a null's place.
NONE = -(1 << 63)


def units(column: pa.Array) -> Any:
    """Whole numbers or times as int64 in their units, null as `NONE`."""
    kind = column.type
    if pat.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.int64())
    return column.cast(pa.int64()).fill_null(NONE).to_numpy(zero_copy_only=False)


def as_in_source(arrival: Arrival, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the job under the names, and in the types, that their columns have in the source. A column of
    `order_by` that is not the source's keeps its type; one that the source has as well is there once.

    Raises
    ------
    SourceError
        A value does not fit the source's type.
    """
    found: dict[str, pa.Array] = {}
    for job in rows.schema.names:
        name = arrival.names.get(job, job)
        place = arrival.source.get_field_index(name)
        if place < 0:
            found.setdefault(name, rows.column(job))
        elif job[0] == "c":  # not "o": the same column, as the frame had it
            found[name] = read_column(rows, job, arrival.source.field(place))
    return pa.RecordBatch.from_pydict(found)


def _waited(arrival: Arrival, schema: pa.Schema | None) -> list[pa.RecordBatch]:
    """The rows that wait, with the columns of new rows, or of `names`, where there are none."""
    try:
        data = Path(str(arrival.waiting)).read_bytes()
        if f"{zlib.crc32(data):08x}" != arrival.waiting_crc32:
            raise OSError("the file is damaged: its checksum does not match")
        table: pa.Table = pq.ParquetFile(pa.BufferReader(data)).read()
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{arrival.waiting}: rows that wait can't be read: {error}. Bring the file back from a copy, or "
            "go back by an epoch (od.spark.rewind)"
        ) from error
    kept = Kept.of(table.schema)
    names = arrival.names if kept.names else {}  # an older release did not write them
    wanted = list(names) or table.schema.names if schema is None else schema.names
    if schema is not None and all(names.get(one, one) in kept.columns for one in wanted):
        of_frame = [kept.columns[names.get(one, one)][0] for one in arrival.ordering]
        before = [table.schema.field(column).type for column in of_frame]
        _check_kinds(arrival, before, [schema.field(name).type for name in arrival.ordering])
    found, missing = dict[str, Any](), []
    for name in wanted:
        own = names.get(name, name)
        column = _column_of(arrival, kept, name, own, schema)
        if column is not None:
            found[name] = table.column(column)
        elif schema is not None:
            missing.append(repr(own))
    try:
        if missing:
            raise pa.ArrowKeyError(f"they were kept without {', '.join(missing)}")
        rows = pa.table(found)
        return [align(batch, schema or rows.schema) for batch in rows.to_batches()]
    except pa.ArrowException as error:
        raise SourceError(
            f"{arrival.waiting}: rows that wait don't fit this pipeline's source: {error}. {_HAS_READ}"
        ) from error


def kept_as(arrival: Arrival, columns: Sequence[str]) -> dict[str, str]:
    """The metadata of a waiting file: what another run must know of its columns."""
    names = {name: arrival.names.get(name, name) for name in columns}
    read = [column for column in arrival.source if column.name in names.values()]
    return {**names, _SOURCE: _in_text(pa.schema(read))}


@dataclass(frozen=True)
class Kept:
    """The columns of a waiting file.

    Attributes
    ----------
    schema : pyarrow.Schema
    names : mapping of str to str
        Column -> its name in the source of the pipeline that kept it; empty: not known.
    source : pyarrow.Schema or None
        How that pipeline read its columns; None: not known.
    """

    schema: pa.Schema
    names: Mapping[str, str]
    source: pa.Schema | None

    @classmethod
    def of(cls, schema: pa.Schema) -> Kept:
        """Of a file that has this schema."""
        said = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
        source = said.pop(_SOURCE, None)
        return cls(schema, said, None if source is None else _from_text(source))

    @cached_property
    def columns(self) -> Mapping[str, list[str]]:
        """Column of the source -> those that were kept of it, as the frame had it ("o") in front of as the
        pipeline read it ("c"): of `order_by` both may be there.
        """
        found: dict[str, list[str]] = {}
        for name in sorted(self.schema.names, key=lambda name: name[0] != "o"):
            found.setdefault(self.names.get(name, name), []).append(name)
        return found

    def was_read_as(self, column: str, own: str, read: pa.DataType | None) -> bool:
        """Whether a pipeline reads of a column, where no new rows say what the frame has now, what it would
        have read of its rows when they came; where it is not known how they were read, it is taken for so.
        """
        if read is None or carries(self.schema.field(column).type, read):
            return True
        place = -1 if self.source is None else self.source.get_field_index(own)
        before = None if self.source is None or place < 0 else self.source.field(place).type
        return before is None or (column[0] == "c" and carries(before, read))


def _column_of(arrival: Arrival, kept: Kept, name: str, own: str, schema: pa.Schema | None) -> str | None:
    """Which column of a waiting file has the values of a column of new rows; None: none was kept.

    Raises
    ------
    CheckpointError
        They are of another kind than what the pipeline reads now: to make it of them would need a time zone,
        or a time of the day.
    """
    there = kept.columns.get(own)
    if not there:
        return None
    if name in arrival.ordering and schema is not None:
        return there[0]  # rows are ordered by what the frame has
    there = sorted(there, key=lambda column: column[0] != name[0])
    place = arrival.source.get_field_index(own) if name[0] == "c" else -1
    now = schema.field(name).type if schema is not None else None
    read = arrival.source.field(place).type if place >= 0 else None
    for column in there:
        was = kept.schema.field(column).type
        if kept.was_read_as(column, own, read) if now is None else carries(was, now):
            return column
    raise CheckpointError(
        f"{arrival.waiting}: rows that wait have column {own!r} as {kept.schema.field(there[0]).type}, and "
        f"this pipeline gets it as {now or read}, which can't be made of it without a loss or a time zone. "
        f"{_HAS_READ}; or let this one read {own!r} as that did, and cast it inside"
    )


def carries(was: pa.DataType, now: pa.DataType) -> bool:
    """Whether a cast keeps what values mean: a number stays one, an instant one, a reading of a wall clock
    one or becomes its day.
    """
    if was == now:
        return True
    if pat.is_struct(was) and pat.is_struct(now):
        return fits(was, now) and all(carries(a.type, b.type) for a, b in zip(was, now, strict=True))
    if pat.is_map(was) and pat.is_map(now):
        return carries(was.key_type, now.key_type) and carries(was.item_type, now.item_type)
    if is_any_list(was) and is_any_list(now):
        return carries(was.value_type, now.value_type)
    if pat.is_null(was) or not (is_temporal(was) or is_temporal(now)):
        return fits(was, now)
    return kind(was) == kind(now) or (kind(was) == "wall clock" and pat.is_date(now))


def _check_kinds(arrival: Arrival, before: Sequence[pa.DataType], now: Sequence[pa.DataType]) -> None:
    """Whether rows of now have an order among those of epochs before.

    Raises
    ------
    SourceError
        A column of `order_by` had values of another kind.
    """
    for name, was, found in zip(arrival.order_by, before, now, strict=True):
        if kind(was) != kind(found):
            raise SourceError(
                f"order_by column {name!r} is {found}, and was {was} in the epochs that are committed: the "
                "two have no order among each other. Cast it in front of the stream to what it was, or "
                "begin anew with another checkpoint"
            )


def _shown(row: pa.RecordBatch, names: tuple[str, ...]) -> str:
    values = (column[0].as_py() for column in row.columns)
    return ", ".join(f"{name} {value!r}" for name, value in zip(names, values, strict=True))

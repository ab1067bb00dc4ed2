"""What a stream has left, as DataFrames: its output, its late rows, its state."""

from __future__ import annotations

import base64
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ordstream.errors import CheckpointError, PlanError, SchemaError
from ordstream.ground.choices import flag
from ordstream.ground.nested_cast import align, nullable_columns
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.ground.spark_path import to_read
from ordstream.spark.running_session import running_session
from ordstream.spark.schemas import spark_schema
from ordstream.spark.shipped import Shipped
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import LATE, OUTPUT, Said
from ordstream.spark.streaming.stored_state import stored
from ordstream.spark.streaming.whole_epochs import KEPT

_LISTED_BY_JOB = "spark.sql.sources.parallelPartitionDiscovery.threshold"
#: One at a time: who came second would put the first one's setting back, and it would stay.
_listing = threading.Lock()


def read_output(
    checkpoint: str | os.PathLike[str],
    *,
    late: bool = False,
    tags: bool = False,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The committed output of a stream, in order: every epoch whole, none twice.

    Parameters
    ----------
    checkpoint : path
    late : bool
        The rows that came too late, of a stream with ``late="side_output"``, in place of the output, in no
        order: the columns of the pipeline's source that it reads, and those of `order_by`, under their names
        and in the source's types. They never got serials. None came too late: no rows.
    tags : bool
        With the columns ``_serial`` and ``_index`` (docs/ordering.md).
    spark : SparkSession, optional
        Default: the active one.

    Raises
    ------
    PlanError
        Tags of late rows are asked for.
    CheckpointError
        It is no checkpoint of a stream, or damaged; a file is missing; late rows are asked for, and the
        stream puts none aside.
    SchemaError
        Two columns differ in case only, and the session does not tell them apart; late rows of several runs
        have a column in types that do not go together.
    """
    late, tags = flag(late, "read_output: late"), flag(tags, "read_output: tags")
    if late and tags:
        raise PlanError("late rows have no tags: they never got serials; leave tags= out")
    session, log = running_session(spark, "read_output"), EpochLog(checkpoint)
    log.check_there()
    folder = LATE if late else OUTPUT
    sizes = {
        log.folder / folder / one["file"]: one["bytes"]
        for manifest in log.all()
        for one in (manifest.late_output if late else manifest.output)
    }
    files = list(sizes)
    for path, size in sizes.items():
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            raise CheckpointError(
                f"{path}: a committed file is missing: the output would have a gap"
            ) from None
        if found != size:
            raise CheckpointError(
                f"{path}: a committed file is damaged: it has {found:,} bytes, not {size:,}; bring it back "
                "from a copy"
            )
    paths = [to_read(path) for path in files]
    if late:
        if not paths:
            return session.createDataFrame([], from_arrow_schema(_put_aside(log)))
        # not inferred: by its settings a session takes a wall clock's time for an instant, bytes for a text
        late_schema = from_arrow_schema(_together([pq.read_schema(path) for path in files], log.folder))
        return _read(session, late_schema, paths)
    frame = _read(session, from_arrow_schema(log.schema), paths)
    ordered = frame.orderBy(*map(F.col, TAG_NAMES))
    return ordered if tags else ordered.drop(*TAG_NAMES)


def _put_aside(log: EpochLog) -> pa.Schema:
    """What late rows of a stream that has had none would be put aside as."""
    last = log.last()
    said = None if last is None else last.ingress.get("aside")
    if said is None:
        why = "no row has come yet, or it was never" if last is None else "it was not"
        raise CheckpointError(
            f"{log.folder}: this stream has put no late rows aside: {why} started with late='side_output'"
        )
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said)))


def state(
    checkpoint: str | os.PathLike[str],
    operator: str,
    *,
    epoch: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """What an operator of a stream knows: its state behind the last committed epoch, key columns first.

    Parameters
    ----------
    checkpoint : path
    operator : str
        Its name.
    epoch : int, optional
        Another epoch whose state is still there: the one before.
    spark : SparkSession, optional

    Raises
    ------
    PlanError
        There is no such operator with a state, or no such epoch, or the stream is finished.
    CheckpointError
        Nothing was committed, or the state is damaged or gone; also while the frame is read, where the
        stream has gone on by two epochs since.
    """
    session, log = running_session(spark, "state"), EpochLog(checkpoint)
    log.check_there()
    manifest = log.last()
    if manifest is None:
        raise CheckpointError(f"{log.folder}: no epoch was committed yet")
    if epoch is not None:
        if type(epoch) is not int or not 0 <= epoch <= manifest.number:
            raise PlanError(f"{log.folder}: its epochs are 0 to {manifest.number}, got epoch={epoch!r:.80}")
        manifest = log.read(epoch)
    states = {name: parts for name, parts in manifest.states.items() if parts}
    if manifest.finished and not states:
        there = f"those in front of it may still be there: state(..., epoch={manifest.number - 1})"
        raise PlanError(
            f"the stream was finished at epoch {manifest.number}, which ended its states; "
            + (there if manifest.number else "there is no epoch in front of it")
        )
    if not states:
        raise PlanError(
            f"no operator has a state behind epoch {manifest.number}: no row has come yet, or the pipeline "
            "keeps none"
        )
    if operator not in list(states):  # a list is no key of a mapping
        there = ", ".join(map(repr, states))
        raise PlanError(
            f"no operator {operator!r} has a state behind epoch {manifest.number}; there are: {there}"
        )
    parts = list(states[operator])
    with _told_if_collected(log.folder, manifest.number):
        rows = stored(str(log.folder), manifest.number, {operator: parts})[operator]
    # a node to which no row came keeps its file, in which an aggregation that was added since is missing
    schema = max((kind for _, kind in rows.kinds), key=len)
    schema = schema if len(rows.kinds) == 1 else nullable_columns(schema)
    in_spark: Any = spark_schema(schema)
    function = StateFunction(
        str(log.folder), manifest.number, operator, parts, to_arrow_schema(in_spark, timezone="UTC")
    )
    return session.range(0, len(parts), 1, len(parts)).mapInArrow(function, in_spark)


@dataclass(frozen=True)
class StateFunction(Shipped):
    """Reads files of a state in tasks, one file per row that arrives."""

    folder: str
    number: int
    operator: str
    parts: list[Said]
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._rows_of(self.parts[number])

    def _rows_of(self, part: Said) -> Iterator[pa.RecordBatch]:
        with _told_if_collected(self.folder, self.number):
            states = stored(self.folder, self.number, {self.operator: [part]})
            for rows in states[self.operator].batches():
                yield align(_with_all(rows, self.output), self.output)


@contextlib.contextmanager
def _told_if_collected(folder: str | os.PathLike[str], number: int) -> Iterator[None]:
    """A file that is not there since the stream has gone on is no damage, and to go back is no way to it.

    Raises
    ------
    CheckpointError
        The state behind epoch `number` is gone, and the stream is further.
    """
    try:
        yield
    except CheckpointError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        newest = max(EpochLog(folder).numbers(), default=-1)
        if newest <= number:
            raise
        # behind a `rewind` fewer are there: those that it took back were among the last
        why = "is no longer kept" if number <= newest - KEPT else "is gone"
        raise CheckpointError(
            f"{folder}: the state behind epoch {number} {why} (the stream is at epoch {newest}; the last "
            f"{KEPT} that ran are kept): call state() again, or name a later epoch"
        ) from error.__cause__  # not from the error: a task's trace would show its advice


def _with_all(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns behind those that are there: null."""
    added = list(schema)[rows.num_columns :]
    columns = [*rows.columns, *(pa.nulls(rows.num_rows, field.type) for field in added)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *added]))


def _together(schemas: list[pa.Schema], folder: Path) -> pa.Schema:
    """All columns of files, each once: runs may have read other ones.

    Raises
    ------
    SchemaError
        One has types in two files that no type holds.
    """
    try:
        return pa.unify_schemas([one.remove_metadata() for one in schemas], promote_options="permissive")
    except pa.ArrowException as error:
        raise SchemaError(
            f"{folder}: late rows of several runs can't be read together: {error}. Read the files that the "
            "manifests in 'commits' name one by one (pyarrow.parquet)"
        ) from error


def _read(session: SparkSession, schema: StructType, paths: Sequence[str]) -> DataFrame:
    """The rows of files of a stream. The driver looks where they lie: for more than 32 Spark starts a job
    with a task for each, of which a stream has one an epoch.

    Raises
    ------
    SchemaError
        As `_reader`.
    """
    reader = _reader(session, schema.names).schema(schema)
    if not paths:
        return session.createDataFrame([], schema)
    with _listing:
        before = session.conf.get(_LISTED_BY_JOB, None)
        session.conf.set(_LISTED_BY_JOB, str(max(int(before or 0), len(paths))))
        try:
            return reader.parquet(*paths)
        finally:
            if before is None:
                session.conf.unset(_LISTED_BY_JOB)
            else:
                session.conf.set(_LISTED_BY_JOB, before)


def _reader(session: SparkSession, names: Sequence[str]) -> DataFrameReader:
    """What reads files of a stream, which Arrow wrote: their dates are those of the proleptic calendar,
    whatever the session takes files without a word of it for. Their pages have checksums: a flipped bit
    would give other values, and no error. A session that leaves out damaged files would read a gap.

    Raises
    ------
    SchemaError
        Spark would not tell two of these columns apart.
    """
    sensitive = str(session.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"
    for at, name in enumerate(names):
        same = [one for one in names[:at] if one.lower() == name.lower()]
        if same and not sensitive:
            raise SchemaError(
                f"the stream's columns {same[0]!r} and {name!r} differ in case only, and this session does "
                "not tell them apart: spark.conf.set('spark.sql.caseSensitive', 'true') before reading, and "
                "before what is done with the rows"
            )
    modes = {"datetimeRebaseMode": "CORRECTED", "int96RebaseMode": "CORRECTED"}
    whole = {"ignoreCorruptFiles": False, "ignoreMissingFiles": False}
    return session.read.options(**modes, **whole, **{"parquet.page.verify-checksum.enabled": True})

"""Rows that are said to be in order, of several files: the order is (file, row), not that of the partitions.

Spark puts files into partitions by their size, so the order of the partitions says nothing. Where a frame is
all rows of files, a row's serial is its place in its file and the number of rows in the files in front:
neither a sort nor a shuffle of rows is needed. One pass over the columns of `order_by` sees whether the rows
of each piece of a file are in order, and counts them; what it tells of each piece, one row, comes together,
is checked at the borders of the pieces, and goes to every task as a small table. Nothing of it depends on
how Spark cuts the files, which may differ from pass to pass: it asks how many cores there are.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from ordstream.errors import PlanError, SourceError
from ordstream.ground.ordercheck import OrderCheck, SortKey
from ordstream.spark.executor import SERIAL
from ordstream.spark.shipped import Shipped

PATH, BLOCK, AT = "__ordstream_path", "__ordstream_block", "__ordstream_at"
KEY, FRONT, TOTAL = "__ordstream_key", "__ordstream_front", "__ordstream_total"
COUNT, ENDS = "__ordstream_count", "__ordstream_ends"
_PIECES = StructType(
    [
        StructField(PATH, StringType()),
        StructField(BLOCK, LongType()),
        StructField(KEY, LongType()),
        StructField(COUNT, LongType()),
        StructField(ENDS, BinaryType()),
    ]
)
_FOUND = StructType([StructField(name, LongType()) for name in (KEY, FRONT, TOTAL)])
_TODO = (
    "presorted=True takes the rows of files in the order of the files' paths; leave it out, and Spark sorts "
    "them"
)
_LEAVE = "leave presorted out"
_OTHERS = "The files are others than when their rows were counted: somebody writes to this table"


def files_of(frame: DataFrame) -> Literal["", "some", "all"]:
    """Whether a frame is rows of several files, read and filtered only, and if so, whether it is all of
    them; "" where Spark can't be asked, too.
    """
    try:
        plan = frame._jdf.queryExecution().optimizedPlan()
        files, found = _files_below(plan)
        if files is None or not plan.deterministic() or files.bucketSpec().isDefined():
            return ""
        return found if len(frame._jdf.inputFiles()) > 1 else ""
    except Exception:  # Spark Connect, or another version of Spark: partitions are taken in their order
        return ""


def check_one_after_the_other(frame: DataFrame) -> None:
    """Raise PlanError where a frame is rows of several files that tell no row's place (CSV, JSON): its
    partitions are not in the files' order, and without columns to order by nothing would notice. Where Spark
    can't be asked they are taken in their order.
    """
    several = False
    with contextlib.suppress(Exception):  # as above
        plan = _read_and_filtered(frame._jdf.queryExecution().optimizedPlan())[0]
        while plan.getClass().getSimpleName() == "Repartition" and not plan.shuffle():  # coalesce
            plan = _read_and_filtered(plan.child())[0]
        is_scan = plan.getClass().getSimpleName() in ("LogicalRelation", "DataSourceV2ScanRelation")
        several = is_scan and len(frame._jdf.inputFiles()) > 1
    if several:
        raise PlanError(
            "presorted=True without order_by: Spark puts these files into partitions by their size, and "
            "does not say where in them a row stands (of Parquet files it does): name the columns that "
            "order the rows"
        )


def has_own_places(frame: DataFrame) -> bool:
    """Whether no two rows of a frame are of one row of a file: it is read and filtered only. False where
    Spark can't be asked.
    """
    try:
        return _files_below(frame._jdf.queryExecution().optimizedPlan())[0] is not None
    except Exception:  # as above: the rows are told apart by more columns
        return False


def _files_below(plan: Any) -> tuple[Any, Literal["some", "all"]]:
    """The files that a plan only reads and filters, None where it does more; and whether it takes some of
    their rows, or all.
    """
    plan, found = _read_and_filtered(plan)
    files = plan.relation() if plan.getClass().getSimpleName() == "LogicalRelation" else None
    is_files = files is not None and files.getClass().getSimpleName() == "HadoopFsRelation"
    return (files if is_files else None), found


def _read_and_filtered(plan: Any) -> tuple[Any, Literal["some", "all"]]:
    """What lies below the plan's projections and filters; with filters, some of its rows."""
    found: Literal["some", "all"] = "all"
    while (kind := plan.getClass().getSimpleName()) in ("Project", "Filter"):
        found = found if kind == "Project" else "some"
        plan = plan.child()
    return plan, found


def numbered_in_files(
    frame: DataFrame, columns: dict[str, Column], keys: tuple[SortKey, ...], texts: tuple[str, ...]
) -> DataFrame:
    """The columns of all rows of files, over the partitions that they are in, with their serials (from 0)
    and, in `TOTAL`, their number; an error in the tasks where they are not in order.

    Parameters
    ----------
    columns : dict of str to Column
        Name -> what it is of `frame`.
    keys : tuple of SortKey
        Those of `columns` that the rows are ordered by.
    texts : tuple of str
        The same as the user knows them.
    """
    path, at = F.col("_metadata.file_path"), F.col("_metadata.row_index").alias(AT)
    key = F.xxhash64(path).alias(KEY)  # Spark looks up a number faster than a text
    looked = [columns[one].alias(one) for one in dict.fromkeys(key.column for key in keys)]
    looked += [path.alias(PATH), F.col("_metadata.file_block_start").alias(BLOCK), key, at]
    pieces = frame.select(*looked).mapInArrow(PiecesFunction(keys, texts), _PIECES)
    # one task has all pieces, in their order
    pieces = pieces.repartition(1).sortWithinPartitions(PATH, BLOCK)
    found = pieces.mapInArrow(BordersFunction(keys, texts), _FOUND)
    rows = frame.select(*(column.alias(name) for name, column in columns.items()), key, at)
    rows = rows.join(F.broadcast(found), KEY, "left")
    serial = F.col(AT) + F.coalesce(F.col(FRONT), F.raise_error(F.lit(_OTHERS)).cast("long"))
    return rows.select(*columns, serial.alias(SERIAL), TOTAL)


class _Piece(NamedTuple):
    """What is known of the rows of a file that one task has read so far."""

    path: str
    block: int
    key: int
    rows: int
    first: pa.RecordBatch
    last: pa.RecordBatch
    check: OrderCheck

    def told(self) -> dict[str, Any]:
        """As a row of `_PIECES`."""
        ends = pa.Table.from_batches([self.first, self.last]).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, ends.schema) as writer:
            writer.write_table(ends)
        known = (self.path, self.block, self.key, self.rows, sink.getvalue().to_pybytes())
        return dict(zip(_PIECES.names, known, strict=True))


@dataclass(frozen=True)
class PiecesFunction(Shipped):
    """Look at the rows of one partition, file by file (`DataFrame.mapInArrow`): a row per piece.

    Parameters
    ----------
    keys : tuple of SortKey
        In which the rows of a piece ascend.
    texts : tuple of str
        The same as the user knows them.
    """

    keys: tuple[SortKey, ...]
    texts: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `_PIECES`.

        Raises
        ------
        SourceError
            If a row of a file comes before the one in front of it.
        """
        open_: _Piece | None = None
        done: list[dict[str, Any]] = []
        for batch in batches:
            for part in _in_pieces(batch):
                if open_ is None or (open_.key, open_.block) != _piece_of(part):
                    done += [] if open_ is None else [open_.told()]
                    open_ = self._begun(part)
                open_ = self._with(open_, part)
        done += [] if open_ is None else [open_.told()]
        types = (pa.string(), *[pa.int64()] * 3, pa.binary())
        yield pa.RecordBatch.from_pylist(
            done, schema=pa.schema(list(zip(_PIECES.names, types, strict=True)))
        )

    def _begun(self, part: pa.RecordBatch) -> _Piece:
        first, (key, block) = self._ends(part.slice(0, 1)), _piece_of(part)
        return _Piece(part.column(PATH)[0].as_py(), block, key, 0, first, first, OrderCheck(self.keys))

    def _with(self, piece: _Piece, part: pa.RecordBatch) -> _Piece:
        row = piece.check.first_violation(part)
        if row is not None:
            at = row - piece.rows
            before = part.column(AT)[at - 1] if at else piece.last.column(AT)[0]
            text = f"row {part.column(AT)[at].as_py() + 1} of the file {piece.path} comes before row "
            text += f"{before.as_py() + 1} of it in the order {', '.join(self.texts)}: {_TODO}"
            raise SourceError(text)
        last = self._ends(part.slice(part.num_rows - 1))
        return piece._replace(rows=piece.rows + part.num_rows, last=last)

    def _ends(self, row: pa.RecordBatch) -> pa.RecordBatch:
        return row.select([*dict.fromkeys(key.column for key in self.keys), AT])


def _piece_of(part: pa.RecordBatch) -> tuple[int, int]:
    """File and place in it of rows of one piece."""
    return part.column(KEY)[0].as_py(), part.column(BLOCK)[0].as_py()


def _in_pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch, cut where another piece begins."""
    key, block = batch.column(KEY).to_numpy(), batch.column(BLOCK).to_numpy()
    begins = np.flatnonzero((key[1:] != key[:-1]) | (block[1:] != block[:-1])) + 1
    cuts = [0, *begins.tolist(), batch.num_rows]
    for low, high in itertools.pairwise(cuts):
        if high > low:
            yield batch.slice(low, high - low)


@dataclass(frozen=True)
class BordersFunction(Shipped):
    """Look at all pieces, in their order (`DataFrame.mapInArrow`): for each file the number of rows in the
    files in front of it.

    Parameters
    ----------
    keys, texts
        As of `PiecesFunction`.
    """

    keys: tuple[SortKey, ...]
    texts: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `_FOUND`.

        Raises
        ------
        SourceError
            If the first row of a file comes before the last one of the file in front.
        """
        check = OrderCheck(self.keys)
        files: dict[int, tuple[str, int, int]] = {}  # key -> path, rows in front, rows
        total, before = 0, ("", 0)
        for batch in batches:
            for row in batch.to_pylist():
                path, key = row[PATH], row[KEY]
                ends = pa.ipc.open_stream(row[ENDS]).read_all().combine_chunks().to_batches()[0]
                first, last = (one.as_py() + 1 for one in ends.column(AT))
                if check.first_violation(ends) is not None:
                    text = f"row {first} of the file {path} comes before row {before[1]} of the file "
                    raise SourceError(f"{text}{before[0]} in the order {', '.join(self.texts)}: {_TODO}")
                _, front, count = files.get(key, (path, total, 0))
                if files.get(key, (path,))[0] != path or (first, last) != (count + 1, count + row[COUNT]):
                    raise SourceError(f"Spark gives the rows of {path} otherwise than they lie: {_LEAVE}")
                files[key] = path, front, count + row[COUNT]
                total, before = total + row[COUNT], (path, last)
        columns = [list(files), [front for _, front, _ in files.values()], [total] * len(files)]
        yield pa.RecordBatch.from_arrays([pa.array(one, pa.int64()) for one in columns], names=_FOUND.names)

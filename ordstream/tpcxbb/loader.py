"""A folder of TPCx-BB tables, Parquet or CSV, as Arrow batches or Spark DataFrames.

A table is the files whose names begin with the table's name (`web_clickstreams*.parquet`, `item*.csv`), or
the files of a folder of that name, in name order. CSV files are UTF-8, with or without a byte order mark,
have a header and write NULL as the empty string. Columns are found by name and cast; columns that the
queries don't use are ignored.
"""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from ordstream.errors import SourceError
from ordstream.ground.ordercheck import OrderCheck
from ordstream.ground.spark_path import to_read
from ordstream.ground.types import INT64_MAX, INT64_MIN
from ordstream.tpcxbb.queries import SideTables
from ordstream.tpcxbb.schema import (
    CLICK_ORDER,
    CLICK_STREAM,
    SALES_ORDER,
    SALES_STREAM,
    SECONDS_PER_DAY,
    STORE_SALES,
    TABLES,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SPARK_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.string(): "string",
    pa.decimal128(7, 2): "decimal(7,2)",
}
FILE_STEP = 1 << 48  # between the places of the first rows of two files
LARGEST_KEY = 100_000_000  # of a side table, which is dense
NO_TIME = "is no time in seconds that fits into 64 bits"
OTHER_TABLES = ("item_marketprices",)  # of the benchmark, with names that begin like a table's


@dataclass(frozen=True)
class _Piece:
    """Consecutive rows of one file, from `first_row` (from 0) on."""

    file: Path
    file_number: int
    first_row: int
    batch: pa.RecordBatch


class DataFolder:
    """The tables in one folder.

    Parameters
    ----------
    path : path
        The folder; files are looked up when a table is asked for.

    Raises
    ------
    SourceError
        If there is no such folder; later, if a table's files or columns are missing or can't be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if not self.path.is_dir():
            if self.path.exists():
                raise SourceError(f"the data folder {self.path} is a file: name the folder that it lies in")
            raise SourceError(f"no data folder {self.path}")

    def files(self, table: str) -> list[Path]:
        """Return the files of a table in name order, all Parquet or all CSV.

        Raises
        ------
        SourceError
            If there are none, or both kinds.
        """
        inside = self.path / table
        entries = sorted(inside.iterdir()) if inside.is_dir() else sorted(self.path.glob(f"{table}*"))
        entries = [e for e in entries if e.is_file() and e.suffix in (".parquet", ".csv")]
        entries = [e for e in entries if not e.name.startswith(OTHER_TABLES)]
        kinds = {e.suffix for e in entries}
        if not entries:
            raise SourceError(f"no table {table} in {self.path}: expected {table}*.parquet or {table}*.csv")
        if len(kinds) > 1:
            raise SourceError(f"table {table} in {self.path} has both Parquet and CSV files: keep one kind")
        return entries

    def batches(self, table: str, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table in file order, with the columns and types of `schema.TABLES`.

        Parameters
        ----------
        table : str
            One of `schema.TABLES`.
        batch_rows : int
            Largest batch; CSV files give batches of about 1 MiB of text.

        Raises
        ------
        SourceError
            Naming file, row (from 1, without the header) and column where a value can't be read or is
            missing.
        """
        return (piece.batch for piece in self._pieces(table, batch_rows))

    def table(self, table: str) -> pa.Table:
        """Return a whole table."""
        return pa.Table.from_batches(self.batches(table), TABLES[table])

    def rows(self, table: str) -> int:
        """Return the number of rows: from the footers of Parquet files, by reading one column of CSV
        files.
        """
        files = self.files(table)
        first = pa.schema([TABLES[table].field(0)])
        for file in files:
            self._check_columns(file, first)
        if files[0].suffix == ".parquet":
            return sum(int(pq.read_metadata(file).num_rows) for file in files)
        return sum(batch.num_rows for file in files for batch in _read(file, first, 0, TABLES[table]))

    def clicks(self, batch_rows: int = 65_536, *, sort: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the click stream (`schema.CLICK_STREAM`) in canonical order.

        Parameters
        ----------
        batch_rows : int
            Largest batch.
        sort : bool
            Sort the rows, in memory. Default: take them as they come and check that they are in order.

        Raises
        ------
        SourceError
            At the first row that comes before its predecessor, or that has no date or time.
        """
        return self._stream("web_clickstreams", CLICK_ORDER, _click_stream, batch_rows, sort)

    def sales(self, batch_rows: int = 65_536, *, sort: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the sales stream (`schema.SALES_STREAM`) by (ts, ticket, place in the files).

        Parameters and errors are those of `clicks`; a line without item, ticket or amount is an error too.
        """
        return self._stream("store_sales", SALES_ORDER, _sales_stream, batch_rows, sort)

    def side_tables(self, tables: Collection[str] = ("item", "web_page")) -> SideTables:
        """Return the category of every item and the type of every page (empty: it has none), dense by key.

        Parameters
        ----------
        tables : collection of str
            Those to read; the arrays of others stay empty.

        Raises
        ------
        SourceError
            If a key is null, negative, too large for a dense table, or there twice.
        """
        return SideTables(
            category_of_item=self._dense("item", "i_item_sk", "i_category_id", "item" in tables),
            type_of_page=self._dense("web_page", "wp_web_page_sk", "wp_type", "web_page" in tables),
        )

    def stream(self, table: str, *, sort: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield `clicks()` for "web_clickstreams", `sales()` for "store_sales"."""
        return self.clicks(sort=sort) if table == "web_clickstreams" else self.sales(sort=sort)

    def dataframe(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table as a Spark DataFrame with the columns and types of `schema.TABLES`."""
        from pyspark.sql import functions as F

        schema, files = TABLES[table], self.files(table)
        for file in files:
            self._check_columns(file, schema)
        frame = self._spark_files(spark, table, files)
        return frame.select(*(F.col(f.name).cast(SPARK_TYPES[f.type]).alias(f.name) for f in schema))

    def clicks_dataframe(self, spark: SparkSession) -> DataFrame:
        """Return the click stream (`schema.CLICK_STREAM`) as a Spark DataFrame; order it by
        `schema.CLICK_ORDER`.

        A job over it fails where a click has no date or time.
        """
        from pyspark.sql import functions as F

        clicks = self.dataframe(spark, "web_clickstreams")
        ts = _spark_event_time("wcs_click_date_sk", "wcs_click_time_sk")
        return clicks.withColumn("ts", ts).select(*(F.col(name) for name in CLICK_STREAM.names))

    def sales_dataframe(self, spark: SparkSession) -> DataFrame:
        """Return the sales stream (`schema.SALES_STREAM`) as a Spark DataFrame; order it by
        `schema.SALES_ORDER`.

        A job over it fails where a line has no date, time, item, ticket or amount.
        """
        from pyspark.sql import functions as F

        files = self.files("store_sales")
        frames = []
        for number, file in enumerate(files):
            self._check_columns(file, STORE_SALES)
            frame = self._spark_files(spark, "store_sales", [file])
            # Within one file both ascend with the row: Spark cuts a file into consecutive partitions.
            parquet = file.suffix == ".parquet"
            row = F.col("_metadata.row_index") if parquet else F.monotonically_increasing_id()
            frames.append(
                frame.select(
                    _spark_event_time("ss_sold_date_sk", "ss_sold_time_sk").alias("ts"),
                    _spark_required("ss_ticket_number").alias("ticket"),
                    _spark_required("ss_item_sk").alias("item"),
                    F.col("ss_store_sk").cast("bigint").alias("store"),
                    F.col("ss_sold_date_sk").cast("bigint").alias("date_sk"),
                    (_spark_required("ss_net_paid", "decimal(7,2)") * 100).cast("bigint").alias("cents"),
                    (F.lit(number * FILE_STEP).cast("bigint") + row).alias("line"),
                )
            )
        return functools.reduce(lambda a, b: a.unionAll(b), frames)

    def _spark_files(self, spark: SparkSession, table: str, files: list[Path]) -> DataFrame:
        """The files as Spark reads them, CSV columns with the types of `schema.TABLES`."""
        paths = [to_read(file) for file in files]
        if files[0].suffix == ".parquet":
            return spark.read.parquet(*paths)
        # Spark matches a given CSV schema by position: give it the header's order, which all files must
        # share
        headers = {tuple(_header(file)) for file in files}
        if len(headers) > 1:
            raise SourceError(f"the CSV files of {table} in {self.path} have different headers")
        types = {field.name: SPARK_TYPES[field.type] for field in TABLES[table]}
        ddl = ", ".join(f"`{name}` {types.get(name, 'string')}" for name in headers.pop())
        return spark.read.csv(paths, schema=ddl, header=True, nullValue="", mode="FAILFAST")

    def _pieces(self, table: str, batch_rows: int) -> Iterator[_Piece]:
        schema = TABLES[table]
        for number, file in enumerate(self.files(table)):
            self._check_columns(file, schema)
            row = 0
            for batch in _read(file, schema, batch_rows, schema):
                try:
                    rows = _align(batch, schema, file, row)
                except pa.ArrowException as error:
                    raise SourceError(f"can't read {file}: {error}") from error
                yield _Piece(file, number, row, rows)
                row += batch.num_rows

    def _stream(
        self,
        table: str,
        order: tuple[str, ...],
        shape: Callable[[_Piece], pa.RecordBatch],
        batch_rows: int,
        sort: bool,
    ) -> Iterator[pa.RecordBatch]:
        if sort:
            rows = pa.Table.from_batches(shape(piece) for piece in self._pieces(table, batch_rows))
            smallest = np.iinfo(np.int64).min  # NULL first; all columns of an order are int64
            keys = [pc.fill_null(rows[name], smallest).to_numpy() for name in reversed(order)]
            yield from rows.take(pa.array(np.lexsort(keys))).to_batches(batch_rows)
            return
        check = OrderCheck(order)
        last: pa.RecordBatch | None = None
        for piece in self._pieces(table, batch_rows):
            batch = shape(piece)
            begin = check.rows
            row = check.first_violation(batch)
            if row is not None:
                before, at = (batch, row - begin - 1) if row > begin else (last, -1)
                raise _unsorted(piece, row - begin, order, batch, before, at)
            if batch.num_rows:
                last = batch.slice(batch.num_rows - 1)
                yield batch

    def _dense(self, table: str, key: str, column: str, wanted: bool) -> pa.Array:
        """`column` by `key`: element i belongs to key i; null where there is no such key."""
        if not wanted:
            return pa.array([], TABLES[table].field(column).type)
        rows = self.table(table)
        keys = rows[key].combine_chunks()
        where = f"table {table} in {self.path}"
        if keys.null_count:
            raise SourceError(f"{where}: row {keys.is_null().index(True).as_py() + 1} has no {key}")
        number = keys.to_numpy()
        bad = np.flatnonzero((number < 0) | (number >= LARGEST_KEY))
        if len(bad):
            raise SourceError(
                f"{where}: row {bad[0] + 1} has {key} {number[bad[0]]}; keys from 0 to {LARGEST_KEY - 1} "
                "are possible"
            )
        place = np.full(int(number.max()) + 1 if len(number) else 0, -1, dtype=np.int64)
        place[number] = np.arange(len(number))
        twice = np.flatnonzero(place[number] != np.arange(len(number)))
        if len(twice):
            raise SourceError(
                f"{where}: {key} {number[twice[0]]} is there more than once, first in row {twice[0] + 1}"
            )
        values = rows[column].combine_chunks()
        if pa.types.is_string(values.type):
            values = values.fill_null("")  # there is such a key: null says that there is none
        return values.take(pa.array(place, mask=place < 0))

    def _check_columns(self, file: Path, schema: pa.Schema) -> None:
        try:
            names = pq.read_schema(file).names if file.suffix == ".parquet" else _header(file)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"can't read {file}: {error}") from error
        if not names and file.suffix == ".csv":
            raise SourceError(f"{file} is empty: a CSV file begins with a header, {','.join(schema.names)}")
        missing = [name for name in schema.names if name not in names]
        if missing:
            columns = "column" if len(missing) == 1 else "columns"
            raise SourceError(f"{file} lacks the {columns} {', '.join(missing)}; it has {', '.join(names)}")


def _header(file: Path) -> list[str]:
    with file.open(encoding="utf-8-sig", newline="") as lines:
        return next(csv.reader(lines), [])


def _read(file: Path, schema: pa.Schema, batch_rows: int, table: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The file's rows, in the columns of `schema`; of a table, which says what is wrong in a file that
    can't be read (SourceError).
    """
    try:
        yield from _parsed(file, schema, batch_rows)
    except (pa.ArrowException, OSError) as error:
        cell = _first_bad_cell(file, table) if file.suffix == ".csv" else None
        raise SourceError(f"can't read {file}: {cell or error}") from error


def _parsed(file: Path, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(batch_rows, columns=schema.names)
        return
    convert = pyarrow.csv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=True
    )
    with pyarrow.csv.open_csv(file, convert_options=convert) as reader:
        yield from reader


def _align(batch: pa.RecordBatch, schema: pa.Schema, file: Path, row: int) -> pa.RecordBatch:
    columns = []
    for field in schema:
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            rows = f"rows {row + 1} to {row + batch.num_rows}"
            raise SourceError(f"can't read {file}: {rows}, column {field.name}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_bad_cell(file: Path, schema: pa.Schema) -> str | None:
    """Say where a CSV file can't be read: Arrow's own message has no row. None: not found here."""
    header = _header(file)
    wanted = [(header.index(field.name), field.name, field.type) for field in schema]
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines)
        next(reader, None)
        try:
            for number, cells in enumerate(reader, start=1):
                if cells and len(cells) != len(header):
                    return (
                        f"row {number} has {len(cells)} values for {len(header)} columns, at line "
                        f"{reader.line_num} of the file"
                    )
                for index, name, kind in wanted:
                    if cells and cells[index] and not _fits(cells[index], kind):
                        return (
                            f"row {number}, column {name}: {cells[index]!r} is not {kind}, at line "
                            f"{reader.line_num} of the file"
                        )
        except (UnicodeDecodeError, csv.Error) as error:
            return f"after row {reader.line_num - 1}: {error}"
    return None


def _fits(text: str, kind: pa.DataType) -> bool:
    if pa.types.is_string(kind):
        return True
    try:
        value: int | Decimal = Decimal(text) if pa.types.is_decimal(kind) else int(text)
        pa.scalar(value, kind)
    except (ArithmeticError, ValueError, OverflowError, pa.ArrowException):
        return False
    return True


def _click_stream(piece: _Piece) -> pa.RecordBatch:
    ts = _event_time(piece, "wcs_click_date_sk", "wcs_click_time_sk")
    return pa.RecordBatch.from_arrays([ts, *piece.batch.columns], schema=CLICK_STREAM)


def _sales_stream(piece: _Piece) -> pa.RecordBatch:
    rows = piece.batch
    line = piece.file_number * FILE_STEP + piece.first_row + np.arange(rows.num_rows, dtype=np.int64)
    cents = pc.multiply(_required(piece, "ss_net_paid"), pa.scalar(Decimal(100), pa.decimal128(3, 0)))
    columns = [
        _event_time(piece, "ss_sold_date_sk", "ss_sold_time_sk"),
        _required(piece, "ss_ticket_number"),
        _required(piece, "ss_item_sk"),
        rows.column("ss_store_sk"),
        rows.column("ss_sold_date_sk"),
        cents.cast(pa.int64()),
        pa.array(line),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SALES_STREAM)


def _event_time(piece: _Piece, date: str, time: str) -> pa.Array:
    days, seconds = _required(piece, date), _required(piece, time)
    try:
        return pc.add_checked(pc.multiply_checked(days, SECONDS_PER_DAY), seconds)
    except pa.ArrowInvalid as error:
        for row, (day, second) in enumerate(
            zip(days.to_pylist(), seconds.to_pylist(), strict=True), piece.first_row + 1
        ):
            begin = day * SECONDS_PER_DAY
            if not (INT64_MIN <= begin <= INT64_MAX and INT64_MIN <= begin + second <= INT64_MAX):
                raise SourceError(
                    f"{piece.file}: row {row}: {date} {day} with {time} {second} {NO_TIME}"
                ) from error
        raise


def _required(piece: _Piece, column: str) -> pa.Array:
    """A column without nulls."""
    values = piece.batch.column(column)
    if values.null_count:
        row = piece.first_row + values.is_null().index(True).as_py() + 1
        raise SourceError(f"{piece.file}: row {row} has no {column}, which the stream needs")
    return values


def _unsorted(
    piece: _Piece,
    at: int,
    order: tuple[str, ...],
    batch: pa.RecordBatch,
    before: pa.RecordBatch | None,
    at_before: int,
) -> SourceError:
    """The error for row `at` of a piece, which comes before the row `at_before` of `before`."""
    assert before is not None  # a first row has no predecessor
    earlier = before.slice(at_before % before.num_rows, 1)
    pairs = ((name, earlier[name][0].as_py(), batch[name][at].as_py()) for name in order)
    column, was, is_ = next(pair for pair in pairs if pair[1] != pair[2])
    row = piece.first_row + at
    previous = f"row {row}" if row else "the last row of the file before"
    return SourceError(
        f"{piece.file} is not sorted: row {row + 1} comes before {previous} in the order "
        f"{', '.join(order)}: "
        f"{column} is {_shown(is_)} after {_shown(was)}; sort it, have it sorted (sort=True, --sort), or "
        "run it on "
        "Spark, which sorts"
    )


def _shown(value: Any) -> str:
    return "NULL" if value is None else str(value)


def _spark_event_time(date: str, time: str) -> Column:
    from pyspark.sql import functions as F

    day, second = _spark_required(date), _spark_required(time)
    # null, with ANSI mode off as well
    ts = F.try_add(F.try_multiply(day, F.lit(SECONDS_PER_DAY).cast("bigint")), second)
    outside = F.concat(
        F.lit(f"{date} "), day, F.lit(f" with {time} "), second, F.lit(f" {NO_TIME}: "), F.input_file_name()
    )
    return F.when(ts.isNull(), F.raise_error(outside).cast("bigint")).otherwise(ts)


def _spark_required(column: str, kind: str = "bigint") -> Column:
    """A column without nulls; where there is one, the job fails and names the column and the file."""
    from pyspark.sql import functions as F

    value = F.col(column).cast(kind)
    missing = F.concat(F.lit(f"a row has no {column}, which the stream needs: "), F.input_file_name())
    return F.when(value.isNull(), F.raise_error(missing).cast(kind)).otherwise(value)

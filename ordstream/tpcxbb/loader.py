"""A folder of TPCx-BB tables, Parquet or CSV, as Arrow batches or Spark DataFrames.

A table is the files whose names begin with the table's name (`web_clickstreams*.parquet`, `item*.csv`), or
the files of a folder of that name, in name order. CSV files have a header and write NULL as the empty string.
Columns are found by name and cast; columns that the queries don't use are ignored.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from ordstream.errors import SourceError
from ordstream.ordercheck import OrderCheck
from ordstream.tpcxbb.schema import CLICK_ORDER, CLICK_STREAM, SECONDS_PER_DAY, TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.string(): "string",
    pa.decimal128(7, 2): "decimal(7,2)",
}


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
        """
        schema = TABLES[table]
        for file in self.files(table):
            self._check_columns(file, schema)
            try:
                for batch in _read(file, schema, batch_rows):
                    yield _align(batch, schema)
            except (pa.ArrowException, OSError) as error:
                raise SourceError(f"can't read {file}: {error}") from error

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
        return sum(batch.num_rows for file in files for batch in _read(file, first, 0))

    def clicks(self, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield the click stream (`schema.CLICK_STREAM`), checking that it is in canonical order.

        Raises
        ------
        SourceError
            At the first row that comes before its predecessor.
        """
        check = OrderCheck(CLICK_ORDER)
        for batch in self.batches("web_clickstreams", batch_rows):
            stream = _with_event_time(batch)
            row = check.first_violation(stream)
            if row is not None:
                raise SourceError(
                    f"web_clickstreams in {self.path} is not sorted: row {row + 1} comes before row {row} in "
                    f"the order {', '.join(CLICK_ORDER)}; sort it, or run it on Spark, which sorts"
                )
            yield stream

    def dataframe(self, spark: SparkSession, table: str) -> DataFrame:
        """Return a table as a Spark DataFrame with the columns and types of `schema.TABLES`."""
        from pyspark.sql import functions as F

        schema, files = TABLES[table], self.files(table)
        for file in files:
            self._check_columns(file, schema)
        paths = [_spark_path(file) for file in files]
        if files[0].suffix == ".parquet":
            frame = spark.read.parquet(*paths)
        else:
            # Spark matches a given CSV schema by position: give it the header's order, which all files must
            # share
            headers = {tuple(_header(file)) for file in files}
            if len(headers) > 1:
                raise SourceError(f"the CSV files of {table} in {self.path} have different headers")
            types = {field.name: SPARK_TYPES[field.type] for field in schema}
            ddl = ", ".join(f"`{name}` {types.get(name, 'string')}" for name in headers.pop())
            frame = spark.read.csv(paths, schema=ddl, header=True, nullValue="", mode="FAILFAST")
        return frame.select(*(F.col(f.name).cast(SPARK_TYPES[f.type]).alias(f.name) for f in schema))

    def clicks_dataframe(self, spark: SparkSession) -> DataFrame:
        """Return the click stream (`schema.CLICK_STREAM`) as a Spark DataFrame; order it by
        `schema.CLICK_ORDER`.
        """
        from pyspark.sql import functions as F

        clicks = self.dataframe(spark, "web_clickstreams")
        ts = F.col("wcs_click_date_sk") * SECONDS_PER_DAY + F.col("wcs_click_time_sk")
        return clicks.withColumn("ts", ts).select(*CLICK_STREAM.names)

    def _check_columns(self, file: Path, schema: pa.Schema) -> None:
        try:
            names = pq.read_schema(file).names if file.suffix == ".parquet" else _header(file)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"can't read {file}: {error}") from error
        missing = [name for name in schema.names if name not in names]
        if missing:
            columns = "column" if len(missing) == 1 else "columns"
            raise SourceError(f"{file} lacks the {columns} {', '.join(missing)}; it has {', '.join(names)}")


def _header(file: Path) -> list[str]:
    with file.open(encoding="utf-8", newline="") as lines:
        return next(csv.reader(lines), [])


def _read(file: Path, schema: pa.Schema, batch_rows: int) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(batch_rows, columns=schema.names)
        return
    convert = pyarrow.csv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=True
    )
    with pyarrow.csv.open_csv(file, convert_options=convert) as reader:
        yield from reader


def _align(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(f.name).cast(f.type) for f in schema], schema=schema)


def _with_event_time(batch: pa.RecordBatch) -> pa.RecordBatch:
    day = pc.multiply_checked(batch.column("wcs_click_date_sk"), SECONDS_PER_DAY)
    ts = pc.add_checked(day, batch.column("wcs_click_time_sk"))
    return pa.RecordBatch.from_arrays([ts, *batch.columns], schema=CLICK_STREAM)


def _spark_path(file: Path) -> str:
    """A path that Spark takes literally: it reads [, {, * and ? as patterns."""
    return "file:" + re.sub(r"([\\\[\]{}*?])", r"\\\1", str(file))

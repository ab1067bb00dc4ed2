"""The queries' answers by SQL over the whole tables: an independent path to what the streams must end
with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ordstream.tpcxbb.batch_sql import DUCKDB_MACROS, STATEMENTS
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[tuple[Any, ...]]

TOLERANCE = 1e-6  # of fractions, relative (absolute below 1): two paths round differently

_TABLE = re.compile(rf"\b(FROM|JOIN) ({'|'.join(TABLES)})\b")


def statement(query: str, **parameters: Any) -> str:
    """Return the SQL of a query.

    Raises
    ------
    ValueError
        If there is no such query or it has no such parameter.
    """
    if query not in STATEMENTS:
        raise ValueError(f"no batch answer for {query}: there is one for {', '.join(STATEMENTS)}")
    try:
        return STATEMENTS[query](**parameters)
    except TypeError as error:
        raise ValueError(f"{query}: {error}") from error


def tables_of(text: str) -> list[str]:
    """Return the tables that a statement reads."""
    return sorted({table for _, table in _TABLE.findall(text)})


def duckdb_answer(folder: DataFolder, query: str, **parameters: Any) -> Rows:
    """Answer a query with DuckDB.

    Parameters
    ----------
    folder : DataFolder
        Its tables are read whole, in any order.
    query : str
        "q1", ...
    **parameters
        Those of the query; what is left out has the default of `batch_sql`.

    Raises
    ------
    ImportError
        If the package duckdb is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("the batch answer outside Spark needs DuckDB: pip install duckdb") from error

    text = statement(query, **parameters)
    with duckdb.connect() as connection:
        for macro in DUCKDB_MACROS:
            connection.execute(macro)
        for table in tables_of(text):
            connection.register(table, folder.table(table))
        rows: Rows = connection.execute(text).fetchall()
    return rows


def spark_answer(spark: SparkSession, folder: DataFolder, query: str, **parameters: Any) -> Rows:
    """Answer a query with Spark SQL, on the rows as Spark reads them. Parameters as for `duckdb_answer`."""
    text = statement(query, **parameters)
    # without, a time that does not fit into int64 would become another one
    checks = "spark.sql.ansi.enabled"
    before = str(spark.conf.get(checks))
    spark.conf.set(checks, "true")
    try:
        frames: dict[str, Any] = {table: folder.dataframe(spark, table) for table in tables_of(text)}
        return [tuple(row) for row in spark.sql(_TABLE.sub(r"\1 {\2}", text), **frames).collect()]
    finally:
        spark.conf.set(checks, before)


def first_difference(found: Sequence[Sequence[Any]], expected: Sequence[Sequence[Any]]) -> str | None:
    """Describe the first row in which two answers differ, or return None if they are equal.

    Whole numbers must be equal, fractions within `TOLERANCE`.
    """
    for number, (a, b) in enumerate(zip(found, expected, strict=False), start=1):
        if len(a) != len(b) or not all(map(_same, a, b)):
            return f"row {number}: the stream has {tuple(a)}, the batch answer {tuple(b)}"
    if len(found) != len(expected):
        return f"the stream has {len(found)} rows, the batch answer {len(expected)}"
    return None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and abs(a - b) <= TOLERANCE * max(1.0, abs(b))
    return bool(a == b)

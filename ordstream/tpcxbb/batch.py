"""The queries' answers by SQL over the whole table: an independent path to what the streams must end with.

One statement per query, for Spark SQL and DuckDB alike. Sessions come from window functions and pairs from a
self join; nothing is shared with `queries`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.schema import SECONDS_PER_DAY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Parameter = int | None


def q2(anchor: Parameter = None, timeout_seconds: Parameter = 3600, limit: Parameter = 30) -> str:
    """SQL of query 2: products viewed together in a session.

    Parameters
    ----------
    anchor : int, optional
        Count only the items seen together with this one; the columns are then (item, anchor, count).
    timeout_seconds : int
        A longer gap between two clicks of a user starts a new session.
    limit : int
        Rows of the answer, by count descending, then by the pair.

    Returns
    -------
    str
        A statement over the table ``web_clickstreams``.
    """
    together = "a.item < b.item" if anchor is None else f"a.item <> b.item AND b.item = {anchor}"
    # The running sum has SQL's default frame (RANGE), which gives clicks of the same second the same session
    # whatever order they come in.
    return f"""
        WITH clicks AS (
          SELECT wcs_user_sk AS visitor, wcs_item_sk AS item,
                 wcs_click_date_sk * {SECONDS_PER_DAY} + wcs_click_time_sk AS ts
          FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL),
        timed AS (
          SELECT visitor, item, ts, ts - LAG(ts) OVER (PARTITION BY visitor ORDER BY ts) AS gap FROM clicks),
        flagged AS (
          SELECT visitor, item, ts, CASE WHEN gap > {timeout_seconds} THEN 1 ELSE 0 END AS opens FROM timed),
        numbered AS (
          SELECT visitor, item, SUM(opens) OVER (PARTITION BY visitor ORDER BY ts) AS session FROM flagged),
        viewed AS (SELECT DISTINCT visitor, session, item FROM numbered)
        SELECT a.item AS left_item, b.item AS right_item, COUNT(*) AS times
        FROM viewed a JOIN viewed b ON a.visitor = b.visitor AND a.session = b.session AND {together}
        GROUP BY a.item, b.item ORDER BY times DESC, left_item, right_item LIMIT {limit}"""


STATEMENTS: dict[str, Callable[..., str]] = {"q2": q2}


def statement(query: str, **parameters: Parameter) -> str:
    """Return the SQL of a query.

    Raises
    ------
    ValueError
        If there is no such query or it has no such parameter.
    """
    if query not in STATEMENTS:
        raise ValueError(f"no batch answer for {query}: there is one for {', '.join(STATEMENTS)}")
    return STATEMENTS[query](**parameters)


def duckdb_answer(folder: DataFolder, query: str, **parameters: Parameter) -> list[tuple[int, ...]]:
    """Answer a query with DuckDB.

    Raises
    ------
    ImportError
        If the package duckdb is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("the batch answer outside Spark needs DuckDB: pip install duckdb") from error

    with duckdb.connect() as connection:
        connection.register("web_clickstreams", folder.table("web_clickstreams"))
        rows: list[tuple[int, ...]] = connection.execute(statement(query, **parameters)).fetchall()
    return rows


def spark_answer(
    spark: SparkSession, folder: DataFolder, query: str, **parameters: Parameter
) -> list[tuple[int, ...]]:
    """Answer a query with Spark SQL, on the rows as Spark reads them."""
    frame = folder.dataframe(spark, "web_clickstreams")
    rows = spark.sql(
        statement(query, **parameters).replace("web_clickstreams", "{clicks}"), clicks=frame
    ).collect()
    return [tuple(row) for row in rows]


def first_difference(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> str | None:
    """Describe the first row in which two answers differ, or return None if they are equal."""
    for number, (a, b) in enumerate(zip(found, expected, strict=False), start=1):
        if tuple(a) != tuple(b):
            return f"row {number}: the stream has {tuple(a)}, the batch answer {tuple(b)}"
    if len(found) != len(expected):
        return f"the stream has {len(found)} rows, the batch answer {len(expected)}"
    return None

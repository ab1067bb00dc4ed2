"""The SQL of the batch answers: one statement per query, the same text for Spark SQL and DuckDB.

Written from the benchmark's definitions with window functions and joins over the whole tables; nothing is
shared with the streams of `queries`. Table names stand after FROM and JOIN only, so that an engine can put
its own there.

Times are any int64, below 0 (before 1900) as well: windows are floors, and no difference of two times is
taken, which could leave int64. An event time that does not fit is an error, here as in the stream. `div` is
a division of integers that drops the fraction: Spark has it, DuckDB is given it (`DUCKDB_MACROS`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ordstream.ground.types import INT64_MIN
from ordstream.tpcxbb.schema import SECONDS_PER_DAY

Some = Sequence[int] | None
"""Values to keep; None keeps all."""

DUCKDB_MACROS = ("CREATE MACRO div(a, b) AS a // b",)
"""What DuckDB must be told before a statement."""


def q1(
    stores: Some = None,
    categories: Some = None,
    min_count: int = 0,
    limit: int = 100,
    window_seconds: int | None = None,
) -> str:
    """SQL of query 1: items sold together in a ticket.

    Parameters
    ----------
    stores, categories : sequence of int, optional
        Count only lines of these stores, and of items in these categories (None: in any; an item without one
        is never counted).
    min_count : int
        A pair needs strictly more tickets than this.
    limit : int
        Rows of the answer, or of each window's: by count descending, then by the pair.
    window_seconds : int, optional
        Count per window of this length; the answer then has the window (event time // length) in front.

    Returns
    -------
    str
        A statement over ``store_sales`` and ``item``; rows (item1, item2, count) or (window, item1, item2,
        count).
    """
    ts = f"ss_sold_date_sk * {SECONDS_PER_DAY} + ss_sold_time_sk"
    window = "0" if window_seconds is None else _floor(f"({ts})", window_seconds)
    kept = _all([_among("ss_store_sk", stores), _category(categories)])
    return f"""
        WITH lines AS (
          SELECT DISTINCT ss_ticket_number AS ticket, ss_item_sk AS item, CAST({window} AS BIGINT) AS w
          FROM store_sales JOIN item ON ss_item_sk = i_item_sk WHERE {kept}),
        counted AS (
          SELECT a.w AS w, a.item AS item1, b.item AS item2, COUNT(*) AS times
          FROM lines a JOIN lines b ON a.ticket = b.ticket AND a.w = b.w AND a.item < b.item
          GROUP BY a.w, a.item, b.item HAVING COUNT(*) > {min_count}),
        ranked AS (
          SELECT w, item1, item2, times,
                 ROW_NUMBER() OVER (PARTITION BY w ORDER BY times DESC, item1, item2) AS place FROM counted)
        SELECT {"" if window_seconds is None else "w, "}item1, item2, times FROM ranked
        WHERE place <= {limit} ORDER BY w, place"""


def _sessions(columns: str, timeout_seconds: int, source: str) -> str:
    """Common table expressions up to ``sessions``: `columns` of ``clicks`` by (visitor, session).

    The running sum has SQL's default frame (RANGE), which gives clicks of the same second the same session
    whatever order they come in.
    """
    return f"""
        WITH clicks AS ({source}),
        timed AS (
          SELECT visitor, ts, {columns}, LAG(ts) OVER (PARTITION BY visitor ORDER BY ts) AS previous
          FROM clicks),
        flagged AS (
          SELECT visitor, ts, {columns},
                 CASE WHEN previous < {_before("ts", timeout_seconds)} THEN 1 ELSE 0 END AS opens
          FROM timed),
        sessions AS (
          SELECT visitor, ts, {columns}, SUM(opens) OVER (PARTITION BY visitor ORDER BY ts) AS session
          FROM flagged)"""


_TS = f"wcs_click_date_sk * {SECONDS_PER_DAY} + wcs_click_time_sk"


def q2(anchor: int | None = None, timeout_seconds: int = 3600, limit: int = 30) -> str:
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
        A statement over ``web_clickstreams``; rows (item1, item2, count).
    """
    together = "a.item < b.item" if anchor is None else f"a.item <> b.item AND b.item = {anchor}"
    clicks = f"""
          SELECT wcs_user_sk AS visitor, {_TS} AS ts, wcs_item_sk AS item
          FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL"""
    return f"""{_sessions("item", timeout_seconds, clicks)},
        viewed AS (SELECT DISTINCT visitor, session, item FROM sessions)
        SELECT a.item AS left_item, b.item AS right_item, COUNT(*) AS times
        FROM viewed a JOIN viewed b ON a.visitor = b.visitor AND a.session = b.session AND {together}
        GROUP BY a.item, b.item ORDER BY times DESC, left_item, right_item LIMIT {limit}"""


def q3(
    purchased: int | None = None,
    categories: Some = None,
    last_n: int = 5,
    within_seconds: int = 864_000,
    limit: int = 30,
) -> str:
    """SQL of query 3: what was clicked last before a purchase.

    Parameters
    ----------
    purchased : int, optional
        Only purchases of this item. None: of any item, each with its own list.
    categories : sequence of int, optional
        Count only clicked items in these categories (None: in any).
    last_n : int
        Clicks of the same user before the purchase that are looked at; purchases are clicks too.
    within_seconds : int
        Largest age of such a click at the purchase.
    limit : int
        Rows for each purchased item, by count descending, then by the clicked item.

    Returns
    -------
    str
        A statement over ``web_clickstreams`` and ``item``; rows (purchased, viewed, count).
    """
    back = ", ".join(f"({step})" for step in range(1, last_n + 1))
    bought = "p.sale IS NOT NULL" if purchased is None else f"p.sale IS NOT NULL AND p.item = {purchased}"
    return f"""
        WITH clicks AS (
          SELECT wcs_user_sk AS visitor, {_TS} AS ts, wcs_item_sk AS item, wcs_sales_sk AS sale,
                 ROW_NUMBER() OVER (PARTITION BY wcs_user_sk ORDER BY {_TS}, wcs_sales_sk NULLS FIRST,
                   wcs_item_sk, wcs_web_page_sk NULLS FIRST) AS place
          FROM web_clickstreams WHERE wcs_user_sk IS NOT NULL AND wcs_item_sk IS NOT NULL),
        purchases AS (
          SELECT p.visitor AS visitor, p.ts AS ts, p.item AS item, p.place - back.step AS place
          FROM clicks p CROSS JOIN (VALUES {back}) AS back(step) WHERE {bought}),
        views AS (
          SELECT p.item AS purchased, v.item AS viewed
          FROM purchases p JOIN clicks v ON v.visitor = p.visitor AND v.place = p.place
          WHERE v.ts >= {_before("p.ts", within_seconds)}),
        counted AS (
          SELECT purchased, viewed, COUNT(*) AS times FROM views JOIN item ON viewed = i_item_sk
          WHERE {_category(categories)} GROUP BY purchased, viewed),
        ranked AS (
          SELECT purchased, viewed, times,
                 ROW_NUMBER() OVER (PARTITION BY purchased ORDER BY times DESC, viewed) AS place
          FROM counted)
        SELECT purchased, viewed, times FROM ranked WHERE place <= {limit} ORDER BY purchased, place"""


def q4(timeout_seconds: int = 3600) -> str:
    """SQL of query 4: pages and number of the sessions that left a cart behind.

    A session did if its last click on a dynamic page comes after its last one on an order page, clicks
    ordered by (time, type).

    Parameters
    ----------
    timeout_seconds : int
        A longer gap between two clicks of a user starts a new session.

    Returns
    -------
    str
        A statement over ``web_clickstreams`` and ``web_page``; one row (pages, sessions), none without such
        sessions.
    """
    clicks = f"""
          SELECT wcs_user_sk AS visitor, {_TS} AS ts, wp_type AS kind
          FROM web_clickstreams JOIN web_page ON wcs_web_page_sk = wp_web_page_sk
          WHERE wcs_user_sk IS NOT NULL AND wcs_sales_sk IS NULL"""
    return f"""{_sessions("kind", timeout_seconds, clicks)},
        placed AS (
          SELECT visitor, session, kind,
                 ROW_NUMBER() OVER (PARTITION BY visitor, session ORDER BY ts, kind) AS place FROM sessions),
        ended AS (
          SELECT COUNT(*) AS pages,
                 MAX(CASE WHEN kind = 'dynamic' THEN place ELSE -1 END) AS last_dynamic,
                 MAX(CASE WHEN kind = 'order' THEN place ELSE -1 END) AS last_order
          FROM placed GROUP BY visitor, session)
        SELECT CAST(SUM(pages) AS BIGINT) AS pages, COUNT(*) AS sessions
        FROM ended WHERE last_dynamic > last_order
        HAVING COUNT(*) > 0"""


def q15(store: int | None = None, date_from: int | None = None, date_to: int | None = None) -> str:
    """SQL of query 15: categories whose sales of a day don't grow, by a least-squares line.

    A category's day without a sale is no point of its line. Whether a line is flat or declining is decided
    on whole cents, exactly.

    Parameters
    ----------
    store : int, optional
        Only sales in this store.
    date_from, date_to : int, optional
        First and last day, both included, as days since 1900-01-01.

    Returns
    -------
    str
        A statement over ``store_sales`` and ``item``; rows (category, slope per day, intercept at day 0).
    """
    bounds = [
        "TRUE" if store is None else f"ss_store_sk = {store}",
        "TRUE" if date_from is None else f"ss_sold_date_sk >= {date_from}",
        "TRUE" if date_to is None else f"ss_sold_date_sk <= {date_to}",
    ]

    def whole(sum_of: str) -> str:
        return f"CAST(CAST(SUM({sum_of}) AS BIGINT) AS DECIMAL(19, 0))"

    rise, run = "n * sxy - sx * sy", "n * sxx - sx * sx"
    height = "sy * sxx - sx * sxy"
    # Sums that leave int64 are an error, as in the stream. sxy and sy are cents. The products need up to 38
    # digits.
    return f"""
        WITH days AS (
          SELECT i_category_id AS category, ss_sold_date_sk AS x,
                 CAST(SUM(CAST(ss_net_paid * 100 AS BIGINT)) AS BIGINT) AS y
          FROM store_sales JOIN item ON ss_item_sk = i_item_sk
          WHERE i_category_id IS NOT NULL AND {_all(bounds)} GROUP BY i_category_id, ss_sold_date_sk),
        sums AS (
          SELECT category, CAST(COUNT(*) AS DECIMAL(19, 0)) AS n, {whole("x")} AS sx,
                 {whole("x * x")} AS sxx, {whole("y")} AS sy, {whole("x * y")} AS sxy
          FROM days GROUP BY category HAVING COUNT(*) > 1)
        SELECT category, CAST({rise} AS DOUBLE) / CAST({run} AS DOUBLE) / 100 AS slope,
               CAST({height} AS DOUBLE) / CAST({run} AS DOUBLE) / 100 AS intercept
        FROM sums WHERE n * sxy <= sx * sy ORDER BY category"""


def _before(time: str, seconds: int) -> str:
    """So many seconds before a time, or the first time there is."""
    return f"GREATEST({time}, {INT64_MIN + 1} - 1 + {seconds}) - {seconds}"


def _floor(time: str, length: int) -> str:
    """The number of the window that a time lies in: rounded down, also below 0."""
    return f"div({time}, {length}) - CASE WHEN {time} % {length} < 0 THEN 1 ELSE 0 END"


def _among(column: str, values: Some) -> str:
    if values is None:
        return "TRUE"
    return f"{column} IN ({', '.join(map(str, values))})" if len(values) else "FALSE"


def _category(categories: Some) -> str:
    return "i_category_id IS NOT NULL" if categories is None else _among("i_category_id", categories)


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(condition for condition in conditions if condition != "TRUE") or "TRUE"


STATEMENTS: dict[str, Callable[..., str]] = {"q1": q1, "q2": q2, "q3": q3, "q4": q4, "q15": q15}

"""The queries as ordered pipelines, each reading like its line in Table 1 of the ordered paper.

WC is web_clickstreams (`schema.CLICK_STREAM`), SS is store_sales (`schema.SALES_STREAM`); SL, PS and SF are
stateless, partitioned stateful and stateful operators. A query's `build` gives the pipeline, which emits
every update; its `answer` picks the end-of-stream answer out of the output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ordstream as od
from ordstream.expressions.expr import Expr
from ordstream.tpcxbb.schema import CLICK_STREAM, SALES_STREAM

Rows = Sequence[tuple[Any, ...]]
Parameters = Mapping[str, Any]

DYNAMIC, ORDER, OTHER = 1, 2, 0  # kinds of pages that query 4 tells apart


@dataclass(frozen=True)
class SideTables:
    """Dimension columns that stateless operators look up; dense by key.

    Attributes
    ----------
    category_of_item : pyarrow.Array of integers
        i_category_id by i_item_sk; null or negative where there is no such item.
    type_of_page : pyarrow.Array of strings
        wp_type by wp_web_page_sk; null where there is no such page, empty where a page has no type.
    """

    category_of_item: Any
    type_of_page: Any

    @cached_property
    def categories(self) -> pa.Array:
        """Category by item, null where there is none."""
        given = pa.array(self.category_of_item).cast(pa.int64())
        return pc.if_else(pc.less(given, 0), pa.scalar(None, pa.int64()), given)

    @cached_property
    def kinds(self) -> pa.Array:
        """DYNAMIC, ORDER or OTHER by page, null where there is no such page."""
        given = pa.array(self.type_of_page).cast(pa.string())
        kinds = np.select(
            [np.asarray(pc.equal(given, name).fill_null(False)) for name in ("dynamic", "order")],
            [DYNAMIC, ORDER],
            OTHER,
        )
        return pa.array(kinds, pa.int64(), mask=np.asarray(given.is_null()))


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes
    ----------
    name : str
        "q1", ...
    source : str
        Table that it streams: "web_clickstreams" or "store_sales".
    profiles : mapping
        "batch" (the benchmark's parameters) and "paper" -> parameter name -> value.
    build : callable
        build(tables, **parameters) -> Pipeline that emits every update.
    answer : callable
        answer(rows, **parameters) -> the end-of-stream answer; `rows` is the pipeline's output in order,
        whole or with emit="final".
    """

    name: str
    source: str
    profiles: Mapping[str, Parameters]
    build: Callable[..., od.Pipeline]
    answer: Callable[..., list[tuple[Any, ...]]]


def _in_categories(item: Expr, tables: SideTables, categories: Sequence[int] | None) -> Expr:
    """Whether the item has one of the categories, or any: the benchmark joins with the items, so it
    never counts one without.
    """
    category = item.lookup(tables.categories)
    return category.is_not_null() if categories is None else category.isin(categories)


# ------------------------------------------------------------------------------------------------ query 1


def q1(
    tables: SideTables,
    *,
    stores: Sequence[int] | None = (10, 20, 33, 40, 50),
    categories: Sequence[int] | None = (1, 2, 3),
    min_count: int = 50,
    limit: int = 100,
    window_seconds: int | None = None,
) -> od.Pipeline:
    """Query 1, pairs of items sold together in stores: SS -> SL -> PS(ticket) -> PS(pair) -> SF.

    Parameters
    ----------
    tables : SideTables
    stores, categories : sequence of int, optional
        Only lines of these; None: of all. A line whose item has no category never counts.
    min_count : int
        Only pairs sold together more often than this.
    limit : int
        Rows of the answer, by count descending, then by the pair ascending.
    window_seconds : int, optional
        Count per window of so many seconds, as the paper's "every hour"; None: over the whole stream.
    """
    wanted: Expr = od.lit(True)
    if stores is not None:
        wanted &= od.col("store").isin(stores)
    wanted &= _in_categories(od.col("item"), tables, categories)
    sales = od.Pipeline(SALES_STREAM)
    if window_seconds is None:
        return (
            sales.select("ticket", "item", where=wanted, name="lines")
            .key_by("ticket")
            .pair_up("item", left="item1", right="item2", name="baskets")
            .key_by("item1", "item2")
            .count(above=min_count, name="pairs")
            .top_k(limit, by="count", emit="updates", name="top")
        )
    return (
        sales.select("ticket", "item", window=od.col("ts") // window_seconds, where=wanted, name="lines")
        .key_by("ticket")
        .pair_up("item", carry=["window"], left="item1", right="item2", name="baskets")
        .key_by("item1", "item2")
        .count(window=1, time="window", above=min_count, name="pairs")
        .top_k(limit, by="count", window="window", emit="updates", name="top")
    )


def q1_answer(rows: Rows, *, window_seconds: int | None = None, **_: Any) -> list[tuple[Any, ...]]:
    """Rows [item1, item2, count]; with windows [window, item1, item2, count], window = ts //
    window_seconds.
    """
    if window_seconds is None:
        return [row[:3] for row in last_lists(rows)]
    return [(row[2], row[0], row[1], row[3]) for row in last_lists(rows, by=2)]


# ------------------------------------------------------------------------------------------------ query 2


def q2(
    tables: SideTables | None = None,
    *,
    anchor: int | None = None,
    timeout_seconds: int = 3600,
    limit: int = 30,
) -> od.Pipeline:
    """Query 2, the top pairs of products viewed together: WC -> SL -> PS(user) -> SL -> PS(pair) -> SF.

    Viewed together means: in the same session of a known user. A session ends at the first gap of more than
    `timeout_seconds` between two clicks; each distinct pair of items counts once per session.

    Parameters
    ----------
    tables : SideTables, optional
        Not used.
    anchor : int, optional
        The batch benchmark's form: only the items viewed together with this one, as pairs (item, anchor).
        None is the paper's form: all pairs (left, right) with left < right.
    timeout_seconds : int
        Longest gap inside a session.
    limit : int
        Rows of the answer, by count descending, then by the pair ascending.
    """
    known = od.col("wcs_user_sk").is_not_null() & od.col("wcs_item_sk").is_not_null()
    return (
        od.Pipeline(CLICK_STREAM)
        .select("ts", user="wcs_user_sk", item="wcs_item_sk", where=known, name="known")
        .key_by("user")
        .sessionize(time="ts", timeout=timeout_seconds, collect={"items": "item"}, name="sessions")
        .flat_map(od.pairs("items", left="left", right="right", anchor=anchor), name="pairs")
        .key_by("left", "right")
        .count()
        .top_k(limit, by="count", emit="updates", name="top")
    )


def q2_answer(rows: Rows, **_: Any) -> list[tuple[Any, ...]]:
    """Rows [left, right, count], or [item, anchor, count] with an anchor."""
    return [row[:3] for row in last_lists(rows)]


# ------------------------------------------------------------------------------------------------ query 3


def q3(
    tables: SideTables,
    *,
    purchased: int | Sequence[int] | None = 10_001,
    categories: Sequence[int] | None = (2, 3),
    last_n: int = 5,
    within_seconds: int = 864_000,
    limit: int = 100,
) -> od.Pipeline:
    """Query 3, what was viewed before an item was bought: WC -> SL -> PS(user) -> PS(purchased item).

    Parameters
    ----------
    tables : SideTables
    purchased : int or sequence of int, optional
        The bought item, or several; None: any item.
    categories : sequence of int, optional
        Only viewed items of these count; None: of all. An item without category never counts.
    last_n : int
        How many of the user's clicks before the purchase are looked at, of any kind.
    within_seconds : int
        How long before the purchase they may be.
    limit : int
        Rows of the answer per purchased item, by count descending, then by viewed item ascending.
    """
    item, user = od.col("wcs_item_sk"), od.col("wcs_user_sk")
    buys = od.col("wcs_sales_sk").is_not_null()
    if purchased is not None:
        buys &= item.isin([purchased] if isinstance(purchased, int) else purchased)
    counts = _in_categories(item, tables, categories)
    known = user.is_not_null() & item.is_not_null()
    return (
        od.Pipeline(CLICK_STREAM)
        .select("ts", user=user, item=item, buys=buys, counts=counts, where=known, name="known")
        .key_by("user")
        .preceding(
            last_n,
            {"viewed": "item"},
            carry={"purchased": "item"},
            time="ts",
            within=within_seconds,
            when=od.col("buys"),
            where=od.col("counts"),
            name="views",
        )
        .key_by("purchased")
        .top_values("viewed", limit, name="top")
    )


def q3_answer(rows: Rows, *, limit: int = 100, **_: Any) -> list[tuple[Any, ...]]:
    """Rows [purchased, viewed, count], for each purchased item ascending its list."""
    return [row[:3] for row in last_lists(rows, by=0)]


# ------------------------------------------------------------------------------------------------ query 4


def q4(tables: SideTables, *, timeout_seconds: int = 3600) -> od.Pipeline:
    """Query 4, abandoned shopping carts: WC -> SL -> PS(user) -> SL -> SF.

    A session is abandoned when its last click on a dynamic page (the cart) is later than its last one on an
    order page. Clicks that bought something are not looked at.

    Parameters
    ----------
    tables : SideTables
    timeout_seconds : int
        Longest gap inside a session.
    """
    kind = od.col("wcs_web_page_sk").lookup(tables.kinds)
    viewed = od.col("wcs_user_sk").is_not_null() & kind.is_not_null() & od.col("wcs_sales_sk").is_null()
    latest = {
        "dynamic": od.max("ts", where=od.col("kind") == DYNAMIC),
        "order": od.max("ts", where=od.col("kind") == ORDER),
    }
    # No time stands for "none": any int64 may be one, also below 0 (before 1900).
    later = od.col("order").is_null() | (od.col("dynamic") > od.col("order"))
    abandoned = od.col("dynamic").is_not_null() & later
    return (
        od.Pipeline(CLICK_STREAM)
        .select("ts", user="wcs_user_sk", kind=kind, where=viewed, name="viewed")
        .key_by("user")
        .sessionize(time="ts", timeout=timeout_seconds, aggregate=latest, name="sessions")
        .select(pages="count", where=abandoned, name="abandoned")
        .aggregate(pages=od.sum("pages"), sessions=od.count(), average=od.mean("pages"), name="average")
    )


def q4_answer(rows: Rows, **_: Any) -> list[tuple[Any, ...]]:
    """One row [pages, abandoned_sessions], or none where there is no such session."""
    return [row[:2] for row in rows[-1:]]


# ------------------------------------------------------------------------------------------------ query 15


def q15(
    tables: SideTables,
    *,
    store: int | None = 10,
    date_from: int = 37_134,
    date_to: int = 37_499,
) -> od.Pipeline:
    """Query 15, item categories with flat or declining sales in a store: SS -> SL -> SL -> PS(category).

    Parameters
    ----------
    tables : SideTables
    store : int, optional
        Only sales of this store; None: of all.
    date_from, date_to : int
        First and last day, as date_sk (2001-09-02 and 2002-09-02 by default).
    """
    wanted = od.col("date_sk").between(date_from, date_to)
    if store is not None:
        wanted &= od.col("store") == store
    category = od.col("item").lookup(tables.categories)
    return (
        od.Pipeline(SALES_STREAM)
        .select("item", "date_sk", "cents", where=wanted, name="sales")
        .select("date_sk", "cents", category=category, where=category.is_not_null(), name="categories")
        .key_by("category")
        .regression("date_sk", "cents", name="lines")
    )


def q15_answer(rows: Rows, **_: Any) -> list[tuple[Any, ...]]:
    """Rows [category, slope, intercept] of categories with a slope of at most 0; amounts in currency
    units.
    """
    latest = {row[0]: row for row in rows}
    return [(key, row[3] / 100, row[4] / 100) for key, row in sorted(latest.items()) if row[5]]


# ------------------------------------------------------------------------------------------------ all


def last_lists(rows: Rows, by: int | None = None) -> list[tuple[Any, ...]]:
    """The lists of the k best out of an output with updates among them; the last column is the rank.

    A list is the last thing that its group (a window, a key: the column `by`) says, and its last row has the
    rank of its length. Groups come in the order of their lists.
    """
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        groups.setdefault(None if by is None else row[by], []).append(row)
    lists = [group[-group[-1][-1] :] for group in groups.values()]
    if by is not None:
        lists.sort(key=lambda found: found[0][by])
    return [row for found in lists for row in found]


_Q4: Parameters = {"timeout_seconds": 3600}
_Q15: Parameters = {"store": 10, "date_from": 37_134, "date_to": 37_499}

QUERIES: dict[str, Query] = {
    "q1": Query(
        "q1",
        "store_sales",
        {
            "batch": {
                "stores": (10, 20, 33, 40, 50),
                "categories": (1, 2, 3),
                "min_count": 50,
                "limit": 100,
                "window_seconds": None,
            },
            "paper": {
                "stores": None,
                "categories": None,
                "min_count": 0,
                "limit": 100,
                "window_seconds": 3600,
            },
        },
        q1,
        q1_answer,
    ),
    "q2": Query(
        "q2",
        "web_clickstreams",
        {
            "batch": {"anchor": 10_001, "timeout_seconds": 3600, "limit": 30},
            "paper": {"anchor": None, "timeout_seconds": 3600, "limit": 30},
        },
        q2,
        q2_answer,
    ),
    "q3": Query(
        "q3",
        "web_clickstreams",
        {
            "batch": {
                "purchased": 10_001,
                "categories": (2, 3),
                "last_n": 5,
                "within_seconds": 864_000,
                "limit": 100,
            },
            "paper": {
                "purchased": None,
                "categories": (2, 3),
                "last_n": 5,
                "within_seconds": 864_000,
                "limit": 30,
            },
        },
        q3,
        q3_answer,
    ),
    "q4": Query("q4", "web_clickstreams", {"batch": _Q4, "paper": _Q4}, q4, q4_answer),
    "q15": Query("q15", "store_sales", {"batch": _Q15, "paper": _Q15}, q15, q15_answer),
}
"""All queries, by name."""

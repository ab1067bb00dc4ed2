"""The queries as ordered pipelines, each reading like its line in Table 1 of the ordered paper.

WC is web_clickstreams (`schema.CLICK_STREAM`); SL, PS and SF are stateless, partitioned stateful and stateful
operators.
"""

from __future__ import annotations

from collections.abc import Callable

import ordstream as od
from ordstream.tpcxbb.schema import CLICK_STREAM


def q2(anchor: int | None = None, timeout_seconds: int = 3600, limit: int = 30) -> od.Pipeline:
    """Query 2, the top pairs of products viewed together: WC -> SL -> PS(user) -> SL -> PS(pair) -> SF.

    Viewed together means: in the same session of a known user. A session ends at the first gap of more than
    `timeout_seconds` between two clicks; each distinct pair of items counts once per session.

    Parameters
    ----------
    anchor : int, optional
        The batch benchmark's form: only the items viewed together with this one, as rows (item, anchor,
        count). None is the paper's form: all pairs, as rows (left, right, count) with left < right.
    timeout_seconds : int
        Longest gap inside a session.
    limit : int
        Rows of the answer, by count descending, then by the pair ascending.
    """
    pairs = (
        od.Pipeline(CLICK_STREAM)
        .filter(od.col("wcs_user_sk").is_not_null() & od.col("wcs_item_sk").is_not_null(), name="known")
        .key_by("wcs_user_sk")
        .sessionize(time="ts", timeout=timeout_seconds, collect={"items": "wcs_item_sk"}, name="sessions")
        .flat_map(od.pairs("items", left="left", right="right"), name="pairs")
    )
    if anchor is None:
        return pairs.key_by("left", "right").count().top_k(limit, by="count", name="top")
    # of the pairs in a session, ascending, those with the anchor; the other item is what the anchor leaves of
    # the sum
    with_anchor = pairs.filter(
        (od.col("left") == anchor) | (od.col("right") == anchor), name="anchored"
    ).select(left=od.col("left") + od.col("right") - anchor, right=od.lit(anchor), name="other_item")
    return with_anchor.key_by("left", "right").count().top_k(limit, by="count", name="top")


QUERIES: dict[str, Callable[..., od.Pipeline]] = {"q2": q2}
"""Queries that run today, by name."""

PLANNED = ("q1", "q3", "q4", "q15")
"""Queries that come next; the loader and the generator already know their tables."""

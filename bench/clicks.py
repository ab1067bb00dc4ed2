"""The synthetic click stream of bench/queries.py: sessions of known users, popular items, in time order.

5,000,000 clicks of 99,662 users in 30 days. What is drawn, in this order, from NumPy's PCG64 with seed 7:

1. sessions: their length, geometric with mean 4 and at most 60 clicks; as many sessions as fill the stream;
2. a user per session, weight 1 / (rank + 1000)^0.8 over 100,000 users; the session's start, uniform over 30
   days;
3. per click the gap to the one before it, 1 s + exponential with mean 120 s (so that no session is cut by a
   timeout of an hour); the item, weight 1 / (rank + 50)^0.9 over 17,820 items; the page, uniform over 60.

Clicks are sorted by time (stable) and cut to the length asked for. Pages 0 to 5 count as "dynamic", pages 6
to 8 as "order"; a click on an order page carries an order number. `FACTS` holds what must come out at
5,000,000 clicks.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ordstream.tpcxbb.schema import CLICK_STREAM

CLICKS = 5_000_000
USERS, ITEMS, PAGES, DAYS = 100_000, 17_820, 60, 30
DAY = 86_400
FIRST_DAY = 37_000
DYNAMIC_PAGES = range(0, 6)
ORDER_PAGES = range(6, 9)

FACTS = {
    "users": 99_662,
    "pairs": 16_091_176,
    "distinct_pairs": 10_285_134,
    "top_pair": (6024, 7720, 199),
    "abandoned_sessions": 290_544,
    "abandoned_pages": 1_587_439,
}
"""Of all 5,000,000 clicks: known users, pairs of distinct items per session (with repetition, without), the
most frequent pair and its count, sessions with a dynamic page and no order page, and the clicks in them."""


def clicks(rows: int = CLICKS) -> pa.Table:
    """The first `rows` clicks as a table of `CLICK_STREAM` in one chunk, in stream order.

    Parameters
    ----------
    rows : int
        At most `CLICKS`: a shorter stream is a prefix of the whole one.
    """
    if not 0 <= rows <= CLICKS:
        raise ValueError(f"rows must be from 0 to {CLICKS:,}, got {rows:,}")
    rng = np.random.default_rng(7)
    lengths = np.minimum(rng.geometric(0.25, int(CLICKS / 4 * 1.02)), 60)
    sessions = int(np.searchsorted(np.cumsum(lengths), CLICKS)) + 1
    lengths = lengths[:sessions]
    users = drawn(rng, USERS, 1000.0, 0.8, sessions)
    starts = rng.integers(0, DAYS * DAY, sessions)

    session_of = np.repeat(np.arange(sessions), lengths)
    first_of = np.cumsum(lengths) - lengths
    gaps = rng.exponential(120.0, len(session_of)).astype(np.int64) + 1
    gaps[first_of] = 0
    elapsed = np.cumsum(gaps)
    times = starts[session_of] + elapsed - elapsed[first_of][session_of]
    items = drawn(rng, ITEMS, 50.0, 0.9, len(times)) + 1
    pages = rng.integers(0, PAGES, len(times))

    order = np.argsort(times, kind="stable")[:rows]
    times, items, pages = times[order], items[order], pages[order]
    is_order = (pages >= ORDER_PAGES.start) & (pages < ORDER_PAGES.stop)
    dates = FIRST_DAY + times // DAY
    columns = {
        "ts": dates * DAY + times % DAY,
        "wcs_click_date_sk": dates,
        "wcs_click_time_sk": times % DAY,
        "wcs_sales_sk": pa.array(np.arange(len(times)), mask=~is_order),
        "wcs_item_sk": items,
        "wcs_web_page_sk": pages,
        "wcs_user_sk": users[session_of][order],
    }
    return pa.table([pa.array(columns[name]) for name in CLICK_STREAM.names], schema=CLICK_STREAM)


def drawn(rng: np.random.Generator, n: int, shift: float, power: float, size: int) -> np.ndarray:
    """`size` draws from 0..n-1, of weight 1 / (rank + shift)^power, the ranks in random order."""
    weights = 1.0 / (np.arange(n) + shift) ** power
    ranked = rng.permutation(n)
    return ranked[rng.choice(n, size, p=weights / weights.sum())]

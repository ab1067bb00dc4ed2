"""The five TPCx-BB queries from their definitions: loops over lists of rows, a third path beside stream
and SQL.
"""

import itertools
from collections import Counter, defaultdict
from fractions import Fraction

DAY = 86_400


class Tables:
    """Rows of a data folder as plain tuples.

    clicks: (ts, sale, item, page, user); sales: (date, time, item, store, ticket, cents).
    """

    def __init__(self, folder):
        clicks = folder.table("web_clickstreams").to_pydict()
        names = ["click_date", "click_time", "sales", "item", "web_page", "user"]
        columns = [clicks[f"wcs_{name}_sk"] for name in names]
        self.clicks = [(d * DAY + t, *rest) for d, t, *rest in zip(*columns, strict=True)]
        sales = folder.table("store_sales").to_pydict()
        keys = ["sold_date_sk", "sold_time_sk", "item_sk", "store_sk", "ticket_number"]
        cents = [int(paid * 100) for paid in sales["ss_net_paid"]]
        self.sales = list(zip(*(sales[f"ss_{key}"] for key in keys), cents, strict=True))
        self.category = {row["i_item_sk"]: row["i_category_id"] for row in folder.table("item").to_pylist()}
        self.kind = {row["wp_web_page_sk"]: row["wp_type"] for row in folder.table("web_page").to_pylist()}


def in_categories(tables, item, categories):
    category = tables.category.get(item)
    return category is not None and (categories is None or category in categories)


def q1(tables, stores=None, categories=None, min_count=0, limit=100, window_seconds=None):
    baskets = defaultdict(set)
    for date, time, item, store, ticket, _ in tables.sales:
        if (stores is None or store in stores) and in_categories(tables, item, categories):
            window = 0 if window_seconds is None else (date * DAY + time) // window_seconds
            baskets[window, ticket].add(item)
    counts = defaultdict(Counter)
    for (window, _), items in baskets.items():
        counts[window].update(itertools.combinations(sorted(items), 2))
    answer = []
    for window in sorted(counts):
        pairs = [(pair, n) for pair, n in counts[window].items() if n > min_count]
        best = sorted(pairs, key=lambda row: (-row[1], row[0]))[:limit]
        answer += [((window,) if window_seconds is not None else ()) + (*pair, n) for pair, n in best]
    return answer


def sessions(rows, timeout):
    """Lists of (ts, payload) of one user and session; `rows` are (user, ts, payload)."""
    by_user = defaultdict(list)
    for user, ts, payload in rows:
        by_user[user].append((ts, payload))
    for visits in by_user.values():
        visits.sort()
        session = [visits[0]]
        for before, visit in itertools.pairwise(visits):
            if visit[0] - before[0] > timeout:
                yield session
                session = []
            session.append(visit)
        yield session


def q2(tables, anchor=None, timeout_seconds=3600, limit=30):
    rows = [(u, ts, i) for ts, _, i, _, u in tables.clicks if u is not None and i is not None]
    counts = Counter()
    for session in sessions(rows, timeout_seconds):
        counts.update(itertools.combinations(sorted({item for _, item in session}), 2))
    if anchor is not None:
        counts = {(sum(pair) - anchor, anchor): n for pair, n in counts.items() if anchor in pair}
    return sorted(((*pair, n) for pair, n in counts.items()), key=lambda row: (-row[2], row[:2]))[:limit]


def q3(tables, purchased=None, categories=None, last_n=5, within_seconds=864_000, limit=30):
    by_user = defaultdict(list)
    for ts, sale, item, _, user in tables.clicks:
        if user is not None and item is not None:
            by_user[user].append((ts, -1 if sale is None else sale, item))
    counts = defaultdict(Counter)
    for clicks in by_user.values():
        clicks.sort()
        for at, (ts, sale, item) in enumerate(clicks):
            if sale == -1 or (purchased is not None and item != purchased):
                continue
            for viewed_ts, _, viewed in clicks[max(0, at - last_n) : at]:
                if viewed_ts >= ts - within_seconds and in_categories(tables, viewed, categories):
                    counts[item][viewed] += 1
    answer = []
    for item in sorted(counts):
        best = sorted(counts[item].items(), key=lambda row: (-row[1], row[0]))[:limit]
        answer += [(item, viewed, n) for viewed, n in best]
    return answer


def q4(tables, timeout_seconds=3600):
    rows = [
        (u, ts, tables.kind[p])
        for ts, sale, _, p, u in tables.clicks
        if u is not None and p in tables.kind and sale is None
    ]
    abandoned = []
    for session in sessions(rows, timeout_seconds):
        last = {kind: place for place, (_, kind) in enumerate(session)}
        if last.get("dynamic", -1) > last.get("order", -1):
            abandoned.append(len(session))
    return [(sum(abandoned), len(abandoned))] if abandoned else []


def q15(tables, store=None, date_from=None, date_to=None):
    """In exact fractions; rounded to float only in the answer."""
    days = defaultdict(Counter)
    for date, _, item, at, _, cents in tables.sales:
        category = tables.category.get(item)
        within = (date_from is None or date >= date_from) and (date_to is None or date <= date_to)
        if category is not None and within and (store is None or at == store):
            days[category][date] += cents
    answer = []
    for category, points in sorted(days.items()):
        n, sx, sy = len(points), sum(points), sum(points.values())
        sxx, sxy = sum(x * x for x in points), sum(x * y for x, y in points.items())
        if n > 1:
            slope = Fraction(n * sxy - sx * sy, n * sxx - sx * sx) / 100
            if slope <= 0:
                answer.append((category, float(slope), float((Fraction(sy, 100) - slope * sx) / n)))
    return answer


ANSWERS = {"q1": q1, "q2": q2, "q3": q3, "q4": q4, "q15": q15}

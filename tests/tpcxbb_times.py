"""Folders of few TPCx-BB rows whose times are any int64: around 0 (before 1900), far below, at the ends
of int64.
"""

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.tpcxbb import DataFolder
from ordstream.tpcxbb.schema import TABLES

DAY = 86_400
MOST = 2**63 - 1

#: Where times lie: (lowest, highest), more than once with several ranges.
RANGES = {
    "around 0": [(-6_000, 6_000)],
    "before 1900": [(-40 * DAY, -39 * DAY)],
    "across days": [(-3 * DAY, 3 * DAY)],
    "the first": [(-MOST - 1, -MOST + 9_000)],
    "the last": [(MOST - 9_000, MOST)],
    "everywhere": [(-MOST - 1, -MOST + 5_000), (-5_000, 5_000), (MOST - 5_000, MOST)],
}

#: Parameters with which few rows say much; None stands for all.
PARAMETERS = {
    "q1": {"stores": None, "categories": None, "min_count": 0, "limit": 5, "window_seconds": 1_700},
    "q2": {"anchor": None, "timeout_seconds": 600, "limit": 30},
    "q3": {"purchased": None, "categories": (1, 2), "last_n": 5, "within_seconds": 900, "limit": 30},
    "q4": {"timeout_seconds": 600},
    "q15": {"store": None, "date_from": -(2**31), "date_to": 2**31},
}


def parts(ts):
    """Date and second of day of a time; towards 0, so that the date's own seconds fit into int64 at its
    ends.
    """
    return (
        (ts // DAY, ts % DAY)
        if abs(ts) < MOST - 2 * DAY
        else (-(-ts // DAY), -(-ts % DAY))
        if ts < 0
        else divmod(ts, DAY)
    )


def folder(path, where, seed):
    """A folder with the four tables, in order; a ticket has one time, as the benchmark's do."""
    rng = random.Random(f"{where} {seed}")

    def time():
        return rng.randint(*rng.choice(RANGES[where]))

    clicks = [
        (
            time(),
            rng.choice([None, None, None, 0, 7]),
            rng.randrange(6),
            rng.choice([None, 0, 1, 1, 2, 3]),
            rng.choice([None, 1, 2, 3]),
        )
        for _ in range(150)
    ]
    clicks.sort(
        key=lambda row: (
            row[0],
            *((value is not None, value or 0) for value in (row[1], row[2], row[4], row[3])),
        )
    )
    write(path, "web_clickstreams", [(*parts(ts), *row) for ts, *row in clicks])
    sales = []
    for ticket, ts in enumerate(sorted(time() for _ in range(60))):
        lines = [
            (rng.randrange(6), Decimal(rng.randrange(900_000)) / 100) for _ in range(rng.randrange(1, 5))
        ]
        sales += [(*parts(ts), item, rng.choice([3, 10]), ticket, paid) for item, paid in lines]
    write(path, "store_sales", sales)
    write(path, "item", [(item, 1, (1, 2, None)[item % 3]) for item in range(6)])
    write(
        path,
        "web_page",
        [(page, kind) for page, kind in enumerate(["dynamic", "order", "review", "dynamic"])],
    )
    return DataFolder(path)


def write(path, table, rows):
    """The columns in the order of `COLUMNS`, else of the schema."""
    names = COLUMNS.get(table, TABLES[table].names)
    given = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays = [pa.array(given.get(field.name, [None] * len(rows)), field.type) for field in TABLES[table]]
    pq.write_table(pa.table(arrays, schema=TABLES[table]), path / f"{table}.parquet")


COLUMNS = {
    "store_sales": [
        "ss_sold_date_sk",
        "ss_sold_time_sk",
        "ss_item_sk",
        "ss_store_sk",
        "ss_ticket_number",
        "ss_net_paid",
    ],
    "item": ["i_item_sk", "i_class_id", "i_category_id"],
}

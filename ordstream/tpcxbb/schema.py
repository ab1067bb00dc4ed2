"""Tables of TPCx-BB that the stream queries read, their sizes and the constants behind their distributions.

All keys count from 0. A date is a number of days since 1900-01-01, a time is a second of the day, and the
event time of every query is ``ts = date * 86400 + time`` in seconds (about 3.2e9: int64, not int32).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import pyarrow as pa

SECONDS_PER_DAY = 86_400
FIRST_DATE = 36_890  # 2001-01-01
FACT_DAYS = 1_826  # 2001-01-01 .. 2005-12-31
LARGEST_SCALE = 100_000
LARGEST_DAYS = 1_000_000  # 2,700 years; days times the ids of the largest scale must fit into int64

STATIC_ITEMS = (10_000, 10_001, 10_002, 10_003)  # hot at every scale
STATIC_CATEGORIES = (1, 2, 2, 5)

WEB_CLICKSTREAMS = pa.schema(
    [
        pa.field("wcs_click_date_sk", pa.int64()),
        pa.field("wcs_click_time_sk", pa.int64()),
        pa.field("wcs_sales_sk", pa.int64()),  # the order, for the clicks that bought something
        pa.field("wcs_item_sk", pa.int64()),
        pa.field("wcs_web_page_sk", pa.int64()),
        pa.field("wcs_user_sk", pa.int64()),  # NULL: unknown visitor
    ]
)

STORE_SALES = pa.schema(
    [
        pa.field("ss_sold_date_sk", pa.int64()),
        pa.field("ss_sold_time_sk", pa.int64()),
        pa.field("ss_item_sk", pa.int64()),
        pa.field("ss_customer_sk", pa.int64()),
        pa.field("ss_store_sk", pa.int64()),
        pa.field("ss_ticket_number", pa.int64()),
        pa.field("ss_quantity", pa.int32()),
        pa.field("ss_net_paid", pa.decimal128(7, 2)),
    ]
)

ITEM = pa.schema(
    [
        pa.field("i_item_sk", pa.int64()),
        pa.field("i_category_id", pa.int32()),
        pa.field("i_class_id", pa.int32()),
    ]
)

WEB_PAGE = pa.schema([pa.field("wp_web_page_sk", pa.int64()), pa.field("wp_type", pa.string())])

TABLES: dict[str, pa.Schema] = {
    "web_clickstreams": WEB_CLICKSTREAMS,
    "store_sales": STORE_SALES,
    "item": ITEM,
    "web_page": WEB_PAGE,
}

CLICK_STREAM = pa.schema([pa.field("ts", pa.int64()), *WEB_CLICKSTREAMS])
"""What the click queries read: web_clickstreams with its event time in front."""

CLICK_ORDER = ("ts", "wcs_sales_sk", "wcs_item_sk", "wcs_user_sk", "wcs_web_page_sk")
"""Order of CLICK_STREAM: ascending, NULL first. Rows equal in all five are equal in every column."""

SALES_STREAM = pa.schema(
    [
        pa.field("ts", pa.int64()),
        pa.field("ticket", pa.int64()),
        pa.field("item", pa.int64()),
        pa.field("store", pa.int64()),
        pa.field("date_sk", pa.int64()),
        pa.field("cents", pa.int64()),  # 100 * ss_net_paid, so that sums are exact
        pa.field("line", pa.int64()),  # place of the row: file number * 2**48 + row of the file, from 0
    ]
)
"""What the sales queries read: the used columns of store_sales with the event time in front."""

SALES_ORDER = ("ts", "ticket", "line")
"""Order of SALES_STREAM. All lines of a ticket share its time; `line` keeps them as the files have them."""

PAGE_TYPES_OF_60 = {  # the benchmark's own histogram at scale factor 1
    "feedback": 14,
    "dynamic": 10,
    "ad": 10,
    "review": 8,
    "order": 7,
    "welcome": 5,
    "general": 4,
    "protected": 2,
}

CLASS_WEIGHTS: dict[int, tuple[int, ...]] = {  # category id -> weight of class 1, 2, ...
    1: (40462, 5465, 7839, 6910, 7589, 10228),
    2: (
        69557,
        31622,
        349275,
        53602,
        97596,
        77875,
        64961,
        49847,
        31036,
        32719,
        191877,
        36162,
        41427,
        32131,
        84283,
        36366,
    ),
    3: (195050, 233917, 153495, 133440, 133440),
    4: (25255, 7672, 4730, 16316, 6476, 6014, 4418, 11977, 11679, 3871, 4302),
    5: (7809, 17633, 10583, 32131, 7370, 13631, 14043, 8994),
    6: (4542, 26328, 8456, 4768, 5138, 9156, 4238),
    7: (3630, 5463, 6903, 3759, 9157, 3420, 2639, 4563, 3786, 2797, 4804, 3830, 2746, 3012),
    8: (63143, 149887),
    9: (10769, 4907, 13309, 5274, 5032, 6550, 4676, 8640, 8887, 5540),
}


def _base(count: int) -> int:
    """Rows of the normal load: all but the last 1 %, which the benchmark keeps for its refresh."""
    return count - count // 100


@dataclass(frozen=True)
class Sizes:
    """How many of each thing the generator knows; counts include the refresh part, which is never generated.

    Parameters
    ----------
    items, customers, stores, pages : int
        Rows of the dimensions. ``items`` must exceed 10,103 so that the four static items exist.
    orders : int
        Web orders, and as many store tickets; click blocks are five times as many (76 clicks per order on
        average).
    item_spread, customer_spread : float
        Standard deviation, in ids, of the normal part of the item and customer choice.
    days : int
        Days over which the facts spread evenly; fewer days make denser hours.
    """

    items: int = 18_000
    customers: int = 100_000
    stores: int = 12
    pages: int = 60
    orders: int = 90_000
    item_spread: float = 60.0
    customer_spread: float = 400.0
    days: int = FACT_DAYS

    def __post_init__(self) -> None:
        """Refuse sizes that the distributions are not defined for."""
        if self.items_base <= STATIC_ITEMS[-1]:
            raise ValueError(f"items must exceed 10,103 so that the static items exist, not {self.items}")
        small = [
            name for name in ("customers", "stores", "pages", "orders", "days") if getattr(self, name) < 1
        ]
        if small:
            raise ValueError(f"{small[0]} must be at least 1, not {getattr(self, small[0])}")
        if self.days > LARGEST_DAYS:
            raise ValueError(f"days must be at most {LARGEST_DAYS}, not {self.days}")

    @classmethod
    def at_scale(cls, scale: float, days: int = FACT_DAYS) -> Sizes:
        """Sizes of the benchmark at a scale factor of 1 or more.

        Raises
        ------
        ValueError
            If `scale` is below 1, where the benchmark's formulae give nonsense (use rows instead).
        """
        if not scale >= 1:
            raise ValueError(f"scale must be 1 or more, not {scale}; a number of rows (--rows) gives less")
        if scale > LARGEST_SCALE:
            raise ValueError(f"scale must be at most {LARGEST_SCALE}, not {scale}")
        log5 = math.log(scale) / math.log(5) + 1
        return cls(
            items=int(18_000 * math.sqrt(scale)),
            customers=int(100_000 * math.sqrt(scale)),
            stores=int(12 * math.sqrt(scale)),
            pages=int(60 * (math.log(scale) / math.log(1.5) + 1)),
            orders=int(90_000 * (2 * scale - log5 * math.sqrt(scale))),
            item_spread=60 * log5,
            customer_spread=400 * log5,
            days=days,
        )

    @classmethod
    def for_rows(cls, rows: int, days: int = FACT_DAYS) -> Sizes:
        """Sizes at the smallest whole scale factor whose click stream surely has `rows` rows."""
        if rows < 1:
            raise ValueError(f"rows must be at least 1, not {rows}")
        scale = 1
        while cls.at_scale(scale).expected_clicks * 0.99 < rows:
            scale += 1
        return cls.at_scale(scale, days)

    @property
    def items_base(self) -> int:
        """Items that facts refer to."""
        return _base(self.items)

    @property
    def customers_base(self) -> int:
        """Customers that facts refer to."""
        return _base(self.customers)

    @property
    def orders_base(self) -> int:
        """Orders (and store tickets) that are generated."""
        return _base(self.orders)

    @property
    def expected_clicks(self) -> int:
        """Mean number of clicks: per order 4 visits of 16, 4.5 looks of a buyer and 7.5 bought lines."""
        return 76 * self.orders_base

"""Seeded TPCx-BB rows from the published distributions, a few days at a time.

The generator never holds more than one chunk of days, so the scale is bounded by the disk, not by memory.
Each chunk draws from its own random stream, named by (seed, table, first day): the same seed and sizes give
the same rows, and a run that stops after N rows wrote the first N rows of the longer run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.tpcxbb.schema import (
    CLASS_WEIGHTS,
    FIRST_DATE,
    ITEM,
    PAGE_TYPES_OF_60,
    SECONDS_PER_DAY,
    STATIC_CATEGORIES,
    STATIC_ITEMS,
    STORE_SALES,
    WEB_CLICKSTREAMS,
    WEB_PAGE,
    Sizes,
)

Ints = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with (rows written, rows expected)."""

CHUNK_ROWS = 250_000  # rows that one chunk of days aims at
MANIFEST = "generated.json"
VERSION = 1  # of the rows: raised whenever the same seed would give other rows

_PERMUTATION, _ITEM, _PAGE, _ORDER, _VISIT, _TICKET = range(6)  # names of random streams


class Generator:
    """All tables for one seed and one set of sizes.

    Parameters
    ----------
    sizes : Sizes
        Counts and spreads.
    seed : int
        Non-negative.
    skew : float, optional
        Zipf exponent for the popular 40 % of items and 50 % of customers, in place of the benchmark's normal
        choice.

    Raises
    ------
    ValueError
        If `seed` is negative or `skew` is not positive.
    """

    def __init__(self, sizes: Sizes, seed: int = 1, skew: float | None = None) -> None:
        if seed < 0:
            raise ValueError(f"seed must not be negative, not {seed}")
        if skew is not None and not skew > 0:
            raise ValueError(f"skew must be positive, not {skew}")
        self.sizes = sizes
        self.seed = seed
        self._skew = skew
        rng = self._random(_PERMUTATION, 0)
        self._item_of_rank = rng.permutation(sizes.items_base)
        self._customer_of_rank = rng.permutation(sizes.customers_base)
        rows_per_day = sizes.expected_clicks / sizes.days
        self._days_per_chunk = max(1, int(CHUNK_ROWS / rows_per_day))

    def _random(self, table: int, day: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(table, day))))

    def clicks(self) -> Iterator[pa.RecordBatch]:
        """Yield web_clickstreams in canonical stream order, one batch per chunk of days."""
        for first, last in self._chunks():
            yield self._clicks_of(first, last)

    def store_sales(self) -> Iterator[pa.RecordBatch]:
        """Yield store_sales by (ts, ticket, line), one batch per chunk of days."""
        for first, last in self._chunks():
            yield self._sales_of(first, last)

    def items(self) -> pa.Table:
        """Return the item table: a class by weight, its category, and the four static items pinned."""
        rng = self._random(_ITEM, 0)
        weights = np.concatenate([np.array(w, dtype=float) for w in CLASS_WEIGHTS.values()])
        category_of = np.repeat(list(CLASS_WEIGHTS), [len(w) for w in CLASS_WEIGHTS.values()])
        class_of = np.concatenate([np.arange(1, len(w) + 1) for w in CLASS_WEIGHTS.values()])
        drawn = rng.choice(len(weights), self.sizes.items, p=weights / weights.sum())
        category, class_id = category_of[drawn], class_of[drawn]
        for item, pinned in zip(STATIC_ITEMS, STATIC_CATEGORIES, strict=True):
            category[item], class_id[item] = pinned, 1
        columns = [np.arange(self.sizes.items), category.astype(np.int32), class_id.astype(np.int32)]
        return pa.table([pa.array(c) for c in columns], schema=ITEM)

    def web_pages(self) -> pa.Table:
        """Return the page table: the benchmark's histogram of types for 60 pages, else uniform types."""
        rng = self._random(_PAGE, 0)
        kinds = list(PAGE_TYPES_OF_60)
        if self.sizes.pages == 60:
            types = rng.permutation(np.repeat(kinds, list(PAGE_TYPES_OF_60.values())))
        else:
            types = rng.choice(kinds, self.sizes.pages)
        return pa.table(
            [pa.array(np.arange(self.sizes.pages)), pa.array(types, pa.string())], schema=WEB_PAGE
        )

    def _chunks(self) -> Iterator[tuple[int, int]]:
        for first in range(0, self.sizes.days, self._days_per_chunk):
            yield first, min(first + self._days_per_chunk, self.sizes.days)

    def _ids(self, per_order: int, first_day: int, last_day: int) -> Ints:
        """Ids whose day lies in [first_day, last_day) when ids spread evenly over the days."""
        full, base, days = per_order * self.sizes.orders, per_order * self.sizes.orders_base, self.sizes.days
        begin, end = -(-first_day * full // days), -(-last_day * full // days)
        return np.arange(min(begin, base), min(end, base), dtype=np.int64)

    def _date(self, ids: Ints, per_order: int) -> Ints:
        return FIRST_DATE + ids * self.sizes.days // (per_order * self.sizes.orders)

    def _popular(
        self, rng: np.random.Generator, count: int, of_rank: Ints, centre: float, spread: float
    ) -> Ints:
        if self._skew is not None:
            weight = 1.0 / np.arange(1, len(of_rank) + 1) ** self._skew
            rank = np.searchsorted(np.cumsum(weight), rng.random(count) * weight.sum())
        else:
            rank = np.floor(rng.normal(centre, spread, count)).astype(np.int64)
        chosen: Ints = of_rank[np.clip(rank, 0, len(of_rank) - 1)]
        return chosen

    def _bought_items(self, rng: np.random.Generator, count: int) -> Ints:
        """55 % uniform, 5 % static, 40 % popular."""
        s = self.sizes
        choice = rng.random(count)
        uniform = rng.integers(0, s.items_base, count)
        static = rng.integers(STATIC_ITEMS[0], STATIC_ITEMS[-1] + 1, count)
        popular = self._popular(rng, count, self._item_of_rank, s.items / 2, s.item_spread)
        return np.where(choice < 0.55, uniform, np.where(choice < 0.60, static, popular))

    def _buyers(self, rng: np.random.Generator, count: int) -> Ints:
        """50 % uniform, 50 % popular."""
        s = self.sizes
        uniform = rng.integers(0, s.customers_base, count)
        popular = self._popular(rng, count, self._customer_of_rank, s.customers / 2, s.customer_spread)
        return np.where(rng.random(count) < 0.5, uniform, popular)

    def _clicks_of(self, first_day: int, last_day: int) -> pa.RecordBatch:
        parts = [*self._orders_of(first_day, last_day), self._visits_of(first_day, last_day)]
        date, time, sales, item, page, user = (np.concatenate(column) for column in zip(*parts, strict=True))
        # -1 stands for NULL up to here, so that NULL sorts first
        order = np.lexsort((page, user, item, sales, date * SECONDS_PER_DAY + time))
        columns = [column[order] for column in (date, time, sales, item, page, user)]
        arrays = [pa.array(column, mask=column < 0) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=WEB_CLICKSTREAMS)

    def _orders_of(self, first_day: int, last_day: int) -> Iterator[tuple[Ints, ...]]:
        """Clicks of buyers: 3 to 6 looks at any time of the day, then all lines of the order at one time."""
        rng = self._random(_ORDER, first_day)
        order = self._ids(1, first_day, last_day)
        date, user = self._date(order, 1), self._buyers(rng, len(order))
        looks = rng.integers(3, 7, len(order))
        n = int(looks.sum())
        yield (
            np.repeat(date, looks),
            rng.integers(0, SECONDS_PER_DAY, n),
            np.full(n, -1, dtype=np.int64),
            rng.integers(0, self.sizes.items_base, n),
            rng.integers(0, self.sizes.pages, n),
            np.repeat(user, looks),
        )
        lines = rng.integers(1, 15, len(order))
        n = int(lines.sum())
        page = rng.integers(0, self.sizes.pages, n)
        page[rng.random(n) < 0.00025] = -1
        yield (
            np.repeat(date, lines),
            np.repeat(rng.integers(0, SECONDS_PER_DAY, len(order)), lines),
            np.repeat(order, lines),
            self._bought_items(rng, n),
            page,
            np.repeat(user, lines),
        )

    def _visits_of(self, first_day: int, last_day: int) -> tuple[Ints, ...]:
        """Clicks of visitors: 11 to 21 at any time of the block's day, half of the blocks by an unknown
        user.
        """
        rng = self._random(_VISIT, first_day)
        block = self._ids(5, first_day, last_day)
        block = block[block % 5 != 4]  # every fifth block is a buyer's
        user = rng.integers(0, self.sizes.customers_base, len(block))
        user[rng.random(len(block)) < 0.5] = -1
        clicks = rng.integers(11, 22, len(block))
        n = int(clicks.sum())
        return (
            np.repeat(self._date(block, 5), clicks),
            rng.integers(0, SECONDS_PER_DAY, n),
            np.full(n, -1, dtype=np.int64),
            rng.integers(0, self.sizes.items_base, n),
            rng.integers(0, self.sizes.pages, n),
            np.repeat(user, clicks),
        )

    def _sales_of(self, first_day: int, last_day: int) -> pa.RecordBatch:
        rng = self._random(_TICKET, first_day)
        ticket = self._ids(1, first_day, last_day)
        date, time = self._date(ticket, 1), rng.integers(0, SECONDS_PER_DAY, len(ticket))
        by_time = np.lexsort((ticket, date * SECONDS_PER_DAY + time))
        ticket, date, time = ticket[by_time], date[by_time], time[by_time]
        lines = rng.integers(1, 15, len(ticket))
        n = int(lines.sum())
        quantity = rng.integers(1, 101, n)
        item = self._bought_items(rng, n)
        head = [np.repeat(c, lines) for c in (date, time)]
        customer = np.repeat(self._buyers(rng, len(ticket)), lines)
        store = np.repeat(rng.integers(0, self.sizes.stores, len(ticket)), lines)
        keys = [*head, item, customer, store, np.repeat(ticket, lines)]
        arrays = [pa.array(c) for c in keys]
        arrays += [pa.array(quantity.astype(np.int32)), _money(_net_paid_cents(rng, quantity))]
        return pa.RecordBatch.from_arrays(arrays, schema=STORE_SALES)


def _net_paid_cents(rng: np.random.Generator, quantity: Ints) -> Ints:
    n = len(quantity)
    list_price = np.rint(rng.uniform(100, 10_000, n) * (1 + rng.random(n)))
    sales = np.rint(list_price * (1 - rng.random(n))) * quantity
    coupon = np.where(rng.random(n) < 0.8, 0.0, np.rint(sales * rng.random(n)))
    return (sales - coupon).astype(np.int64)


def _money(cents: Ints) -> pa.Array:
    """Non-negative cents as decimal128(7, 2): Arrow keeps a decimal as a 128-bit count of cents, low half
    first.
    """
    halves = np.zeros((len(cents), 2), dtype="<i8")
    halves[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(7, 2), len(cents), [None, pa.py_buffer(halves)])


def generate_clicks(
    out_dir: str | os.PathLike[str],
    rows: int | None = None,
    scale: float | None = None,
    seed: int = 1,
    progress: Progress | None = None,
    *,
    sizes: Sizes | None = None,
    skew: float | None = None,
    store_sales: bool = False,
) -> Path:
    """Write web_clickstreams, item and web_page as Parquet files, the clicks in canonical stream order.

    A folder that already holds the same rows (see `generated.json` in it) is left as it is.

    Parameters
    ----------
    out_dir : path
        Folder, made if absent.
    rows : int, optional
        Exactly so many clicks: the first ones of the smallest whole scale factor that has enough.
    scale : float, optional
        Or all clicks of this scale factor (6.77 million at 1). One of `rows`, `scale`, `sizes` is needed.
    seed : int
        Of the random streams.
    progress : callable, optional
        Called with (clicks written, clicks expected) after each chunk.
    sizes : Sizes, optional
        Explicit counts, in place of `scale`; may be given with `rows`, which then cuts the stream.
    skew : float, optional
        Zipf exponent of items and customers, see `Generator`.
    store_sales : bool
        Write store_sales as well, for the whole period.

    Returns
    -------
    Path
        `out_dir`.

    Raises
    ------
    ValueError
        If the sizes are missing, contradictory or out of range.
    """
    if sizes is None:
        if (rows is None) == (scale is None):
            raise ValueError("give rows or scale (one of them)")
        sizes = Sizes.for_rows(rows) if rows is not None else Sizes.at_scale(scale or 0)
    elif scale is not None:
        raise ValueError("give scale or sizes, not both")
    folder = Path(out_dir)
    recipe = {"version": VERSION, "rows": rows, "seed": seed, "skew": skew, "sizes": vars(sizes)}
    if not _is_generated(folder, recipe, store_sales):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        generator = Generator(sizes, seed, skew)
        pq.write_table(generator.items(), folder / "item.parquet")
        pq.write_table(generator.web_pages(), folder / "web_page.parquet")
        expected = rows if rows is not None else sizes.expected_clicks
        _write(
            folder / "web_clickstreams.parquet",
            WEB_CLICKSTREAMS,
            generator.clicks(),
            rows,
            expected,
            progress,
        )
        if store_sales:
            _write(folder / "store_sales.parquet", STORE_SALES, generator.store_sales(), None, 0, None)
        (folder / MANIFEST).write_text(json.dumps(recipe | {"store_sales": store_sales}, indent=1) + "\n")
    return folder


def _is_generated(folder: Path, recipe: dict[str, Any], store_sales: bool) -> bool:
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.pop("store_sales", False) >= store_sales and found == recipe


def _write(
    path: Path,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    rows: int | None,
    expected: int,
    progress: Progress | None,
) -> None:
    """Write up to `rows` rows under a temporary name, then rename, so that a file that is there is whole."""
    partial = path.with_name(path.name + ".partial")
    written = 0
    with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
        for batch in batches:
            if rows is not None:
                batch = batch.slice(0, rows - written)
            writer.write_batch(batch)
            written += batch.num_rows
            if progress is not None:
                progress(written, max(expected, written))
            if written == rows:
                break
    if rows is not None and written < rows:
        partial.unlink()
        raise ValueError(f"these sizes give only {written} clicks, {rows} were asked for")
    partial.replace(path)

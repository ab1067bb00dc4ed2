"""Seeded TPCx-BB rows from the published distributions, a few days at a time.

The generator never holds more than one chunk of days, and a day too large for that is put in order on disk
(`spill`), so the scale is bounded by the disk, not by memory. Each chunk draws from its own random stream,
named by (seed, table, first day): the same seed and sizes give the same rows, and a run that stops after N
rows wrote the first N rows of the longer run.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.tpcxbb.loader import OTHER_TABLES
from ordstream.tpcxbb.schema import (
    CLASS_WEIGHTS,
    FIRST_DATE,
    ITEM,
    PAGE_TYPES_OF_60,
    SECONDS_PER_DAY,
    STATIC_CATEGORIES,
    STATIC_ITEMS,
    STORE_SALES,
    TABLES,
    WEB_CLICKSTREAMS,
    WEB_PAGE,
    Sizes,
)
from ordstream.tpcxbb.spill import Spill

Ints = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Called with (rows written, rows expected)."""

# rows that one chunk of days aims at; a day of more than twice as many goes over the disk
CHUNK_ROWS = 250_000
MANIFEST = "generated.json"
WORKING = ".generating"  # folder of files that are not finished
LINES_PER_ORDER, CLICKS_PER_ORDER = 7.5, 76  # on average
VERSION = 2  # of the rows: raised whenever the same seed would give other rows

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
    spill_folder : path, optional
        Where days too large for memory are put in order; default the system's folder for temporary files.

    Raises
    ------
    ValueError
        If `seed` is negative or `skew` is not positive.
    """

    def __init__(
        self, sizes: Sizes, seed: int = 1, skew: float | None = None, spill_folder: Path | None = None
    ) -> None:
        if seed < 0:
            raise ValueError(f"seed must not be negative, not {seed}")
        if skew is not None and not skew > 0:
            raise ValueError(f"skew must be positive, not {skew}")
        self.sizes = sizes
        self.seed = seed
        self._spill_folder = spill_folder
        rng = self._random(_PERMUTATION, 0)
        self._item_of_rank = rng.permutation(sizes.items_base)
        self._customer_of_rank = rng.permutation(sizes.customers_base)
        rows_per_day = sizes.expected_clicks / sizes.days
        self._days_per_chunk = max(1, int(CHUNK_ROWS / rows_per_day))
        self._zipf: dict[int, npt.NDArray[np.float64]] = {}
        if skew is not None:
            for count in {sizes.items_base, sizes.customers_base}:
                weight = 1.0 / np.arange(1, count + 1) ** skew
                self._zipf[count] = np.cumsum(weight) / weight.sum()

    def _random(self, *name: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=name)))

    def clicks(self) -> Iterator[pa.RecordBatch]:
        """Yield web_clickstreams in canonical stream order, about CHUNK_ROWS rows a batch."""
        slices = self._slices_of_day(CLICKS_PER_ORDER)
        for first, last in self._chunks():
            if slices == 1:
                orders, blocks = _whole(self._ids(1, first, last)), _whole(self._ids(5, first, last))
                parts = [*self._orders_of(orders, first), self._visits_of(blocks, first)]
                yield _clicks_batch([np.concatenate(column) for column in zip(*parts, strict=True)])
            else:
                yield from self._dense_clicks(first, last, slices)

    def store_sales(self) -> Iterator[pa.RecordBatch]:
        """Yield store_sales by (ts, ticket, line), about CHUNK_ROWS rows a batch at most."""
        slices = self._slices_of_day(LINES_PER_ORDER)
        for first, last in self._chunks():
            tickets = self._ids(1, first, last)
            if slices == 1:
                yield _sales_batch(self._sales_of(_whole(tickets), first))
            else:
                yield from self._dense_sales(tickets, first, slices)

    def _slices_of_day(self, rows_per_order: float) -> int:
        """Parts that a day must be cut into so that one fits into a chunk; 1: it need not be cut."""
        rows = rows_per_order * self.sizes.orders_base / self.sizes.days
        return 1 if rows <= 2 * CHUNK_ROWS else -(-int(rows) // CHUNK_ROWS)

    def _dense_clicks(self, first: int, last: int, slices: int) -> Iterator[pa.RecordBatch]:
        """A chunk put in order on disk: drawn some orders at a time, read back some minutes at a time."""
        orders, blocks = self._ids(1, first, last), self._ids(5, first, last)
        with Spill(slices, self._spill_folder) as spill:
            for piece in range(slices):
                some_orders, some_blocks = _part(orders, piece, slices), _part(blocks, piece, slices)
                for part in (
                    *self._orders_of(some_orders, first, piece),
                    self._visits_of(some_blocks, first, piece),
                ):
                    spill.add(part[1], part)
            for columns in spill.slices():
                yield _clicks_batch(columns)

    def _dense_sales(self, tickets: range, first: int, slices: int) -> Iterator[pa.RecordBatch]:
        with Spill(slices, self._spill_folder) as spill:
            for piece in range(slices):
                part = self._sales_of(_part(tickets, piece, slices), first, piece)
                spill.add(part[1], part)
            for columns in spill.slices():
                # stable: the lines of a ticket stay as they are
                order = np.lexsort((columns[5], columns[0] * SECONDS_PER_DAY + columns[1]))
                yield _sales_batch([column[order] for column in columns])

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

    def _ids(self, per_order: int, first_day: int, last_day: int) -> range:
        """Ids whose day lies in [first_day, last_day) when ids spread evenly over the days."""
        full, base, days = per_order * self.sizes.orders, per_order * self.sizes.orders_base, self.sizes.days
        begin, end = -(-first_day * full // days), -(-last_day * full // days)
        return range(min(begin, base), min(end, base))

    def _date(self, ids: Ints, per_order: int) -> Ints:
        return FIRST_DATE + ids * self.sizes.days // (per_order * self.sizes.orders)

    def _popular(
        self, rng: np.random.Generator, count: int, of_rank: Ints, centre: float, spread: float
    ) -> Ints:
        if self._zipf:
            rank = np.searchsorted(self._zipf[len(of_rank)], rng.random(count))
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

    def _orders_of(self, order: Ints, *name: int) -> Iterator[tuple[Ints, ...]]:
        """Clicks of buyers: 3 to 6 looks at any time of the day, then all lines of the order at one time.

        As columns of web_clickstreams, -1 for NULL.
        """
        rng = self._random(_ORDER, *name)
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

    def _visits_of(self, block: Ints, *name: int) -> tuple[Ints, ...]:
        """Clicks of visitors: 11 to 21 at any time of the block's day, half of the blocks by an unknown
        user.
        """
        rng = self._random(_VISIT, *name)
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

    def _sales_of(self, ticket: Ints, *name: int) -> list[Ints]:
        """Lines of tickets by (ts, ticket), as columns of store_sales, money in cents."""
        rng = self._random(_TICKET, *name)
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
        return [*keys, quantity, _net_paid_cents(rng, quantity)]


def _whole(ids: range) -> Ints:
    return np.arange(ids.start, ids.stop, dtype=np.int64)


def _part(ids: range, piece: int, pieces: int) -> Ints:
    """One of several even parts."""
    return _whole(ids[len(ids) * piece // pieces : len(ids) * (piece + 1) // pieces])


def _clicks_batch(columns: Sequence[Ints]) -> pa.RecordBatch:
    """Columns of web_clickstreams, -1 for NULL, put in canonical order: NULL first, as -1 sorts."""
    date, time, sales, item, page, user = columns
    order = np.lexsort((page, user, item, sales, date * SECONDS_PER_DAY + time))
    ordered = [column[order] for column in columns]
    arrays = [pa.array(column, mask=column < 0) for column in ordered]
    return pa.RecordBatch.from_arrays(arrays, schema=WEB_CLICKSTREAMS)


def _sales_batch(columns: Sequence[Ints]) -> pa.RecordBatch:
    *keys, quantity, cents = columns
    arrays = [pa.array(column) for column in keys]
    arrays += [pa.array(quantity.astype(np.int32)), _money(cents)]
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


def expected_rows(sizes: Sizes, rows: int | None, store_sales: bool) -> int:
    """Return about how many rows `generate_clicks` writes, for a progress bar; exact for `rows` clicks
    alone.
    """
    clicks = rows if rows is not None else sizes.expected_clicks
    return clicks + (int(clicks * LINES_PER_ORDER / CLICKS_PER_ORDER) if store_sales else 0)


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

    A folder that already holds the same rows (see `generated.json` in it) is left as it is. Else all files
    are written aside and take their places when they are whole: a run that fails or is ended leaves what was
    there before. Two runs must not write into one folder at the same time. Rows that were not generated are
    never replaced, nor mixed with generated ones.

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
        Called with (rows written, rows expected) after each chunk; rows of clicks and sales together.
    sizes : Sizes, optional
        Explicit counts, in place of `scale`; may be given with `rows`, which then cuts the stream.
    skew : float, optional
        Zipf exponent of items and customers, see `Generator`.
    store_sales : bool
        Write store_sales as well, up to the time of the last click where `rows` cuts the clicks.

    Returns
    -------
    Path
        `out_dir`.

    Raises
    ------
    ValueError
        If the sizes are missing, contradictory or out of range, or the folder holds tables that were not
        generated.
    OSError
        If the folder can't be written, or the disk is full.
    """
    if sizes is None:
        if (rows is None) == (scale is None):
            raise ValueError("give rows or scale (one of them)")
        sizes = Sizes.for_rows(rows) if rows is not None else Sizes.at_scale(scale or 0)
    elif scale is not None:
        raise ValueError("give scale or sizes, not both")
    folder = Path(out_dir)
    if is_generated(folder, sizes, rows, seed, skew=skew, store_sales=store_sales):
        return folder
    if others := _not_generated(folder):
        raise ValueError(f"{folder} holds rows that were not generated ({others[0]}): choose another folder")
    recipe = _recipe(sizes, rows, seed, skew)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    working = folder / WORKING
    try:
        working.mkdir(parents=True, exist_ok=True)
        _empty(working)  # of a run that was ended
        generator = Generator(sizes, seed, skew, working)
        _write_all(generator, working, rows, store_sales, progress)
        (working / MANIFEST).write_text(json.dumps(recipe | {"store_sales": store_sales}, indent=1) + "\n")
        (folder / MANIFEST).unlink(missing_ok=True)
        for table in TABLES:  # old and new rows must not stand side by side, whatever happens now
            (folder / f"{table}.parquet").unlink(missing_ok=True)
        for file in sorted(working.iterdir(), key=lambda file: file.name == MANIFEST):
            file.replace(folder / file.name)
        working.rmdir()
    except BaseException as error:
        shutil.rmtree(working, ignore_errors=True)
        for path in made:
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        if isinstance(error, OSError):
            raise OSError(f"can't write {folder}: {error}; nothing new was left there") from error
        raise
    return folder


def _not_generated(folder: Path) -> list[str]:
    """Names of entries that `DataFolder` would read as part of a table, and that no run of
    `generate_clicks` has written.
    """
    # the latter: ended while it moved files
    mine = any((folder / name).is_file() for name in (MANIFEST, f"{WORKING}/{MANIFEST}"))
    own = {f"{table}.parquet" for table in TABLES} if mine else set()
    found = sorted({entry for table in TABLES for entry in folder.glob(f"{table}*")})
    return [
        entry.name
        for entry in found
        if entry.name not in own
        and not entry.name.startswith(OTHER_TABLES)
        and (entry.name in TABLES if entry.is_dir() else entry.suffix in (".parquet", ".csv"))
    ]


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def is_generated(
    folder: Path,
    sizes: Sizes,
    rows: int | None,
    seed: int,
    *,
    skew: float | None = None,
    store_sales: bool = False,
) -> bool:
    """Whether the folder holds what `generate_clicks` would write there with these arguments."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return False
    if (
        not isinstance(found, dict)
        or found.pop("store_sales", False) < store_sales
        or found != _recipe(sizes, rows, seed, skew)
    ):
        return False
    tables = [table for table in TABLES if store_sales or table != "store_sales"]
    return all((folder / f"{table}.parquet").is_file() for table in tables)


def _recipe(sizes: Sizes, rows: int | None, seed: int, skew: float | None) -> dict[str, Any]:
    return {"version": VERSION, "rows": rows, "seed": seed, "skew": skew, "sizes": vars(sizes)}


def _write_all(
    generator: Generator, folder: Path, rows: int | None, store_sales: bool, progress: Progress | None
) -> None:
    expected = expected_rows(generator.sizes, rows, store_sales)
    written = 0
    last_ts = 0

    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in batches:
            yield batch  # which is written before the next line runs
            written += batch.num_rows
            if progress is not None:
                progress(written, max(expected, written))

    def cut_clicks() -> Iterator[pa.RecordBatch]:
        nonlocal last_ts
        missing = rows
        for batch in generator.clicks():
            kept = batch if missing is None else batch.slice(0, missing)
            if kept.num_rows:
                last_ts = _ts(kept, kept.num_rows - 1)
            yield kept
            if missing is not None:
                missing -= kept.num_rows
                if missing == 0:
                    return
        if missing:
            raise ValueError(f"these sizes give only {(rows or 0) - missing} clicks, {rows} were asked for")

    def cut_sales() -> Iterator[pa.RecordBatch]:
        for batch in generator.store_sales():
            ts = batch.column(0).to_numpy() * SECONDS_PER_DAY + batch.column(1).to_numpy()
            kept = batch.slice(0, int(np.searchsorted(ts, last_ts, side="right")))
            yield kept
            if kept.num_rows < batch.num_rows:
                return

    pq.write_table(generator.items(), folder / "item.parquet")
    pq.write_table(generator.web_pages(), folder / "web_page.parquet")
    _write(folder / "web_clickstreams.parquet", WEB_CLICKSTREAMS, counted(cut_clicks()))
    if store_sales:
        sales = generator.store_sales() if rows is None else cut_sales()
        _write(folder / "store_sales.parquet", STORE_SALES, counted(sales))


def _ts(batch: pa.RecordBatch, row: int) -> int:
    return int(batch.column(0)[row].as_py()) * SECONDS_PER_DAY + int(batch.column(1)[row].as_py())


def _write(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)

"""TPC-H's Q5, "local supplier volume", as a continuous query over a sliding window: the third job of
`mixed_jobs.py`.

As in the paper's evaluation: foreign keys are Zipf-skewed (z = 0.8), the window is 5 minutes, which keys are
frequent changes every 15 minutes, 16 batches are an hour, and the joins are operators of their own, one
behind the other, so that a full instance of one holds the next one up. A change gives all keys other
frequencies, then swaps them, as the paper's generator does, until one of two nodes has `HEAVY` of the
tuples by the ring; which one takes turns. Rows are drawn here, by TPC-H's schema and its ratios (a third of
the customers orders nothing, an order has 1 to 7 line items); an order's line items follow within a minute.
Prices are whole cents and discounts per cent, so that sums are exact.

The query: orders join line items by `orderkey` within a minute; then the customer is joined, then the
supplier; of the line items whose two are of one nation of the region, each comes with its nation's revenue
in the window. The paper does not say which order its joins have. Here `custkey` is in the tuples of orders
only and `suppkey` in those of line items only, and a graph is cut by a column that all its states have: so
the join by `orderkey` comes first, and the two skewed keys are those of a chain behind it. `orderkey` has no
skew: its join has nothing to move. The nation and region are chosen last, so that every line item goes
through all joins.

Not as in the paper: customers, suppliers and nations are tables that stay as they are, and a lookup is too
little work to be worth a node. What a join of two windows holds and goes through stands in the two keyed
steps, in plain Python: they tell what the customer has bought and the supplier has sold within the window,
by the sum over the window's panes of a second, those with no row left out.

Way `ideal`: a line item brings both sums along, and loops as long are gone through without a window.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ordstream as od
from ordstream.lab.evaluation.mixed_streams import Setting, Snapshots

REGION = "ASIA"
REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
#: TPC-H's: the region of each of the 25 nations.
REGION_OF = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
#: Customers and suppliers: those of so much of TPC-H's scale factor 1, which has 7.5 million orders and line
#: items, as 16 batches of 50,000 are.
SCALE = 0.1
ZIPF, HEAVY = 0.8, 0.65
#: Milliseconds: of a batch, of the window and its panes, from an order to its last line item.
BATCH, WINDOW, PANE, FOLLOWS = 225_000, 300_000, 1_000, 60_000
#: Batches from one change to the next.
PHASE = 4
#: What a row costs beside its panes, about, in times that a pane is looked at.
ROW = 50
#: What `ideal` goes through in place of panes.
LIKE_PANES = [1 << 40] * (2 * WINDOW // PANE)

STEPS = ("customers", "suppliers")
SOURCE = {name: pa.int64() for name in ("n", "ts", "orderkey", "custkey", "suppkey", "cents", "discount")}
BROUGHT = ("slot", "slot_2", "spent", "sold", "met", "met_2")
#: Columns in front of the customers' step, behind it and behind the suppliers' step.
JOINED = ("n", "ts", "nation", "custkey", "suppkey", "revenue")


# ------------------------------------------------------------------------------------------------- rows


def tables(scale: float = SCALE) -> dict[str, pa.Table]:
    """Customers, suppliers, and nations with the names of their regions."""
    rng = np.random.default_rng(5)

    def of(key: str, nation: str, count: int) -> pa.Table:
        keys = np.arange(1, max(1, round(count * scale)) + 1)
        return pa.table({key: keys, nation: rng.integers(0, 25, len(keys))})

    return {
        "customer": of("custkey", "nation", 150_000),
        "supplier": of("suppkey", "nation_of_supplier", 10_000),
        "nation": pa.table({"nation": np.arange(25), "region": [REGIONS[at] for at in REGION_OF]}),
    }


def skewed(keys: np.ndarray, full: int, rng: np.random.Generator) -> np.ndarray:
    """Shares of the keys, by which the ring gives a node of two `HEAVY` of the tuples."""
    drawn = Snapshots(Setting(len(keys), ZIPF, instances=2, tuples=1_000 * len(keys)), rng)
    drawn.hashed = od.Mixed().ring(2).route(keys)
    now = drawn.current[drawn.hashed == full].sum()
    drawn.change(full, HEAVY * drawn.current.sum() - now, down=False)
    return drawn.current / drawn.current.sum()


@lru_cache(maxsize=2)
def stream(rows: int, batches: int, seed: int, scale: float = SCALE) -> pa.Table:
    """Orders and line items in the order of time."""
    rng, whole = np.random.default_rng([seed, 3]), rows * batches
    orders = whole // 4  # more than it takes: the last ones are cut off
    span = BATCH * batches * 5 // 4
    ordered = np.sort(rng.integers(0, span, orders))
    order = np.repeat(np.arange(orders), rng.integers(1, 8, orders))
    shipped = ordered[order] + rng.integers(1, FOLLOWS + 1, len(order))
    made = tables(scale)
    customers = made["customer"]["custkey"].to_numpy()
    keys = customers[customers % 3 != 0], made["supplier"]["suppkey"].to_numpy()
    cust, supp = np.empty(orders, np.int64), np.empty(len(order), np.int64)
    for phase in range(-(-(span + FOLLOWS) // (PHASE * BATCH)) + 1):
        for column, at, of in ((cust, ordered, keys[0]), (supp, shipped, keys[1])):
            now = np.flatnonzero(at // (PHASE * BATCH) == phase)
            column[now] = rng.choice(of, len(now), p=skewed(of, phase % 2, rng))
    price = rng.integers(1, 51, len(order)) * rng.integers(90_000, 200_001, len(order))
    none = pa.nulls(orders, pa.int64())
    parts = [
        pa.table([ordered, np.arange(orders), cust, none, none, none], names=[*SOURCE][1:]),
        pa.table(
            [shipped, order, pa.nulls(len(order), pa.int64()), supp, price, rng.integers(0, 11, len(order))],
            names=[*SOURCE][1:],
        ),
    ]
    both = pa.concat_tables(parts)
    by_time = np.argsort(both["ts"].to_numpy(), kind="stable")[:whole]  # at one time: orders first
    assert len(by_time) == whole
    merged = both.take(by_time)
    return merged.add_column(0, "n", pa.array(np.arange(whole))).combine_chunks()


@lru_cache(maxsize=2)
def with_answers(rows: int, batches: int, seed: int, nodes: int) -> pa.Table:
    """The stream; a line item brings along what the steps would tell, how many panes they would go through,
    and the nodes that it goes to in turn.
    """
    source = stream(rows, batches, seed)
    customer: dict[int, int] = {}
    bought: dict[int, list[int]] = {}
    sold: dict[int, list[int]] = {}
    found: list[tuple[int | None, ...]] = []
    for row in source.to_pylist():
        if row["custkey"] is not None:
            customer[row["orderkey"]] = row["custkey"]
            found.append((None,) * len(BROUGHT))
            continue
        mine = bought.setdefault(customer[row["orderkey"]], [])
        its = sold.setdefault(row["suppkey"], [])
        revenue = row["cents"] * (100 - row["discount"])
        sums = volume(mine, row["ts"], revenue), volume(its, row["ts"], revenue)
        slots = row["n"] % nodes, row["n"] // nodes % nodes
        found.append((*slots, *sums, len(mine) // 2, len(its) // 2))
    for name, values in zip(BROUGHT, zip(*found, strict=True), strict=True):
        source = source.append_column(name, pa.array(values, pa.int64()))
    return source


def schema(way: str) -> pa.Schema:
    """Of the rows."""
    more = BROUGHT if way == "ideal" else ()
    return pa.schema([*SOURCE.items(), *((name, pa.int64()) for name in more)])


def batches_of(way: str, nodes: int, rows: int, batches: int, seed: int) -> list[pa.Table]:
    """The rows of each batch, with the columns that the way reads."""
    made = with_answers(rows, batches, seed, nodes) if way == "ideal" else stream(rows, batches, seed)
    return [made.slice(first, rows) for first in range(0, rows * batches, rows)]


def stages(way: str, made: list[pa.Table]) -> dict[int, list[tuple[np.ndarray, ...]]]:
    """By number of the step's fragment, of each batch's line items: what they go to a node by, their work,
    and their numbers.
    """
    rows = pa.concat_tables(made)
    items = rows.filter(pc.is_valid(rows["suppkey"]))
    orders = rows.filter(pc.is_valid(rows["custkey"]))
    order = np.searchsorted(orders["orderkey"].to_numpy(), items["orderkey"].to_numpy())
    pane = items["ts"].to_numpy() // PANE
    ends = np.cumsum([one.num_rows - one["suppkey"].null_count for one in made])[:-1]
    found = {}
    for number, keys, slot in (
        (3, orders["custkey"].to_numpy()[order], "slot"),
        (4, items["suppkey"].to_numpy(), "slot_2"),
    ):
        by = items[slot].to_numpy() if way == "ideal" else keys
        work = ROW + panes_met(keys, pane)
        columns = (np.split(one, ends) for one in (by, work, items["n"].to_numpy()))
        found[number] = [*zip(*columns, strict=True)]
    return found


def panes_met(keys: np.ndarray, pane: np.ndarray) -> np.ndarray:
    """How many panes of its key's window, of those in front of it, each row finds rows in; `pane` is
    ascending.
    """
    pairs, back = np.unique(keys * (pane[-1] + 1) + pane, return_inverse=True)
    key, number = np.divmod(pairs, pane[-1] + 1)
    first = np.searchsorted(pairs, key * (pane[-1] + 1) + np.maximum(0, number - WINDOW // PANE + 1))
    return (np.arange(len(pairs)) - first)[back]


# ------------------------------------------------------------------------------------------------- the query


def volume(panes: list[int], ts: int, revenue: int) -> int:
    """Revenue of the window that ends with this row; `panes` are each one's number and sum, in turn."""
    pane = ts // PANE
    while panes and panes[0] <= pane - WINDOW // PANE:
        del panes[:2]
    if panes and panes[-2] == pane:
        panes[-1] += revenue
    else:
        panes += (pane, revenue)
    total = 0
    for at in range(1, len(panes), 2):
        total += panes[at]
    return total


def customers(row: Any, state: list[int], emit: Any) -> None:
    """What the customer has bought within the window."""
    bought = volume(state, row.ts, row.revenue)
    emit(row.n, row.ts, row.nation, row.custkey, row.suppkey, row.revenue, bought)


def suppliers(row: Any, state: list[int], emit: Any) -> None:
    """What the supplier has sold within the window."""
    sold = volume(state, row.ts, row.revenue)
    emit(row.n, row.ts, row.nation, row.custkey, row.suppkey, row.revenue, row.spent, sold)


def like_volume(met: int, told: int) -> int:
    """`told`, behind a loop as long as that of `volume` over so many panes."""
    total = told
    for at in range(1, 2 * met, 2):
        total += LIKE_PANES[at]
    return total - (met << 40)


def brought(row: Any, state: Any, emit: Any) -> None:
    """`customers`, of a row that brings the sum along."""
    state.seen += 1
    spent = like_volume(row.met, row.spent)
    emit(row.n, row.ts, row.nation, row.custkey, row.suppkey, row.revenue, spent, row.slot_2, row.sold,
         row.met_2)  # fmt: skip


def brought_too(row: Any, state: Any, emit: Any) -> None:
    """`suppliers`, likewise."""
    state.seen += 1
    sold = like_volume(row.met_2, row.sold)
    emit(row.n, row.ts, row.nation, row.custkey, row.suppkey, row.revenue, row.spent, sold)


def encoded(state: list[int]) -> bytes:
    return array.array("q", state).tobytes()


def decoded(data: bytes) -> list[int]:
    return array.array("q", data).tolist()


def pipeline(way: str, made: dict[str, pa.Table] | None = None) -> od.Pipeline:
    """Q5 as a way runs it, over the given tables."""
    made = made or tables()
    more = BROUGHT if way == "ideal" else ()
    orders, items = od.Pipeline(schema(way)).branch(od.col("suppkey").is_null())
    items = items.select(
        "n", "ts", "orderkey", "suppkey", *more, revenue=od.col("cents") * (100 - od.col("discount"))
    )
    joined = (
        items.join_interval(
            orders.select("orderkey", "ts", "custkey"), on="orderkey", within=(-FOLLOWS, 0), time="ts"
        )
        .join_lookup(made["customer"], on="custkey")
        .select(*JOINED, *more)
    )
    if way == "ideal":
        steps = keyed(joined, "slot", brought, ("spent", "slot_2", "sold", "met_2"), "customers")
        steps = keyed(steps, "slot_2", brought_too, ("spent", "sold"), "suppliers")
    else:
        steps = keyed(joined, "custkey", customers, ("spent",), "customers")
        steps = keyed(steps, "suppkey", suppliers, ("spent", "sold"), "suppliers")
    local = (
        steps.join_lookup(made["supplier"], on="suppkey")
        .filter(od.col("nation") == od.col("nation_of_supplier"))
        .join_lookup(made["nation"], on="nation")
        .filter(od.col("region") == REGION)
        .drop("nation_of_supplier", "region")
    )
    return local.key_by("nation").window(od.rolling(WINDOW), time="ts").aggregate(volume=od.sum("revenue"))


def keyed(
    rows: od.Pipeline, key: str, step: Callable[..., None], more: tuple[str, ...], name: str
) -> od.Pipeline:
    """A keyed step, which gives the joined columns and some more."""
    fields = {one: pa.int64() for one in (*JOINED, *more)}
    state = {"seen": pa.int64()} if key.startswith("slot") else od.codec(encoded, decoded, list)
    return rows.key_by(key).process(step, schema=fields, state=state, name=name)

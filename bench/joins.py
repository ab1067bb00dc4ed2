"""Joins beside Polars and DuckDB: CPU per row of four jobs on the same rows.

    python bench/joins.py [--rows N] [--keys N] [--rounds N] [--workers N] [--only PART]

Clicks and purchases of uniform keys, in the order of time, in seconds and without ties; one row in four is a
purchase. Answers are compared first, rows and values, sorted where an engine has no order. Then the peers
take turns. A figure is the median over rounds of CPU seconds (all threads) per row of the input, both sides
counted; the ratio is that of the faster rival to ours: above 1 we take less. Each engine gets the input as
it wants it: ours one table that it divides itself, the others a table per side.
"""

from __future__ import annotations

import argparse
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

import ordstream as od

SCHEMA = pa.schema({"ts": pa.timestamp("s"), "k": pa.int64(), "bought": pa.bool_(), "cents": pa.int64()})


@dataclass(frozen=True)
class Rows:
    """The input.

    Attributes
    ----------
    both, clicks, purchases : pyarrow.Table
    names : pyarrow.Table
        A string per key, but for one key in ten.
    """

    both: pa.Table
    clicks: pa.Table
    purchases: pa.Table
    names: pa.Table

    @classmethod
    def made(cls, rows: int, keys: int) -> Rows:
        """So many of both sides."""
        rng = np.random.default_rng(1)
        bought = rng.random(rows) < 0.25
        columns = [np.cumsum(rng.integers(1, 3, rows)), rng.integers(0, keys, rows), bought]
        columns.append(rng.integers(1, 10_000, rows))
        arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)]
        both = pa.table(arrays, schema=SCHEMA)
        known = np.arange(0, keys)[np.arange(keys) % 10 != 0]
        names = pa.table({"k": known, "name": [f"customer {key}" for key in known]})
        sides = (both.filter(pa.array(side)).drop("bought") for side in (~bought, bought))
        return cls(both, *sides, names)


Job = Callable[[Rows], pa.Table]


def ours(build: Callable[[od.Pipeline, od.Pipeline], od.Pipeline], workers: int) -> Job:
    """A join of the two branches."""
    clicks, purchases = od.Pipeline(SCHEMA).branch(~od.col("bought"))
    pipeline = build(clicks.drop("bought"), purchases.drop("bought"))
    return lambda rows: pipeline.run(rows.both, workers=workers).table


def lookup(how: Any, workers: int) -> Job:
    """An enrichment."""

    def run(rows: Rows) -> pa.Table:
        return od.Pipeline(SCHEMA).join_lookup(rows.names, "k", how).run(rows.both, workers=workers).table

    return run


def polars(work: Callable[[pl.LazyFrame, pl.LazyFrame, pl.LazyFrame, pl.LazyFrame], pl.LazyFrame]) -> Job:
    """A query of Polars over both, clicks, purchases, names."""

    def run(rows: Rows) -> pa.Table:
        frames = (rows.both, rows.clicks, rows.purchases, rows.names)
        return work(*(pl.DataFrame(frame).lazy() for frame in frames)).collect().to_arrow()

    return run


def sql(text: str, workers: int) -> Job:
    """A query of DuckDB over the tables both, clicks, purchases, names."""

    def run(rows: Rows) -> pa.Table:
        with duckdb.connect(config={"threads": max(workers, 1)}) as connection:
            for name in ("both", "clicks", "purchases", "names"):
                connection.register(f"{name}_", getattr(rows, name))
            return connection.sql(text).to_arrow_table()

    return run


def jobs(workers: int) -> dict[str, tuple[Job, dict[str, Job]]]:
    """Ours and the rivals."""
    shown = "c.k, c.ts, c.cents, p.ts as ts_right, p.cents as cents_right"
    on = "from clicks_ c {} purchases_ p on c.k = p.k and "
    near = "p.ts - c.ts between interval 0 seconds and interval 1 hour"
    return {
        "lookup, inner": (
            lookup("inner", workers),
            {
                "Polars": polars(lambda b, _, __, n: b.join(n, on="k", maintain_order="left")),
                "DuckDB": sql("select b.*, n.name from both_ b join names_ n using (k)", workers),
            },
        ),
        "lookup, left": (
            lookup("left", workers),
            {
                "Polars": polars(lambda b, _, __, n: b.join(n, on="k", how="left", maintain_order="left")),
                "DuckDB": sql("select b.*, n.name from both_ b left join names_ n using (k)", workers),
            },
        ),
        "interval, an hour": (
            ours(lambda c, p: c.join_interval(p, "k", ("0s", "1h")), workers),
            {
                "Polars": polars(
                    lambda _, c, p, __: c.join(p, on="k").filter(
                        (pl.col("ts_right") - pl.col("ts")).is_between(pl.duration(), pl.duration(hours=1))
                    )
                ),
                "DuckDB": sql(f"select {shown} {on.format('join')} {near}", workers),
            },
        ),
        "as of": (
            ours(lambda c, p: c.join_asof(p, "k"), workers),
            {
                "Polars": polars(
                    lambda _, c, p, __: c.join_asof(
                        p, on="ts", by="k", coalesce=False, check_sortedness=False
                    )
                ),
                "DuckDB": sql(f"select {shown} {on.format('asof left join')} c.ts >= p.ts", workers),
            },
        ),
    }


def plain(table: pa.Table, columns: list[str]) -> pa.Table:
    """The rows of an answer, sorted, in common types."""
    order = [(name, "ascending") for name in columns]
    found = table.select(columns)
    types = [pa.timestamp("us") if pa.types.is_timestamp(f.type) else f.type for f in found.schema]
    types = [pa.string() if pa.types.is_large_string(t) or str(t) == "string_view" else t for t in types]
    schema = pa.schema(list(zip(columns, types, strict=True)))
    return found.cast(schema).sort_by(order).combine_chunks()


def cpu(job: Job, rows: Rows) -> float:
    """CPU seconds of a run."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    job(rows)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Compare, then measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="jobs with this in their names")
    given = parser.parse_args()
    rows = Rows.made(given.rows, given.keys)
    print(f"{given.rows:,} rows, {given.keys:,} keys, {given.workers} workers; ns of CPU per row")
    for name, (mine, rivals) in jobs(given.workers).items():
        if given.only not in name:
            continue
        peers = {"ordstream": mine, **rivals}
        found = mine(rows)
        wanted = plain(found, found.schema.names)
        for peer, job in rivals.items():
            assert plain(job(rows), found.schema.names).equals(wanted), f"{name}: {peer} differs"
        spent: dict[str, list[float]] = {peer: [] for peer in peers}
        for _ in range(given.rounds):
            for peer, job in peers.items():
                spent[peer].append(cpu(job, rows))
        figures = {peer: statistics.median(times) / given.rows * 1e9 for peer, times in spent.items()}
        best = min(figures[peer] for peer in rivals)
        told = ", ".join(f"{peer} {ns:.1f}" for peer, ns in figures.items())
        print(f"{name:20} {len(found):9,} rows: {told}; ratio {best / figures['ordstream']:.2f}", flush=True)


if __name__ == "__main__":
    main()

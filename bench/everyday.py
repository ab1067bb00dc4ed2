"""The everyday jobs of examples/everyday beside pandas, Polars and DuckDB.

    python bench/everyday.py [--rows N] [--rounds N] [--only NAME,NAME]

ns of CPU per row (all threads of the process) and wall ms, the best of some rounds, engines in turn. Every
answer is compared first: the rows, sorted. Where an engine has no such job (a span that begins anew at the
first row behind it, a rule in Python), a plain loop over the rows stands beside ours.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "everyday"


def example(name: str, rows: int, *arguments: str) -> pa.Table:
    """What an example gives."""
    before, sys.argv = sys.argv, [f"{name}.py", str(rows), *arguments]
    sys.path.insert(0, str(EXAMPLES))
    try:
        table: pa.Table = runpy.run_path(str(EXAMPLES / f"{name}.py"))["result"].table
    finally:
        sys.argv = before
        sys.path.remove(str(EXAMPLES))
    return table


def loop_within(data: pa.Table) -> pa.Table:
    """deduplicate, in a loop."""
    begun: dict[Any, int] = {}
    kept = []
    times = data["ts"].cast(pa.int64()).to_pylist()
    for i, key in enumerate(zip(data["card"].to_pylist(), data["shop"].to_pylist(), strict=True)):
        if key not in begun or times[i] - begun[key] > 600_000:
            begun[key] = times[i]
            kept.append(i)
    return data.take(kept)


def loop_rule(data: pa.Table) -> pa.Table:
    """fraud_rule, in a loop."""
    states: dict[int, tuple[int, int]] = {}
    found = []
    columns = (data["card"].to_pylist(), data["ts"].cast(pa.int64()).to_pylist(), data["cents"].to_pylist())
    for card, at, cents in zip(*columns, strict=True):
        small, latest = states.get(card, (0, 0))
        small = (small + 1 if at - latest < 60_000 else 1) if cents < 10_000 else 0
        states[card] = small, at
        if small >= 3:
            found.append((card, at, small))
    names = ("card", "at", "n")
    return pa.table({name: pa.array([row[i] for row in found], pa.int64()) for i, name in enumerate(names)})


def _polars(work: Callable[[Any, Any], Any]) -> Callable[[pa.Table], Callable[[], Any]]:
    def prepared(data: pa.Table) -> Callable[[], Any]:
        import polars as pl

        frame = pl.from_arrow(data)
        return lambda: work(frame, pl).to_arrow()

    return prepared


def _pandas(work: Callable[[Any], Any]) -> Callable[[pa.Table], Callable[[], Any]]:
    def prepared(data: pa.Table) -> Callable[[], Any]:
        frame = data.append_column("row", pa.array(np.arange(len(data)))).to_pandas()
        return lambda: pa.Table.from_pandas(work(frame), preserve_index=False)

    return prepared


def _duckdb(query: str) -> Callable[[pa.Table], Callable[[], Any]]:
    def prepared(data: pa.Table) -> Callable[[], Any]:
        import duckdb

        connection = duckdb.connect()
        connection.register("events", data.append_column("row", pa.array(np.arange(len(data)))))
        connection.register("shops", SHOPS)
        return lambda: connection.sql(query).to_arrow_table()

    return prepared


def _loop(work: Callable[[pa.Table], pa.Table]) -> Callable[[pa.Table], Callable[[], Any]]:
    return lambda data: lambda: work(data)


def _duckdb_orders(query: str) -> Callable[[pa.Table], Callable[[], Any]]:
    """Of as many line items, about, as there are events."""

    def prepared(data: pa.Table) -> Callable[[], Any]:
        import duckdb
        from orders import tables

        connection = duckdb.connect()
        for name, table in tables(len(data)).items():
            connection.register(name, table)
        return lambda: connection.sql(query).to_arrow_table()

    return prepared


def _refunds_first(frame: Any) -> Any:
    """By time, and at one time refunds first."""
    return frame.assign(payment=frame["shop"] != "cinema").sort_values(["ts", "payment"], kind="stable")


COLUMNS = "card, ts, cents, shop"
#: What the payments are enriched from.
SHOPS = pa.table({
    "shop": ["cinema", "Fuel station", "grocer"], "town": ["Roma", "Zürich", "Београд"], "fee": [3, 2, 1],
})  # fmt: skip
#: Job -> engine -> (events -> what runs it).
RIVALS: dict[str, dict[str, Callable[[pa.Table], Callable[[], Any]]]] = {
    "filter_and_map": {
        "pandas": _pandas(
            lambda f: (g := f[f["cents"] > 40_000])[["card"]].assign(
                hour=g["ts"].dt.hour, shop=g["shop"].str.lower(), euros=g["cents"] // 100
            )
        ),
        "polars": _polars(
            lambda f, pl: f.filter(pl.col("cents") > 40_000).select(
                "card",
                pl.col("ts").dt.hour().alias("hour"),
                pl.col("shop").str.to_lowercase(),
                (pl.col("cents") // 100).alias("euros"),
            )
        ),
        "duckdb": _duckdb(
            "select card, hour(ts) as hour, lower(shop) shop, cents // 100 euros from events "
            "where cents > 40000"
        ),
    },
    "word_count": {
        "pandas": _pandas(
            lambda f: (
                f["shop"]
                .str.lower()
                .str.split(" ")
                .explode()
                .rename("word")
                .value_counts()
                .rename("n")
                .reset_index()
            )
        ),
        "polars": _polars(
            lambda f, pl: (
                f.select(word=pl.col("shop").str.to_lowercase().str.split(" "))
                .explode("word")
                .group_by("word")
                .agg(n=pl.len())
            )
        ),
        "duckdb": _duckdb(
            "select word, count(*) n from (select unnest(string_split(lower(shop), ' ')) word from events) "
            "group by word"
        ),
    },
    "running_total": {
        "pandas": _pandas(lambda f: f.assign(spent=f.groupby("card")["cents"].cumsum())),
        "polars": _polars(
            lambda f, pl: f.with_columns(pl.col("cents").cum_sum().over("card").alias("spent"))
        ),
        "duckdb": _duckdb(
            f"select {COLUMNS}, cast(sum(cents) over (partition by card order by row) as bigint) spent "
            "from events order by row"
        ),
    },
    "difference": {
        "pandas": _pandas(
            lambda f: f.assign(
                since=(g := f.groupby("card"))["ts"].diff(), more=g["cents"].diff().astype("Int64")
            )
        ),
        "polars": _polars(
            lambda f, pl: f.with_columns(
                pl.col("ts").diff().over("card").alias("since"),
                pl.col("cents").diff().over("card").alias("more"),
            )
        ),
        "duckdb": _duckdb(
            f"select {COLUMNS}, date_diff('millisecond', lag(ts) over w, ts) since, "
            "cents - lag(cents) over w more from events "
            "window w as (partition by card order by row) order by row"
        ),
    },
    "last_three": {
        "pandas": _pandas(lambda f: f.groupby("card").tail(3)),
        "polars": _polars(lambda f, pl: f.group_by("card").tail(3)),
        "duckdb": _duckdb(
            f"select {COLUMNS} from events qualify "
            "row_number() over (partition by card order by row desc) <= 3"
        ),
    },
    "enrichment": {
        "pandas": _pandas(
            lambda f: f.merge(SHOPS.to_pandas(), on="shop", how="left").astype({"fee": "Int64"})
        ),
        "polars": _polars(
            lambda f, pl: f.join(pl.from_arrow(SHOPS), on="shop", how="left", maintain_order="left")
        ),
        "duckdb": _duckdb(
            f"select {COLUMNS}, town, fee from events left join shops using (shop) order by row"
        ),
    },
    "join_within": {
        "polars": _polars(
            lambda f, pl: (
                f.filter(pl.col("shop") != "grocer")
                .join(f.filter(pl.col("shop") == "grocer").drop("shop"), on="card")
                .filter((pl.col("ts_right") - pl.col("ts")).is_between(pl.duration(), pl.duration(hours=1)))
                .select("card", "ts", "shop", "ts_right", "cents_right")
            )
        ),
        "duckdb": _duckdb(
            "select a.card, a.ts, a.shop, b.ts ts_right, b.cents cents_right from events a join events b "
            "on a.card = b.card and a.shop <> 'grocer' and b.shop = 'grocer' "
            "and b.ts - a.ts between interval 0 seconds and interval 1 hour"
        ),
    },
    "two_sources": {
        "pandas": _pandas(
            lambda f: (
                g := _refunds_first(f.assign(cents=f["cents"].where(f["shop"] != "cinema", -f["cents"])))
            ).assign(spent=g.groupby("card")["cents"].cumsum())
        ),
        "polars": _polars(
            lambda f, pl: (
                pl.concat(
                    [
                        f.filter(pl.col("shop") == "cinema").with_columns(-pl.col("cents")),
                        f.filter(pl.col("shop") != "cinema"),
                    ]
                )
                .sort("ts", maintain_order=True)
                .with_columns(pl.col("cents").cum_sum().over("card").alias("spent"))
            )
        ),
        "duckdb": _duckdb(
            "with signed as (select card, ts, if(shop = 'cinema', -cents, cents) cents, shop, row "
            "from events) "
            f"select {COLUMNS}, cast(sum(cents) over (partition by card order by ts, shop != 'cinema', row) "
            "as bigint) spent from signed"
        ),
    },
    "local_suppliers": {
        "duckdb": _duckdb_orders(
            "select nation, time_bucket(interval '10 minutes', l.ts) start, "
            "start + interval '10 minutes' as \"end\", "
            "cast(sum(cents * (100 - discount)) as bigint) revenue "
            "from customer join orders using (custkey) join lineitem l using (orderkey) "
            "join supplier using (suppkey) join nation using (nation) "
            "where nation = home and region = 'A' group by all"
        ),
    },
    "deduplicate": {"loop": _loop(loop_within)},
    "fraud_rule": {"loop": _loop(loop_rule)},
}


def same(ours: pa.Table, theirs: pa.Table) -> bool:
    """Whether two answers have the same rows."""

    def plain(table: pa.Table) -> pa.Table:
        columns = [
            table[name].cast(field.type).cast(pa.int64()) if pa.types.is_temporal(field.type)
            and not pa.types.is_duration(field.type) else table[name].cast(field.type)
            for name, field in zip(ours.schema.names, ours.schema, strict=True)
        ]  # fmt: skip
        made = pa.Table.from_arrays(columns, names=ours.schema.names)
        return made.sort_by([(name, "ascending") for name in made.schema.names]).combine_chunks()

    return bool(plain(ours).equals(plain(theirs)))


def main(arguments: list[str]) -> None:
    """Compare, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(RIVALS))
    given = parser.parse_args(arguments)
    sys.path.insert(0, str(EXAMPLES))
    from events import events

    data = events(given.rows)
    for name in given.only.split(","):
        ways = {engine: prepare(data) for engine, prepare in RIVALS[name].items()}
        for engine, work in ways.items():
            assert same(example(name, given.rows), work()), f"{engine}'s answer to {name} differs"
        made = _ours(name, data)
        best: dict[str, tuple[float, float]] = {}
        for _ in range(given.rounds):
            for engine, work in {**made, **ways}.items():
                cpu, wall = time.process_time_ns(), time.perf_counter_ns()
                work()
                cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
                before = best.get(engine, (float("inf"), float("inf")))
                best[engine] = min(before[0], cpu / len(data)), min(before[1], wall / 1e6)
        shown = ", ".join(f"{engine} {cpu:.0f} ns {wall:.0f} ms" for engine, (cpu, wall) in best.items())
        print(f"{name:16} {shown}", flush=True)


def _ours(name: str, data: pa.Table) -> dict[str, Callable[[], Any]]:
    """Ours: the pipeline of the example alone, without the making of its events."""
    import ordstream as od

    taken: dict[str, Any] = {}
    whole = od.Pipeline.run

    def run(pipeline: Any, rows: Any, **options: Any) -> Any:
        taken["run"] = lambda: whole(pipeline, rows, **options)
        return taken["run"]()

    ways: dict[str, Callable[[], Any]] = {}
    od.Pipeline.run = run  # type: ignore[method-assign]
    try:
        for label, more in [("ordstream", ()), ("compiled", ("--compiled",))][: 1 + (name == "fraud_rule")]:
            example(name, len(data), *more)
            ways[label] = taken["run"]
    finally:
        od.Pipeline.run = whole  # type: ignore[method-assign]
    return ways


if __name__ == "__main__":
    main(sys.argv[1:])

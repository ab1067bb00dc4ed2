"""Every operator on a million generated rows, beside Polars and DuckDB: what docs/operators.md shows.

    python bench/operators.py [--only NAME,NAME] [--rows N] [--rounds N] [--out FILE]
    python bench/operators.py --page          writes docs/operators.md from the operators and the figures

ns of CPU per row of the whole process (all its threads), of one worker, the source and the reader
included; the best of some rounds, engines in turn. Chunk 1 gets a tenth of the rows. Each answer that
engines have in common is compared before it counts: in order, or sorted where ours come later (lead, tail).
The figures lie in docs/operators.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream.lab.evaluation.machine import about
from ordstream.operators.time_joins import Sides

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "operators.json"
ROWS = 1_000_000
C = od.col


@dataclass(frozen=True)
class Job:
    """One operator at work.

    Attributes
    ----------
    ours : callable
        Pipeline -> pipeline.
    polars : callable, optional
        Frame -> frame, the same answer.
    duckdb : str, optional
        A query on `rows` (with their number, `row`).
    sort : sequence of str
        Columns to sort the answers by before they are compared; (): they come in one order.
    """

    ours: Callable[[od.Pipeline], od.Pipeline]
    polars: Callable[[Any], Any] | None = None
    duckdb: str | None = None
    sort: tuple[str, ...] = ()


def rows_of(n: int) -> pa.Table:
    """Events of 10,000 keys in the order of time: numbers, strings, lists."""
    rng = np.random.default_rng(19)
    words = np.array(["home", "search", "Search item", "basket", "checkout / pay"], dtype=object)
    return pa.table({
        "row": pa.array(np.arange(n)),
        "k": pa.array(rng.integers(0, 10_000, n)),
        "ts": pa.array(np.cumsum(rng.integers(0, 2_000, n)), pa.timestamp("ms")),
        "x": pa.array(rng.integers(-1000, 1000, n)),
        "y": pa.array(rng.normal(size=n)),
        "hole": pa.array(rng.integers(0, 100, n), mask=rng.random(n) < 0.5),
        "s": pa.array(words[rng.integers(0, len(words), n)], pa.string()),
        "items": pa.ListArray.from_arrays(
            pa.array(np.arange(n + 1, dtype=np.int32) * 3), pa.array(rng.integers(0, 50, 3 * n))
        ),
    })  # fmt: skip


@functools.cache
def names_of(keys: int = 10_000) -> pa.Table:
    """A table of strings, one for each key."""
    return pa.table({"k": np.arange(keys), "a": [f"name of {k}" for k in range(keys)]})


def _pl() -> Any:
    import polars

    return polars


def _over(expr: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A column of Polars over the key, beside the others."""
    return lambda f: f.with_columns(expr(_pl()).over("k").alias("a"))


def _with(expr: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda f: f.with_columns(expr(_pl()).alias("a"))


def _window(call: str, frame: str = "rows unbounded preceding") -> str:
    return f"select *, {call} over (partition by k order by row {frame}) a from rows order by row"


def _side_by_side(kind: Any, every: str, start: str, unit: str) -> Job:
    """Sums of windows as long as `every`, a `unit` of SQL."""
    return Job(
        lambda p: p.key_by("k").window(kind, time="ts").aggregate(a=od.sum("x")),
        lambda f: (
            f.group_by("k", _pl().col("ts").dt.truncate(every).alias("start"))
            .agg(_pl().col("x").sum().alias("a"))
            .with_columns(_pl().col("start").dt.offset_by(every).alias("end"))
        ),
        f"select k, {start} as start, start + interval 1 {unit} as end, sum(x) a from rows "
        "group by k, start",
        ("k", "start"),
    )


def _negated(hit: od.Pipeline, miss: od.Pipeline) -> od.Pipeline:
    return od.union(hit.with_columns(a=-C("x")), miss.with_columns(a=C("x")))


def _first(row: Any) -> bool:
    return bool(row.x > 0)


def _map(row: Any) -> tuple[Any, ...]:
    return row.row, row.x + 1


def _flat(row: Any) -> list[tuple[Any, ...]]:
    return [(row.row,)] * (row.x > 0)


def _batch(columns: dict[str, Any]) -> dict[str, Any]:
    return {"row": columns["row"], "a": columns["x"] + 1}


def _process(row: Any, state: Any, emit: Callable[..., None]) -> None:
    state.n += 1
    emit(row.row, state.n)


#: Of a join of rows with x > 0 to the others.
SIDES = Sides("right", ("ts", "ts"), {"row": "row"}, {"other": "row"})


def _sided(pipeline: od.Pipeline) -> od.KeyedPipeline:
    return pipeline.with_columns(right=C("x") > 0).key_by("k")


JOBS: dict[str, Job] = {
    "filter": Job(
        lambda p: p.filter(C("x") > 0),
        lambda f: f.filter(_pl().col("x") > 0),
        "select * from rows where x > 0 order by row",
    ),
    "filter (function)": Job(lambda p: p.filter(_first)),
    "select": Job(
        lambda p: p.select("row", a=C("x") * 2 + 1),
        lambda f: f.select("row", (_pl().col("x") * 2 + 1).alias("a")),
        "select row, x * 2 + 1 a from rows order by row",
    ),
    "with_columns": Job(
        lambda p: p.with_columns(a=C("x") * C("y")),
        _with(lambda pl: pl.col("x") * pl.col("y")),
        "select *, x * y a from rows order by row",
    ),
    "with_columns (str.contains)": Job(
        lambda p: p.with_columns(a=C("s").str.contains("item")),
        _with(lambda pl: pl.col("s").str.contains("item", literal=True)),
        "select *, contains(s, 'item') a from rows order by row",
    ),
    "with_columns (str.upper)": Job(
        lambda p: p.with_columns(a=C("s").str.upper()),
        _with(lambda pl: pl.col("s").str.to_uppercase()),
        "select *, upper(s) a from rows order by row",
    ),
    "with_columns (str.slice)": Job(
        lambda p: p.with_columns(a=C("s").str.slice(1, 3)),
        _with(lambda pl: pl.col("s").str.slice(1, 3)),
        "select *, substring(s, 2, 3) a from rows order by row",
    ),
    "with_columns (dt.year)": Job(
        lambda p: p.with_columns(a=C("ts").dt.year()),
        _with(lambda pl: pl.col("ts").dt.year().cast(pl.Int64)),
        "select *, year(ts) a from rows order by row",
    ),
    "with_columns (dt.truncate)": Job(
        lambda p: p.with_columns(a=C("ts").dt.truncate("15m")),
        _with(lambda pl: pl.col("ts").dt.truncate("15m")),
        "select *, time_bucket(interval '15 minutes', ts) a from rows order by row",
    ),
    "join_lookup": Job(
        lambda p: p.join_lookup(names_of(), "k"),
        lambda f: f.join(_pl().from_arrow(names_of()), on="k", maintain_order="left"),
        "select rows.*, a from rows join names using (k) order by row",
    ),
    "drop": Job(lambda p: p.drop("items", "s"), lambda f: f.drop("items", "s")),
    "rename": Job(lambda p: p.rename({"x": "z"}), lambda f: f.rename({"x": "z"})),
    "map": Job(lambda p: p.map(_map, schema={"row": int, "a": int})),
    "map_batches": Job(lambda p: p.select("row", "x").map_batches(_batch, schema={"row": int, "a": int})),
    "flat_map (function)": Job(lambda p: p.flat_map(_flat, schema={"row": int})),
    "flat_map (explode)": Job(
        lambda p: p.flat_map(od.explode("items", "item", carry=["row"])),
        lambda f: f.select("row", _pl().col("items").alias("item")).explode("item"),
        "select row, unnest(items) item from rows order by row",
    ),
    "flat_map (pairs)": Job(lambda p: p.flat_map(od.pairs("items", carry=["row"]))),
    "branch, union": Job(
        lambda p: _negated(*p.branch(C("x") > 0)),
        _with(lambda pl: pl.when(pl.col("x") > 0).then(-pl.col("x")).otherwise(pl.col("x"))),
        "select *, case when x > 0 then -x else x end a from rows order by row",
    ),
    "shed": Job(lambda p: p.shed("1s", cost_key="k").filter(C("x") > 0)),
    "assert_that": Job(lambda p: p.assert_that(C("x") < 5000)),
    "assert_ordered": Job(lambda p: p.assert_ordered("ts")),
    "inspect": Job(lambda p: p.inspect(_first)),
    "sample": Job(lambda p: p.sample(0.1)),
    "count": Job(
        lambda p: p.key_by("k").count("a"),
        lambda f: f.select("k", (_pl().row_index().over("k") + 1).cast(_pl().Int64).alias("a")),
        "select k, row_number() over (partition by k order by row) a from rows order by row",
    ),
    "count (window)": Job(lambda p: p.key_by("k").count("a", window=60_000, time="ts")),
    "scan": Job(
        lambda p: p.key_by("k").scan(a=od.sum("x"), b=od.max("y")),
        lambda f: f.with_columns(
            _pl().col("x").cum_sum().over("k").alias("a"), _pl().col("y").cum_max().over("k").alias("b")
        ),
        "select *, cast(sum(x) over w as bigint) a, max(y) over w b from rows "
        "window w as (partition by k order by row rows unbounded preceding) order by row",
    ),
    "aggregate": Job(
        lambda p: p.key_by("k").aggregate(a=od.sum("x"), emit="final"),
        lambda f: f.group_by("k").agg(_pl().col("x").sum().alias("a")),
        "select k, cast(sum(x) as bigint) a from rows group by k",
        sort=("k",),
    ),
    "cum_sum": Job(
        lambda p: p.key_by("k").cum_sum("x", "a"),
        _over(lambda pl: pl.col("x").cum_sum()),
        "select *, cast(sum(x) over (partition by k order by row rows unbounded preceding) as bigint) a "
        "from rows order by row",
    ),
    "cum_count": Job(
        lambda p: p.key_by("k").cum_count("a"),
        _over(lambda pl: (pl.row_index() + 1).cast(pl.Int64)),
        _window("row_number()", ""),
    ),
    "cum_min": Job(
        lambda p: p.key_by("k").cum_min("x", "a"), _over(lambda pl: pl.col("x").cum_min()), _window("min(x)")
    ),
    "cum_max": Job(
        lambda p: p.key_by("k").cum_max("x", "a"), _over(lambda pl: pl.col("x").cum_max()), _window("max(x)")
    ),
    "cum_mean": Job(lambda p: p.key_by("k").cum_mean("x", "a"), None, _window("avg(x)")),
    "lag": Job(
        lambda p: p.key_by("k").lag({"a": "x"}),
        _over(lambda pl: pl.col("x").shift(1)),
        _window("lag(x)", ""),
    ),
    "lag (strings)": Job(
        lambda p: p.key_by("k").lag({"a": "s"}, 3),
        _over(lambda pl: pl.col("s").shift(3)),
        _window("lag(s, 3)", ""),
    ),
    "lead": Job(
        lambda p: p.key_by("k").lead({"a": "x"}),
        _over(lambda pl: pl.col("x").shift(-1)),
        _window("lead(x)", ""),
        sort=("row",),
    ),
    "diff": Job(
        lambda p: p.key_by("k").diff("x", "a"),
        _over(lambda pl: pl.col("x").diff()),
        _window("x - lag(x)", ""),
    ),
    "head": Job(
        lambda p: p.key_by("k").head(3),
        lambda f: f.filter(_pl().row_index().over("k") < 3),
        "select * from rows qualify row_number() over (partition by k order by row) <= 3 order by row",
    ),
    "tail": Job(
        lambda p: p.key_by("k").tail(3),
        lambda f: f.group_by("k").tail(3).select(f.columns),
        "select * from rows qualify row_number() over (partition by k order by row desc) <= 3",
        sort=("row",),
    ),
    "deduplicate": Job(
        lambda p: p.deduplicate(["k", "x"]),
        lambda f: f.unique(["k", "x"], keep="first", maintain_order=True),
        "select * from rows qualify row_number() over (partition by k, x order by row) = 1 order by row",
    ),
    "deduplicate (last)": Job(
        lambda p: p.deduplicate(["k", "x"], keep="last"),
        lambda f: f.unique(["k", "x"], keep="last"),
        "select * from rows qualify row_number() over (partition by k, x order by row desc) = 1",
        sort=("row",),
    ),
    "deduplicate (within)": Job(lambda p: p.deduplicate("k", 600_000, time="ts")),
    "deduplicate (last within)": Job(lambda p: p.deduplicate("k", 600_000, "last", time="ts")),
    "forward_fill": Job(
        lambda p: p.key_by("k").forward_fill("hole"),
        lambda f: f.with_columns(_pl().col("hole").forward_fill().over("k")),
        "select * replace (last_value(hole ignore nulls) over (partition by k order by row) as hole) "
        "from rows order by row",
    ),
    "sessionize": Job(lambda p: p.key_by("k").sessionize("ts", 3_600_000)),
    "window (tumbling)": _side_by_side(
        od.tumbling("1m"), "1m", "time_bucket(interval 1 minute, ts)", "minute"
    ),
    "window (calendar)": _side_by_side(
        od.calendar("1mo"), "1mo", "date_trunc('month', ts)::timestamp", "month"
    ),
    "window (hopping)": Job(
        lambda p: p.key_by("k").window(od.hopping("5m", every="1m"), time="ts").aggregate(a=od.sum("x"))
    ),
    "window (fill_gaps)": Job(
        lambda p: p.key_by("k").window(od.tumbling("1h"), time="ts", fill_gaps=True).aggregate(a=od.sum("x"))
    ),
    "window (median)": Job(
        lambda p: p.key_by("k").window(od.tumbling("1m"), time="ts").aggregate(a=od.median("x"))
    ),
    "window (session)": Job(
        lambda p: p.key_by("k").window(od.session("1h"), time="ts").aggregate(a=od.sum("x"))
    ),
    "window (rolling)": Job(
        lambda p: p.key_by("k").window(od.rolling("1h"), time="ts").aggregate(a=od.mean("x"))
    ),
    "window (rows)": Job(
        lambda p: p.key_by("k").window(od.rows(20)).aggregate(a=od.sum("x")),
        _over(lambda pl: pl.col("x").rolling_sum(20, min_samples=1)),
        _window("sum(x)", "rows 19 preceding"),
    ),
    "join_interval": Job(
        lambda p: _sided(p)._join_interval(SIDES, ("0s", "6h")),
        None,
        "select l.k, l.row, r.row other from (from rows where x <= 0) l join (from rows where x > 0) r "
        "on l.k = r.k and r.ts - l.ts between interval 0 seconds and interval 6 hours "
        "order by greatest(l.row, r.row), least(l.row, r.row)",
    ),
    "join_asof": Job(
        lambda p: _sided(p)._join_asof(SIDES),
        lambda f: (
            f.filter(_pl().col("x") <= 0)
            .join_asof(
                f.filter(_pl().col("x") > 0).select("k", "ts", other="row"),
                on="ts",
                by="k",
                check_sortedness=False,
            )
            .select("k", "row", "other")
        ),
        "select l.k, l.row, r.row other from (from rows where x <= 0) l asof left join "
        "(from rows where x > 0) r on l.k = r.k and l.ts >= r.ts order by l.row",
    ),
    "reorder": Job(lambda p: p.reorder("ts", slack="5s")),
    "reorder, late rows": Job(lambda p: p.reorder("ts", slack="5s", late="side_output").side_output()),
    "pair_up": Job(lambda p: p.key_by("k").pair_up("hole", on_error="skip")),
    "preceding": Job(lambda p: p.key_by("k").preceding(3, {"a": "x"}, carry=["row"], when=C("x") > 900)),
    "top_values": Job(lambda p: p.key_by("k").top_values("s", 2, emit="final")),
    "regression": Job(lambda p: p.key_by("k").regression("row", "x", emit="final")),
    "top_k": Job(lambda p: p.top_k(10, by="x", key="k")),
    "top_k (of a key)": Job(
        lambda p: p.key_by("k").top_k(3, by="x"),
        None,
        "select * from rows qualify row_number() over (partition by k order by x desc, row) <= 3",
        sort=("row",),
    ),
    "top_k (of all rows)": Job(
        lambda p: p.top_k(10, by="y", key=()),
        lambda f: f.top_k(10, by="y").sort("y", descending=True),
        "select * from rows order by y desc limit 10",
    ),
    "process": Job(
        lambda p: p.key_by("k").process(_process, schema={"row": int, "n": int}, state={"n": int})
    ),
}


# ------------------------------------------------------------------------------------------------ measuring


def cpu_ns(work: Callable[[], Any], rows: int) -> float:
    """ns of CPU per row of one call."""
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / rows


def same(ours: pa.Table, theirs: pa.Table, sort: tuple[str, ...]) -> bool:
    """Whether two answers are equal; floats to 12 digits, since engines may add in another order."""
    theirs = theirs.select(ours.schema.names).cast(ours.schema)
    if sort:
        keys = [(name, "ascending") for name in sort]
        ours, theirs = ours.sort_by(keys), theirs.sort_by(keys)
    if len(ours) != len(theirs):
        return False
    for one, other in zip(ours.columns, theirs.columns, strict=True):
        if pa.types.is_floating(one.type):
            if not np.allclose(one.to_numpy(), other.to_numpy(), rtol=1e-12, equal_nan=True):
                return False
        elif one.combine_chunks() != other.combine_chunks():
            return False
    return True


def measured(job: Job, rows: pa.Table, rounds: int) -> dict[str, float | None]:
    """The figures of one job.

    Raises
    ------
    AssertionError
        Engines give different answers.
    """
    import duckdb

    pipeline = job.ours(od.Pipeline(rows.schema))
    few = rows.slice(0, max(1, len(rows) // 10))
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "chunk 1": (lambda: pipeline.run(few, workers=1, chunk_rows=1), len(few)),
        "chunk 64": (lambda: pipeline.run(rows, workers=1, chunk_rows=64), len(rows)),
        "auto": (lambda: pipeline.run(rows, workers=1), len(rows)),
    }
    if job.polars is not None:
        frame = _pl().from_arrow(rows)
        polars = job.polars
        ways["polars"] = (lambda: polars(frame), len(rows))
        assert same(pipeline.run(rows).table, polars(frame).to_arrow(), job.sort), "Polars' answer differs"
    if job.duckdb is not None:
        connection, query = duckdb.connect(), job.duckdb
        connection.register("rows", rows)
        connection.register("names", names_of())
        ways["duckdb"] = (lambda: connection.sql(query).to_arrow_table(), len(rows))
        assert same(pipeline.run(rows).table, ways["duckdb"][0](), job.sort), "DuckDB's answer differs"
    figures: dict[str, float | None] = dict.fromkeys(ways)
    for _ in range(rounds):
        for name, (work, n) in ways.items():
            found = cpu_ns(work, n)
            before = figures[name]
            figures[name] = found if before is None else min(found, before)
    return figures


# ------------------------------------------------------------------------------------------------ the page

HEAD = """# Operators

Generated by `python bench/operators.py --page` from the operators themselves; do not edit. What each one
emits, and when, is in [ordering.md](ordering.md); arguments are in `help(od.Pipeline.head)` and the like.

Kind: SL keeps no state, PS one per key, SF one for all. "CPU": ns per row of one worker with source and
reader, on a million generated rows of 10,000 keys (`bench/operators.py`), for chunks of 1 row, of 64 rows,
and of the size that the node chooses. "Ratio": CPU of the faster of Polars and DuckDB for the same answer,
divided by ours ("auto"): above 1 ours takes less.

"""
COLUMNS = ("operator", "what runs", "kind", "state", "CPU, chunk 1", "64", "auto", "ratio")


def pipelines() -> list[od.Pipeline]:
    """The pipeline of each job."""
    empty = od.Pipeline(rows_of(1).schema)
    return [job.ours(empty) for job in JOBS.values()]


def page(figures: dict[str, Any]) -> str:
    """docs/operators.md."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for name, made in zip(JOBS, pipelines(), strict=True):
        operators = made.plan.operators
        kinds = dict.fromkeys(one.kind for one in operators)
        state = [field.name for one in operators for field in _own_state(one)]
        texts = [one.shown().replace("|", "\\|") for one in operators]
        found = figures.get(name, {})
        rivals = [found[engine] for engine in ("polars", "duckdb") if found.get(engine)]
        ratio = f"{min(rivals) / found['auto']:.2f}" if rivals and found.get("auto") else ""
        numbers = [f"{found[key]:.0f}" if found.get(key) else "" for key in ("chunk 1", "chunk 64", "auto")]
        cells = [f"`{name}`", "; ".join(texts), ", ".join(kinds), ", ".join(state), *numbers, ratio]
        lines.append(f"| {' | '.join(cells)} |")
    if machine := figures.get("about"):
        told = "Measured on: " + ", ".join(f"{key} {value}" for key, value in machine.items()) + "."
        lines.append("\n" + textwrap.fill(told, 108, break_on_hyphens=False))
    else:
        lines.append("\nNo figures were measured yet for these operators.")
    return HEAD + "\n".join(lines) + "\n"


def _own_state(operator: Any) -> list[pa.Field]:
    """Columns of its state behind the key."""
    try:
        schema = operator.state_schema()
    except od.PlanError:
        return []
    return [] if schema is None else list(schema)[len(operator.key) :]


def main(arguments: list[str]) -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names of operators, with commas")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write docs/operators.md")
    given = parser.parse_args(arguments)
    figures = json.loads(given.out.read_text()) if given.out.exists() else {}
    if given.page:
        (ROOT / "docs" / "operators.md").write_text(page(figures), encoding="utf-8")
        return
    rows, said = rows_of(given.rows), about("python bench/operators.py")
    figures["about"] = {key: said[key] for key in ("processor", "cpus", "python", "pyarrow", "commit")}
    for name in given.only.split(",") if given.only else JOBS:
        figures[name] = measured(JOBS[name], rows, given.rounds)
        shown = ", ".join(f"{key} {value:.1f}" for key, value in figures[name].items() if value)
        print(f"{name:28} {shown}", flush=True)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

"""What an expression costs: one `select` of a million rows each, beside Polars.

    python bench/expressions.py [--only NAME,NAME] [--rows 1000000] [--rounds 10]

Outputs are compared with Polars' first, value for value and in order. Then both run in turn; printed is the
least CPU of the rounds, ns a row, of one worker with source and reader, and of Polars with one thread. What
`drop` takes, which computes nothing, is in each of ours.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # before its import

import numpy as np
import polars as pl
import pyarrow as pa

import ordstream as od
from ordstream.lab.evaluation.machine import about

C, P = od.col, pl.col
WORDS = np.array(["home", "search", "Search item", "basket", "checkout / pay"], dtype=object)

#: Ours, and the same of Polars; both are called, since building one is no part of the figures.
JOBS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "i + j": (lambda: C("i") + C("j"), lambda: P("i") + P("j")),
    "i * 2 + 1": (lambda: C("i") * 2 + 1, lambda: P("i") * 2 + 1),
    "f + g": (lambda: C("f") + C("g"), lambda: P("f") + P("g")),
    "f * 2 + g * 3 - 1": (lambda: C("f") * 2 + C("g") * 3 - 1, lambda: P("f") * 2 + P("g") * 3 - 1),
    "i // j": (lambda: C("i") // C("j"), lambda: P("i") // P("j")),
    "f ** 2": (lambda: C("f") ** 2, lambda: P("f") ** 2),
    "i > j": (lambda: C("i") > C("j"), lambda: P("i") > P("j")),
    "and, or": (
        lambda: (C("i") > 0) & (C("f") < 0.5) | (C("j") == 3),
        lambda: (P("i") > 0) & (P("f") < 0.5) | (P("j") == 3),
    ),
    "when": (
        lambda: od.when(C("i") > 0).then(C("f")).otherwise(C("g")),
        lambda: pl.when(P("i") > 0).then(P("f")).otherwise(P("g")),
    ),
    "when, twice": (
        lambda: od.when(C("i") > 500).then(1).when(C("i") > 0).then(2).otherwise(3),
        lambda: pl.when(P("i") > 500).then(1).when(P("i") > 0).then(2).otherwise(3),
    ),
    "when, texts": (
        lambda: od.when(C("i") > 0).then(C("s")).otherwise(C("r")),
        lambda: pl.when(P("i") > 0).then(P("s")).otherwise(P("r")),
    ),
    "fill_null": (lambda: C("h").fill_null(0), lambda: P("h").fill_null(0)),
    "is_in, 4 numbers": (lambda: C("j").is_in([1, 5, 9, 77]), lambda: P("j").is_in([1, 5, 9, 77])),
    "is_in, 2 texts": (lambda: C("s").is_in(["home", "basket"]), lambda: P("s").is_in(["home", "basket"])),
    "text ==": (lambda: C("s") == "home", lambda: P("s") == "home"),
    "cast to text": (lambda: C("i").cast(str), lambda: P("i").cast(pl.String)),
    "exp": (lambda: C("f").exp(), lambda: P("f").exp()),
    "str.length": (lambda: C("s").str.length(), lambda: P("s").str.len_chars()),
    "str.starts_with": (lambda: C("s").str.starts_with("se"), lambda: P("s").str.starts_with("se")),
    "str.lower": (lambda: C("s").str.lower(), lambda: P("s").str.to_lowercase()),
    "str.replace": (
        lambda: C("s").str.replace("e", "x"), lambda: P("s").str.replace_all("e", "x", literal=True)
    ),
    "dt.hour": (lambda: C("ts").dt.hour(), lambda: P("ts").dt.hour()),
    "dt.truncate": (lambda: C("ts").dt.truncate("1d"), lambda: P("ts").dt.truncate("1d")),
}  # fmt: skip


def rows_of(n: int) -> pa.Table:
    """Numbers of chance, texts, times in order; `h` and `r` have nulls."""
    rng = np.random.default_rng(0)
    return pa.table({
        "i": rng.integers(-1000, 1000, n), "j": rng.integers(1, 100, n),
        "f": rng.normal(size=n), "g": rng.normal(size=n),
        "h": pa.array(rng.integers(0, 100, n), mask=rng.random(n) < 0.3),
        "s": pa.array(WORDS[rng.integers(0, 5, n)], pa.string()),
        "r": pa.array(WORDS[rng.integers(0, 5, n)], pa.string(), mask=rng.random(n) < 0.3),
        "ts": pa.array(np.cumsum(rng.integers(0, 2_000_000, n)), pa.timestamp("us")),
    })  # fmt: skip


def _cpu_ns(work: Callable[[], Any], rows: int) -> float:
    begun = time.process_time_ns()
    work()
    return (time.process_time_ns() - begun) / rows


def main() -> None:
    """Verify, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="names of jobs, with commas between them")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    rows = rows_of(given.rows)
    frame = pl.from_arrow(rows)
    only = [one for one in given.only.split(",") if one]
    source = od.Pipeline(rows.schema)
    nothing = source.select("i")
    least = min(_cpu_ns(lambda: nothing.run(rows, workers=1), given.rows) for _ in range(given.rounds))
    print(f"{'a column as it is':20} {least:8.2f}")
    for name, (make, rival) in JOBS.items():
        if only and name not in only:
            continue
        pipeline, theirs = source.select(a=make()), rival()
        expected = frame.select(a=theirs).to_arrow()
        found = pipeline.run(rows).table
        assert found["a"].equals(expected["a"].cast(found["a"].type)), f"{name}: Polars' answer differs"
        ours = polars = float("inf")
        for _ in range(given.rounds):
            ours = min(ours, _cpu_ns(partial(pipeline.run, rows, workers=1), given.rows))
            polars = min(polars, _cpu_ns(partial(frame.select, a=theirs), given.rows))
        print(f"{name:20} {ours:8.2f}   Polars {polars:8.2f}   ratio {polars / ours:.2f}", flush=True)
    machine = about(" ".join(["python", *sys.argv]))
    print("\n" + ", ".join(f"{key} {value}" for key, value in machine.items()))


if __name__ == "__main__":
    main()

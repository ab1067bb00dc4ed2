"""Columns of structs and of lists of texts beside Polars: CPU of a whole run, one worker and one thread.

    python bench/nested.py [--rows 1000000] [--rounds 5]

Each job's output is compared with Polars' first, value for value, on the first 20,000 rows.
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Callable
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl
import pyarrow as pa

import ordstream as od

C = od.col


def generated(rows: int, seed: int = 1) -> pa.Table:
    """A key, a struct of a number and a text, and lists of up to four texts."""
    chance = np.random.default_rng(seed)
    number = pa.array(chance.integers(0, 1_000, rows))
    sizes = chance.integers(0, 5, rows)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    texts = pa.array(chance.integers(0, 1_000, offsets[-1])).cast(pa.string())
    struct = pa.StructArray.from_arrays([number, number.cast(pa.string())], ["a", "b"])
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts)
    return pa.table({"k": chance.integers(0, 1_000, rows), "s": struct, "t": lists})


def jobs(schema: pa.Schema) -> dict[str, tuple[Any, Callable[[pl.DataFrame], pl.DataFrame]]]:
    rows, s = od.Pipeline(schema), pl.col("s")
    return {
        "filter by a field": (
            rows.filter(C("s").struct["a"] % 2 == 0),
            lambda data: data.filter(s.struct.field("a") % 2 == 0),
        ),
        "filter by the key": (rows.filter(C("k") % 2 == 0), lambda data: data.filter(pl.col("k") % 2 == 0)),
        "a field as a column": (
            rows.with_columns(b=C("s").struct["b"]),
            lambda data: data.with_columns(b=s.struct.field("b")),
        ),
        "the struct before": (
            rows.key_by("k").lag("s"),
            lambda data: data.with_columns(s_lag=s.shift(1).over("k")),
        ),
        "last row of each key": (
            rows.deduplicate("k", keep="last"),
            lambda data: data.unique("k", keep="last", maintain_order=True),
        ),
        "explode": (
            rows.flat_map(od.explode("t", carry=["k"])),
            lambda data: data.select("k", "t").explode("t", empty_as_null=False),
        ),
    }


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def best(run: Callable[[], Any], rounds: int) -> float:
    """Least CPU of so many runs, in ms."""
    found = []
    for _ in range(rounds):
        before = cpu()
        run()
        found.append(1e3 * (cpu() - before))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    data = generated(given.rows)
    frame = pl.DataFrame(data)
    some = min(given.rows, 20_000)
    print(f"{os.cpu_count()} processors; polars {pl.__version__}, pyarrow {pa.__version__}\n")
    print("| job | ordstream, ms | Polars, ms | ratio |\n|---|---|---|---|")
    for name, (pipeline, rival) in jobs(data.schema).items():
        ours = pl.DataFrame(pipeline.run(data.slice(0, some)).table)
        theirs = rival(frame.head(some))
        if name == "last row of each key":  # ours come in the order of the keys, theirs in that of the rows
            theirs = theirs.sort("k")
        assert ours.rows() == theirs.select(ours.columns).rows(), name
        a = best(lambda one=pipeline: one.run(data, workers=1), given.rounds)
        b = best(lambda one=rival: one(frame), given.rounds)
        print(f"| {name} | {a:.0f} | {b:.1f} | {b / a:.2f} |")


if __name__ == "__main__":
    main()

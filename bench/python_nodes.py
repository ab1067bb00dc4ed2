"""A keyed job of plain Python functions: one node against one node per core, in processes and inside Spark.

Every result is compared with one node's first. Ratios are of wall time within one run of this script.
Starting processes (`start_s`, the same job on 1,000 rows) is part of the time; the job is sized so that it
is a small one: 3,000,000 rows take one node 10 to 20 s. All rows of a user are one node's, so the busiest
node bounds the speed-up: `bound` is rows over the rows of that node. With --alpha 1.3 one user has a quarter
of all rows. In Spark the rows come from Parquet in order (`presorted`), or are sorted by Spark with --sort.
Run on a quiet machine:

    python bench/python_nodes.py [--rows 3000000] [--alpha 1.0] [--loops 40] [--processes 2,4,8]
    [--spark [--sort] [--rounds 2]] [--no-processes]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream.fragments.exchange import Route
from ordstream.ground.cpus import allowed_cpus

USERS = 10_000
SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("x", pa.int64())])


def clicks(rows: int, alpha: float = 1.0) -> pa.Table:
    """Ascending times, 10,000 users, Zipf-`alpha`."""
    rng = np.random.default_rng(7)
    weights = 1.0 / np.arange(1, USERS + 1) ** alpha
    users = rng.choice(USERS, rows, p=weights / weights.sum())
    return pa.table([np.arange(rows), users, rng.integers(0, 1 << 30, rows)], schema=SOURCE)


def bound(table: pa.Table, nodes: int) -> float:
    """Rows over the rows of the busiest of the nodes that they go to."""
    (batch,) = table.combine_chunks().to_batches()
    return float(table.num_rows / np.bincount(Route(SOURCE, (1,), nodes)(batch)).max())


def scored(loops: int) -> Callable[[Any, Any, Any], None]:
    """Some microseconds of Python per row: a running score of a user that depends on the order."""

    def step(row: Any, state: Any, emit: Any) -> None:
        score = state.score
        for k in range(loops):
            score = (score * 31 + row.x + k) % 1_000_003
        state.score = score
        emit(row.ts, row.user, score)

    return step


def pipeline(loops: int) -> od.Pipeline:
    """One keyed Python operator."""
    out = {"ts": pa.int64(), "user": pa.int64(), "score": pa.int64()}
    return od.Pipeline(SOURCE).key_by("user").process(scored(loops), schema=out, state={"score": pa.int64()})


def seconds(call: Any) -> tuple[float, Any]:
    """Wall time of a call, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def in_processes(job: od.Pipeline, table: pa.Table, numbers: list[int]) -> dict[int, dict[str, float]]:
    """One process against so many."""
    one, expected = seconds(lambda: job.run(table, workers=0).table)
    rows = {}
    for number in numbers:
        many, found = seconds(lambda number=number: job.run(table, processes=number).table)
        assert found.equals(expected)
        start, _ = seconds(lambda number=number: job.run(table.slice(0, 1_000), processes=number).table)
        rows[number] = {"one_s": one, "many_s": many, "ratio": one / many, "start_s": start}
        rows[number] |= {"bound": bound(table, number)}
    return rows


def in_spark(
    job: od.Pipeline, table: pa.Table, cores: int, folder: str, presorted: bool, rounds: int
) -> dict[str, Any]:
    """One node against one per core inside Spark, in turn, Parquet input. Both run twice on a tenth of the
    rows first, uncounted: Java compiles while it runs."""
    import pyarrow.parquet as pq

    from ordstream.spark import apply, local_session

    path = f"{folder}/rows.parquet"
    pq.write_table(table, path, row_group_size=50_000)
    spark = local_session(cores, node_cores=1)
    frame = spark.read.parquet(path)

    def rows(frame: Any, nodes: int) -> pa.Table:
        return apply(job, frame, order_by="ts", nodes=nodes, presorted=presorted).toArrow()

    few = pa.Table.from_batches(table.slice(0, max(1, len(table) // 10)).to_batches())
    pq.write_table(few, f"{folder}/few.parquet", row_group_size=50_000)
    small = spark.read.parquet(f"{folder}/few.parquet")
    for _ in range(2):
        assert rows(small, 1).equals(rows(small, cores))
    expected = job.run(table, workers=0).table
    walls: dict[str, list[float]] = {"one": [], "per_core": []}
    for _ in range(rounds):
        for name, nodes in (("one", 1), ("per_core", cores)):
            wall, found = seconds(lambda nodes=nodes: rows(frame, nodes))
            assert found.equals(expected)
            walls[name].append(wall)
    spark.stop()
    one, many = (statistics.median(times) for times in walls.values())
    ratio = statistics.median(a / b for a, b in zip(*walls.values(), strict=True))
    return {"one_s": one, "per_core_s": many, "ratio": ratio, "walls_s": walls}


def main() -> None:
    """Print one JSON object."""
    import tempfile

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--alpha", type=float, default=1.0, help="of the users' Zipf distribution")
    parser.add_argument("--loops", type=int, default=40, help="per row, some 0.1 us each")
    parser.add_argument(
        "--processes", type=lambda text: [int(part) for part in text.split(",")], help="1,2,4; one per core"
    )
    parser.add_argument("--spark", action="store_true", help="inside Spark as well")
    parser.add_argument("--sort", action="store_true", help="let Spark sort the rows")
    parser.add_argument("--rounds", type=int, default=2, help="in Spark")
    parser.add_argument("--no-processes", action="store_true", help="inside Spark only")
    given = parser.parse_args()
    cores, table, job = allowed_cpus(), clicks(given.rows, given.alpha), pipeline(given.loops)
    found: dict[str, Any] = {
        "rows": given.rows,
        "alpha": given.alpha,
        "loops": given.loops,
        "cores": cores,
        "bound": bound(table, cores),
    }
    if not given.no_processes:
        found["processes"] = in_processes(job, table, given.processes or [cores])
    if given.spark or given.no_processes:
        with tempfile.TemporaryDirectory() as folder:
            found["spark"] = in_spark(job, table, cores, folder, not given.sort, given.rounds)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

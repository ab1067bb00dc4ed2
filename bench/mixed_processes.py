"""Keys that move between two processes or more, against other ways to spread keys: job throughput, and how
even the loads are over time.

    python bench/mixed_processes.py [--rows N] [--batches 16] [--nodes 2] [--rounds 3] [--work 40]

The jobs and the ways are those of `mixed_jobs.py`; a batch is `--rows` rows of one source. First each way's
output over few rows is compared with `run_serial`, value for value; in each round all outputs of the job
(but `pkg`'s and `ideal`'s counts) are compared with each other. Throughput is rows of the source a second
from the first output on, less the part of them that this output is of all: processes have started then,
planning and moving count. Ways take turns. CPU seconds of the caller and of all nodes, starting included,
are printed: on as many processors as nodes the caller takes its part from them. With `at best` the
throughput is meant that this CPU time allows, evenly divided. Load of a batch is the work of its rows at a
node, counted (`mixed_jobs.stages`): largest over mean, of the ways that have tables of keys.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import Any, NamedTuple

import mixed_jobs as jobs
import numpy as np
import pyarrow as pa

import ordstream as od
from ordstream.balance.mixed import Assignment, Controller
from ordstream.fragments.balancing import controller_of, movable
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.key_costs import NAMED
from ordstream.testing import run_serial

ROWS = {"words": 50_000, "join": 20_000, "q5": 50_000}
Tables = list[tuple[int, Assignment]]  # behind which row each came into force


class Run(NamedTuple):
    """A run: rows of the source per second, CPU seconds of the caller and of all nodes."""

    rate: float
    caller_s: float
    nodes_s: float
    output: pa.Table
    moves: list[Any]
    tables: dict[int, Tables]  # by fragment, as in `explain`

    def largest(self, given: dict[int, list[Any]], nodes: int) -> list[float]:
        """Largest load over the mean, by batch, counted; `given`: of `jobs.stages`."""

        def node_of(fragment: int, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
            at, words = np.zeros(len(keys), np.int32), pa.array(keys)
            for serial, table in self.tables[fragment]:
                at[rows >= serial] = table.route(words)[rows >= serial]
            return at

        found = [jobs.loads(given, number, nodes, node_of) for number in range(len(given[max(given)]))]
        return [float(one.max() / one.mean()) for one in found]


class Told(Controller):
    """A controller that tells which tables come into force, in the order of the run's moves."""

    def __init__(
        self, fragment: int, policy: od.Mixed, nodes: int, told: list[tuple[int, Assignment]]
    ) -> None:
        super().__init__(policy, nodes, NAMED, controller_of(policy, nodes).payback)
        self._fragment, self._told = fragment, told

    def commit(self, move: Any) -> None:
        """As `Controller`."""
        super().commit(move)
        if len(move.keys):
            self._told.append((self._fragment, self.assignment))


def run(job: str, way: str, nodes: int, work: int, made: list[pa.Table]) -> Run:
    """The job over all batches."""
    rows, before = pa.concat_tables(made).combine_chunks(), os.times()
    pipeline, options = jobs.pipeline(job, way, work), jobs.options(job, way, nodes)
    told: list[tuple[int, Assignment]] = []
    tables: dict[int, Tables] = {}
    if "balance" in options:
        keyed = movable(fragments_of(pipeline.plan), nodes)
        options["balance"] = {k: Told(k + 1, options["balance"], nodes, told) for k in keyed}
        tables = {k + 1: [(0, one.assignment)] for k, one in options["balance"].items()}
    with pipeline.stream(rows, processes=nodes, **options) as stream:
        batches = [next(stream)]
        began = time.perf_counter()
        batches += stream
        took = time.perf_counter() - began
        moves = list(getattr(stream, "moves", []))
    for one, (fragment, table) in zip(moves, told, strict=True):
        tables[fragment].append((one.serial, table))
    after = os.times()
    output = pa.Table.from_batches(batches, schema=stream.schema)
    own = after.user + after.system - before.user - before.system
    of_nodes = after.children_user + after.children_system - before.children_user - before.children_system
    behind = 1 - batches[0].num_rows / output.num_rows
    return Run(behind * rows.num_rows / took, own, of_nodes, output, moves, tables)


def verified(job: str, way: str, nodes: int, work: int, seed: int) -> bool:
    """Whether a short run gives `run_serial`'s output."""
    made = jobs.tables(job, way, nodes, 3_000, 4, seed)
    expected = run_serial(*jobs.reference(job, way, work, made))
    return bool(run(job, way, nodes, work, made).output.equals(expected.table))


def main() -> int:
    """Verify, measure, show."""
    parser = jobs.parser(__doc__, ROWS, rounds=3, work=40)
    parser.add_argument("--nodes", type=int, default=2)
    asked = parser.parse_args()
    figures: list[dict[str, Any]] = []
    for job in asked.jobs:
        ways = jobs.ways(job, asked)
        for way in ways:
            if not verified(job, way, asked.nodes, asked.work, asked.seed):
                print(f"{job} {way}: WRONG OUTPUT", file=sys.stderr)
                return 1
        print(f"{job}: every way's output is run_serial's", flush=True)
        figures += measured(job, ways, asked)
    print(f"{time.strftime('%Y-%m-%d')}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1))
    return 0


def measured(job: str, ways: list[str], asked: Any) -> list[dict[str, Any]]:
    """All ways in turn."""
    rows, found = asked.rows or ROWS[job], {way: list[Run]() for way in ways}
    for _ in range(asked.rounds):
        for way in ways:
            made = jobs.tables(job, way, asked.nodes, rows, asked.batches, asked.seed, asked.bursts)
            one = run(job, way, asked.nodes, asked.work, made)
            if way == "hash":
                heavy, expected = jobs.share(job, asked.nodes, asked.work, made), one.output
            assert (way in jobs.BY_SLOT and job == "words") or one.output.equals(expected)
            found[way].append(one._replace(output=None))
    print(f"{job}: batch by batch the ring gives the fullest node {heavy:.1%} of the work")
    cores, shown = len(os.sched_getaffinity(0)), []
    for way, runs in found.items():
        rate = statistics.median(one.rate for one in runs)
        against = [mine.rate / hashed.rate for mine, hashed in zip(runs, found["hash"], strict=True)]
        last = runs[-1]
        best = (
            rows
            * asked.batches
            / max(last.nodes_s / asked.nodes, (last.nodes_s + last.caller_s) / min(cores, asked.nodes + 1))
        )
        print(
            f"{job:6} {asked.nodes} processes  {way:6} {rate:10,.0f} rows/s  "
            f"{statistics.median(against):5.2f} x hash   CPU s: caller {last.caller_s:.2f}, nodes "
            f"{last.nodes_s:.2f}; at best {best:,.0f} rows/s   {len(last.moves)} moves, "
            f"{sum(one.keys for one in last.moves):,} keys, {sum(one.bytes for one in last.moves):,} bytes",
            flush=True,
        )
        loads = last.largest(jobs.stages(job, way, asked.work, made), asked.nodes) if last.tables else []
        if loads:
            by_batch = " ".join(f"{one:.2f}" for one in loads)
            print(f"         largest/mean {statistics.mean(loads):.2f}; by batch: {by_batch}", flush=True)
        shown.append(
            {"job": job, "nodes": asked.nodes, "way": way, "rates": [one.rate for one in runs]}
            | {"caller_s": last.caller_s, "nodes_s": last.nodes_s, "moves": len(last.moves), "loads": loads}
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())

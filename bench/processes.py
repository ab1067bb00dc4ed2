"""Node processes: throughput beside a commit before, the latency of a row through two pieces of a cut, and
POSG beside its rivals.

    python bench/processes.py throughput [--baseline <commit>] [--clicks 5000000] [--rounds 3]
    python bench/processes.py latency [--seconds 20] [--load 0.5] [--rate 1000000]
    python bench/processes.py posg [--tuples 12288] [--work sleep]

*throughput*: Q2 over synthetic clicks (bench/clicks.py) and a keyed job of plain Python functions
(bench/python_nodes.py), with one process and with one per core. A baseline runs from the package of its
commit, which takes this tree's compiled core: so the core must be the same. They take turns; every answer is
compared; starting processes is part of the time. The job in Python runs once more with a map of its keys
(`mapped`), made of the first 100,000 rows as part of the time: by hash one of two processes has 1.12 times
the mean, since one user has a tenth of all rows.

*latency*: an open loop. Rows of a keyed count, cut by a second key, come at `load` of the throughput that
the same stream has in a closed loop over a table (or of `--rate` rows a second), a batch every 1 ms. A row's
latency is from its intended send time to when its batch is with the reader. How late the source itself was,
which is part of it, is printed beside (`late`), and the median of the last second: where that is far above
the whole's, the rate was more than the stream sustains. Run on a quiet machine.

*posg*: bench/process_groupings.py says what is measured.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import process_groupings
import pyarrow as pa

ROOT = Path(__file__).resolve().parent.parent
TICK_S = 0.001
WARM_S = 2.0
SAMPLE = 100_000


# ------------------------------------------------------------ throughput


def work(job: str, rows: int, processes: int) -> dict[str, Any]:
    """Run one job in this process's ordstream: wall seconds, CPU seconds of all processes, the answer."""
    import ordstream as od

    if job == "q2":
        from clicks import clicks
        from queries import pipeline

        table, tested = clicks(rows), pipeline("q2")
    else:
        import python_nodes

        table, tested = python_nodes.clicks(rows), python_nodes.pipeline(40)
    assert Path(od.__file__).parents[1] == Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])
    start = time.perf_counter()
    options: dict[str, Any] = {"workers": 1} if processes == 1 else {"processes": processes}
    if job == "mapped":
        sample = table.column("user").slice(0, SAMPLE).combine_chunks()
        options["grouping"] = {"process_1": od.DKG(theta=0.01).fit(sample, processes)}
    found = tested.run(table, **options)
    wall = time.perf_counter() - start
    digest = hashlib.sha256()
    for column in found.table.combine_chunks().columns:
        digest.update(repr(column.to_pylist()).encode())
    return {"wall_s": wall, "rows_out": found.table.num_rows, "answer": digest.hexdigest()}


def in_tree(tree: Path, job: str, rows: int, processes: int) -> dict[str, Any]:
    """`work` in a process of its own with another tree's package; CPU seconds are of all its processes."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree), str(ROOT / "bench")])}
    command = [sys.executable, __file__, "work", job, str(rows), str(processes)]
    before = os.times()
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    after = os.times()
    cpu = (after.children_user + after.children_system) - (before.children_user + before.children_system)
    return {**json.loads(ran.stdout), "cpu_s": cpu}


def baseline_tree(commit: str, into: Path, core_fits: bool) -> Path:
    """The package of a commit, with this tree's compiled core."""
    changed = subprocess.run(
        ["git", "diff", "--name-only", commit, "--", "ordstream/*.pyx", "ordstream/*.pxd"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    if changed and not core_fits:
        raise SystemExit(f"the compiled core differs from {commit}'s: {changed.split()[0]} and others")
    tree = into / "tree"
    tree.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "ordstream"], cwd=ROOT, capture_output=True, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    for module in (ROOT / "ordstream").rglob("*.so"):
        shutil.copy2(module, tree / module.relative_to(ROOT))
    return tree


def throughput(asked: argparse.Namespace) -> None:
    """Print one JSON object."""
    cores = len(os.sched_getaffinity(0))
    found: dict[str, Any] = {"cores": cores, "baseline": asked.baseline}
    with tempfile.TemporaryDirectory() as folder:
        tree = baseline_tree(asked.baseline, Path(folder), asked.core_fits) if asked.baseline else None
        for job, rows in (("q2", asked.clicks), ("python", asked.rows)):
            ways: dict[str, Callable[[], dict[str, Any]]] = {
                "one": lambda job=job, rows=rows: in_tree(ROOT, job, rows, 1),
                "live": lambda job=job, rows=rows: in_tree(ROOT, job, rows, cores),
            }
            if job == "python":
                ways["mapped"] = lambda rows=rows: in_tree(ROOT, "mapped", rows, cores)
            if tree is not None:
                ways["baseline"] = lambda job=job, rows=rows, tree=tree: in_tree(tree, job, rows, cores)
            runs: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
            for _ in range(asked.rounds):
                for name, way in ways.items():
                    runs[name].append(way())
            answers = {run["answer"] for several in runs.values() for run in several}
            assert len(answers) == 1, f"{job}: answers differ"
            walls = {name: [run["wall_s"] for run in several] for name, several in runs.items()}

            def ratio(a: str, b: str, walls: dict[str, list[float]] = walls) -> float:
                return statistics.median(x / y for x, y in zip(walls[a], walls[b], strict=True))

            found[job] = {
                "rows": rows,
                "wall_s": {name: statistics.median(several) for name, several in walls.items()},
                "cpu_s": {n: statistics.median(r["cpu_s"] for r in several) for n, several in runs.items()},
                **{f"{name} / live": ratio(name, "live") for name in ways if name != "live"},
            }
    print(json.dumps(found, indent=2))


# ------------------------------------------------------------ latency

SOURCE = pa.schema([("user", pa.int64()), ("item", pa.int64()), ("due", pa.int64())])


def rows(rng: np.random.Generator, n: int, due: int) -> pa.RecordBatch:
    """Rows that are due at a time (ns, monotonic)."""
    columns = [rng.integers(0, 10_000, n), rng.integers(0, 1_000, n), np.full(n, due)]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=SOURCE)


def latency(asked: argparse.Namespace) -> None:
    """Print one JSON object."""
    import ordstream as od

    pipeline = (
        od.Pipeline(SOURCE)
        .key_by("user").scan(seen=od.count())
        .key_by("item").scan(of=od.count())
    )  # fmt: skip
    rng = np.random.default_rng(7)
    cores = len(os.sched_getaffinity(0))
    rate = asked.rate or closed_loop(pipeline, rng, cores)
    per_tick = max(1, round(asked.load * rate * TICK_S))
    began = 0.0
    late: list[float] = []

    def paced() -> Iterator[pa.RecordBatch]:
        nonlocal began
        yield rows(rng, 1, time.monotonic_ns())  # the processes start
        began = time.monotonic() + 5.0
        for tick in range(int((asked.seconds + WARM_S) / TICK_S)):
            due = began + tick * TICK_S
            time.sleep(max(0.0, due - time.monotonic()))
            made = rows(rng, per_tick, int(due * 1e9))
            late.append(time.monotonic() - due)
            yield made

    waits: list[Any] = []
    before = os.times()
    with pipeline.stream(paced(), processes=cores) as out:
        for batch in out:
            now = time.monotonic_ns()
            due = batch.column(batch.schema.get_field_index("due")).to_numpy()
            waits.append((now - due)[due > int((began + WARM_S) * 1e9)] if began else due[:0])
    after = os.times()
    found = np.concatenate(waits) / 1e6
    p50, p90, p99 = np.percentile(found, (50, 90, 99)).tolist()
    told = {"rows_per_s": rate, "load": asked.load, "rows": len(found), "batches": len(waits)}
    told |= {"p50_ms": p50, "p90_ms": p90, "p99_ms": p99, "most_ms": float(found.max())}
    told["last_second_p50_ms"] = float(np.median(found[-round(asked.load * rate) :]))
    late_50, late_99 = np.percentile(late[int(WARM_S / TICK_S) :], (50, 99)).tolist()
    told["late_ms"] = {"p50": late_50 * 1e3, "p99": late_99 * 1e3}
    told["caller_cpu_s"] = after.user + after.system - before.user - before.system
    told["nodes_cpu_s"] = (
        after.children_user + after.children_system - before.children_user - before.children_system
    )
    print(json.dumps(told, indent=2))


def closed_loop(pipeline: Any, rng: np.random.Generator, cores: int) -> float:
    """Rows per second of a stream over a table, from its first output on."""
    closed = pa.Table.from_batches([rows(rng, 16_384, 0) for _ in range(200)])
    with pipeline.stream(closed, processes=cores) as out:
        given, first = 0, 0.0
        for batch in out:
            first = first or time.perf_counter()  # the processes have started
            given += batch.num_rows
        return given / (time.perf_counter() - first)


def main() -> None:
    """One of the three, or the work of one process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("throughput")
    one.add_argument("--baseline", help="a commit to compare with, whose compiled core is this tree's")
    one.add_argument("--core-fits", action="store_true", help="its core differs in comments only")
    one.add_argument("--clicks", type=int, default=5_000_000, help="of Q2")
    one.add_argument("--rows", type=int, default=3_000_000, help="of the job in plain Python")
    one.add_argument("--rounds", type=int, default=3)
    two = what.add_parser("latency")
    two.add_argument("--seconds", type=float, default=20.0)
    two.add_argument("--rate", type=float, help="rows a second, in place of a closed loop's")
    two.add_argument("--load", type=float, default=0.5, help="of the closed loop's throughput")
    process_groupings.options(what.add_parser("posg"))
    of_process = what.add_parser("work")
    of_process.add_argument("job")
    of_process.add_argument("rows", type=int)
    of_process.add_argument("processes", type=int)
    asked = parser.parse_args()
    if asked.what == "work":
        print(json.dumps(work(asked.job, asked.rows, asked.processes)))
    elif asked.what == "posg":
        print(json.dumps(process_groupings.posg(asked), indent=2))
    else:
        {"throughput": throughput, "latency": latency}[asked.what](asked)


if __name__ == "__main__":
    main()

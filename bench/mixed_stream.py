"""Keys that move between micro-batches, against other ways to spread keys: job throughput, and how even the
loads are over time.

    python bench/mixed_stream.py [--rows N] [--batches 16] [--nodes 2 4] [--rounds 1] [--json FILE]

Two jobs, whose functions are plain Python, so that a key's work is worth a node:

1. `words`: word count over text whose frequencies shift. The text is Python's own documentation
   (`pydoc_data.topics`). Every fourth batch another topic is talked about: words are drawn by their
   frequencies there, to the power of 1.6, which is what makes few of them heavy. Topics are those of which a
   hash gives one of two nodes at least 65 % of the words.
2. `join`: a windowed self-join per key: each row meets the rows of its word among the last 20,000 rows.
   Words are drawn by their frequencies in all of the text; for four batches some three come in bursts.

Ways: `hash`, consistent hashing, the ring that Mixed begins with, and no key ever moves (a θ_max that
nothing exceeds; what is told of keys, is told); `plain`, the default hash, which tells nothing and spreads
keys in another way; `mixed`, `od.Mixed(theta=0.08)`; `readj`, that rival's plans in the same controller; and
for `words` also `pkg` and `ideal`, which don't look at where a word's state is: each node counts what it
gets, and what it would take to merge the partial counts is left out in their favour. For `join` both would
make smaller windows, another answer.

First each way's output over few rows is compared with `run_serial`, value for value. Throughput is the rows
of all batches but the first over their whole time: Spark's job, planning, moving, commit. Load of a batch is
its rows at a node (`words`), or its rows and the pairs they make (`join`): largest over mean.
"""

from __future__ import annotations

import argparse
import array
import base64
import json
import os
import pydoc_data.topics
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od
from ordstream.balance.baselines import PKG
from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap
from ordstream.balance.mixed import Statistics, readj
from ordstream.fragments.exchange import Route
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.kept_maps import map_of
from ordstream.testing import run_serial

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string()), ("slot", pa.int64())])
SPARK = "n long, word string, slot long"
WINDOW, PHASE, POWER, HEAVY = 20_000, 4, 1.6, 0.65
WAYS = {
    "words": ("hash", "mixed", "readj", "pkg", "ideal", "plain"),
    "join": ("hash", "mixed", "readj", "plain"),
}
ROWS = {"words": 500_000, "join": 50_000}
BY_SLOT = ("pkg", "ideal")


class Readj(od.Mixed):
    """Readj's plans where Mixed's are asked for."""

    def plan(self, statistics: Statistics) -> Any:
        return readj(statistics, self.theta)


# ------------------------------------------------------------------------------------------------- rows


def hashed(words: Any, nodes: int) -> np.ndarray:
    """The node that the ring gives each word."""
    return od.Mixed().ring(nodes).route(pa.array(words, pa.string()))


def plainly_hashed(words: Any, nodes: int) -> np.ndarray:
    """The node that the default hash gives each word."""
    batch = pa.record_batch({"word": words})
    return Route(batch.schema, (0,), nodes)(batch)


def topics() -> list[tuple[np.ndarray, np.ndarray]]:
    """(words, their shares) of each topic of the documentation."""
    found = []
    for _, text in sorted(pydoc_data.topics.topics.items()):
        counts = Counter(re.findall(r"[a-z_]{2,}", text.lower()))
        if len(counts) >= 100:
            words, count = zip(*sorted(counts.items()), strict=True)
            share = np.array(count, dtype=np.float64) ** POWER
            found.append((np.array(words), share / share.sum()))
    return found


def word_batches(rows: int, batches: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([seed, 1])
    heavy = []
    for words, share in topics():
        part = float(share[hashed(words, 2) == 0].sum())
        if max(part, 1 - part) >= HEAVY:
            heavy.append((words, share))
    for number in range(batches):
        words, share = heavy[(number // PHASE) % len(heavy)]
        yield words[rng.choice(len(words), size=rows, p=share)]


def burst_batches(rows: int, batches: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([seed, 2])
    counts = Counter(re.findall(r"[a-z_]{2,}", " ".join(pydoc_data.topics.topics.values()).lower()))
    words = np.array(sorted(counts))
    share = np.array([counts[word] for word in words], dtype=np.float64)
    share /= share.sum()
    for number in range(batches):
        if number % PHASE == 0:
            bursts = rng.choice(len(words), 3, replace=False)
        now = 0.7 * share
        now[bursts] += 0.1
        yield words[rng.choice(len(words), size=rows, p=now / now.sum())]


def tables(job: str, way: str, nodes: int, rows: int, batches: int, seed: int) -> list[pa.Table]:
    """The batches' rows; `slot`: where a way that does not look at keys sends each."""
    made, first = [], 0
    split = PKG(nodes)
    for words in (word_batches if job == "words" else burst_batches)(rows, batches, seed):
        numbers = np.arange(first, first + rows)
        slots = split.route(pa.array(words)) if way == "pkg" else numbers % nodes
        made.append(pa.table([numbers, pa.array(words), slots.astype(np.int64)], schema=SCHEMA))
        first += rows
    return made


def pairs(tables_: list[pa.Table]) -> np.ndarray:
    """Work of each row of the self-join: itself, and the rows that it meets."""
    words = np.concatenate([one["word"].to_numpy(zero_copy_only=False) for one in tables_])
    _, word = np.unique(words, return_inverse=True)
    order = np.argsort(word, kind="stable")
    met = np.empty(len(words))
    ends = np.flatnonzero(np.diff(word[order])) + 1
    for places in np.split(order, ends):
        met[places] = np.arange(len(places)) - np.searchsorted(places, places - WINDOW)
    return 1 + met


# ------------------------------------------------------------------------------------------------- jobs


def occurred(row: Any, state: Any, emit: Any) -> None:
    """Word count."""
    state.seen += 1
    emit(row.word, state.seen)


def joined(row: Any, state: Any, emit: Any) -> None:
    """How many rows of the word are in the window, and how far they are behind, all together."""
    first = row.n - WINDOW
    while state and state[0] < first:
        state.pop(0)
    behind = 0
    for n in state:
        behind += row.n - n
    emit(row.word, len(state), behind)
    state.append(row.n)


def encoded(state: list[int]) -> bytes:
    return array.array("q", state).tobytes()


def decoded(data: bytes) -> list[int]:
    return array.array("q", data).tolist()


def pipeline(job: str, way: str) -> Any:
    source = od.Pipeline(SCHEMA)
    keyed = source.key_by("slot").scan(here=od.count()).key_by("slot", "word") if way in BY_SLOT else None
    keyed = keyed or source.key_by("word")
    if job == "words":
        fields = {"word": pa.string(), "seen": pa.int64()}
        return keyed.process(occurred, schema=fields, state={"seen": pa.int64()})
    fields = {"word": pa.string(), "met": pa.int64(), "behind": pa.int64()}
    return keyed.process(joined, schema=fields, state=od.codec(encoded, decoded, list))


def options(way: str, nodes: int) -> dict[str, Any]:
    if way in BY_SLOT:  # slot s goes to node s
        drawn = DKG().learner(nodes).build()
        return {"grouping": KeyMap(nodes, drawn.hashes, drawn.buckets, [(s, s) for s in range(nodes)])}
    if way == "plain":
        return {}
    return {"balance": {"hash": od.Mixed(1e6), "mixed": od.Mixed(0.08), "readj": Readj(0.08)}[way]}


@dataclass
class Run:
    """One stream over all batches."""

    epochs: list[dict[str, Any]]
    log: EpochLog
    by_slot: bool

    def throughput(self, rows: int) -> float:
        """Rows a second, the first batch left out."""
        behind = self.epochs[1:]
        return rows * len(behind) / sum(one["latency_ms"] / 1e3 for one in behind)

    def largest(self, made: list[pa.Table], nodes: int, work: np.ndarray) -> list[float]:
        """Largest load over the mean, by batch."""
        found, first = [], 0
        for manifest, rows in zip(self.log.all(), made, strict=True):
            key = "slot" if self.by_slot else "word"
            column = rows[key].combine_chunks()
            held = {one: map_of(base64.b64decode(data)) for one, data in manifest.maps.items()}
            at = next(iter(held.values())).route(column) if held else plainly_hashed(column, nodes)
            mine = work[first : first + rows.num_rows]
            loads = np.bincount(at, weights=mine, minlength=nodes)
            found.append(float(loads.max() / loads.mean()))
            first += rows.num_rows
        return found


def run(spark: Any, folder: Path, job: str, way: str, nodes: int, made: list[pa.Table]) -> Run:
    """Stream the batches, a file each."""
    (folder / "in").mkdir(parents=True)
    for number, rows in enumerate(made):
        path = folder / "in" / f"{number:05}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_000_000_000 + number,) * 2)
    reader = spark.readStream.schema(SPARK).option("maxFilesPerTrigger", 1)
    epochs: list[dict[str, Any]] = []
    query = od.spark.stream(
        pipeline(job, way), reader.parquet(str(folder / "in")), checkpoint=folder / "c", order_by="n",
        nodes=nodes, trigger="available now", on_epoch=epochs.append, **options(way, nodes),
    )  # fmt: skip
    query.awaitTermination()
    return Run(epochs, EpochLog(folder / "c"), way in BY_SLOT)


def verified(spark: Any, folder: Path, job: str, way: str, nodes: int, seed: int) -> bool:
    """Whether a short stream gives `run_serial`'s output."""
    made = tables(job, way, nodes, 3_000, 4, seed)
    run(spark, folder, job, way, nodes, made)
    found = [tuple(row) for row in od.spark.read_output(folder / "c").collect()]
    return found == [tuple(row) for row in run_serial(pipeline(job, way), pa.concat_tables(made)).rows]


def moves(found: Run) -> dict[str, int]:
    """What moved, over all batches."""
    told = [one for epoch in found.epochs for one in epoch["balance"].values()]
    return {
        "keys": sum(one["moved"]["by_plan"]["keys"] for one in told),
        "bytes": sum(one["moved"]["by_plan"]["bytes"] for one in told),
        "moves": sum(one["moved"]["by_plan"]["keys"] > 0 for one in told),
    }


def main() -> int:
    """Verify, measure, show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rows", type=int, help="of a batch; default 500,000 words, 50,000 to join")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    spark = od.spark.local_session(2, node_cores=1)
    shown: dict[str, Any] = {"load": os.getloadavg(), "figures": []}
    with tempfile.TemporaryDirectory(prefix="ordstream-bench-") as name:
        folder = Path(name)
        for job in asked.jobs:
            for way in WAYS[job]:
                if not verified(spark, folder / f"check-{job}-{way}", job, way, 2, asked.seed):
                    print(f"{job} {way}: WRONG OUTPUT", file=sys.stderr)
                    return 1
            print(f"{job}: every way's output is run_serial's", flush=True)
            for nodes in asked.nodes:
                measure(spark, folder, job, nodes, asked, shown["figures"])
    print(f"{time.strftime('%Y-%m-%d')}, load {shown['load'][0]:.1f}", file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps(shown, indent=1))
    spark.stop()
    return 0


def measure(
    spark: Any, folder: Path, job: str, nodes: int, asked: Any, figures: list[dict[str, Any]]
) -> None:
    """All ways in turn, so that what the machine does besides meets all alike."""
    rows = asked.rows or ROWS[job]
    rates: dict[str, list[float]] = {way: [] for way in WAYS[job]}
    last: dict[str, dict[str, Any]] = {}
    for turn in range(asked.rounds):
        for way in WAYS[job]:
            made = tables(job, way, nodes, rows, asked.batches, asked.seed)
            found = run(spark, folder / f"{job}-{way}-{nodes}-{turn}", job, way, nodes, made)
            work = pairs(made) if job == "join" else np.ones(rows * asked.batches)
            rates[way].append(found.throughput(rows))
            last[way] = {"loads": found.largest(made, nodes, work)} | moves(found)
    for way, told in last.items():
        rate, loads = statistics.median(rates[way]), told["loads"]
        against = statistics.median(
            mine / other for mine, other in zip(rates[way], rates["hash"], strict=True)
        )
        figures.append({"job": job, "nodes": nodes, "way": way, "rates": rates[way], **told})
        print(
            f"{job:6} {nodes} nodes  {way:6} {rate:10,.0f} rows/s  {against:5.2f} x hash   largest/mean "
            f"{statistics.mean(loads):.2f} (most {max(loads):.2f})   {told['moves']} moves, "
            f"{told['keys']:,} keys, {told['bytes']:,} bytes"
        )
        print("         by batch: " + " ".join(f"{one:.2f}" for one in loads), flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""The jobs over which keys move in `mixed_stream.py` (Spark) and `mixed_processes.py`: their rows, their
pipelines, and the ways to spread keys.

1. `words`: word count over text whose frequencies shift. The text is Python's own documentation
   (`pydoc_data.topics`). Every fourth batch another topic is talked about: words are drawn by their
   frequencies there, to the power of 1.6, which is what makes few of them heavy. Topics are those of which a
   hash gives one of two nodes at least 65 % of the words. A word's letters are gone through `--work` times,
   which stands for what is done with a word.
2. `join`: a windowed self-join per key: each row meets the rows of its word among the last 20,000 rows.
   Words are drawn by their frequencies in all of the text; for four batches `--bursts` of them come in
   bursts that make 30 % of the rows. Of three, the default, no split is better than 55 % of the work; of
   more than three, words are taken that give one of two nodes at least 65 % of the work by a hash.
3. `q5`: TPC-H's Q5 as a continuous query, a graph whose joins have skewed keys (`mixed_q5.py`).

Functions are plain Python, so that a key's work is worth a node.

Ways: `hash`, consistent hashing, the ring that Mixed begins with, and no key ever moves (a θ_max that
nothing exceeds; what is told of keys, is told); `plain`, the default hash, which tells nothing and spreads
keys in another way; `mixed`, `od.Mixed(theta=0.08)`; `readj`, that rival's plans in the same controller;
`eager` (only if asked for), `mixed` with each plan carried out at once, whether it pays or not; `ideal`,
rows in turn, whatever their word is; and for `words` also `pkg`. Those two don't look at where a word's
state is. For `words` each node counts what it gets, and what it would take to merge the counts is left out
in their favour: the answer that is compared is that of such counts. For `join` a row of `ideal` brings along
what it would meet, and the same loop is gone through without a window: the answer is the join's own. So it
is for `q5`.
"""

from __future__ import annotations

import argparse
import array
import pydoc_data.topics
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mixed_q5 as q5
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ordstream as od
from ordstream.balance.baselines import PKG
from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap
from ordstream.balance.mixed import Statistics, readj
from ordstream.fragments.exchange import Route

COLUMNS = {name: pa.int64() for name in ("n", "slot", "met", "sum")} | {"word": pa.string()}
WINDOW, PHASE, POWER, HEAVY = 20_000, 4, 1.6, 0.65
#: Words that burst, if not otherwise asked for.
FEW = 3
WAYS = {
    "words": ("hash", "mixed", "readj", "pkg", "ideal", "plain"),
    "join": ("hash", "mixed", "readj", "ideal", "plain"),
    "q5": ("hash", "mixed", "readj", "ideal", "plain"),
}
BY_SLOT = ("pkg", "ideal")
#: What a row costs beside its letters, about, in times that a letter is looked at.
ROW = 25


class Readj(od.Mixed):
    """Readj's plans where Mixed's are asked for."""

    def plan(self, statistics: Statistics) -> Any:
        return readj(statistics, self.theta)


# ------------------------------------------------------------------------------------------------- rows


def hashed(keys: Any, nodes: int) -> np.ndarray:
    """The node that the ring gives each key."""
    return od.Mixed().ring(nodes).route(pa.array(keys))


def plainly_hashed(keys: Any, nodes: int) -> np.ndarray:
    """The node that the default hash gives each key."""
    batch = pa.record_batch({"key": keys})
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


def burst_batches(rows: int, batches: int, seed: int, count: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([seed, 2])
    counts = Counter(re.findall(r"[a-z_]{2,}", " ".join(pydoc_data.topics.topics.values()).lower()))
    words = np.array(sorted(counts))
    share = np.array([counts[word] for word in words], dtype=np.float64)
    share /= share.sum()
    node = hashed(words, 2)
    for number in range(batches):
        while number % PHASE == 0:
            bursts = rng.choice(len(words), count, replace=False)
            now = 0.7 * share
            now[bursts] += 0.3 / count
            work = now**2  # a word's rows meet each other
            part = float(work[node == 0].sum() / work.sum())
            if count <= FEW or max(part, 1 - part) >= HEAVY:
                break
        yield words[rng.choice(len(words), size=rows, p=now / now.sum())]


def tables(
    job: str, way: str, nodes: int, rows: int, batches: int, seed: int, bursts: int = FEW
) -> list[pa.Table]:
    """The batches' rows with the columns that the way reads; `slot`: where a way that does not look at keys
    sends each; `met` and `sum`: how many rows it meets, and the sum of their numbers.
    """
    if job == "q5":
        return q5.batches_of(way, nodes, rows, batches, seed)
    drawn = word_batches if job == "words" else partial(burst_batches, count=bursts)
    words = [*drawn(rows, batches, seed)]
    numbers, split = np.arange(rows * batches), PKG(nodes)
    met, behind = meetings(np.concatenate(words)) if (job, way) == ("join", "ideal") else (numbers, numbers)
    made = []
    for first, word in zip(range(0, len(numbers), rows), words, strict=True):
        here = slice(first, first + rows)
        slots = split.route(pa.array(word)) if way == "pkg" else numbers[here] % nodes
        of = {"n": numbers[here], "word": word, "slot": slots, "met": met[here], "sum": behind[here]}
        made.append(pa.table([of[one.name] for one in schema(job, way)], schema=schema(job, way)))
    return made


def meetings(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many rows of its word are in each row's window, and the sum of their numbers."""
    _, word = np.unique(words, return_inverse=True)
    order = np.argsort(word, kind="stable")
    met, sums = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    ends = np.flatnonzero(np.diff(word[order])) + 1
    for places in np.split(order, ends):
        first = np.searchsorted(places, places - WINDOW)
        upto = np.concatenate([[0], np.cumsum(places)])
        met[places] = np.arange(len(places)) - first
        sums[places] = upto[:-1] - upto[first]
    return met, sums


def stages(job: str, way: str, work: int, made: list[pa.Table]) -> dict[int, list[tuple[np.ndarray, ...]]]:
    """By number of the fragment, as in `explain`, and batch: what its rows go to a node by, their work, and
    their numbers.
    """
    if job == "q5":
        return q5.stages(way, made)
    key = "slot" if way in BY_SLOT else "word"
    ends = np.cumsum([one.num_rows for one in made])[:-1]
    of_rows = np.split(work_of(job, work, made), ends)
    return {
        2: [
            (one[key].to_numpy(), mine, one["n"].to_numpy()) for one, mine in zip(made, of_rows, strict=True)
        ]
    }


def loads(
    given: dict[int, list[tuple[np.ndarray, ...]]],
    number: int,
    nodes: int,
    node_of: Callable[[int, np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Work of each node in a batch, of all fragments together; `node_of` gets a fragment's number, keys, and
    the rows' numbers.
    """
    found = np.zeros(nodes)
    for fragment, batches in given.items():
        keys, work, rows = batches[number]
        found += np.bincount(node_of(fragment, keys, rows), weights=work, minlength=nodes)
    return found


def share(job: str, nodes: int, work: int, made: list[pa.Table]) -> float:
    """Of the work, what the ring gives the fullest node, batch by batch."""
    given = stages(job, "hash", work, made)
    found = [
        loads(given, number, nodes, lambda _, keys, __: hashed(keys, nodes)) for number in range(len(made))
    ]
    return float(sum(one.max() for one in found) / np.sum(found))


def work_of(job: str, work: int, made: list[pa.Table]) -> np.ndarray:
    """Work of each row: of the self-join itself, and the rows that it meets; of a word `ROW`, and its
    letters as often as they are gone through.
    """
    column = pa.concat_tables(made)["word"]
    if job == "words":
        return ROW + work * pc.utf8_length(column).to_numpy()
    return 1 + meetings(column.to_numpy())[0]


# ------------------------------------------------------------------------------------------------- jobs


def occurred(work: int) -> Callable[..., None]:
    """Word count."""

    def count(row: Any, state: Any, emit: Any) -> None:
        code = 0
        for _ in range(work):
            for letter in row.word:
                code = (code * 31 + ord(letter)) % 65_521
        state.seen += 1
        emit(row.word, state.seen, code)

    return count


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


def brought(row: Any, state: Any, emit: Any) -> None:
    """The same for a row that brings along what it meets, by as long a loop."""
    behind = 0
    for n in range(row.met):
        behind += row.n - n
    emit(row.word, row.met, behind + row.met * (row.met - 1) // 2 - row.sum)
    state.seen += 1


def encoded(state: list[int]) -> bytes:
    return array.array("q", state).tobytes()


def decoded(data: bytes) -> list[int]:
    return array.array("q", data).tolist()


def schema(job: str, way: str) -> pa.Schema:
    """Of the rows."""
    if job == "q5":
        return q5.schema(way)
    names = ["n", "word"]
    names += ["slot"] if way in BY_SLOT else []
    names += ["met", "sum"] if (job, way) == ("join", "ideal") else []
    return pa.schema([(name, COLUMNS[name]) for name in names])


def pipeline(job: str, way: str, work: int) -> od.Pipeline:
    """The job as a way runs it."""
    if job == "q5":
        return q5.pipeline(way)
    source = od.Pipeline(schema(job, way))
    seen = {"seen": pa.int64()}
    if job == "join":
        fields = {"word": pa.string(), "met": pa.int64(), "behind": pa.int64()}
        if way == "ideal":
            return source.key_by("slot").process(brought, schema=fields, state=seen)
        return source.key_by("word").process(joined, schema=fields, state=od.codec(encoded, decoded, list))
    keyed = source.key_by("word")
    if way in BY_SLOT:  # rows go by the slot alone, and are counted by both
        keyed = source.key_by("slot").scan(here=od.count()).key_by("slot", "word")
    fields = {"word": pa.string(), "seen": pa.int64(), "code": pa.int64()}
    return keyed.process(occurred(work), schema=fields, state=seen)


def reference(job: str, way: str, work: int, made: list[pa.Table]) -> tuple[od.Pipeline, pa.Table]:
    """The pipeline and the rows whose sequential answer the way must give: the job's own, but for counts of
    a node's own.
    """
    rows = pa.concat_tables(made)
    if way in BY_SLOT and job == "words":
        return pipeline(job, way, work), rows
    return pipeline(job, "mixed", work), rows.select(schema(job, "mixed").names)


def options(job: str, way: str, nodes: int) -> dict[str, Any]:
    """Of `stream`, what spreads keys."""
    if way in BY_SLOT:  # slot s goes to node s
        drawn = DKG().learner(nodes).build()
        slots = KeyMap(nodes, drawn.hashes, drawn.buckets, [(s, s) for s in range(nodes)])
        return {"grouping": dict.fromkeys(q5.STEPS, slots) if job == "q5" else slots}
    if way == "plain":
        return {}
    eager = od.Mixed(0.08, payback=0)
    of_way = {"hash": od.Mixed(1e6), "mixed": od.Mixed(0.08), "eager": eager, "readj": Readj(0.08)}
    return {"balance": of_way[way]}


# --------------------------------------------------------------------------------------------- what is asked


def parser(doc: str, rows: dict[str, int], rounds: int, work: int) -> argparse.ArgumentParser:
    """Of a script that measures the ways; `rows` of a batch of each job, and its other defaults."""
    made = argparse.ArgumentParser(description=doc.split("\n", 1)[0])
    by_default = ", ".join(f"{count:,} for {job}" for job, count in rows.items())
    made.add_argument("--rows", type=int, help=f"of a batch; default {by_default}")
    made.add_argument("--batches", type=int, default=16)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--jobs", nargs="*", default=list(rows), choices=list(rows))
    made.add_argument("--ways", nargs="*", help="of a job; default all; `hash` is always among them")
    made.add_argument(
        "--work", type=int, default=work, help=f"times that a word's letters are gone through; {work}"
    )
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--bursts", type=int, default=FEW, help=f"words of `join` that burst at a time; {FEW}")
    made.add_argument("--json", type=Path)
    return made


def ways(job: str, asked: argparse.Namespace) -> list[str]:
    """That are measured."""
    if not asked.ways:
        return [*WAYS[job]]
    return [one for one in (*WAYS[job], "eager") if one in ("hash", *asked.ways)]

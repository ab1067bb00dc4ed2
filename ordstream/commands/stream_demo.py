"""``ordstream demo --stream``: the main job as a stream in Spark, killed in the middle and started again."""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ordstream.commands.console import table
from ordstream.commands.engines import Job, by_sql, saved
from ordstream.commands.generate import generated
from ordstream.pipeline.pipeline import Pipeline
from ordstream.tpcxbb import batch
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.parameters import read_parameters
from ordstream.tpcxbb.queries import QUERIES
from ordstream.tpcxbb.schema import CLICK_ORDER, CLICK_STREAM, Sizes

FILES = 8  # micro-batches
KILLED_AFTER = 3  # of them are committed
ROWS = 200_000
SHOWN = 10
PATIENCE_SECONDS = 600.0
EQUAL = "verified: equal to the batch answer, nothing twice"
COLUMNS = ["left", "right", "count"]


def run(chosen: argparse.Namespace, rows: int | None) -> int:
    """The demo; 1 where the answers differ.

    Parameters
    ----------
    chosen : argparse.Namespace
        `data`: a folder; None: rows are generated. `json`: a file for the answer; None: none.
    rows : int, optional
        To generate.
    """
    if chosen.data is None:
        count = ROWS if rows is None else rows
        chosen.data = generated(Path("data") / f"clicks-{count}", Sizes.for_rows(count), count, seed=1)
    query = QUERIES["q2"]
    parameters = read_parameters("q2", query.profiles["paper"], [])
    job = Job(query, parameters, DataFolder(chosen.data))
    with tempfile.TemporaryDirectory(prefix="ordstream-demo-") as name:
        folder = Path(name)
        clicks = _split(job, folder / "source")
        what = f"{clicks:,} click{'s' * (clicks != 1)} in {FILES} files"
        print(f"{what}; each is one micro-batch of the stream", flush=True)
        commits = folder / "checkpoint" / "commits"
        first = _start(folder)
        try:
            _watch(first, commits, 0, KILLED_AFTER)
        finally:
            os.killpg(first.pid, signal.SIGKILL)  # the driver and Java; workers end with it
            first.wait()
        there = _committed(commits)
        print(f"kill -9: the driver and Java are gone; {there} of {FILES} micro-batches are committed")
        print("the same command again:", flush=True)
        second = _start(folder)
        try:
            _watch(second, commits, there, FILES + 1)
            status = second.wait(PATIENCE_SECONDS)
        finally:
            if second.poll() is None:
                os.killpg(second.pid, signal.SIGKILL)
                second.wait()
        if status:
            raise RuntimeError(f"the stream ended with {status}:\n{(folder / 'log').read_text()[-2000:]}")
        got, tags = _output(folder / "checkpoint")
    answer = query.answer(got, **parameters)
    print(table(COLUMNS, [[str(one) for one in row] for row in answer[:SHOWN]], right=True))
    twice = sum(one >= other for one, other in itertools.pairwise(tags))
    difference = batch.first_difference(answer, by_sql(job).answer)
    if chosen.json is not None:
        content = {
            "query": query.name,
            "profile": "paper",
            "engine": "spark",
            "stream": True,
            "parameters": dict(parameters),
            "columns": COLUMNS,
            "rows": [list(row) for row in answer],
            "tuples": clicks,
            "updates": len(got),
            "verified": difference is None and not twice,
        }
        saved(chosen.json, content)
    if difference is not None or twice:
        print(f"\nnot equal to the batch answer: {difference or f'{twice} outputs are there twice'}")
        return 1
    print(f"\n{len(got):,} updates of the answer, each with an order tag of its own")
    print(EQUAL)
    return 0


def _split(job: Job, folder: Path) -> int:
    """The clicks, in order, as `FILES` files; how many there are."""
    folder.mkdir()
    clicks = pa.Table.from_batches(list(job.folder.stream("web_clickstreams", sort=True)), CLICK_STREAM)
    size = -(-len(clicks) // FILES)
    for number in range(FILES):
        path = folder / f"{number}.parquet"
        pq.write_table(clicks.slice(number * size, size), path)
        os.utime(path, (1_000_000_000 + number,) * 2)  # Spark takes the oldest first
    return len(clicks)


def _start(folder: Path) -> subprocess.Popen[bytes]:
    program = "import sys; from ordstream.commands.stream_demo import child; child(sys.argv[1])"
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _told(epoch: Any) -> str:
    """The line of a committed epoch, an `EpochManifest`. The end of the stream has no clicks of its own."""
    what = "end of the stream: " if epoch.finished else f"micro-batch {epoch.number}: "
    first, last = epoch.serials
    clicks = f"clicks {first:,} to {last:,}, " if last >= first else ""
    outputs, states = sum(one["rows"] for one in epoch.output), epoch.state_rows
    return (
        f"  {what}{clicks}{outputs:,} output{'s' * (outputs != 1)}, "
        f"{states:,} row{'s' * (states != 1)} of state: committed"
    )


def _watch(process: subprocess.Popen[bytes], commits: Path, first: int, last: int) -> None:
    """Show each epoch that is committed, until there are `last`, or the process has ended."""
    from ordstream.spark.streaming.epoch_manifest import EpochManifest

    shown, until = first, time.monotonic() + PATIENCE_SECONDS
    while shown < last and time.monotonic() < until:
        ended = process.poll() is not None
        if shown < _committed(commits):
            data = (commits / f"{shown:012d}.json").read_bytes()
            epoch = EpochManifest.from_bytes(data, shown)
            print(_told(epoch), flush=True)
            shown += 1
        elif ended:
            return
        else:
            time.sleep(0.02)


def _committed(commits: Path) -> int:
    return len(list(commits.glob("[0-9]*.json"))) if commits.is_dir() else 0


def _output(checkpoint: Path) -> tuple[list[tuple[Any, ...]], list[tuple[int, int]]]:
    """Committed rows, and their tags."""
    from ordstream.spark.streaming.epoch_log import EpochLog

    log = EpochLog(checkpoint)
    rows: list[tuple[Any, ...]] = []
    for manifest in log.all():
        for one in manifest.output:
            found = pq.ParquetFile(log.folder / "output" / one["file"]).read()
            rows.extend(zip(*(column.to_pylist() for column in found.columns), strict=True))
    return [row[:-2] for row in rows], [row[-2:] for row in rows]


def child(name: str) -> None:
    """The process that is killed: the stream, to its end."""
    from ordstream import spark

    folder = Path(name)
    pipeline: Pipeline = QUERIES["q2"].build(
        None, **read_parameters("q2", QUERIES["q2"].profiles["paper"], [])
    )
    session = spark.local_session()
    schema = session.read.parquet(str(folder / "source")).schema
    clicks = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    checkpoint = folder / "checkpoint"
    query = spark.stream(
        pipeline,
        clicks.parquet(str(folder / "source")),
        order_by=CLICK_ORDER,
        checkpoint=checkpoint,
        trigger="available now",
    )
    query.awaitTermination()
    spark.finish(checkpoint)
    session.stop()

"""What the ordered paper's experiments run: the five TPCx-BB queries over generated data, and parametric
operators.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.ordered_runs import Subject
from ordstream.lab.evaluation.parametric import Parametric, chain
from ordstream.tpcxbb.generator import generate_clicks
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.queries import QUERIES, SideTables

BATCH = 1 << 16
#: Input tuples that are compared with the sequential run.
QUERY_CHECK = 1_500
OPERATOR_CHECK = 400


@dataclass(frozen=True)
class Data:
    """The two streams of the queries, in memory, and the side tables."""

    streams: dict[str, pa.Table]
    side: SideTables

    def batches(self, table: str, rows: int) -> list[pa.RecordBatch]:
        """`rows` tuples of a stream: the table, then the table again, later in time and with new tickets."""
        whole = self.streams[table]
        found: list[pa.RecordBatch] = []
        for again in range(-(-rows // whole.num_rows)):
            part = whole.slice(0, min(whole.num_rows, rows - again * whole.num_rows))
            found += later(part, whole, again).to_batches(BATCH)
        return found


def later(part: pa.Table, whole: pa.Table, again: int) -> pa.Table:
    """`part` of the `again`-th repetition of a stream: its event times (and ticket numbers) go on where
    the one before ended.
    """
    if again == 0:
        return part
    for name, gap in (("ts", 3600), ("date_sk", 1), ("ticket", 1)):
        if name in whole.schema.names:
            ends = pc.min_max(whole[name])
            span = ends["max"].as_py() - ends["min"].as_py() + gap
            moved = pc.add(part[name], pa.scalar(again * span, pa.int64()))
            part = part.set_column(part.schema.get_field_index(name), part.schema.field(name), moved)
    return part


@cache
def generated(clicks: int, seed: int) -> Data:
    """The first `clicks` rows of the generated click stream, and the sales of the same days."""
    with tempfile.TemporaryDirectory() as folder:
        generate_clicks(folder, rows=clicks, seed=seed, store_sales=True)
        data = DataFolder(folder)
        streams = {
            name: pa.Table.from_batches(list(data.stream(name)))
            for name in ("web_clickstreams", "store_sales")
        }
        return Data(streams, data.side_tables())


@cache
def query(name: str, clicks: int, seed: int) -> Subject:
    """A query with the paper's parameters, emitting every update; query 15 over the first year of its
    stream.
    """
    data, chosen = generated(clicks, seed), QUERIES[name]
    parameters = dict(chosen.profiles["paper"])
    if "date_from" in parameters:
        days = pc.min_max(data.streams[chosen.source]["date_sk"])
        first, last = days["min"].as_py(), days["max"].as_py()
        # Where one repetition fits into the year all do, though their days go on: repetitions do the same
        # work.
        parameters |= {"date_from": first, "date_to": first + (365 if last > first + 365 else 365_000)}
    pipeline = chosen.build(data.side, **parameters)
    return Subject(name, pipeline, lambda rows: data.batches(chosen.source, rows), min(QUERY_CHECK, clicks))


QUERY_NAMES = tuple(QUERIES)


class Repeated:
    """Random tuples drawn once; a longer stream repeats them."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def __call__(self, rows: int) -> list[pa.RecordBatch]:
        """Batches with so many tuples."""
        whole, rest = divmod(rows, self.batch.num_rows)
        return [self.batch] * whole + ([self.batch.slice(0, rest)] if rest else [])


def operators(
    name: str,
    keys: npt.NDArray[np.int64],
    *given: Parametric,
    seed: int = 1,
    check_rows: int = OPERATOR_CHECK,
) -> Subject:
    """A chain of parametric operators over tuples with these keys.

    The tuples compared with the sequential run are fewer where the first operator multiplies them.
    """
    stages = [one.operator(f"operator_{k}") for k, one in enumerate(given, 1)]
    made = math.prod(max(1.0, one.selectivity) for one in given)
    tuples = parametric.tuples(keys, given[0].tuple_bytes, seed)
    return Subject(name, chain(*stages), Repeated(tuples), max(20, int(check_rows / made)))

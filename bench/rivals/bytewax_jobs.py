"""The jobs of bench/peers.py in Bytewax, one worker: keyed streams with a logic per key that is told the
end of the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from importlib.metadata import version as installed
from typing import Any

import bytewax.operators as op
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main
from jobs import DYNAMIC_BELOW, LIMIT, ORDER_BELOW, TIMEOUT, quotient

BATCH = 1000  # items that the source gives at a time; one at a time is slower, and so are 10,000


class Sessions(op.StatefulBatchLogic):
    """Gives the values of each session when it closes."""

    def __init__(self, _: Any) -> None:
        self.last = 0
        self.values: list[int] = []

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        closed = []
        for ts, _, value in values:
            if self.values and ts - self.last > TIMEOUT:
                closed.append(self.values)
                self.values = []
            self.values.append(value)
            self.last = ts
        return closed, False

    def on_eof(self) -> tuple[list[Any], bool]:
        return [self.values], True

    def snapshot(self) -> Any:
        return None


class Abandoned(op.StatefulBatchLogic):
    """Gives the length of each abandoned session when it closes: faster than all sessions, then a filter
    and a map.
    """

    __slots__ = ("clicks", "dynamic", "last", "ordered")

    def __init__(self, _: Any) -> None:
        self.last = self.clicks = 0
        self.dynamic = self.ordered = False

    def on_batch(self, values: list[Any]) -> tuple[list[int], bool]:
        closed = []
        for ts, _, page in values:
            if self.clicks and ts - self.last > TIMEOUT:
                if self.dynamic and not self.ordered:
                    closed.append(self.clicks)
                self.clicks = 0
                self.dynamic = self.ordered = False
            self.clicks += 1
            self.last = ts
            if page < DYNAMIC_BELOW:
                self.dynamic = True
            elif page < ORDER_BELOW:
                self.ordered = True
        return closed, False

    def on_eof(self) -> tuple[list[int], bool]:
        return [self.clicks] if self.dynamic and not self.ordered else [], True

    def snapshot(self) -> Any:
        return None


class Speed(op.StatefulBatchLogic):
    """Gives each row with its speed."""

    def __init__(self, _: Any) -> None:
        self.last: Any = None

    def on_batch(self, values: list[Any]) -> tuple[list[Any], bool]:
        found = []
        for ts, user, item, row in values:
            last = self.last
            found.append(
                (row, ts, user, float("nan") if last is None else quotient(item - last[1], ts - last[0]))
            )
            self.last = ts, item
        return found, False

    def snapshot(self) -> Any:
        return None


def pairs(session: tuple[str, list[int]]) -> Any:
    """All pairs of the distinct items of a session."""
    return itertools.combinations(sorted(set(session[1])), 2)


def prepare(engine: str, job: str, table: pa.Table) -> Callable[[], Any]:
    """The job as a dataflow over the rows as tuples."""
    columns = [column.to_pylist() for column in table.columns]
    rows = list(
        zip(*columns, range(table.num_rows), strict=True) if job == "speed" else zip(*columns, strict=True)
    )

    def run() -> Any:
        found: list[Any] = []
        flow = Dataflow(job)
        clicks = op.key_on(
            "user", op.input("clicks", flow, TestingSource(rows, BATCH)), lambda row: str(row[1])
        )
        if job == "speed":
            out = op.key_rm("rows", op.stateful_batch("speed", clicks, Speed))
        elif job == "q2":
            sessions = op.stateful_batch("sessions", clicks, Sessions)
            out = op.count_final(
                "count", op.flat_map("pairs", sessions, pairs), lambda pair: f"{pair[0]} {pair[1]}"
            )
        else:
            out = op.key_rm("lengths", op.stateful_batch("abandoned", clicks, Abandoned))
        op.output("out", out, TestingSink(found))
        run_main(flow)
        if job == "speed":
            found.sort()  # its outputs come grouped by key within a batch: order has to be made again
            _, ts, user, speed = zip(*found, strict=True)
            return ts, user, speed
        if job == "q2":
            triples = [(*map(int, key.split()), count) for key, count in found]
            return sorted(triples, key=lambda one: (-one[2], one[:2]))[:LIMIT]
        return [(sum(found), len(found))]

    return run


def version(engine: str) -> str:
    """Installed version."""
    return installed("bytewax")

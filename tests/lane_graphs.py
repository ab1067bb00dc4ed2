"""Small graphs, and what they should give: each row of a branch point goes through its lanes alone.

A graph is a list of steps, `Op` or `Split`; rows are (k, v). The reference here knows nothing of lanes or
places, so it is another one than `run_serial`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import ordstream as od

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
STATE = {"n": pa.int64()}
Row = tuple[int, int]


#: What the reference has met: of a generator that never makes it, a test can't say that it works.
SEEN: Counter[str] = Counter()


class FailedError(Exception):
    """A row of `fail` failed."""


@dataclass(frozen=True)
class Op:
    """An operator of the pipeline on one lane; `arg` is what its name needs."""

    name: str
    arg: int = 0

    def pipeline(self, p: od.Pipeline) -> od.Pipeline:
        """`p` with this operator."""
        k, v, arg = od.col("k"), od.col("v"), self.arg
        if self.name == "filter":
            return p.filter(v % arg != 0)
        if self.name == "map":
            return p.with_columns(v=v * 3 + arg)
        if self.name == "fail":
            return p.with_columns(v=v + 0 // (v % arg))
        if self.name == "flat":
            return p.flat_map(
                lambda row: [(row.k, row.v + i) for i in range(row.v % (arg + 1))], schema=SCHEMA
            )
        if self.name == "keyed":
            return p.key_by("k").scan(n=od.count()).select(k=k, v=v + od.col("n"))
        if self.name == "keyed_flat":
            return p.key_by("k").process(self._several, schema=SCHEMA, state=STATE)
        if self.name == "flushing":
            return p.key_by("k").process(self._sum, schema=SCHEMA, state=STATE, on_flush=self._flush)
        assert self.name == "ordered", self.name
        return p.process(self._mix, schema=SCHEMA, state=STATE)

    def _several(self, row: Any, state: Any, emit: Any) -> None:
        state.n += 1
        for i in range(state.n % (self.arg + 1)):
            emit(row.k, row.v + i)

    def _sum(self, row: Any, state: Any, emit: Any) -> None:
        state.n += row.v
        emit(row.k, row.v)

    def _flush(self, key: int, state: Any, emit: Any) -> None:
        for i in range(self.arg):
            emit(key, state.n % 1000 + i)

    def _mix(self, row: Any, state: Any, emit: Any) -> None:
        state.n = (state.n * 31 + row.v) % 10007
        emit(row.k, row.v + state.n)

    def serial(self) -> SerialOp:
        """The reference."""
        return SerialOp(self)


class SerialOp:
    """An operator, one row at a time, in plain Python."""

    def __init__(self, op: Op) -> None:
        self.op, self.state = op, dict[int, int]()

    def process(self, row: Row) -> Iterator[Row]:
        """Outputs of a row."""
        k, v = row
        name, arg = self.op.name, self.op.arg
        if name == "fail" and v % arg == 0:
            raise FailedError
        if name in ("keyed", "keyed_flat"):
            self.state[k] = self.state.get(k, 0) + 1
        if name == "filter":
            times = 1 if v % arg else 0
        elif name in ("flat", "keyed_flat"):
            times = (v if name == "flat" else self.state[k]) % (arg + 1)
        else:
            times = 1
        if name == "map":
            v = v * 3 + arg
        elif name == "keyed":
            v += self.state[k]
        elif name == "flushing":
            self.state[k] = self.state.get(k, 0) + v
        elif name == "ordered":
            self.state[0] = (self.state.get(0, 0) * 31 + v) % 10007
            v += self.state[0]
        for i in range(times):
            yield k, v + i

    def flush(self) -> Iterator[Row]:
        """Outputs at the end, by ascending key."""
        if self.op.name == "flushing":
            for k in sorted(self.state):
                for i in range(self.op.arg):
                    yield k, self.state[k] % 1000 + i


@dataclass(frozen=True)
class Split:
    """Rows to lanes by v modulo their number (copies: every row to every lane), a graph in each; united
    in the order `call`.
    """

    lanes: Sequence[Sequence[Op | Split]]
    copies: bool = False
    call: Sequence[int] = field(default=())

    @property
    def order(self) -> Sequence[int]:
        """Lanes in the order of the call."""
        return self.call or range(len(self.lanes))

    def serial(self) -> SerialSplit:
        """The reference."""
        return SerialSplit(self)


class SerialSplit:
    """Branch, lanes and union: a row goes through its lanes before the next one comes."""

    def __init__(self, split: Split) -> None:
        self.split, self.lanes = split, [SerialLine(lane) for lane in split.lanes]
        self.taken = [0] * len(self.lanes)

    def process(self, row: Row) -> Iterator[Row]:
        """Outputs of a row, by lane in the order of the call. Of a row that fails only its own lane's
        come before it.
        """
        if not self.split.copies:
            number = row[1] % len(self.lanes)
            self.taken[number] += 1
            try:
                yield from self.lanes[number].process(row)
            except FailedError:
                SEEN["failed in a further lane" if number else "failed in the first lane"] += 1
                raise
            return
        SEEN["ties"] += 1
        SEEN["self-union"] += [*self.split.lanes].count([]) > 1
        outs: list[list[Row]] = []
        for i in self.split.order:
            outs.append([])
            try:
                collect(outs[-1], self.lanes[i].process(row))
            except FailedError:
                SEEN["failed in a copy"] += 1
                yield from outs[-1]
                raise
        for out in outs:
            yield from out

    def flush(self) -> Iterator[Row]:
        """Outputs at the end: lanes in the order of the call."""
        SEEN["empty lanes"] += any(self.taken) and not all(self.taken)
        for i in self.split.order:
            yield from self.lanes[i].flush()


def collect(out: list[Row], rows: Iterator[Row]) -> None:
    """Append one by one, so that a failure leaves what was before it."""
    for row in rows:
        out.append(row)


class SerialLine:
    """Steps one behind the other."""

    def __init__(self, steps: Sequence[Op | Split]) -> None:
        self.steps = [step.serial() for step in steps]

    def process(self, row: Row, start: int = 0) -> Iterator[Row]:
        """Outputs of a row that enters at step `start`."""
        if start == len(self.steps):
            yield row
            return
        for out in self.steps[start].process(row):
            yield from self.process(out, start + 1)

    def flush(self) -> Iterator[Row]:
        """Outputs at the end of the stream."""
        for i, step in enumerate(self.steps):
            for out in step.flush():
                SEEN["flush rows through a union"] += any(isinstance(s, SerialSplit) for s in self.steps[i:])
                yield from self.process(out, i + 1)


def serially(graph: Sequence[Op | Split], rows: Sequence[Row]) -> tuple[list[Row], int | None]:
    """Rows out, and the number of the row that failed."""
    line, out = SerialLine(graph), list[Row]()
    number = 0
    try:
        for row in rows:
            number += 1
            collect(out, line.process(row))
        collect(out, line.flush())
    except FailedError:
        return out, number
    return out, None


# --- on the core


def pipeline_of(graph: Sequence[Op | Split], p: od.Pipeline | None = None) -> od.Pipeline:
    """The graph as a pipeline."""
    p = od.Pipeline(SCHEMA) if p is None else p
    for step in graph:
        if isinstance(step, Op):
            p = step.pipeline(p)
            continue
        lanes, rest, n = [], p, len(step.lanes)
        for number in range(n - 1):
            if step.copies:
                lanes.append(p)
            else:
                lane, rest = rest.branch(od.col("v") % n == number)
                lanes.append(lane)
        lanes.append(rest)
        united = [pipeline_of(step.lanes[i], lanes[i]) for i in step.order]
        p = od.union(*united)
    return p


def table_of(rows: Sequence[Row]) -> pa.Table:
    """The rows as Arrow data."""
    return pa.table([pa.array([row[i] for row in rows], pa.int64()) for i in (0, 1)], schema=SCHEMA)


def on_core(
    graph: Sequence[Op | Split], rows: Sequence[Row], **options: Any
) -> tuple[list[Row], int | None]:
    """As `serially`, by the core."""
    out: list[Row] = []
    with pipeline_of(graph).stream(table_of(rows), **options) as stream:
        try:
            for batch in stream:
                out.extend(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        except od.OperatorError as error:
            if not isinstance(error.__cause__, ZeroDivisionError):
                raise
            return out, error.serial
    return out, None


def random_graph(rng: random.Random, depth: int = 2, length: int = 3) -> list[Op | Split]:
    """Up to `length` steps, branches in branches down to `depth`."""
    args = {"filter": (2, 5), "flat": (1, 3), "keyed_flat": (1, 3), "flushing": (1, 3), "map": (0, 5)}
    steps: list[Op | Split] = []
    for _ in range(rng.randint(0, length)):
        if depth and rng.random() < 0.4:
            n = rng.choice([2, 2, 3, 10])
            lanes = [random_graph(rng, depth - 1, 2) if rng.random() < 0.8 else [] for _ in range(n)]
            steps.append(Split(lanes, rng.random() < 0.25 and n < 10, rng.sample(range(n), n)))
        else:
            name = rng.choice(
                ["filter", "map", "flat", "keyed", "keyed", "keyed_flat", "flushing", "ordered"]
            )
            steps.append(Op(name, rng.randint(*args.get(name, (0, 0)))))
    if rng.random() < 0.15:
        steps.insert(rng.randint(0, len(steps)), Op("fail", rng.randint(11, 300)))
    return steps


def random_rows(rng: random.Random) -> list[Row]:
    """None to 300 rows, few or many keys, values from so few that lanes stay empty."""
    keys, values = rng.choice([1, 3, 20]), rng.choice([1, 4, 50, 2000])
    return [(rng.randrange(keys), rng.randrange(values)) for _ in range(rng.choice([0, 1, 3, 40, 300]))]

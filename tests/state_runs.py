"""Runs that are cut: the state of every operator leaves one run as tables, and another run goes on from
there.

`Segment` is a run that is fed by hand, so that it can stand still in the middle of a stream: all that came
before was processed, and the source has not ended. Tables of state are canonical: one per stateful
operator, sorted by key.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.types import storage_values
from ordstream.reference.base import sort_key
from ordstream.testing import run_serial

door = pytest.importorskip("ordstream._core.flow.state_door", reason="the core is not built")
StateRowError = pytest.importorskip("ordstream._core.flow.install").StateRowError

PATIENCE_S = 60.0  # for a loaded machine; nothing waits so long that works


def check_state(operator: Any, found: pa.Schema) -> None:
    """Check that rows of a schema are state of an operator.

    Raises
    ------
    od.SchemaError
        Names the first difference.
    """
    wanted = operator.state_schema() or pa.schema([])
    where = f"operator {operator.name!r} ({operator.op}): this is not its state:"
    for index, (a, b) in enumerate(zip(wanted, found, strict=False)):
        if a.name != b.name:
            raise od.SchemaError(f"{where} column {index} is {b.name!r}, not {a.name!r}")
        if not a.type.equals(b.type):
            raise od.SchemaError(f"{where} column {b.name!r} is {b.type}, not {a.type}")
    if len(wanted) != len(found):
        missing = [field.name for field in list(wanted)[len(found) :]]
        more = [field.name for field in list(found)[len(wanted) :]]
        raise od.SchemaError(
            f"{where} {f'columns {missing} are missing' if missing else f'columns {more} are too many'}"
        )


def waits_until(done: Callable[[], bool]) -> None:
    """Call until it is true; a run that stands still too early fails."""
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, "the run stands still, and is not done"


class Segment:
    """A run of a part of a stream; a context manager.

    Parameters
    ----------
    pipeline : Pipeline
    options
        As for `Pipeline.run`.
    """

    def __init__(self, pipeline: od.Pipeline, **options: Any) -> None:
        self._stream = pipeline.stream(iter(()), feeder="caller", **options)
        self._core = self._stream._core
        self.door = door.StateDoor(self._stream)
        operators = pipeline.plan.operators
        first = len(self._stream._made.chain) - len(operators)  # a split in front is not the pipeline's
        stages = enumerate(operators, start=first)
        self.stages = {stage.name: (index, stage) for index, stage in stages if stage.kind != "SL"}
        self.batches: list[pa.RecordBatch] = []
        self._pushed: list[pa.RecordBatch] = []  # kept: the run points into them

    def __enter__(self) -> Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def push(self, data: pa.Table, rows: int = 1000) -> None:
        """Process these tuples, in batches of so many rows, and take what comes out; return when the run
        stands still."""
        self._stream._start()
        for batch in data.to_batches(max_chunksize=rows):
            self._core.push(batch)
            self._pushed.append(batch)
            waits_until(lambda: self._step(self.door.quiescent and self._all_taken()))

    def finish(self) -> None:
        """End the stream and take the rest."""
        self._stream._start()
        self._core.finish()
        waits_until(lambda: self._step(self._core.ended and self._all_taken()))
        assert self._core.failure() is None

    def _all_taken(self) -> bool:
        return bool(self._core.progress()[3] == sum(batch.num_rows for batch in self.batches))

    def _step(self, done: bool) -> bool:
        assert self._core.failure() is None, self._core.failure()
        if done:
            return True
        self._core.want(sum(batch.num_rows for batch in self.batches))
        if self._stream.workers == 0:
            self._core.work()
        else:
            self._core.wait(0.01)
        while (item := self._core.take()) is not None:
            self.batches.append(self._stream._shape(*item))
        return False

    # ------------------------------------------------------------------------------------------------ state

    def state(self, most: int = 1000) -> dict[str, pa.Table]:
        """The state of every stateful operator."""
        return {name: self.state_of(name, most) for name in self.stages}

    def state_of(self, name: str, most: int = 1000, keys: pa.RecordBatch | None = None) -> pa.Table:
        """The state of an operator, sorted; `keys`: only that of these."""
        index, stage = self.stages[name]
        schema = stage.state_schema()
        found = pa.Table.from_batches(self.door.export(index, schema, most, keys), schema=schema)
        for batch in found.to_batches():
            batch.validate(full=True)
        keys = keys_of(found, stage.state_order())
        return found.take(pa.array(sorted(range(len(keys)), key=keys.__getitem__), pa.int64()))

    def install(self, state: dict[str, pa.Table]) -> None:
        """Take tables of state in."""
        for name, table in state.items():
            index, stage = self.stages[name]
            check_state(stage, table.schema)
            for batch in table.combine_chunks().to_batches():
                try:
                    self.door.install(index, batch)
                except StateRowError as error:
                    key = batch.slice(error.row, 1).select(range(len(stage.key))).to_pylist()[0]
                    raise od.PlanError(f"operator {name!r} ({stage.op}), key {key}: {error}") from error

    def remove(self, name: str, keys: pa.Table) -> int:
        """Forget keys: rows of the operator's state, of which only the keys count. How many were there."""
        return sum(
            self.door.remove(self.stages[name][0], batch) for batch in keys.combine_chunks().to_batches()
        )

    def bytes(self, name: str) -> int:
        """Bytes of state that an operator holds."""
        return int(self.door.bytes(self.stages[name][0]))


def keys_of(table: pa.Table, n: int) -> list[Any]:
    """The keys of a table's rows, its first n columns, in a form that sorts as the core sorts keys."""
    columns = [storage_values(column.combine_chunks()) for column in table.columns[:n]]
    return [sort_key(row) for row in zip(*columns, strict=True)] if columns else [sort_key(())] * len(table)


def exact(value: Any) -> Any:
    """A value that equals another one only where both are the same: NaN is NaN, -0.0 is not 0.0; in lists
    too.
    """
    if isinstance(value, list):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    return value


def exact_rows(tables: Any, schema: pa.Schema) -> list[tuple[Any, ...]]:
    """The rows of tables or batches, in order, as exact storage values."""
    batches = [
        b for table in tables for b in (table.to_batches() if isinstance(table, pa.Table) else [table])
    ]
    table = pa.Table.from_batches(batches, schema=schema)
    columns = [
        [exact(value) for value in storage_values(column.combine_chunks())] for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def run_cut(
    pipeline: od.Pipeline, data: pa.Table, cuts: list[int], configurations: list[dict[str, Any]]
) -> tuple[list[Any], list[Any]]:
    """Run a stream in parts, each a run of its own that goes on with the state of the one before.

    Returns the batches of all parts, and the state at each cut.
    """
    edges = [0, *sorted(cuts), len(data)]
    batches: list[pa.RecordBatch] = []
    states: list[dict[str, pa.Table]] = []
    for part, (low, high) in enumerate(itertools.pairwise(edges)):
        options = dict(configurations[part % len(configurations)])
        rows, most = options.pop("rows", 1000), options.pop("most", 1000)
        with Segment(pipeline, **options) as segment:
            if states:
                segment.install(states[-1])
                assert same_states(segment.state(most), states[-1])
            segment.push(data.slice(low, high - low), rows)
            if part == len(edges) - 2:
                segment.finish()
            else:
                states.append(segment.state(most))
            batches += segment.batches
    return batches, states


def same_states(a: dict[str, pa.Table], b: dict[str, pa.Table]) -> bool:
    """Whether two states are the same, row for row."""
    return a.keys() == b.keys() and all(
        a[name].schema.equals(b[name].schema)
        and exact_rows([a[name]], a[name].schema) == exact_rows([b[name]], b[name].schema)
        for name in a
    )


@functools.cache
def configurations() -> list[dict[str, Any]]:
    """Ways to run that have nothing in common but the output."""
    return [
        {"workers": 0, "chunk_rows": 1, "most": 1},
        {"workers": 1, "buckets": 1, "chunk_rows": 7, "rows": 13, "scheduler": "lp"},
        {
            "workers": 2,
            "buckets": 5,
            "chunk_rows": 3,
            "partitioning": "partitioned",
            "scheduler": "et",
            "most": 3,
        },
        {
            "workers": 4,
            "buckets": 64,
            "chunk_rows": 16,
            "partitioning": "shared",
            "reorder": "lock",
            "scheduler": "qst",
        },
        {"workers": 0, "buckets": 9, "rows": 5},
        {"workers": 2, "most": 50},
    ]


STATE_WAYS = ({"workers": 0, "buckets": 3, "chunk_rows": 4}, {"workers": 2, "buckets": 1})


def check_state_moves(pipeline: od.Pipeline, data: pa.Table) -> None:
    """A run of 60 tuples that is cut goes on in other runs; the rows of state are those of the tuples
    alone.
    """
    expected = exact_rows([run_serial(pipeline, data).table], pipeline.schema)
    found, snapshot = [], {}
    for part, (low, high) in enumerate([(0, 11), (11, 12), (12, 40), (40, 60)]):
        end = {} if high == 60 else {"end": "suspend"}
        result = pipeline.run(data.slice(low, high - low), **STATE_WAYS[part % 2], **snapshot, **end)
        found += exact_rows([result.table], pipeline.schema)
        snapshot = {"restore": result.snapshot}
    assert found == expected
    states = []
    for way in STATE_WAYS:
        with Segment(pipeline, **way) as segment:
            segment.push(data)
            states.append(segment.state())
        with Segment(pipeline, **way) as segment:
            segment.install(states[0])
            states.append(segment.state())
    assert all(same_states(states[0], other) for other in states)


def check_memory_comes_back(pipeline: od.Pipeline, data: pa.Table) -> None:
    """What keys of many tuples hold is given back with them."""
    (name,) = (operator.name for operator in pipeline.plan.operators)
    with Segment(pipeline, workers=0, buckets=1) as segment:
        empty = segment.bytes(name)
        segment.push(data)
        full = segment.bytes(name)
        assert segment.remove(name, segment.state_of(name)) > 20
        assert segment.state_of(name).num_rows == 0
        assert segment.bytes(name) <= empty + (full - empty) // 8

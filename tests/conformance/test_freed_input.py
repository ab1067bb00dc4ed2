"""A run's input is freed when it ends and nobody has it: at once, not when Python's collector comes, which
looks at numbers of objects and never at their bytes.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from process_functions import never_at_3000

import ordstream as od
from ordstream.fragments.process_stream import ProcessStream
from ordstream.fragments.processes import Processes

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64())])
ROWS = 5_000


class Values(np.ndarray):
    """An array that can tell when it dies, and with it the Arrow buffer that points into it."""


class Input:
    """Batches that are counted until they are freed."""

    def __init__(self) -> None:
        self.alive = 0

    def _died(self) -> None:
        self.alive -= 1

    def batch(self) -> pa.RecordBatch:
        values = np.arange(ROWS, dtype=np.float64).view(Values)
        self.alive += 1
        weakref.finalize(values, self._died)
        return pa.record_batch([pa.array(np.arange(ROWS) // 100), pa.array(values)], schema=SCHEMA)

    def batches(self, then: Callable[[], Any] = lambda: None) -> Iterator[pa.RecordBatch]:
        for _ in range(4):
            yield self.batch()
        then()

    def table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches())


def filtered(function: Any = None) -> od.Pipeline:
    chosen = od.col("k") >= 0 if function is None else function
    return od.Pipeline(SCHEMA).filter(chosen).key_by("k").lag("x")


def whole(data: Input, **how: Any) -> None:
    assert filtered().run(data.table(), **how).table.num_rows == 4 * ROWS


def streamed(data: Input, **how: Any) -> None:
    assert sum(batch.num_rows for batch in filtered().stream(data.batches(), **how)) == 4 * ROWS


def left_half_way(data: Input, **how: Any) -> None:
    next(filtered().stream(data.batches(), **how))


def kept_when_it_ended(data: Input, **how: Any) -> Any:
    stream = filtered().stream(data.batches(), **how)
    assert sum(batch.num_rows for batch in stream) == 4 * ROWS
    return stream


def function_fails(data: Input, **how: Any) -> None:
    with contextlib.suppress(od.OperatorError):
        filtered(never_at_3000).run(data.table(), **how)


def function_fails_in_a_stream(data: Input, **how: Any) -> Any:
    stream = filtered(never_at_3000).stream(data.table(), **how)
    with contextlib.suppress(od.OperatorError):
        list(stream)
    return stream


def source_fails(data: Input, **how: Any) -> None:
    with contextlib.suppress(od.SourceError):
        filtered().run(data.batches(lambda: 1 / 0), **how)


def item_of_a_list_fails(data: Input, **how: Any) -> None:
    with contextlib.suppress(od.SourceError):
        filtered().run([*data.batches(), "no batch"], **how)


def merged(data: Input, **how: Any) -> None:
    sources = [od.Pipeline(SCHEMA, source=name) for name in "ab"]
    od.union(*sources).run({"a": data.table(), "b": data.batches()}, merge_by="k", **how)


def source_of_several_fails(data: Input, **how: Any) -> None:
    sources = [od.Pipeline(SCHEMA, source=name) for name in "ab"]
    given = {"a": data.table(), "b": data.batches(lambda: 1 / 0)}
    with contextlib.suppress(od.SourceError):
        od.union(*sources).run(given, merge_by="k", idle="1m", **how)


def several_outputs(data: Input, **how: Any) -> None:
    one, other = od.Pipeline(SCHEMA).branch(od.col("k") > 10)
    one.run(data.table(), outputs={"one": one, "other": other}, **how)


def suspended(data: Input, **how: Any) -> Any:
    stream = filtered().stream(data.table(), end="suspend", **how)
    list(stream)
    return stream


def with_a_checkpoint(data: Input, **how: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        stream = filtered().stream(data.table(), checkpoint=folder, every=ROWS, **how)
        list(stream)
    return stream


@pytest.mark.parametrize("how", [{"workers": 0}, {"workers": 2}], ids=str)
@pytest.mark.parametrize(
    "run",
    [
        whole,
        streamed,
        left_half_way,
        kept_when_it_ended,
        function_fails,
        function_fails_in_a_stream,
        source_fails,
        item_of_a_list_fails,
        merged,
        source_of_several_fails,
        several_outputs,
        suspended,
        with_a_checkpoint,
    ],
)
def test_input_is_freed_when_the_run_ends(run: Callable[..., Any], how: dict[str, Any]) -> None:
    """A loop of runs over files had some twenty of them in memory."""
    data = Input()
    gc.collect()
    gc.disable()
    try:
        kept = run(data, **how)
        assert data.alive == 0
    finally:
        gc.enable()
    del kept


def whole_in_processes(data: Input, pool: Processes) -> None:
    list(ProcessStream(filtered(), data.table(), pool, {}))


def suspended_in_processes(data: Input, pool: Processes) -> Any:
    stream = ProcessStream(filtered(), data.table(), pool, {"end": "suspend"})
    list(stream)
    return stream


def left_half_way_in_processes(data: Input, pool: Processes) -> Any:
    stream = ProcessStream(filtered(), data.batches(), pool, {})
    next(stream)
    stream.close()
    return stream


def function_fails_in_processes(data: Input, pool: Processes) -> Any:
    stream = ProcessStream(filtered(never_at_3000), data.table(), pool, {})
    with contextlib.suppress(od.OperatorError):
        list(stream)
    return stream


def source_fails_in_processes(data: Input, pool: Processes) -> None:
    with contextlib.suppress(od.SourceError):
        list(ProcessStream(filtered(), data.batches(lambda: 1 / 0), pool, {}))


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(2) as processes:
        yield processes


@pytest.mark.parametrize(
    "run",
    [
        whole_in_processes,
        suspended_in_processes,
        left_half_way_in_processes,
        function_fails_in_processes,
        source_fails_in_processes,
    ],
)
def test_input_is_freed_when_the_processes_have_ended(run: Callable[..., Any], pool: Processes) -> None:
    data = Input()
    gc.collect()
    gc.disable()
    try:
        kept = run(data, pool)
        assert data.alive == 0
    finally:
        gc.enable()
    del kept

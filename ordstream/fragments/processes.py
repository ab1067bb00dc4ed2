"""One pipeline over several processes of this machine, with the key cut and the order tags of
`ordstream.fragments.fragmenting`.

For what threads can't spread: plain Python functions, which hold the GIL. Each process runs one node of each
fragment, fragment after fragment; between fragments rows change processes through sorted runs in a temporary
folder (`ordstream.fragments.exchange`), so memory is bounded whatever the keys are. The source stays in the
calling process, which gives it out in blocks to whoever asks. Processes are spawned, never forked: the
caller may have threads.

Rows that meet a keyed operator first are sent by the calling process itself, while the others still start.

The output, order and errors are those of a run in one process: when operators of several nodes fail, the
failure that a sequential run would meet first is the one that is raised. An answer that can be combined in
each node first (`ordstream.operators.halves`) is; where that does not decide, the last fragment runs as a
whole.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ordstream.errors import NodeLost, OperatorError, PlanError
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE, Route, RunWriter, merged
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.fragment_node import FragmentNode
from ordstream.ground.interrupts import kept_from_children
from ordstream.ground.ordertags import (
    AT_END,
    TAG,
    TAG_NAMES,
    OrderTag,
    OutputsOf,
    RunningIndex,
    source_serials,
    source_tags,
    tags_of,
)
from ordstream.ground.types import names_beside
from ordstream.plan.shedding import check_no_shed
from ordstream.udf import pickling as by_value

# Rows of the source that a process gets at a time.
BLOCK_ROWS = 16_384
GUARD_ADVICE = 'Its error is on stderr; a script must guard what it starts by: if __name__ == "__main__":'
MEMORY_ADVICE = "If it was killed for memory, use fewer processes"
# Between two calls of `progress`.
PROGRESS_S = 0.1
# How long a process may take to end when it was told to.
JOIN_S = 2.0

Source = Callable[[], tuple[int, pa.RecordBatch] | None]
"""Gives the next block of the source, (serial of its first row, rows), or None."""


@dataclass(frozen=True, eq=False)
class Work:
    """One node's share of a fragment.

    Attributes
    ----------
    fragment : Fragment
    route : Route or None
        None: the last fragment.
    runs : tuple of Path, or None
        Sorted runs to merge; None: the blocks of the source.
    outputs : tuple of Path
        One run per receiver.
    options : mapping
        Of the node.
    before : bytes or None
        See `FragmentNode`.
    """

    fragment: Fragment
    route: Route | None
    runs: tuple[Path, ...] | None
    outputs: tuple[Path, ...]
    options: Mapping[str, Any]
    before: bytes | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """How a share ended: the node's report, and its failure if there was one, with the failing row's
    order tag.
    """

    report: Any
    error: OperatorError | None = None
    cause: BaseException | None = None
    tag: bytes = b""


def do(work: Work, source: Source) -> Outcome:
    """Run one share in this process."""
    rows = merged(work.runs) if work.runs is not None else _tagged(source, work.fragment.source)
    with (
        RunWriter(work.outputs) as writer,
        FragmentNode(work.fragment, rows, work.route, work.options, work.before) as node,
    ):
        try:
            for batch in node:
                writer.write(batch)
        except OperatorError as error:
            node.close()
            return Outcome(node.report, error, error.__cause__, error.order_tag)
        node.close()
        return Outcome(node.report)


def _tagged(source: Source, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while (block := source()) is not None:
        first, rows = block
        tags = source_tags(np.arange(first, first + rows.num_rows))
        yield pa.RecordBatch.from_arrays(
            [*rows.columns, tags], schema=pa.schema([*rows.schema, pa.field(TAG, pa.binary(), False)])
        )


# -------------------------------------------------------------------------------- who does the work


class Nodes(Protocol):
    """What runs the shares of one fragment at the same time."""

    def run(self, works: Sequence[Work], source: Source) -> list[Outcome]:
        """The outcomes, in the order of the shares."""


class SameProcess:
    """All nodes one after the other in this process: what a cut means, without any parallelism."""

    def run(self, works: Sequence[Work], source: Source) -> list[Outcome]:
        """The outcomes; the nodes take turns at the source's blocks."""
        blocks: list[list[tuple[int, pa.RecordBatch]]] = [[] for _ in works]
        if works[0].runs is None:
            k = 0
            while (block := source()) is not None:
                blocks[k % len(works)].append(block)
                k += 1
        taken = [iter(mine) for mine in blocks]
        return [do(work, partial(next, mine, None)) for work, mine in zip(works, taken, strict=True)]


class Processes:
    """Spawned processes, one per node. A context manager; leaving it ends them, whatever they are doing.

    Raises
    ------
    NodeLost
        When a process ends before its share is done.
    """

    def __init__(self, n: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes: list[connection.Connection] = []
        self._processes: list[BaseProcess] = []
        for k in range(n):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), name=f"ordstream-node-{k}", daemon=True)
            with kept_from_children():
                process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def run(self, works: Sequence[Work], source: Source) -> list[Outcome]:
        """Hand the shares out; serve blocks of the source until every share is done."""
        outcomes: dict[int, Outcome] = {}
        for k, work in enumerate(works):
            self._send(k, dumps(work))
        while len(outcomes) < len(works):
            open_ = [k for k in range(len(works)) if k not in outcomes]
            waits: list[Any] = [self._pipes[k] for k in open_]
            ready = connection.wait([*waits, *(self._processes[k].sentinel for k in open_)])
            for k in open_:
                if self._pipes[k] in ready:
                    self._take(k, outcomes, source)
                elif self._processes[k].sentinel in ready:
                    raise self._lost(k)
        return [outcomes[k] for k in range(len(works))]

    def _take(self, k: int, outcomes: dict[int, Outcome], source: Source) -> None:
        try:
            message = pickle.loads(self._pipes[k].recv_bytes())
        except (EOFError, OSError):
            raise self._lost(k) from None
        if message is None:  # the next block, please
            block = source()
            self._send(
                k,
                pickle.dumps(
                    None if block is None else (block[0], block[1].schema, block[1].serialize().to_pybytes())
                ),
            )
        elif isinstance(message, Outcome):
            outcomes[k] = message
        else:
            raise message

    def _send(self, k: int, data: bytes) -> None:
        try:
            self._pipes[k].send_bytes(data)
        except (BrokenPipeError, OSError):
            raise self._lost(k) from None

    def _lost(self, k: int) -> NodeLost:
        process = self._processes[k]
        process.join(JOIN_S)
        code = process.exitcode
        how = (
            f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
        )
        return NodeLost(
            f"process {k + 1} of {len(self._processes)} (pid {process.pid}) ended before its work did: "
            f"{how}. "
            f"{GUARD_ADVICE if code == 1 else MEMORY_ADVICE}"
        )

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
        end = time.monotonic() + JOIN_S
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def _serve(pipe: connection.Connection) -> None:
    """Body of a process: shares in, outcomes out, until the pipe ends."""
    # Ctrl-C reaches the whole group; the caller ends this process
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="ordstream-parent", daemon=True).start()

    def source() -> tuple[int, pa.RecordBatch] | None:
        pipe.send_bytes(pickle.dumps(None))
        block = pickle.loads(pipe.recv_bytes())
        return (
            None if block is None else (block[0], pa.ipc.read_record_batch(pa.py_buffer(block[2]), block[1]))
        )

    importlib.import_module("ordstream.node")  # the compiled core, while the caller gets ready
    by_value.library()
    while True:
        try:
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        try:
            answer: Any = do(_loaded(data), source)
        except Exception as error:
            answer = error
        pipe.send_bytes(_picklable(answer))


def _loaded(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except (ImportError, AttributeError) as error:
        raise PlanError(
            f"processes: a spawned process can't find the pipeline's functions ({type(error).__name__}: "
            f"{error}); "
            "define them at the top of a module that it can import, for example one in a folder on "
            "PYTHONPATH"
        ) from error


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _picklable(answer: Any) -> bytes:
    """The answer as bytes; an exception that can't be pickled as one that tells its type and text."""
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except Exception:
        if isinstance(answer, Outcome) and answer.error is not None:
            cause = RuntimeError(f"{type(answer.cause).__name__}: {answer.cause}")
            return pickle.dumps(replace(answer, cause=cause))
        return pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))
    return data


def dumps(work: Any) -> bytes:
    """Pickle, by value where a library for that is there (functions of scripts, notebooks and lambdas).

    Raises
    ------
    PlanError
        A function of the pipeline can't be sent to another process.
    """
    library = by_value.library()
    if library is not None:
        return bytes(library.dumps(work))
    try:
        return pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PlanError(
            f"the pipeline can't be sent to another process: {error}; define its functions at the top of a "
            "module, "
            "or install cloudpickle"
        ) from error


# ------------------------------------------------------------------------------------------------ the run


def run(pipeline: Any, data: Any, processes: int, options: Mapping[str, Any]) -> Any:
    """Run a pipeline over `processes` spawned processes and return all output (`Pipeline.run(...,
    processes=N)`).

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data
        As for `ordstream.node.run`; read in this process.
    processes : int
    options : mapping
        Of every node; `workers` defaults to 0, one thread per process.

    Raises
    ------
    PlanError
        For an option that does not go with a cut, or a function that can't be sent to another process.
    OperatorError, SourceError
        As in one process.
    NodeLost
        A process was killed or crashed.
    """
    progress = options.get("progress")
    fragments, options, tags = prepare(pipeline, options, f"processes={processes}")
    with Processes(processes) as nodes:  # they import while this process gets ready
        for fragment in fragments:
            dumps(fragment)  # an error now, not in the middle
        return run_fragments(fragments, data, processes, options, nodes, tags, progress=progress)


def prepare(
    pipeline: Any, options: Mapping[str, Any], where: str
) -> tuple[tuple[Fragment, ...], dict[str, Any], bool]:
    """The fragments, a node's options, and whether order tags are asked for."""
    from ordstream.node.settings import make_settings, refuse_state
    from ordstream.plan.final import final

    chosen = {name: value for name, value in options.items() if value is not None}
    settings = make_settings(chosen)
    refuse_state(settings, where)
    fragmenting.check_options(chosen, where)
    check_no_shed(pipeline.plan, where)
    plan = final(pipeline.plan) if settings.emit == "final" else pipeline.plan
    if settings.tags:
        names_beside(plan.output.names, TAG_NAMES, "tags=True")
    for name in ("emit", "tags", "progress", "partial", "feeder", "end", "snapshots"):
        chosen.pop(name, None)
    return fragmenting.fragments_of(plan), {"workers": 0, **chosen}, settings.tags


def run_fragments(
    fragments: Sequence[Fragment],
    data: Any,
    n: int,
    options: Mapping[str, Any],
    nodes: Nodes,
    tags: bool,
    block_rows: int = BLOCK_ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> Any:
    """Run the fragments, one after the other, each in all its nodes; `run` with the nodes given.

    `progress` hears of the tuples given out; no output is there before the end, so none is emitted through
    until then.
    """
    from ordstream.node.merged_report import merged as merged_report
    from ordstream.node.result import Result

    started = time.perf_counter()
    blocks = _Blocks(data, fragments[0].source, block_rows, progress)
    before: bytes | None = None
    failure: BaseException | None = None
    reports: list[list[Any]] = []
    with tempfile.TemporaryDirectory(prefix="ordstream-") as name:
        folder = Path(name)
        for k, fragment in enumerate(fragments):
            early = (
                _combine(fragments, folder, n, options, nodes)
                if k == len(fragments) - 1 and before is None
                else None
            )
            if early is not None:
                reports.append(early)
                continue
            senders = (fragments[k - 1].nodes(n) if reports else 1) if k else 0
            receivers = fragments[k + 1].nodes(n) if k + 1 < len(fragments) else 1
            key = fragments[k + 1].key if k + 1 < len(fragments) else None
            route = None if key is None else Route(fragment.output, key, receivers)
            if k == 0 and key and route is not None and not fragment.operators:
                # Nothing to run before the first key: this process sends, while the others start.
                send(blocks, route, [folder / f"0-0-{receiver}" for receiver in range(receivers)])
                if blocks.error is not None:
                    before, failure = source_tags(np.array([blocks.rows + 1]))[0].as_py(), blocks.error
                continue
            works = [
                Work(
                    fragment,
                    route,
                    tuple(folder / f"{k - 1}-{sender}-{node_}" for sender in range(senders)) if k else None,
                    tuple(folder / f"{k}-{node_}-{receiver}" for receiver in range(receivers)),
                    options,
                    before,
                )
                for node_ in range(fragment.nodes(n))
            ]
            outcomes = nodes.run(works, blocks)
            reports.append([outcome.report for outcome in outcomes])
            for outcome in outcomes:
                if outcome.error is not None and (before is None or outcome.tag < before):
                    before, failure = outcome.tag, _failure(outcome, blocks.rows)
            if k == 0 and blocks.error is not None and before is None:
                before, failure = source_tags(np.array([blocks.rows + 1]))[0].as_py(), blocks.error
            for work in works:
                for path in work.runs or ():
                    path.unlink(missing_ok=True)
        if failure is not None:
            raise failure
        schema = fragments[-1].output
        last = [folder / f"{len(fragments) - 1}-{sender}-0" for sender in range(fragments[-1].nodes(n))]
        passed = OutputsOf(blocks.rows)
        batches = list(restored(passed(merged(last)), schema, blocks.rows if tags else None))
    if progress is not None:
        progress(blocks.rows, blocks.rows)
    if tags:
        schema = schema.append(pa.field("_serial", pa.int64())).append(pa.field("_index", pa.int64()))
    through = OrderTag(blocks.rows, passed.count - 1)
    report = merged_report(reports, seconds=time.perf_counter() - started, emitted_through=through)
    return Result(batches, schema, report)


def send(source: Source, route: Route, outputs: Sequence[Path]) -> None:
    """Write the source's rows to the runs of the nodes that they go to."""
    with RunWriter(outputs) as writer:
        for rows in _tagged(source, route.schema):
            writer.write(
                pa.RecordBatch.from_arrays(
                    [*rows.columns, pa.array(route(rows))], names=[*rows.schema.names, NODE]
                )
            )


def _combine(
    fragments: Sequence[Fragment], folder: Path, n: int, options: Mapping[str, Any], nodes: Nodes
) -> list[Any] | None:
    """Run the last fragment in halves, the first one in every node over its own run; the output is where the
    fragment's would be.

    Returns the reports of the fragment in its nodes, or None: it has no halves, or one of them failed, and
    then the runs are as they were and the fragment as a whole says what a sequential run does.
    """
    two, k = fragmenting.halved(fragments), len(fragments) - 1
    if two is None or fragments[k - 1].nodes(n) == 1:
        return None
    part, merge = two
    runs = [folder / f"{k - 1}-{sender}-0" for sender in range(fragments[k - 1].nodes(n))]
    parts = [run.with_name(f"{run.name}-part") for run in runs]
    outcomes = nodes.run(
        [Work(part, None, (run,), (path,), options, None) for run, path in zip(runs, parts, strict=True)],
        lambda: None,
    )
    if not any(outcome.error for outcome in outcomes):
        output = folder / f"{k}-0-0"
        (last,) = nodes.run([Work(merge, None, tuple(parts), (output,), options, None)], lambda: None)
        if last.error is None:
            return [
                _with_rows_out(o.report, last.report.rows_out if not i else 0)
                for i, o in enumerate(outcomes)
            ]
        output.unlink(missing_ok=True)
    return None


def _with_rows_out(report: Any, rows: int) -> Any:
    *others, last = report.operators
    return replace(report, rows_out=rows, operators=(*others, replace(last, tuples_out=rows)))


class _Blocks:
    """The source in blocks, with the serial of each block's first row. An error of the source ends it."""

    def __init__(
        self, data: Any, schema: pa.Schema, block_rows: int, progress: Callable[[int, int], None] | None
    ) -> None:
        from ordstream._core.ground.arrow import core_schema
        from ordstream.node import source

        self.rows = 0
        self.error: BaseException | None = None
        self._progress, self._told = progress, time.monotonic()
        self._block_rows = block_rows
        self._batches = source.batches(data, core_schema(schema))
        self._rest: pa.RecordBatch | None = None

    def __call__(self) -> tuple[int, pa.RecordBatch] | None:
        if self.error is not None:
            return None
        if self._rest is None:
            try:
                self._rest = next(self._batches, None)
            except Exception as error:
                self.error = _source_error(error, self.rows)
        if self._rest is None:
            return None
        block = self._rest.slice(0, self._block_rows)
        self._rest = self._rest.slice(self._block_rows) if self._rest.num_rows > self._block_rows else None
        first, self.rows = self.rows + 1, self.rows + block.num_rows
        if self._progress is not None and time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            self._progress(self.rows, 0)
        return first, block


def _source_error(error: Exception, rows: int) -> BaseException:
    from ordstream.errors import OrdstreamError, SourceError

    if isinstance(error, OrdstreamError):
        return error
    wrapped = SourceError(f"the source failed after {rows} tuples: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _failure(outcome: Outcome, rows: int) -> OperatorError:
    """The error as a run in one process raises it; what failed at the end of the stream has the last
    tuple's serial.
    """
    error = outcome.error
    assert error is not None
    if outcome.tag[:1] == AT_END:
        error = OperatorError(error.operator, rows, error.row, error.reason)
    error.__cause__ = outcome.cause
    return error


def restored(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, last_serial: int | None
) -> Iterator[pa.RecordBatch]:
    """Rows in the order of their tags as output: without the tag, with `last_serial` as (_serial, _index).

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        The columns of `schema`, and the tag.
    schema : pyarrow.Schema
    last_serial : int, optional
        The source's last tuple, which what the end of the stream causes is tagged with.
    """
    running = RunningIndex()
    tagged = schema.append(pa.field("_serial", pa.int64())).append(pa.field("_index", pa.int64()))
    for batch in batches:
        columns = [batch.column(k).cast(field.type) for k, field in enumerate(schema)]
        if last_serial is None:
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
            continue
        serials, at_end = source_serials(tags_of(batch))
        serials[at_end] = last_serial
        yield pa.RecordBatch.from_arrays(
            [*columns, pa.array(serials), pa.array(running(serials))], schema=tagged
        )

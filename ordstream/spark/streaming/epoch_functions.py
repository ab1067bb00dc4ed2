"""What runs in Spark tasks for one epoch: a whole pipeline in one node, or its fragments over nodes.

Files are written under names of the attempt and synced. Their names, and all else that the driver must know,
travel as rows through the job to its one result: an attempt that Spark lets win is the one that is heard.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from ordstream.balance.posg import FrozenPosg
from ordstream.errors import SourceError
from ordstream.fragments.exchange import Route
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.time_marks import TimeMark
from ordstream.ground.nested_cast import align_output
from ordstream.ground.ordertags import TAG, OrderTag, RunningIndex, source_serials, source_tags
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.lanes import laid_out
from ordstream.snapshots.fit import complete
from ordstream.snapshots.snapshot import Snapshot
from ordstream.spark.arrival import read_column
from ordstream.spark.executor import worker_options
from ordstream.spark.mark_rows import MarksOf
from ordstream.spark.shipped import Shipped
from ordstream.spark.streaming.arriving import Arrival, Arriving
from ordstream.spark.streaming.epoch_files import EpochFiles
from ordstream.spark.streaming.epoch_manifest import Said
from ordstream.spark.streaming.epoch_marks import RESULT, EpochClock, apart, rows_of, said_among
from ordstream.spark.streaming.epoch_output import Output
from ordstream.spark.streaming.group_ranges import GroupRanges
from ordstream.spark.streaming.key_costs import KeyCosts
from ordstream.spark.streaming.moving import Moved, MovedShare, Moves
from ordstream.spark.streaming.spread import Spread
from ordstream.spark.streaming.stored_state import Share, shares_of, stored
from ordstream.spark.streaming.timed_calls import TimedCalls
from ordstream.spark.watchdog import Watchdog, task_socket

FINISH, SUSPEND = "finish", "suspend"
#: The number of the fragment of stateless operators; keyed ones have numbers from 2.
FIRST = 1


@dataclass(frozen=True)
class Begin:
    """Where an epoch begins: what the one in front has left.

    Attributes
    ----------
    folder : str
        The stream's.
    number : int
        Of the epoch.
    serial : int
        The last serial that was given.
    emitted_through : OrderTag
    latest_time : int or None
    states : mapping of str to sequence of mapping
        As in the manifest.
    nodes : int
        In how many nodes these states lie.
    maps : mapping of int to grouping
        Fragment -> deployed map of these states.
    end : str
        `SUSPEND`, or `FINISH` for the end of the stream.
    cut_alike : bool
        The same run left these states, so its pipeline was cut at the same places. False: its operators may
        have been in other fragments, routed by other columns, and any file may hold rows of any node.
    run : str
        Id of this run of the query.
    """

    folder: str
    number: int
    serial: int
    emitted_through: OrderTag
    latest_time: int | None
    states: Mapping[str, Sequence[Said]]
    nodes: int
    maps: Mapping[int, Any]
    end: str = SUSPEND
    cut_alike: bool = True
    run: str = ""

    def files(self, node: str) -> EpochFiles:
        """Names for one attempt's files."""
        return EpochFiles(self.folder, self.number, node, run=self.run)


@dataclass(frozen=True)
class Columns:
    """How a source's columns arrive.

    Attributes
    ----------
    source : pyarrow.Schema
    names : tuple of str
        Under which they arrive.
    unread : tuple of str
        Columns of the source that need not.
    """

    source: pa.Schema
    names: tuple[str, ...]
    unread: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The source's batches.

        Raises
        ------
        SourceError
            They don't fit.
        """
        for batch in batches:
            try:
                columns = [
                    pa.nulls(batch.num_rows, column.type)
                    if column.name in self.unread and name not in batch.schema.names
                    else read_column(batch, name, column)
                    for name, column in zip(self.names, self.source, strict=True)
                ]
                found = pa.RecordBatch.from_arrays(columns, schema=self.source)
            except (KeyError, pa.ArrowException) as error:
                raise SourceError(f"arriving rows don't fit the pipeline's source: {error}") from error
            yield found


def _result(said: Mapping[str, Any]) -> bytes:
    context = TaskContext.get()
    return json.dumps({"partition": 0 if context is None else context.partitionId(), **said}).encode()


@dataclass(frozen=True)
class WholeFunction(Shipped):
    """A whole pipeline over a micro-batch, in one node (`DataFrame.mapInArrow` on one partition).

    Parameters
    ----------
    pipeline : Pipeline
    columns : Columns
    output : pyarrow.Schema
        Of the files: the output in Spark's types, then the tag's two columns.
    arrival : Arrival
    begin : Begin
    workers : int or "auto", optional
    options : dict
        Further options of the node.
    """

    pipeline: Pipeline
    columns: Columns
    output: pa.Schema
    arrival: Arrival
    begin: Begin
    workers: int | str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row: what the driver must know."""
        began = time.perf_counter()
        with self.begin.files("0") as files, Output(files, self.output) as output:
            arriving = Arriving(self.arrival, batches, files)
            said: dict[str, Any] = {"part": "whole", "states": None, "node": 0, "output": []}
            said |= self._run(arriving, files, output)
            said |= arriving.said()
            files.sync_folders()
        said |= {"write_seconds": files.seconds, "seconds": time.perf_counter() - began}
        yield pa.RecordBatch.from_arrays([pa.array([_result(said)], pa.binary())], names=[RESULT])

    def _run(self, arriving: Arriving, files: EpochFiles, output: Output) -> dict[str, Any]:
        """The state is there before a row is asked for: Spark reads and sorts them meanwhile."""
        from ordstream.node import node  # the compiled core, which a driver need not load

        begin = self.begin
        held = stored(begin.folder, begin.number - 1, begin.states)
        states = complete(laid_out(self.pipeline.plan).operators, held)
        restored = Snapshot(begin.serial, begin.emitted_through, begin.latest_time, None, states)
        options = worker_options(self.workers) | self.options
        options |= {"absent": self.columns.unread, "restore": restored, "end": begin.end, "tags": True}
        options |= {
            "feeder": "caller",
            "partial": False,
            "shed_partition": 0,
            "snapshots": begin.end == SUSPEND,
        }
        stream = node.stream(self.pipeline, self.columns(arriving), **options)
        with Watchdog(task_socket()) as watchdog, stream:
            watchdog.guard(stream.cancel)
            for batch in stream:
                output.write(batch)
        if not arriving.released and begin.nodes == 1 and begin.end == SUSPEND:
            return {}  # nothing changed
        output.end()  # one file is on its way to the disk while another is written
        through = stream.report.emitted_through
        said: dict[str, Any] = {"emitted_through": [through.serial, through.index], "states": {}}
        if begin.end == SUSPEND:
            snapshot: Any = stream.snapshot
            said["latest_time"] = snapshot.latest_time
            said["states"] = _states(files, snapshot)
        return said | {"output": output.said()}


def _states(files: EpochFiles, snapshot: Snapshot) -> dict[str, Said]:
    return {
        name: files.state(number, name, rows) for number, (name, rows) in enumerate(snapshot.states.items())
    }


# ---------------------------------------------------------------------------------------- over nodes


@dataclass(frozen=True)
class FragmentPart:
    """What the functions of a fragment share.

    Attributes
    ----------
    fragment : Fragment
    number : int
        From 1.
    route : Route or None
        To the next fragment; None: this is the last one.
    output : pyarrow.Schema
        As Spark has it: the columns, the tag, the node where there is a route, the result.
    begin : Begin
    nodes : int
        Of the whole job.
    grouping : grouping, optional
        The map by which this fragment's rows came.
    workers, options
        As for `WholeFunction`.
    measured : bool
        The node tells what its keys cost.
    timed : Fragment, optional
        The fragment with a function's execution times measured; run in its place.
    moves : Moves, optional
        What of the states changes its node where it is only the routing table that changed.
    marks : MarksOf
        Of the clocks.
    """

    fragment: Fragment
    number: int
    route: Route | None
    output: pa.Schema
    begin: Begin
    nodes: int
    grouping: Any = None
    workers: int | str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    measured: bool = False
    timed: Fragment | None = None
    moves: Moves | None = None
    marks: MarksOf = field(default_factory=MarksOf)

    def run(
        self, rows: Iterator[pa.RecordBatch | TimeMark], node: int, said: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """The fragment's output, and marks for those behind; then `said` has what it has left: its states,
        or None where nothing changed.
        """
        onward: list[TimeMark] = []
        some, rows = self._first(self.marks.heard(rows, onward), node)
        moved = self._moved(node)
        if some or moved or self.begin.end == FINISH:
            yield from self._run(rows, node, moved, said)
        else:
            said["states"] = None
        if node == 0:  # every node has heard the same
            yield from rows_of(self.marks, self.output, onward)

    def _first(self, rows: Iterator[Any], node: int) -> tuple[bool, Iterator[Any]]:
        """Whether something may come of what arrives, and all of that. Nothing comes of marks alone where
        nothing is known.
        """
        head: list[Any] = []
        for one in rows:
            head.append(one)
            if not isinstance(one, TimeMark):
                return True, chain(head, rows)
        parts = chain.from_iterable(self._states().values())
        return bool(head) and any(part["rows"] > 0 for part in parts if part["node"] == node), iter(head)

    def _moved(self, node: int) -> bool:
        """The states lie as another number of nodes, another map or another cut has left them."""
        if not self._states():
            return False
        if not self.begin.cut_alike:
            return True
        if self.moves is not None:
            return self.moves.concern(node)
        before, after = self.begin.maps.get(self.number), self.grouping
        if self.begin.nodes != self.nodes or (before is None) != (after is None):
            return True
        return before is not None and before.to_bytes() != after.to_bytes()

    def _states(self) -> dict[str, Sequence[Said]]:
        own = {operator.name for operator in self.fragment.operators}
        return {name: parts for name, parts in self.begin.states.items() if name in own}

    def _run(
        self, rows: Iterator[pa.RecordBatch], node: int, moved: bool, said: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        from ordstream.fragments.fragment_node import FragmentNode

        begin, fragment = self.begin, self.fragment
        states, shares, counted = self._begun(node, moved)
        # rows of the first fragment in one node are all rows; else a serial is the place in the node
        serial = begin.serial if self.number == FIRST and self.grouping is None else 0
        held = complete(fragment.operators, stored(begin.folder, begin.number - 1, states, shares))
        restored = Snapshot(serial, OrderTag(serial), None, None, held)
        options = worker_options(self.workers) | self.options | {"absent": self.unread, "restore": restored}
        options |= {"end": begin.end, "snapshots": begin.end == SUSPEND}
        route = self.route
        if route is not None and isinstance(route.grouping, Spread | FrozenPosg):
            route = replace(route, grouping=route.grouping.router())
        costs = None
        if self.measured:
            costs = KeyCosts(Route(fragment.source, fragment.key or (), self.nodes, self.grouping))
            rows = costs.watch(rows)
        began = time.process_time()
        calls = TimedCalls(fragment, node) if self.measured and options["workers"] == 0 else None
        timed = calls.fragment if calls is not None else None
        running = FragmentNode(timed or self.timed or fragment, rows, route, options)
        with Watchdog(task_socket()) as watchdog, running:
            watchdog.guard(running.cancel)
            for batch in running:
                if batch.num_rows:
                    yield align_output(_with_result(batch), self.output)
            left = running.left_marks(self.marks.behind) if self.marks.makes else []
        yield from rows_of(self.marks, self.output, self.marks.left(left))
        seconds = time.process_time() - began
        said["states"] = {}
        if self.timed is not None and not self.measured:
            found = next(iter(running.models.values()), None)
            if found is not None and found.tuples:
                data = base64.b64encode(found.to_bytes()).decode("ascii")
                said |= {"times": data, "rows": running.taken}
        if counted is not None:
            said["moved"] = counted.said()
        if costs is not None and begin.end == SUSPEND:
            told = shares_of(fragment, self.nodes, node, self.grouping)
            kept = self.grouping.table[0]
            found = next(iter(running.models.values()), None)
            if calls is not None and timed is not None:
                found = calls.times
            took = (seconds, found)
            said |= costs.said(node, begin.number, took, running.snapshot.states, told, kept)
        if begin.end == SUSPEND:
            with begin.files(f"{self.number}-{node}") as files:
                said["states"] = _states(files, running.snapshot)
                files.sync_folders()
            said["write_seconds"] = files.seconds

    def _begun(self, node: int, moved: bool) -> tuple[Any, dict[str, Share] | None, Moved | None]:
        """The files that the node begins with, what of their rows it takes, and who counts what comes."""
        states, fragment = self._states(), self.fragment
        own = {name: [part for part in parts if part["node"] == node] for name, parts in states.items()}
        if not moved:
            return own, None, None
        counted = Moved(self.begin.maps.get(self.number), self.grouping) if self.measured else None
        nodes = fragment.nodes(self.nodes)
        if self.moves is None:
            some = _left_by(states, self._sources(node))
            return some, shares_of(fragment, nodes, node, self.grouping, counted), counted
        some = _left_by(states, self.moves.sources(node) | {node})
        kind = partial(MovedShare, moves=self.moves)
        return some, shares_of(fragment, nodes, node, self.grouping, counted, kind), counted

    def _sources(self, node: int) -> Collection[int]:
        """Nodes of the epoch in front that may have left rows of this one."""
        before, after = self.begin.maps.get(self.number), self.grouping
        if self.begin.cut_alike and isinstance(before, GroupRanges) and isinstance(after, GroupRanges):
            return before.nodes_of(after.groups_of(node))
        return range(self.begin.nodes)

    def result(self, *found: bytes) -> pa.RecordBatch:
        """Rows that carry results."""
        return said_among(self.output, found, [b""] * len(found), 0)


def _left_by(states: Mapping[str, Sequence[Said]], nodes: Collection[int]) -> dict[str, list[Said]]:
    """The files that these nodes have left."""
    return {name: [part for part in parts if part["node"] in nodes] for name, parts in states.items()}


def _with_result(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(RESULT, pa.nulls(batch.num_rows, pa.binary()))


@dataclass(frozen=True)
class InputFunction(Shipped):
    """The first fragment of a cut pipeline over a micro-batch: rows get their serials in one task.

    Parameters
    ----------
    part : FragmentPart
    columns : Columns
    arrival : Arrival
    clock : EpochClock, optional
        Where the stream has one.
    """

    part: FragmentPart
    columns: Columns
    arrival: Arrival
    clock: EpochClock | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the fragment's rows, then what the driver must know."""
        with self.part.begin.files("0") as files:
            yield from self._run(batches, files)

    def _run(self, batches: Iterator[pa.RecordBatch], files: EpochFiles) -> Iterator[pa.RecordBatch]:
        arriving = Arriving(self.arrival, batches, files)
        said: dict[str, Any] = {"part": "input", "fragment": self.part.number, "node": 0}
        marks, latest = list[TimeMark](), [self.part.begin.latest_time]
        rows = self.columns(arriving)
        if self.clock is not None:
            rows = self.clock.watch(self.part.begin.serial + 1, rows, marks, latest)
        yield from self.part.run(self._tagged(rows), 0, said)
        yield from rows_of(self.part.marks, self.part.output, marks)
        said |= arriving.said() | {"latest_time": latest[-1]}
        files.sync_folders()
        yield self.part.result(_result(said))

    def _tagged(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        serial = self.part.begin.serial + 1
        for batch in rows:
            tags = source_tags(np.arange(serial, serial + batch.num_rows, dtype=np.int64))
            serial += batch.num_rows
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, tags], schema=pa.schema([*batch.schema, pa.field(TAG, pa.binary(), False)])
            )


@dataclass(frozen=True)
class NodesFunction(Shipped):
    """A further fragment in one of its nodes. Rows come sorted by tag, under their names in the job.

    Parameters
    ----------
    part : FragmentPart
    columns : Columns
    """

    part: FragmentPart
    columns: Columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the fragment's rows and results."""
        context = TaskContext.get()
        node = 0 if context is None else context.partitionId()
        results: list[bytes] = []
        said: dict[str, Any] = {"part": "node", "fragment": self.part.number, "node": node}
        yield from self.part.run(self._arriving(apart(batches, results)), node, said)
        yield self.part.result(*results, _result(said))

    def _arriving(self, batches: Iterator[Any]) -> Iterator[pa.RecordBatch | TimeMark]:
        schema = pa.schema([*self.columns.source, pa.field(TAG, pa.binary(), False)])
        for batch in batches:
            if isinstance(batch, TimeMark):
                yield batch
                continue
            (rows,) = self.columns(iter([batch]))
            yield pa.RecordBatch.from_arrays([*rows.columns, batch.column(TAG)], schema=schema)


@dataclass(frozen=True)
class MergeFunction(Shipped):
    """The last step over nodes: all rows in order into one file; the results to the driver.

    Parameters
    ----------
    begin : Begin
    names : tuple of str
        The output's columns under their names in the job.
    output : pyarrow.Schema
        As for `WholeFunction`.
    """

    begin: Begin
    names: tuple[str, ...]
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all results."""
        with self.begin.files("0") as files, Output(files, self.output) as output:
            yield from self._run(batches, files, output)

    def _run(
        self, batches: Iterator[pa.RecordBatch], files: EpochFiles, output: Output
    ) -> Iterator[pa.RecordBatch]:
        begin, results = self.begin, list[bytes]()
        running: RunningIndex | None = None
        for batch in apart(batches, results):
            assert not isinstance(batch, TimeMark)  # no stage is behind the last one
            if running is None:
                last = _last_serial(begin, results)
                running = RunningIndex(begin.emitted_through)
            serials, at_end = source_serials(batch.column(TAG))
            serials[at_end] = last
            columns = [batch.column(name) for name in self.names]
            output.write(
                pa.RecordBatch.from_arrays(
                    [*columns, pa.array(serials), pa.array(running(serials))], names=self.output.names
                )
            )
        output.end()
        last = _last_serial(begin, results)
        through = OrderTag(last) if last > begin.emitted_through.serial else begin.emitted_through
        through = max(through, output.last) if output.last is not None else through
        said = {
            "part": "merge",
            "node": 0,
            "output": output.said(),
            "emitted_through": [through.serial, through.index],
        }
        files.sync_folders()
        found = [*results, _result(said | {"write_seconds": files.seconds})]
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], names=[RESULT])


def _last_serial(begin: Begin, results: Sequence[bytes]) -> int:
    """The last serial behind the epoch. Results come in front of all rows."""
    said = map(json.loads, results)
    return begin.serial + int(next(one["released"] for one in said if one["part"] == "input"))


@dataclass(frozen=True)
class DigestFunction(Shipped):
    """What a micro-batch's rows were, and nothing else: to compare a replayed one with its manifest.

    Parameters
    ----------
    arrival : Arrival
    """

    arrival: Arrival

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row."""
        arrival = replace(self.arrival, last=None, slack=None, waiting=None)
        arriving = Arriving(arrival, batches, EpochFiles("", 0, ""))
        for _ in arriving:
            pass
        yield pa.RecordBatch.from_arrays([pa.array([_result(arriving.said())], pa.binary())], names=[RESULT])

"""The function that runs in a Spark task: one ordered node over the rows of one partition.

The same function serves `DataFrame.mapInArrow` (record batches in and out) and `RDD.mapPartitions` (rows in,
tuples out). It is pickled on the driver and called in a Python worker, after the worker's fork; the node's
threads live and die inside the call. Only the calling thread touches Spark's streams.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.accumulators import Accumulator

from ordstream.errors import OperatorError, OrdstreamError, SourceError
from ordstream.fragments.exchange import NODE, RangeRoute, Route
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.time_marks import TimeMark
from ordstream.ground.nested_cast import align_output
from ordstream.ground.ordercheck import OrderCheck, SortKey
from ordstream.ground.ordertags import (
    SERIAL_MASK,
    TAG,
    RunningIndex,
    caused_by_marks,
    check_ascending,
    places_and_rests,
    source_tags,
    tags_of_places,
)
from ordstream.pipeline.pipeline import Pipeline
from ordstream.spark.arrival import batches_of_rows, python_values, read_column
from ordstream.spark.mark_rows import MARK, PLACE, REST, MarksOf, marked
from ordstream.spark.progress import Door, Reporter, TaskKey
from ordstream.spark.room import in_flight, tell_no_room
from ordstream.spark.shed_node import ShedNode
from ordstream.spark.shipped import Shipped
from ordstream.spark.sort_columns import SortColumns, SortedOutputs
from ordstream.spark.watchdog import Watchdog, task_socket

if TYPE_CHECKING:
    from ordstream.balance.dkg import DKG, DKGLearner
    from ordstream.balance.sketches import ExecutionTimes
    from ordstream.plan.plan import Plan
    from ordstream.spark.clock_marks import Marks

SERIAL = "__ordstream_serial"

Leaves = Literal["tag", "place", "sorted", "rows"]
"""What leaves a fragment's nodes beside its columns: the tag; the same in two columns; the sort columns of
the rows that caused them, and the partition (`ordstream.spark.sort_columns`); nothing.
"""

# From one output batch to the next that is not full: a batch costs Spark much more than its rows, and a slow
# function lets out few at a time. What is there goes out then, for an action that wants the first rows only.
BATCH_SECONDS = 0.1

ROW_BITS = 33  # of `monotonically_increasing_id`: the row of the partition
ROW_MASK = (1 << ROW_BITS) - 1
NO_SERIALS = "(the serial counts this task's rows: with order='total' an error has the source's)"
#: Of a node whose rows have sort columns; `ordstream.spark.source_serial` finds it again.
OWN_SERIAL = "(the serial counts the rows of node {}: with tags=True an error has the source's)"


def carried_name(number: int) -> str:
    """Name inside a job of a column of a pipeline's, or a fragment's, source or output: users' names are
    no names for Spark.
    """
    return f"c{number}"


@dataclass(frozen=True)
class NodeFunction(Shipped):
    """Run a pipeline in one ordered node over one partition, in order.

    Parameters
    ----------
    pipeline : Pipeline
        What to run; its functions must be picklable.
    source : pyarrow.Schema
        Columns of the pipeline's source; arriving columns are found by name and cast.
    unread : tuple of str
        Those of them that the pipeline does not read, so that they need not arrive. Not in rows of an RDD.
    output : pyarrow.Schema
        Columns that Spark expects, which matches them by position and never casts.
    order_by : tuple of str
        Columns in which arriving rows must ascend (NULL first); a row out of order is an error. They need
        not be columns of the source.
    part : "output", "shed_log" or the name of a shed operator
        What of the result is yielded: the output, the log of what was shed, or the tuples that this operator
        shed.
    partition : int, optional
        Number of the partition, for decisions of shed operators; default Spark's. Given: these are all the
        rows of a frame.
    names, ordering : tuple of str
        Names under which the columns of `source`, and those of `order_by`, arrive; (): their own. Not in
        rows of an RDD.
    workers : int or "auto", optional
        Threads of the node; by default, and with "auto", as many as bring something, at most the task's
        processors (`spark.task.cpus`); by default none besides the calling thread where that is 1.
    options : dict
        Further arguments of `Pipeline.stream`.
    door : Door, optional
        Where to report progress.
    """

    pipeline: Pipeline
    source: pa.Schema
    output: pa.Schema
    order_by: tuple[str, ...] = ()
    workers: int | str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    door: Door | None = None
    unread: tuple[str, ...] = ()
    part: str = "output"
    partition: int | None = None
    names: tuple[str, ...] = ()
    ordering: tuple[str | SortKey, ...] = ()

    def __call__(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the node's output: record batches for record batches, tuples for rows.

        Raises
        ------
        SourceError
            If rows arrive out of order, or lack a column, or can't be cast to the source's types.
        OperatorError
            If an operator fails.
        """
        items = iter(items)
        first = list(islice(items, 1))
        if first and not isinstance(first[0], pa.RecordBatch):
            for batch in self._run(batches_of_rows(chain(first, items), self._row_types()), ()):
                yield from zip(*map(python_values, batch.columns), strict=True)
        else:
            arriving = first[0].schema.names if first else self._names()
            inside = dict(zip(self.source.names, self._names(), strict=True))
            yield from self._run(
                chain(first, items), tuple(name for name in self.unread if inside[name] not in arriving)
            )

    def _names(self) -> Sequence[str]:
        return self.names or self.source.names

    def _row_types(self) -> dict[str, pa.DataType | None]:
        """Columns of an arriving row; the type of one that is only ordered by is inferred."""
        types: dict[str, pa.DataType | None] = {field.name: field.type for field in self.source}
        return types | {name: None for name in self.order_by if name not in types}

    def _run(self, batches: Iterator[pa.RecordBatch], absent: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = self.partition
        if partition is None:
            partition = 0 if context is None else context.partitionId()
        own = {"shed_partition": partition, "absent": absent}
        options = worker_options(self.workers) | self.options | own
        node = _open_node(self.pipeline, self._arrivals(batches, absent), options)
        if self.part != "output":
            node = ShedNode(node, self.part, partition)
        yield from _watched(node, self.output, self.door, {})

    def _arrivals(
        self, batches: Iterator[pa.RecordBatch], absent: tuple[str, ...]
    ) -> Iterator[pa.RecordBatch]:
        check = OrderCheck(self.ordering or self.order_by)
        for batch in batches:
            try:
                row = check.first_violation(batch)
                columns = [
                    pa.nulls(batch.num_rows, column.type)
                    if column.name in absent
                    else read_column(batch, name, column)
                    for name, column in zip(self._names(), self.source, strict=True)
                ]
            except (KeyError, pa.ArrowException) as error:
                raise SourceError(f"arriving rows don't fit the pipeline's source: {error}") from error
            if row is not None:
                raise _out_of_order(
                    row + 1, row, self.order_by, "partition" if self.partition is None else "source"
                )
            yield pa.RecordBatch.from_arrays(columns, schema=self.source)


@dataclass(frozen=True)
class FragmentFunction(Shipped):
    """Run one fragment of a cut pipeline in one ordered node over one partition (`DataFrame.mapInArrow`).

    Parameters
    ----------
    fragment : Fragment
        Its rows come sorted by tag (`PLACE` and `REST`), under the names of `carried_name`; those of the
        source come with their serial (from 0) instead: in any order to the first fragment, unless it checks
        theirs. Without either, they are in order, and those of no other node need be compared with them.
    number : int
        Of the fragment, from 1; for the report.
    route : Route, RangeRoute or None
        Where rows go from here; None: nowhere.
    output : pyarrow.Schema
        Columns that Spark expects: the fragment's, what `leaves` says and, with a route, the node.
    order_by, ordering : tuple of str
        Columns in which the source's rows must ascend as they come; the names under which they arrive.
    workers, options, door
        As for `NodeFunction`.
    tell_times, tell_keys : Tell, optional
        Where to report execution times that were measured in the fragment, and the keys of the rows that
        leave.
    learns : DKG, optional
        Parameters of the learner of keys.
    weighs : bool
        Keys are learnt by what their tuples cost, not by their number; `costs`: as known so far.
    unread : tuple of str
        Columns of the fragment's source that neither it nor a later one reads. They need not arrive at the
        first fragment, are null behind it then, and not shown in a failing row.
    dense : bool
        The rows' serials are those of the source, so that errors may name them.
    leaves : "tag", "place", "sorted" or "rows"
    sort : SortColumns, optional
        Of rows that come with what they are sorted by, and the first one with the ranges' bounds; for
        "sorted", and without columns where only the end of the stream causes outputs.
    marks : Marks, optional
        Of the clock, where an operator of the fragment hears them.
    reordered : MarksOf
        Which marks of a `reorder` it hears, makes and sends on.
    shown : Marks, optional
        Of the clock, where the source's rows come as they came when the marks were found.
    """

    fragment: Fragment
    number: int
    route: Route | RangeRoute | None
    output: pa.Schema
    order_by: tuple[str, ...] = ()
    workers: int | str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    door: Door | None = None
    tell_times: Callable[[bytes], None] | None = None
    tell_keys: Tell | None = None
    learns: DKG | None = None
    unread: tuple[str, ...] = ()
    ordering: tuple[str | SortKey, ...] = ()
    weighs: bool = False
    costs: ExecutionTimes | None = None
    dense: bool = True
    leaves: Leaves = "tag"
    marks: Marks | None = None
    reordered: MarksOf = field(default_factory=MarksOf)
    shown: Marks | None = None
    sort: SortColumns | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the fragment's output and what `leaves` says.

        Raises
        ------
        SourceError, OperatorError
            As `FragmentNode` does.
        """
        options = worker_options(self.workers) | self.options | {"absent": self.unread}
        route: Any = self.route
        if route is not None and self.learns is not None:
            learner = self.learns.learner(route.nodes)
            route = _LearningRoute(route, learner, self.weighs, self.costs)
        elif isinstance(route, RangeRoute):
            route = replace(route, own=_partition())
        if self.shown is not None:
            batches = self.shown.checked(batches)
        onward: list[TimeMark] = []
        node, leaving = self._node(self.reordered.heard(marked(batches), onward), route, options)
        try:
            yield from _watched(node, self.output, self.door, {"fragment": self.number}, leaving)
        except OperatorError as error:
            if self.dense:
                raise
            why = NO_SERIALS if self.sort is None else OWN_SERIAL.format(_partition())
            reason = f"{error.reason} {why}"
            serial = error.serial & ROW_MASK
            raise OperatorError(error.operator, serial, error.row, reason, error.place) from error.__cause__
        if self.route is not None:
            yield from self._marks_behind(node, onward)
        if self.tell_times is not None:
            for times in node.models.values():
                self.tell_times(times.to_bytes())
        if self.tell_keys is not None:
            self.tell_keys(route.learner.to_bytes())

    def _marks_behind(self, node: Any, onward: list[TimeMark]) -> Iterator[pa.RecordBatch]:
        """Rows for the marks that the node has made, and those that it sends on."""
        of = self.reordered
        if of.makes:
            yield from of.rows(self.output, of.left(node.left_marks(of.behind)))
        if onward and _partition() == 0:  # each node has heard the same
            yield from of.rows(self.output, onward)

    def _node(
        self, batches: Iterator[pa.RecordBatch | TimeMark], route: Any, options: dict[str, Any]
    ) -> tuple[Any, Callable[[pa.RecordBatch], pa.RecordBatch] | None]:
        """The node, and what makes of its batches those that leave."""
        from ordstream.fragments.fragment_node import FragmentNode

        plain = self.leaves == "rows" and not self.dense and not self.reordered.hears
        if plain and self.tell_times is None:
            return _open_node(self.fragment.plan, self._arrivals(batches, tagged=False), options), None
        if self.leaves == "sorted":
            assert self.sort is not None
            outputs = SortedOutputs(self.sort, _partition(), self.output)
            node = FragmentNode(self.fragment, self._arrivals(outputs.remembered(batches)), None, options)
            outputs.settled = node.settled
            return node, outputs.leaving
        rows: Iterator[Any] = self._arrivals(batches)
        if self.marks is not None:
            rows = self.marks.among(rows, self.fragment.first)
        node = FragmentNode(self.fragment, rows, route, options)
        return node, {"rows": self._without_tag, "place": self._with_place}.get(self.leaves)

    def _without_tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(list(range(len(self.fragment.output))))

    def _with_place(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        at = len(self.fragment.output)
        place, rest = places_and_rests(batch.column(at))
        own = [place, rest] if REST in self.output.names else [place]
        columns = [*batch.columns[:at], *own, *batch.columns[at + 1 :]]
        if MARK in self.output.names:
            columns.append(pa.nulls(batch.num_rows, pa.bool_()))
        return pa.RecordBatch.from_arrays(columns, names=self.output.names)

    def _arrivals(self, batches: Iterator[Any], *, tagged: bool = True) -> Iterator[Any]:
        """The fragment's rows and, where `tagged`, their tags; and the marks among them."""
        source, check = self.fragment.source, OrderCheck(self.ordering)
        schema = pa.schema([*source, pa.field(TAG, pa.binary(), False)]) if tagged else source
        last = 0  # serial (from 1) of the row before the batch
        tag: bytes | None = None  # of that row
        for batch in batches:
            if isinstance(batch, TimeMark):
                yield batch
                continue
            before = check.rows
            try:
                row = check.first_violation(batch)
                columns = [self._column(batch, number, column) for number, column in enumerate(source)]
                tags, serials = _tags_of(batch, before, needed=tagged)
            except (KeyError, pa.ArrowException) as error:
                raise SourceError(f"arriving rows don't fit fragment {self.number}: {error}") from error
            if self.ordering and batch.num_rows:
                if row is not None:
                    at = row - before
                    where, mask = ("source", SERIAL_MASK) if self.dense else ("partition", ROW_MASK)
                    other = int(serials[at - 1]) if at else last
                    raise _out_of_order(int(serials[at]) & mask, other & mask, self.order_by, where)
                last = int(serials[-1])
            if tagged:
                columns.append(tags)
            elif tags is not None and self.fragment.key is not None and self.fragment.ordered and len(tags):
                check_ascending(tags, tag, before)
                tag = tags[-1].as_py()
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _column(self, batch: pa.RecordBatch, number: int, column: pa.Field) -> pa.Array:
        name = carried_name(number)
        if column.name in self.unread and name not in batch.schema.names:
            return pa.nulls(batch.num_rows, column.type)
        return read_column(batch, name, column)


@dataclass(frozen=True, eq=False)
class Tell:
    """A task's way to tell the driver what it learnt: by an accumulator, whose update arrives when the task
    has succeeded.

    Parameters
    ----------
    reports : Accumulator
        Of dict; shared by all tasks.
    job : int
    operator : str
    """

    reports: Accumulator[Any]
    job: int
    operator: str

    def __call__(self, data: bytes) -> None:
        """Report; one call per task counts, the last."""
        self.reports.add({(self.job, self.operator, _task_key(TaskContext.get()).partition): data})


class _LearningRoute:
    """A route that also learns the keys of the rows it sends. One per task."""

    def __init__(
        self, route: Route, learner: DKGLearner, weighs: bool = False, costs: ExecutionTimes | None = None
    ) -> None:
        self._route, self.learner, self._weighs, self._costs = route, learner, weighs, costs

    def __call__(self, batch: pa.RecordBatch, tags: pa.Array | None = None) -> Any:
        from ordstream.balance.memory import weights

        keys = self._route.keys(batch)
        self.learner.learn(keys, weights(self._costs, keys) if self._weighs else None)
        return self._route(batch)


@dataclass(frozen=True)
class LearnFunction(Shipped):
    """Learn the keys of the rows that leave a fragment (`DataFrame.mapInArrow`): one row per partition, a
    learner's bytes and how many of the rows each node would have by the hash.

    Parameters
    ----------
    function : FragmentFunction
        The fragment; without route. It weighs keys where `weighs`.
    key : tuple of int
        Key columns of its output.
    parameters : DKG
    nodes : int
    """

    function: FragmentFunction
    key: tuple[int, ...]
    parameters: DKG
    nodes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row."""
        route = Route(self.function.fragment.output, self.key, self.nodes)
        learning = _LearningRoute(route, self.parameters.learner(self.nodes), self.function.weighs)
        by_hash = np.zeros(self.nodes, dtype=np.int64)
        sparks = np.zeros(self.nodes, dtype=np.int64)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                at = batch.schema.get_field_index(NODE)
                if at >= 0:  # Spark's hash, where it would send the rows itself
                    sparks[:] += np.bincount(batch.column(at).to_numpy(), minlength=self.nodes)
                yield batch

        for batch in self.function(counted()):
            by_hash += np.bincount(learning(batch), minlength=self.nodes)
        learnt = learning.learner.to_bytes()
        loads = (sparks if sparks.any() else by_hash).tobytes()
        yield pa.RecordBatch.from_arrays(
            [pa.array([one], pa.binary()) for one in (learnt, loads)], names=["learnt", "by_hash"]
        )


@dataclass(frozen=True)
class TimeFunction(Shipped):
    """Measure execution times in a fragment (`DataFrame.mapInArrow`): one row per partition, the matrices'
    bytes; what the fragment makes is dropped.

    Parameters
    ----------
    function : FragmentFunction
        With a stage that measures (`ordstream.spark.grouping.with_costs`); without route.
    """

    function: FragmentFunction

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row, none where there were no rows."""
        found: list[bytes] = []
        for _ in replace(self.function, tell_times=found.append)(batches):
            pass
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], names=["times"])


@dataclass(frozen=True)
class RestoreFunction(Shipped):
    """The last step of a cut pipeline where order tags are asked for: (_serial, _index) in place of the tag.

    Each partition has all rows of its serials, and the last one of the source's is with what the end of the
    stream causes. The column `SERIAL` of the job has, in every row, the number of source tuples.

    Parameters
    ----------
    schema : pyarrow.Schema
        Of the pipeline's output as Spark has it, under the names that it has in the job.
    names : tuple of str
        The user's.
    """

    schema: pa.Schema
    names: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order."""
        running = RunningIndex()
        for batch in batches:
            if batch.num_rows:
                place, count = batch.column(PLACE), batch.column(SERIAL)[0].as_py()
                at_end = place.is_null().to_numpy(zero_copy_only=False)
                serials = place.fill_null(0).to_numpy() & SERIAL_MASK
                if REST in batch.schema.names:
                    serials += caused_by_marks(batch.column(REST))
                serials[at_end] = count
                columns = [batch.column(column.name) for column in self.schema]
                yield pa.RecordBatch.from_arrays(
                    [*columns, pa.array(serials), pa.array(running(serials))],
                    names=[*self.names, "_serial", "_index"],
                )


def _tags_of(
    batch: pa.RecordBatch, before: int, *, needed: bool
) -> tuple[pa.Array | None, npt.NDArray[np.int64]]:
    """The tags of arriving rows, and their serials (from 1) where they are the source's; `before`: rows that
    came before; `needed`: rows that come without any get them too.
    """
    if batch.schema.get_field_index(PLACE) >= 0:
        rests = batch.column(REST) if REST in batch.schema.names else None
        return tags_of_places(batch.column(PLACE), rests), np.zeros(0, dtype=np.int64)
    if batch.schema.get_field_index(SERIAL) < 0:
        positions = np.arange(before + 1, before + batch.num_rows + 1, dtype=np.int64)
        return source_tags(positions) if needed else None, positions
    places = batch.column(SERIAL).to_numpy() + 1
    return source_tags(places), places & SERIAL_MASK


def _watched(
    node: Any,
    output: pa.Schema,
    door: Door | None,
    more: dict[str, Any],
    leaving: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The batches of a node, or what `leaving` makes of them, aligned, while a watchdog looks at Spark's
    connection and the driver is told.
    """
    context = TaskContext.get()
    with contextlib.ExitStack() as stack:
        # left in the opposite order: the reporter, the node, the watchdog
        watchdog = stack.enter_context(Watchdog(task_socket()))
        stack.enter_context(node)
        watchdog.guard(node.cancel)
        reporter = Reporter(door, _task_key(context), lambda: _processed(node), node.cancel)
        stack.callback(reporter.close)
        try:
            for batch in node:
                if batch.num_rows:
                    yield align_output(batch if leaving is None else leaving(batch), output)
        except (MemoryError, OrdstreamError) as error:
            tell_no_room(error)
            raise
        node.close()
        reporter.finish(more | json.loads(node.report.to_json()))


def worker_options(asked: int | str | None) -> dict[str, Any]:
    """Threads of a node in this task: those asked for; by default, and with "auto", at most the task's
    processors, and by default none besides the calling thread where that is one. And the bytes in flight.
    """
    from ordstream.node.node import MAX_BYTES  # the compiled core, which a driver need not load

    context, room = TaskContext.get(), in_flight(MAX_BYTES)
    if context is None or isinstance(asked, int):
        return {"workers": asked} | room
    if asked is None and context.cpus() == 1:
        return {"workers": 0} | room
    return {"workers": "auto", "max_workers": context.cpus()} | room


def _out_of_order(row: int, other: int, order_by: tuple[str, ...], of: str) -> SourceError:
    """`row`, which follows `other` (both from 1), should come before it."""
    text = f"row {row} of the {of} comes before row {other} in the order {', '.join(order_by)}"
    return SourceError(f"{text}: leave presorted out, and Spark sorts them")


def _task_key(context: TaskContext | None) -> TaskKey:
    if context is None:
        return TaskKey(0, 0, 0)
    return TaskKey(context.stageId(), context.partitionId(), context.attemptNumber())


def _partition() -> int:
    """Number of the task's partition, from 0."""
    return _task_key(TaskContext.get()).partition


def _processed(node: Any) -> int:
    """Rows whose outputs, if any, have all left the node."""
    return int(node.progress()[2])


def _open_node(pipeline: Pipeline | Plan, batches: Iterator[pa.RecordBatch], options: dict[str, Any]) -> Any:
    """Start a node that takes its rows on the calling thread, as Spark's streams want it."""
    from ordstream.node import node  # the compiled core, which a driver need not load

    return node.stream(
        pipeline, batches, **{"partial_after": BATCH_SECONDS} | options | {"feeder": "caller"}
    )

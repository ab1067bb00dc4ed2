"""The sequential reference: what every run of a pipeline must output, in values and in order.

`run_serial` takes one tuple at a time from the source and follows it, and everything it causes, through the
operators to the end before it looks at the next one. Nothing is chunked, shared, reordered or optimised.
Whatever the number of workers, the chunk size, the scheduler or the partitioning, `Pipeline.run` gives the
same rows in the same order; see `docs/ordering.md`. What a single operator means is in its file in
`ordstream/operators`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ordstream.errors import NO_ROWS_FAULT, OperatorError, PlanError, SourceError, told, type_and_text
from ordstream.expressions.wrong_calls import answered
from ordstream.ground.choices import is_one_of
from ordstream.ground.imported import imported
from ordstream.ground.nested_cast import cast_advice, cast_column, same_values, typed
from ordstream.ground.numbers import is_whole
from ordstream.ground.ordercheck import runs_backwards
from ordstream.ground.ordertags import TAG_NAMES, OrderTag
from ordstream.ground.types import (
    from_storage,
    python_or_text,
    storage_values,
    to_python,
)
from ordstream.ground.user_code import place_of
from ordstream.operators.arguments import emission
from ordstream.operators.clocks import ComputedClock
from ordstream.operators.punctuation import check_every
from ordstream.plan.clock import SOURCE_MARKS, clock_needed_by, clock_of, in_run, marks_of
from ordstream.plan.final import final
from ordstream.plan.lanes import laid_out
from ordstream.plan.outputs import Output, plans_of, with_outputs
from ordstream.plan.physical import physical
from ordstream.plan.shedding import check_log
from ordstream.plan.sources import (
    MergeBy,
    check_merge,
    data_of_each,
    data_of_the_one,
    merge_choices,
    merge_columns,
    wide_source,
    with_one_source,
)
from ordstream.reference.base import Mark, Row, SerialOperator
from ordstream.reference.serial_graph import SerialGraph

if TYPE_CHECKING:
    from ordstream.operators.punctuation import Every
    from ordstream.plan.plan import Plan

__all__ = ["SerialResult", "run_serial"]


@dataclass
class SerialResult:
    """What `run_serial` found.

    Attributes
    ----------
    schema : pyarrow.Schema
        Of the output.
    tags : list of (int, int)
        For each output row: the serial of the source tuple that caused it, and its position among the
        outputs of that serial, from 0. What a time punctuation causes carries the serial of the tuple that
        shows the time, in front of that tuple's own outputs; what the final flush causes that of the last
        tuple (0: there was none).
    error : OperatorError, SourceError or None
        What stopped the run. The rows are then exactly those that come before the failing tuple in the
        output order. A SourceError: the column of `punctuate` runs backwards.
    emitted_through : OrderTag
        The commit point at the end of the run: the greater of the last output's tag and (s, -1), s being the
        last tuple that was followed to the end of the chain.
    skipped : list of (str, int)
        (operator name, serial) of every tuple, and every step of a punctuation, that `on_error="skip"`
        dropped, in order.
    reasons : list of str
        Type and text of the exception of each of them.
    rejected : list of (str, int)
        (operator name, serial) of every tuple that went into its operator's second output, in order.
    adjusted : dict of str to int
        Of operators with late="adjust" that adjusted some: how many tuples.
    shed : list of (str, int, int)
        (operator name, serial, index) of every tuple that a shed operator dropped: by a log, or frozen.
    table : pyarrow.Table
        The output; `rows` has it as tuples of Python values.
    outputs : dict of str to pyarrow.Table
        Of a run with several: the rows of each, with their tags. `result["alerts"]` has none, as that of
        `run`.
    """

    schema: pa.Schema
    tags: list[tuple[int, int]] = field(default_factory=list)
    error: OperatorError | SourceError | None = None
    skipped: list[tuple[str, int]] = field(default_factory=list)
    shed: list[tuple[str, int, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    rejected: list[tuple[str, int]] = field(default_factory=list)
    adjusted: dict[str, int] = field(default_factory=dict)
    emitted_through: OrderTag = field(default_factory=lambda: OrderTag(0))
    _storage: list[Row] = field(default_factory=list, repr=False)
    _run: _SerialRun | None = field(default=None, repr=False)
    _outputs: tuple[Output, ...] = field(default=(), repr=False)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The output, as tuples of Python values (what pyarrow's `to_pylist` gives)."""
        types = self.schema.types
        return [tuple(map(to_python, row, types)) for row in self._storage]

    def __getitem__(self, name: str) -> pa.Table:
        """The rows of one of several outputs, as the outputs of `run` have them."""
        found = self.outputs
        if name not in found:
            raise KeyError(
                f"there is no output {name!r}; there are {', '.join(map(repr, found)) or 'no names'}"
            )
        return found[name].drop_columns(list(TAG_NAMES))

    @property
    def outputs(self) -> dict[str, pa.Table]:
        """Of a run with several outputs: the rows of each, and their tags in `_serial` and `_index`."""
        found = {}
        for number, output in enumerate(self._outputs):
            chosen = [k for k, row in enumerate(self._storage) if row[0] == number]
            columns = [[self._storage[k][at] for k in chosen] for at in output.columns]
            arrays = [from_storage(c, f.type) for c, f in zip(columns, output.schema, strict=True)]
            arrays += [pa.array([self.tags[k][i] for k in chosen], pa.int64()) for i in (0, 1)]
            tags = [pa.field(name, pa.int64()) for name in TAG_NAMES]
            found[output.name] = pa.Table.from_arrays(arrays, schema=pa.schema([*output.schema, *tags]))
        return found

    @property
    def table(self) -> pa.Table:
        """The output as a table of the pipeline's schema."""
        columns = zip(*self._storage, strict=True) if self._storage else [()] * len(self.schema)
        arrays = [from_storage(list(c), f.type) for c, f in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


@answered
def run_serial(
    pipeline: Any,
    data: Any,
    *,
    punctuate: Every | None = None,
    emit: Literal["updates", "final"] | None = None,
    shed_log: Any = None,
    shed_partition: int = 0,
    end: Literal["finish", "suspend"] = "finish",
    after: SerialResult | None = None,
    outputs: Mapping[str, Any] | None = None,
    merge_by: MergeBy | None = None,
    merge_log: pa.Table | Literal[False] | None = None,
) -> SerialResult:
    """Run a pipeline one tuple at a time.

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data
        Anything with `__arrow_c_stream__` (a table, a data frame), a RecordBatch, or an iterable of
        RecordBatches, with the columns of `pipeline.source_schema`.
    punctuate : Every, optional
        As for a run: `od.every("ts", 60)`.
    emit : "updates" or "final", optional
        As for a run: "final" is the answer at the end of the stream only. None: "updates".
    shed_log : pyarrow.Table, optional
        `result.shed.log` of a run: shed operators drop just those tuples (of partition `shed_partition`).
        Without it they drop none, unless they are frozen.
    shed_partition : int
        As for a run: what frozen shed operators decide depends on it.
    end : "finish" or "suspend"
        "suspend": the data ends, the stream does not. State stays, nothing is flushed, and the outputs are
        those of a whole run before the next tuple; another call goes on from the result (`after`).
    after : SerialResult, optional
        A suspended one, which is used up: the data are the tuples behind its last one, of the same
        pipeline. The result's outputs are theirs alone. Not with emit="final".
    outputs : mapping of str to Pipeline, optional
        As for a run. The rows of each are in `.outputs`; `rows` are wide (`ordstream.plan.outputs`).
    merge_by : str or mapping of str to str, optional
        As for a run; `data` is then a mapping of the sources' names to their data.
    merge_log : pyarrow.Table or False, optional
        As for a run: the tuples come as it says, and behind its end by `merge_by`.

    Returns
    -------
    SerialResult
        An operator's failure is in `.error`, it is not raised.

    Raises
    ------
    SourceError
        The data does not match the source schema.
    SchemaError, PlanError
        The punctuation does not; an option that `run` would refuse; a plan
        that no node takes (`ordstream.plan.physical`); `after` a result that was not suspended.
    """
    if not hasattr(getattr(pipeline, "plan", None), "operators"):
        raise PlanError(
            f"run_serial takes a pipeline and its data, run_serial(pipeline, data); got "
            f"{type(pipeline).__name__}"
        )
    _check_options(punctuate, emit, shed_partition, end)
    written: Plan = pipeline.plan
    named: tuple[Output, ...] = ()
    if outputs is not None:
        written, named = with_outputs(plans_of(outputs))
    check_log(written, shed_log)
    check_merge(written, merge_by, merge_log=merge_log)
    plan = laid_out(with_one_source(final(written) if emit == "final" else written, merge_by))
    physical(plan, workers=0)
    names = [source.name for source in written.sources]
    given = data_of_each(names, data) if names else data_of_the_one(written.name, data)
    rows = _merged(written, given, merge_by, merge_log) if names else _source_rows(plan.source, given)
    if after is not None and emit == "final":
        raise PlanError("emit='final': after= goes on from a run that emits updates; leave it out")
    run = _begun(written, plan, punctuate, after)
    run.result._outputs = named
    run.shed_by(shed_log, shed_partition)
    try:
        for serial, row in enumerate(rows, start=run.completed + 1):
            try:
                time = None if run.clock is None else run.clock.tick(row)
            except ValueError as error:
                run.result.error = SourceError(f"tuple {serial} of the source: {error}")
                run.result.error.serial = serial
                break
            run.begin(serial)
            if time is not None:
                run.punctuate(time)  # this tuple shows the time: in front of its own outputs
            run.caused(-1, [row])
            run.completed = serial
        else:
            if end == "suspend":
                run.result._run = run
            else:
                run.flush()
    except OperatorError as error:
        run.result.error = error
    run.result.emitted_through = max(
        [OrderTag(run.completed), *(OrderTag(*tag) for tag in run.result.tags[-1:])]
    )
    run.result.adjusted = {one.operator.name: one.adjusted for one in run.operators if one.adjusted}
    run.result.shed = [(one.operator.name, *row) for one in run.operators for row in one.shed]
    return run.result


def _check_options(punctuate: Any, emit: Any, shed_partition: Any, end: Any) -> None:
    """PlanError where an option is not what it is for a run."""
    check_every(punctuate)
    emission("updates" if emit is None else emit, ("updates", "final"), "run_serial")
    if not is_whole(shed_partition) or shed_partition < 0:
        raise PlanError(f"shed_partition must be a whole number from 0, got {shed_partition!r:.80}")
    if not is_one_of(end, ("finish", "suspend")):
        raise PlanError(f"end must be 'finish' or 'suspend', got {end!r:.80}")


def _begun(written: Plan, plan: Plan, punctuation: Every | None, after: SerialResult | None) -> _SerialRun:
    """A new run, or a suspended one that goes on."""
    if after is None:
        told = clock_of(plan, punctuation)
        clock = None if told is None else _Clock(plan.source, *told, clock_needed_by(plan, punctuation))
        return _SerialRun(written, plan, clock, punctuation)
    run: _SerialRun | None = getattr(after, "_run", None)
    if run is None:
        raise PlanError("after= takes the result of a run with end='suspend', once")
    after._run = None
    if run.written is not written:
        raise PlanError("after= is the result of another pipeline")
    run.result = SerialResult(run.plan.output)
    return run


class _SerialRun:
    """The operators, and where in the source the run is."""

    def __init__(self, written: Plan, plan: Plan, clock: _Clock | None, punctuation: Every | None) -> None:
        self.written, self.plan, self.clock = written, plan, clock
        self.operators = [in_run(operator, punctuation).reference() for operator in plan.operators]
        self.marks_of = [marks_of(plan, position, punctuation) for position in range(len(plan.operators))]
        self.graph: SerialGraph | None = None
        if plan.is_graph:
            self.graph = SerialGraph(
                plan, self.operators, self.attempt, OperatorError, self.emit, self.punctuate
            )
        self.result = SerialResult(plan.output)
        self.completed = 0  # the last serial whose tuple was followed to the end
        self.begin(serial=0)

    def shed_by(self, log: Any, partition: int) -> None:
        """What decides where tuples are shed."""
        for operator in self.operators:
            operator.shed_by(log, partition)

    def begin(self, serial: int) -> None:
        """From now on everything is caused by the source tuple with this serial."""
        self.serial = serial
        self.outputs_of_serial = 0
        for operator in self.operators:
            operator.begin(serial)

    def caused(self, producer: int, rows: list[Row]) -> None:
        """What an operator, or the source (-1), made by one cause: all that it leads to reaches the end."""
        if self.graph is None:
            for row in rows:
                self.feed(producer + 1, row)
            return
        self.graph.spread(producer, rows)

    def feed(self, position: int, row: Row) -> None:
        """Give a row to an operator; all that it causes reaches the end before this returns."""
        if position == len(self.operators):
            self.emit(row)
            return
        operator = self.operators[position]
        for output in self.attempt(operator, lambda: operator.process(row), row):
            if isinstance(output, Mark):
                self.punctuate(output.time, position)
            else:
                self.feed(position + 1, output)

    def emit(self, row: Row) -> None:
        """One more row of the output."""
        self.result._storage.append(row)
        self.result.tags.append((self.serial, self.outputs_of_serial))
        self.outputs_of_serial += 1

    def punctuate(self, time: int, maker: int = SOURCE_MARKS) -> None:
        """A time punctuation, of the source or of the operator at `maker`, meets operators in their order,
        behind what it made those before emit.
        """
        for position, operator in enumerate(self.operators):
            for step in operator.on_time(time) if self.marks_of[position] == maker else ():
                self.caused(position, self.attempt(operator, step))

    def flush(self) -> None:
        """End of stream: each operator flushes after all its inputs, those from flushes included."""
        for position, operator in enumerate(self.operators):
            for step in operator.flush():
                self.caused(position, self.attempt(operator, step))

    def attempt(
        self, operator: SerialOperator, step: Callable[[], list[Row]], row: Row | None = None
    ) -> list[Row]:
        """The outputs of one step. A failing step has none: it is skipped, or it ends the run."""
        try:
            return step()
        except Exception as error:
            failed = operator.operator
            skips = not isinstance(error, NO_ROWS_FAULT)
            if skips and failed.rejects and row is not None:
                operator.rejection = type_and_text(error)
                self.result.rejected.append((failed.name, self.serial))
                return []
            if skips and failed.on_error == "skip" and not failed.rejects:
                self.result.skipped.append((failed.name, self.serial))
                self.result.reasons.append(told(error))
                return []
            values = None
            if row is not None:
                values = {f.name: python_or_text(v, f.type) for v, f in zip(row, failed.input, strict=True)}
                values = failed.shown_input(values)
            reason = told(error)
            raise OperatorError(failed.name, self.serial, values, reason, place_of(error)) from error


class _Clock:
    """Time punctuations: a pure function of the sequence of tuples."""

    def __init__(self, schema: pa.Schema, clock: int | ComputedClock, period: int, needed_by: str) -> None:
        self.clock = clock
        self.field = schema.field(clock) if isinstance(clock, int) else clock.field
        self.period = period
        self.needed_by = needed_by
        self.latest: int | None = None

    def tick(self, row: Row) -> int | None:
        """The time of the punctuation that comes before this tuple, or None. ValueError where the tuple
        is earlier than the latest.
        """
        before = self.latest
        time = row[self.clock] if isinstance(self.clock, int) else self.clock.of(row)
        if time is None:
            return None
        if before is not None and time < before:
            raise ValueError(runs_backwards(self.field, time, before, self.needed_by))
        self.latest = time
        now = time // self.period
        return None if before is None or now == before // self.period else now * self.period


def _source_rows(schema: pa.Schema, data: Any) -> Iterator[Row]:
    """The tuples of the source, as rows of storage values."""
    for batch in _batches(data):
        columns = []
        for expected in schema:
            index = batch.schema.get_field_index(expected.name)
            if index < 0:
                raise SourceError(f"the data has no column {expected.name!r}; it has: {batch.schema.names}")
            values = storage_values(_matching(batch.column(index), expected))
            if not expected.nullable and None in values:
                raise SourceError(f"column {expected.name!r} is declared without nulls, the data has one")
            columns.append(values)
        yield from zip(*columns, strict=True)


def _merged(plan: Plan, data: Any, merge_by: MergeBy | None, log: Any = None) -> Iterator[Row]:
    """The tuples of several sources as wide rows: as a log says, then the smallest of their next ones, ties
    in the order of the data.
    """
    assert merge_by is not None
    ways, wide = wide_source(plan, merge_by)
    merged = merge_columns(plan, merge_by)
    names = [way.name for way in ways]
    chosen = [] if log is None or log is False else [*merge_choices(log, names)]
    said = (number for number, rows in chosen for _ in range(rows))
    waiting = {}
    for name, one in data.items():
        number = names.index(name)
        rows = _timed(_source_rows(ways[number].schema, one), ways[number], merged[number])
        waiting[number] = rows, [*itertools.islice(rows, 1)]
    while True:
        number = next(said, -1)
        if number < 0:
            open_ = [number for number, (_, head) in waiting.items() if head]
            if not open_:
                return
            number = min(open_, key=lambda one: waiting[one][1][0][0])
        rows, head = waiting[number]
        if not head:
            raise SourceError(f"merge_log has more rows of source {names[number]!r} than the source")
        own = dict(zip(ways[number].columns, head.pop()[1], strict=True))
        head.extend(itertools.islice(rows, 1))
        yield (number, *(own.get(at) for at in range(1, len(wide))))


def _timed(rows: Iterator[Row], source: Output, merge_by: str) -> Iterator[tuple[Any, Row]]:
    """The rows of a source, each behind its value of the column by which sources are merged."""
    at = source.schema.get_field_index(merge_by)
    for number, row in enumerate(rows, 1):
        if row[at] is None:
            raise SourceError(
                f"source {source.name!r}: {merge_by!r}, by which it is merged, is null in row {number}"
            )
        yield row[at], row


def _batches(data: Any, where: str = "") -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        return [data]
    if hasattr(data, "__arrow_c_stream__"):
        return imported(data, f"{where}cannot read ", SourceError)  # type: ignore[no-any-return]
    if hasattr(data, "__arrow_c_array__"):
        return [pa.record_batch(data)]
    if hasattr(type(data), "to_batches"):  # a dataset
        return data.to_batches()  # type: ignore[no-any-return]
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        return (part for at, item in enumerate(data, 1) for part in _batches(item, f"item {at}: "))
    kind = type(data).__name__
    raise SourceError(f"{where}Arrow data is needed (a table, record batches, a stream), got {kind}")


def _matching(array: pa.Array, expected: pa.Field) -> pa.Array:
    array = typed(array, expected.type)
    given, wanted = array.type, expected.type
    if not same_values(given, wanted):
        raise SourceError(
            f"column {expected.name!r} is {given} in the data, the pipeline expects {wanted}; "
            f"{cast_advice(given, wanted)}"
        )
    return cast_column(array, wanted)

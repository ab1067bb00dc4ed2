"""`stream`: a stateful pipeline over Structured Streaming, exactly once (docs/streaming.md)."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from ordstream.balance.mixed.planners import Mixed
from ordstream.errors import CheckpointError, PlanError, shown
from ordstream.fragments import fragmenting
from ordstream.ground.choices import is_one_of
from ordstream.ground.ordertags import TAG_NAMES, OrderTag
from ordstream.ground.spark_path import location
from ordstream.ground.types import names_beside
from ordstream.node.settings import OF_STATE, check_known, make_settings
from ordstream.operators.functions import check_arguments
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.clock import clock_said
from ordstream.plan.columns import compared_source_columns
from ordstream.plan.lanes import check_line, check_one_source, laid_out
from ordstream.plan.rejections import check_taken
from ordstream.plan.shedding import check_repeatable, set_aside, sheds
from ordstream.snapshots.fit import check_can_snapshot, check_clock, complete, fit
from ordstream.snapshots.snapshot import Snapshot
from ordstream.spark.columns import (
    Carried,
    carry,
    check_pipeline,
    place_in_source,
    slots,
    sortable,
    sorted_as,
)
from ordstream.spark.names import find_column, is_case_sensitive
from ordstream.spark.running_session import running_session
from ordstream.spark.schemas import check_in_files
from ordstream.spark.streaming import spark_log
from ordstream.spark.streaming.arriving import LATE_ROWS, RAISE, SIDE_OUTPUT
from ordstream.spark.streaming.epoch_functions import FINISH
from ordstream.spark.streaming.epoch_log import EpochLog, check_there, folder_of
from ordstream.spark.streaming.epoch_manifest import EpochManifest
from ordstream.spark.streaming.epoch_runner import (
    EpochRunner,
    OnEpoch,
    nothing,
    output_schema,
    read_columns,
)
from ordstream.spark.streaming.failures import overtaken, told_by_task, without_spark
from ordstream.spark.streaming.micro_batch import InOrder, Sorting
from ordstream.spark.streaming.offset_column import OFFSET
from ordstream.spark.streaming.on_driver import NEVER, SmallBatches
from ordstream.spark.streaming.query import Batches, Delivery, StreamQuery, forget_ended
from ordstream.spark.streaming.rewind import check_log
from ordstream.spark.streaming.sinks.sink import Sink, StreamInfo
from ordstream.spark.streaming.spark_log import SPARK
from ordstream.spark.streaming.stored_state import stored
from ordstream.spark.streaming.stream_arguments import (
    Trigger,
    kind_of,
    sinks_of,
    slack_of,
    writer_of,
)

#: Options of `stream` beside those of one node.
OF_STREAM = (
    "balance",
    "driver_rows",
    "grouping",
    "late",
    "name",
    "nodes",
    "on_epoch",
    "order_by",
    "sink",
    "slack",
    "trigger",
)

#: Whether Spark ends a query where another one is started with its checkpoint.
ENDS_THE_FORMER = "spark.sql.streaming.stopActiveRunOnRestart"
#: Streams of this process by checkpoint, without links and "..": `finish` needs the pipeline.
_started: dict[Path, tuple[Pipeline, dict[str, Any]]] = {}
_turns: dict[Path, threading.RLock] = {}


def stream(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    checkpoint: str | os.PathLike[str],
    order_by: str | Sequence[str] = (),
    sink: Sink | Sequence[Sink] | None = None,
    slack: int | str | timedelta | None = None,
    late: Literal["raise", "drop", "side_output"] = "raise",
    trigger: Trigger = None,
    nodes: int | None = None,
    grouping: Any = "hash",
    balance: Mixed | None = None,
    workers: int | str | None = None,
    driver_rows: int | Literal["auto"] = "auto",
    name: str | None = None,
    on_epoch: OnEpoch | None = None,
    **options: Any,
) -> StreamQuery:
    """Run a stateful pipeline over a streaming DataFrame, in order, exactly once.

    Each micro-batch is one epoch: its rows are put in order and get serials, the operators go on from the
    states of the epoch before, and states and outputs are committed together, by one manifest. After a crash
    of anything the same call goes on. `read_output`, or a sink, gives the output.

    Parameters
    ----------
    pipeline : Pipeline
    df : DataFrame
        Streaming. Its source must give the same rows again when Spark asks for a micro-batch again (files,
        Kafka, our sources), and so must what is computed from it: a batch that differs is refused.
    checkpoint : path
        A folder that driver and executors share; made where it is not there. Spark's own checkpoint is
        inside.
    order_by : str or sequence of str
        Names of columns of `df` in which rows are ordered, all ascending. Default: the column ``_offset`` of
        our own sources, else the place in the source. Equal rows of a batch follow their place in the source
        where Spark knows it (Parquet), else ``_offset``, else their columns; those of a later batch follow.
    sink : Sink or sequence of Sink, optional
        Where committed epochs are delivered. Default: the files themselves, see `read_output`.
    slack : int, str or timedelta, optional
        How far a row's first column of `order_by` may lie behind the largest so far: rows wait so long for
        others. A number in the column's units, or a time ("10s"). Default: none waits.
    late : "raise", "drop" or "side_output"
        What becomes of a row that comes before one that has its place already: an error, counted and
        dropped, or kept for ``read_output(late=True)``.
    trigger : str or mapping, optional
        "5 seconds"; "available now": all that is there, then the query ends; or keywords of Spark's
        ``trigger``. Default: a batch as soon as the last one is done.
    nodes : int, optional
        More than one: the pipeline is cut where the key changes, and each fragment runs in so many nodes.
        Another number may be given when the query is started again.
    grouping : "hash", "dkg", DKG, "posg", POSG, a deployed map, Balancer, or mapping
        What chooses a row's node, as for `apply`. Default: the key group. DKG learns its map from the first
        micro-batch, POSG (stateless operators in front) from the first rows; a `Balancer` gives what it has
        learnt. A map stays as it was committed as long as `nodes` is the same: no key moves. With another
        number of nodes what is asked for then takes its place.
    balance : Mixed, optional
        Keys move between epochs as their costs change: ``od.Mixed(theta=0.08, table=3000)``. Needs `nodes`
        and a keyed operator; takes the place of `grouping`. Left out later, the keys stay where they are.
    workers : int or "auto", optional
        Threads of a node; default the processors of a Spark task.
    driver_rows : int or "auto"
        Where the pipeline runs in one node, a micro-batch of at most so many rows runs in the driver's
        process if the one before had no more either: no Python worker takes part, and a batch takes less
        time. The output is the same. The pipeline's functions run in the driver then, and the rows lie in
        its memory. "auto": 10,000 rows, where rows and states have at most 32 MiB, the pipeline has no
        functions of the user's, and no `workers` are asked for. 0: never.
    name : str, optional
        Of Spark's query.
    on_epoch : callable, optional
        Called on the driver with each epoch's figures, a dict (`StreamQuery.epochs`), when the epoch is
        committed and delivered. What it raises is a warning: the stream goes on.
    **options
        Further options of a run (``scheduler``, ``partitioning``, ``punctuate``, ...).

    Returns
    -------
    StreamQuery

    Raises
    ------
    PlanError
        An argument is out of range, an operator's state can't be written down, or the last operator emits at
        the end only.
    SchemaError
        A column is missing or has a type that Spark can't carry.
    CheckpointError
        The folder is no stream's, or of another one, or damaged; or the stream is finished.
    """
    check_pipeline(pipeline, "od.spark.stream")
    _check_frame(df)
    pipeline = _checked(pipeline, options, nodes, workers)
    order = _names(order_by, df, pipeline.source_schema.names)
    _check_order(df, order)
    zone = str(df.sparkSession.conf.get("spark.sql.session.timeZone"))
    prepared, keys, carried = _prepared(df, pipeline, order, options)
    if balance is not None and not isinstance(balance, Mixed):
        raise PlanError(f"balance takes od.Mixed(...), got {balance!r:.80}")
    if on_epoch is not None and not callable(on_epoch):
        raise PlanError(f"on_epoch takes a function of one argument, got {on_epoch!r:.80}")
    if on_epoch is not None:
        check_arguments(on_epoch, "on_epoch", "on_epoch(figures)")
    if balance is not None and nodes is None:
        raise PlanError("balance needs nodes=: keys move between so many nodes")
    small = SmallBatches.asked(driver_rows, pipeline.plan, workers)
    runner = _runner(
        order,
        pipeline,
        carried.ordering,
        slack_of(slack, df, order),
        late,
        nodes,
        grouping,
        workers,
        options,
        balance,
        small,
    )
    sinks, writer = sinks_of(sink), writer_of(prepared, name, trigger)
    with _turn(folder_of(checkpoint)):
        _check_free(folder_of(checkpoint), df.sparkSession, name)
        # behind the checks: what is refused begins no stream
        log = _opened(pipeline, checkpoint, order, zone)
        last = _check_last(log, pipeline, options)
        spark_log.check(log.folder, -1 if last is None else last.number)
        spark_log.clear(log.folder)
        if carried.zoned and log.time_zone not in (None, zone):
            raise CheckpointError(
                f"{log.folder}: the stream began with spark.sql.session.timeZone={log.time_zone}, and this "
                f"session has {zone}: Spark casts {carried.zoned[0]!r} by it, so its values would shift. "
                "Set the zone back, or begin anew with another checkpoint"
            )
        runner = replace(runner, log=log)
        if _replaced(log.folder):
            last = _check_last(log, pipeline, options)
        delivery = Delivery(log, StreamInfo(log.query, log.folder, output_schema(pipeline)), sinks)
        delivery.open(last)
        try:
            sorting = Sorting.of(prepared, keys, tuple(carried.columns), slots(df.sparkSession) == 1)
            batches = Batches(log, runner, delivery, sorting, last, on_epoch)
            writer = writer.foreachBatch(batches).option("checkpointLocation", location(log.folder / SPARK))
            query = StreamQuery(spark_log.started(writer, df.sparkSession), batches)
        # Spark refuses the frame, or the name is taken, or there are two drivers at once
        except BaseException as error:
            delivery.close()
            if (lost := overtaken(error)) is not None:
                raise lost from None
            raise
        given = {"order_by": order, "late": late, "nodes": nodes, "grouping": grouping, "workers": workers}
        forget_ended(one for _, one in _started.values())
        _started[log.folder.resolve()] = (
            pipeline,
            {**given, "options": options, "sink": sink, "query": query},
        )
    return query


def finish(
    checkpoint: str | os.PathLike[str],
    pipeline: Pipeline | None = None,
    *,
    sink: Sink | Sequence[Sink] | None = None,
    nodes: int | None = None,
    workers: int | str | None = None,
    spark: SparkSession | None = None,
    **options: Any,
) -> None:
    """End a stream: rows that wait are processed, every operator emits what it emits at the end, and the
    stream is sealed. Its output then equals `run_serial` over the rows in the order of their serials. Called
    again it only delivers what sinks may not have.

    Parameters
    ----------
    checkpoint : path
    pipeline : Pipeline, optional
        The stream's. Default: that of the last `stream` of this process with this checkpoint, with its
        arguments, where no others are given here.
    sink, nodes, workers, **options
        As for `stream`.
    spark : SparkSession, optional
        Default: the active one.

    Raises
    ------
    PlanError
        The stream still runs; there is no pipeline, or no session.
    CheckpointError
        There is no such folder; as for `stream`; Spark's log has more micro-batches than are committed here.

    Warns
    -----
    RuntimeWarning
        Spark has planned a micro-batch that failed, or did not begin: its rows are left out.
    """
    path = folder_of(checkpoint)
    given: dict[str, Any] = {"nodes": nodes, "workers": workers, "grouping": "hash", "options": options}
    known, sinks = _started.get(path.resolve()), sinks_of(sink)
    if is_running(path):
        raise PlanError(f"the stream of {path} still runs: stop it (query.stop()), then finish it")
    check_there(path)
    if pipeline is None:
        if known is None:
            raise PlanError(
                f"finish needs the pipeline: this process has not run the stream of {path}, and a "
                "checkpoint holds no code; give it as the second argument"
            )
        pipeline, remembered = known
        if nodes is None:
            given |= {name: remembered[name] for name in ("nodes", "grouping")}
        given["workers"] = remembered["workers"] if workers is None else workers
        given["options"] = {**remembered["options"], **options}
        sinks = sinks or sinks_of(remembered["sink"])
    check_pipeline(pipeline, "od.spark.finish", "second, behind the checkpoint")
    if others := [name for name in options if name in OF_STREAM]:
        raise PlanError(f"od.spark.finish takes no {others[0]}=, which is for od.spark.stream: leave it out")
    session = running_session(spark, "finish")
    pipeline = _checked(pipeline, given["options"], given["nodes"], given["workers"])
    log = EpochLog(path)
    log = _opened(pipeline, path, log.order_by)
    last = log.last()
    sealed = last is not None and last.finished
    if not sealed:
        last = _check_last(log, pipeline, given["options"])
        check_log(log, -1 if last is None else last.number)
    delivery = Delivery(log, StreamInfo(log.query, log.folder, output_schema(pipeline)), sinks)
    try:
        delivery.open(last)
        if sealed:
            return
        runner = _runner(
            log.order_by,
            pipeline,
            _job_names(pipeline, log.order_by),
            None,
            RAISE,
            given["nodes"] if given["nodes"] is not None else None if last is None else last.nodes,
            given["grouping"],
            given["workers"],
            given["options"],
        )
        runner = replace(runner, log=log)
        number = 0 if last is None else last.number + 1
        spark_id = "" if last is None else last.spark
        try:
            manifest = runner.epoch(InOrder(nothing(session)), number, last, spark_id, FINISH)
        except Exception as error:
            found = log.or_lost(without_spark(error) or told_by_task(error), number - 1)
            if found is error:
                raise
            raise found from None  # Spark's, with its traces, says no more
        log.publish(manifest)
        delivery.deliver(log.read(number))
        log.collect(number)
    finally:
        delivery.close()


def is_running(path: Path) -> bool:
    """Whether a query of this process has the stream."""
    _, given = _started.get(path.resolve(), (None, {}))
    query = given.get("query")
    try:
        return query is not None and query.isActive
    except Exception:  # Java is gone, and the query with it
        return False


def _turn(path: Path) -> threading.RLock:
    """Held while a stream starts: of two starts of one query in one session Spark keeps what is left of the
    one that failed, and then refuses all others.
    """
    return _turns.setdefault(path.resolve(), threading.RLock())


def _check_free(path: Path, session: SparkSession, name: str | None) -> None:
    """Whether Spark would start a query of this name with this checkpoint: it refuses with Java's trace, and
    when the sinks are open.

    Raises
    ------
    PlanError
        A query with one of the two runs, and stays.
    """
    former = _started[path.resolve()][1]["query"] if is_running(path) else None
    if former is not None and str(session.conf.get(ENDS_THE_FORMER)).lower() != "true":
        raise PlanError(
            f"the stream of {path} still runs: stop it (query.stop()), then start it again; or let Spark "
            f"end it ({ENDS_THE_FORMER}=true)"
        )
    if name is None:
        return
    for query in session.streams.active:
        if query.name == name and (former is None or query.id != former.id):
            raise PlanError(
                f"name={name!r}: another query of this session has this name, and still runs: stop it, or "
                "choose another name"
            )


def _replaced(path: Path) -> bool:
    """Whether a query of this process had the stream, which has ended then. Spark would end it when the next
    one starts; but what it still commits, and delivers, must be known before.
    """
    if not is_running(path):
        return False
    _started[path.resolve()][1]["query"].give_way()
    return True


# ------------------------------------------------------------------------------------------ arguments


def _check_frame(df: Any) -> None:
    if isinstance(df, Mapping):
        how = "unionByName(allowMissingColumns=True), with a column that tells them apart"
        raise PlanError(f"stream takes one streaming DataFrame: unite yours by {how}, and branch by it")
    if not hasattr(df, "isStreaming") or not df.isStreaming:
        raise PlanError(
            "stream takes a streaming DataFrame (spark.readStream...); for one that is whole there is "
            "od.spark.apply"
        )
    if not isinstance(df.sparkSession, SparkSession) or not hasattr(df, "_jdf"):
        raise PlanError(
            "stream needs a session of Spark on this machine or a cluster's driver: over Spark Connect the "
            "function of a micro-batch runs in another process"
        )


def _checked(
    pipeline: Pipeline, options: Mapping[str, Any], nodes: int | None, workers: int | str | None = None
) -> Pipeline:
    """The pipeline as it runs.

    Raises
    ------
    PlanError
        It can't be a stream.
    """
    refused = {
        **dict.fromkeys(OF_STATE, "the stream's checkpoint says where state comes from and goes to"),
        "tags": "output files always have them",
        "emit": "a stream emits updates; od.spark.finish ends it",
        "shed_log": "only frozen shedding can be repeated",
        "arrivals": "rows come when Spark has them",
        "progress": "on_epoch= is called for each epoch",
        "report": "query.epochs has the figures of each epoch, and on_epoch= is called with them",
        "outputs": "it has one output; run a stream for each, with a checkpoint of its own",
        "merge_by": "it has one source; unite the frames (unionByName) in front of it",
    }
    for name, why in refused.items():
        if options.get(name) is not None:
            raise PlanError(f"{name} can't be combined with a stream: {why}")
    check_known(options, OF_STREAM)
    make_settings({**options, "workers": workers})
    if nodes is not None and (type(nodes) is not int or not 1 <= nodes <= 1024):
        raise PlanError(f"nodes must be a whole number from 1 to 1024, got {nodes!r}")
    check_one_source(pipeline.plan, "a stream in Spark")
    check_taken(pipeline.plan)
    if sheds(pipeline.plan):
        check_line(pipeline.plan, "a stream in Spark that sheds")
    check_can_snapshot(pipeline.plan)
    check_repeatable(pipeline.plan, None)
    names_beside(pipeline.schema.names, TAG_NAMES, "a stream's output")
    shedding = sheds(pipeline.plan)
    if nodes not in (None, 1):
        fragmenting.check_options(options, f"nodes={nodes}")
    return Pipeline.of(set_aside(pipeline.plan, None)) if shedding else pipeline


def _names(order_by: Any, df: DataFrame, source: Sequence[str]) -> tuple[str, ...]:
    """As the pipeline's source spells them; columns that are none of it as the frame does."""
    names = (order_by,) if isinstance(order_by, str) else order_by
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise PlanError(
            f"order_by takes the name of a column, or a list of names, ascending; got {order_by!r}"
        )
    names = tuple(names)
    if not names and OFFSET in df.columns:
        return (OFFSET,)
    sensitive, where = is_case_sensitive(df), "the DataFrame"
    spelt = {find_column(name, df.columns, sensitive, where): name for name in source}
    places = [find_column(name, df.columns, sensitive, where) for name in names]
    return tuple(spelt.get(place, df.columns[place]) for place in places)


def _check_order(df: DataFrame, order: tuple[str, ...]) -> None:
    nested = ("array", "map", "struct", "variant")
    for name in order:
        kind = kind_of(df, name)
        if kind.typeName() in nested:
            raise PlanError(
                f"order_by column {name!r} has type {kind.simpleString()}: rows of different "
                "micro-batches are compared, which needs columns of plain values"
            )


def _opened(
    pipeline: Pipeline, checkpoint: Any, order: tuple[str, ...], zone: str | None = None
) -> EpochLog:
    return EpochLog.begun(checkpoint, order, output_schema(pipeline), time_zone=zone)


def _check_last(log: EpochLog, pipeline: Pipeline, options: Mapping[str, Any]) -> EpochManifest | None:
    """The last committed epoch, whose states and clock fit the pipeline."""
    last = log.unbroken()
    if last is None:
        return None
    if last.finished:
        raise PlanError(
            f"{log.folder}: this stream was finished at epoch {last.number}: read it "
            "(od.spark.read_output), or begin another one with another checkpoint"
        )
    states = stored(str(log.folder), last.number, last.states)
    through, clock = OrderTag(*last.emitted_through), last.ingress.get("clock", "")
    plan = laid_out(pipeline.plan)
    states = complete((one for one in plan.operators if one.name in last.states), states)
    behind = Snapshot(last.serials[1], through, last.latest_time, None, states, clock=clock)
    fit(plan, behind)
    check_clock(clock_said(pipeline.plan, options.get("punctuate")), behind)
    return last


def _prepared(
    df: DataFrame, pipeline: Pipeline, order: tuple[str, ...], options: Mapping[str, Any]
) -> tuple[DataFrame, tuple[str, ...], Carried]:
    """The streaming frame with what a batch needs, the columns that it is sorted by, and what goes to the
    tasks. A row's place in a file must be asked for here: in a micro-batch Spark does not know it any more.
    """
    compared = compared_source_columns(pipeline.plan)
    carried = carry(df, pipeline.source_schema, read_columns(pipeline, options), order, compared)
    place = dict(place_in_source(carried.frame))
    if not place and OFFSET in df.columns and OFFSET not in order:
        place = {"__ordstream_offset": f"d{df.columns.index(OFFSET)}"}
    ties = list(carried.columns) if place else list(carried.ties)
    further = [name for name in ties if name not in carried.columns]
    from pyspark.sql import functions as F

    rows = carried.frame.select(
        *(column.alias(name) for name, column in carried.columns.items()),
        *(F.col(name) for name in further),
        *(F.col(at).alias(name) for name, at in place.items()),
    )
    tied: list[str] = []
    for name in ties:
        kind = rows.schema[name].dataType
        form = None if name in carried.ordering else sorted_as(F.col(name), kind)
        if form is not None and not sortable(kind):  # a map's entries
            name = f"__ordstream_{name}"
            rows = rows.withColumn(name, form)
        tied += [] if form is None else [name]
    if not order and not place:
        raise PlanError(
            "stream needs order_by: this source does not say where a row stands in it, and Spark keeps no "
            f"order inside a micro-batch. Sources of ordstream do, by the column {OFFSET}: name it in "
            f".schema('..., {OFFSET} BIGINT')"
        )
    return rows, (*carried.ordering, *place, *tied), carried


def _job_names(pipeline: Pipeline, order: Sequence[str]) -> tuple[str, ...]:
    """Names that columns of `order_by` have in waiting files, where they are columns of the source."""
    names = pipeline.source_schema.names
    return tuple(
        f"c{names.index(name)}" if name in names else f"o{number}" for number, name in enumerate(order)
    )


def _runner(
    order: tuple[str, ...],
    pipeline: Pipeline,
    ordering: tuple[str, ...],
    slack: int | None,
    late: str,
    nodes: int | None,
    grouping: Any,
    workers: int | str | None,
    options: Mapping[str, Any],
    policy: Mixed | None = None,
    small: SmallBatches = NEVER,
) -> EpochRunner:
    """Of a log that is still to be given."""
    if not is_one_of(late, LATE_ROWS):
        raise PlanError(f"late must be one of {', '.join(LATE_ROWS)}; got {shown(late, 80)}")
    if slack is not None or late == SIDE_OUTPUT:
        read = read_columns(pipeline, options)
        arriving = (column for column in pipeline.source_schema if column.name in read)
        check_in_files(arriving, "rows that wait, or are put aside")
    return EpochRunner.made(
        grouping,
        order,
        log=None,
        pipeline=pipeline,
        ordering=ordering,
        slack=slack,
        late=late,
        nodes=nodes or 1,
        workers=workers,
        options=dict(options),
        run=uuid.uuid4().hex,
        policy=policy,
        small=small,
    )

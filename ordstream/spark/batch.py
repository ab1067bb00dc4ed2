"""`apply`: a pipeline over a whole DataFrame, in one total order, in one ordered node inside a Spark
executor.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ordstream.errors import PlanError
from ordstream.fragments import fragmenting
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.ground.types import names_beside
from ordstream.node.settings import make_settings, refuse_state
from ordstream.operators.shed import LOG_SCHEMA
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.columns import used_source_columns
from ordstream.plan.final import final
from ordstream.plan.lanes import check_one_source
from ordstream.plan.shedding import check_repeatable, only_shed, set_aside, sheds
from ordstream.spark.columns import carry, check_frame
from ordstream.spark.executor import NodeFunction, carried_name
from ordstream.spark.grouping import Grouping, resolve
from ordstream.spark.interrupt import interruptible
from ordstream.spark.nodes import Layout, PerExecutor, make_layout, over_nodes
from ordstream.spark.progress import LISTENER, Channel, OnProgress, OnReport
from ordstream.spark.schemas import spark_schema
from ordstream.spark.session import PANDAS_NOTICE


def apply(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: str | Sequence[str],
    workers: int | str | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    presorted: bool = False,
    nodes: int | Literal["auto"] | None = None,
    nodes_per_executor: PerExecutor = "auto",
    emit: Literal["updates", "final"] | None = None,
    grouping: Grouping = "hash",
    **options: Any,
) -> DataFrame:
    """Run a pipeline over a DataFrame in a total order; the result's rows are in the pipeline's output
    order.

    The order is `order_by`, ascending with NULL first and NaN last. Rows equal in these columns follow their
    place in the source, (file, row index), where Spark knows it (Parquet), else the remaining columns of the
    pipeline's source, so that a task that is run again sees the same rows in the same order. Spark sorts;
    rows that are sorted already cost it one pass. The node checks the order of what arrives.

    Parameters
    ----------
    pipeline : Pipeline
        What to run; its source columns are found in `df` by name and cast.
    df : DataFrame
        The input. Nothing runs before an action on the result.
    order_by : str or sequence of str
        Columns of `df`, which need not be columns of the pipeline's source. Empty: source order only.
    workers : int, optional
        Threads of the node; default the processors of a Spark task.
    report : callable or Channel, optional
        Called in a driver thread with (task, the node's report as a dict) when a node has ended; or a
        channel that keeps them. Needs executors on the driver's host.
    progress : callable, optional
        Called in a driver thread with the number of rows processed, while the job runs. Needs the same.
    presorted : bool
        Leave out the sort: the rows of `df` come in order, one partition after the other. The node still
        checks `order_by` (over several nodes: within each partition, or where a key comes first within each
        node's rows); ties are taken as they come.
    nodes : int or "auto", optional
        More than one: the pipeline is cut where the key changes and each fragment runs in so many nodes on
        all executors; the output is the same. "auto": as many as this Spark runs at a time. Default: one
        node.
    nodes_per_executor : int or "auto"
        "auto": one node per executor, with a thread per core; one node per core, without threads, where
        plain Python functions do the work. Another task size than the session's needs stage-level profiles,
        which a local Spark has not. `explain` tells.
    emit : "updates" or "final", optional
        "final": only the answer at the end of the stream (`ordstream.plan.final`); what can be is combined
        in each node first.
    grouping : "hash", "dkg", "posg", "pkg", DKG, POSG, a deployed map or model, Balancer, or mapping
        What chooses a row's node; the output is the same. "hash": a hash of the key; rows of stateless
        operators in front are spread evenly. DKG: for keyed operators; the map is learnt from about m rows
        before the result is returned (three small jobs; functions in front run on the sample too), and the
        hash kept where it is as good. POSG: for the stateless operators in front, by execution times of the
        job's first rows, which pass the functions once more, or of earlier jobs, with a `Balancer`. "pkg",
        and DKG with variant "pkg": split the rows of a key, for operators whose partial results can be
        merged. A mapping of operator names to these: others by hash.
    **options
        Further options of a run (``scheduler``, ``partitioning``, ``chunk_rows``, ...).

    Returns
    -------
    DataFrame
        One partition, in order: `collect()`, `toArrow()` and `toLocalIterator()` keep it.

    Raises
    ------
    SchemaError
        If a column is missing or has a type that Spark can't carry.
    PlanError
        If an option is unknown or out of range, or the grouping doesn't fit the operators.
    """
    check_frame(df)
    check_one_source(pipeline.plan, "od.spark")
    options = options | ({} if emit is None else {"emit": emit})
    layout = _layout(df.sparkSession, pipeline, nodes, nodes_per_executor)
    order = _names(order_by)
    if layout is None:
        if grouping != "hash":
            plan = final(pipeline.plan) if emit == "final" else pipeline.plan
            resolve(grouping, fragmenting.fragments_of(plan), 1, order)
        return _in_one_node(pipeline, df, order_by, workers, report, progress, presorted, "output", options)
    function, _ = _function(pipeline, df, order, workers, report, progress, "output", options)
    carried = carry(
        df, function.source, _read(function) if grouping == "hash" else function.source.names, order
    )
    with _quiet():
        frame = over_nodes(
            pipeline,
            carried,
            layout,
            order_by=order,
            presorted=presorted,
            workers=workers,
            door=function.door,
            options=options,
            grouping=grouping,
        )
    return interruptible(frame)


def shed_log(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: str | Sequence[str],
    workers: int | str | None = None,
    presorted: bool = False,
    **options: Any,
) -> DataFrame:
    """The log of what `apply` with the same arguments sheds (`ordstream.operators.shed.ShedOutcome.log`), by
    a job of its own.

    Frozen decisions are the same in every run, so this runs the operators through the last shed operator
    again, and nothing behind it. The log of a node is held in memory until the node ends, 40 bytes per
    shed tuple.

    Returns
    -------
    DataFrame
        partition, operator, serial, index, at_ns, latency_ms, cost_ms; `toArrow()` of it is a `shed_log`.

    Raises
    ------
    PlanError
        If the pipeline does not shed, or sheds by clocks.
    """
    check_frame(df)
    return _in_one_node(pipeline, df, order_by, workers, None, None, presorted, "shed_log", options)


def shed_rows(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: str | Sequence[str],
    operator: str | None = None,
    workers: int | str | None = None,
    presorted: bool = False,
    **options: Any,
) -> DataFrame:
    """The tuples that `apply` with the same arguments sheds: the side output of one shed operator, by a job
    of its own.

    As `shed_log`. The tuples are held in memory until the node ends.

    Parameters
    ----------
    operator : str, optional
        Name of the shed operator; default the last one.

    Returns
    -------
    DataFrame
        The columns that arrive at the operator, then _partition, _serial and _index.

    Raises
    ------
    PlanError
        If there is no such operator, or the pipeline sheds by clocks.
    """
    check_frame(df)
    name = only_shed(pipeline.plan, operator).operators[-1].name
    return _in_one_node(pipeline, df, order_by, workers, None, None, presorted, name, options)


def _in_one_node(
    pipeline: Pipeline,
    df: DataFrame,
    order_by: str | Sequence[str],
    workers: int | str | None,
    report: OnReport | Channel | None,
    progress: OnProgress | None,
    presorted: bool,
    part: str,
    options: dict[str, Any],
) -> DataFrame:
    check_frame(df)
    order = _names(order_by)
    function, schema = _function(pipeline, df, order, workers, report, progress, part, options)
    carried = carry(df, function.source, _read(function), order)
    names = tuple(carried_name(number) for number in range(len(function.source)))
    # it is one partition, wherever Spark puts it
    function = replace(function, partition=0, names=names, ordering=carried.ordering)
    with _quiet():
        rows = carried.in_one_partition() if presorted else carried.sorted()
        return interruptible(rows.mapInArrow(function, schema))


def _function(
    pipeline: Pipeline,
    df: DataFrame,
    order: tuple[str, ...],
    workers: int | str | None,
    report: OnReport | Channel | None,
    progress: OnProgress | None,
    part: str,
    options: dict[str, Any],
) -> tuple[NodeFunction, StructType]:
    if report is None and progress is None:
        report = _silent(df.sparkSession)
    elif not isinstance(report, Channel):
        report = Channel(on_report=report)
    report.active_stages = _active_stages(df.sparkSession)
    return node_function(pipeline, order, workers, report, progress, part=part, **options)


def _read(function: NodeFunction) -> list[str]:
    """Columns that the pipeline reads."""
    return [name for name in function.source.names if name not in function.unread]


def _names(order_by: Any) -> tuple[str, ...]:
    names = (
        (order_by,)
        if isinstance(order_by, str)
        else tuple(order_by)
        if isinstance(order_by, list | tuple)
        else None
    )
    if names is None or not all(isinstance(name, str) for name in names):
        raise PlanError(f"order_by takes the name of a column, or a list of names; got {order_by!r}")
    return names


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without PySpark's notice on pandas."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS_NOTICE, category=FutureWarning)
        yield


def _layout(
    spark: SparkSession, pipeline: Pipeline, nodes: int | str | None, per_executor: PerExecutor
) -> Layout | None:
    """How nodes lie on executors; None: one node. A pipeline that sheds, and a graph, run in one.

    Raises
    ------
    PlanError
        It sheds, and more nodes are asked for; or an argument is out of range.
    """
    shedding = [operator.name for operator in sheds(pipeline.plan)]
    if nodes in (None, 1) or ((shedding or pipeline.plan.is_graph) and nodes == "auto"):
        return None
    layout = make_layout(spark, pipeline, nodes, per_executor)
    if shedding and layout.nodes > 1:
        raise PlanError(
            f"{shedding[0]}: a pipeline that sheds runs in one node, since its log counts the serials of "
            "one source: leave nodes out, "
            "or run it once per partition (ordstream.spark.node_function)"
        )
    return None if layout.nodes == 1 else layout


def explain(
    pipeline: Pipeline,
    spark: SparkSession | None = None,
    *,
    nodes: int | Literal["auto"] = "auto",
    nodes_per_executor: PerExecutor = "auto",
    emit: Literal["updates", "final"] = "updates",
    grouping: Grouping = "hash",
    order_by: str | Sequence[str] = (),
) -> str:
    """Tell how `apply` would run a pipeline: where it is cut, what chooses a row's node, what a node is.

    Parameters
    ----------
    pipeline : Pipeline
    spark : SparkSession, optional
        Default: the active one.
    nodes, nodes_per_executor, emit, grouping, order_by
        As for `apply`.

    Raises
    ------
    PlanError
        Without a session; where the grouping doesn't fit the operators; with `emit="final"` also where the
        last operator has no answer at the end.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise PlanError("explain needs a Spark session: the nodes depend on its executors")
    pipeline = Pipeline.of(final(pipeline.plan)) if emit == "final" else pipeline
    layout = _layout(session, pipeline, nodes, nodes_per_executor)
    if layout is None and pipeline.plan.is_graph:
        return f"1 node, in one Spark task: a graph is not cut\n{pipeline.explain()}"
    if layout is None and sheds(pipeline.plan):
        check_repeatable(pipeline.plan, None)
        return f"1 node, in one Spark task, since it sheds\n{pipeline.explain()}"
    layout = layout or make_layout(session, pipeline, nodes, nodes_per_executor)
    resolved = resolve(grouping, fragmenting.fragments_of(pipeline.plan), layout.nodes, _names(order_by))
    spread = resolved.texts(layout.nodes)
    return fragmenting.explain(
        pipeline.plan, layout.nodes, how=layout.text, fragments=resolved.fragments, spread=spread
    )


def node_function(
    pipeline: Pipeline,
    order_by: tuple[str, ...] = (),
    workers: int | str | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    part: str = "output",
    **options: Any,
) -> tuple[NodeFunction, StructType]:
    """Return what runs in a task, for `DataFrame.mapInArrow` or `RDD.mapPartitions`, and the schema of its
    output.

    Each partition gets a node of its own, and its rows must already be in `order_by`. The arguments are
    those of `apply`, but for `part`. Shed operators decide by the number of the partition that Spark gives
    the task, so let no `coalesce` or `union` follow in the same stage if the log is to be found again.

    A task cannot tell whether its rows are a micro-batch of a stream, with which every state begins anew:
    `apply` refuses a streaming DataFrame, this can't.

    Parameters
    ----------
    part : str
        "output"; or "shed_log" or the name of a shed operator, for what `shed_log` and `shed_rows` give.

    Raises
    ------
    SchemaError
        If an output column has a type that Spark can't carry.
    PlanError
        If an option is unknown or out of range, or the pipeline sheds by clocks.
    """
    settings = make_settings(options | {"workers": workers})  # a wrong option is an error now, not in a task
    refuse_state(settings, "Spark")
    check_repeatable(pipeline.plan, settings.shed_log)
    pipeline, schema, options = _part_of(pipeline, part, options)
    source = pipeline.source_schema
    plan = final(pipeline.plan) if options.get("emit") == "final" else pipeline.plan
    used = list(used_source_columns(plan))
    if settings.punctuate is not None:
        used[settings.punctuate.bind(source)[0]] = True
    channel = report if isinstance(report, Channel) else None
    if channel is None and (report is not None or progress is not None):
        channel = Channel(on_report=None if isinstance(report, Channel) else report)
    if channel is not None and progress is not None:
        channel.on_progress = progress
    function = NodeFunction(
        pipeline=pipeline,
        source=source,
        unread=tuple(name for name, is_used in zip(source.names, used, strict=True) if not is_used),
        part=part,
        output=to_arrow_schema(schema, timezone="UTC"),
        order_by=order_by,
        workers=workers,
        options=options,
        door=None if channel is None else LISTENER.open(channel),
    )
    return function, schema


def _part_of(
    pipeline: Pipeline, part: str, options: dict[str, Any]
) -> tuple[Pipeline, StructType, dict[str, Any]]:
    """The pipeline to run for a part of its result, the schema of that part, and the options for it."""
    if part == "output":
        schema = spark_schema(pipeline.schema)
        if options.get("tags"):
            names_beside(schema.names, TAG_NAMES, "tags=True")
            schema = schema.add("_serial", "long").add("_index", "long")
        if sheds(pipeline.plan):
            # A side output would be held in the executor for nobody: `shed_rows` gives it.
            pipeline = Pipeline.of(set_aside(pipeline.plan, None))
        return pipeline, schema, options
    plan = only_shed(pipeline.plan, None if part == "shed_log" else part)
    shortened, last = Pipeline.of(set_aside(plan, part)), sheds(plan)[-1]
    column = last.input.names[last.cost_key[0]]
    options = {name: value for name, value in options.items() if name not in ("tags", "emit")}
    if part == "shed_log":
        schema = spark_schema(LOG_SCHEMA)
    else:
        names_beside(last.input.names, ("_partition", *TAG_NAMES), "shed_rows")
        schema = (
            spark_schema(last.input).add("_partition", "long").add("_serial", "long").add("_index", "long")
        )
    return shortened.select(column), schema, options  # something must stand behind a shed operator


_silent_channels: dict[str, Channel] = {}  # of each Spark application that this process has driven


def _silent(spark: SparkSession) -> Channel:
    """A channel by which nodes only hear that their job was cancelled; all `apply` of an application
    share it.
    """
    try:
        application = spark.sparkContext.applicationId
    except Exception:  # Spark Connect
        application = ""
    return _silent_channels.setdefault(application, Channel(keeps=False))


def _active_stages(spark: SparkSession) -> Callable[[], set[int]] | None:
    """What asks Spark for the stages it runs now; None where it can't be asked (Spark Connect)."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # no context behind this session
        return None
    return lambda: set(tracker.getActiveStageIds())

"""`apply`: a pipeline over a whole DataFrame, in one total order, in one ordered node inside a Spark
executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, overload

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ordstream.errors import PlanError
from ordstream.fragments import fragmenting
from ordstream.ground.choices import is_one_of
from ordstream.ground.ordertags import TAG_NAMES
from ordstream.ground.types import names_beside
from ordstream.node.settings import check_known, make_settings, refuse_state
from ordstream.operators.shed import LOG_SCHEMA
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.columns import compared_source_columns, used_source_columns
from ordstream.plan.final import final
from ordstream.plan.lanes import check_one_source
from ordstream.plan.rejections import check_taken
from ordstream.plan.shedding import check_repeatable, only_shed, options_of_part, set_aside, sheds
from ordstream.plan.sources import MergeBy, merge_text
from ordstream.spark.clock_marks import refuse
from ordstream.spark.columns import check_pipeline
from ordstream.spark.executor import NodeFunction, carried_name
from ordstream.spark.grouping import Grouping, resolve
from ordstream.spark.inputs import Input, input_of, of_one_source
from ordstream.spark.late_reports import in_tasks, with_late_reports
from ordstream.spark.layout import (
    LOG,
    Layout,
    PerExecutor,
    executors_are_here,
    make_layout,
    must_be_alone,
    one_state,
    whole,
    without_threads,
)
from ordstream.spark.numbering import ORDER_TEXTS, Order, check_order
from ordstream.spark.order import OrderBy, order_names
from ordstream.spark.output_frames import OutputFrames
from ordstream.spark.over_nodes import over_nodes
from ordstream.spark.progress import LISTENER, Channel, OnProgress, OnReport, check_told
from ordstream.spark.quiet import without_notice
from ordstream.spark.running_session import running_session
from ordstream.spark.schemas import as_in_source, spark_schema, with_collations
from ordstream.spark.source_serial import SerialOf

_told: set[str] = set()  # what a line of the log has said already

#: Options of `apply` beside those of one node.
OF_APPLY = (
    "grouping", "listen", "merge_by", "nodes", "nodes_per_executor", "order", "order_by", "outputs",
    "presorted", "report",
)  # fmt: skip


@overload
def apply(
    pipeline: Pipeline,
    df: DataFrame | Mapping[str, DataFrame],
    *,
    outputs: Mapping[str, Pipeline],
    **options: Any,
) -> OutputFrames: ...


@overload
def apply(
    pipeline: Pipeline,
    df: DataFrame | Mapping[str, DataFrame],
    *,
    order_by: OrderBy | None = None,
    outputs: None = None,
    merge_by: MergeBy | None = None,
    workers: int | str | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    presorted: bool = False,
    nodes: int | Literal["auto"] | None = "auto",
    nodes_per_executor: PerExecutor = "auto",
    emit: Literal["updates", "final"] | None = None,
    grouping: Grouping = "hash",
    order: Order = "total",
    listen: str | None = None,
    **options: Any,
) -> DataFrame: ...


def apply(
    pipeline: Pipeline,
    df: DataFrame | Mapping[str, DataFrame],
    *,
    order_by: OrderBy | None = None,
    outputs: Mapping[str, Pipeline] | None = None,
    merge_by: MergeBy | None = None,
    workers: int | str | None = None,
    report: OnReport | Channel | None = None,
    progress: OnProgress | None = None,
    presorted: bool = False,
    nodes: int | Literal["auto"] | None = "auto",
    nodes_per_executor: PerExecutor = "auto",
    emit: Literal["updates", "final"] | None = None,
    grouping: Grouping = "hash",
    order: Order = "total",
    listen: str | None = None,
    **options: Any,
) -> DataFrame | OutputFrames:
    """Run a pipeline over a DataFrame in a total order; the result's rows are in the pipeline's output
    order.

    The order is `order_by`, as Spark's own `orderBy` has it: a name is ascending with NULL first; NaN is
    above every number. Rows equal in these columns follow their place in the source, (file, row index),
    where Spark knows it (Parquet, not cached), else the remaining columns of the pipeline's source, so that
    a task that is run again sees the same rows in the same order (0.0 and -0.0 are one number there). Spark
    sorts; rows that are sorted already cost it one pass. The node checks the order of what arrives.

    Parameters
    ----------
    pipeline : Pipeline
        What to run; its source columns are found in `df` by name, in the way of `spark.sql.caseSensitive`,
        and cast within their kind (numbers, times, texts).
    df : DataFrame, or mapping of str to DataFrame
        The input; of a pipeline of several sources, that of each. Nothing runs before an action on the
        result.
    order_by : str or Column, or sequence of these
        Needed for one frame. Columns of `df`, which need not be columns of the pipeline's source: names, or
        Spark's columns with their directions (``F.desc("a")``, ``F.col("a").asc_nulls_last()``,
        ``F.lower("b")``). Empty: source order only, where Spark knows it (Parquet). Of several frames: what
        orders rows of one source that are equal in `merge_by`.
    outputs : mapping of str to Pipeline, optional
        Several outputs of one graph, as of `Pipeline.run`: the result is a mapping of each name to its
        DataFrame (`OutputFrames`).
    merge_by : str or mapping of str to str, optional
        The column by which several sources are merged, as in `Pipeline.run`; ties in the order of `df`.
    workers : int, optional
        Threads of the node; default the processors of a Spark task.
    report : callable or Channel, optional
        Called in a driver thread with (task, the node's report as a dict) when a node has ended; or a
        channel that keeps them.
    progress : callable, optional
        Called in a driver thread with the number of rows processed, while the job runs. Of nodes on other
        hosts than the driver's when a task has ended, over Connect when the action has; live with `listen`.
    presorted : bool
        Leave out the sort: the rows of `df` come in order, one partition after the other; of files that are
        only read and filtered, one file after the other, by path. `order_by` is still checked (over several
        nodes docs/scaling.md says between which rows); ties are taken as they come.
    nodes : int or "auto"
        More than one: the pipeline is cut where the key changes and each fragment runs in so many nodes on
        all executors; the output is the same. "auto": by Spark's estimate of the input's size, what can be
        cut, and what the session is configured for (`explain` and a line of the log "ordstream.spark" say
        what was chosen and why); one node for small inputs, which it costs least. Nodes for which no
        executor is free wait for one. None: one node.
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
    order : "total", "by_key" or "none"
        Of the result over several nodes. "total": every row of a partition comes before all rows of the next
        one, and they are sorted inside; `collect()`, `toArrow()`, `toLocalIterator()` and the files of
        `write.parquet` have that order. "by_key": the rows of a key of the last keyed operator are in one
        partition, in their order. "none": none. These two spare the last shuffle; rows then get no serials,
        for errors neither. The rows are equal.
    listen : str, optional
        An address of this host, "10.0.0.5" or "10.0.0.5:7077", where nodes on other hosts tell how far they
        are, and hear of a cancel at once. A node must know a secret that it was shipped with; what it tells
        is neither signed nor encrypted. Default: this process listens on the loopback interface only.
    **options
        Further options of a run (``scheduler``, ``partitioning``, ``chunk_rows``, ...).

    Returns
    -------
    DataFrame
        As `order` says; of one node, one partition, in order.

    Raises
    ------
    SchemaError
        If a column is missing or has a type that Spark or the pipeline can't carry, or is of another kind
        than the pipeline's; if the pipeline compares one that has a collation.
    PlanError
        If an option is unknown or out of range, the grouping doesn't fit the operators, or `order_by` holds
        what rows can't be compared by, or is empty where the source has no order.
    """
    check_pipeline(pipeline, "od.spark.apply")
    check_told(report, progress, listen, presorted)
    check_order(order)
    check_known(options, OF_APPLY)
    options = options | ({} if emit is None else {"emit": emit})
    make_settings(options | {"workers": workers})  # the layout looks at some of them
    plan, named = (pipeline.plan, ()) if outputs is None else pipeline._several(outputs)
    given = input_of(Pipeline.of(plan), df, order_by, merge_by)
    check_taken(given.pipeline.plan)
    given.check_order(presorted, order)
    if presorted and merge_by is not None:
        raise PlanError("presorted: several frames are merged, which sorts them: leave it out")
    if progress is not None and listen is None and not executors_are_here(given.session):
        _tell_once(
            "progress= hears of nodes on other hosts when they have ended; listen='AN ADDRESS OF THIS HOST' "
            "gives live counts"
        )
    told = _Told(report, progress, listen)
    many = 1 if nodes is None else nodes
    layout = make_layout(
        given.session, given.pipeline, many, nodes_per_executor, given.frames, options, given.names
    )
    rows = _applied(given, layout, workers, told, presorted, grouping, order, options)
    return rows if outputs is None else OutputFrames.of(rows, named, given)


def _applied(
    given: Input,
    layout: Layout,
    workers: int | str | None,
    told: _Told,
    presorted: bool,
    grouping: Grouping,
    order: Order,
    options: dict[str, Any],
) -> DataFrame:
    """What `apply` gives, of one output."""
    pipeline, session, names = given.pipeline, given.session, given.names
    hashed = is_one_of(grouping, ("hash",))
    if layout.nodes == 1:
        if not hashed and not whole(pipeline, options):
            plan = final(pipeline.plan) if options.get("emit") == "final" else pipeline.plan
            resolve(grouping, fragmenting.fragments_of(plan), 1, names)
        _tell(layout, without_threads(session, pipeline, layout) if workers is None else "")
        return _in_one_node(given, workers, told, presorted, "output", options, layout.profile)
    _tell(layout, "")
    function, _ = _function(pipeline, session, names, workers, told, "output", options)
    read = _read(function) if hashed else function.source.names
    carried = given.carried(read, compared_source_columns(pipeline.plan), presorted)
    fields = given.fields()
    with without_notice():
        frame, serial_of = over_nodes(
            pipeline,
            carried,
            layout,
            order_by=names,
            presorted=presorted,
            workers=workers,
            door=function.door,
            options=options,
            grouping=grouping,
            order=order,
            fields=fields,
        )
        return _interruptible(with_collations(frame, fields, pipeline.plan), serial_of)


def _tell(layout: Layout, idle: str) -> None:
    """One line of the log on what was chosen; another one where cores have nothing to do."""
    if layout.why:
        noun = "node" if layout.nodes == 1 else "nodes"
        LOG.info("%d %s (%s)%s", layout.nodes, noun, layout.why, layout.text)
    if idle:
        _tell_once(idle)


def _tell_once(text: str) -> None:
    """A line of the log, the first time only."""
    if text not in _told:
        _told.add(text)
        LOG.warning("%s", text)


def shed_log(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: OrderBy,
    workers: int | str | None = None,
    presorted: bool = False,
    **options: Any,
) -> DataFrame:
    """The log of what `apply` with the same arguments (`pipeline`, `df`, `order_by`, `workers`, `presorted`)
    sheds (`ordstream.operators.shed.ShedOutcome.log`), by a job of its own: frozen decisions are the same in
    every run, so it runs the operators through the last shed operator again, and nothing behind it. The log
    of a node is held in memory until the node ends, 40 bytes per shed tuple.

    Returns
    -------
    DataFrame
        partition, operator, serial, index, at_ns, latency_ms, cost_ms; `toArrow()` of it is a `shed_log`.

    Raises
    ------
    PlanError
        If the pipeline does not shed, or sheds by clocks.
    """
    given = input_of(pipeline, df, order_by, None)
    check_told(None, None, None, presorted)
    return _in_one_node(given, workers, _Told(), presorted, "shed_log", options)


def shed_rows(
    pipeline: Pipeline,
    df: DataFrame,
    *,
    order_by: OrderBy,
    operator: str | None = None,
    workers: int | str | None = None,
    presorted: bool = False,
    **options: Any,
) -> DataFrame:
    """The tuples that `apply` with the same arguments (`pipeline`, `df`, `order_by`, `workers`, `presorted`)
    sheds: the side output of one shed operator, by a job of its own.

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
    given = input_of(pipeline, df, order_by, None)
    check_told(None, None, None, presorted)
    name = only_shed(pipeline.plan, operator).operators[-1].name
    return _in_one_node(given, workers, _Told(), presorted, name, options)


class _Told(NamedTuple):
    """What the user wants to hear of a job, and where."""

    report: OnReport | Channel | None = None
    progress: OnProgress | None = None
    listen: str | None = None


def _in_one_node(
    given: Input,
    workers: int | str | None,
    told: _Told,
    presorted: bool,
    part: str,
    options: dict[str, Any],
    profile: Any = None,
) -> DataFrame:
    plan, session = given.pipeline.plan, given.session
    function, schema = _function(given.pipeline, session, given.names, workers, told, part, options)
    carried = given.carried(_read(function), compared_source_columns(plan), presorted)
    names = tuple(carried_name(number) for number in range(len(function.source)))
    fields = given.fields() if part == "output" else []
    if part == "output":
        schema = as_in_source(schema, fields, plan)
    # it is one partition, wherever Spark puts it
    function = replace(function, partition=0, names=names, order_by=carried.texts, ordering=carried.keys)
    with without_notice():
        rows = carried.in_one_partition() if presorted else carried.sorted()
        result = in_tasks(rows, function, schema, profile)
        if part == "output":
            result = with_collations(result, fields, plan)
        return _interruptible(result)


def _function(
    pipeline: Pipeline,
    spark: SparkSession,
    order: tuple[str, ...],
    workers: int | str | None,
    told: _Told,
    part: str,
    options: dict[str, Any],
) -> tuple[NodeFunction, StructType]:
    report, progress = told.report, told.progress
    if report is None and progress is None:
        report = _silent(spark)
    elif not isinstance(report, Channel):
        report = Channel(on_report=report)
    report.active_stages = _active_stages(spark)
    function, schema = node_function(pipeline, order, workers, report, progress, part=part, **options)
    door = LISTENER.open(report, told.listen)
    if report.keeps and not executors_are_here(spark):
        door = with_late_reports(door, spark)
    return replace(function, door=door), schema


def _read(function: NodeFunction) -> list[str]:
    """Columns that the pipeline reads."""
    return [name for name in function.source.names if name not in function.unread]


def _interruptible(frame: DataFrame, serial_of: SerialOf | None = None) -> DataFrame:
    """Spark Connect's client cancels by itself; the thin one has nothing of what the rest is made of."""
    if not hasattr(frame, "_jdf"):
        return frame
    from ordstream.spark.interrupt import interruptible

    return interruptible(frame, serial_of)


def explain(
    pipeline: Pipeline,
    spark: SparkSession | None = None,
    *,
    nodes: int | Literal["auto"] | None = "auto",
    nodes_per_executor: PerExecutor = "auto",
    emit: Literal["updates", "final"] = "updates",
    grouping: Grouping = "hash",
    order_by: OrderBy = (),
    merge_by: MergeBy | None = None,
    df: DataFrame | Mapping[str, DataFrame] | None = None,
    order: Order = "total",
) -> str:
    """Tell how `apply` would run a pipeline: where it is cut, what chooses a row's node, what a node is.

    Parameters
    ----------
    pipeline : Pipeline
    spark : SparkSession, optional
        Default: the active one.
    nodes, nodes_per_executor, emit, grouping, order_by, merge_by, order
        As for `apply`.
    df : DataFrame or mapping of str to DataFrame, optional
        The input, by whose size "auto" chooses; without it the size counts as unknown.

    Raises
    ------
    PlanError
        Without a session; where the grouping doesn't fit the operators, or several nodes can't find the
        clock's marks in this order; with `emit="final"` also where the last operator has no answer at the
        end.
    """
    check_pipeline(pipeline, "od.spark.explain")
    session = running_session(spark, "explain")  # the nodes depend on its executors
    check_order(order)
    make_settings({"emit": emit})
    pipeline = Pipeline.of(final(pipeline.plan)) if emit == "final" else pipeline
    pipeline = of_one_source(pipeline, df, merge_by)
    names = (*([] if merge_by is None else [merge_text(merge_by)]), *order_names(order_by))
    many = 1 if nodes is None else nodes
    layout = make_layout(session, pipeline, many, nodes_per_executor, df, order_by=names)
    if sheds(pipeline.plan):
        check_repeatable(pipeline.plan, None)
        return f"1 node, in one Spark task, since it sheds\n{pipeline.explain()}"
    alone = layout.why and must_be_alone(pipeline, {}, names)
    if layout.nodes == 1 and (why := alone or whole(pipeline, {})):
        return f"1 node, since {why}\n{pipeline.explain()}"
    if names and layout.nodes > 1 and (why := refuse(pipeline.plan, None, names)):
        raise PlanError(why)
    resolved = resolve(grouping, fragmenting.fragments_of(pipeline.plan), layout.nodes, names)
    spread, chosen, how = resolved.texts(layout.nodes), resolved.fragments, layout.text
    text = fragmenting.explain(pipeline.plan, layout.nodes, how=how, fragments=chosen, spread=spread)
    notes = [f"        chosen: {layout.why}"] if layout.why else []
    first, *others = text.split("\n")
    if layout.nodes > 1:
        others[-1] = ORDER_TEXTS[order]
        if order == "total" and any(
            one.emits_at_end for part in resolved.fragments for one in part.operators
        ):
            others.append(
                "        with tags=True one task has what the end of the stream causes, whose rows it counts"
            )
        notes += [f"        {one}" for one in [one_state(resolved.fragments)] if one]
    return "\n".join([first, *notes, *others])


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
    those of `apply` (`pipeline`, `workers`, `report`, `progress`), but for `part`. Shed operators decide by
    the number of the partition that Spark gives the task, so let no `coalesce` or `union` follow in the same
    stage if the log is to be found again.

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
    check_pipeline(pipeline, "od.spark.node_function")
    check_one_source(pipeline.plan, "od.spark.node_function")
    check_told(report, progress, None, False)
    check_known(options)
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
    if is_one_of(part, ("output",)):
        schema = spark_schema(pipeline.schema)
        if options.get("tags"):
            names_beside(schema.names, TAG_NAMES, "tags=True")
            schema = schema.add("_serial", "long").add("_index", "long")
        if sheds(pipeline.plan):
            # A side output would be held in the executor for nobody: `shed_rows` gives it.
            pipeline = Pipeline.of(set_aside(pipeline.plan, None))
        return pipeline, schema, options
    plan = only_shed(pipeline.plan, None if is_one_of(part, ("shed_log",)) else part)
    shortened, last = Pipeline.of(set_aside(plan, part)), sheds(plan)[-1]
    column = last.input.names[last.cost_key[0]]
    options = options_of_part(plan, options)
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

"""How many nodes a job has and what each of them gets: chosen from Spark's estimate of the input, the plan's
cut, and what the session is configured for.

Not from the executors that happen to be there: one that died is replaced, and tasks that find no slot wait
for one. So a job may have more nodes than run at a time; they run in waves.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from ordstream.errors import PlanError, shown
from ordstream.fragments import fragmenting
from ordstream.fragments.fragment import Fragment
from ordstream.ground.choices import is_one_of
from ordstream.ground.numbers import as_int
from ordstream.pipeline.pipeline import Pipeline
from ordstream.pipeline.runs import whole_graph
from ordstream.plan.final import final
from ordstream.plan.shedding import sheds
from ordstream.spark import clock_marks

LOG = logging.getLogger("ordstream.spark")

# Input of a node, by Spark's estimate, which is that of a partition behind any of Spark's own shuffles.
# Below, one node is cheaper: over nodes a job costs two to three times the processor time (docs/scaling.md).
NODE_BYTES = 64 << 20
# Spark multiplies the sizes of what it joins: more than so many times what is read is no estimate.
MOST_GROWTH = 10
UNKNOWN_NODES = 8  # where neither the input's size nor the session's is known (Spark Connect)
UNKNOWN_BYTES = 1 << 60  # Spark's own "unknown" is 2 ** 63 - 1
MOST_NODES = 1 << 16  # each is a task at least, of which the driver keeps a record

PerExecutor = int | Literal["auto"]


@dataclass(frozen=True)
class Layout:
    """How nodes lie on executors.

    Attributes
    ----------
    nodes : int
        Of every keyed fragment; 1: the whole pipeline runs in one node.
    cpus : int
        Processors of a node's task.
    profile : ResourceProfile or None
        Stage-level resources, where the session's own task size is another.
    text : str
        What a node is, for `explain`.
    why : str
        Why so many nodes; "": they were asked for.
    """

    nodes: int
    cpus: int
    profile: Any
    text: str
    why: str = ""


@dataclass(frozen=True)
class Resources:
    """What a session is configured for.

    Attributes
    ----------
    task_cpus : int
        Processors of a task.
    executors : int or None
        None: not said.
    cores : int
        Of an executor.
    """

    task_cpus: int
    executors: int | None
    cores: int


def make_layout(
    spark: SparkSession,
    pipeline: Pipeline,
    nodes: int | str,
    per_executor: PerExecutor,
    df: Any = None,
    options: Mapping[str, Any] | None = None,
    order_by: Sequence[str] = (),
) -> Layout:
    """Decide the number of nodes and the processors of each. A graph that is not cut has one.

    Parameters
    ----------
    df : DataFrame or mapping of str to DataFrame, optional
        The input, for "auto"; without it the size counts as unknown.
    options : mapping, optional
        Of the run.
    order_by : sequence of str
        Names of what the rows are ordered by.

    Raises
    ------
    PlanError
        If `nodes` or `per_executor` is neither "auto" nor a whole number from 1 to `MOST_NODES`; the
        pipeline sheds, and more nodes than one are asked for.
    """
    nodes, per_executor = _checked("nodes", nodes), _checked("nodes_per_executor", per_executor)
    found = resources(spark)
    python = fragmenting.uses_python(pipeline.plan)
    if per_executor == "auto":
        each = found.cores if python else 1
        why = "plain Python functions: one node per core" if python else "one node per executor"
    else:
        each = int(per_executor)
        why = f"{each} nodes per executor"
    cpus, profile = max(1, found.cores // each), None
    if cpus != found.task_cpus:
        if _has_profiles(spark):
            profile = _profile(cpus)
        else:
            wish = f"{why} needs spark.task.cpus={cpus}, as local_session(node_cores={cpus}) sets"
            cpus = found.task_cpus
            each = max(1, found.cores // cpus)
            why = (
                f"{each} per executor, since tasks of this session hold {cpus} of its {found.cores} cores "
                f"({wish})"
            )
    threads = "on the task's own thread" if cpus == 1 else f"{cpus} threads"
    layout = Layout(1, cpus, profile, f": {why}; a node works {threads}")
    shedding = next((operator.name for operator in sheds(pipeline.plan)), None)
    if nodes != "auto":
        if shedding is not None and nodes != 1:
            raise PlanError(
                f"{shedding}: a pipeline that sheds runs in one node, since its log counts the serials of "
                "one source: leave nodes out, "
                "or run it once per partition (ordstream.spark.node_function)"
            )
        if nodes != 1 and (why := whole(pipeline, options or {})):
            return replace(layout, why=why)
        return replace(layout, nodes=int(nodes))
    count, reason = _count(spark, pipeline, found, each, df, options or {}, order_by)
    return replace(layout, nodes=count, why=reason)


def _count(
    spark: SparkSession,
    pipeline: Pipeline,
    found: Resources,
    each: int,
    df: Any,
    options: Mapping[str, Any],
    order_by: Sequence[str],
) -> tuple[int, str]:
    """The number of nodes of a job that leaves it open, and why."""
    alone = must_be_alone(pipeline, options, order_by)
    if alone:
        return 1, alone
    at_a_time = None if found.executors is None else found.executors * each
    if at_a_time == 1:
        return 1, "this session is configured for one such task at a time"
    frames = [] if df is None else [*df.values()] if isinstance(df, Mapping) else [df]
    sizes = [estimated_bytes(one) for one in frames]
    size = None if df is None or None in sizes else sum(one for one in sizes if one is not None)
    if size is not None and size <= NODE_BYTES:
        return 1, f"Spark takes the input for {_in_units(size)}: one node is cheaper"
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)
    wanted = UNKNOWN_NODES if size is None else -(-size // NODE_BYTES)
    if at_a_time is not None:
        most = max(partitions, at_a_time)
        wanted = at_a_time if size is None else max(min(wanted, most), at_a_time)
        room = f"this session is configured for {at_a_time} at a time"
    else:
        wanted = min(wanted, partitions)
        room = "at most spark.sql.shuffle.partitions"
    taken = "Spark has no estimate of the input" if size is None else f"Spark takes it for {_in_units(size)}"
    return wanted, f"{taken}, {NODE_BYTES >> 20} MiB per node; {room}"


def must_be_alone(pipeline: Pipeline, options: Mapping[str, Any], order_by: Sequence[str] = ()) -> str:
    """Why a pipeline runs in one node, however large its input is; "": it need not."""
    if sheds(pipeline.plan):
        return "it sheds"
    try:
        fragmenting.check_options(options, "more than one node")
        plan = final(pipeline.plan) if options.get("emit") == "final" else pipeline.plan
        fragments = fragmenting.fragments_of(plan)
        no_marks = clock_marks.refuse(plan, options.get("punctuate"), order_by)
    except PlanError as error:
        return str(error)
    if no_marks:
        return no_marks
    if fragments[0].operators or any(fragment.key for fragment in fragments):
        return ""
    return one_state(fragments) or "it has no operators"


def whole(pipeline: Pipeline, options: Mapping[str, Any]) -> str:
    """Why a graph runs in one node; "": it is none, or is cut."""
    if not pipeline.plan.is_graph:
        return ""
    return whole_graph(final(pipeline.plan) if options.get("emit") == "final" else pipeline.plan)


def one_state(fragments: tuple[Fragment, ...]) -> str:
    """Names the operators with one state for all rows; "": there are none."""
    names = [fragment.operators[0].name for fragment in fragments if fragment.key == ()]
    if not names:
        return ""
    verb, keeps = ("have", "them") if len(names) > 1 else ("has", "it")
    return f"{', '.join(names)} {verb} one state for all rows: one task takes all that reach {keeps}"


def estimated_bytes(df: DataFrame) -> int | None:
    """Spark's estimate of a frame; None: it has none, or can't be asked (Spark Connect)."""
    try:
        plan = df._jdf.queryExecution().optimizedPlan()
        size = _bytes_of(plan)
        leaves = plan.collectLeaves()
        read = sum(_bytes_of(leaves.apply(number)) for number in range(leaves.size()))
    except Exception:  # no JVM behind this session, or another version of Spark
        return None
    size = min(size, MOST_GROWTH * read)
    return None if size >= UNKNOWN_BYTES else size


def _bytes_of(plan: Any) -> int:
    return int(plan.stats().sizeInBytes())


def _in_units(size: int) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 10_000:
            return f"{size:,} {unit}"
        size >>= 10
    return f"{size:,} GiB"


def without_threads(spark: SparkSession, pipeline: Pipeline, layout: Layout) -> str:
    """Why one node of a job that takes threads has none, though its executor has cores; "": it has them, or
    has no use for them.
    """
    cores = resources(spark).cores
    if layout.nodes > 1 or layout.cpus > 1 or cores == 1 or fragmenting.uses_python(pipeline.plan):
        return ""
    return (
        f"one node runs without worker threads: its task has 1 of the executor's {cores} cores. "
        f"Set spark.task.cpus={cores} for it (docs/scaling.md says where)"
    )


def executors_are_here(spark: SparkSession) -> bool:
    """Whether all tasks surely run on the driver's host: in its own Java process."""
    try:
        master = _settings(spark.sparkContext).get("spark.master", "") or ""
    except Exception:  # Spark Connect
        return False
    return master.startswith("local") and not master.startswith("local-cluster")


def _checked(name: str, value: Any) -> Any:
    """ "auto", or a number as Python's."""
    value = as_int(value)
    if is_one_of(value, ("auto",)) or (type(value) is int and 1 <= value <= MOST_NODES):
        return value
    most = f"a whole number from 1 to {MOST_NODES}"
    raise PlanError(f"{name} must be 'auto' or {most}, got {shown(value, 80)}")


def _settings(context: Any) -> Any:
    """What the context was configured with; its own `getConf` copies that, by some 130 calls into Java."""
    return getattr(context, "_conf", None) or context.getConf()


def resources(spark: SparkSession) -> Resources:
    """What this session is configured for, as far as it tells."""
    try:
        context = spark.sparkContext
        conf = _settings(context)
    except Exception:  # Spark Connect: no context to ask
        return Resources(1, None, 1)
    cpus = max(1, int(conf.get("spark.task.cpus", "1") or 1))
    asked = conf.get("spark.executor.cores", None)
    master = conf.get("spark.master", "") or ""
    if master.startswith("local-cluster["):
        workers, worker_cores, _ = master[len("local-cluster[") : -1].split(",")
        cores = min(int(asked or worker_cores), int(worker_cores))
        return Resources(cpus, int(workers) * (int(worker_cores) // cores), cores)
    if master.startswith("local"):
        return Resources(cpus, 1, max(int(context.defaultParallelism), cpus))
    cores = int(asked) if asked else _cores_seen(context) or cpus
    return Resources(cpus, _executors(conf, cores), max(cores, cpus))


def _executors(conf: Any, cores: int) -> int | None:
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        most = int(conf.get("spark.dynamicAllocation.maxExecutors", "0") or 0)
        return most if 0 < most < (1 << 31) - 1 else None
    if conf.get("spark.executor.instances", None):
        return max(1, int(conf.get("spark.executor.instances")))
    if conf.get("spark.cores.max", None):
        return max(1, int(conf.get("spark.cores.max")) // cores)
    # YARN and Kubernetes start two where nothing is said; a standalone cluster gives all it has.
    return 2 if (conf.get("spark.master", "") or "").startswith(("yarn", "k8s")) else None


def _cores_seen(context: Any) -> int | None:
    """Cores of the largest executor that this application has had: in a standalone cluster nobody need say
    how many there are. None: none was there yet.
    """
    try:
        seen = context._jsc.sc().statusStore().executorList(False)
        cores = [int(seen.apply(number).totalCores()) for number in range(seen.size())]
    except Exception:  # another version of Spark
        return None
    return max(cores, default=0) or None


def _has_profiles(spark: SparkSession) -> bool:
    try:
        conf = _settings(spark.sparkContext)
    except Exception:  # Spark Connect
        return False
    master = conf.get("spark.master", "") or ""
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return False
    return master.startswith(("local-cluster", "spark://", "yarn", "k8s"))


def _profile(cpus: int) -> Any:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build

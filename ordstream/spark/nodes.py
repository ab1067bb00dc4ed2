"""A pipeline over many executors: cut where the key changes, each fragment in nodes, a Spark shuffle between
two fragments.

The source's rows get their serials before anything moves: Spark sorts them, unless they come sorted, and
numbers them. From then on a row's place in the order is its tag, whatever Spark does with it: a fragment's
rows go to nodes by a partition id that the sender computes from the key, arrive sorted by tag (the node
checks it), and a last sort by tag restores the order of the output. A task that runs again, anywhere, sees
the same rows in the same order.

Where nothing runs in front of the first key, Spark computes the partition ids itself: the source's rows
reach Python in the nodes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError, SchemaError
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE, Route
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.processes import prepare
from ordstream.ground.ordercheck import SortKey
from ordstream.ground.ordertags import TAG
from ordstream.ground.types import is_list, is_temporal
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.columns import used_source_columns
from ordstream.plan.plan import Plan
from ordstream.spark.balancer import unbounded
from ordstream.spark.columns import Carried, user_names
from ordstream.spark.executor import SERIAL, FragmentFunction, RestoreFunction, carried_name
from ordstream.spark.grouping import (
    Choice,
    Grouping,
    first_slice,
    hash_is_as_good,
    learnt_keys,
    learnt_times,
    resolve,
    sample_of,
    scheduled,
    with_costs,
)
from ordstream.spark.progress import Door
from ordstream.spark.schemas import spark_schema

# Consecutive rows that go to one node where the source's rows are spread by no key.
BLOCK_ROWS = 1_024

PerExecutor = int | Literal["auto"]


@dataclass(frozen=True)
class Layout:
    """How nodes lie on executors.

    Attributes
    ----------
    nodes : int
        Of every keyed fragment.
    cpus : int
        Processors of a node's task.
    profile : ResourceProfile or None
        Stage-level resources, where the session's own task size is another.
    text : str
        One line for `explain`.
    """

    nodes: int
    cpus: int
    profile: Any
    text: str


def make_layout(
    spark: SparkSession, pipeline: Pipeline, nodes: int | str, per_executor: PerExecutor
) -> Layout:
    """Decide the number of nodes and the processors of each.

    Raises
    ------
    PlanError
        If `nodes` or `per_executor` is neither "auto" nor a whole number from 1.
    """
    _check("nodes", nodes)
    _check("nodes_per_executor", per_executor)
    session_cpus, executors, cores = _resources(spark)
    python = fragmenting.uses_python(pipeline.plan)
    if per_executor == "auto":
        each = cores if python else 1
        why = "plain Python functions: one node per core" if python else "one node per executor"
    else:
        each = int(per_executor)
        why = f"{each} nodes per executor"
    cpus = max(1, cores // each)
    profile = None
    if cpus != session_cpus:
        if _has_profiles(spark):
            profile = _profile(cpus)
        else:
            wish = f"{why} needs spark.task.cpus={cpus}, as local_session(node_cores={cpus}) sets"
            cpus = session_cpus
            each = max(1, cores // cpus)
            why = (
                f"{each} per executor, since tasks of this session hold {cpus} of its {cores} cores ({wish})"
            )
    count = executors * each if nodes == "auto" else int(nodes)
    threads = "on the task's own thread" if cpus == 1 else f"{cpus} threads"
    return Layout(count, cpus, profile, f": {why}; a node works {threads}")


def _check(name: str, value: Any) -> None:
    if value != "auto" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise PlanError(f"{name} must be 'auto' or a whole number from 1, got {value!r}")


def _resources(spark: SparkSession) -> tuple[int, int, int]:
    """(processors of a task, executors, cores of an executor), as far as this session tells."""
    try:
        context = spark.sparkContext
        conf = context.getConf()
        jsc = context._jsc.sc()
        slots = int(jsc.maxNumConcurrentTasks(jsc.resourceProfileManager().resourceProfileFromId(0)))
    except Exception:  # Spark Connect: no context to ask
        return 1, 1, 1
    cpus = int(conf.get("spark.task.cpus", "1") or 1)
    total = max(1, slots * cpus)
    master = conf.get("spark.master", "") or ""
    if master.startswith("local-cluster["):
        cores = int(master[len("local-cluster[") : -1].split(",")[1])
    elif master.startswith("local"):
        cores = max(int(context.defaultParallelism), cpus)
    else:
        cores = int(conf.get("spark.executor.cores", str(cpus)) or cpus)
    return cpus, max(1, total // cores), cores


def _has_profiles(spark: SparkSession) -> bool:
    try:
        conf = spark.sparkContext.getConf()
    except Exception:  # Spark Connect
        return False
    master = conf.get("spark.master", "") or ""
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return False
    return master.startswith(("local-cluster", "spark://", "yarn", "k8s"))


def _profile(cpus: int) -> Any:
    from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

    return ResourceProfileBuilder().require(TaskResourceRequests().cpus(cpus)).build


def over_nodes(
    pipeline: Pipeline,
    carried: Carried,
    layout: Layout,
    *,
    order_by: Sequence[str],
    presorted: bool,
    workers: int | str | None,
    door: Door | None,
    options: dict[str, Any],
    grouping: Grouping = "hash",
) -> DataFrame:
    """Run a pipeline over nodes; the arguments are those of `apply`.

    Parameters
    ----------
    carried : Carried
        The source's columns, and `order_by`'s.
    presorted : bool
        They are in order, which is checked: for the rows of a partition, or of a node where rows go to nodes
        first.

    Returns
    -------
    DataFrame
        One partition, in order.
    """
    ordered = carried.as_it_is() if presorted else carried.sorted(everywhere=True)
    if not hasattr(ordered, "zipWithIndex"):
        raise PlanError(
            "more than one node needs PySpark 4.2 or newer (DataFrame.zipWithIndex); run with nodes=1"
        )
    fragments, chosen, tags = prepare(pipeline, options, f"nodes={layout.nodes}")
    resolved = resolve(grouping, fragments, layout.nodes, order_by)
    fragments, choices = fragmenting.combined(resolved.fragments), resolved.choices
    del chosen["workers"]
    if workers is None and layout.cpus == 1:
        workers = 0
    spark = ordered.sparkSession
    for balancer in {choice.balancer for choice in choices.values() if choice.balancer is not None}:
        mine = [choice for choice in choices.values() if choice.balancer is balancer]
        balancer._begin(spark, [one.operator for one in mine if one.measured])
    fragments = tuple(
        with_costs(one, choices[k]) if _measures(choices.get(k)) else one for k, one in enumerate(fragments)
    )
    rows = ordered.zipWithIndex(SERIAL)
    hashed = len(fragments) > 1 and not fragments[0].operators and _hashes_alike(rows, fragments[1])
    checked = (carried.texts, carried.keys) if presorted else ((), ())
    job = Job(fragments, choices, layout, *checked, workers, chosen, door, direct=hashed and not choices)
    for number in range(2, len(fragments) + 1):
        choice = choices.get(number - 1)
        if choice is None:
            continue
        if choice.learns(layout.nodes):
            learner, by_hash = job.learn(
                number, sample_of(carried.frame, choice), carried, presorted, hashed and number == 2
            )
            if choice.balancer is not None:
                choice.balancer._learnt(choice.operator, learner)
            if hash_is_as_good(choice, learner, by_hash, layout.nodes, "a hash of the key, as before"):
                del choices[number - 1]
                continue
            job.groupings[number] = learner.build()
        else:
            job.groupings[number] = choice.key_map(layout.nodes)
    job.direct = hashed and not choices
    if 0 in choices and choices[0].learns_times():
        job.learn_times(carried)
    numbered, rows = rows, job.through(rows, len(fragments))
    schema = carriers(fragments[-1].output, last=True)
    one = fragments[-1].nodes(layout.nodes) == 1 and fragments[-1].key is not None
    names = fragments[-1].output.names
    if not tags:
        return user_names(rows if one else rows.repartition(1).sortWithinPartitions(TAG), names)
    count = numbered.agg(F.count("*").alias(SERIAL)).withColumn(TAG, F.lit(b""))
    tagged = rows.withColumn(SERIAL, F.lit(None).cast(LongType())).unionByName(
        count, allowMissingColumns=True
    )
    output = StructType(schema.fields[:-1])
    result = StructType(
        [
            StructField(name, one.dataType, one.nullable)
            for name, one in zip(names, output.fields, strict=True)
        ]
    )
    result = result.add("_serial", LongType()).add("_index", LongType())
    restore = RestoreFunction(to_arrow_schema(output, timezone="UTC"))
    return tagged.repartition(1).sortWithinPartitions(TAG).mapInArrow(restore, result)


def _measures(choice: Choice | None) -> bool:
    """The fragment is to measure execution times: there is a balancer to learn them."""
    return choice is not None and choice.balancer is not None and bool(choice.measured)


@dataclass
class Job:
    """The fragments of one job and what they run with; `groupings`: of keyed fragments, by number from
    1, where not the hash; `times`: what POSG learnt from a first slice.
    """

    fragments: tuple[Fragment, ...]
    choices: dict[int, Choice]
    layout: Layout
    order_by: tuple[str, ...]
    ordering: tuple[SortKey, ...]  # the same columns under their names in the job
    workers: int | str | None
    options: dict[str, Any]
    door: Door | None
    # nothing runs in front of the first key, and Spark sends the rows to their nodes by a hash of its own
    direct: bool
    groupings: dict[int, Any] = field(default_factory=dict)
    times: ExecutionTimes | None = None

    def through(self, rows: DataFrame, last: int) -> DataFrame:
        """Numbered rows through the fragments 1 to `last`; those that a further fragment takes have
        their node.
        """
        nodes = self.layout.nodes
        for number, fragment in enumerate(self.fragments[:last], 1):
            if number == 1 and self.direct:
                rows = rows.withColumn(NODE, _node(self.fragments[1], nodes))
                continue
            rows = self._arriving(rows, number)
            following = self.fragments[number] if number < len(self.fragments) else None
            route = None
            if following is not None:
                route = Route(
                    fragment.output,
                    following.key or (),
                    following.nodes(nodes),
                    self.groupings.get(number + 1),
                )
            schema = carriers(fragment.output, last=following is None)
            function = self._function(number, route, to_arrow_schema(schema, timezone="UTC"))
            rows = rows.mapInArrow(function, schema, profile=self.layout.profile)
        return rows

    def learn(
        self, number: int, sample: DataFrame, carried: Carried, presorted: bool, sparks_hash: bool
    ) -> tuple[DKGLearner, Any]:
        """What the keys of the keyed fragment `number` are, from what a sample of the source becomes in
        front of it; and the rows per node by the hash that would send them (`sparks_hash`: Spark's).
        """
        if number == 2 or presorted:  # with stateless operators only the rows' order is of no account
            return self.learn_from(number, carried.of(sample), sparks_hash)
        return self.learn_from(number, carried.sorted(sample, everywhere=True), sparks_hash)

    def learn_from(self, number: int, rows: DataFrame, sparks_hash: bool = False) -> tuple[DKGLearner, Any]:
        """The same from carried rows, in order where there are fragments between."""
        key, nodes = self.fragments[number - 1].key or (), self.layout.nodes
        before = self.fragments[number - 2]
        if number == 2:
            rows = rows.withColumn(SERIAL, F.monotonically_increasing_id())
            if sparks_hash:
                rows = rows.withColumn(NODE, _node(self.fragments[1], nodes))
        else:
            rows = self._arriving(self.through(rows.zipWithIndex(SERIAL), number - 2), number - 1)
        function = self._alone(number - 1, pa.schema([*before.output, pa.field(TAG, pa.binary(), False)]))
        return learnt_keys(rows, function, self.choices[number - 1], key, nodes)

    def learn_times(self, carried: Carried) -> None:
        """POSG's model, from the first rows of the source; none where these are much of all: they run
        twice.
        """
        choice, nodes = self.choices[0], self.layout.nodes
        rows = first_slice(choice.given)
        if carried.frame.limit(4 * rows).count() < 4 * rows:
            return
        sample = carried.of(carried.frame.limit(rows)).repartition(nodes)
        fragment = with_costs(self.fragments[0], choice)
        function = self._alone(1, pa.schema([*fragment.output, pa.field(TAG, pa.binary(), False)]))
        numbered = sample.withColumn(SERIAL, F.monotonically_increasing_id())
        self.times = learnt_times(numbered, replace(function, fragment=fragment), choice.given)

    def _alone(self, number: int, output: pa.Schema) -> FragmentFunction:
        """A fragment whose rows go nowhere, in any order."""
        return replace(
            self._function(number, None, output),
            order_by=(), ordering=(), door=None, tell_times=None, tell_keys=None, learns=None,
        )  # fmt: skip

    def _arriving(self, rows: DataFrame, number: int) -> DataFrame:
        """The rows where fragment `number` takes them."""
        fragment, nodes = self.fragments[number - 1], self.layout.nodes
        if number > 1:
            place = SERIAL if number == 2 and self.direct else TAG
            return (
                rows.repartitionById(fragment.nodes(nodes), F.col(NODE))
                .drop(NODE)
                .sortWithinPartitions(place)
            )
        choice = self.choices.get(0)
        if choice is not None:
            return scheduled(rows, choice, fragment, nodes, self.times)
        if not fragmenting.uses_python(fragment.plan):
            return rows
        # Spark makes few partitions of few bytes, however long the functions take.
        rows = rows.repartitionById(
            nodes, F.pmod(F.expr(f"{SERIAL} div {BLOCK_ROWS}"), F.lit(nodes)).cast("int")
        )
        # what looks at the rows before a row
        by_place = self.ordering or getattr(self.groupings.get(2), "splits_keys", False)
        return rows.sortWithinPartitions(SERIAL) if by_place else rows

    def _function(self, number: int, route: Route | None, output: pa.Schema) -> FragmentFunction:
        measured, following = self.choices.get(number - 1), self.choices.get(number)
        times = keys = learns = costs = None
        weighs = False
        if measured is not None and measured.balancer is not None and measured.measured:
            times = measured.balancer._tell_times(measured.operator)
        if following is not None and following.balancer is not None and isinstance(following.given, DKG):
            keys, learns = following.balancer._tell(following.operator), unbounded(following.given)
            weighs, costs = bool(following.measured), following.balancer._costs(following.operator)
        fragment = self.fragments[number - 1]
        rest = [operator for later in self.fragments[number - 1 :] for operator in later.operators]
        used = used_source_columns(Plan.line(fragment.source, rest))
        return FragmentFunction(
            fragment=fragment,
            unread=()
            if self.choices
            else tuple(
                name for name, is_used in zip(fragment.source.names, used, strict=True) if not is_used
            ),
            number=number,
            route=route,
            output=output,
            order_by=self.order_by if number == (2 if self.direct else 1) else (),
            ordering=self.ordering if number == (2 if self.direct else 1) else (),
            workers=self.workers,
            options=self.options,
            door=self.door,
            tell_times=times,
            tell_keys=keys,
            learns=learns,
            weighs=weighs,
            costs=costs,
        )


def _node(fragment: Fragment, nodes: int) -> Column:
    """The node of each row of a keyed fragment, by Spark's hash of the key."""
    if not fragment.key or nodes == 1:
        return F.lit(0)
    key = [F.col(carried_name(index)) for index in fragment.key]
    return F.pmod(F.xxhash64(*key), F.lit(nodes)).cast("int")


def _hashes_alike(rows: DataFrame, fragment: Fragment) -> bool:
    """Whether keys that are equal in the pipeline's types are so in the frame's: not 0.0 and -0.0, "1"
    and "01" as integers.
    """
    return all(
        _same_family(rows.schema[carried_name(index)].dataType, fragment.source.field(index).type)
        for index in fragment.key or ()
    )


def _same_family(given: DataType, wanted: pa.DataType) -> bool:
    families: tuple[tuple[type[DataType], tuple[Callable[[pa.DataType], bool], ...]], ...] = (
        (IntegralType, (pat.is_integer,)),
        (StringType, (pat.is_string, pat.is_large_string, pat.is_string_view)),
        (BinaryType, (pat.is_binary, pat.is_large_binary, pat.is_binary_view)),
        (BooleanType, (pat.is_boolean,)),
        (DateType, (pat.is_date32,)),
        (TimestampType, (pat.is_timestamp,)),
        (TimestampNTZType, (pat.is_timestamp,)),
    )
    return any(
        isinstance(given, family) and any(fits(wanted) for fits in kinds) for family, kinds in families
    )


def carriers(schema: pa.Schema, *, last: bool) -> StructType:
    """Spark's schema of a fragment's output: the last one's own types, else types that carry every value
    unchanged.
    """
    if last:
        own = enumerate(spark_schema(schema).fields)
        return StructType([StructField(carried_name(k), one.dataType, one.nullable) for k, one in own]).add(
            TAG, "binary", False
        )
    carried = pa.schema(
        [pa.field(carried_name(k), _carrier(column.type, column.name)) for k, column in enumerate(schema)]
    )
    return from_arrow_schema(carried).add(TAG, "binary", False).add(NODE, "integer", False)


def _carrier(kind: pa.DataType, name: str) -> pa.DataType:
    """A type that Spark has, to and from which casts lose nothing. Dates and times go as counts of their
    unit.
    """
    if is_list(kind):
        return pa.list_(_carrier(kind.value_type, name))
    if is_temporal(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    if pat.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width, pa.decimal128(20, 0))
    if pat.is_large_string(kind) or pat.is_string_view(kind):
        return pa.string()
    if pat.is_large_binary(kind):
        return pa.binary()
    if pat.is_decimal(kind) and kind.precision > 38:
        raise SchemaError(f"column {name!r} has type {kind}, which Spark can't carry")
    return kind

"""A job over many nodes: its fragments, what chooses a row's node, and how rows go from one to the next.

A fragment's rows go to nodes by a partition id that the sender computes from the key. Where nothing runs in
front of the first key, Spark computes the partition ids itself: the source's rows reach Python in the nodes
only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
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
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE, RangeRoute, Route
from ordstream.fragments.fragment import Fragment, used_columns
from ordstream.fragments.graph_cut import places_of
from ordstream.fragments.time_marks import hears_marks, marks_leave
from ordstream.ground.ordercheck import SortKey
from ordstream.ground.ordertags import TAG
from ordstream.plan.plan import Plan
from ordstream.spark.balancer import unbounded
from ordstream.spark.clock_marks import Marks
from ordstream.spark.columns import Carried, sorted_as, sorted_inside
from ordstream.spark.executor import (
    SERIAL,
    FragmentFunction,
    Leaves,
    carried_name,
)
from ordstream.spark.grouping import (
    Choice,
    first_slice,
    hash_is_as_good,
    learnt_keys,
    learnt_times,
    sample_of,
    scheduled,
    with_costs,
)
from ordstream.spark.hashed_map import HashedMap, learn
from ordstream.spark.late_reports import in_tasks
from ordstream.spark.layout import Layout
from ordstream.spark.mark_rows import MARK, PLACE, REST, MarksOf
from ordstream.spark.numbering import numbered, placed
from ordstream.spark.progress import Door
from ordstream.spark.schemas import carrier, spark_schema
from ordstream.spark.sort_columns import SortColumns

HASH_KEPT = "a hash of the key, as before"  # for the log
# Consecutive rows that go to one node where the source's rows are spread by no key.
BLOCK_ROWS = 1_024


@dataclass
class Job:
    """The fragments of one job and what they run with.

    Attributes
    ----------
    ordering : tuple of SortKey
        The columns of `order_by` under their names in the job.
    dense : bool
        Rows have serials; else what only compares as these do.
    direct : bool
        Nothing runs in front of the first key, and Spark sends the rows to their nodes by a hash of its own.
    groupings : dict
        Of keyed fragments, by number from 1, where not the hash.
    times : ExecutionTimes or None
        What POSG learnt from a first slice.
    marks : Marks or None
        Of the clock, where the run has one.
    by_map : HashedMap or None
        Of the first key, where Spark sends the rows and its hash alone spreads them worse.
    result : StructType
        Of the pipeline's output; default: as its types alone say.
    sort : SortColumns or None
        Where the source's rows come with their sort columns.
    sort_fields : sequence of StructField
        These as they leave the nodes.
    """

    fragments: tuple[Fragment, ...]
    choices: dict[int, Choice]
    layout: Layout
    order_by: tuple[str, ...]
    ordering: tuple[SortKey, ...]
    workers: int | str | None
    options: dict[str, Any]
    door: Door | None
    dense: bool = True
    direct: bool = False
    groupings: dict[int, Any] = field(default_factory=dict)
    times: ExecutionTimes | None = None
    marks: Marks | None = None
    by_map: HashedMap | None = None
    result: StructType = field(default_factory=StructType)
    sort: SortColumns | None = None
    sort_fields: Sequence[StructField] = ()

    def __post_init__(self) -> None:
        if not self.result.fields:
            self.result = spark_schema(self.fragments[-1].output)

    def decide(self, carried: Carried, presorted: bool) -> None:
        """Settle how rows go to their nodes: where that is to be learnt, by jobs of their own."""
        nodes, choices = self.layout.nodes, self.choices
        hashed = len(self.fragments) > 1 and not self.fragments[0].operators
        hashed = hashed and _hashes_alike(carried.as_it_is, self.fragments[1])
        if hashed and set(choices) == {1} and choices[1].may_be_sparks(nodes):
            self.by_map = self.learn_in_spark(carried, choices.pop(1))
        for number in range(2, len(self.fragments) + 1):
            choice = choices.get(number - 1)
            if choice is None:
                continue
            if choice.learns(nodes):
                sample = sample_of(carried.frame, choice)
                learner, by_hash = self.learn(number, sample, carried, presorted, hashed and number == 2)
                if choice.balancer is not None:
                    choice.balancer._learnt(choice.operator, learner)
                known = learner.loads() if choice.may_be_hash(nodes) and learner.learnt else by_hash
                if hash_is_as_good(choice, known, by_hash, learner.learnt, HASH_KEPT):
                    del choices[number - 1]
                    continue
                self.groupings[number] = learner.build()
            else:
                self.groupings[number] = choice.key_map(nodes)
        self.direct = hashed and not choices
        if 0 in choices and choices[0].learns_times():
            self.learn_times(carried)

    def learn_in_spark(self, carried: Carried, choice: Choice) -> HashedMap | None:
        """DKG's map for the first key, where Spark sends the rows; None: its hash alone is as good."""
        learnt = learn(carried.as_it_is, _hash(self.fragments[1]), choice.given, self.layout.nodes)
        good = hash_is_as_good(choice, learnt.loads, learnt.by_hash, learnt.rows, HASH_KEPT)
        return None if good else learnt.by_map

    def node_of(self, fragment: Fragment) -> Column:
        """The node of each row of the first keyed fragment, where Spark sends the rows."""
        if self.by_map is not None and fragment.key:
            return self.by_map.node(_hash(fragment))
        return _node(fragment, self.layout.nodes)

    @property
    def moves(self) -> bool:
        """Rows are not where the source's were when they leave the last fragment."""
        return (
            len(self.fragments) > 1 or 0 in self.choices or fragmenting.uses_python(self.fragments[0].plan)
        )

    def unordered(self, carried: Carried, presorted: bool) -> DataFrame:
        """The output under its names, without its order: each node has its own. Where one key leads, rows go
        to their nodes before anything is sorted.
        """
        fragments, nodes = self.fragments, self.layout.nodes
        if self.marks is not None:
            return self.through(numbered(carried, presorted, 1), len(fragments), leaves="rows")
        unchecked = replace(self, order_by=(), ordering=())
        if not self.moves:  # partitions of files are in no order
            return (unchecked if carried.in_files else self).in_nodes(carried.as_it_is, 1, None, "rows")
        if len(fragments) == 1 and not self.choices:
            # Functions are spread evenly, by what a task that runs again sees again, whatever order the rows
            # have then.
            rows, _ = carried.with_keys()
            forms = (sorted_as(F.col(field.name), field.dataType) for field in rows.schema.fields)
            seen = [form for form in forms if form is not None]
            spread = rows.repartitionById(nodes, F.pmod(F.xxhash64(*seen), F.lit(nodes)).cast("int"))
            return unchecked.in_nodes(spread.select(*carried.columns), 1, None, "rows")
        alone = self.by_first_key(carried, presorted)
        if alone is None:
            return self.through(placed(carried, presorted), len(fragments), leaves="rows")
        rows, by = carried.with_keys()
        rows = carried.sorted_inside(alone.by_key(rows), by).select(*carried.columns)
        return alone.in_nodes(rows, 2, None, "rows")

    def by_first_key(self, carried: Carried, presorted: bool) -> Job | None:
        """The job with all of it in the nodes of its one key, to which Spark sends the source's rows; None:
        it has several keys, or what runs in front does not leave the key as it comes.
        """
        whole = not (self.choices or presorted or self.marks) and len(self.fragments) == 2
        short = _front_in_nodes(self.fragments) if whole else None
        if short is None or not _hashes_alike(carried.as_it_is, short[1]):
            return None
        return replace(self, fragments=short, direct=True, dense=False)

    def by_key(self, rows: DataFrame) -> DataFrame:
        """The source's rows in the nodes of the first key, in any order there."""
        return rows.repartitionById(self.layout.nodes, self.node_of(self.fragments[1]))

    @property
    def widens(self) -> bool:
        """One row may cause several, or a mark some, which the bytes behind a tag's place tell apart."""
        return self.marks is not None or any(fragment.widens for fragment in self.fragments)

    @property
    def emits_at_end(self) -> bool:
        """The end of the stream may cause rows."""
        return any(operator.emits_at_end for one in self.fragments for operator in one.operators)

    def has_rests(self, number: int) -> bool:
        """Whether tags of rows that leave fragment `number` have bytes behind their place."""
        before = self.fragments[:number]
        return any(
            one.widens or marks_leave(one) or any(o.emits_at_end for o in one.operators) for one in before
        )

    def through(
        self, rows: DataFrame, last: int, route: RangeRoute | None = None, leaves: Leaves = "place"
    ) -> DataFrame:
        """Numbered rows through the fragments 1 to `last`; those that a further fragment takes have
        their node. `route`, `leaves`: where those of the pipeline's output go, and what goes with them.
        """
        for number in range(1, last + 1):
            if number == 1 and self.direct:
                continue
            rows = self._arriving(rows, number)
            following = self.fragments[number] if number < len(self.fragments) else None
            onward = route if following is None else self.onward(number)
            rows = self.in_nodes(rows, number, onward, leaves if following is None else "place")
        return rows

    def onward(self, number: int) -> Route:
        """What chooses the node of rows that leave fragment `number` for the next one."""
        following, grouping = self.fragments[number], self.groupings.get(number + 1)
        output, key = self.fragments[number - 1].output, following.key or ()
        return Route(output, key, following.nodes(self.layout.nodes), grouping)

    def marks_of(self, number: int) -> MarksOf:
        """Which marks of a `reorder` fragment `number` hears, makes and sends on."""
        behind = self.fragments[number:]
        nodes = behind[0].nodes(self.layout.nodes) if behind else 0
        return MarksOf.between(self.fragments[number - 1], behind, nodes, self.options.get("punctuate"))

    def in_nodes(
        self, rows: DataFrame, number: int, route: Route | RangeRoute | None, leaves: Leaves
    ) -> DataFrame:
        """Rows that lie where fragment `number` takes them through its nodes."""
        function, schema = self.task(number, route, leaves)
        return in_tasks(rows, function, schema, self.layout.profile)

    def task(
        self, number: int, route: Route | RangeRoute | None, leaves: Leaves
    ) -> tuple[FragmentFunction, StructType]:
        """What runs fragment `number` in a node, and the schema of what it gives."""
        is_last = number == len(self.fragments)
        if is_last:  # "rows": under the user's names at once: to rename a row Spark copies it
            schema = StructType([*self.result] if leaves == "rows" else in_job(self.result))
        else:
            fields = carriers(self.fragments[number - 1].output, last=False).fields
            schema = StructType([one for one in fields if one.name not in (TAG, NODE)])
        if leaves == "place":
            schema = schema.add(PLACE, "long")
        for one in self.sort_fields if leaves == "sorted" else ():
            schema = schema.add(one)
        if (leaves == "place" and self.has_rests(number)) or (leaves == "sorted" and self.emits_at_end):
            schema = schema.add(REST, "binary")
        if route is not None or leaves == "sorted":
            schema = schema.add(NODE, "integer", False)
        if self.marks_of(number).carries and leaves == "place":
            schema = schema.add(MARK, "boolean")
        function = self._function(number, route, to_arrow_schema(schema, timezone="UTC"))
        return replace(function, leaves=leaves), schema

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
            marks=None, shown=None,
        )  # fmt: skip

    def _arriving(self, rows: DataFrame, number: int) -> DataFrame:
        """The rows where fragment `number` takes them."""
        fragment, nodes = self.fragments[number - 1], self.layout.nodes
        if number > 1:
            if number == 2 and self.direct:
                there = rows.repartitionById(fragment.nodes(nodes), self.node_of(fragment))
                return there.sortWithinPartitions(SERIAL)
            there = rows.repartitionById(fragment.nodes(nodes), F.col(NODE)).drop(NODE)
            return sorted_inside(there, by_place(there), LongType())
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
        in_order = self.ordering or getattr(self.groupings.get(2), "splits_keys", False)
        return rows.sortWithinPartitions(SERIAL) if in_order else rows

    def _function(
        self, number: int, route: Route | RangeRoute | None, output: pa.Schema
    ) -> FragmentFunction:
        measured, following = self.choices.get(number - 1), self.choices.get(number)
        times = keys = learns = costs = None
        weighs = False
        if measured is not None and measured.balancer is not None and measured.measured:
            times = measured.balancer._tell_times(measured.operator)
        if following is not None and following.balancer is not None and isinstance(following.given, DKG):
            keys, learns = following.balancer._tell(following.operator), unbounded(following.given)
            weighs, costs = bool(following.measured), following.balancer._costs(following.operator)
        fragment = self.fragments[number - 1]
        used = used_columns(self.fragments[number - 1 :])
        comes_from_source = number == (2 if self.direct else 1)
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
            order_by=self.order_by if comes_from_source else (),
            ordering=self.ordering if comes_from_source else (),
            workers=self.workers,
            options=self.options,
            door=self.door,
            tell_times=times,
            tell_keys=keys,
            learns=learns,
            weighs=weighs,
            costs=costs,
            dense=self.dense,
            marks=self.marks if hears_marks(fragment, self.options.get("punctuate")) else None,
            reordered=self.marks_of(number),
            shown=self.marks if comes_from_source else None,
            sort=self.sort,
        )


def by_place(rows: DataFrame) -> list[Column]:
    """What brings rows with places into order; what the end of the stream caused comes last."""
    return [F.col(PLACE).asc_nulls_last(), *([F.col(REST)] if REST in rows.columns else [])]


def _node(fragment: Fragment, nodes: int) -> Column:
    """The node of each row of a keyed fragment, by Spark's hash of the key."""
    if not fragment.key or nodes == 1:
        return F.lit(0)
    return F.pmod(_hash(fragment), F.lit(nodes)).cast("int")


def _hash(fragment: Fragment) -> Column:
    """Spark's hash of each row's key."""
    return F.xxhash64(*(F.col(carried_name(index)) for index in fragment.key or ()))


def _front_in_nodes(fragments: Sequence[Fragment]) -> tuple[Fragment, ...] | None:
    """The fragments with the stateless operators in front in the nodes of the first key; None: they don't
    pass it on as it comes, or there is none.
    """
    front, keyed = fragments[:2]
    if fragmenting.uses_python(front.plan):
        return None  # functions are spread evenly, not by keys
    last = len(front.operators) - 1
    found = [(column, places_of(front.plan, column)[last, 0]) for column in range(len(front.source))]
    places = {out: column for column, outs in found for out in outs}
    if not keyed.key or not all(index in places for index in keyed.key):
        return None
    plan = front.plan.through(keyed.plan)
    key = tuple(places[index] for index in keyed.key)
    empty = Fragment(Plan.line(front.source, ()), front.first, None)
    return empty, Fragment(plan, front.first, key, keyed.ordered), *fragments[2:]


def _hashes_alike(rows: DataFrame, fragment: Fragment) -> bool:
    """Whether keys that are equal in the pipeline's types are so in the frame's: not 0.0 and -0.0,
    decimals read as integers.
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
        (DecimalType, (pat.is_decimal,)),
        (DateType, (pat.is_date32,)),
        (TimestampType, (pat.is_timestamp,)),
        (TimestampNTZType, (pat.is_timestamp,)),
    )
    return any(
        isinstance(given, family) and any(fits(wanted) for fits in kinds) for family, kinds in families
    )


def in_job(result: StructType) -> list[StructField]:
    """The columns of the pipeline's output under their names in the job."""
    return [
        StructField(carried_name(k), one.dataType, one.nullable, one.metadata)
        for k, one in enumerate(result)
    ]


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
        [pa.field(carried_name(k), carrier(column.type, column.name)) for k, column in enumerate(schema)]
    )
    return from_arrow_schema(carried).add(TAG, "binary", False).add(NODE, "integer", False)

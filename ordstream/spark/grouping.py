"""What chooses a row's node in Spark: hash, DKG or PKG for a keyed stage, POSG for the stateless stage in
front.

A grouping is declared (`"dkg"`, `od.DKG(...)`, `od.POSG(...)`, a deployed map), checked against the
fragments of the pipeline when the job is built, and frozen before the first row moves: a row's node is then
a pure function of the frozen model, a seed, and the rows before it in its partition, so a task that runs
again sends every row where it went before. A `Balancer` carries a model from one job into the next. The
output does not depend on any of it.

Sources: DKG (DEBS 2015), sections 3 and 5.3; POSG, section III. What they leave open here is settled in
docs/balance.md, "In Spark".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from ordstream.balance.baselines import PKG, Modulo
from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.grouping import KeyMap, SplitKeyMap, check_sent
from ordstream.balance.keys import key_words
from ordstream.balance.memory import COSTS
from ordstream.balance.posg import POSG, FrozenPosg
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError, SchemaError, unknown_column
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE
from ordstream.fragments.fragment import Fragment
from ordstream.ground.nested_cast import cast_column
from ordstream.ground.types import key_type
from ordstream.operators.operator import Operator
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan
from ordstream.spark.balancer import Balancer, merged_learner, unbounded
from ordstream.spark.executor import SERIAL, FragmentFunction, LearnFunction, TimeFunction, carried_name
from ordstream.spark.hashed_map import may_learn
from ordstream.spark.shipped import Shipped

NAMES = ("hash", "dkg", "posg", "pkg")
KINDS = (DKG, POSG, KeyMap, Modulo, FrozenPosg)
LOG = logging.getLogger("ordstream.spark.grouping")
WORTH = 1.1  # of the largest load: what a map must bring: rows may pass Python once more for it

Single: TypeAlias = (
    "Literal['hash', 'dkg', 'posg', 'pkg'] | DKG | POSG | KeyMap | Modulo | FrozenPosg | Balancer"
)
"""One grouping, as `apply` takes it."""
Grouping: TypeAlias = "Single | Mapping[str, Single]"
"""A grouping for every operator it fits, or one per operator name."""


# ----------------------------------------------------------------------- checked against a pipeline


@dataclass(eq=False)
class Choice:
    """How the rows of one fragment go to nodes.

    Attributes
    ----------
    operator : str
        Keyed fragment: its first operator. Stateless fragment: the operator that is measured.
    given : DKG, POSG, KeyMap, Modulo, FrozenPosg or "pkg"
    balancer : Balancer or None
    key : tuple of str
        Source columns of the fragment that a tuple's execution time depends on, where it is measured.
    measured : str
        The operator whose execution time is measured: POSG's, or that of a keyed fragment with a `Balancer`
        where a function runs; "": none.
    """

    operator: str
    given: Any
    balancer: Balancer | None = None
    key: tuple[str, ...] = ()
    measured: str = ""

    def held(self, nodes: int) -> KeyMap | None:
        """The balancer's map for so many nodes."""
        held = self.balancer.maps.get(self.operator) if self.balancer is not None else None
        return held if held is not None and held.instances == nodes else None

    def learns(self, nodes: int) -> bool:
        """A map has to be learnt before the job."""
        if not isinstance(self.given, DKG) or self.held(nodes) is not None:
            return False
        return self.balancer is None or self.balancer.learn != "previous"

    def may_be_hash(self, nodes: int) -> bool:
        """The map is for this job alone: where a hash is as good, it is kept. With a balancer rows always
        go by the map, since who sends them learns the next one.
        """
        return self.balancer is None and self.learns(nodes) and self.given.variant != "pkg"

    def may_be_sparks(self, nodes: int) -> bool:
        """Its map can be one of Spark's hash (`hashed_map`), which Spark itself looks up."""
        return self.may_be_hash(nodes) and not self.given.guaranteed and may_learn(self.given, nodes)

    def key_map(self, nodes: int) -> Any:
        """The frozen grouping of a keyed fragment, where nothing has to be learnt."""
        if isinstance(self.given, SplitKeyMap):
            return self.given.fresh()
        if isinstance(self.given, KeyMap | Modulo):
            return self.given
        if self.given == "pkg":
            return PKG(nodes)
        held = self.held(nodes)
        if held is not None:
            return held.fresh() if isinstance(held, SplitKeyMap) else held
        return self.given.learner(nodes).build()

    def learns_times(self) -> bool:
        """POSG without a balancer: execution times have to be learnt before the job."""
        return isinstance(self.given, POSG) and self.balancer is None

    def scheduler(self, nodes: int, times: ExecutionTimes | None = None) -> FrozenPosg:
        """The frozen scheduler of the stateless fragment. `times`: learnt from the job's first slice."""
        if isinstance(self.given, FrozenPosg):
            return self.given
        if self.balancer is not None:
            times = self.balancer.times
        return FrozenPosg(nodes, times, seed=self.given.seed)

    def text(self, columns: str, nodes: int) -> str:
        """For `explain`."""
        given = self.given
        if given == "pkg":
            return f"by PKG: the less loaded of two nodes per {columns}"
        if isinstance(given, KeyMap):
            return (
                f"by a given map of {columns} ({len(given.heavy)} heavy hitters, {len(given.buckets)} "
                "buckets)"
            )
        if isinstance(given, Modulo):
            return f"by {columns} modulo {nodes}"
        if isinstance(given, DKG):
            known = self.held(nodes) is not None
            source = "previous" if known else self.balancer.learn if self.balancer is not None else "sample"
            learnt = {
                "sample": f"learnt from a sample of {given.m:,} rows",
                "all": "learnt from all rows in a first pass",
                "previous": "learnt from the job before" if known else "not learnt yet: buckets in turn",
            }[source]
            kind = {"dkg": "DKG", "wosim": "DKG_WOSIM", "pkg": "DKG_PKG"}[given.variant]
            if self.may_be_sparks(nodes):
                learnt = f"learnt from all rows where Spark hashes keys itself, else {learnt[12:]}"
            if self.may_be_hash(nodes):
                learnt += "; by hash where that spreads them as evenly"
            if self.measured:
                learnt += f", keys weighed by the time that {self.measured} takes"
            return f"by {kind} over {columns} (Θ={given.theta:g}, µ={given.mu}), {learnt}"
        if self.learns_times():
            return (
                f"by POSG, estimated time of {self.operator} per {', '.join(self.key)}, learnt from the "
                f"first {first_slice(given):,} rows; in turn (Round-Robin) where there are fewer than four "
                "times as many"
            )
        model = self.scheduler(nodes).models
        if not model:
            return "by POSG, in turn (Round-Robin): no execution times known yet"
        return f"by POSG, estimated time of {self.operator} per {', '.join(self.key)}"


@dataclass(eq=False)
class Grouped:
    """The fragments of a job and what chooses their rows' nodes.

    Attributes
    ----------
    fragments : tuple of Fragment
        Those of `ordstream.fragments.fragmenting`; a keyed one whose keys are split is a part and a merge.
    choices : dict
        Position of a fragment in `fragments` -> Choice. Others: by hash, or where the rows are.
    """

    fragments: tuple[Fragment, ...]
    choices: dict[int, Choice] = field(default_factory=dict)

    def texts(self, nodes: int) -> dict[int, str]:
        """What `explain` says, by number of the fragment from 1."""
        found = {}
        for position, choice in self.choices.items():
            fragment = self.fragments[position]
            columns = ", ".join(fragment.source.names[index] for index in fragment.key or ())
            found[position + 1] = choice.text(columns, nodes)
        return found


def resolve(
    grouping: Grouping, fragments: Sequence[Fragment], nodes: int, order_by: Sequence[str] = ()
) -> Grouped:
    """Check a grouping against the fragments of a pipeline.

    Raises
    ------
    PlanError
        It is none, or does not fit: DKG needs a keyed operator, POSG stateless operators in front; split
        keys need a declared merge; a map or model is for another number of nodes.
    SchemaError
        A key column is missing, or can't be a key.
    """
    chosen: dict[int, Choice] = {}
    if isinstance(grouping, Mapping):
        for operator, single in grouping.items():
            position, found = _find(operator, fragments)
            made = _choice(single, found.name, nodes)
            if made is None:
                continue
            _check_fits(made, found, position, fragments[position])
            if position in chosen and chosen[position].given != made.given:
                raise PlanError(
                    f"grouping: {operator!r} runs in the same nodes as {chosen[position].operator!r}: they "
                    "can't have two groupings"
                )
            chosen[position] = made
    elif (whole := _choice(grouping, "", nodes)) is not None:
        for position in _fitting(whole, fragments):
            made = _choice(grouping, "", nodes)
            assert made is not None
            chosen[position] = made
    for position, choice in chosen.items():
        if position:
            choice.operator = next(one.name for one in fragments[position].operators if one.stateful)
            _check_keys(fragments[position])
            _weighed(choice, fragments[position])
        else:
            _measured(choice, fragments[0], order_by)
    return _split(tuple(fragments), chosen)


def _choice(single: Any, operator: str, nodes: int) -> Choice | None:
    balancer = single if isinstance(single, Balancer) else None
    given: Any = single.grouping if isinstance(single, Balancer) else single
    if isinstance(given, str) and given in NAMES:
        given = {"dkg": DKG(), "posg": POSG()}.get(given, given)
    elif not isinstance(given, KINDS):
        raise PlanError(
            f"grouping is one of {', '.join(map(repr, NAMES))}, od.DKG(...), od.POSG(...), a deployed map "
            f"or model, a Balancer, or a mapping of operator names to these; got {given!r:.80}"
        )
    if given == "hash":
        return None
    check_sent(given)
    made = getattr(given, "instances", None)
    if made is not None and made != nodes:
        raise PlanError(
            f"grouping: a {type(given).__name__} for {made} nodes can't serve nodes={nodes}: write "
            f"nodes={made} (None is one node; 'auto' looks at the input, not at the map)"
        )
    return Choice(operator, given, balancer)


def _is_shuffle(choice: Choice) -> bool:
    return isinstance(choice.given, POSG | FrozenPosg)


def _splits(choice: Choice) -> bool:
    given = choice.given
    return (
        given == "pkg"
        or isinstance(given, SplitKeyMap)
        or (isinstance(given, DKG) and given.variant == "pkg")
    )


def _find(name: str, fragments: Sequence[Fragment]) -> tuple[int, Operator]:
    for position, fragment in enumerate(fragments):
        for operator in fragment.operators:
            if operator.name == name:
                return position, operator
    names = ", ".join(operator.name for fragment in fragments for operator in fragment.operators)
    raise PlanError(f"grouping: no operator is called {name!r}; there are {names or 'none'}")


def _check_fits(choice: Choice, operator: Operator, position: int, fragment: Fragment) -> None:
    if _is_shuffle(choice):
        if operator.kind != "SL":
            raise PlanError(
                f"grouping: {operator.name!r} keeps state; POSG sends rows of one key to different nodes, "
                "so it is for stateless operators"
            )
        if position:
            raise PlanError(
                f"grouping: {operator.name!r} runs in the nodes of {fragment.operators[0].name!r}; "
                "POSG is for the stateless operators in front"
            )
        return
    if operator.kind == "SL":
        raise PlanError(
            f"grouping: {operator.name!r} keeps no state by key; a grouping of keys is for keyed "
            "operators, POSG for this one"
        )
    if not fragment.key:
        raise PlanError(
            f"grouping: {operator.name!r} has one state for all rows and runs in one node: there is "
            "nothing to group"
        )


def _fitting(choice: Choice, fragments: Sequence[Fragment]) -> list[int]:
    """The fragments that a grouping without operator name is for."""
    if _is_shuffle(choice):
        if not fragments[0].operators:
            first = next((operator.name for fragment in fragments for operator in fragment.operators), None)
            begins = "has no operators" if first is None else f"begins with {first!r}, which keeps state"
            raise PlanError(
                f"grouping: POSG spreads the stateless operators in front over nodes; this pipeline {begins}"
            )
        return [0]
    found = [position for position, fragment in enumerate(fragments) if fragment.key]
    if not found:
        raise PlanError(
            "grouping: DKG, PKG and maps of keys are for keyed operators; this pipeline has none (POSG is "
            "for stateless ones)"
        )
    return found


def _check_keys(fragment: Fragment) -> None:
    for index in fragment.key or ():
        column = fragment.source.field(index)
        key_words(pa.array([], column.type))  # SchemaError for a type that groupings can't take


def _measured(choice: Choice, fragment: Fragment, order_by: Sequence[str]) -> None:
    """Fill in what POSG measures: the operator, and the columns that its time depends on."""
    if fragment.plan.is_graph:
        raise PlanError(
            "grouping: POSG measures one operator of a line; here is a graph without state, whose rows are "
            "spread evenly: leave grouping out"
        )
    operators, source = fragment.operators, fragment.source
    asked = choice.operator or (choice.balancer.operator if choice.balancer is not None else None)
    if asked:
        at = next((k for k, operator in enumerate(operators) if operator.name == asked), None)
        if at is None:
            raise PlanError(
                f"POSG: {asked!r} is not among the stateless operators in front: "
                f"{', '.join(o.name for o in operators)}"
            )
    else:
        at = next((k for k, operator in enumerate(operators) if operator.runs_user_code), 0)
    if any(operator.sheds for operator in operators):
        raise PlanError("POSG can't be combined with .shed(...) in one stage")
    asked_key = choice.balancer.key if choice.balancer is not None else None
    key = asked_key
    if key is None:
        key = tuple(field.name for field in source if field.name not in order_by and _may_be_key(field))
    places = _places(fragment, at)
    for name in key:
        if name not in source.names:
            raise unknown_column(name, source.names, "the pipeline's source")
    if asked_key is not None:
        for name in asked_key:
            key_type(source.field(name).type, name)
            if source.names.index(name) not in places:
                raise PlanError(
                    f"POSG: column {name!r} is not there any more when rows reach {operators[at].name!r}; "
                    "name another key"
                )
    key = tuple(name for name in key if source.names.index(name) in places)
    if not key:
        raise PlanError(
            "POSG: no column can tell what a tuple's execution time depends on; name one: "
            "Balancer(od.POSG(), key=...)"
        )
    choice.operator = choice.measured = operators[at].name
    choice.key = key


def _weighed(choice: Choice, fragment: Fragment) -> None:
    """Fill in what is measured in a keyed fragment: its first function, by the key, where a balancer can
    weigh keys by it. Operators without functions take much the same time for every row.
    """
    if choice.balancer is None or not isinstance(choice.given, DKG) or _splits(choice):
        return
    choice.measured, choice.key = measured_by_key(fragment)


def measured_by_key(fragment: Fragment) -> tuple[str, tuple[str, ...]]:
    """The first operator of a keyed fragment that runs a function, and the fragment's key columns, by which
    its execution times can be measured; ("", ()): there is none, or its rows don't have the key any more, or
    it is a graph.
    """
    if fragment.plan.is_graph:
        return "", ()
    at = next((k for k, operator in enumerate(fragment.operators) if operator.runs_user_code), None)
    if at is None or not fragment.key or any(operator.sheds for operator in fragment.operators):
        return "", ()
    places = _places(fragment, at)
    if not all(index in places for index in fragment.key):
        return "", ()
    return fragment.operators[at].name, tuple(fragment.source.names[index] for index in fragment.key)


def _may_be_key(column: pa.Field) -> bool:
    try:
        key_type(column.type, column.name)
    except SchemaError:
        return False
    return True


def _places(fragment: Fragment, at: int) -> dict[int, int]:
    """Source column -> column of the input of operator `at` that is the same, as far as is known: behind
    a function, by name and type.
    """
    places = {index: index for index in range(len(fragment.source))}
    for operator in fragment.operators[:at]:
        passed = {column: out for out, column in operator.columns_passed().items()}
        if operator.runs_user_code:
            names = operator.output.names
            passed = {
                k: names.index(one.name)
                for k, one in enumerate(operator.input)
                if one.name in names and one.equals(operator.output.field(one.name))
            }
        places = {source: passed[column] for source, column in places.items() if column in passed}
    return places


def _split(fragments: tuple[Fragment, ...], chosen: dict[int, Choice]) -> Grouped:
    """Fragments whose keys are split as a part and a merge."""
    made: list[Fragment] = []
    choices: dict[int, Choice] = {}
    for position, fragment in enumerate(fragments):
        choice = chosen.get(position)
        if choice is not None:
            choices[len(made)] = choice
        if choice is None or not _splits(choice):
            made.append(fragment)
            continue
        parts = fragmenting.split(fragment)
        if parts is None:
            why = fragmenting.why_whole(fragment)
            raise PlanError(f"grouping: PKG splits the rows of a key over nodes, and {why}")
        made += parts
    return Grouped(tuple(made), choices)


# ------------------------------------------------------------------------------------------------ in a job


def with_costs(fragment: Fragment, choice: Choice) -> Fragment:
    """A fragment with an operator's execution times measured: a shed operator in front, which sheds
    nothing, learns them.
    """
    plan = fragment.plan
    at = next(k for k, operator in enumerate(plan.operators) if operator.name == choice.measured)
    places = _places(fragment, at)
    names = plan.schema_in_front(at).names
    parameters = choice.given if isinstance(choice.given, POSG) else COSTS
    measuring = Pipeline.of(plan.part(0, at)).shed(
        "inf",
        [names[places[fragment.source.names.index(one)]] for one in choice.key],
        most_dropped=0.0,
        window=parameters.window,
        tolerance=parameters.mu,
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        seed=parameters.seed,
        sync_every=0,
        name=plan.free_name(f"{choice.measured} (times)"),
    )
    return replace(fragment, plan=Plan.line(plan.source, (*measuring.plan.operators, *plan.operators[at:])))


@dataclass(frozen=True)
class ScheduleFunction(Shipped):
    """POSG's scheduler over one partition of the source (`DataFrame.mapInArrow`): the rows, and each one's
    node.

    Every partition has a scheduler of its own, all with the same model and no memory of each other; each
    begins with another instance.

    Parameters
    ----------
    model : FrozenPosg
    key : tuple of pyarrow.Field
        Columns, by their names in the job, and their types in the pipeline.
    """

    model: FrozenPosg
    key: tuple[pa.Field, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with the node as a last column."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        router = self.model.router(self.model.seed + partition)
        for batch in batches:
            columns = tuple(cast_column(batch.column(one.name), one.type) for one in self.key)
            nodes = router.route(columns[0] if len(columns) == 1 else columns)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(nodes)], names=[*batch.schema.names, NODE]
            )


def scheduled(
    rows: DataFrame, choice: Choice, fragment: Fragment, nodes: int, times: ExecutionTimes | None = None
) -> DataFrame:
    """Numbered rows in the nodes that POSG sends them to, in order. `times`: of `learnt_times`."""
    places = [fragment.source.names.index(name) for name in choice.key]
    key = tuple(fragment.source.field(place).with_name(carried_name(place)) for place in places)
    schema = StructType([StructField(f.name, f.dataType) for f in rows.schema]).add(NODE, IntegerType())
    sent = rows.mapInArrow(ScheduleFunction(choice.scheduler(nodes, times), key), schema)
    return sent.repartitionById(nodes, F.col(NODE)).drop(NODE).sortWithinPartitions(SERIAL)


def sample_of(df: DataFrame, choice: Choice) -> DataFrame:
    """The rows to learn from: all, or about m of them spread over all."""
    if choice.balancer is not None and choice.balancer.learn == "all":
        return df
    m = choice.given.m
    rows = df.count()
    return (
        df
        if rows <= m
        else df.sample(withReplacement=False, fraction=m / rows, seed=choice.given.seed % (1 << 31))
    )


def learnt_keys(
    rows: DataFrame, function: FragmentFunction, choice: Choice, key: tuple[int, ...], nodes: int
) -> tuple[DKGLearner, npt.NDArray[np.int64]]:
    """Learn from the rows that reach a fragment, on the executors, and merge on the driver.

    Parameters
    ----------
    rows : DataFrame
        What `function`, the fragment in front, takes.
    key : tuple of int
        Key columns of its output.

    Returns
    -------
    (DKGLearner, int64 array)
        What was learnt, and how many of the rows each node would have by the hash.
    """
    learn = LearnFunction(function, key, unbounded(choice.given), nodes)
    parts = rows.mapInArrow(learn, "learnt binary, by_hash binary").collect()
    if not parts:
        return unbounded(choice.given).learner(nodes), np.zeros(nodes, dtype=np.int64)
    by_hash = np.sum([np.frombuffer(row[1], dtype=np.int64) for row in parts], axis=0)
    return merged_learner([bytes(row[0]) for row in parts], choice.given), by_hash


def hash_is_as_good(
    choice: Choice, loads: npt.NDArray[Any], by_hash: npt.NDArray[Any], rows: int, kept: str
) -> bool:
    """Whether the largest load by hash is within `WORTH` of that by the map, which is then not worth its
    price. Says so in the log. `loads`, `by_hash`: of each node, in rows learnt from; `rows`: how many those
    were (0: nothing is known, and the map is taken).
    """
    nodes = len(loads)
    if not choice.may_be_hash(nodes) or not rows:
        return False
    mine, other = float(loads.max()) * nodes / rows, float(by_hash.max()) * nodes / rows
    good = other <= mine * WORTH
    LOG.info(
        "%s: rows go by %s; of the %s rows learnt from the fullest of %d nodes has %.2f times the mean by "
        "hash, %.2f times by DKG's map",
        choice.operator, kept if good else "DKG's map", f"{rows:,}", nodes, other, mine,
    )  # fmt: skip
    return good


def first_slice(parameters: POSG) -> int:
    """Rows that POSG learns from where nothing is known: 2 N, as many as an instance takes before it may
    send matrices.
    """
    return 2 * parameters.window


def learnt_times(rows: DataFrame, function: FragmentFunction, parameters: POSG) -> ExecutionTimes | None:
    """Execution times of the rows of a first slice, measured on the executors and added up on the driver;
    None: there were none to measure.

    Parameters
    ----------
    rows : DataFrame
        What `function`, the stateless fragment with a stage that measures, takes.
    """
    found = parameters.times()
    for (data,) in rows.mapInArrow(TimeFunction(function), "times binary").collect():
        found.merge(ExecutionTimes.from_bytes(bytes(data)))
    return found if found.tuples else None

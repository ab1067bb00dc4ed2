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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from ordstream.balance.baselines import PKG, Modulo
from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap, SplitKeyMap
from ordstream.balance.keys import key_words
from ordstream.balance.posg import POSG, FrozenPosg
from ordstream.errors import PlanError, SchemaError, unknown_column
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE
from ordstream.fragments.fragment import Fragment
from ordstream.ground.types import key_type
from ordstream.operators.operator import Operator
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan
from ordstream.spark.arrival import cast_column
from ordstream.spark.balancer import Balancer, merged_learner, unbounded
from ordstream.spark.executor import SERIAL, FragmentFunction, LearnFunction, carried_name
from ordstream.spark.shipped import Shipped

NAMES = ("hash", "dkg", "posg", "pkg")

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
        POSG: source columns.
    """

    operator: str
    given: Any
    balancer: Balancer | None = None
    key: tuple[str, ...] = ()

    def held(self, nodes: int) -> KeyMap | None:
        """The balancer's map for so many nodes."""
        held = self.balancer.maps.get(self.operator) if self.balancer is not None else None
        return held if held is not None and held.instances == nodes else None

    def learns(self, nodes: int) -> bool:
        """A map has to be learnt before the job."""
        if not isinstance(self.given, DKG) or self.held(nodes) is not None:
            return False
        return self.balancer is None or self.balancer.learn != "previous"

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

    def scheduler(self, nodes: int) -> FrozenPosg:
        """The frozen scheduler of the stateless fragment."""
        if isinstance(self.given, FrozenPosg):
            return self.given
        times = None if self.balancer is None else self.balancer.times
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
            return f"by {kind} over {columns} (Θ={given.theta:g}, µ={given.mu}), {learnt}"
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
            choice.operator = fragments[position].operators[0].name
            _check_keys(fragments[position])
        else:
            _measured(choice, fragments[0], order_by)
    return _split(tuple(fragments), chosen)


def _choice(single: Any, operator: str, nodes: int) -> Choice | None:
    balancer = single if isinstance(single, Balancer) else None
    given: Any = single.grouping if isinstance(single, Balancer) else single
    if isinstance(given, str) and given in NAMES:
        given = {"dkg": DKG(), "posg": POSG()}.get(given, given)
    elif not isinstance(given, DKG | POSG | KeyMap | Modulo | FrozenPosg):
        raise PlanError(
            f"grouping is one of {', '.join(map(repr, NAMES))}, od.DKG(...), od.POSG(...), a deployed map "
            "or model, a Balancer, or a "
            f"mapping of operator names to these; got {given!r:.80}"
        )
    if given == "hash":
        return None
    made = getattr(given, "instances", None)
    if made is not None and made != nodes:
        raise PlanError(f"grouping: a {type(given).__name__} for {made} nodes can't serve nodes={nodes}")
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
    choice.operator, choice.key = operators[at].name, key


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
            raise PlanError(
                "grouping: PKG splits the rows of a key over nodes, and operator "
                f"{fragment.operators[0].name!r} has no declared merge of "
                "partial results; count and aggregate (counts, sums and means of integers, minima, maxima) "
                "with emit='final' have one"
            )
        made += parts
    return Grouped(tuple(made), choices)


# ------------------------------------------------------------------------------------------------ in a job


def with_costs(fragment: Fragment, choice: Choice) -> Fragment:
    """The stateless fragment with its operator's execution times measured: a shed operator in front,
    which sheds nothing, learns them.
    """
    plan = fragment.plan
    at = next(k for k, operator in enumerate(plan.operators) if operator.name == choice.operator)
    places = _places(fragment, at)
    names = plan.schema_in_front(at).names
    parameters = choice.given if isinstance(choice.given, POSG) else POSG()
    measuring = Pipeline.of(plan.part(0, at)).shed(
        "inf s",
        [names[places[fragment.source.names.index(one)]] for one in choice.key],
        most_dropped=0.0,
        window=parameters.window,
        tolerance=parameters.mu,
        epsilon=parameters.epsilon,
        delta=parameters.delta,
        seed=parameters.seed,
        sync_every=0,
        name=plan.free_name(f"{choice.operator} (times)"),
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


def scheduled(rows: DataFrame, choice: Choice, fragment: Fragment, nodes: int) -> DataFrame:
    """Numbered rows in the nodes that POSG sends them to, in order."""
    places = [fragment.source.names.index(name) for name in choice.key]
    key = tuple(fragment.source.field(place).with_name(carried_name(place)) for place in places)
    schema = StructType([*rows.schema.fields]).add(NODE, IntegerType(), False)
    sent = rows.mapInArrow(ScheduleFunction(choice.scheduler(nodes), key), schema)
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


def learnt_map(
    rows: DataFrame, function: FragmentFunction, choice: Choice, key: tuple[int, ...], nodes: int
) -> KeyMap:
    """Learn from the rows that reach a fragment, on the executors, merge on the driver, and build.

    Parameters
    ----------
    rows : DataFrame
        What `function`, the fragment in front, takes.
    key : tuple of int
        Key columns of its output.
    """
    learn = LearnFunction(function, key, unbounded(choice.given), nodes)
    parts = [bytes(row[0]) for row in rows.mapInArrow(learn, "learnt binary").collect()]
    return merged_learner(parts, choice.given).build() if parts else choice.given.learner(nodes).build()

"""One epoch as one Spark job: what it begins with, what its tasks do, and the manifest of what they left."""

from __future__ import annotations

import base64
import datetime
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StructField, StructType

from ordstream.balance.mixed.planners import Mixed
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import CheckpointError
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import NODE, Route
from ordstream.fragments.fragment import Fragment, used_columns
from ordstream.ground.nested_cast import nullable_columns
from ordstream.ground.ordertags import TAG, TAG_NAMES, OrderTag
from ordstream.pipeline.pipeline import Pipeline
from ordstream.pipeline.runs import whole_graph
from ordstream.plan.clock import clock_of, clock_said
from ordstream.plan.columns import used_source_columns
from ordstream.plan.lanes import laid_out
from ordstream.plan.plan import Plan
from ordstream.spark.columns import slots
from ordstream.spark.executor import carried_name
from ordstream.spark.grouping import Choice, with_costs
from ordstream.spark.layout import Layout
from ordstream.spark.mark_rows import MarksOf
from ordstream.spark.nodes import Job, carriers
from ordstream.spark.schemas import check_in_files, spark_schema
from ordstream.spark.streaming.arriving import Arrival
from ordstream.spark.streaming.balancing import FragmentBalance, check_balance, timed
from ordstream.spark.streaming.epoch_functions import (
    FINISH,
    SUSPEND,
    Begin,
    Columns,
    DigestFunction,
    FragmentPart,
    InputFunction,
    MergeFunction,
    NodesFunction,
    WholeFunction,
)
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import OUTPUT, STATE, WAITING, EpochManifest, Said
from ordstream.spark.streaming.epoch_marks import RESULT, EpochClock
from ordstream.spark.streaming.kept_maps import (
    FRONT,
    by_groups,
    chosen,
    front_map,
    kept_maps,
    read_map,
    said_map,
)
from ordstream.spark.streaming.micro_batch import InOrder, Rows
from ordstream.spark.streaming.on_driver import NEVER, SmallBatches, run_here
from ordstream.spark.streaming.spread import Spread
from ordstream.spark.streaming.stream_arguments import check_grouping

_RESULT = StructType([StructField(RESULT, BinaryType())])
Results = list[dict[str, Any]]


def output_schema(pipeline: Pipeline) -> pa.Schema:
    """Of a stream's output files: in Spark's types, with the tag's two columns. All others may be null: the
    next run may say otherwise of a column, and Spark reads each so.
    """
    schema = nullable_columns(to_arrow_schema(spark_schema(pipeline.schema), timezone="UTC"))
    check_in_files(schema, "a stream's output")
    for name in TAG_NAMES:
        schema = schema.append(pa.field(name, pa.int64(), False))
    return schema


@dataclass(frozen=True)
class EpochRunner:
    """Runs epochs of one stream.

    Attributes
    ----------
    log : EpochLog
    pipeline : Pipeline
    ordering : tuple of str
        The columns of `order_by` under their names in the job.
    slack : int or None
    late : str
        As for `Arrival`.
    nodes : int
    choices : mapping of int to Choice
        Position of a fragment -> how its rows' nodes are chosen, where not by key groups.
    workers : int or "auto", optional
    options : dict
    run : str
        Id of this run of the query.
    policy : Mixed or None
        Keys move between epochs.
    small : SmallBatches
        Which micro-batches run in the driver.
    clocked : bool
        The source moves a clock.
    """

    log: EpochLog
    pipeline: Pipeline
    ordering: tuple[str, ...]
    slack: int | None
    late: str
    nodes: int
    choices: Mapping[int, Choice]
    workers: int | str | None
    options: dict[str, Any]
    run: str
    policy: Mixed | None = None
    small: SmallBatches = NEVER
    fragments: tuple[Fragment, ...] = ()
    groupings: Mapping[int, Any] = field(default_factory=dict)  # by fragment, from 1
    balance: Mapping[int, FragmentBalance] = field(default_factory=dict)  # by fragment, from 1
    clocked: bool = False

    @classmethod
    def made(cls, grouping: Any, order_by: Sequence[str], **given: Any) -> EpochRunner:
        """With its fragments; one node where there is nothing to spread. `order_by` as the user has it.

        Raises
        ------
        PlanError
            The grouping does not fit, or is for keys that stay whole in a batch only.
        """
        check_grouping(grouping)  # also where one node needs none
        made = cls(choices={}, **given)
        if made.nodes == 1 and made.policy is None:
            return made  # also what several nodes would refuse
        if made.policy is None and made.pipeline.plan.is_graph and whole_graph(made.pipeline.plan):
            return replace(made, nodes=1)
        fragments = fragmenting.fragments_of(made.pipeline.plan, sheds_first=True)
        if made.policy is not None:
            check_balance(fragments, grouping, made.policy)
        if made.nodes == 1:
            return made
        choices = chosen(grouping, fragments, made.nodes, order_by)
        if len(fragments) == 1 and not choices:
            return replace(made, nodes=1)
        clocked = clock_of(made.pipeline.plan, made.options.get("punctuate")) is not None
        return replace(made, fragments=fragments, choices=choices, clocked=clocked)

    # ------------------------------------------------------------------------------------------ a batch

    def epoch(
        self, rows: Rows, number: int, before: EpochManifest | None, spark_id: str, end: str = SUSPEND
    ) -> EpochManifest:
        """Run an epoch over its rows; what must be committed. Where that fails, no file is left.

        Raises
        ------
        CheckpointError
            The tasks' results are not complete, or a file is not what they say.
        """
        try:
            return self._epoch(rows, number, before, spark_id, end)
        except BaseException:
            self.log.discard(number, self.run)
            raise

    def _epoch(
        self, rows: Rows, number: int, before: EpochManifest | None, spark_id: str, end: str
    ) -> EpochManifest:
        began = time.perf_counter()
        begin = self._begin(number, before, end)
        mapped = self._balanced(begin, before)._mapped(rows, begin, before is None)
        arrival = self._arrival(before, end)
        results = mapped._collect(rows, begin, before, arrival)
        if not results and (frame := rows.in_order()).isEmpty():  # Spark makes no task of no rows
            none = InOrder(nothing(frame.sparkSession))
            results = mapped._collect(none, begin, before, replace(arrival, no_rows=True))
        ran = time.perf_counter() - began
        for held in mapped.balance.values():  # now: Spark may have started executors for the job
            held.shares(slots(rows.in_order().sparkSession))
        return mapped._manifest(begin, before, results, spark_id, ran)

    def _mapped(self, rows: Rows, begin: Begin, fresh: bool) -> EpochRunner:
        """With the maps by which rows go to nodes: those that were committed, as long as the number of nodes
        is the same, since no key can move; else given ones, what the first micro-batch's keys teach, or key
        groups.
        """
        if not self.fragments:
            return self
        if self.balance:
            return replace(self, groupings={one: held.assignment for one, held in self.balance.items()})
        front = front_map(self.choices.get(0), self.nodes, begin.maps.get(FRONT))
        if begin.nodes == self.nodes and not fresh:
            return replace(self, groupings=kept_maps(begin.maps, self.fragments, self.nodes) | front)
        maps = by_groups(self.fragments, self.nodes) | front
        known: dict[int, Any] = {}
        for position, choice in sorted(self.choices.items()):
            if not position:
                continue
            if choice.learns(self.nodes) and begin.end == SUSPEND:
                layout, one = Layout(self.nodes, 1, None, ""), {position: choice}
                own = {"given_marks": self.clocked}  # a sample: no mark comes
                job = Job(self.fragments, one, layout, (), (), 0, own, None, groupings=known)
                learner, _ = job.learn_from(position + 1, self._with_all(rows.in_order()))
                known[position + 1] = learner.build()
                if choice.balancer is not None:
                    choice.balancer._learnt(choice.operator, learner)
            else:
                known[position + 1] = choice.key_map(self.nodes)
        return replace(self, groupings=maps | known)

    def _balanced(self, begin: Begin, before: EpochManifest | None) -> EpochRunner:
        """With the controllers that the epoch begins with, and the moves that it carries out."""
        if self.policy is None or not self.fragments or begin.end != SUSPEND:
            return self
        said = {} if before is None else before.balance
        made = {
            number: FragmentBalance.begun(self.policy, self.nodes, begin, number, said.get(str(number)))
            for number, fragment in enumerate(self.fragments, 1)
            if fragment.key
        }
        return replace(self, balance=made)

    def _with_all(self, rows: DataFrame) -> DataFrame:
        """The rows with the columns of the source that nobody reads, which are null."""
        fields = spark_schema(self.pipeline.source_schema).fields
        for number, one in enumerate(fields):
            if carried_name(number) not in rows.columns:
                rows = rows.withColumn(carried_name(number), F.lit(None).cast(one.dataType))
        return rows

    def digest(self, rows: DataFrame) -> Said:
        """What a micro-batch's rows are, as the manifest's `input` says it."""
        function = DigestFunction(self._arrival(None, SUSPEND))
        results = _read(rows.mapInArrow(function, _RESULT))
        found: Said = results[0]["input"] if results else {"rows": 0, "digest": ""}  # no row, no task
        return found

    def _begin(self, number: int, before: EpochManifest | None, end: str) -> Begin:
        folder = str(self.log.folder)
        if before is None:
            return Begin(folder, number, 0, OrderTag(0), None, {}, self.nodes, {}, end, run=self.run)
        maps = {int(one): read_map(folder, before.number, said) for one, said in before.maps.items()}
        return Begin(
            folder,
            number,
            before.serials[1],
            OrderTag(*before.emitted_through),
            before.latest_time,
            {name: parts for name, parts in before.states.items() if parts},
            before.nodes,
            maps,
            end,
            before.run == self.run,
            self.run,
        )

    def _arrival(self, before: EpochManifest | None, end: str) -> Arrival:
        said = {"last": None, "latest": None} if before is None else before.ingress
        waiting = before.waiting[0] if before is not None and before.waiting else None
        return Arrival(
            self.ordering,
            self.log.order_by,
            self.late,
            self.slack,
            said["last"],
            said["latest"],
            None if waiting is None else str(self.log.folder / WAITING / waiting["file"]),
            end == FINISH,
            {carried_name(number): name for number, name in enumerate(self.pipeline.source_schema.names)}
            | {
                job: name
                for job, name in zip(self.ordering, self.log.order_by, strict=True)
                if job[0] == "o"
            },
            to_arrow_schema(spark_schema(self.pipeline.source_schema), timezone="UTC"),
            waiting_crc32="" if waiting is None else waiting["crc32"],
        )

    # ------------------------------------------------------------------------------------------ the job

    def _collect(self, given: Rows, begin: Begin, before: EpochManifest | None, arrival: Arrival) -> Results:
        output = output_schema(self.pipeline)
        if not self.fragments:
            return self._whole(given, begin, before, arrival, output)
        rows = given.in_order()
        for number, fragment in self._stages():
            part, schema = self._part(number, fragment, begin)
            first = number == self._first
            columns = _columns(
                fragment.source, used_columns(self._from(number)), self.options if first else {}
            )
            if first:
                step: Any = InputFunction(part, columns, arrival, self._clock(begin))
            else:
                step = NodesFunction(part, columns)
                there = fragment.nodes(self.nodes)
                rows = rows.repartitionById(there, NODE).sortWithinPartitions(TAG)
            rows = rows.mapInArrow(step, schema)
        names = tuple(carried_name(number) for number in range(len(self.pipeline.schema)))
        merged = rows.repartition(1).sortWithinPartitions(TAG)
        return _read(merged.mapInArrow(MergeFunction(begin, names, output), _RESULT))

    def _whole(
        self,
        rows: Rows,
        begin: Begin,
        before: EpochManifest | None,
        arrival: Arrival,
        output: pa.Schema,
    ) -> Results:
        """In one node: in the driver where that may be, else in a task. What fails in the driver runs in a
        task, so that it has the errors, and the retries, of one.
        """
        plan = self.pipeline.plan
        columns = _columns(plan.source, used_source_columns(plan), self.options)
        function = WholeFunction(self.pipeline, columns, output, arrival, begin, self.workers, self.options)
        failed: Exception | None = None
        if begin.end == SUSPEND and self.small.follow(before):
            try:
                batches = rows.fetched(self.small.rows)
                if batches is not None:
                    return run_here(function, batches)
            except Exception as error:
                failed = error
        results = _read(rows.in_order().mapInArrow(function, _RESULT))
        if failed is not None:  # else the job's own error says it
            warnings.warn(
                f"epoch {begin.number} failed in the driver ({failed!r:.200}) and not as a Spark task, "
                "whose results count; the stream goes on",
                RuntimeWarning,
                stacklevel=2,
            )
        return results

    def _ingress(self, before: EpochManifest | None, said: Said, clock: str) -> dict[str, Any]:
        """With what epochs in front said of late rows, and the clock's column."""
        held = {} if before is None else {k: v for k, v in before.ingress.items() if k == "aside"}
        return {**held, **said, **({"clock": clock} if clock else {})}

    def _clock(self, begin: Begin) -> EpochClock | None:
        if not self.clocked:
            return None
        return EpochClock(self.pipeline.plan, self.options.get("punctuate"), begin.latest_time)

    @property
    def _of_nodes(self) -> dict[str, Any]:
        """Options of a node of several."""
        return {**self.options, "given_marks": True} if self.clocked else self.options

    @property
    def _first(self) -> int:
        """The stage that takes the batch: fragment 1, or in front of it one that only sends rows on."""
        return FRONT - 1 if FRONT in self.groupings else FRONT

    def _stages(self) -> list[tuple[int, Fragment]]:
        stages = list(enumerate(self.fragments, 1))
        if self._first == FRONT:
            return stages
        return [(self._first, Fragment(Plan.line(self.fragments[0].source, ()), 0, None)), *stages]

    def _from(self, number: int) -> Sequence[Fragment]:
        return self.fragments[max(number, 1) - 1 :]

    def _route(self, number: int, fragment: Fragment) -> Route | None:
        """To the stage behind this one."""
        if number == len(self.fragments):
            return None
        following = self.fragments[number]
        key, grouping = following.key or (), self.groupings.get(number + 1)
        if number + 1 == FRONT:
            names = self.choices[0].key
            key = tuple(following.source.names.index(name) for name in names)
        return Route(fragment.output, key, following.nodes(self.nodes), grouping)

    def _timed(self, number: int, fragment: Fragment) -> Fragment | None:
        """The fragment with execution times measured, where somebody learns them."""
        if number in self.balance:
            return timed(fragment)
        learns = self.groupings.get(number)
        if isinstance(learns, Spread) and not learns.learnt:
            return with_costs(fragment, self.choices[0])
        return None

    def _part(self, number: int, fragment: Fragment, begin: Begin) -> tuple[FragmentPart, StructType]:
        route = self._route(number, fragment)
        fields = carriers(fragment.output, last=route is None).fields
        schema = StructType(
            [StructField(one.name, one.dataType, one.name not in (TAG, NODE)) for one in fields]
        ).add(RESULT, BinaryType())
        used = used_columns(self._from(number))
        part = FragmentPart(
            fragment,
            number,
            route,
            to_arrow_schema(schema, timezone="UTC"),
            begin,
            self.nodes,
            self.groupings.get(number),
            self.workers,
            self._of_nodes,
            tuple(name for name, is_used in zip(fragment.source.names, used, strict=True) if not is_used),
            number in self.balance,
            self._timed(number, fragment),
            self.balance[number].moves if number in self.balance else None,
            MarksOf.between(
                fragment,
                self.fragments[number:],
                1 if route is None else route.nodes,
                self.options.get("punctuate"),
            ),
        )
        return part, schema

    # ------------------------------------------------------------------------------------------ the result

    def _manifest(
        self, begin: Begin, before: EpochManifest | None, results: Results, spark_id: str, ran: float
    ) -> EpochManifest:
        self._check_complete(results)
        head = next(one for one in results if one["part"] in ("whole", "input"))
        tail = next(one for one in results if one["part"] in ("whole", "merge"))
        through = tail.get("emitted_through") or list(bytes_of(begin.emitted_through))
        clock = clock_said(self.pipeline.plan, self.options.get("punctuate"))
        # of no clock there is no time: a later run's may have another column
        latest = head.get("latest_time", begin.latest_time) if clock else None
        manifest = EpochManifest(
            number=begin.number,
            time=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            parent=None if before is None else [before.number, before.sha256],
            query=self.log.query,
            spark=spark_id,
            run=self.run,
            serials=(begin.serial + 1, begin.serial + head["released"]),
            emitted_through=(through[0], through[1]),
            latest_time=latest,
            input=head["input"],
            ingress=self._ingress(before, head["ingress"], "" if latest is None else clock),
            late=head["late"],
            nodes=self.nodes,
            maps={
                str(one): said_map(begin, one, found, None if before is None else before.maps.get(str(one)))
                for one, found in self._taught(results).items()
            },
            states=self._states(begin, results),
            output=tail["output"],
            waiting=head["waiting"],
            late_output=head["late_output"],
            balance=self._balance_said(begin, results, ran),
            finished=begin.end == FINISH,
            figures={
                "input_bytes": head["input_bytes"],
                "job_seconds": round(ran, 6),
                "on_driver": bool(head.get("on_driver", False)),
                "write_seconds": round(sum(one.get("write_seconds", 0.0) for one in results), 6),
            },
        )
        self._check_files(manifest)
        return manifest

    def _balance_said(self, begin: Begin, results: Results, ran: float) -> dict[str, Any]:
        """What the controllers make of the epoch, by fragment."""
        moves = sum(held.move is not None for held in self.balance.values())
        return {
            str(number): held.said(
                begin, results, number, self.fragments[number - 1].operators[0].name, ran, moves
            )
            for number, held in self.balance.items()
        }

    def _taught(self, results: Results) -> Mapping[int, Any]:
        """The maps, with what the epoch has measured where POSG still learns."""
        maps = dict(self.groupings)
        for one in results:
            if "times" in one and one["fragment"] == FRONT:
                found = ExecutionTimes.from_bytes(base64.b64decode(one["times"]))
                maps[FRONT] = maps[FRONT].taught(found, one["rows"])
        return maps

    def _check_complete(self, results: Results) -> None:
        """One result per fragment and node."""
        wanted = [("whole", 1, 0)]
        if self.fragments:
            wanted = [("input", self._first, 0), ("merge", -1, 0)]
            for number, fragment in self._stages()[1:]:
                wanted += [("node", number, node) for node in range(fragment.nodes(self.nodes))]
        default = {"whole": 1, "merge": -1}
        found = [
            (one["part"], one.get("fragment", default.get(one["part"], 0)), one["node"]) for one in results
        ]
        if sorted(found) != sorted(wanted):
            raise CheckpointError(
                f"the job of this epoch gave the results {sorted(found)}, and not {sorted(wanted)}: nothing "
                "was committed. Start the query again with the same checkpoint"
            )

    def _states(self, begin: Begin, results: Results) -> dict[str, list[Said]]:
        """The states' files per operator: those that were written, and those that nothing has changed. None
        of an operator to which no row came yet.
        """
        states: dict[str, list[Said]] = defaultdict(list)
        for one in results:
            node = one["node"]
            if one.get("states") is not None:
                for name, said in one["states"].items():
                    states[name].append({"node": node, **said})
            elif "states" in one and begin.end == SUSPEND:
                for name in self._operators(one):
                    states[name] += [part for part in begin.states.get(name, ()) if part["node"] == node]
        return {name: sorted(parts, key=lambda part: part["node"]) for name, parts in states.items()}

    def _operators(self, result: Said) -> Sequence[str]:
        """Names of those that keep a state, of the part of the pipeline that gave a result."""
        if not self.fragments:
            operators = laid_out(self.pipeline.plan).operators
        elif not result["fragment"]:
            return []
        else:
            operators = self.fragments[result["fragment"] - 1].operators
        return [one.name for one in operators if one.state_schema() is not None]

    def _check_files(self, manifest: EpochManifest) -> None:
        said = [
            (folder, one)
            for folder, files in (
                (STATE, [part for parts in manifest.states.values() for part in parts]),
                (OUTPUT, manifest.output),
                (WAITING, manifest.waiting),
            )
            for one in files
        ]
        for folder, one in said:
            path = self.log.folder / folder / one["file"]
            try:
                size = path.stat().st_size
            except OSError as error:
                raise CheckpointError(
                    f"{path}: a task says that it wrote this file, and the driver does not see it: the "
                    "checkpoint must be a folder that driver and executors share. Nothing was committed"
                ) from error
            if size != one["bytes"]:
                raise CheckpointError(
                    f"{path}: has {size} bytes, and the task wrote {one['bytes']}; nothing was committed. "
                    "Start the query again with the same checkpoint"
                )


def bytes_of(tag: OrderTag) -> tuple[int, int]:
    """A tag's two numbers."""
    return tag.serial, tag.index


def _columns(source: pa.Schema, needed: Sequence[bool], options: Mapping[str, Any]) -> Columns:
    used = list(needed)
    if options.get("punctuate") is not None:
        used[options["punctuate"].bind(source)[0]] = True
    names = tuple(carried_name(number) for number in range(len(source)))
    return Columns(
        source,
        names,
        tuple(name for name, is_used in zip(source.names, used, strict=True) if not is_used),
    )


def read_columns(pipeline: Pipeline, options: Mapping[str, Any]) -> list[str]:
    """Columns of the source that must arrive."""
    columns = _columns(pipeline.source_schema, used_source_columns(pipeline.plan), options)
    return [name for name in columns.source.names if name not in columns.unread]


def _read(rows: DataFrame) -> Results:
    return [json.loads(bytes(row[0])) for row in rows.collect()]


def nothing(spark: SparkSession) -> DataFrame:
    """A frame of one partition, for the job of an epoch that gets no rows: its one row is not looked at."""
    return spark.range(0, 1, 1, 1)


OnEpoch = Callable[[dict[str, Any]], None]

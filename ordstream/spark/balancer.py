"""A grouping with what was learnt: what carries a model from one Spark job into the next.

What the tasks of one job learn (key sketches, execution times) reaches the driver through an accumulator,
and a `Balancer` takes it into the next job.

Sources: DKG (DEBS 2015), sections 3 and 5.3; POSG, section III. What they leave open here is settled in
docs/balance.md, "In Spark".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.grouping import KeyMap, SplitKeyMap
from ordstream.balance.posg import POSG
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError
from ordstream.spark.executor import Tell

LEARN = ("sample", "all", "previous")
ALL = 1 << 62  # tuples that a learner takes where nothing bounds them


class _Merged(AccumulatorParam[Any]):
    """Reports by (job, operator, partition): a task that ran twice counts once."""

    def zero(self, value: Any) -> Any:
        return {}

    def addInPlace(self, value1: Any, value2: Any) -> Any:
        value1.update(value2)
        return value1


class Balancer:
    """A grouping with what was learnt: given to one `apply` after the other, it carries a model from each
    job into the next.

    For micro-batches. Each `apply` freezes the model as it is then; while the job runs, its tasks learn and
    report. With DKG they count the keys of the rows that they send; the next job's map is built from these.
    With POSG they measure execution times (matrices F and W); nodes are the same program wherever they run,
    so one pair of matrices, the sum of all tasks', stands for every instance. It replaces the pair held, or
    is added to it where the job had fewer than N tuples.

    Parameters
    ----------
    grouping : "dkg", "posg", DKG or POSG
    key : str or sequence of str, optional
        POSG: source columns that a tuple's execution time depends on. Default: all that can be a key and are
        not in `order_by`. The operator must have them too; behind a function those of the same name and type
        count as the same.
    operator : str, optional
        POSG: the stateless operator whose execution time counts. Default: the first Python or compiled
        function, else the first operator.
    learn : "sample", "all" or "previous"
        DKG, where there is no model yet: from about m rows spread over the input; from all rows in a first
        pass; or not at all: the first job's buckets go to nodes in turn.

    Raises
    ------
    PlanError
        An argument is none of these.
    """

    def __init__(
        self,
        grouping: Literal["dkg", "posg"] | DKG | POSG = "dkg",
        *,
        key: str | Sequence[str] | None = None,
        operator: str | None = None,
        learn: Literal["sample", "all", "previous"] = "sample",
    ) -> None:
        made = {"dkg": DKG, "posg": POSG}[grouping]() if grouping in ("dkg", "posg") else grouping
        if not isinstance(made, DKG | POSG):
            raise PlanError(
                f"a Balancer learns for 'dkg', 'posg', od.DKG(...) or od.POSG(...), not {grouping!r}"
            )
        if learn not in LEARN:
            raise PlanError(f"learn is one of {', '.join(LEARN)}, not {learn!r}")
        if isinstance(made, DKG) and (key is not None or operator is not None):
            raise PlanError("key and operator are for POSG; DKG balances the keys of keyed operators")
        self.grouping: DKG | POSG = made
        self.key = (key,) if isinstance(key, str) else None if key is None else tuple(key)
        self.operator = operator
        self.learn = learn
        self._maps: dict[str, KeyMap] = {}
        self._times: ExecutionTimes | None = None
        self._nodes = 0  # of the job whose reports are awaited
        self._job = 0
        self._reports: Accumulator[Any] | None = None

    # ---------------------------------------------------------------------------------------- the model

    @property
    def maps(self) -> dict[str, KeyMap]:
        """DKG: the deployed map of each keyed operator that rows were sent to, as the next job would
        have it.
        """
        self._take()
        return dict(self._maps)

    @property
    def times(self) -> ExecutionTimes | None:
        """POSG: the matrices that the next job would schedule by, in ns; None: Round-Robin."""
        self._take()
        return None if self._times is None else self._times.copy()

    def to_bytes(self) -> bytes:
        """The model, not the parameters, as bytes (`ordstream.balance.serial_form`)."""
        values: dict[str, Any] = {"maps": {name: _map_bytes(one).hex() for name, one in self.maps.items()}}
        if self._times is not None:
            values["times"] = self._times.to_bytes().hex()
        return packed("Balancer", values, {})

    def load(self, data: bytes) -> None:
        """Go on with the model that `to_bytes` of a balancer with the same parameters gave.

        Raises
        ------
        SketchBytesError
            These are not such bytes.
        """
        values, _ = unpacked("Balancer", data)
        try:
            self._maps = {name: _map_from(bytes.fromhex(one)) for name, one in values["maps"].items()}
            times = ExecutionTimes.from_bytes(bytes.fromhex(values["times"])) if "times" in values else None
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise SketchBytesError(f"the bytes of this Balancer cannot be read: {error}") from error
        if times is not None and (
            not isinstance(self.grouping, POSG) or times.hashes != self.grouping.times().hashes
        ):
            raise SketchBytesError("the bytes hold matrices of another size or seed")
        self._times, self._reports = times, None

    # ---------------------------------------------------------------------------------------- jobs

    def _begin(self, spark: SparkSession, nodes: int) -> None:
        """A job is built: what the last one reported becomes the model."""
        self._take()
        self._nodes, self._job = nodes, self._job + 1
        try:
            self._reports = spark.sparkContext.accumulator({}, _Merged())
        except Exception:  # Spark Connect has no accumulators: models come from samples and `load` only
            self._reports = None

    def _tell(self, operator: str) -> Tell | None:
        return None if self._reports is None else Tell(self._reports, self._job, operator)

    def _take(self) -> None:
        """Take in what the last job's tasks have reported."""
        if self._reports is None or not self._reports.value:
            return
        found: dict[str, list[bytes]] = {}
        for (job, operator, _), data in sorted(self._reports.value.items()):
            if job == self._job:
                found.setdefault(operator, []).append(data)
        self._reports.value = {}
        if isinstance(self.grouping, DKG):
            for operator, parts in found.items():
                learner = merged_learner(parts, self.grouping)
                if learner.learnt:
                    self._maps[operator] = learner.build()
            return
        for parts in found.values():
            times = self.grouping.times()
            for data in parts:
                times.merge(ExecutionTimes.from_bytes(data))
            if self._times is not None and times.tuples < self.grouping.window:
                times.merge(self._times)
            if times.tuples:
                self._times = times


def unbounded(parameters: DKG) -> DKG:
    """The same, taking every tuple: what bounds learning here is the sample, or the job."""
    return replace(parameters, m=ALL)


def merged_learner(parts: Sequence[bytes], parameters: DKG) -> DKGLearner:
    """The learner of several tasks' (DKG's parallel learning). `parts`: at least one, of learners
    without a bound.
    """
    first, *others = (DKGLearner.from_bytes(data, unbounded(parameters)) for data in parts)
    for other in others:
        first.merge(other)
    return first


def _map_bytes(one: KeyMap) -> bytes:
    return (b"s" if isinstance(one, SplitKeyMap) else b"k") + (
        one.fresh() if isinstance(one, SplitKeyMap) else one
    ).to_bytes()


def _map_from(data: bytes) -> KeyMap:
    return (SplitKeyMap if data[:1] == b"s" else KeyMap).from_bytes(data[1:])

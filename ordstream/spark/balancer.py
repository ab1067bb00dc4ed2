"""A grouping with what was learnt: what carries a model from one Spark job into the next.

What the tasks of one job learn (key sketches, execution times) reaches the driver through an accumulator,
and a `Balancer` takes it into the next job.

Sources: DKG (DEBS 2015), sections 3 and 5.3; POSG, section III. What they leave open here is settled in
docs/balance.md, "In Spark".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from ordstream.balance.dkg import DKG, DKGLearner
from ordstream.balance.grouping import KeyMap
from ordstream.balance.memory import COSTS, UNIT, HalfLife, KeyMemory, TimeMemory
from ordstream.balance.posg import POSG
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.operators.arguments import column_names
from ordstream.spark.executor import Tell

LEARN = ("sample", "all", "previous")
ALL = 1 << 62  # tuples that a learner takes where nothing bounds them
COSTS_OF = "costs of "  # in front of an operator's name: reports of execution times
JOBS = 64  # a task of the last so many jobs that runs again counts once


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
    report. With DKG they count the keys of the rows that they send; these make the next job's map. With POSG
    they measure execution times (matrices F and W); nodes are the same program wherever they run, so one
    pair of matrices, the sum of all tasks', stands for every instance. What earlier jobs taught fades
    (`half_life`), but never below what a decision needs: a job of three rows adds three rows.

    Jobs may be built before others have run: each counts once, when it has reported.

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
    half_life : (float, float), optional
        After so many new rows, and after so many jobs, what was learnt before counts half; math.inf for one
        that does not count. Default: 5,000 rows and 4 jobs for DKG, N rows and 4 jobs for POSG
        (`ordstream.balance.memory`).

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
        half_life: tuple[float, float] | None = None,
    ) -> None:
        made: Any = grouping
        if is_one_of(made, ("dkg", "posg")):
            made = {"dkg": DKG, "posg": POSG}[made]()
        if not isinstance(made, DKG | POSG):
            raise PlanError(
                f"a Balancer learns for 'dkg', 'posg', od.DKG(...) or od.POSG(...), not {grouping!r}"
            )
        if not is_one_of(learn, LEARN):
            raise PlanError(f"learn is one of {', '.join(LEARN)}, not {learn!r}")
        if isinstance(made, DKG) and (key is not None or operator is not None):
            raise PlanError("key and operator are for POSG; DKG balances the keys of keyed operators")
        self.grouping: DKG | POSG = made
        self.key = None if key is None else column_names(key, "Balancer: key")
        self.operator = operator
        self.learn = learn
        spans: Any = half_life
        if spans is not None and not (isinstance(spans, tuple | list) and len(spans) == 2):
            raise PlanError(f"half_life is (rows, jobs), not {half_life!r}")
        self._half_life = None if half_life is None else HalfLife(*half_life)
        self._keys: dict[str, KeyMemory] = {}  # DKG: by keyed operator
        self._weighed: set[str] = set()  # those of them whose keys are weighed by cost
        self._times: dict[str, TimeMemory] = {}  # POSG: of ""; DKG: of weighed operators
        self._job = 0
        self._reports: Accumulator[Any] | None = None
        self._context: Any = None  # the Spark context of `_reports`
        self._seen: dict[int, set[tuple[str, int]]] = {}  # of the last jobs: (operator, partition) taken in

    # ---------------------------------------------------------------------------------------- the model

    @property
    def maps(self) -> dict[str, KeyMap]:
        """DKG: the deployed map of each keyed operator that rows were sent to, as the next job would
        have it.
        """
        self._take()
        return {name: one.map for name, one in self._keys.items() if one.map is not None}

    @property
    def times(self) -> ExecutionTimes | None:
        """POSG: the matrices that the next job would schedule by, in ns; None: Round-Robin."""
        self._take()
        return self._costs("") if isinstance(self.grouping, POSG) else None

    def to_bytes(self) -> bytes:
        """The model, and the parameters it was learnt under, as bytes (`ordstream.balance.serial_form`)."""
        self._take()
        learners = [
            (name, one.unit, one.learner) for name, one in self._keys.items() if one.learner is not None
        ]
        values: dict[str, Any] = {
            "of": _described(self.grouping),
            "keys": {name: [unit, learner.to_bytes().hex()] for name, unit, learner in learners},
            "times": {name: one.times.to_bytes().hex() for name, one in self._times.items() if one.times},
        }
        return packed("Balancer", values, {})

    def load(self, data: bytes) -> None:
        """Go on with the model (`data`) that `to_bytes` of a balancer with the same parameters gave. Nothing
        changes where it is refused.

        Raises
        ------
        SketchBytesError
            These are not such bytes, or they were learnt under other parameters.
        """
        values, _ = unpacked("Balancer", data)
        of, mine = values.get("of"), _described(self.grouping)
        if of != mine:
            raise SketchBytesError(f"this model was learnt for {_said(of)}, not for {_said(mine)}")
        keys: dict[str, KeyMemory] = {}
        times: dict[str, TimeMemory] = {}
        try:
            for name, (unit, one) in values["keys"].items():
                assert isinstance(self.grouping, DKG)  # as was described
                keys[name] = self._memory(merged_learner([bytes.fromhex(one)], self.grouping), int(unit))
            for name, one in values["times"].items():
                times[name] = made = self._time_memory()
                found = ExecutionTimes.from_bytes(bytes.fromhex(one))
                if found.hashes != made.parameters.times().hashes:
                    raise ValueError("matrices of another size or seed")
                made.take(found)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise SketchBytesError(f"the bytes of this Balancer cannot be read: {error}") from error
        self._take()  # what was reported before belongs to the model that is replaced
        self._keys, self._times = keys, times

    # ---------------------------------------------------------------------------------------- jobs

    def _begin(self, spark: SparkSession, weighed: Iterable[str] = ()) -> None:
        """A job is built: what has been reported becomes the model. `weighed`: keyed operators whose keys
        its tasks weigh by cost.
        """
        self._take()
        self._weighed.update(weighed)
        self._job += 1
        try:
            context = spark.sparkContext
            if self._context is not context:  # the first one, or Spark was started again
                self._reports, self._context = context.accumulator({}, _Merged()), context
        except Exception:  # Spark Connect has no accumulators: models come from samples and `load` only
            self._reports = self._context = None

    def _tell(self, operator: str) -> Tell | None:
        return None if self._reports is None else Tell(self._reports, self._job, operator)

    def _tell_times(self, operator: str) -> Tell | None:
        return self._tell(COSTS_OF + ("" if isinstance(self.grouping, POSG) else operator))

    def _costs(self, operator: str) -> ExecutionTimes | None:
        """DKG: what a tuple of each key costs a keyed operator, as far as is known."""
        held = self._times.get(operator)
        return None if held is None or held.times is None else held.times.copy()

    def _learnt(self, operator: str, learner: DKGLearner) -> None:
        """DKG: what a sample of a job's rows has taught before it began."""
        self._keys[operator] = self._memory(learner, self._unit(operator))

    def _unit(self, operator: str) -> int:
        return UNIT if operator in self._weighed else 1

    def _memory(self, learner: DKGLearner, unit: int) -> KeyMemory:
        assert isinstance(self.grouping, DKG)
        made = KeyMemory(self.grouping, self._half_life, unit)
        made.take(learner)
        return made

    def _time_memory(self) -> TimeMemory:
        return TimeMemory(COSTS if isinstance(self.grouping, DKG) else self.grouping, self._half_life)

    def _take(self) -> None:
        """Take in what tasks have reported, job by job in the order in which these were built."""
        if self._reports is None or not self._reports.value:
            return
        waiting, arrived = self._reports.value, []
        while waiting:  # one at a time: Spark's thread may add one meanwhile
            arrived.append(waiting.popitem())
        found: dict[tuple[int, str], list[bytes]] = {}
        for (job, operator, partition), data in sorted(arrived):
            seen = self._seen.setdefault(job, set())
            if (operator, partition) not in seen:  # else the task, or the job, ran again
                seen.add((operator, partition))
                found.setdefault((job, operator), []).append(data)
        for job in sorted(self._seen)[:-JOBS]:
            del self._seen[job]
        for (_, operator), parts in found.items():
            if operator.startswith(COSTS_OF):
                self._take_times(operator.removeprefix(COSTS_OF), parts)
                continue
            assert isinstance(self.grouping, DKG)
            learner, held = merged_learner(parts, self.grouping), self._keys.get(operator)
            if held is None or held.unit != self._unit(operator):
                self._keys[operator] = self._memory(learner, self._unit(operator))
            else:
                held.take(learner)

    def _take_times(self, operator: str, parts: list[bytes]) -> None:
        held = self._times.setdefault(operator, self._time_memory())
        times = held.parameters.times()
        for data in parts:
            times.merge(ExecutionTimes.from_bytes(data))
        held.take(times)


def _described(grouping: DKG | POSG) -> dict[str, Any]:
    """What a model depends on, as JSON: two balancers whose descriptions are equal can have one model."""
    if isinstance(grouping, POSG):
        size = grouping.times()
        return {"grouping": "POSG", "rows": size.rows, "columns": size.columns, "seed": grouping.seed}
    cost = grouping.cost if isinstance(grouping.cost, str) else getattr(grouping.cost, "__name__", "?")
    return {
        "grouping": "DKG",
        "theta": grouping.theta,
        "epsilon": grouping.counter_error,
        "mu": int(grouping.mu),
        "cost": cost,
        "variant": grouping.variant,
        "guaranteed": grouping.guaranteed,
        "seed": grouping.seed,
    }


def _said(of: Any) -> str:
    if not isinstance(of, dict):
        return "something else"
    values = ", ".join(f"{name}={value}" for name, value in of.items() if name != "grouping")
    return f"{of.get('grouping')}({values})"


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

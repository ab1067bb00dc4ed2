"""shed: under overload, drop tuples in front of the next operator so that queueing latency keeps to a goal
(LAS).

A shed operator drops tuples in front of the next operator (`ordstream.balance.las`). It is the one exception
from "the output is that of a sequential run": what is shed depends on clocks. So every shed tuple is logged
by (serial, index); the output equals that of `run_serial` with the log, and a run that is given the log
sheds exactly those tuples again.

Three modes. *Live*: real clocks, real costs. *Frozen* (`od.Frozen`): no clock; arrivals are virtual, the
cost model is never updated, and a decision is a pure function of partition, serial, seed, model and the
tuples before; a task that is run again sheds the same ones.
*Replay*: the log decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.choices import flag, is_one_of
from ordstream.ground.duration import UNITS, nanoseconds
from ordstream.ground.numbers import is_number, is_whole
from ordstream.ground.types import column_index
from ordstream.operators.arguments import column_names
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Row, SerialOperator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ordstream.balance.sketches import ExecutionTimes

LOG_SCHEMA = pa.schema(
    [
        ("partition", pa.int64()),
        ("operator", pa.string()),
        ("serial", pa.int64()),
        ("index", pa.int64()),
        ("at_ns", pa.int64()),
        ("latency_ms", pa.float64()),
        ("cost_ms", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Frozen:
    """Shedding without a clock: as if tuples arrived at a given rate, with a cost model that stays as it is.

    Serial s arrives at a virtual time between (s - 1) / rate and s / rate, drawn from (seed, partition, s);
    the operator is taken to have `workers` workers all the time. Unlike live shedding it knows nothing of
    the machine's real speed or load.

    Parameters
    ----------
    rate : float
        Tuples of the source per second.
    workers : float
        Workers that the protected operator is taken to have.
    seed : int
    """

    rate: float
    workers: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rate", "workers"):
            value = getattr(self, name)
            if not is_number(value) or not 0 < value < float("inf"):
                raise PlanError(f"Frozen: {name} must be a positive number, got {value!r}")
            object.__setattr__(self, name, float(value))
        if not is_whole(self.seed):
            raise PlanError(f"Frozen: seed must be a whole number, got {self.seed!r}")
        object.__setattr__(self, "seed", int(self.seed))


def duration_ns(value: Any, where: str) -> float:
    """ "50ms", "1.5 s", "200us" or a timedelta, in nanoseconds."""
    if isinstance(value, str) and value.strip() in ("inf", *(f"inf{unit}" for unit in UNITS)):
        return float("inf")
    found = float(nanoseconds(value, where))
    if found < 0:
        raise PlanError(f"{where}: a time must be at least 0, got {value!r}")
    return found


def log_of(
    log: Any, operator: str, partition: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(serials, indexes) that a log has for an operator in a partition of the data, ascending.

    Raises
    ------
    PlanError
        As `checked_log`.
    """
    log = checked_log(log)
    chosen = pc.equal(log["operator"], operator)
    if "partition" in log.column_names:
        chosen = pc.and_(chosen, pc.equal(log["partition"], partition))
    mine = log.filter(chosen).sort_by([("serial", "ascending"), ("index", "ascending")])
    serial, index = (mine[name].combine_chunks().to_numpy().copy() for name in ("serial", "index"))
    return serial, index


def checked_log(log: Any) -> pa.Table:
    """The columns of a log that say what is shed, each with one type.

    Returns
    -------
    pyarrow.Table
        operator (large_string), serial and index (int64), and partition (int64) where the log has it: a log
        that was written by hand needs none.

    Raises
    ------
    PlanError
        It is no log: no table, or a column is missing, there twice, of another kind, null, or negative.
    """
    if not isinstance(log, pa.Table):
        raise PlanError(
            "shed_log is the table `result.shed.log`, with operator, serial and index; got "
            f"{type(log).__name__}"
        )
    columns = {}
    for name in ("operator", "serial", "index", "partition"):
        times = log.column_names.count(name)
        if times > 1:
            raise PlanError(f"shed_log: there are {times} columns {name!r}; leave one")
        if times:
            columns[name] = _log_column(name, log[name])
        elif name != "partition":
            raise PlanError(
                f"shed_log: there is no column {name!r}; it is the table `result.shed.log`, with operator, "
                f"serial and index, and this one has {', '.join(map(repr, log.column_names)) or 'none'}"
            )
    return pa.table(columns)


def _log_column(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of a log, cast."""
    type_ = column.type
    if pat.is_null(type_):  # of a log without rows, as a file of text gives it; else refused below
        type_ = pa.string() if name == "operator" else pa.int64()
        column = column.cast(type_)
    of_text = type_.value_type if pat.is_dictionary(type_) else type_
    if name != "operator":
        if not pat.is_integer(type_):
            raise PlanError(f"shed_log: {name!r} is {type_}; it holds whole numbers (int64)")
        try:
            found = column.cast(pa.int64())
        except pa.ArrowInvalid:
            raise PlanError(f"shed_log: {name!r} has a number that does not fit int64") from None
    elif pat.is_string(of_text) or pat.is_large_string(of_text) or pat.is_string_view(of_text):
        found = column.cast(of_text).cast(pa.large_string())
    else:
        raise PlanError(f"shed_log: {name!r} is {type_}; it holds the names of shed operators (string)")
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        raise PlanError(
            f"shed_log: {name!r} is null in row {row}; every row names one shed tuple: leave such rows out"
        )
    if name != "operator" and len(found) and (least := pc.min(found).as_py()) < 0:
        raise PlanError(f"shed_log: {name!r} has {least}; it must be at least 0")
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Shed(Operator):
    """Output: input columns.

    Attributes
    ----------
    cost_key : tuple of int
        Columns whose values a tuple's cost depends on.
    limit_ns : float
    goal : "average" or "maximum"
    most_dropped : float
    window, tolerance, epsilon, delta, seed, sync_every : as in `ordstream.balance.las`
        window is N, tolerance mu.
    model : ExecutionTimes or None
        Costs in ns.
    frozen : Frozen or None
    side_output : bool
    by_serial : bool
        Only stateless operators before: the tuples of a serial are shed together.
    may_fan_out : bool
        An operator before may have several outputs per tuple.
    """

    op: ClassVar[str] = "shed"
    one_to_one: ClassVar[bool] = True
    sheds: ClassVar[bool] = True

    cost_key: tuple[int, ...]
    limit_ns: float
    goal: Literal["average", "maximum"]
    most_dropped: float
    window: int
    tolerance: float
    epsilon: float
    delta: float
    seed: int
    sync_every: int
    model: ExecutionTimes | None
    frozen: Frozen | None
    side_output: bool
    by_serial: bool
    may_fan_out: bool

    @classmethod
    def bind(
        cls,
        site: Site,
        *,
        max_latency: Any,
        cost_key: Any,
        goal: Any,
        most_dropped: Any,
        model: Any,
        frozen: Any,
        side_output: bool,
        window: Any,
        tolerance: Any,
        epsilon: float,
        delta: float,
        seed: Any,
        sync_every: Any,
    ) -> Self:
        """Raises PlanError and SchemaError for arguments that can't be."""
        where, schema, before = site.name, site.schema, site.before
        from ordstream.balance.sketches import ExecutionTimes, count_min_size

        if before and before[-1].sheds:
            raise PlanError(
                f"{where}: {before[-1].name} sheds in front of it already; one shed operator protects one "
                "operator"
            )
        columns = column_names(cost_key, f"{where}: cost_key")
        if not columns:
            raise PlanError(f"{where}: cost_key names the column that a tuple's cost depends on, or several")
        key = [column_index(schema, column, where) for column in columns]
        for index in key:
            type_ = schema.field(index).type
            if pat.is_nested(type_):
                raise SchemaError(
                    f"{where}: {schema.names[index]!r} is {type_}; a cost key is a number, decimal, string, "
                    "bytes, date or time"
                )
        if not is_one_of(goal, ("average", "maximum")):
            raise PlanError(f"{where}: goal must be 'average' or 'maximum', got {goal!r}")
        if not is_number(most_dropped) or not 0 <= most_dropped <= 1:
            raise PlanError(f"{where}: most_dropped is a share in 0..1, got {most_dropped!r}")
        for option, value, least in (
            ("window", window, 1),
            ("sync_every", sync_every, 0),
            ("seed", seed, 0),
        ):
            if not is_whole(value) or not least <= value < 1 << 63:
                raise PlanError(f"{where}: {option} must be a whole number from {least}, got {value!r}")
        if not is_number(tolerance) or not tolerance >= 0:
            raise PlanError(f"{where}: tolerance must be at least 0, got {tolerance!r}")
        for option, share in (("epsilon", epsilon), ("delta", delta)):
            if not is_number(share):
                raise PlanError(f"{where}: {option} must be a number, got {share!r}")
        side_output = flag(side_output, f"{where}: side_output")
        count_min_size(epsilon, delta, where)
        if isinstance(model, bytes | bytearray | memoryview):
            model = ExecutionTimes.from_bytes(bytes(model))
        if model is not None and not isinstance(model, ExecutionTimes):
            given = type(model).__name__
            raise PlanError(
                f"{where}: model is what `result.shed.models` holds (an ExecutionTimes) or its bytes, got "
                f"{given}"
            )
        if frozen is not None and not isinstance(frozen, Frozen):
            raise PlanError(f"{where}: frozen is od.Frozen(rate=...), got {frozen!r}")
        if frozen is not None and (model is None or not model.tuples):
            raise PlanError(f"{where}: frozen shedding needs a saved cost model (model=)")
        return cls(
            **site.fields(schema),
            cost_key=tuple(key),
            limit_ns=duration_ns(max_latency, f"{where}: max_latency"),
            goal=goal,
            most_dropped=float(most_dropped),
            window=int(window),
            tolerance=float(tolerance),
            epsilon=float(epsilon),
            delta=float(delta),
            seed=int(seed),
            sync_every=int(sync_every),
            model=None if model is None else model.copy(),
            frozen=frozen,
            side_output=side_output,
            by_serial=all(operator.kind == "SL" for operator in before),
            may_fan_out=any(operator.fans_out for operator in before),
        )

    @property
    def max_workers(self) -> int | None:
        return 1  # decisions are made in the order of arrival

    def kernel(self) -> Any:
        from ordstream._core.kernels.shed import ShedKernel
        from ordstream.balance.sketches import ExecutionTimes

        saved = self.model
        costs = ExecutionTimes(self.epsilon, self.delta, seed=self.seed) if saved is None else saved.copy()
        return ShedKernel(self, costs.matrices)

    def reference(self) -> SerialOperator:
        return ShedReference(self)

    def state_schema(self) -> pa.Schema | None:
        """Frozen: the estimated work of all admitted tuples, the sum of their estimated latencies (both in
        worker time, ns), and how many were admitted and dropped. Live: none; it begins with what it learnt.
        """
        if self.frozen is None:
            return None
        fields = [("cumulated", pa.float64()), ("latency_sum", pa.float64())]
        return state_rows(
            self, [pa.field(*one) for one in [*fields, ("admitted", pa.int64()), ("dropped", pa.int64())]]
        )

    def state_identity(self) -> dict[str, str]:
        frozen = self.frozen
        as_for = (
            "" if frozen is None else f"{frozen.rate:g}/s, {frozen.workers:g} workers, seed {frozen.seed}"
        )
        return {**super().state_identity(), "frozen": as_for}

    def columns_read(self) -> set[int]:
        return set(range(len(self.input))) if self.side_output else set(self.cost_key)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    @property
    def goal_text(self) -> str:
        """The goal in words, and the cap on what is dropped."""
        cap = "" if self.most_dropped == 1.0 else f", at most {self.most_dropped:.0%} shed"
        which = "mean" if self.goal == "average" else "every"
        return f"to keep {which} queueing latency within {self.limit_ns / 1e6:g} ms{cap}"

    def describe(self) -> str:
        return f"shed {self.goal_text}; cost by {self.columns_named(self.cost_key)}"

    def notes(self, behind: Sequence[Operator] = ()) -> list[str]:
        lines = super().notes(behind)
        if self.frozen is not None:
            frozen = self.frozen
            as_for = f"{frozen.rate:g} tuples/s and {frozen.workers:g} workers"
            lines.append(f"frozen: decides as for {as_for}, without a clock; seed {frozen.seed}")
            lines.append(
                "unlike live shedding: blind to the machine's real load, but a task that runs again sheds "
                "the same tuples"
            )
        else:
            lines.append(
                "live: what is shed depends on the machine's load; it is logged, and a run with that log "
                "sheds the same"
            )
        if self.model is None:
            lines.append(
                "no saved cost model: everything is admitted until the operator's first costs were measured"
            )
        stateful = [operator.name for operator in behind if operator.stateful]
        if stateful:
            lines.append(
                f"what was exact becomes approximate behind it: {', '.join(stateful)} see the admitted "
                "tuples only"
            )
        else:
            lines.append("the output lacks the outputs of the shed tuples; the others are exact")
        return lines


class ShedReference(SerialOperator):
    """Passes every row on (live), but for those in a log, or decides as frozen.

    `begin` tells it the serial of each source tuple.
    """

    def __init__(self, operator: Shed) -> None:
        super().__init__(operator)
        self.serial = 0
        self._seen = (-1, -1)  # last row: serial, index
        self._logged: set[tuple[int, int]] | None = None
        self._shedder: Any = None
        self._with_serial = (False, 0.0)  # what was decided for the serial
        self.partition = 0
        self.shed: list[tuple[int, int]] = []

    def begin(self, serial: int) -> None:
        self.serial = serial

    def shed_by(self, log: Any, partition: int) -> None:
        self.partition = partition
        if log is not None:
            serial, index = log_of(log, self.operator.name, partition)
            self._logged = set(zip(serial.tolist(), index.tolist(), strict=True))

    def process(self, row: Row) -> list[Row]:
        """The row, unless it is shed."""
        index = self._seen[1] + 1 if self._seen[0] == self.serial else 0
        self._seen = (self.serial, index)
        if self._logged is not None:
            drops = self._seen in self._logged
        elif self.operator.frozen is not None:
            drops = self._decide(row, index)
        else:
            drops = False
        if drops:
            self.shed.append(self._seen)
        return [] if drops else [row]

    def _decide(self, row: Row, index: int) -> bool:
        from ordstream._core.kernels.shed import virtual_time
        from ordstream.balance.keys import key_of_storage
        from ordstream.balance.las import AverageLatency, LoadAwareShedder, MaximumLatency

        operator = self.operator
        frozen = operator.frozen
        if self._shedder is None:
            goal = AverageLatency if operator.goal == "average" else MaximumLatency
            limit = operator.limit_ns * frozen.workers  # latencies are in worker time
            self._shedder = LoadAwareShedder(
                goal(limit, most_dropped=operator.most_dropped), operator.model, sync_every=0
            )
        elapsed = virtual_time(frozen.seed, self.partition, self.serial, 1e9 / frozen.rate) * frozen.workers
        types = [operator.input.field(column).type for column in operator.cost_key]
        keys = zip(operator.cost_key, types, strict=True)
        values = tuple(key_of_storage(row[column], type_) for column, type_ in keys)
        key = values[0] if len(values) == 1 else values
        if not (operator.by_serial and index > 0):
            latency = self._shedder.latency(elapsed)
            self._with_serial = (self._shedder.goal.drops(latency), latency)
        drops, latency = self._with_serial
        self._shedder.decided(drops, latency, key, elapsed)
        return bool(drops)

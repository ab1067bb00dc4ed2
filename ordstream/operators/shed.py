"""Load-aware shedding in a pipeline: what `.shed(...)` makes, what it leaves behind, and its serial twin.

A shed stage drops tuples in front of the next operator so that queueing latency keeps to a goal (`ordstream.balance.las`). It is the one
exception from "the output is that of a sequential run": what is shed depends on clocks. So every shed tuple is logged by (serial, index);
the output equals that of `run_serial` with the log, and a run that is given the log sheds exactly those tuples again.

Three modes. *Live*: real clocks, real costs. *Frozen* (`od.Frozen`): no clock; arrivals are virtual, the cost model is never updated, and
a decision is a pure function of partition, serial, seed, model and the tuples before; a task that is run again sheds the same ones.
*Replay*: the log decides.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import column_index
from ordstream.operators.arguments import column_names
from ordstream.plan.stages import Stage
from ordstream.reference.base import Row, SerialOperator

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ordstream.balance.sketches import ExecutionTimes

__all__ = ["Frozen", "ShedOutcome", "ShedReport"]

_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 60e9}

#: Operators with several outputs per tuple.
_FANS_OUT = ("pairs", "explode", "python_flat", "compiled")

LOG_SCHEMA = pa.schema(
    [
        ("partition", pa.int64()),
        ("stage", pa.string()),
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

    Serial s arrives at a virtual time between (s - 1) / rate and s / rate, drawn from (seed, partition, s); the operator is taken to have
    `workers` workers all the time. Unlike live shedding it knows nothing of the machine's real speed or load.

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
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
                raise PlanError(f"Frozen: {name} must be a positive number, got {value!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise PlanError(f"Frozen: seed must be a whole number, got {self.seed!r}")


def duration_ns(value: Any, where: str) -> float:
    """ "50ms", "1.5 s", "200us" or a timedelta, in nanoseconds."""
    found: float | None = None
    if isinstance(value, datetime.timedelta):
        found = value.total_seconds() * 1e9
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|inf)\s*(ns|us|ms|s|min)\s*", value)
        if match is not None:
            found = float(match[1]) * _UNITS[match[2]]
    if found is None or found < 0:
        raise PlanError(f"{where}: a time is written '50ms' (ns, us, ms, s, min) or as a timedelta, got {value!r}")
    return found


def shed_stage(
    schema: pa.Schema,
    before: Sequence[Stage],
    name: str,
    *,
    max_latency: Any,
    cost_key: Any,
    goal: str,
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
) -> Stage:
    """The stage of `Pipeline.shed`, checked. Its params:

    key: list of int (columns whose values a tuple's cost depends on), limit_ns: float, goal: "average" | "maximum", most_dropped,
    window (N), tolerance (mu), epsilon, delta, seed, sync_every: as in `ordstream.balance.las`, model: ExecutionTimes | None (costs in
    ns), frozen: Frozen | None, side_output: bool, by_serial: bool (only stateless operators before: the tuples of a serial are shed
    together), fans_out: bool (an operator before may have several outputs per tuple).
    """
    from ordstream.balance.sketches import ExecutionTimes, count_min_size

    if before and before[-1].op == "shed":
        raise PlanError(f"{name}: {before[-1].name} sheds in front of it already; one shed stage protects one operator")
    columns = column_names(cost_key)
    if not columns:
        raise PlanError(f"{name}: cost_key names the column that a tuple's cost depends on, or several")
    key = [column_index(schema, column, name) for column in columns]
    for index in key:
        type_ = schema.field(index).type
        if pat.is_nested(type_) or pat.is_decimal(type_):
            raise SchemaError(f"{name}: {schema.names[index]!r} is {type_}; a cost key is a number, string, bytes, date or time")
    if goal not in ("average", "maximum"):
        raise PlanError(f"{name}: goal must be 'average' or 'maximum', got {goal!r}")
    if isinstance(most_dropped, bool) or not isinstance(most_dropped, int | float) or not 0 <= most_dropped <= 1:
        raise PlanError(f"{name}: most_dropped is a share in 0..1, got {most_dropped!r}")
    for option, value, least in (("window", window, 1), ("sync_every", sync_every, 0), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 63:
            raise PlanError(f"{name}: {option} must be a whole number from {least}, got {value!r}")
    if not isinstance(tolerance, int | float) or not tolerance >= 0:
        raise PlanError(f"{name}: tolerance must be at least 0, got {tolerance!r}")
    for option, share in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(share, bool) or not isinstance(share, int | float):
            raise PlanError(f"{name}: {option} must be a number, got {share!r}")
    if not isinstance(side_output, bool):
        raise PlanError(f"{name}: side_output must be True or False, got {side_output!r}")
    count_min_size(epsilon, delta)
    if isinstance(model, bytes | bytearray | memoryview):
        model = ExecutionTimes.from_bytes(bytes(model))
    if model is not None and not isinstance(model, ExecutionTimes):
        raise PlanError(f"{name}: model is what `result.shed.models` holds (an ExecutionTimes) or its bytes, got {type(model).__name__}")
    if frozen is not None and not isinstance(frozen, Frozen):
        raise PlanError(f"{name}: frozen is od.Frozen(rate=...), got {frozen!r}")
    if frozen is not None and (model is None or not model.tuples):
        raise PlanError(f"{name}: frozen shedding needs a saved cost model (model=)")
    params = {
        "key": key,
        "limit_ns": duration_ns(max_latency, name),
        "goal": goal,
        "most_dropped": float(most_dropped),
        "window": window,
        "tolerance": float(tolerance),
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
        "sync_every": sync_every,
        "model": None if model is None else model.copy(),
        "frozen": frozen,
        "side_output": side_output,
        "by_serial": all(stage.kind == "SL" for stage in before),
        "fans_out": any(stage.op in _FANS_OUT for stage in before),
    }
    return Stage(name, "SL", "shed", schema, schema, params=params)


def describe(stage: Stage) -> str:
    """What `explain()` says about a shed stage."""
    params = stage.params
    limit = params["limit_ns"] / 1e6
    cap = "" if params["most_dropped"] == 1.0 else f", at most {params['most_dropped']:.0%} shed"
    names = ", ".join(stage.input.names[index] for index in params["key"])
    which = "mean" if params["goal"] == "average" else "every"
    return f"shed to keep {which} queueing latency within {limit:g} ms{cap}; cost by {names}"


def notes(stages: Sequence[Stage], position: int) -> list[str]:
    """Further lines of `explain()`: what shedding does to the results."""
    params = stages[position].params
    lines = []
    if params["frozen"] is not None:
        frozen = params["frozen"]
        lines.append(f"frozen: decides as for {frozen.rate:g} tuples/s and {frozen.workers:g} workers, without a clock; seed {frozen.seed}")
        lines.append("unlike live shedding: blind to the machine's real load, but a task that runs again sheds the same tuples")
    else:
        lines.append("live: what is shed depends on the machine's load; it is logged, and a run with that log sheds the same")
    if params["model"] is None:
        lines.append("no saved cost model: everything is admitted until the operator's first costs were measured")
    stateful = [stage.name for stage in stages[position + 1 :] if stage.kind != "SL"]
    if stateful:
        lines.append(f"what was exact becomes approximate behind it: {', '.join(stateful)} see the admitted tuples only")
    else:
        lines.append("the output lacks the outputs of the shed tuples; the others are exact")
    return lines


def check_stages(stages: Sequence[Stage]) -> None:
    """PlanError where a shed stage has nothing to protect."""
    if stages and stages[-1].op == "shed":
        raise PlanError(f"{stages[-1].name}: no operator follows; put .shed(...) in front of the one to protect")


def check_repeatable(stages: Sequence[Stage], log: Any) -> None:
    """PlanError unless a task that runs again sheds the same tuples: every shed stage is frozen, or there is a log."""
    live = [stage.name for stage in stages if stage.op == "shed" and stage.params["frozen"] is None]
    if live and log is None:
        raise PlanError(
            f"{live[0]}: live shedding decides by clocks, and a Spark task that runs again would shed other tuples. Take the cost model of "
            "a live run in one node (`result.shed.models`) and give .shed(model=..., frozen=od.Frozen(rate=...)), or give a shed_log"
        )


def only_shed(stages: Sequence[Stage], name: str | None = None) -> tuple[Stage, ...]:
    """The stages through one shed stage (default: the last), without any operator behind it.

    Raises
    ------
    PlanError
        There is no such shed stage.
    """
    found = [position for position, stage in enumerate(stages) if stage.op == "shed" and name in (None, stage.name)]
    if not found:
        raise PlanError("the pipeline does not shed" if name is None else f"there is no shed stage {name!r}")
    return tuple(stages[: found[-1] + 1])


def set_aside(stages: Sequence[Stage], name: str | None) -> tuple[Stage, ...]:
    """The stages with a side output at the shed stage of that name and at no other."""
    return tuple(
        replace(stage, params={**stage.params, "side_output": stage.name == name}) if stage.op == "shed" else stage for stage in stages
    )


# ---------------------------------------------------------------------------------------------- what a run leaves


@dataclass(frozen=True)
class ShedReport:
    """What one shed stage did.

    Attributes
    ----------
    name, protects : str
        The stage, and the operator behind it.
    goal : str
        Why tuples were shed: the goal that admitting them would have broken.
    mode : "live", "frozen" or "replay"
    tuples, admitted, shed : int
        Offered, handed on, dropped.
    share : float
        shed / tuples.
    approximate : bool
        Something was shed: results behind the stage are those of the admitted tuples.
    mean_latency_ms, max_latency_ms : float or None
        Measured from the arrival at the node until the protected operator began; live only.
    shed_latency_ms : float or None
        Mean of what the shed tuples would have waited, as estimated.
    first_s, last_s : float or None
        When the first and the last tuple were shed, seconds after the start (frozen: virtual time).
    timeline : tuple of (float, int)
        Second, and tuples shed in it; only seconds in which some were.
    blind : int
        Tuples admitted without a cost model.
    learnt, model_updates, synchronised : int
        Rows whose cost was measured; matrices taken from the operator; corrections of the estimated backlog.
    workers : float
        Workers that the protected operator had lately, as the shedder saw it.
    """

    name: str
    protects: str
    goal: str
    mode: str
    tuples: int
    admitted: int
    shed: int
    share: float
    approximate: bool
    mean_latency_ms: float | None
    max_latency_ms: float | None
    shed_latency_ms: float | None
    first_s: float | None
    last_s: float | None
    timeline: tuple[tuple[float, int], ...]
    blind: int
    learnt: int
    model_updates: int
    synchronised: int
    workers: float

    def __str__(self) -> str:
        waited = "" if self.mean_latency_ms is None else f"; queueing latency mean {self.mean_latency_ms:,.1f} ms"
        blind = f"; {self.blind:,} admitted without a cost model" if self.blind else ""
        lost = ": results are approximate" if self.approximate else ""
        return (
            f"{self.name} before {self.protects}: {self.shed:,} of {self.tuples:,} tuples shed ({self.share:.1%}; {self.goal}){lost}"
            f"{waited}{blind}"
        )


@dataclass(frozen=True)
class ShedOutcome:
    """What the shed stages of a run leave behind, beside the report.

    Attributes
    ----------
    log : pyarrow.Table
        Every shed tuple: partition (0 but in Spark), stage, serial, index (its position among the tuples of that serial at the stage),
        at_ns (after the start; frozen: virtual time), latency_ms and cost_ms (what it would have waited and taken, as estimated). In
        order per stage. For `run(..., shed_log=)` and `run_serial(..., shed_log=)`. Kept in memory: 40 bytes per shed tuple while the
        run lasts, 60 here.
    rows : dict of str to pyarrow.Table
        The shed tuples themselves, with _serial and _index, of the stages with `side_output=True`; in memory as well.
    models : dict of str to ExecutionTimes
        The costs (ns) that were learnt in this run, to be saved (`to_bytes`) and given to `.shed(model=...)`.
    """

    log: pa.Table
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    models: Mapping[str, ExecutionTimes] = field(default_factory=dict)


def _log_table(stage: str, partition: int, columns: Sequence[Any]) -> pa.Table:
    serial, index, at, latency, cost = columns
    where = [pa.repeat(pa.scalar(partition, pa.int64()), len(serial)), pa.repeat(pa.scalar(stage, pa.string()), len(serial))]
    return pa.table([*where, serial, index, at, latency / 1e6, cost / 1e6], schema=LOG_SCHEMA)


def outcome(shed: Sequence[tuple[Stage, str, Any]], partition: int = 0) -> tuple[ShedOutcome, tuple[ShedReport, ...]]:
    """Shape what the kernels hold. `shed`: (stage, name of the protected operator, ShedKernel), once, after the run."""
    if not shed:  # also a stream that is dropped while the interpreter exits: nothing can be imported then
        return ShedOutcome(LOG_SCHEMA.empty_table()), ()
    import numpy as np

    from ordstream._core.ground.arrow import core_schema
    from ordstream.balance.sketches import ExecutionTimes

    logs, rows, models, reports = [], {}, {}, []
    for stage, protects, kernel in shed:
        columns = kernel.log()
        logs.append(_log_table(stage.name, partition, columns))
        if stage.params["side_output"]:
            schema = core_schema(stage.input)
            aside = pa.Table.from_batches(kernel.take_side(schema), schema=schema)
            rows[stage.name] = aside.append_column("_serial", pa.array(columns[0])).append_column("_index", pa.array(columns[1]))
        figures = kernel.figures()
        if figures["mode"] == "live":
            models[stage.name] = ExecutionTimes.of_matrices(kernel.model())
        tuples = figures["admitted"] + figures["shed"]
        at = columns[2] / 1e9
        seconds, counts = np.unique(np.floor(at), return_counts=True)
        mean, most = figures["mean_latency_ns"], figures["max_latency_ns"]
        reports.append(
            ShedReport(
                name=stage.name,
                protects=protects,
                goal=describe(stage).split(";")[0].removeprefix("shed "),
                mode=figures["mode"],
                tuples=tuples,
                admitted=figures["admitted"],
                shed=figures["shed"],
                share=figures["shed"] / tuples if tuples else 0.0,
                approximate=figures["shed"] > 0,
                mean_latency_ms=None if mean is None else mean / 1e6,
                max_latency_ms=None if most is None else most / 1e6,
                shed_latency_ms=float(columns[3].mean() / 1e6) if len(at) and figures["mode"] != "replay" else None,
                first_s=float(at.min()) if len(at) else None,
                last_s=float(at.max()) if len(at) else None,
                timeline=tuple(zip(seconds.tolist(), counts.tolist(), strict=True)),
                blind=figures["blind"],
                learnt=figures["learnt"],
                model_updates=figures["model_updates"],
                synchronised=figures["synchronised"],
                workers=figures["share"],
            )
        )
    return ShedOutcome(pa.concat_tables(logs), rows, models), tuple(reports)


def log_of(log: Any, stage: str, partition: int = 0) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(serials, indexes) that a log has for a stage in a partition of the data, ascending.

    Raises
    ------
    PlanError
        It is no log.
    """
    if not isinstance(log, pa.Table) or not {"stage", "serial", "index"} <= set(log.column_names):
        raise PlanError(f"shed_log is the table `result.shed.log`, with stage, serial and index; got {type(log).__name__}")
    chosen = pc.equal(log["stage"], stage)
    if "partition" in log.column_names:
        chosen = pc.and_(chosen, pc.equal(log["partition"], partition))
    mine = log.filter(chosen).sort_by([("serial", "ascending"), ("index", "ascending")])
    serial, index = (mine[name].cast(pa.int64()).combine_chunks().to_numpy().copy() for name in ("serial", "index"))
    return serial, index


# ---------------------------------------------------------------------------------------------- the serial twin


class SerialShed(SerialOperator):
    """A shed stage, one tuple at a time: passes every row on (live), but for those in a log, or decides as frozen.

    `serial` is set by the run before each source tuple.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.serial = 0
        self._seen = (-1, -1)  # last row: serial, index
        self._logged: set[tuple[int, int]] | None = None
        self._shedder: Any = None
        self._with_serial = (False, 0.0)  # what was decided for the serial
        self.partition = 0
        self.shed: list[tuple[int, int]] = []

    def replay(self, log: Any) -> None:
        """Shed what the log has for this stage."""
        serial, index = log_of(log, self.stage.name, self.partition)
        self._logged = set(zip(serial.tolist(), index.tolist(), strict=True))

    def process(self, row: Row) -> list[Row]:
        """The row, unless it is shed."""
        index = self._seen[1] + 1 if self._seen[0] == self.serial else 0
        self._seen = (self.serial, index)
        if self._logged is not None:
            drops = self._seen in self._logged
        elif self.params["frozen"] is not None:
            drops = self._decide(row, index)
        else:
            drops = False
        if drops:
            self.shed.append(self._seen)
        return [] if drops else [row]

    def _decide(self, row: Row, index: int) -> bool:
        from ordstream._core.kernels.shed import virtual_time
        from ordstream.balance.las import AverageLatency, LoadAwareShedder, MaximumLatency

        frozen, params = self.params["frozen"], self.params
        if self._shedder is None:
            goal = AverageLatency if params["goal"] == "average" else MaximumLatency
            limit = params["limit_ns"] * frozen.workers  # latencies are in worker time
            self._shedder = LoadAwareShedder(goal(limit, most_dropped=params["most_dropped"]), params["model"], sync_every=0)
        elapsed = virtual_time(frozen.seed, self.partition, self.serial, 1e9 / frozen.rate) * frozen.workers
        values = tuple(row[column] for column in params["key"])
        key = values[0] if len(values) == 1 else values
        if not (params["by_serial"] and index > 0):
            latency = self._shedder.latency(elapsed)
            self._with_serial = (self._shedder.goal.drops(latency), latency)
        drops, latency = self._with_serial
        self._shedder.decided(drops, latency, key, elapsed)
        return bool(drops)

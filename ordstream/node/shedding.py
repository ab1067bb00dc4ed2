"""What the shed operators of a run leave behind: their log, what they dropped, the costs that were
learnt, and a report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordstream.operators.shed import LOG_SCHEMA

if TYPE_CHECKING:
    from ordstream.balance.sketches import ExecutionTimes


@dataclass(frozen=True)
class ShedReport:
    """What one shed operator did.

    Attributes
    ----------
    name, protects : str
        The operator, and the operator behind it.
    goal : str
        Why tuples were shed: the goal that admitting them would have broken.
    mode : "live", "frozen" or "replay"
    tuples, admitted, shed : int
        Offered, handed on, dropped.
    share : float
        shed / tuples.
    approximate : bool
        Something was shed: results behind the operator are those of the admitted tuples.
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
        waited = (
            "" if self.mean_latency_ms is None else f"; queueing latency mean {self.mean_latency_ms:,.1f} ms"
        )
        blind = f"; {self.blind:,} admitted without a cost model" if self.blind else ""
        lost = ": results are approximate" if self.approximate else ""
        return (
            f"{self.name} before {self.protects}: {self.shed:,} of {self.tuples:,} tuples shed "
            f"({self.share:.1%}; {self.goal}){lost}"
            f"{waited}{blind}"
        )


@dataclass(frozen=True)
class ShedOutcome:
    """What the shed operators of a run leave behind, beside the report.

    Attributes
    ----------
    log : pyarrow.Table
        Every shed tuple: partition (0 but in Spark), operator, serial, index (its position among the
        tuples of that serial at the operator), at_ns (after the start; frozen: virtual time), latency_ms and
        cost_ms (what it would have waited and taken, as estimated). In order per operator. For
        `run(..., shed_log=)` and `run_serial(..., shed_log=)`. Kept in memory: 40 bytes per
        shed tuple while the run lasts, 60 here.
    rows : dict of str to pyarrow.Table
        The shed tuples themselves, with _serial and _index, of the operators with `side_output=True`; in
        memory as well.
    models : dict of str to ExecutionTimes
        The costs (ns) that were learnt in this run, to be saved (`to_bytes`) and given to
        `.shed(model=...)`.
    """

    log: pa.Table
    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    models: Mapping[str, ExecutionTimes] = field(default_factory=dict)


def _log_table(operator: str, partition: int, columns: Sequence[Any]) -> pa.Table:
    serial, index, at, latency, cost = columns
    where = [
        pa.repeat(pa.scalar(partition, pa.int64()), len(serial)),
        pa.repeat(pa.scalar(operator, pa.string()), len(serial)),
    ]
    return pa.table([*where, serial, index, at, latency / 1e6, cost / 1e6], schema=LOG_SCHEMA)


def learnt(shed: Sequence[tuple[Any, str, Any]]) -> dict[str, bytes]:
    """What live shed operators know so far, as bytes, by name: the model that they began with, and what was
    learnt in this run. `shed`: as for `outcome`.
    """
    if not shed:
        return {}
    from ordstream.balance.sketches import ExecutionTimes

    known = {}
    for operator, _, kernel in shed:
        if kernel.figures()["mode"] == "live":
            model = ExecutionTimes.of_matrices(kernel.model())
            if operator.model is not None:
                model.merge(operator.model)
            known[operator.name] = model.to_bytes()
    return known


def seen(shed: Sequence[tuple[Any, str, Any]], serial: int) -> dict[str, int]:
    """How many rows of a serial shed operators have seen, by name, of those that have seen some: what is
    made of it at the end of the stream counts on behind them. `shed`: as for `outcome`.
    """
    found = {operator.name: kernel.seen(serial) for operator, _, kernel in shed}
    return {name: rows for name, rows in found.items() if rows}


def outcome(
    shed: Sequence[tuple[Any, str, Any]], partition: int = 0
) -> tuple[ShedOutcome, tuple[ShedReport, ...]]:
    """Shape what the kernels hold. `shed`: (shed operator, name of the protected operator, its kernel),
    once, after the run.
    """
    if not shed:  # also a stream that is dropped while the interpreter exits: nothing can be imported then
        return ShedOutcome(pa.Table.from_batches([], schema=LOG_SCHEMA)), ()
    import numpy as np

    from ordstream._core.ground.arrow import core_schema
    from ordstream.balance.sketches import ExecutionTimes

    logs, rows, models, reports = [], {}, {}, []
    for operator, protects, kernel in shed:
        columns = kernel.log()
        logs.append(_log_table(operator.name, partition, columns))
        if operator.side_output:
            schema = core_schema(operator.input)
            aside = pa.Table.from_batches(kernel.take_side(schema), schema=schema)
            rows[operator.name] = aside.append_column("_serial", pa.array(columns[0])).append_column(
                "_index", pa.array(columns[1])
            )
        figures = kernel.figures()
        if figures["mode"] == "live":
            models[operator.name] = ExecutionTimes.of_matrices(kernel.model())
        tuples = figures["admitted"] + figures["shed"]
        at = columns[2] / 1e9
        seconds, counts = np.unique(np.floor(at), return_counts=True)
        mean, most = figures["mean_latency_ns"], figures["max_latency_ns"]
        reports.append(
            ShedReport(
                name=operator.name,
                protects=protects,
                goal=operator.goal_text,
                mode=figures["mode"],
                tuples=tuples,
                admitted=figures["admitted"],
                shed=figures["shed"],
                share=figures["shed"] / tuples if tuples else 0.0,
                approximate=figures["shed"] > 0,
                mean_latency_ms=None if mean is None else mean / 1e6,
                max_latency_ms=None if most is None else most / 1e6,
                shed_latency_ms=float(columns[3].mean() / 1e6)
                if len(at) and figures["mode"] != "replay"
                else None,
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

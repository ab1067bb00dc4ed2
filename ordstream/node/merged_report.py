"""One report out of those of several nodes: the processes of a run, the tasks of a Spark job.

Nodes that run the same operators side by side, each over its part of the rows, are a *stage*; the stages of
a pipeline that is cut follow each other. Parts may be merged before: however they are put together, and in
whichever order, the counts, sums and histograms are the same, and averages but for the last bits.

| field | of several nodes |
| --- | --- |
| tuples | sum over the first stage: the rows of the source |
| rows_out | sum over the last stage: the rows of the output |
| seconds | as given, else the slowest node's; tuples_per_second is tuples over it |
| latency | of the markers of all nodes, each inside its node: mean exact, percentiles within a bound |
| operators | stage after stage, each once; a split (`is_split`) only where there is nothing else |
| emitted_through | as given, else the greatest of the last stage |
| decisions, aged, throttled, parks, chunks | sum over all |
| time_punctuations, snapshot_markers, leaked_chunks | sum over all |
| peak_bytes | sum over a stage, whose nodes run at the same time; of the stages the largest |
| marker_tuples_per_second, elastic | None: one node's markers and workers say nothing of the others' |
| shedding | one after the other |
| snapshots | none: the caller, who makes them, has the figures |
| channels, grouping, balance | as in the first node: what lay between nodes is known to who started them |
| scheduler, partitioning, reorder, workers, chunk_rows, options | of the first node; `workers` is per node |

The bound is `ordstream.node.histogram.BOUND`. Of an operator: tuples_in, tuples_out, chunks, slices,
skipped, rejected, adjusted, state_bytes and sampled_rows add up; cost_ns, selectivity and sampled_cost_ns
are averages over all its tuples, worker_share its part of the work of all operators shown; reorder_height,
bucket_skew, max_waited and sampled_max_ns are the largest; first_skipped is the first in the order; kind and
buckets are those of any node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from ordstream.ground.ordertags import OrderTag
from ordstream.node.channel_report import ChannelReport
from ordstream.node.histogram import added, quantiles
from ordstream.node.report import Latency, OperatorReport, Report, Skipped, first_of
from ordstream.node.shedding import ShedReport

T = TypeVar("T")

SUMS = (
    "decisions",
    "aged",
    "throttled",
    "parks",
    "chunks",
    "time_punctuations",
    "snapshot_markers",
    "leaked_chunks",
)
OPERATOR_SUMS = (
    "tuples_in",
    "tuples_out",
    "chunks",
    "slices",
    "skipped",
    "rejected",
    "adjusted",
    "sampled_rows",
)
OPERATOR_LARGEST = ("reorder_height", "max_waited", "sampled_max_ns")


def merged(
    stages: Sequence[Sequence[Report]],
    *,
    seconds: float | None = None,
    emitted_through: OrderTag | None = None,
) -> Report:
    """One report of all nodes, field by field as the module's table says.

    Parameters
    ----------
    stages : sequence of sequence of Report
        Of each stage its nodes' reports; at least one stage, none without nodes.
    seconds : float, optional
        Wall time of all; default: the slowest node's.
    emitted_through : OrderTag, optional
        The commit point of all; default: the greatest of the last stage. What the end of the stream skipped
        in a node, which does not know the last tuple, gets its serial if it is given.
    """
    everyone = [report for stage in stages for report in stage]
    tuples = sum(report.tuples for report in stages[0])
    if seconds is None:
        seconds = max(report.seconds for report in everyone)
    names = sorted({name for report in everyone for name in report.latency}, reverse=True)
    return replace(
        everyone[0],
        tuples=tuples,
        rows_out=sum(report.rows_out for report in stages[-1]),
        seconds=seconds,
        tuples_per_second=tuples / seconds if seconds > 0 else 0.0,
        latency={
            name: merged_latency([r.latency[name] for r in everyone if name in r.latency]) for name in names
        },
        operators=_operators(stages, None if emitted_through is None else emitted_through.serial),
        emitted_through=emitted_through or max(report.emitted_through for report in stages[-1]),
        peak_bytes=max(sum(report.peak_bytes for report in stage) for stage in stages),
        marker_tuples_per_second=None,
        shedding=tuple(shed for report in everyone for shed in report.shedding),
        elastic=None,
        **{name: sum(getattr(report, name) for report in everyone) for name in SUMS},
    )


def merged_latency(parts: Sequence[Latency]) -> Latency:
    """Latency of the markers of all parts; that of one part alone is as it was, exact."""
    found = [part for part in parts if part.markers]
    if len(found) < 2:
        return found[0] if found else Latency(None, None, None, None, 0)
    markers, total = sum(part.markers for part in found), sum(part.sum_ns for part in found)
    together = added(part.histogram for part in found)
    p50, p95, p99 = (ns / 1e3 for ns in quantiles(together, (50, 95, 99)))
    return Latency(p50, p95, p99, total / markers / 1e3, markers, total, together)


def _operators(stages: Sequence[Sequence[Report]], end: int | None) -> tuple[OperatorReport, ...]:
    """Every operator once, in the order of the pipeline; `end`: the serial of the last tuple, if known."""
    only_splits = all(
        operator.is_split for stage in stages for report in stage for operator in report.operators
    )
    found = []
    for stage in stages:
        by_name: dict[str, list[OperatorReport]] = {}
        for report in stage:
            for operator in report.operators:
                if only_splits or not operator.is_split:
                    by_name.setdefault(operator.name, []).append(operator)
        found += [_operator(same, end) for same in by_name.values()]
    work = sum(operator.cost_ns * operator.tuples_in for operator in found) or 1.0
    return tuple(replace(one, worker_share=one.cost_ns * one.tuples_in / work) for one in found)


def _operator(same: Sequence[OperatorReport], end: int | None) -> OperatorReport:
    sums = {name: sum(getattr(one, name) for one in same) for name in OPERATOR_SUMS}
    largest = {name: max(getattr(one, name) for one in same) for name in OPERATOR_LARGEST}
    tuples, sampled = sums["tuples_in"], sums["sampled_rows"]
    skip = first_of([one.first_skipped for one in same])
    if skip is not None and skip.serial is None and end is not None:
        skip = replace(skip, serial=end)
    return replace(
        same[0],
        cost_ns=sum(one.cost_ns * one.tuples_in for one in same) / tuples if tuples else 0.0,
        selectivity=sums["tuples_out"] / tuples if tuples else 0.0,
        first_skipped=skip,
        bucket_skew=max(_known(one.bucket_skew for one in same), default=None),
        state_bytes=sum(states) if (states := _known(one.state_bytes for one in same)) else None,
        sampled_cost_ns=sum((one.sampled_cost_ns or 0.0) * one.sampled_rows for one in same) / sampled
        if sampled
        else None,
        **sums,
        **largest,
    )


def _known(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


# ------------------------------------------------------------------------------------------ from Spark


def last_attempts(reports: Mapping[Any, T]) -> dict[Any, T]:
    """Of a Spark job's tasks those that count: of each (stage, partition) the last attempt, in this order.

    Parameters
    ----------
    reports : mapping of (stage, partition, attempt) to anything
    """
    last = {key[:2]: key for key in sorted(reports)}
    return {key: reports[key] for key in last.values()}


def merged_tasks(reports: Mapping[Any, dict[str, Any]]) -> dict[str, Any] | None:
    """One report, in the form of `Report.to_dict()`, for all nodes of a Spark job.

    Parameters
    ----------
    reports : mapping of (stage, partition, attempt) to a node's report
        Each as `Report.to_dict()` has it, or as JSON made of it; of what Spark added, nothing is merged.

    Returns
    -------
    dict or None
        None without reports; of one node its report as it is; of several `merged`, and ``nodes``, their
        number.
    """
    last = last_attempts(reports)
    if len(last) < 2:
        return next(iter(last.values()), None)
    stages: dict[int, list[Report]] = {}
    for key, report in last.items():
        stages.setdefault(key[0], []).append(from_dict(report))
    return merged(list(stages.values())).to_dict() | {"nodes": len(last)}


def from_dict(found: Mapping[str, Any]) -> Report:
    """The report that `Report.to_dict()`, or JSON of it, was made of, but for `elastic`."""
    mine = {name: found[name] for name in (field.name for field in fields(Report)) if name in found}
    return Report(
        **mine
        | {
            "latency": {name: _latency(figures) for name, figures in found["latency"].items()},
            "operators": tuple(_operator_from(operator) for operator in found["operators"]),
            "emitted_through": OrderTag(**found["emitted_through"]),
            "shedding": tuple(ShedReport(**shed) for shed in found.get("shedding", ())),
            "elastic": None,
            "channels": tuple(ChannelReport(**channel) for channel in found.get("channels", ())),
        }
    )


def _latency(figures: Mapping[str, Any]) -> Latency:
    return Latency(
        **{**figures, "histogram": {int(low): count for low, count in figures["histogram"].items()}}
    )


def _operator_from(figures: Mapping[str, Any]) -> OperatorReport:
    skip = figures.get("first_skipped")
    return OperatorReport(**{**figures, "first_skipped": None if skip is None else Skipped(**skip)})

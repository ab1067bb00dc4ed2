"""What a run did: throughput, both latencies, figures per operator, what was dropped, scheduler choices."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.ground.ordertags import OrderTag
from ordstream.node.channel_report import ChannelReport, channel_lines
from ordstream.node.histogram import histogram
from ordstream.node.shedding import ShedReport

#: So many snapshots keep their figures: a stream may take them for as long as it lives.
LAST_SNAPSHOTS = 1000


@dataclass(frozen=True)
class Skipped:
    """The first thing that an operator with on_error="skip" dropped.

    Attributes
    ----------
    serial : int or None
        Of the source tuple, as in an `OperatorError`. None in the report of one node of several: the end of
        the stream, and the node does not know the last tuple.
    reason : str
        Type and text of the exception, cut after some 250 bytes.
    """

    serial: int | None
    reason: str


@dataclass(frozen=True)
class SnapshotFigures:
    """What one snapshot took.

    Attributes
    ----------
    serial : int
        The last tuple that it knows of.
    rows : int
        Of state, of all operators.
    bytes : int
        On disk; without a checkpoint those of the rows in memory.
    seconds : float
        From the time when the reader met its marker until it was complete.
    stall_seconds : float
        Worker time that the copies took while the stream waited for them: the sum over all buckets.
    sort_seconds, write_seconds, sync_seconds : float
        Of the background thread; 0 without a checkpoint.
    """

    serial: int
    rows: int
    bytes: int
    seconds: float
    stall_seconds: float
    sort_seconds: float = 0.0
    write_seconds: float = 0.0
    sync_seconds: float = 0.0


@dataclass(frozen=True)
class OperatorReport:
    """Figures of one operator.

    Attributes
    ----------
    name, kind : str
        As in the stage table; kind is "SL", "PS" or "SF".
    tuples_in, tuples_out : int
        Tuples, whatever the chunk size. What a punctuation made it emit is in tuples_out.
    cost_ns : float
        Worker time per input tuple: kernel, split for the next operator, ordering and sending included.
    selectivity : float
        tuples_out / tuples_in (0 without input).
    worker_share : float
        Its part of the worker time that all operators received, 0..1.
    chunks, slices : int
        Chunks (for PS: parts) processed, and time slices worked.
    reorder_height : int
        Largest distance of an output from the next ticket to release.
    skipped : int
        Tuples, and steps of punctuations (one key each), dropped by on_error="skip".
    rejected : int
        Tuples that left by its second output: on_error="dead_letter", late="side_output".
    adjusted : int
        Tuples that came too late and got a later time: late="adjust".
    first_skipped : Skipped or None
        The first of what was skipped or rejected, in the order: the smallest serial, and why (of several
        with this serial, any).
    buckets : int or None
        p of a partitioned operator, else None; bucket_skew is the largest bucket's tuples over the mean.
    state_bytes : int or None
        Memory of its state at the end.
    sampled_rows, sampled_cost_ns, sampled_max_ns : int, float or None, int
        Rows timed one by one (`sample_every`), their mean and largest cost.
    is_split : bool
        Not an operator of the pipeline, but the split in front of a partitioned first one. Its name,
        "ingress" or, where an operator has that, "ingress_2", is no other operator's.
    """

    name: str
    kind: str
    tuples_in: int
    tuples_out: int
    cost_ns: float
    selectivity: float
    worker_share: float
    chunks: int
    slices: int
    reorder_height: int
    skipped: int
    buckets: int | None
    bucket_skew: float | None
    state_bytes: int | None
    max_waited: int
    sampled_rows: int
    sampled_cost_ns: float | None
    sampled_max_ns: int
    first_skipped: Skipped | None = None
    is_split: bool = False
    rejected: int = 0
    adjusted: int = 0


@dataclass(frozen=True)
class Latency:
    """Percentiles of marker tuples, microseconds; None where no marker arrived.

    Attributes
    ----------
    p50_us, p95_us, p99_us, mean_us : float or None
        Of one node exact; of several together (`ordstream.node.merged_report`) the percentiles are within
        1/256 of themselves.
    markers : int
        How many arrived.
    sum_ns : int
        Of their latencies, nanoseconds.
    histogram : dict of int to int
        The lowest nanoseconds of a bucket, and how many markers are in it (`ordstream.node.histogram`).
    """

    p50_us: float | None
    p95_us: float | None
    p99_us: float | None
    mean_us: float | None
    markers: int
    sum_ns: int = 0
    histogram: dict[int, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ElasticReport:
    """How many workers were active under workers="auto".

    Attributes
    ----------
    least, most : int
        Smallest and largest number, trials included.
    mean : float
        Over the time of the run.
    last : int
        When it ended.
    changes : int
        How often the number changed.
    """

    least: int
    mean: float
    most: int
    last: int
    changes: int


@dataclass(frozen=True)
class Report:
    """Figures of one run; `to_dict()` and `to_json()` keep the names.

    Attributes
    ----------
    latency : dict of str to Latency
        "processing": from the dispatch of a marker's chunk to the first operator until the egress (ordered
        paper 2.1); "end_to_end": from its batch reaching the node, or its intended send time.
    emitted_through : OrderTag
        The commit point, however the run ended: every output with an order tag up to it has been delivered
        to the reader, no output with a greater one has (docs/ordering.md). Its serial is that of the last
        output, or of the last tuple that gave all its outputs if that is greater; then the index is -1. In
        `to_dict` and `to_json`: ``{"serial": ..., "index": ...}``.
    decisions, aged : int
        Scheduler choices, and how many of them ageing forced.
    throttled : int
        How often the cap on chunks or bytes in flight stopped the source.
    peak_bytes : int
        The most that was in flight: input, chunks and output that the reader had not taken (`max_bytes`
        bounds it).
    workers : int
        Worker threads; under workers="auto" the largest number allowed.
    elastic : ElasticReport or None
        Under workers="auto" with more than one allowed: how many were active.
    marker_tuples_per_second : float or None
        Throughput between the first and the last marker of `marker_percentiles` at the egress (all markers
        without it): how the ordered paper measures (section 7), start and end left out. None with fewer than
        two markers.
    snapshots : tuple of SnapshotFigures
        The last 1,000, in order.
    shedding : tuple of ShedReport
        What the shed operators dropped, when and why.
    channels : tuple of ChannelReport
        Of several processes: what went from each node to each, and who waited for whom.
    grouping : dict
        Of several processes: what sent rows to the stateless operators in front, and what it heard and
        decided; {} where each block went to the node with the least to do.
    balance : dict of str to dict
        Of several processes with `balance=`: by first operator of the nodes whose keys move, how many plans
        were made and put off, moves, and in seconds what they were to gain and to cost and what they cost;
        keys that moves have moved, and, in a run that goes on with another number of processes, keys (and
        rows and bytes of their state) that the ring gave another one.
    """

    tuples: int
    rows_out: int
    seconds: float
    tuples_per_second: float
    latency: dict[str, Latency]
    operators: tuple[OperatorReport, ...]
    scheduler: str
    partitioning: str
    reorder: str
    workers: int
    chunk_rows: int
    emitted_through: OrderTag
    decisions: int
    aged: int
    throttled: int
    parks: int
    chunks: int
    time_punctuations: int
    snapshot_markers: int
    leaked_chunks: int = 0
    peak_bytes: int = 0
    marker_tuples_per_second: float | None = None
    shedding: tuple[ShedReport, ...] = ()
    snapshots: tuple[SnapshotFigures, ...] = ()
    elastic: ElasticReport | None = None
    channels: tuple[ChannelReport, ...] = ()
    grouping: dict[str, Any] = field(default_factory=dict)
    balance: dict[str, dict[str, Any]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """What all operators together dropped by on_error="skip"."""
        return sum(operator.skipped for operator in self.operators)

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts and lists of plain values."""
        return asdict(self)

    def to_json(self, indent: int | None = 2) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=indent, default=str)

    def __str__(self) -> str:
        workers = f"{self.workers} workers"
        if self.elastic is not None:
            workers = (
                f"{self.elastic.mean:.1f} of {workers} on average ({self.elastic.changes} changes, "
                f"{self.elastic.last} at the end)"
            )
        lines = [
            f"{self.tuples:,} tuples in {self.seconds:.3f} s: {self.tuples_per_second:,.0f} tuples/s, "
            f"{workers}"
        ]
        for name, latency in self.latency.items():
            if latency.p50_us is not None:
                lines.append(
                    f"{name.replace('_', '-')} latency: p50 {latency.p50_us:,.0f} us, p95 "
                    f"{latency.p95_us:,.0f} us, "
                    f"p99 {latency.p99_us:,.0f} us ({latency.markers} markers)"
                )
        lines.append(
            f"{'operator':<20} {'kind':<4} {'in':>12} {'out':>12} {'ns/tuple':>9} {'selectivity':>11} "
            f"{'share':>6}"
        )
        for o in self.operators:
            lines.append(
                f"{o.name:<20} {o.kind:<4} {o.tuples_in:>12,} {o.tuples_out:>12,} {o.cost_ns:>9.1f} "
                f"{o.selectivity:>11.4f} "
                f"{o.worker_share:>6.1%}"
            )
        lines += left_out_lines([asdict(operator) for operator in self.operators])
        lines += [str(shed) for shed in self.shedding]
        if self.snapshots:
            last, slowest = self.snapshots[-1], max(one.seconds for one in self.snapshots)
            many = "the last " if len(self.snapshots) == LAST_SNAPSHOTS else ""
            lines.append(
                f"snapshots: {many}{len(self.snapshots):,}, the last behind serial {last.serial:,} with "
                f"{last.rows:,} rows of state ({last.bytes:,} bytes); longest {slowest:.3f} s, copies "
                f"{max(one.stall_seconds for one in self.snapshots):.3f} s"
            )
        return "\n".join(lines + self._of_nodes())

    def _of_nodes(self) -> list[str]:
        grouping = ", ".join(f"{name} {value}" for name, value in self.grouping.items())
        lines = [f"grouping: {grouping.removeprefix('name ')}"] if grouping else []
        for name, held in self.balance.items():
            lines.append(
                f"balance of {name}: {held['plans']} plans, {held['put_off']} put off, {held['moves']} moves"
                f" to gain {held['gain_seconds']:.3g} s for {held['cost_seconds']:.3g} s, found "
                f"{held['lost_seconds']:.3g} s; {held['keys_by_plan']:,} keys moved by plans, "
                f"{held['keys_by_ring']:,} with the number of processes; {held['why']}"
            )
        return lines + channel_lines(self.channels, self.seconds)


def left_out_lines(operators: Sequence[Mapping[str, Any]]) -> list[str]:
    """What operators dropped by on_error="skip", gave to their second output, or moved to a later time: a
    line for each that did; `operators` as in `Report.to_dict()`.
    """
    lines = []
    for operator in operators:
        name, of = operator["name"], f"of {operator['tuples_in']:,} tuples"
        if count := operator.get("adjusted"):
            lines.append(f'{count:,} late tuples got a later time in {name!r} (late="adjust"), {of}')
        if first := operator.get("first_skipped"):
            at = "the end of the stream" if first["serial"] is None else f"serial {first['serial']}"
            of += f"; first at {at}: {first['reason']}"
        if count := operator.get("rejected"):
            lines.append(f"{count:,} tuples left {name!r} by its second output, {of}")
        if count := operator.get("skipped"):
            what = "tuples" if operator["kind"] == "SL" else "tuples and steps of punctuations"
            lines.append(f'skipped {count:,} {what} in {name!r} (on_error="skip"), {of}')
    return lines


def shaped_skip(found: tuple[int, bool, int, str] | None) -> Skipped | None:
    """The core's note of a skipped row (`Run.first_skips`) as a report has it; built-in kernels note a
    code.
    """
    if found is None:
        return None
    # here: it loads the compiled core, which a reader of reports need not
    from ordstream.node.run_failure import CAUSES

    serial, _, code, text = found
    return Skipped(serial, f"{CAUSES[code].__name__}: {text}" if code in CAUSES else text)


def first_of(skips: Sequence[Skipped | None]) -> Skipped | None:
    """The first in the order of what several nodes skipped."""
    found = [skip for skip in skips if skip is not None]
    return min(found, key=lambda skip: (skip.serial is None, skip.serial or 0), default=None)


def positions(count: int, within: tuple[float, float] | None) -> slice:
    """Which of `count` markers in arrival order lie between two percentiles of position; at least one if
    there is any.
    """
    if within is None:
        return slice(0, count)
    low, high = (int(count * part / 100) for part in within)
    return slice(low, max(high, low + 1))


def marker_throughput(samples: npt.NDArray[np.int64], within: tuple[float, float] | None) -> float | None:
    """Tuples per second between the first and the last marker within a percentile range of positions, by
    their times at the egress.
    """
    kept = samples[positions(len(samples), within)]
    if len(kept) < 2:
        return None
    (first, _, _, begun), (last, _, _, ended) = kept[0].tolist(), kept[-1].tolist()
    return float((last - first) / (ended - begun) * 1e9) if ended > begun else None


def percentiles(
    samples: Sequence[int] | npt.NDArray[np.int64], within: tuple[float, float] | None
) -> Latency:
    """Latency of markers in arrival order; `within` keeps those between two percentiles of position (paper:
    20, 80).

    Parameters
    ----------
    samples : sequence or array of int
        Nanoseconds.
    within : pair of float or None
        Percentile range of positions to keep.
    """
    kept = np.asarray(samples[positions(len(samples), within)], dtype=np.int64)
    count = len(kept)
    if not count:
        return Latency(None, None, None, None, 0)
    ordered = np.sort(kept)
    p50, p95, p99 = (_quantile(ordered, percent) / 1e3 for percent in (50, 95, 99))
    total = int(kept.sum())
    return Latency(p50, p95, p99, total / count / 1e3, count, total, histogram(kept))


def _quantile(ordered: npt.NDArray[np.int64], percent: int) -> float:
    """`numpy.percentile` of ascending values, whose calls take longer than all else in the report of a short
    run.
    """
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    below = int(ordered[whole])
    return below + (int(ordered[whole + 1]) - below) * rest / 100 if rest else float(below)


def make_report(
    statistics: dict[str, Any],
    samples: Sequence[tuple[int, int, int, int]] | npt.NDArray[np.int64],
    *,
    seconds: float,
    emitted_through: OrderTag,
    leaked_chunks: int,
    settings: dict[str, Any],
    within: tuple[float, float] | None,
    shedding: tuple[ShedReport, ...] = (),
    split: str | None = None,
    rejecting: Collection[str] = (),
    adjusted: Mapping[str, int] = MappingProxyType({}),
    snapshots: tuple[SnapshotFigures, ...] = (),
) -> Report:
    """Shape the core's figures (`Run.statistics()`, `Run.samples()`) into a Report; `split`: name of the
    operator that is none; `rejecting`: names of those whose skipped tuples left by their second output;
    `adjusted`: by name, tuples that got a later time.
    """
    marked = np.asarray(samples, dtype=np.int64).reshape(-1, 4)
    total = sum(o["worker_ns"] for o in statistics["operators"]) or 1.0
    operators = tuple(
        OperatorReport(
            name=o["name"],
            kind=o["kind"],
            tuples_in=o["tuples_in"],
            tuples_out=o["tuples_out"],
            cost_ns=o["worker_ns"] / o["tuples_in"] if o["tuples_in"] else 0.0,
            selectivity=o["tuples_out"] / o["tuples_in"] if o["tuples_in"] else 0.0,
            worker_share=o["worker_ns"] / total,
            chunks=o["chunks"],
            slices=o["slices"],
            reorder_height=o["reorder_height"],
            skipped=0 if o["name"] in rejecting else o["skipped"],
            rejected=o["skipped"] if o["name"] in rejecting else 0,
            adjusted=adjusted.get(o["name"], 0),
            first_skipped=shaped_skip(o["first_skipped"]),
            buckets=o["buckets"],
            bucket_skew=o["bucket_tuples_max"] / o["bucket_tuples_mean"]
            if o.get("bucket_tuples_mean")
            else None,
            state_bytes=o.get("state_bytes"),
            max_waited=o["max_waited"],
            sampled_rows=o["sampled_rows"],
            sampled_cost_ns=o["sampled_ns"] / o["sampled_rows"] if o["sampled_rows"] else None,
            sampled_max_ns=o["sampled_max_ns"],
            is_split=o["name"] == split,
        )
        for o in statistics["operators"]
    )
    return Report(
        tuples=statistics["tuples"],
        rows_out=statistics["rows_out"],
        seconds=seconds,
        tuples_per_second=statistics["tuples"] / seconds if seconds > 0 else 0.0,
        latency={
            "processing": percentiles(marked[:, 1], within),
            "end_to_end": percentiles(marked[:, 2], within),
        },
        operators=operators,
        scheduler=settings["scheduler"],
        partitioning=settings["partitioning"],
        reorder=settings["reorder"],
        workers=settings["workers"],
        chunk_rows=statistics["chunk_rows"],
        emitted_through=emitted_through,
        decisions=statistics["decisions"],
        aged=statistics["aged"],
        throttled=statistics["throttled"],
        peak_bytes=statistics["peak_bytes"],
        parks=statistics["parks"],
        chunks=statistics["chunks_issued"],
        time_punctuations=statistics["time_punctuations"],
        snapshot_markers=statistics["snapshot_markers"],
        leaked_chunks=leaked_chunks,
        marker_tuples_per_second=marker_throughput(marked, within),
        shedding=shedding,
        snapshots=snapshots,
        elastic=None if statistics["elastic"] is None else ElasticReport(**statistics["elastic"]),
        options=settings,
    )

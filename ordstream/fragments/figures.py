"""What the nodes of a run tell of themselves, while it runs and at its end, as one report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ordstream.errors import OperatorError
from ordstream.fragments.channels import ChannelFigures
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import OrderTag, source_serial
from ordstream.node.channel_report import ChannelReport
from ordstream.node.shedding import ShedOutcome


@dataclass(frozen=True, eq=False, kw_only=True)
class Figures:
    """What a node has done so far.

    Attributes
    ----------
    fragment, node : int
    report : Report
    channels : list of ChannelFigures
        Per receiver.
    awaited : list of float
        Per sender: seconds for which this node waited for it.
    """

    fragment: int
    node: int
    report: Any
    channels: list[ChannelFigures] = field(default_factory=list)
    awaited: list[float] = field(default_factory=list)


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome(Figures):
    """How a node ended.

    Attributes
    ----------
    error : OperatorError or None
    cause : BaseException or None
    tag : bytes
        Of the failing row.
    shed : ShedOutcome or None
        What its shed operators left behind, by the source's serials.
    """

    error: OperatorError | None = None
    cause: BaseException | None = None
    tag: bytes = b""
    shed: ShedOutcome | None = None


def channels_of(
    topology: Topology,
    nodes: Collection[Figures],
    sent: Sequence[ChannelFigures],
    awaited: Sequence[float],
) -> tuple[ChannelReport, ...]:
    """The channels of a run, edge after edge, as far as their senders have told.

    Parameters
    ----------
    topology : Topology
    nodes : collection of Figures
    sent : sequence of ChannelFigures
        Of the caller.
    awaited : sequence of float
        For which the caller waited, per sender of the last edge.
    """
    waits = {(node.fragment, node.node): node.awaited for node in nodes}
    waits[topology.last_edge, 0] = list(awaited)
    senders = {(node.fragment + 1, node.node): node.channels for node in nodes}
    senders[topology.first, 0] = list(sent)
    found = []
    for (edge, sender), channels in sorted(senders.items()):
        for receiver, figures in enumerate(channels):
            of_receiver = waits.get((edge, receiver), [])
            found.append(
                ChannelReport(
                    sender=_named(edge - 1, sender, is_caller=edge == topology.first),
                    receiver=_named(edge, receiver, is_caller=edge == topology.last_edge),
                    rows=figures.rows,
                    bytes=figures.bytes,
                    blocked_seconds=figures.waited,
                    awaited_seconds=of_receiver[sender] if sender < len(of_receiver) else 0.0,
                    most_bytes=figures.most,
                    low=_serial(figures.low),
                )
            )
    return tuple(found)


def _serial(low: bytes) -> int | None:
    return source_serial(low) if low else 1  # nothing was said yet


def _named(fragment: int, node: int, *, is_caller: bool) -> str:
    return "caller" if is_caller else f"fragment {fragment + 1} process {node + 1}"


def report_of(
    topology: Topology, nodes: Collection[Figures], seconds: float, emitted_through: OrderTag
) -> Any:
    """One report of all nodes that have told of themselves; of none: one without operators."""
    from ordstream.node.merged_report import merged

    stages: dict[int, list[Any]] = {}
    for node in sorted(nodes, key=lambda one: (one.fragment, one.node)):
        stages.setdefault(node.fragment, []).append(node.report)
    if not stages:
        return _empty(topology, seconds, emitted_through)
    whole = _as_one(topology, list(stages.values())) if len(stages) == _stages(topology) else None
    return merged(whole or list(stages.values()), seconds=seconds, emitted_through=emitted_through)


def _stages(topology: Topology) -> int:
    return topology.last_edge - topology.first


def _as_one(topology: Topology, stages: list[list[Any]]) -> list[list[Any]]:
    """The stages' reports; an operator in two halves, whose parts end the nodes in front, as one."""
    last = topology.fragments[-1]
    if len(stages) < 2 or not any(operator.merges() for operator in last.operators):
        return stages
    *front, parts, merge = stages
    rows = merge[0].rows_out

    def whole(report: Any, out: int) -> Any:
        *others, part = report.operators
        return replace(report, rows_out=out, operators=(*others, replace(part, tuples_out=out)))

    return [*front, [whole(report, 0 if k else rows) for k, report in enumerate(parts)]]


def _empty(topology: Topology, seconds: float, emitted_through: OrderTag) -> Any:
    from ordstream.node.report import make_report
    from ordstream.node.settings import make_settings

    settings = make_settings(topology.options)
    names = (
        "tuples", "rows_out", "chunk_rows", "decisions", "aged", "throttled", "peak_bytes", "parks",
        "chunks_issued", "time_punctuations", "snapshot_markers",
    )  # fmt: skip
    return make_report(
        {**dict.fromkeys(names, 0), "operators": [], "elastic": None},
        [],
        seconds=seconds,
        emitted_through=emitted_through,
        leaked_chunks=0,
        settings=settings.described(0),
        within=None,
    )

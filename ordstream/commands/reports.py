"""One report out of those of several nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ordstream.node.report import Skipped, first_of

Report = dict[str, Any]


def merged(reports: Mapping[Any, Report]) -> Report | None:
    """Return one report for all nodes of a Spark job: the only one as it is, several added up.

    Parameters
    ----------
    reports : mapping of (stage, partition, attempt) to a node's report
        Of attempts that a later one replaced, only the last counts.

    Returns
    -------
    dict or None
        None without reports. Of several nodes: tuples of the first stage, operators of all stages in order with the
        nodes' tuples added up, times of the slowest node.
    """
    latest: dict[tuple[int, int], Report] = {}
    for stage, partition, _ in sorted(reports):
        latest[stage, partition] = reports[max(key for key in reports if tuple(key[:2]) == (stage, partition))]
    if len(latest) < 2:
        return next(iter(latest.values()), None)
    stages: dict[int, list[Report]] = {}
    for (stage, _), report in sorted(latest.items(), key=lambda entry: entry[0]):
        stages.setdefault(stage, []).append(report)
    operators = [
        _operator(same)
        for nodes in stages.values()
        for same in zip(*(node["operators"] for node in nodes), strict=False)
    ]
    total = sum(operator["tuples_in"] * operator["cost_ns"] for operator in operators) or 1.0
    for operator in operators:
        operator["worker_share"] = operator["tuples_in"] * operator["cost_ns"] / total
    first = next(iter(stages.values()))
    tuples = sum(node["tuples"] for node in first)
    seconds = max(node["seconds"] for node in latest.values())
    return {
        "tuples": tuples,
        "seconds": seconds,
        "tuples_per_second": tuples / seconds if seconds else 0.0,
        "latency": _slowest([node["latency"] for node in latest.values()]),
        "operators": operators,
        "shedding": [shed for node in latest.values() for shed in node.get("shedding", ())],
        "nodes": len(latest),
    }


def _operator(same: Sequence[Report]) -> Report:
    tuples_in = sum(operator["tuples_in"] for operator in same)
    tuples_out = sum(operator["tuples_out"] for operator in same)
    cost = sum(operator["tuples_in"] * operator["cost_ns"] for operator in same)
    return {
        "name": same[0]["name"],
        "kind": same[0]["kind"],
        "tuples_in": tuples_in,
        "tuples_out": tuples_out,
        "cost_ns": cost / tuples_in if tuples_in else 0.0,
        "selectivity": tuples_out / tuples_in if tuples_in else 0.0,
        "skipped": sum(operator.get("skipped", 0) for operator in same),
        "first_skipped": _first([operator.get("first_skipped") for operator in same]),
    }


def _first(skips: Sequence[Report | None]) -> Report | None:
    found = first_of([None if skip is None else Skipped(**skip) for skip in skips])
    return None if found is None else asdict(found)


def _slowest(latencies: Sequence[Report]) -> Report:
    """Of each figure of each latency the largest."""
    found: dict[str, dict[str, Any]] = {}
    for latency in latencies:
        for name, figures in latency.items():
            into = found.setdefault(name, dict.fromkeys(figures))
            for figure, value in figures.items():
                known = [v for v in (into[figure], value) if v is not None]
                into[figure] = max(known, default=None)
    return found

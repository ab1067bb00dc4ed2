"""The jobs of bench/peers.py by one ordered node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from jobs import DYNAMIC_BELOW, LIMIT, ORDER_BELOW, TIMEOUT

import ordstream as od
from ordstream.ground.cpus import allowed_cpus

_latency: dict[str, float] = {}


def pipeline(job: str, schema: pa.Schema) -> od.Pipeline:
    """The job over its columns."""
    keyed = od.Pipeline(schema).key_by("u")
    if job == "speed":
        moved, passed = od.col("i") - od.col("i0"), od.col("ts") - od.col("ts0")
        return keyed.lag({"ts0": "ts", "i0": "i"}).select("ts", "u", speed=moved / passed)
    if job == "q2":
        sessions = keyed.sessionize(time="ts", timeout=TIMEOUT, collect={"items": "i"})
        return sessions.flat_map(od.pairs("items")).key_by("left", "right").count().top_k(LIMIT, by="count")
    page = od.col("p")
    marks = {
        "dynamic": od.last("ts", where=page < DYNAMIC_BELOW),
        "ordered": od.last("ts", where=(page >= DYNAMIC_BELOW) & (page < ORDER_BELOW)),
    }
    abandoned = od.col("dynamic").is_not_null() & od.col("ordered").is_null()
    sessions = keyed.sessionize(time="ts", timeout=TIMEOUT, aggregate=marks).filter(abandoned)
    return sessions.aggregate(clicks=od.sum("count"), sessions=od.count())


def prepare(engine: str, job: str, table: pa.Table) -> Callable[[], Any]:
    """Engine "ordstream, N": with N workers ("all": one per core; "auto": as many as the node finds
    useful, its default).
    """
    named = engine.rsplit(", ", 1)[1]
    workers = allowed_cpus() if named == "all" else named if named == "auto" else int(named)

    def run() -> Any:
        options: Any = {"workers": workers, "emit": "updates" if job == "speed" else "final"}
        result = pipeline(job, table.schema).run(table, **options)
        processing = result.report.latency.get("processing")
        if processing is not None and processing.p50_us is not None:
            _latency.update(p50_us=processing.p50_us, p99_us=processing.p99_us)
        if job == "speed":
            return tuple(result.table.columns)
        return list(zip(*(column.to_pylist() for column in result.table.columns), strict=True))

    return run


def latency() -> dict[str, float] | None:
    """Processing latency of the last run: from a chunk's dispatch to its rows in the egress."""
    return dict(_latency) or None


def version(engine: str) -> str:
    """ordstream's version."""
    return od.__version__

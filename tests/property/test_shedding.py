"""Shedding and order: whatever the workers, scheduler and chunk size, the output is that of `run_serial`
without what was shed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ordstream as od
from ordstream._core.kernels.shed import virtual_time
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments.same_process import run_here
from ordstream.reference.run_serial import run_serial

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.float64()),
        ("small", pa.int16()),
        ("value", pa.int64()),
        ("raw", pa.binary()),
    ]
)
KEYS = (["text"], ["number"], ["small"], ["raw"], ["text", "small"], ["raw", "number", "value"])


@dataclass
class Case:
    table: pa.Table
    pipeline: od.Pipeline
    options: dict[str, Any]
    partition: int


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS = st.tuples(
    optional(st.sampled_from(["", "a", "ä", "a long text that is not inlined"])),
    optional(st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    optional(st.integers(-3, 3)),
    st.integers(-5, 5),
    optional(st.sampled_from([b"", b"a"])),
)


@st.composite
def cases(draw: st.DrawFn, frozen: bool = True) -> Case:
    rows = draw(st.lists(ROWS, min_size=1, max_size=120))
    table = pa.table(
        [
            pa.array(column, type_)
            for column, type_ in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)
        ],
        schema=SCHEMA,
    )
    key = draw(st.sampled_from(KEYS))
    model = ExecutionTimes(0.1, 0.2, seed=draw(st.integers(0, 3)))
    columns = table.select(key)
    rng = np.random.default_rng(draw(st.integers(0, 100)))
    model.update_many(columns.combine_chunks().to_batches()[0], rng.integers(1, 50, table.num_rows) * 1e6)
    pipeline = od.Pipeline(SCHEMA)
    before = draw(st.sampled_from(["nothing", "filter", "flat_map", "count"]))
    if before == "filter":
        pipeline = pipeline.filter(od.col("value") > -3)
    elif before == "flat_map":
        pipeline = pipeline.flat_map(twice, schema=SCHEMA)
    elif before == "count":
        pipeline = pipeline.key_by("value").scan(n=od.count())
    pipeline = pipeline.shed(
        f"{draw(st.sampled_from([0, 1, 10, 50]))}ms",
        key,
        model=model,
        goal=draw(st.sampled_from(["average", "maximum"])),
        most_dropped=draw(st.sampled_from([0.3, 1.0])),
        frozen=od.Frozen(
            draw(st.sampled_from([20.0, 60.0, 500.0])),
            workers=draw(st.sampled_from([1, 2.5])),
            seed=draw(st.integers(0, 5)),
        )
        if frozen
        else None,
        name="shed",
    )
    behind = draw(st.sampled_from(["select", "count", "top_k"]))
    if behind == "select":
        pipeline = pipeline.select("text", double=od.col("value") * 2)
    elif behind == "count":
        pipeline = pipeline.key_by("text").count()
    else:
        pipeline = pipeline.key_by("text", "small").count().top_k(3, by="count")
    options = {
        "workers": draw(st.sampled_from([0, 1, 2, 3])),
        "chunk_rows": draw(st.sampled_from([None, 1, 3, 64])),
        "scheduler": draw(st.sampled_from(["ct", "lp", "et", "qst", "random"])),
    }
    return Case(table, pipeline, options, draw(st.integers(0, 3)))


def twice(row: Any) -> list[Any]:
    one = (row.text, row.number, row.small, row.value, row.raw)
    return [one, (*one[:3], row.value + 100, row.raw)] if row.value % 2 else [one]


@given(cases())
def test_frozen_decisions_are_those_of_the_reference(case: Case) -> None:
    expected = run_serial(case.pipeline, case.table, shed_partition=case.partition)
    assert expected.error is None
    result = case.pipeline.run(case.table, shed_partition=case.partition, **case.options)
    log = result.shed.log
    assert [
        ("shed", *row) for row in zip(log["serial"].to_pylist(), log["index"].to_pylist(), strict=True)
    ] == expected.shed
    assert result.table.equals(expected.table)
    assert result.report.shedding[0].shed == len(expected.shed)
    assert result.report.emitted_through == expected.emitted_through
    # A second run, with another number of workers, sheds the same tuples.
    again = case.pipeline.run(case.table, shed_partition=case.partition, workers=1)
    assert again.shed.log.equals(log)


@given(cases(frozen=False), st.data())
def test_any_log_is_replayed_exactly(case: Case, data: st.DataObject) -> None:
    # Not only logs that a shedder would write: any set of tuples.
    chosen = data.draw(
        st.sets(st.tuples(st.integers(1, case.table.num_rows), st.integers(0, 1)), max_size=60)
    )
    rows = sorted(chosen)
    log = pa.table(
        {"operator": ["shed"] * len(rows), "serial": [r[0] for r in rows], "index": [r[1] for r in rows]}
    ).cast(pa.schema([("operator", pa.string()), ("serial", pa.int64()), ("index", pa.int64())]))
    expected = run_serial(case.pipeline, case.table, shed_log=log)
    result = case.pipeline.run(case.table, shed_log=log, **case.options)
    assert result.table.equals(expected.table)
    assert result.report.shedding[0].shed == len(expected.shed)


@given(cases(frozen=False))
@settings(max_examples=15)
def test_live_runs_equal_the_reference_with_their_log(case: Case) -> None:
    arrivals = np.zeros(case.table.num_rows, dtype=np.int64)  # all at once: whoever is behind waits
    result = case.pipeline.run(case.table, arrivals=arrivals, **case.options)
    assert result.table.equals(run_serial(case.pipeline, case.table, shed_log=result.shed.log).table)


@given(st.integers(0, 2**70), st.integers(0, 1000), st.integers(1, 10**9), st.floats(1.0, 1e9))
def test_virtual_time_is_pure_and_ascends(seed: int, partition: int, serial: int, gap: float) -> None:
    at = virtual_time(seed, partition, serial, gap)
    assert at == virtual_time(seed, partition, serial, gap)
    assert (serial - 1) * gap <= at <= serial * gap * (1 + 1e-12)
    assert virtual_time(seed, partition, serial + 1, gap) >= at


def test_partitions_and_seeds_differ() -> None:
    times = {virtual_time(seed, partition, 7, 1000.0) for seed in range(3) for partition in range(3)}
    assert len(times) == 9
    with pytest.raises(od.PlanError):
        od.Pipeline(SCHEMA).select("text").run(
            pa.table({"text": []}, pa.schema([("text", pa.string())])), shed_partition=-1
        )


@given(cases(frozen=False), st.integers(1, 4), st.integers(0, 99), st.sampled_from([1, 300, None]))
def test_nodes_shed_what_their_log_says(
    case: Case, nodes: int, seed: int, channel_bytes: int | None
) -> None:
    options = {**case.options, "workers": 0}
    turns = {"seed": seed, "block_rows": 1 + seed % 40, "channel_bytes": channel_bytes}
    before, *_ = operators = case.pipeline.plan.operators
    if not before.one_to_one and any(one.stateful for one in operators):  # its rows would be anywhere
        with pytest.raises(od.PlanError, match=before.name):
            run_here(case.pipeline, case.table, nodes, options, **turns)
        return
    coming = iter(case.table.to_batches(max_chunksize=1 + seed % 50))
    result = run_here(case.pipeline, coming, nodes, options, **turns)
    expected = run_serial(case.pipeline, case.table, shed_log=result.shed.log)
    assert result.table.equals(expected.table)
    places = zip(*(result.shed.log[name].to_pylist() for name in ("serial", "index")), strict=True)
    assert [("shed", *place) for place in places] == expected.shed
    (report,) = result.report.shedding
    assert (report.shed, report.tuples) == (len(expected.shed), report.admitted + report.shed)
    assert result.shed.models["shed"].tuples == report.learnt

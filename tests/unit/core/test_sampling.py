"""Rows that are run one by one, for their costs: the outputs stay the same (`_core/flow/sampling`)."""

from __future__ import annotations

import types

import pyarrow as pa
import pytest

import ordstream as od
from ordstream._core.lab.testing_udf import PyKernel

OUTPUT = {"k": int, "n": int, "total": int}
STATE = {"n": int, "total": int}
CLICKS = pa.record_batch(
    {"k": pa.array([1, 2, 1, 4, 1, 2, 3]), "x": pa.array([5, 6, -7, 8, 9, 1, -2])},
    schema=pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("x", pa.int64(), nullable=False)]),
)


def door(pipeline):
    stage = pipeline.plan.operators[-1]
    return PyKernel(stage.kernel(), stage)


def total(row, state, emit):
    state.n += 1
    state.total += row.x
    emit(row.k, state.n, state.total)
    if row.x < 0:
        raise ValueError("negative")


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_same_outputs_row_by_row(compiled, on_error):
    if compiled:
        pytest.importorskip("numba")
    pipeline = (
        od.Pipeline(CLICKS.schema)
        .key_by("k")
        .process(total, schema=OUTPUT, state=STATE, compiled=compiled, on_error=on_error)
    )
    plain, sampled = door(pipeline), door(pipeline)
    assert plain.process(CLICKS) == sampled.process(CLICKS, sample=True)
    assert len(sampled.costs_ns) == (7 if on_error == "skip" else 2)
    assert all(cost >= 0 for cost in sampled.costs_ns)
    assert sampled.state_bytes == sampled.bytes() > 0


def test_costs_are_those_of_the_rows():
    def work(row, state, emit):
        for _ in range(row.x):
            pass

    source = {"k": int, "x": int}
    pipeline = od.Pipeline(source).process(work, schema=OUTPUT, init=types.SimpleNamespace)
    kernel = door(pipeline)
    kernel.process(
        pa.record_batch({"k": [1] * 14, "x": [10, 200_000] * 7}, schema=pipeline.source_schema), sample=True
    )
    cheap, dear = kernel.costs_ns[0::2], kernel.costs_ns[1::2]
    assert sorted(cheap)[3] < min(dear)  # some of the cheap ones may have been preempted

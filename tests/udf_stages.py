"""Stages and kernels of compiled functions, for tests."""

from __future__ import annotations

import pyarrow as pa

from ordstream._core.lab.testing_udf import PyKernel
from ordstream.operators.kernels_python import build_compiled
from ordstream.plan.stages import Stage
from ordstream.reference.run_serial import run_serial

I64 = pa.int64()
SOURCE = pa.schema([pa.field("k", I64), pa.field("x", I64)])


def strict(**types):
    """A schema without nulls."""
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])


def rows_stage(fn, output, source=SOURCE, fan_out=1, exact=False, on_error="fail"):
    params = {"fn": fn, "fan_out": fan_out, "exact": exact}
    return Stage("rows", "SL", "compiled", source, output, params=params, on_error=on_error)


def process_stage(fn, output, state, source=SOURCE, key=(0,), fan_out=1, on_error="fail", **params):
    params = {"fn": fn, "state": state, "fan_out": fan_out, "on_flush": None, "on_time": None} | params
    kind = "PS" if key else "SF"
    return Stage("process", kind, "compiled", source, output, key=key, params=params, on_error=on_error)


def door(stage):
    return PyKernel(build_compiled(stage), stage)


def batch(schema, **columns):
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def check_serial(pipeline, data):
    """Outputs of the last stage's kernel on a batch equal those of the sequential reference."""
    stage = pipeline.stages()[-1]
    kernel = door(stage)
    rows = kernel.apply(data)[0] if stage.kind == "SL" else kernel.process(data)[0]
    if stage.kind != "SL" and stage.params["on_flush"]:
        rows += kernel.punctuate()[0]
    reference = run_serial(pipeline, data)
    assert rows == reference.rows
    assert (kernel.failure is None) == (reference.error is None)
    assert kernel.live == 0
    return rows

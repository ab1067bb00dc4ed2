"""Stages and kernels of compiled functions, for tests."""

from __future__ import annotations

import pyarrow as pa

from ordstream._core.lab.testing_udf import PyKernel
from ordstream.operators.map_rows import CompiledFlatMap, CompiledMap
from ordstream.operators.process import CompiledProcess
from ordstream.reference.run_serial import run_serial

I64 = pa.int64()
SOURCE = pa.schema([pa.field("k", I64), pa.field("x", I64)])


def strict(**types):
    """A schema without nulls."""
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in types.items()])


def rows_stage(fn, output, source=SOURCE, fan_out=1, exact=False, on_error="fail"):
    kind = CompiledMap if exact else CompiledFlatMap
    return kind(name="rows", input=source, output=output, fn=fn, fan_out=fan_out, on_error=on_error)


def process_stage(fn, output, state, source=SOURCE, key=(0,), fan_out=1, on_error="fail", **params):
    common = {"name": "process", "input": source, "output": output, "key": key, "on_error": on_error}
    return CompiledProcess(**common, fn=fn, state=state, fan_out=fan_out, **params)


def door(stage):
    return PyKernel(stage.kernel(), stage)


def batch(schema, **columns):
    return pa.record_batch([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def check_serial(pipeline, data):
    """Outputs of the last stage's kernel on a batch equal those of the sequential reference."""
    stage = pipeline.plan.operators[-1]
    kernel = door(stage)
    rows = kernel.apply(data)[0] if stage.kind == "SL" else kernel.process(data)[0]
    if stage.kind != "SL" and stage.on_flush:
        rows += kernel.punctuate()[0]
    reference = run_serial(pipeline, data)
    assert rows == reference.rows
    assert (kernel.failure is None) == (reference.error is None)
    assert kernel.live == 0
    return rows

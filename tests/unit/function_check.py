"""An operator with a function of the user's, on its kernel and on the sequential reference."""

from __future__ import annotations

import pyarrow as pa

from ordstream._core.lab.testing_udf import PyKernel
from ordstream.reference.run_serial import run_serial

I64 = pa.int64()
SOURCE = pa.schema({"k": I64, "x": I64, "s": pa.string()})


def door(pipeline):
    stage = pipeline.plan.operators[-1]
    return PyKernel(stage.kernel(), stage)


def batch(schema=SOURCE, **columns):
    n = max(map(len, columns.values()))
    arrays = [pa.array(columns.get(f.name, [None] * n), f.type) for f in schema]
    return pa.record_batch(arrays, schema=schema)


def check_serial(pipeline, data):
    """The kernel's outputs, failure and skips are those of the sequential reference."""
    reference = run_serial(pipeline, data)
    kernel = door(pipeline)
    stage = pipeline.plan.operators[-1]
    origins = None
    if stage.kind == "SL":
        rows, origins = kernel.apply(data)
    else:
        rows, origins, _ = kernel.process(data)
        if reference.error is None and getattr(stage, "on_flush", None):
            rows += kernel.punctuate()[0]
            origins = None
    assert rows == reference.rows
    if origins is not None:
        assert [slot + 1 for slot in origins] == [serial for serial, _ in reference.tags]
    if reference.error is None:
        assert kernel.failure is None or stage.on_error == "skip"
    else:
        slot, _, message, exception = kernel.failure
        assert slot + 1 == reference.error.serial
        assert message == reference.error.reason
        assert type(exception) is type(reference.error.__cause__)
    assert stage.kind != "SL" or kernel.skipped == len(reference.skipped)
    assert kernel.live == 0
    return rows


DATA = batch(k=[1, 2, None, 4, 5], x=[10, -3, 0, None, 7], s=["a", None, "", "dd", "e"])

"""One operator on its kernel and on the sequential reference: values, order, failures, in several shapes
of chunks.
"""

from __future__ import annotations

import itertools
import math

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import ordstream as od
from ordstream.ground.types import from_storage
from ordstream.node.run_failure import EARLIER, backwards
from ordstream.reference.run_serial import run_serial

testing = pytest.importorskip("ordstream._core.lab.testing_kernels", reason="the core is not built")

SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("j", pa.int32()),
        ("u", pa.uint64()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int64())),
        ("k", pa.list_(pa.float64())),
    ]
)
EDGES = [0, 1, -1, 2, 7, 2**31, 2**62, 2**63 - 1, -(2**63)]
REALS = [0.0, -0.0, 1.5, -2.5, 1e308, math.inf, -math.inf, math.nan, 3.0]
VALUES = {
    "i": st.sampled_from(EDGES) | st.integers(-5, 5),
    "j": st.integers(-3, 3) | st.sampled_from([2**31 - 1, -(2**31)]),
    "u": st.integers(0, 4) | st.sampled_from([2**64 - 1, 2**63]),
    "x": st.sampled_from(REALS) | st.floats(-4, 4),
    "f": st.sampled_from([0.0, -0.0, 0.5, -1.25, math.nan, math.inf]),
    "b": st.booleans(),
    "s": st.sampled_from(["", "a", "ab", "b", "\u00e9", "a\x00", "a longer string of text"]),
    "l": st.lists(st.integers(-3, 3) | st.sampled_from(EDGES), max_size=30),
    "k": st.lists(st.sampled_from(REALS), max_size=6),
}
ROWS = st.lists(st.tuples(*(st.none() | VALUES[name] for name in SCHEMA.names)), max_size=40)
QUICK = settings(max_examples=60, deadline=None)


def plain(value):
    """A value in a form that `==` compares exactly: text as bytes, one NaN, the sign of zero kept."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value


def encoded(value):
    return value.encode() if isinstance(value, str) else value


def storage_rows(result):
    return [plain(row) for row in result._storage]


def serial_input(schema, rows):
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [from_storage(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def ascending(rows, column, schema=SCHEMA):
    """The rows by ascending value of a column, as operators that rely on time need them; rows with a null
    there stay where they are. One list in four is as it was: it mostly runs backwards somewhere.
    """
    if len(rows) % 4 == 0:
        return rows
    index = schema.get_field_index(column)
    known = iter(sorted((row for row in rows if row[index] is not None), key=lambda row: row[index]))
    return [row if row[index] is None else next(known) for row in rows]


def run(stage, rows, *, size=7, buckets=3, sparse=False, times=()):
    """Run a stage over `rows` in chunks; `times`: position -> time punctuation that comes before that row.

    Returns the outputs, the failing row (from 1) or None, and how many rows were skipped; where a row that
    runs backwards failed, what the kernel says of it.
    """
    owner = stage.kernel()
    kernel = testing.KernelRun(owner, stage.key, buckets)
    times = dict(times)
    cuts = sorted({0, len(rows), *range(0, len(rows), size), *times})
    for low, high in itertools.pairwise(cuts):
        if low in times:
            kernel.punctuate(times[low])
        part = rows[low:high]
        selection = None
        if sparse:  # a row of garbage before every row: the selection skips it
            part = [row for row in part for row in (part[0], row)]
            selection = list(range(1, len(part), 2))
        columns = [[encoded(v) for v in column] for column in zip(*part, strict=True)]
        before = kernel.failure
        kernel.push(columns, selection)
        if kernel.failure is not None and before is None:
            slot = kernel.failure[1]
            kernel_failure = low + (slot // 2 if sparse else slot)
            told = kernel.failure[3] if kernel.failure[2] == EARLIER else None
            outputs = [plain(row) for row in kernel.rows]
            kernel.close()
            return outputs, kernel_failure + 1, told
    kernel.punctuate()
    outputs = [plain(row) for row in kernel.rows]
    kernel.close()
    return outputs, None, kernel.skipped


def check(pipeline, rows, schema=SCHEMA, **options):
    """One operator, in several shapes of chunks, equals the reference."""
    (stage,) = pipeline.plan.operators
    expected = run_serial(pipeline, serial_input(schema, rows))
    serial = None if expected.error is None else expected.error.serial
    for size, sparse in ((1, False), (7, False), (7, True), (1000, False)):
        outputs, failed, skipped = run(stage, rows, size=size, sparse=sparse, **options)
        assert failed == serial, (failed, expected.error)
        assert outputs == storage_rows(expected), (size, sparse)
        if expected.error is None:
            assert skipped == len(expected.skipped)
        # what it is told in place of the skipped
        elif "runs backwards" in str(expected.error) or skipped is not None:
            assert backwards(skipped, stage.input, stage.op, keyed=bool(stage.key)) == str(
                expected.error.__cause__
            )


def pipeline():
    return od.Pipeline(SCHEMA)

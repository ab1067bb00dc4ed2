"""The text of a failure: what the kernel knows as a code is told with its columns and values."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

BIG = 2**63 - 1
ROWS = pa.table({"n": [1, 2, BIG], "user": ["a", "a", "a"], "ts": pa.array([1, 5, None], pa.int64())})
PLAIN = od.Pipeline(ROWS.schema)
KEYED = PLAIN.key_by("user")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (PLAIN.filter(od.col("n") + 1 > 0), f"OverflowError: int64 overflow in add({BIG}, 1)"),
        (PLAIN.with_columns(m=5 // (od.col("n") - BIG)), "ZeroDivisionError: "),
        (KEYED.window(od.tumbling(3), time="ts").aggregate(n=od.count()), "ValueError: column 'ts' is null"),
        (PLAIN.top_k(1, "ts", "n"), "ValueError: column 'ts' is null"),
        (PLAIN.reorder("ts", slack=1), "ValueError: column 'ts' is null"),
        (PLAIN.join_asof(PLAIN, on="user", time="ts"), "ValueError: column 'ts' is null"),
    ],
)
def test_a_kernels_failure_names_columns_and_values_as_run_serial_does(pipeline, reason, workers):
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(ROWS, workers=workers)
    assert caught.value.serial == 3
    assert caught.value.reason.startswith(reason)
    expected = run_serial(pipeline, ROWS).error
    assert (caught.value.reason, type(caught.value.__cause__)) == (expected.reason, type(expected.__cause__))


def test_a_sum_that_overflows_by_its_state_keeps_the_kernels_text():
    with pytest.raises(od.OperatorError, match="serial 3: a value is out of range"):
        KEYED.cum_sum("n").run(ROWS)


@pytest.mark.parametrize("item", [pa.int64(), pa.string()])
def test_a_failing_row_is_told_with_the_nulls_of_its_lists(item):
    rows = pa.table({"n": [1, 0], "items": pa.array([["4"], ["5", None]]).cast(pa.list_(item))})
    with pytest.raises(od.OperatorError) as caught:
        od.Pipeline(rows.schema).map(lambda row: (1 // row.n,), schema={"n": int}).run(rows, workers=1)
    assert caught.value.serial == 2
    assert caught.value.row["items"] == rows["items"][1].as_py()

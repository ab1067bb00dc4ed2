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


@pytest.mark.parametrize("large", [False, True])
def test_a_null_inside_a_list_is_told_with_its_tuple(large):
    lists = pa.large_list(pa.int64()) if large else pa.list_(pa.int64())
    rows = pa.table({"items": pa.array([[1], None, [], [2, 3], [4, None]], lists)})
    batches = pa.Table.from_batches(rows.to_batches(max_chunksize=2))
    for given in (rows, batches):
        with pytest.raises(od.SourceError, match=r"'items' has a null inside the list of tuple 5: .* leave"):
            od.Pipeline(rows.schema).flat_map(od.explode("items")).run(given)

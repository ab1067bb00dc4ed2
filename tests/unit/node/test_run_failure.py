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
        (
            PLAIN.with_columns(m=5 // (od.col("n") - BIG), o=od.col("n") * 0),
            "ZeroDivisionError: column 'm': ",
        ),
        (PLAIN.select(o=od.col("n") * 0, m=od.col("n") + 1), "OverflowError: column 'm': int64 overflow in"),
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


SUMS = {
    "least": od.min("n"),
    "total": od.sum("n", where=od.col("n") > 0),
    "other": od.sum("ts"),  # null in the failing row
    "middle": od.mean("n"),
}
TIMED = pa.table({**{name: ROWS[name] for name in ROWS.column_names}, "at": [1, 2, 3]})


@pytest.mark.parametrize(
    "made",
    [
        lambda p: p.scan(**SUMS),
        lambda p: p.aggregate(**SUMS),
        lambda p: p.window(od.tumbling(9), time="at").aggregate(**SUMS),
        lambda p: p.window(od.hopping(9, every=3), time="at").aggregate(**SUMS),
        lambda p: p.window(od.session(9), time="at").aggregate(**SUMS),
        lambda p: p.window(od.rolling(9), time="at").aggregate(**SUMS),
        lambda p: p.sessionize(time="at", timeout=9, aggregate=SUMS),
    ],
)
def test_a_sum_that_overflows_by_its_state_is_told_by_name(made):
    with pytest.raises(od.OperatorError) as caught:
        made(od.Pipeline(TIMED.schema).key_by("user")).run(TIMED)
    assert caught.value.serial == 3
    assert caught.value.reason == (
        "overflow in sum(n where (n > 0)) or mean(n): the sum does not fit into int64; cast the column to "
        "pa.float64() in front, or sum fewer rows"
    )


def test_a_running_sum_that_overflows_is_told_by_name():
    with pytest.raises(od.OperatorError, match=r"serial 3: overflow in sum\(n\): "):
        KEYED.cum_sum("n").run(ROWS)


@pytest.mark.parametrize("item", [pa.int64(), pa.string()])
def test_a_failing_row_is_told_with_the_nulls_of_its_lists(item):
    rows = pa.table({"n": [1, 0], "items": pa.array([["4"], ["5", None]]).cast(pa.list_(item))})
    with pytest.raises(od.OperatorError) as caught:
        od.Pipeline(rows.schema).map(lambda row: (1 // row.n,), schema={"n": int}).run(rows, workers=1)
    assert caught.value.serial == 2
    assert caught.value.row["items"] == rows["items"][1].as_py()


FAR = pa.array([10**18, None, 10**18], pa.int64()).cast(pa.timestamp("s"))  # year 31 billion
NO_TEXT = pa.array([b"\xff", None, b"a"]).view(pa.string())
NO_ZONE = pa.array([0, None, 1], pa.timestamp("us", "Nowhere/Land"))
SHOWN_FAR = ["1000000000000000000", None, "1000000000000000000"]


@pytest.mark.parametrize(
    ("column", "shown"),
    [
        (FAR[:1], SHOWN_FAR[0]),
        (pa.ListArray.from_arrays([0, 3], FAR), SHOWN_FAR),
        (pa.LargeListArray.from_arrays([0, 3], FAR), SHOWN_FAR),
        (pa.FixedSizeListArray.from_arrays(FAR, 3), SHOWN_FAR),
        (pa.ListArray.from_arrays([0, 3], NO_TEXT), [b"\xff", None, "a"]),
        (
            pa.StructArray.from_arrays([FAR[:1], NO_TEXT[:1]], ["at", "no"]),
            {"at": SHOWN_FAR[0], "no": b"\xff"},
        ),
        (pa.MapArray.from_arrays([0, 1], ["a"], NO_ZONE[:1]), [("a", "0")]),
        (
            pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 2], FAR[1:])], ["deep"]),
            {"deep": SHOWN_FAR[1:]},
        ),
    ],
    ids=lambda one: str(one.type) if isinstance(one, pa.Array) else "",
)
def test_what_python_has_no_object_for_is_shown_as_it_is_stored(column, shown):
    rows = pa.table({"n": [0], "c": column})
    pipeline = od.Pipeline(rows.schema).assert_that(od.col("n") > 0).lag({"before": "c"})
    with pytest.raises(od.OperatorError) as caught:
        pipeline.run(rows, workers=0)
    assert (caught.value.serial, caught.value.row) == (1, {"n": 0, "c": shown})


@pytest.mark.parametrize("options", [{}, {"snapshots": True}, {"end": "suspend"}], ids=str)
def test_a_row_behind_a_union_has_no_nulls_that_were_values(options):
    """One way made the column, the other passed it, and nothing behind reads it: it was shown as null."""
    data = pa.table({"ts": [1, 2], "v": [5, 6], "s": ["7", "x"]})
    late, early = od.Pipeline(data.schema).branch(od.col("ts") > 50)
    number = od.col("s").cast(int)
    made = od.union(late.with_columns(v=od.col("s").cast(int, strict=False)), early).with_columns(v=number)
    with pytest.raises(od.OperatorError) as failure:
        list(made.stream(data, **options))
    assert failure.value.row == {"ts": 2, "s": "x"}


@pytest.mark.parametrize(
    "made",
    [
        od.col("s").cast(int), od.col("s").cast(float), od.col("s").str.to_date("%Y"),
        od.col("s").cast(bool), od.col("s").str.to_datetime(), od.col("s").cast(pa.decimal128(5, 2)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("workers", [0, 2])
def test_a_text_that_can_not_be_read_and_is_skipped_is_a_value_error_in_the_report(made, workers):
    data = pa.table({"s": ["x", "y", "z"]})
    pipeline = od.Pipeline(data.schema).with_columns(v=made, on_error="skip")
    report = pipeline.run(data, workers=workers).report
    (skipped,) = {one.first_skipped for one in report.operators}
    expected = run_serial(pipeline, data)
    assert skipped.reason.partition(":")[0] == expected.reasons[0].partition(":")[0] == "ValueError"
    assert skipped.reason == "ValueError: a text can't be read, or is not valid UTF-8"

"""reorder: a slack, and what becomes of tuples that need more."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from property.compare import agree, run_core

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema({"ts": pa.int64(), "s": pa.string()})


def rows(*times):
    return pa.table([times, [f"{i}" * (i % 7) for i in range(len(times))]], schema=SCHEMA)


def both(pipeline, data):
    """Rows and serials, the same from the core in three ways and from the reference."""
    expected = run_serial(pipeline, data)
    for way in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 3}, {"workers": 1}):
        found = run_core(pipeline, data, **way)
        agree(pipeline, expected, found)
    return [row[0] for row in expected.rows], [serial for serial, _ in expected.tags], expected, found


def test_a_tuple_leaves_when_one_comes_that_is_later_by_the_slack():
    times, serials, _, _ = both(od.Pipeline(SCHEMA).reorder("ts", slack=3), rows(5, 4, 7, 6, 8, 20))
    assert times == [4, 5, 6, 7, 8, 20]
    assert serials == [3, 5, 6, 6, 6, 6]


def test_ties_keep_their_order():
    data = rows(3, 1, 3, 2, 1, 9)
    _, _, expected, _ = both(od.Pipeline(SCHEMA).reorder("ts", slack=5), data)
    tuples = zip(*data.to_pydict().values(), strict=True)
    assert expected.rows == sorted(tuples, key=lambda row: row[0])


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_all_that_is_late_by_the_slack_at_most_comes_out_sorted(n):
    rng = random.Random(n)
    times = [i + rng.randrange(20) for i in range(n)]
    found = od.Pipeline(SCHEMA).reorder("ts", slack=20).run(rows(*times), workers=2).table
    wanted = sorted(zip(times, rows(*times)["s"].to_pylist(), strict=True), key=lambda row: row[0])
    assert list(zip(*found.to_pydict().values(), strict=True)) == wanted


def test_a_late_tuple_is_an_error():
    pipeline = od.Pipeline(SCHEMA).reorder("ts", slack=3, name="in order")
    with pytest.raises(
        od.OperatorError, match=r"'in order'.*a late row: 4 is more than the slack, 3, before 8"
    ):
        pipeline.run(rows(8, 5, 4))


@pytest.mark.parametrize(
    ("type_", "slack", "words"),
    [
        (pa.int32(), 3, "4 is more than the slack, 3, before 8; "),
        (
            pa.timestamp("s"),
            "3s",
            "1970-01-01 00:00:04 is more than the slack, 0:00:03, before 1970-01-01 00:00:08; ",
        ),
        (pa.date32(), "3d", "1970-01-05 is more than the slack, 3 days, before 1970-01-09; "),
    ],
)
def test_a_late_tuple_is_told_in_times_as_run_serial_tells_it(type_, slack, words):
    data = pa.table(
        {"at": pa.array([8, 5, 4], pa.int64() if type_.bit_width == 64 else pa.int32()).view(type_)}
    )
    pipeline = od.Pipeline(data.schema).reorder("at", slack=slack)
    expected = run_serial(pipeline, data).error
    assert expected.reason.startswith(f"ValueError: column 'at': a late row: {words}give reorder a longer")
    for workers in (0, 2):
        with pytest.raises(od.OperatorError) as caught:
            pipeline.run(data, workers=workers)
        assert (caught.value.serial, caught.value.reason) == (3, expected.reason)


def test_late_tuples_are_dropped_and_counted():
    pipeline = od.Pipeline(SCHEMA).reorder("ts", slack=3, late="drop", name="in order")
    times, _, _, found = both(pipeline, rows(8, 4, 5, 1, 9))
    assert times == [5, 8, 9]
    assert next(o.skipped for o in found.report.operators if o.name == "in order") == 2
    assert "in 'in order' (on_error" in str(found.report)
    assert "a late row: 4 is more than the slack, 3, before 8" in str(found.report)


def test_a_late_tuple_gets_the_earliest_time_that_is_not():
    times, serials, _, _ = both(
        od.Pipeline(SCHEMA).reorder("ts", slack=3, late="adjust"), rows(8, 4, 6, 9, 1)
    )
    assert times == [5, 6, 6, 8, 9]
    assert serials == [2, 4, 5, 5, 5]


def test_what_is_refused():
    with pytest.raises(od.PlanError, match="slack must be at least 0"):
        od.Pipeline(SCHEMA).reorder("ts", slack=-1)
    with pytest.raises(od.PlanError, match="late must be"):
        od.Pipeline(SCHEMA).reorder("ts", slack=1, late="wait")
    with pytest.raises(od.SchemaError, match="the time column 's'"):
        od.Pipeline(SCHEMA).reorder("s", slack=1)


def test_null_times():
    with pytest.raises(od.OperatorError, match="column 'ts' is null"):
        od.Pipeline(SCHEMA).reorder("ts", slack=3).run(rows(8, None))
    result = od.Pipeline(SCHEMA).reorder("ts", slack=3, on_error="skip").run(rows(8, None, 9))
    assert result.table["ts"].to_pylist() == [8, 9]


def test_windows_behind_it():
    """Its output ascends; the source does not, and is no clock."""
    pipeline = (
        od.Pipeline(SCHEMA).reorder("ts", slack=5)
        .window(od.tumbling(10), time="ts").aggregate(n=od.count())
    )  # fmt: skip
    _, _, expected, _ = both(pipeline, rows(3, 11, 9, 12, 25, 22, 31))
    assert expected.rows == [(0, 10, 2), (10, 20, 2), (20, 30, 2), (30, 40, 1)]


def test_nested_and_null_columns():
    schema = pa.schema(
        {"ts": pa.timestamp("s"), "l": pa.list_(pa.int16()), "b": pa.binary(), "d": pa.decimal128(9, 2)}
    )
    columns = [[5, 3, 4, 20], [[1, 2], None, [], [7]], [None, b"", b"x" * 99, b"y"], [1, None, 3, 4]]
    data = pa.table([pa.array(c, f.type) if f.name != "ts" else pa.array(c, pa.int64()).cast(f.type)
                     for c, f in zip(columns, schema, strict=True)], schema=schema)  # fmt: skip
    pipeline = od.Pipeline(schema).reorder("ts", slack="10s")
    assert pipeline.run(data).table == data.take([1, 2, 0, 3])
    agree(pipeline, run_serial(pipeline, data), run_core(pipeline, data, workers=2, chunk_rows=1))

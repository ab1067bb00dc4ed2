"""What is delivered where an operator fails behind the first outputs of a row, or of a step of a flush:
those outputs, whichever node made them, and the commit point says so.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.testing import run_serial

KX = {"k": int, "x": int}
KTX = {"k": int, "ts": int, "x": int}
FEW = pa.table({"k": [1, 2, 3], "x": [1, 1, 0]})
MANY = pa.table({"k": [3, 1, 2, 1, 3, 4, 2], "x": [3, 3, 4, 1, 5, 2, 2]})
TIMED = pa.table({
    "k": [1, 2, 1, 2, 3, 1, 3, 2], "ts": [0, 1, 5, 11, 12, 23, 24, 35], "x": [1, 2, 0, 3, 4, 5, 0, 7],
})  # fmt: skip
LATE = TIMED.set_column(1, "ts", pa.array([0, 5, 1, 11, 12, 3, 24, 35]))
GOOD = od.col("x") != 0


def functions():
    """They travel by value: a process does not find this module."""

    def two(row):
        return [(row.k, 1), (row.k, row.x)]

    def falling(row):
        return [(row.k, row.x), (row.k, row.x - 1), (row.k, row.x - 2)]

    def of_window(row):
        return [(row.k, row.n), (row.k, row.first), (row.k, 10)]

    def checked(row):
        if row.x == 0:
            raise ValueError("zero")
        return (row.k, row.x)

    def counted(row, state, emit):
        state.n += 1
        emit(row.k, 1)
        emit(row.k, row.x)
        emit(row.k, 2)

    def silent(row, state, emit):
        state.n += 1

    def fails_at_2(key, state, emit):
        emit(key[0], state.n)
        if key[0] == 2:
            raise ValueError("two")

    def zero_at_2(key, state, emit):
        emit(key[0], 1)
        emit(key[0], 0 if key[0] == 2 else 2)
        emit(key[0], 3)

    return two, falling, of_window, checked, counted, silent, fails_at_2, zero_at_2


two, falling, of_window, checked, counted, silent, fails_at_2, zero_at_2 = functions()
ROWS, TIMES = od.Pipeline(KX), od.Pipeline(KTX)
COUNT = {"schema": KX, "state": {"n": int}}
WINDOWS = (
    TIMES.key_by("k").window(od.tumbling(10), time="ts").aggregate(n=od.sum("x"), first=od.min("ts"))
).flat_map(of_window, schema=KX)
REORDERED = (
    TIMES.reorder("ts", slack=6, late="drop").key_by("k").window(od.tumbling(10), time="ts")
).aggregate(n=od.sum("x"), first=od.min("ts"))
ON_FLUSH = ROWS.key_by("k").process(silent, on_flush=fails_at_2, **COUNT)
ON_FLUSH_LATER = ROWS.key_by("k").process(silent, on_flush=zero_at_2, **COUNT)
COUNTED = ROWS.key_by("k").cum_count("c").flat_map(two, schema=KX)


def again(pipeline, by="x"):
    """Cut once more, behind."""
    return pipeline.key_by(by).cum_count("again").select("k", "x")


CASES = {
    "row": (COUNTED.assert_that(GOOD), FEW),
    "flush": (ROWS.key_by("k").tail(1).flat_map(two, schema=KX).assert_that(GOOD), FEW),
    "function": (COUNTED.map(checked, schema=KX), FEW),
    "twice": (again(COUNTED, "k").flat_map(falling, schema=KX).assert_that(GOOD), MANY),
    "process": (ROWS.key_by("k").process(counted, **COUNT).assert_that(GOOD), FEW),
    "behind": (
        again(again(ROWS.key_by("k").process(counted, **COUNT).assert_that(GOOD)), "k"),
        FEW,
    ),
    "behind, two of one": (
        again(again(COUNTED.assert_that(GOOD)).flat_map(two, schema=KX), "k"),
        FEW,
    ),
    "on_flush": (ON_FLUSH, MANY),
    "on_flush, behind": (again(ON_FLUSH), MANY),
    "on_flush, later": (ON_FLUSH_LATER.assert_that(GOOD), MANY),
    "on_flush, later, behind": (again(again(ON_FLUSH_LATER), "k").assert_that(GOOD), MANY),
    "tail": (ROWS.key_by("k").tail(2).assert_that(od.col("x") != 2), MANY),
    "window": (WINDOWS.assert_that(od.col("x") != 3), TIMED),
    "window, behind": (
        again(again(WINDOWS.assert_that(od.col("x") != 3)).flat_map(two, schema=KX), "k"),
        TIMED,
    ),
    "window, first": (again(WINDOWS.assert_that(od.col("x") != 23)), TIMED),
    "reorder": (again(REORDERED.flat_map(of_window, schema=KX).assert_that(od.col("x") != 3)), LATE),
    "lead": (
        TIMES.key_by("k").lead({"y": "x"}).select("k", x="y").flat_map(two, schema=KX).assert_that(GOOD),
        TIMED,
    ),
    "filtered": (again(ROWS.assert_that(GOOD).filter(od.col("k") > 99)), FEW),
    "filtered behind": (again(ROWS).assert_that(GOOD).filter(od.col("k") > 99), FEW),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("nodes", [2, 3])
def test_nodes_that_take_turns(name, nodes):
    pipeline, data = CASES[name]
    expected = run_serial(pipeline, data)
    assert expected.error is not None
    for seed in range(8):
        here = SameProcess(seed)
        with pytest.raises(od.OperatorError) as failure:
            run_here(pipeline, data, nodes, {"workers": 0}, block_rows=2, here=here)
        assert (failure.value.operator, failure.value.serial) == (
            expected.error.operator, expected.error.serial,
        )  # fmt: skip
        assert here.driver.rows_out == len(expected.tags)
        assert here.driver.report(0.0).emitted_through == expected.emitted_through


@pytest.mark.parametrize("name", CASES)
def test_processes(name):
    pipeline, data = CASES[name]
    expected = run_serial(pipeline, data)
    found, stream = [], pipeline.stream(data, tags=True, processes=2)
    with pytest.raises(od.OperatorError) as failure:
        found.extend(row for batch in stream for row in batch.to_pylist())
    assert failure.value.serial == expected.error.serial
    assert [(row["_serial"], row["_index"]) for row in found] == [*expected.tags]
    names = pipeline.schema.names
    assert [tuple(row[name] for name in names) for row in found] == [*map(tuple, expected.rows)]
    assert stream.emitted_through == stream.report.emitted_through == expected.emitted_through


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)
def test_a_clock_that_runs_backwards(options):
    """Its serial, and the commit point, are those of run_serial."""
    data = pa.table({"k": [1, 2, 3, 1], "ts": [0, 1, 2, 0], "x": [0, 0, 0, 0]})
    expected = run_serial(WINDOWS, data)
    assert expected.error.serial == 4
    stream = WINDOWS.stream(data, **options)
    with pytest.raises(od.SourceError) as failure:
        list(stream)
    assert (failure.value.serial, str(failure.value)) == (4, str(expected.error))
    assert stream.emitted_through == expected.emitted_through == od.OrderTag(3)

"""Chunk sizes where a call costs much beside its rows (flow/call_cost.pxd), and what they cost a run."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od
from ordstream._core.flow.scheduler import PySchedulerDoor
from ordstream.expressions.arrow_call import ArrowCall
from ordstream.plan.physical import physical

MS = 1e6


def sizes(took: Callable[[int, int], float], calls: int = 2_000, first: int = 1) -> list[int]:
    """Rows of one call after the other, of a kernel whose i-th call of n rows takes took(i, n) ns, where
    chunks aim at 1 ms.
    """
    scheduler: Any = PySchedulerDoor("ct", [1], calls=True)
    rows, found = first, []
    for i in range(calls):
        found.append(rows)
        ns = took(i, rows)
        scheduler.account(0, ns, rows, rows, 1, (ns, rows))
        rows = scheduler.chunk_rows(MS, first, 4096)
    return found


@pytest.mark.parametrize("fixed", [0.02 * MS, 0.5 * MS, 2 * MS, 50 * MS])
@pytest.mark.parametrize("row", [0.1e3, 1e3, 20e3, 0.5 * MS])
def test_a_call_is_worth_its_rows(fixed: float, row: float) -> None:
    """A quarter of a long call at most is for no rows, unless 4,096 rows are too few."""
    rows = sizes(lambda _, n: fixed + n * row)[-1]
    assert rows == pytest.approx(min(4096, (MS + 3 * fixed) / row), rel=0.1, abs=1)


def test_it_grows_within_a_few_calls() -> None:
    assert sizes(lambda _, n: 2 * MS + n * 100)[14] == 4096


@pytest.mark.parametrize("row", [1e3, 20e3, 0.5 * MS, 10 * MS])
def test_rows_alone_get_as_much_work_as_before(row: float) -> None:
    """But a chunk of twice as many now and then, which tells."""
    found = sizes(lambda _, n: n * row)[50:]
    plain = min(4096, max(1, int(MS / row)))
    assert max(found) <= min(4096, 2 * plain)
    assert sum(one > 1.1 * plain for one in found) < len(found) / 20
    assert min(found) >= int(0.9 * plain)


def test_a_slow_first_call_is_no_fixed_cost() -> None:
    """It imports, compiles, loads a model."""
    found = sizes(lambda i, n: (500 * MS if i == 0 else 0) + n * 20e3)
    assert max(found[100:]) <= 100


@pytest.mark.parametrize("seed", range(5))
def test_few_slow_rows_are_no_fixed_cost(seed: int) -> None:
    """One row in 100 takes 50 ms: by the mean, 0.5 ms, a chunk has 2 rows; few of them are enough for
    those that wait behind one.
    """
    draw = random.Random(seed)

    def took(_: int, n: int) -> float:
        return 10e3 + sum(50 * MS if draw.random() < 0.01 else 1e3 for _ in range(n))

    found = sizes(took, calls=20_000)[1_000:]
    assert sum(found) / len(found) < 32
    assert sorted(found)[int(0.99 * len(found))] <= 256


@pytest.mark.parametrize("seed", range(5))
def test_calls_that_are_held_up(seed: int) -> None:
    """A busy machine: every third call waits for up to 5 ms."""
    draw = random.Random(seed)

    def took(_: int, n: int) -> float:
        return 2 * MS + n * 1e3 + (draw.uniform(0, 5 * MS) if draw.random() < 0.3 else 0)

    found = sizes(took)[200:]
    assert sum(found) / len(found) > 2_000


def test_large_calls_that_are_held_up() -> None:
    """They say least of what no rows take: the flattest line is right."""
    found = sizes(lambda i, n: 2 * MS + n * 1e3 + (6 * MS if n >= 1_500 and i % 8 else 0))[200:]
    assert sum(found) / len(found) > 2_000


def test_costs_that_change() -> None:
    """Rows become dear, and cheap again."""
    found = sizes(lambda i, n: 0.1 * MS + n * (1e3 if i < 500 or i >= 1_000 else 300e3), calls=2_000)
    assert found[499] > 1_000
    assert found[999] <= 10
    assert found[1_999] > 1_000


def test_parts_pay_each_for_itself() -> None:
    """Of a partitioned operator: 8 parts of a chunk, of which each costs 0.1 ms beside its rows."""
    scheduler: Any = PySchedulerDoor("ct", [8], workers=2, buckets=[8], calls=True)
    rows = 64
    for _ in range(500):
        n = max(1, rows // 8)
        scheduler.account(0, 0.1 * MS + n * 1e3, n, n, 1, (0.1 * MS + n * 1e3, n))
        rows = scheduler.chunk_rows(0.1 * MS, 64, 4096)
    assert rows == pytest.approx((0.1 * MS + 8 * 0.3 * MS) / 1e3, rel=0.1)


def test_one_row_is_tried_first() -> None:
    """A function that was not called yet may take seconds for a row: taken for 1 us, as other operators, it
    got a thousand of them.
    """
    scheduler: Any = PySchedulerDoor("ct", [1, 1], calls=True)
    for _ in range(50):
        scheduler.account(0, 10e3, 1, 1, 1, (10e3, 1))
    assert scheduler.chunk_rows(MS, 1, 4096) == 1
    assert scheduler.choose(0, [0, 1_000], [0, 0]) == (1, 1)
    scheduler.account(1, 10e3, 1, 1, 1, (10e3, 1))
    assert scheduler.chunk_rows(MS, 1, 4096) > 10


def test_a_function_that_no_row_gets_to_holds_nothing_up() -> None:
    """And gets no thousands of rows when all come suddenly."""
    scheduler: Any = PySchedulerDoor("ct", [1, 1], calls=True)
    rows = 1
    for _ in range(30):
        scheduler.account(0, 10e3, rows, 0, 1, (10e3, rows))
        rows = scheduler.chunk_rows(MS, 1, 4096)
    assert rows == 256


Front = Callable[[od.Pipeline], od.Pipeline]
FRONTS: dict[str, Front] = {
    "nothing": lambda pipeline: pipeline,
    "an expression": lambda pipeline: pipeline.select(x=od.col("x") + 1),
    "a function": lambda pipeline: pipeline.map(lambda row: (row.x,), schema={"x": int}),
    "a state": lambda pipeline: pipeline.deduplicate("x"),
}


@pytest.mark.parametrize("workers", [0, 1, 2, "auto"])
@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.thin(6)
def test_a_long_call_gets_many_rows_soon(front: str, workers: Any) -> None:
    """It got one row 24 to 65 times first, and behind other operators each size, twice the one before, as
    often as chunks are in flight: up to 233 calls.
    """
    calls: list[int] = []

    def predict(batch: Any) -> Any:
        calls.append(len(batch["x"]))
        time.sleep(0.02)
        return batch

    rows = pa.table({"x": range(1, 5_001)})
    pipeline = FRONTS[front](od.Pipeline(rows.schema)).map_batches(predict, schema=rows.schema)
    pipeline.run(rows, workers=workers)
    assert sum(calls) == 5_000
    assert len(calls) < 70
    assert calls.count(1) <= 10


@pytest.mark.parametrize("workers", [1, 2, "auto"])
@pytest.mark.parametrize("front", ["a function", "a state"])
@pytest.mark.thin(3)
def test_slow_rows_come_one_by_one_behind_quick_ones(front: str, workers: Any) -> None:
    """While the first slow row ran, quick functions in front made chunks of 1,000 for it: the reader got
    nothing for as long as those took.
    """
    calls: list[int] = []

    def slow(batch: Any) -> Any:
        calls.append(len(batch["x"]))
        time.sleep(0.005 * len(batch["x"]))
        return batch

    rows = pa.table({"x": range(400)})
    pipeline = FRONTS[front](od.Pipeline(rows.schema)).map_batches(slow, schema=rows.schema)
    assert pipeline.run(rows, workers=workers).table.equals(rows)
    assert max(calls) <= 32


# A source with a thread of its own has quick rows that wait put together, so slow ones come in such chunks.
@pytest.mark.parametrize(("workers", "quick"), [(0, 0), (1, 0), (0, 5_000)])
def test_a_slice_ends_when_its_time_is_over(workers: int, quick: int) -> None:
    """A function that is slow from its first row on, or suddenly, in rows that come one by one: up to 65 of
    them went by before any other operator was served, and the reader.
    """
    served: list[str] = []

    def slow(row: Any) -> tuple[int]:
        served.append("slow")
        if row.x >= quick:
            time.sleep(0.01)
        return (row.x,)

    def behind(row: Any) -> tuple[int]:
        served.append("behind")
        return (row.x,)

    rows = pa.table({"x": range(quick + 150)})
    batches = rows.to_batches(max_chunksize=1)
    pipeline = od.Pipeline(rows.schema).map(slow, schema={"x": int}).map(behind, schema={"x": int})
    pipeline.run(iter(batches), workers=workers)
    late = served[served.index("behind") if not quick else 2 * quick :]
    runs = [len(list(group)) for who, group in itertools.groupby(late) if who == "slow"]
    assert served.index("behind") <= (4 if not quick else 200)
    assert max(runs) <= 4


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_function_of_batches_is_called_for_many_rows(workers: int) -> None:
    """Whatever the work of a row is: 2 ms a call, as of a model, were 5,000 calls for 5,000 rows."""
    calls = itertools.count()

    def predict(batch: pa.RecordBatch) -> pa.RecordBatch:
        next(calls)
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        return batch

    rows = pa.table({"x": range(20_000)})
    pipeline = od.Pipeline(rows.schema).map_batches(predict, schema=rows.schema)
    assert pipeline.run(rows, workers=workers).table.equals(rows)
    assert next(calls) < 1_000


def test_functions_of_arrow_are_called_for_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of a time zone's took 14 times as long in the chunks that they got, of 64 rows."""
    calls: list[int] = []
    array = ArrowCall.array

    def counting(self: ArrowCall, values: pa.Array) -> pa.Array:
        calls.append(len(values))
        return array(self, values)

    monkeypatch.setattr(ArrowCall, "array", counting)
    at = od.col("at").dt
    made = {"hour": at.hour(), "day": at.day(), "month": at.month(), "year": at.year(), "week": at.weekday()}
    times = pa.array(range(0, 200_000 * 61, 61)).cast(pa.timestamp("s", tz="Europe/Berlin"))
    pipeline = od.Pipeline({"at": times.type}).select(**made)
    calls.clear()
    pipeline.run(pa.table({"at": times}), workers=1)
    assert len(calls) < sum(calls) / 300


def test_which_operators_are_meant() -> None:
    x, s = od.col("x"), od.col("s")
    pipeline = (
        od.Pipeline({"x": int, "s": str})
        .with_columns(a=x + 1)
        .with_columns(b=s.str.replace("a", "b"))
        .filter(s.str.extract("(a+)").is_not_null())
        .map(lambda row: (row.x, row.s), schema={"x": int, "s": str})
        .key_by("x")
        .aggregate(n=od.count(where=s.str.extract("(b)") == "b"))
    )
    operators = physical(pipeline.plan, workers=2).operators
    assert [one.calls for one in operators] == [False, True, True, True, True]

"""Timed calls of a function: it gets the rows that it gets alone, and the key of each is kept."""

import itertools

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.columns_read import columns_read
from ordstream.operators.row_clock import RowClock, SomeCalls
from ordstream.testing import run_serial

NAMES = ["user", "a b", "__x__", "item", "more"]
SCHEMA = pa.schema([(name, pa.int64()) for name in NAMES])
ROWS = pa.table({name: range(k, k + 10) for k, name in enumerate(NAMES)}, schema=SCHEMA)


def by_name(row, state, emit):
    seen.append(row)
    emit(row.item)


def hands_on(row, state, emit):
    emit(looks(row))


def looks(row):
    return row.item


def narrow(row, state, emit):
    emit(row.item)


seen = []


@pytest.mark.parametrize(
    ("key", "fn", "read"),
    [
        (["user"], narrow, {"user", "item"}),
        (["item"], narrow, {"item"}),
        (["user", "more"], narrow, {"user", "item", "more"}),
        (["a b"], narrow, None),  # no name of a slot
        (["__x__", "user"], narrow, None),
        ([], narrow, {"item"}),
        (["user"], hands_on, None),
        (["user"], by_name, None),
    ],
)
def test_the_key_of_each_timed_row_is_kept(key, fn, read):
    times = itertools.count()
    clock = RowClock(lambda: next(times) / 2, NAMES, [NAMES.index(name) for name in key])
    pipeline = od.Pipeline(SCHEMA)
    keyed = pipeline.key_by(*key) if key else pipeline
    fields = {"item": pa.int64()}
    operator = keyed.process(fn, schema=fields).plan.operators[0]
    timed = operator.timing_rows(clock)
    assert columns_read(timed.fn, NAMES) == (None if read is None else {NAMES.index(one) for one in read})
    plan = keyed.process(timed.fn, schema=fields)
    assert plan.run(ROWS, workers=0).table.column("item").to_pylist() == ROWS["item"].to_pylist()
    assert clock.rows == [tuple(row[name] for name in key) for row in ROWS.to_pylist()]
    assert clock.seconds == [0.5] * 10


class Fourth(SomeCalls):
    def untimed(self):
        return 3


def kept(row):
    return row.item != 3


def mapped(row):
    return (row.item,)


FIELDS = {"item": pa.int64()}


@pytest.mark.parametrize(
    ("fn", "made"),
    [
        (narrow, lambda fn: od.Pipeline(SCHEMA).process(fn, schema=FIELDS)),
        (narrow, lambda fn: od.Pipeline(SCHEMA).key_by("user").process(fn, schema=FIELDS)),
        (mapped, lambda fn: od.Pipeline(SCHEMA).map(fn, schema=FIELDS)),
        (kept, lambda fn: od.Pipeline(SCHEMA).filter(fn)),
    ],
)
def test_of_some_calls_the_others_are_of_the_function_itself(fn, made):
    clock, calls = Fourth(lambda: 1.0, NAMES, [NAMES.index("item")]), []
    timed = made(fn).plan.operators[0].timing_rows(clock).fn
    itself = timed.untimed
    assert itself is fn
    timed.untimed = lambda *given: calls.append(0) or itself(*given)
    found = made(timed).run(ROWS, workers=0, chunk_rows=3).table
    assert found.equals(run_serial(made(fn), ROWS).table)
    assert clock.rows == [(item,) for item in ROWS["item"].to_pylist()[3::4]]
    assert len(calls) == ROWS.num_rows - len(clock.rows)

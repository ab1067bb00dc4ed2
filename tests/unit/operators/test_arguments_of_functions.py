"""A function that can't be called as its operator calls it is refused where the pipeline is written."""

from __future__ import annotations

import functools

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

DATA = pa.table({"k": [1, 2, 1], "x": [1, 2, 3]})
P = od.Pipeline(DATA.schema)
OUT = {"n": int}


def none():
    """No argument."""


def two(first, second):
    """Two."""


async def three_and_a_name(row, state, emit, *, name):
    """A name that nobody gives."""


class Made:
    """Called, not an instance of it."""

    def __call__(self, row, state, emit):
        emit(1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: P.map(two, schema=OUT),
            r"map_1: it is called as fn\(row\), and two\(first, second\) can't be",
        ),
        (lambda: P.flat_map(none, schema=OUT), r"fn\(row\), and none\(\) can't be: too many positional"),
        (lambda: P.filter(two), r"filter_1: .*fn\(row\).*missing a required argument: 'second'"),
        (lambda: P.inspect(none), r"inspect_1: .*fn\(row\)"),
        (lambda: P.map_batches(two, schema=OUT), r"fn\(batch\)"),
        (
            lambda: P.process(two, schema=OUT),
            r"process_1: it is called as fn\(row, state, emit\), and two\(",
        ),
        (lambda: P.process(Made, schema=OUT), r"fn\(row, state, emit\), and Made\(\) can't be"),
        (lambda: P.process(three_and_a_name, schema=OUT), "missing a required .*argument: 'name'"),
        (lambda: P.process(Made(), schema=OUT, on_flush=two), r"on_flush\(key, state, emit\)"),
        (lambda: P.process(Made(), schema=OUT, on_time=Made()), r"on_time\(key, state, time, emit\)"),
        (lambda: P.process(Made(), schema=OUT, on_timer=Made()), r"on_timer\(key, state, at, emit\)"),
        (lambda: P.process(Made(), schema=OUT, init=two), r"init\(\), and two"),
        (lambda: od.codec(none, len, dict), r"codec: it is called as encode\(state\)"),
        (lambda: od.codec(str.encode, two, dict), r"decode\(data\)"),
    ],
)
def test_it_is_refused(make, text):
    with pytest.raises(od.PlanError, match=text):
        make()


def test_it_would_drop_every_row():
    """What `on_error="skip"` made of it: no rows, and no error."""
    with pytest.raises(od.PlanError, match=r"fn\(row\)"):
        P.map(two, schema=OUT, on_error="skip")


def decorated(function):
    @functools.wraps(function)
    def called(row):
        return function(row, 10)

    return called


@decorated
def with_more(row, more):
    """What tools see of it takes two arguments; it takes one."""
    return (row.x + more,)


class Methods:
    def bound(self, row):
        return (row.x + 10,)

    @staticmethod
    def free(row, *, more=10):
        return (row.x + more,)


@pytest.mark.parametrize(
    "function",
    [
        with_more,
        Methods().bound,
        Methods.free,
        functools.partial(lambda more, row: (row.x + more,), 10),
        functools.lru_cache(lambda row: (row.x + 10,)),
        lambda *rows: (rows[0].x + 10,),
        lambda row, more=10: (row.x + more,),
    ],
)
def test_what_can_be_called_is_taken(function):
    pipeline = P.map(function, schema=OUT)
    rows = run_serial(pipeline, DATA).table.to_pylist()
    assert pipeline.run(DATA).table.to_pylist() == rows == [{"n": 11}, {"n": 12}, {"n": 13}]


def test_what_does_not_tell_its_arguments_is_left_to_the_run():
    assert P.map(dict, schema=OUT).schema.names == ["n"]

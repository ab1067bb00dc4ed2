"""Physical plans are made once for a plan, and die with it."""

import gc
import pickle
import weakref

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.plan import physical as module
from ordstream.plan.lanes import laid_out
from ordstream.plan.physical import physical
from ordstream.plan.rewrites import REWRITES

SOURCE = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us")), ("x", pa.int64())])


def line():
    return od.Pipeline(SOURCE).filter(od.col("x") > 0).key_by("k").count("n")


def graph():
    return od.union(*od.Pipeline(SOURCE).branch(od.col("x") > 0)).key_by("k").count("n")


def windows():
    return od.Pipeline(SOURCE).key_by("k").window(od.tumbling("1m"), time="ts").aggregate(n=od.count())


@pytest.fixture(params=[line, graph, windows])
def plan(request):
    return request.param().plan


def test_a_second_run_takes_what_the_first_one_made(plan, monkeypatch):
    first = physical(plan, workers=2)
    monkeypatch.setattr(module, "rewritten", None)
    again = physical(plan, workers=2)
    assert again.operators is first.operators
    assert again.plan is first.plan
    assert laid_out(plan) is laid_out(plan)


def test_what_is_asked_for_otherwise_is_another(plan):
    one = physical(plan, workers=2)
    for asked in ({"workers": 4}, {"workers": 2, "buckets": 3}, {"workers": 2, "chunk_rows": 5}):
        assert physical(plan, **asked).operators is not one.operators
    assert physical(plan, workers=4).workers == 4


def test_few_are_known_at_a_time(plan):
    for rows in range(1, 100):
        assert physical(plan, workers=1, chunk_rows=rows).plan.output == plan.output
        assert len(plan.made_of_it) <= module.MOST_KNOWN


@pytest.mark.parametrize("make", [line, graph, windows])
def test_a_plan_that_nobody_has_is_gone_at_once(make):
    """A table that it joins may be large; Python's collector comes when it likes."""
    plan = make().plan
    physical(plan, workers=1)
    physical(plan, workers=1, without=REWRITES)  # the plan as it is
    gone = weakref.ref(plan)
    gc.disable()
    try:
        del plan
        assert gone() is None
    finally:
        gc.enable()


def test_what_a_plan_knows_is_not_sent(plan):
    before = len(pickle.dumps(plan))
    physical(plan, workers=1)
    assert len(pickle.dumps(plan)) == before

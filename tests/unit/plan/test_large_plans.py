"""Plans of many operators, and of many columns: what they cost grows with them, and not faster."""

from __future__ import annotations

import math
import pickle
import time

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import SchemaError
from ordstream.ground.types import unique_names
from ordstream.operators.union import Union
from ordstream.pipeline.graph import _schemas, _site
from ordstream.plan.plan import SOURCE, Plan

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


class Edges(tuple):
    """Counts how often the edges are gone through."""

    rounds = 0

    def __iter__(self):
        self.rounds += 1
        return super().__iter__()


def diamonds(n):
    pipeline = od.Pipeline(SCHEMA)
    for i in range(n):
        high, low = pipeline.branch(od.col("x") > i)
        pipeline = od.union(high.with_columns(x=od.col("x") + 1), low)
    return pipeline


def with_counted_edges(plan):
    return Plan(plan.source, plan.operators, Edges(plan.edges))


def test_edges_are_gone_through_once_for_all_operators():
    plan = with_counted_edges(diamonds(20).plan)
    before = plan.edges.rounds
    for position in range(SOURCE, len(plan.operators)):
        plan.inputs(position)
        plan.producers(position)
        plan.consumers(position)
    assert plan.edges.rounds - before <= 2


def test_a_union_goes_through_the_edges_of_its_plans_once():
    first = with_counted_edges(diamonds(20).plan)
    second = with_counted_edges(diamonds(20).plan)
    before = first.edges.rounds, second.edges.rounds
    both = [first, second]
    Plan.together(both, Union.bind(_site(both, "union", None), _schemas(both)))
    assert max(first.edges.rounds - before[0], second.edges.rounds - before[1]) == 1


def test_what_was_found_of_the_edges_is_not_sent():
    plan = diamonds(3).plan
    fresh = len(pickle.dumps(plan.edges))
    edges = [plan.inputs(position) for position in range(len(plan.operators))]
    assert len(pickle.dumps(plan.edges)) == fresh
    assert vars(plan).keys() > plan.__getstate__().keys()
    again = Plan(**plan.__getstate__())
    assert [again.inputs(position) for position in range(len(again.operators))] == edges


class Name(str):
    """Counts how often names are compared."""

    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_names_are_not_compared_with_all_others():
    names = [Name(f"c{i}") for i in range(2_000)]
    Name.compared = 0
    unique_names(names, "here")
    assert Name.compared < 2 * len(names)
    with pytest.raises(SchemaError, match="here: duplicate column name\\(s\\) 'a', 'b'"):
        unique_names(["b", "a", "c", "b", "a", "a"], "here")


def wide(columns):
    names = [f"c{i}" for i in range(columns)]
    return pa.schema({"k": pa.int64(), "ts": pa.int64(), **dict.fromkeys(names, pa.int64())})


def joined(schema):
    left, right = od.Pipeline(schema).branch(od.col("c1") > 0)
    return left.join_asof(right, on="k", time="ts")


def looked_up(schema):
    table = schema.empty_table().rename_columns({"ts": "at"})
    return od.Pipeline(schema).join_lookup(table, on="k")


def explained(schema):
    return od.Pipeline(schema).select(*(name for name in schema.names if name != "ts")).explain()


@pytest.mark.parametrize("make", [joined, looked_up, explained])
def test_columns_cost_what_they_are_many(make):
    """CPU of four times the columns: up to 16 times as much when each was looked up among all, now 4."""
    spent = []
    for columns in (1_000, 4_000):
        schema, best = wide(columns), math.inf
        for _ in range(3):
            before = time.process_time()
            make(schema)
            best = min(best, time.process_time() - before)
        spent.append(best)
    assert spent[1] < 9 * spent[0], spent

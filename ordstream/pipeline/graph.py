"""Pipelines that go on from one and come together again: `od.union`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.operators.arguments import nonempty
from ordstream.operators.operator import Site
from ordstream.operators.union import Union
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan


def union(*pipelines: Pipeline, name: str | None = None) -> Pipeline:
    """The tuples of several pipelines of one graph, in one order.

    By order tag: what an earlier tuple of the source caused comes first. Tuples caused by one tuple of the
    source come in the order of what caused them at the branch point: where the pipelines parted. What one
    tuple there caused comes in the order of the call. So `od.union(*p.branch(predicate))` is `p`, and
    `od.union(p, p)` has each tuple of `p` twice.

    Parameters
    ----------
    *pipelines : Pipeline
        With the same columns: names, types, order. A pipeline may be given several times.
    name : str, optional
        Of the operator.

    Raises
    ------
    SchemaError
        They have other columns.
    PlanError
        They do not go on from one source; none is given.
    """
    plans = _plans(pipelines, "union")
    if len(plans) == 1:
        return pipelines[0]
    return Pipeline.of(Plan.together(plans, Union.bind(_site(plans, "union", name), _schemas(plans))))


def _plans(pipelines: tuple[Pipeline, ...], where: str) -> list[Plan]:
    given: tuple[Any, ...] = pipelines
    wrong = [one for one in given if not isinstance(one, Pipeline)]
    if wrong or not pipelines:
        what = repr(wrong[0]) if wrong else "none"
        raise PlanError(f"{where} takes pipelines, such as those that branch gives; got {what}")
    return [pipeline.plan for pipeline in pipelines]


def _schemas(plans: list[Plan]) -> list[pa.Schema]:
    return [plan.output for plan in plans]


def _site(plans: list[Plan], op: str, name: str | None) -> Site:
    """Where an operator of several inputs is put: behind all of their operators."""
    operators = {id(operator): operator for plan in plans for operator in plan.operators}
    chosen = f"{op}_{len(operators) + 1}" if name is None else nonempty(name, op)
    if any(operator.name == chosen for operator in operators.values()):
        raise PlanError(f"two operators are named {chosen!r}; names must be unique in a pipeline")
    return Site(plans[0].output, chosen)

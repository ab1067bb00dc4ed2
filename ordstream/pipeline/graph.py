"""Pipelines that go on from one and come together again: `od.union`, and the tagged lane of joins."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.operators.arguments import nonempty
from ordstream.operators.operator import Site
from ordstream.operators.union import From, Union
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan

#: Of the column that says which input of `tagged` a row comes from.
SIDE = "side"


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


def tagged(left: Pipeline, right: Pipeline, name: str | None = None) -> Pipeline:
    """The tuples of two pipelines of one graph as one stream that an operator of two inputs takes.

    Columns: `side` (bool, without nulls: true of the left's tuples), the left's columns under their names,
    the right's under theirs where these are free, else with "_right" (and a number where that is taken).
    Columns of the other side are null. The order is that of `union`.

    Parameters
    ----------
    left, right : Pipeline
        May be the same.

    Raises
    ------
    PlanError
        They do not go on from one source.
    """
    plans = _plans((left, right), "join")
    schemas = _schemas(plans)
    fields = [pa.field(_free(SIDE, schemas[0].names), pa.bool_(), nullable=False)]
    fields += [field.with_nullable(True) for field in schemas[0]]
    for field in schemas[1]:
        fields.append(field.with_name(_free(field.name, [f.name for f in fields])).with_nullable(True))
    here, there = range(len(schemas[0])), range(len(schemas[1]))
    columns: list[list[From]] = [
        ["told", *here, *(None for _ in there)],
        ["told", *(None for _ in here), *there],
    ]
    site = _site(plans, "tagged", name)
    return Pipeline.of(Plan.together(plans, Union.of(site, schemas, pa.schema(fields), columns, (1, 0))))


def _free(name: str, taken: list[str]) -> str:
    if name not in taken:
        return name
    number = 1
    while (found := f"{name}_right{number if number > 1 else ''}") in taken:
        number += 1
    return found


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

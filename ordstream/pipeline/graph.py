"""Pipelines that go on from one and come together again: `od.union`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa

from ordstream.errors import PlanError, SchemaError, shown
from ordstream.expressions.expr import col, lit
from ordstream.ground.choices import is_one_of
from ordstream.ground.imported import has_schema
from ordstream.operators.arguments import nonempty
from ordstream.operators.operator import Site
from ordstream.operators.union import Union
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan

HOW = ("vertical", "diagonal")


def union(
    *pipelines: Pipeline, how: Literal["vertical", "diagonal"] = "vertical", name: str | None = None
) -> Pipeline:
    """The tuples of several pipelines of one graph, in one order.

    By order tag: what an earlier tuple of the source caused comes first. Tuples caused by one tuple of the
    source come in the order of what caused them at the branch point: where the pipelines parted. What one
    tuple there caused comes in the order of the call. So `od.union(*p.branch(predicate))` is `p`, and
    `od.union(p, p)` has each tuple of `p` twice.

    Parameters
    ----------
    *pipelines : Pipeline
        A pipeline may be given several times.
    how : "vertical" or "diagonal"
        "vertical": all have the same columns: names, types, order. "diagonal": a column that one of them has
        not is null in its tuples; columns come in the order in which they are first met, and those of one
        name have one type.
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
    if not is_one_of(how, HOW):
        raise PlanError(f"union: how is one of {', '.join(map(repr, HOW))}, got {how!r:.100}")
    if how == "diagonal":
        pipelines = tuple(_with_all_columns(pipelines))
        plans = [one.plan for one in pipelines]
    if len(plans) == 1:
        return pipelines[0]
    return Pipeline.of(Plan.together(plans, Union.bind(_site(plans, "union", name), _schemas(plans))))


def _with_all_columns(pipelines: Sequence[Pipeline]) -> Iterator[Pipeline]:
    """Pipelines with the columns of all of them, in the order in which these are first met."""
    fields: dict[str, pa.Field] = {}
    for pipeline in pipelines:
        for field in pipeline.schema:
            known = fields.setdefault(field.name, field)
            if known.type != field.type:
                raise SchemaError(
                    f"union: {field.name!r} is {known.type} in one pipeline and {field.type} in another: "
                    f"od.col({field.name!r}).cast(...) in one of them"
                )
    for pipeline in pipelines:
        names = pipeline.schema.names
        if names == [*fields]:
            yield pipeline
        else:
            missing = [field for field in fields.values() if field.name not in names]
            nulls = {field.name: lit(None).cast(field.type).alias(field.name) for field in missing}
            yield pipeline.select(*(nulls.get(name, col(name)) for name in fields))


def _plans(pipelines: tuple[Pipeline, ...], where: str) -> list[Plan]:
    given: tuple[Any, ...] = pipelines
    wrong = [one for one in given if not isinstance(one, Pipeline)]
    if wrong or not pipelines:
        one = wrong[0] if wrong else None
        what = "none" if not wrong else type(one).__name__ if has_schema(one) else shown(one)
        raise PlanError(
            f"{where} takes pipelines, such as those that branch gives, a list of them behind a star, *; "
            f"got {what}"
        )
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

"""Expressions in aggregations: columns that one projection computes in front of the operator.

`od.sum(od.col("price") * od.col("n"))` is the sum of a column that nobody else sees. It is called as the
expression is written, so that `describe` and a stored state tell it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Column, Expr
from ordstream.expressions.lowering import lower
from ordstream.operators.aggregation import Aggregation
from ordstream.operators.operator import Operator, Site
from ordstream.operators.project import Project


def _same(one: Any, other: Any) -> bool:
    """Whether code says the same, also where NaN or tables to look up are in it."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    nothing = one != one and other != other  # NaN
    return type(one) is type(other) and bool(one == other or nothing)


class ComputedColumns:
    """The columns that the expressions of an operator's aggregations need.

    Parameters
    ----------
    site : Site
        Of the operator.
    named, keywords : sequence, mapping
        What it was given; anything but aggregations is passed over.

    Raises
    ------
    SchemaError
        As `lower`, in the name of the operator.
    """

    def __init__(self, site: Site, named: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        self.site = site
        self._named, self._keywords = named, keywords
        self._columns: list[tuple[str, BoundExpr, Expr]] = []
        given = [one for one in (*named, *keywords.values()) if isinstance(one, Aggregation)]
        self._taken = {*site.schema.names, *keywords, *(one.name for one in given)}
        for one in given:
            for expr in (one.expr, one.by_expr):
                if expr is not None:
                    self._name(expr)

    def __bool__(self) -> bool:
        return bool(self._columns)

    def _name(self, expr: Expr) -> str:
        """The column of an expression. Equal ones have one."""
        bound = lower(expr, self.site.schema, self.site.name)
        for name, other, _ in self._columns:
            same = other.text == bound.text and other.arrow.equals(bound.arrow)
            if same and _same(other.code, bound.code):
                return name
        name = bound.text
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self._columns.append((name, bound, expr))
        return name

    def front(self, name: str) -> Project:
        """What computes them behind the columns that arrive; `name`: its own, but errors are told of the
        operator.
        """
        columns: list[tuple[str, Any]] = [(column, Column(column)) for column in self.site.schema.names]
        columns += [(column, expr) for column, _, expr in self._columns]
        site = replace(self.site, key=(), partition="hash", buckets=None)
        return Project.bind(site, columns).changed(name=name)

    def behind(self, front: Operator) -> Site:
        """Where the operator is put then."""
        return replace(self.site, schema=front.output, before=(*self.site.before, front))

    def over_columns(self) -> tuple[list[Any], dict[str, Any]]:
        """What the operator was given, by position and by keyword, as aggregations of columns only."""
        keywords = {name: self._over_columns(one) for name, one in self._keywords.items()}
        return [self._over_columns(one) for one in self._named], keywords

    def _over_columns(self, one: Any) -> Any:
        if not isinstance(one, Aggregation):
            return one
        column = one.column if one.expr is None else self._name(one.expr)
        return replace(one, column=column, by=one.by if one.by_expr is None else self._name(one.by_expr))

    def dropped(self, operator: Operator, name: str) -> Project | None:
        """What leaves these columns out behind the operator; None: it does not show them."""
        first = len(self.site.schema)
        passed = operator.columns_passed()
        kept = [
            (column, Column(column))
            for place, column in enumerate(operator.output.names)
            if passed.get(place, 0) < first
        ]
        if len(kept) == len(operator.output):
            return None
        return Project.bind(Site(operator.output, operator.name), kept).changed(name=name)

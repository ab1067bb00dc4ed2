"""What the built-in operators without a state mean, one row at a time."""

from __future__ import annotations

from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.reference.base import Row, SerialOperator, normal, sort_key


def true_of(program: BoundExpr | None, row: Row) -> bool:
    """Whether a condition is True (not False, not null) for a row; no condition is true of every row."""
    return program is None or evaluate_row(program, row) is True


class Filter(SerialOperator):
    """Keeps the rows for which the program gives True (not False, not null)."""

    def process(self, row: Row) -> list[Row]:
        return [row] if evaluate_row(self.params["program"], row) is True else []


class Project(SerialOperator):
    """One output column per entry: an input column passed through, or the value of a program; rows without
    `where` only.
    """

    def process(self, row: Row) -> list[Row]:
        if not true_of(self.params["where"], row):
            return []
        return [tuple(evaluate_row(c, row) if isinstance(c, BoundExpr) else row[c] for c in self.params["columns"])]


class ListPairs(SerialOperator):
    """(D[i], D[j]) for i < j, where D holds the sorted distinct non-null elements of a list; or, where D holds
    the anchor, (x, anchor) for its other elements.
    """

    def process(self, row: Row) -> list[Row]:
        elements = {sort_key([e]): normal(e) for e in row[self.params["column"]] or () if e is not None}
        distinct = [elements[key] for key in sorted(elements)]
        carried = tuple(row[index] for index in self.params["carry"])
        anchor = normal(self.params["anchor"])
        if anchor is None:
            return [(*carried, a, b) for i, a in enumerate(distinct) for b in distinct[i + 1 :]]
        if sort_key([anchor]) not in elements:
            return []
        return [(*carried, x, anchor) for x in distinct if sort_key([x]) != sort_key([anchor])]


class ListExplode(SerialOperator):
    """One row per element of a list, in order; nulls among them stay."""

    def process(self, row: Row) -> list[Row]:
        carried = tuple(row[index] for index in self.params["carry"])
        return [(*carried, element) for element in row[self.params["column"]] or ()]

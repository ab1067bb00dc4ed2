"""What to write for a name that this package has not: others have functions where we have methods."""

from __future__ import annotations

from collections.abc import Sequence

from ordstream.errors import meant
from ordstream.expressions.expr import Column
from ordstream.expressions.synonyms import advice


def advice_of_package(name: str, there: Sequence[str]) -> str:
    """What to write instead of `od.name`, or which of the names `there` is like it, with a separator in
    front; empty for other names.
    """
    return advice(name, "od") or _behind_a_column(name) or meant(name, there)


def _behind_a_column(name: str) -> str:
    """Where PySpark has a function of a column, such as `lower`, an expression has a method."""
    column = Column("name")
    homes = {"": column, "str": column.str, "dt": column.dt, "list": column.list}
    for family, home in homes.items():
        if callable(getattr(type(home), name, None)):
            return f": write it behind a column: od.col(name){family and '.'}{family}.{name}(...)"
    words = (advice(name, family) for family in homes)
    return next((f": behind a column, {one[2:]}" for one in words if one.startswith(": write")), "")

"""Checks of what users pass to operators: names, columns, whole numbers. One message per
mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ordstream.errors import OrdstreamError, PlanError, SchemaError, shown
from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Column, Expr
from ordstream.expressions.lowering import lower
from ordstream.expressions.synonyms import instead_of_constant, is_uncalled
from ordstream.ground.choices import gone_through, is_one_of, is_text
from ordstream.ground.numbers import as_int
from ordstream.ground.packed_types import is_packed_list
from ordstream.ground.types import INT64_MAX, column_index, is_list, key_type, unique_names

MOST_KEY_COLUMNS = 64

#: Most buckets of a partitioned operator.
MOST_BUCKETS = 65_535

#: Columns with the names that they get in the output, or that keep their names.
Columns = Mapping[str, str] | Sequence[str]


def column_name(column: Any, where: str = "") -> str:
    """The name of a column given by its name or as `od.col(name)`; `where`: of the operator."""
    name = column.name if isinstance(column, Column) else column
    if not isinstance(name, str):
        computed = "; compute it first: .with_columns(name=...)" if isinstance(column, Expr) else ""
        raise SchemaError(f"{where and f'{where}: '}a column name is needed, got {column!r}{computed}")
    return name


def flat(columns: Sequence[Any]) -> Sequence[Any]:
    """The columns of `f("a", "b")`, also where they were given as one list, `f(["a", "b"])`."""
    return columns[0] if len(columns) == 1 and isinstance(columns[0], list | tuple) else columns


def column_names(columns: Any, where: str = "") -> tuple[str, ...]:
    """Names of columns given by their names or as expressions, one or several; `where`: of the operator."""
    if isinstance(columns, str | Expr):
        return (column_name(columns, where),)
    several = elements(columns, f"{where and f'{where}: '}column names are needed")
    return tuple(column_name(column, where) for column in several)


def elements(given: Any, told: str, error: type[OrdstreamError] = SchemaError) -> tuple[Any, ...]:
    """What is in a sequence or an iterator. A set has no order, a mapping says more than its keys, and the
    elements of bytes are numbers: these are refused.

    Parameters
    ----------
    given : Any
        What was passed.
    told : str
        What is needed, for the error.
    error : type
        Of the error.
    """
    if not isinstance(given, str | bytes | bytearray | memoryview | Mapping | set | frozenset):
        several = gone_through(given)
        if several is not None:
            return tuple(several)
    raise error(f"{told}, got {shown(given)}")


def named_columns(columns: Columns | str | None, where: str) -> Mapping[str, str]:
    """Output name -> column, of a mapping or of columns that keep their names."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        return columns
    names = column_names(columns, where)
    unique_names(names, where)
    return {name: name for name in names}


def key_columns(schema: pa.Schema, columns: Sequence[Any], where: str) -> tuple[int, ...]:
    """Indexes of key columns: at least one, no duplicates, of types that can be keys."""
    names = [column.name if isinstance(column, Column) else column for column in columns]
    indexes = tuple(column_index(schema, name, where) for name in names)
    if not indexes:
        raise PlanError(f"{where}: at least one key column is needed")
    if len(indexes) > MOST_KEY_COLUMNS:
        raise PlanError(f"{where}: at most {MOST_KEY_COLUMNS} key columns, got {len(indexes)}")
    unique_names(names, where)
    for index in indexes:
        key_type(schema.field(index).type, schema.field(index).name, where)
    return indexes


def distinct_columns(schema: pa.Schema, columns: Sequence[Any], where: str) -> tuple[int, ...]:
    """Indexes of columns, given by their names or as `od.col(name)`; SchemaError where one comes twice."""
    indexes = tuple(column_index(schema, column, where) for column in columns)
    unique_names([schema.names[index] for index in indexes], where)
    return indexes


def beside_own(added: Sequence[pa.Field], own: Sequence[str], where: str) -> None:
    """SchemaError where a column that the user names has the name of one of the operator's own."""
    if taken := sorted({field.name for field in added if field.name in own}):
        raise SchemaError(
            f"{where}: duplicate column name(s) {', '.join(map(repr, taken))}: the operator's own columns "
            f"{', '.join(own)} are in the output, too; give what is added another name"
        )


def list_column(schema: pa.Schema, column: str, where: str) -> tuple[int, pa.DataType]:
    """Index and element type of a list column."""
    index = column_index(schema, column, where)
    type_ = schema.field(index).type
    if not is_list(type_) and not is_packed_list(type_):
        raise SchemaError(f"{where}: column {column!r} must be a list, it is {type_}")
    return index, type_.value_type


def condition(expr: Any, schema: pa.Schema, where: str) -> BoundExpr:
    """A condition lowered on a schema.

    Raises
    ------
    SchemaError
        It is no boolean expression.
    """
    if not isinstance(expr, Expr):
        instead = ""
        if isinstance(expr, str):
            instead = ", which is a text: a condition is written od.col('x') > 1"
        elif is_uncalled(expr):
            instead = instead_of_constant(expr)
        elif callable(expr):
            instead = ": compute a column in front, map(function, schema=...), and take od.col of it"
        raise SchemaError(f"{where}: a boolean expression is needed, got {shown(expr)}{instead}")
    bound = lower(expr, schema, where)
    if bound.type != "bool":
        raise SchemaError(f"{where}: a boolean expression is needed, {expr!r} is {bound.arrow}")
    return bound


def where_text(bound: BoundExpr | None) -> str:
    """ " where x > 0" for `describe`, or nothing."""
    return "" if bound is None else f" where {bound.text}"


def columns_of(*bound: Any) -> set[int]:
    """Input columns that bound expressions read; anything else among the arguments is passed over."""
    return {index for one in bound if isinstance(one, BoundExpr) for index in one.columns()}


def given(*indexes: int | None) -> set[int]:
    """The indexes that are not None."""
    return {index for index in indexes if index is not None}


def nonempty(name: Any, where: str) -> str:
    """The name if it is a non-empty str; PlanError otherwise. Of a class made of str, such as NumPy's, the
    plain str, which the core takes.
    """
    if not isinstance(name, str) or not name:
        raise PlanError(f"{where}: a name must be a non-empty str, got {shown(name)}")
    if not is_text(name):
        raise PlanError(f"{where}: a name must be text, {name!r} has half of a surrogate pair")
    return str.__str__(name)


def positive_int(value: Any, what: str, most: int = INT64_MAX) -> int:
    """The value if it is an int of at least 1 and at most `most`; PlanError naming it otherwise."""
    value = as_int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PlanError(f"{what} must be an int of at least 1, got {shown(value, 80)}")
    if value > most:
        raise PlanError(f"{what} must be at most {most}, got {value!r}")
    return value


def distance(n: Any, where: str, most: int) -> int:
    """`n` of an operator that looks n rows away; a second column in its place is told."""
    if isinstance(n, str | Expr):
        raise PlanError(f"{where}: n must be an int, got {n!r}; several columns are given as a list")
    return positive_int(n, f"{where}: n", most)


def count_bound(value: Any, what: str) -> int:
    """The value if it is an int that a count can be compared with; PlanError naming it otherwise."""
    value = as_int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INT64_MAX:
        raise PlanError(f"{what} must be an int of at least 0, got {value!r}")
    return value


def emission(emit: Any, allowed: Sequence[str], where: str) -> None:
    """PlanError unless `emit` is one of the modes of the operator."""
    if not is_one_of(emit, allowed):
        modes = " or ".join(map(repr, allowed))
        raise PlanError(f"{where}: emit must be {modes}, got {emit!r}")

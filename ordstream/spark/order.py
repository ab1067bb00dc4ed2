"""What `order_by` asks for: names, and Spark's columns with their directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    DataType,
    StringType,
    YearMonthIntervalType,
)

from ordstream.errors import PlanError, SchemaError, unknown_column
from ordstream.spark.names import find_column, is_case_sensitive
from ordstream.spark.quiet import unlogged

OrderBy = str | Column | Sequence[str | Column]


@dataclass(frozen=True)
class OrderKey:
    """One column of an order over a frame.

    Attributes
    ----------
    place : int or None
        Of the column in the frame; None: it is computed.
    computed : Column or None
        What is computed.
    name : str
        Of the column; of a computed one its text.
    descending, nulls_last : bool
    """

    place: int | None
    computed: Column | None
    name: str
    descending: bool = False
    nulls_last: bool = False

    def __str__(self) -> str:
        """As the order is told to a reader."""
        nulls = (
            "" if self.nulls_last == self.descending else f" nulls {'last' if self.nulls_last else 'first'}"
        )
        return f"{self.name}{' desc' if self.descending else ''}{nulls}"


def order_names(order_by: Any) -> tuple[str, ...]:
    """The names, and for what is no name the text, of what `order_by` holds.

    Raises
    ------
    PlanError
        If it holds something else than names and Spark's columns.
    """
    return tuple(
        item if isinstance(item, str) else _text(_taken_apart(item)[0]) for item in _items(order_by)
    )


def order_keys(order_by: Any, df: DataFrame) -> tuple[OrderKey, ...]:
    """What `order_by` asks for of a frame.

    A name, and a column without a direction, is ascending with NULL first, as in Spark's own `orderBy`.

    Raises
    ------
    PlanError
        If it holds something else than names and Spark's columns, or rows can't be checked by one.
    SchemaError
        If the frame has no such column, or several.
    """
    return tuple(_key(item, df) for item in _items(order_by))


def _items(order_by: Any) -> list[Any]:
    items = list(order_by) if isinstance(order_by, list | tuple) else [order_by]
    # od.col("ts") names a column too
    items = [getattr(item, "column_name", item) if not isinstance(item, Column) else item for item in items]
    if not all(isinstance(item, str | Column) for item in items):
        raise PlanError(
            "order_by takes the name of a column, a column of Spark's (F.col('a'), F.desc('a'), "
            f"F.col('a').asc_nulls_last()), or a list of these; got {order_by!r}"
        )
    return items


def _key(item: str | Column, df: DataFrame) -> OrderKey:
    if isinstance(item, str):
        place = find_column(item, df.columns, is_case_sensitive(df), "the DataFrame")
        _check_type(item, df.schema.fields[place].dataType)
        return OrderKey(place, None, item)
    column, descending, nulls_last = _taken_apart(item)
    if _is_constant(column):
        text = _text(column).strip("'")  # classic Spark puts some around a text
        meant = f": F.lit is a constant; write F.col({text!r})" if text in df.columns else ""
        raise PlanError(f"order_by: {text} is the same in all rows, so it orders none{meant}")
    with unlogged():
        try:
            (field,) = df.select("*", column).schema.fields[len(df.columns) :]
        except AnalysisException as error:
            name = _plain_name(column)
            if name is not None:
                raise unknown_column(name, df.columns, "the DataFrame") from error
            raise SchemaError(f"order_by: {str(error).splitlines()[0]}") from error
        except ValueError as error:
            raise PlanError(f"order_by: {_text(column)} is not one column") from error
    at = _place(column, df)
    name = field.name if at is None else df.columns[at]
    _check_type(name, field.dataType)
    if at is None:
        _check_sorted_by(column, df)
    return OrderKey(at, column if at is None else None, name, descending, nulls_last)


def _check_sorted_by(column: Column, df: DataFrame) -> None:
    """Raise SchemaError for what Spark itself sorts no rows by: `explode` makes several rows of one."""
    with unlogged():
        try:
            # Spark Connect knows the schema of what is only sorted, and does not ask the server
            df.orderBy(column).select(F.lit(1)).schema  # noqa: B018
        except AnalysisException as error:
            raise SchemaError(f"order_by: {str(error).splitlines()[0]}") from error


def _check_type(name: str, kind: DataType) -> None:
    """Raise PlanError for what rows can't be compared by in a node."""
    if isinstance(kind, StringType) and not kind.isUTF8BinaryCollation():
        raise PlanError(
            f"order_by: {name!r} has the collation {kind.collation}, and a node compares texts by their "
            f"bytes: order by F.collate('{name}', 'UTF8_BINARY'), or by what the collation stands for, such "
            f"as F.lower(F.collate('{name}', 'UTF8_BINARY'))"
        )
    if not isinstance(kind, AtomicType) or isinstance(kind, YearMonthIntervalType) or _is_odd(kind):
        raise PlanError(
            f"order_by: {name!r} is {kind.simpleString():.80}, by which a node can't compare rows: order by "
            "columns of plain values (of a struct: its fields, F.col('s.a'))"
        )


def _is_odd(kind: DataType) -> bool:
    return kind.typeName() in ("variant", "geometry", "geography", "interval", "void")


# ------------------------------------------------------------------------------- inside a column


def _taken_apart(column: Column) -> tuple[Column, bool, bool]:
    """The column without its direction; whether it descends; whether NULL comes last."""
    made: Any = type(column)
    inside = vars(column)
    if "_jc" in inside:
        node = inside["_jc"].node()
        if node.getClass().getSimpleName() != "SortOrder":
            return column, False, False
        descending = node.sortDirection().sql().startswith("DESC")
        nulls_last = node.nullOrdering().sql().endswith("LAST")
        return made(_java_column(node.child())), descending, nulls_last
    expression = inside["_expr"]
    if type(expression).__name__ != "SortOrder":
        return column, False, False
    return made(expression._child), not expression._ascending, not expression._nullsFirst


def _is_constant(column: Column) -> bool:
    """Whether it is a literal. Its text may be the name of a column."""
    inside = vars(column)
    if "_jc" in inside:
        return bool(inside["_jc"].node().getClass().getSimpleName() == "Literal")
    return type(inside["_expr"]).__name__ == "LiteralExpression"


def _java_column(node: Any) -> Any:
    from pyspark.sql.utils import get_active_spark_context

    jvm: Any = get_active_spark_context()._jvm
    return jvm.org.apache.spark.sql.Column(node)


def _place(column: Column, df: DataFrame) -> int | None:
    """Which column of the frame a column is; None: it is computed, or Spark can't be asked."""
    if "_jc" in vars(column):
        try:
            chosen = df.select(column)._jdf.queryExecution().analyzed().projectList().head()
            own = df._jdf.queryExecution().analyzed().output()
            ids = [own.apply(number).exprId() for number in range(own.size())]
            found = [number for number, one in enumerate(ids) if one.equals(chosen.exprId())]
        except Exception:  # an expression has no exprId before it has a name; or another version of Spark
            return None
        return found[0] if len(found) == 1 else None
    name = _plain_name(column)
    if name is None or name not in df.columns or df.columns.count(name) > 1:
        return None
    return df.columns.index(name)


def _plain_name(column: Column) -> str | None:
    """The name that a column stands for, where it is one without dots and backticks."""
    name = _text(column)
    return None if set("`.() ") & set(name) else name


def _text(column: Column) -> str:
    """ "a" of Column<'a'>."""
    return repr(column).removeprefix("Column<'").removesuffix("'>")

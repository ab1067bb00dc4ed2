"""What stands behind `expression.struct`: fields of structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError, unknown_column
from ordstream.ground.packed_types import is_packed, packed_format
from ordstream.ground.types import (
    is_binary,
    is_counted,
    is_string,
    is_wide,
    physical_type,
    to_storage,
)

if TYPE_CHECKING:
    from ordstream.expressions.expr import Expr


class Structs:
    """Functions of structs."""

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def field(self, name: str) -> Expr:
        """A field of a struct, null where the struct is; `.struct[name]` is the same.

        A field that is a number, text, bytes, time or bool can be computed with. Fields of fields:
        `.struct.field("a").struct.field("b")`.

        Parameters
        ----------
        name : str
        """
        if not isinstance(name, str):
            raise SchemaError(f"struct.field: a field has a name, got {name!r:.100}")
        return self._apply("struct.field", self._expr, option=name)

    def __getitem__(self, name: str) -> Expr:
        return self.field(name)


def path_of(expr: Any) -> tuple[Any, list[str]]:
    """What a chain of `struct.field` begins with, and the names on the way."""
    names: list[str] = []
    while getattr(expr, "function", None) == "struct.field":
        names.insert(0, expr.option)
        (expr,) = expr.arguments
    return expr, names


def field_instruction(
    index: int, column: pa.Field, names: list[str]
) -> tuple[tuple[Any, ...], str, pa.DataType]:
    """The instruction that loads a field, the class of its value, and its type.

    Raises
    ------
    SchemaError
        There is no such field, or it is nothing that is computed with; without the operator's name.
    """
    type_, text, path = column.type, repr(column.name), []
    for name in names:
        if not pat.is_struct(type_):
            raise SchemaError(f"struct.field({name!r}) is for structs, {text} is {type_}")
        places = [place for place, one in enumerate(type_) if one.name == name]
        if len(places) != 1:
            known = [one.name for one in type_]
            if places:
                raise SchemaError(f"{text} has {len(places)} fields {name!r}")
            raise SchemaError(str(unknown_column(name, known, f"{text} (its fields)")))
        path.append(places[0])
        type_, text = type_.field(places[0]).type, f"{text}.{name}"
    leaf = _leaf(type_)
    if leaf is None:
        raise SchemaError(f"{text} is {type_}: it can be passed through as a part, not computed with")
    vm = str(physical_type(type_, text).vm)
    format_ = packed_format(column.type)
    return (f"field_{vm}", index, tuple(path), format_, leaf, (tuple(names), type_)), vm, type_


def _leaf(type_: pa.DataType) -> str | None:
    if is_string(type_) or is_binary(type_):
        return "text"
    if is_packed(type_) or pat.is_nested(type_) or pat.is_uint64(type_):
        return None
    if is_counted(type_) or is_wide(type_):
        return "counted" if is_counted(type_) else "wide"
    if pat.is_boolean(type_):
        return "bool"
    if pat.is_floating(type_):
        return "float"
    return "uint" if pat.is_unsigned_integer(type_) else "int"


def field_value(row: Any, operands: tuple[Any, ...]) -> Any:
    """What a field's instruction loads of a row: the definition."""
    index, _, _, _, (names, type_) = operands
    value = row[index]
    for name in names:
        if value is None:
            return None
        value = value[name]
    value = to_storage(value, type_, names[-1])
    return value.encode() if isinstance(value, str) else value

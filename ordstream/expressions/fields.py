"""What stands behind `expression.struct`: fields of structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError, unknown_column
from ordstream.expressions.synonyms import advice
from ordstream.ground.packed_types import is_core_list, is_packed, packed_format
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

    def __repr__(self) -> str:
        return f"{self._expr!r}.struct"

    def field(self, name: str) -> Expr:
        """A field of a struct, null where the struct is; `.struct[name]` is the same.

        A field that is a number, text, bytes, time or bool can be computed with. One that is a struct or a
        list passes as a column; fields of fields are `.struct.field("a").struct.field("b")`, elements
        `.struct.field("a").list.get(0)`.

        Parameters
        ----------
        name : str
        """
        if not isinstance(name, str):
            raise SchemaError(f"struct.field: a field has a name, got {name!r:.100}")
        return self._apply("struct.field", self._expr, option=name)

    def __getitem__(self, name: str) -> Expr:
        return self.field(name)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            where = ""
            if not name.startswith("_"):  # what Python and other libraries look for
                where = advice(name, "struct") or f": a field is .struct.field({name!r})"
            raise AttributeError(f"`.struct` has no {name!r}{where}", name=name, obj=self)


def path_of(expr: Any) -> tuple[Any, list[str]]:
    """What a chain of `struct.field` begins with, and the names on the way."""
    names: list[str] = []
    while getattr(expr, "function", None) == "struct.field":
        names.insert(0, expr.option)
        (expr,) = expr.arguments
    return expr, names


def _found(type_: pa.DataType, names: list[str], text: str) -> tuple[tuple[int, ...], pa.DataType, str]:
    """The places of a field on the way from a type, its type, and how it is written.

    Raises
    ------
    SchemaError
        There is no such field, or nothing is made of its type; without the operator's name.
    """
    path = []
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
    if pat.is_uint64(type_):
        raise SchemaError(f"{text} is {type_}: it can be passed through as a part, not computed with")
    return tuple(path), type_, text


def field_instruction(
    index: int, column: pa.Field, names: list[str]
) -> tuple[tuple[Any, ...], str, pa.DataType]:
    """The instruction that loads a field of a column, the class of its value, and its type.

    Raises
    ------
    SchemaError
        As `_found`.
    """
    path, type_, text = _found(column.type, names, repr(column.name))
    vm = class_of(type_, text)
    format_ = packed_format(column.type)
    return (f"field_{vm}", index, path, format_, leaf_of(type_), (tuple(names), type_)), vm, type_


def part_instruction(
    type_: pa.DataType, text: str, names: list[str]
) -> tuple[tuple[Any, ...], str, pa.DataType]:
    """The same for a field of a struct on the stack, which is of this type, and written as `text`."""
    path, found, where = _found(type_, names, text)
    vm = class_of(found, where)
    return (f"part_{vm}", packed_format(type_), leaf_of(found), path, (tuple(names), found)), vm, found


def class_of(type_: pa.DataType, text: str) -> str:
    """Class on the stack of a part of a packed value; a part that is packed or a list is a packed value."""
    return "view" if is_packed(type_) or is_core_list(type_) else str(physical_type(type_, text).vm)


def leaf_of(type_: pa.DataType) -> str:
    """How the bytes of a part become a value (`_core/ground/packed_parts.hpp`)."""
    if is_string(type_) or is_binary(type_):
        return "text"
    if is_packed(type_) or is_core_list(type_):
        return "packed"
    if is_counted(type_) or is_wide(type_):
        return "counted" if is_counted(type_) else "wide"
    if pat.is_boolean(type_):
        return "bool"
    if pat.is_floating(type_):
        return "float"
    return "uint" if pat.is_unsigned_integer(type_) else "int"


def on_stack(value: Any, type_: pa.DataType) -> Any:
    """A part of a packed value as the reference has it on its stack."""
    if is_core_list(type_) or is_packed(type_):
        return value
    value = to_storage(value, type_, "part")
    return value.encode() if isinstance(value, str) else value


def field_value(row: Any, operands: tuple[Any, ...]) -> Any:
    """What a field's instruction loads of a row: the definition."""
    index, _, _, _, names = operands
    return part_of(row[index], names)


def part_of(value: Any, way: tuple[tuple[str, ...], pa.DataType]) -> Any:
    """The field at the end of names, of a struct on the stack."""
    names, type_ = way
    for name in names:
        if value is None:
            return None
        value = value[name]
    return on_stack(value, type_)

"""The declared state of a key, as the functions of `process` see it: fields with types, which are checked.

A field is a scalar or a list of scalars. A list is read as a tuple: it can't be changed behind the state's
back, so a field always holds values of its type. A new one is assigned, such as `(*state.last, x)[-3:]`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.types import (
    is_binary,
    is_list,
    is_special,
    is_string,
    physical_type,
    pipeline_schema,
    to_python,
    to_storage,
)


def state_class(schema: pa.Schema) -> type[DeclaredState]:
    """The class of a declared state: a checked attribute per field, starting as the zero of its type."""
    return type("State", (DeclaredState,), {"_types": {field.name: field.type for field in schema}})


class DeclaredState:
    """State of one key with declared fields. Fields always hold a value of their type; there are no nulls
    and no other attributes.
    """

    _types: ClassVar[dict[str, pa.DataType]] = {}
    _values: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {name: zero_of(type_) for name, type_ in self._types.items()})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._types:
            raise AttributeError(
                f"the declared state has no field {name!r}; it has: {', '.join(self._types)}"
            )
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._types:
            raise AttributeError(
                f"the declared state has no field {name!r}; it has: {', '.join(self._types)}"
            )
        self._values[name] = state_value(value, self._types[name], name)

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def state_value(value: Any, type_: pa.DataType, name: str) -> Any:
    """What a field holds once a value was assigned to it.

    Raises
    ------
    TypeError, OverflowError, ValueError
        The value does not fit (`to_storage`), it is None, or a list with None in it.
    """
    if value is None:
        raise TypeError(f"state field {name!r} is {type_} and can't be None; use a flag field")
    stored = to_storage(value, type_, f"state.{name}")
    if not is_list(type_):
        return to_python(stored, type_)
    if None in stored:
        raise TypeError(f"state field {name!r} is {type_} and can't have None in it; leave it out")
    return tuple(to_python(stored, type_))


def zero_of(type_: pa.DataType) -> Any:
    """Python value that a declared state field of this type starts with: 0, 0.0, False, "", b"", the epoch,
    or no elements.
    """
    if is_list(type_):
        return ()
    if pat.is_boolean(type_):
        return False
    if pat.is_floating(type_):
        return 0.0
    if is_string(type_) or is_binary(type_):
        return "" if is_string(type_) else b""
    return to_python(0, type_)


def state_schema(fields: Any, where: str, *, lists: bool = True) -> pa.Schema:
    """A checked declaration of a state: scalars, and with `lists` lists of them.

    Raises
    ------
    SchemaError
        A field of a decimal or unsupported type, or a list where there can be none.
    """
    schema = pipeline_schema(fields, where)
    for field in schema:
        if is_list(field.type) and not lists:
            raise SchemaError(
                f"{where}: state field {field.name!r} can't be {field.type}: a compiled function has "
                "scalars only; leave out compiled=True"
            )
        scalar = physical_type(field.type, field.name).vm is not None and not pat.is_decimal(field.type)
        if not (scalar or is_list(field.type)):
            raise SchemaError(
                f"{where}: state field {field.name!r} can't be {field.type}; use scalars, lists of numbers, "
                "bools, dates or times, or od.codec"
            )
        if is_special(field.name) or field.name in ("_types", "_values"):
            raise SchemaError(f"{where}: a state field can't be called {field.name!r}; choose another name")
    return schema

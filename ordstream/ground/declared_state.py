"""The declared state of a key, as the functions of `process` see it: fields with types, which are checked.

A field is a scalar or a list of scalars, some of which may be None. A list is read as a tuple: it can't be
changed behind the state's back, so a field always holds values of its type. A new one is assigned, such as
`(*state.last, x)[-3:]`.

As rows, the state has a column for each scalar, and two for each list: lists in the core have no nulls and
no strings (`stored_fields`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.rows import is_special
from ordstream.ground.types import (
    is_binary,
    is_list,
    is_string,
    is_temporal,
    physical_type,
    pipeline_schema,
    to_python,
    to_storage,
)

#: What dropping a state is called elsewhere.
FORGETTING = ("clear", "remove", "delete")


def state_class(schema: pa.Schema) -> type[DeclaredState]:
    """The class of a declared state: a checked attribute per field, starting as the zero of its type."""
    return type("State", (DeclaredState,), {"_types": {field.name: field.type for field in schema}})


class DeclaredState:
    """State of one key with declared fields. Fields always hold a value of their type; there are no nulls
    and no other attributes. `state["n"]` is `state.n`.
    """

    _types: ClassVar[dict[str, pa.DataType]] = {}
    _values: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {name: zero_of(type_) for name, type_ in self._types.items()})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._types:
            raise AttributeError(no_field(name, self._types))
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._types:
            raise AttributeError(no_field(name, self._types))
        self._values[name] = state_value(value, self._types[name], name)

    def __getitem__(self, name: str) -> Any:
        if name not in self._types:
            raise AttributeError(no_field(name, self._types))
        return self._values[name]

    __setitem__ = __setattr__

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def __iter__(self) -> NoReturn:
        raise TypeError(no_items(self._types))

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"


def no_field(name: str, fields: Iterable[str]) -> str:
    """What is said to who asks a declared state for another field."""
    text = f"the declared state has no field {name!r}; it has: {', '.join(fields)}"
    return f"{text}; to drop the state of a key, return od.FORGET" if name in FORGETTING else text


def no_items(fields: Iterable[str]) -> str:
    """What is said to who goes through a declared state."""
    return f"a declared state can't be gone through: its fields are {', '.join(fields)}"


def state_value(value: Any, type_: pa.DataType, name: str) -> Any:
    """What a field holds once a value was assigned to it.

    Raises
    ------
    TypeError, OverflowError, ValueError
        The value does not fit (`to_storage`), or it is None.
    """
    if value is None:
        none = f"its zero, {zero_of(type_)!r}, takes a timer back; else " if is_temporal(type_) else ""
        raise TypeError(f"state field {name!r} is {type_} and can't be None; {none}use a flag field")
    stored = to_storage(value, type_, f"state.{name}")
    found = to_python(stored, type_)
    return tuple(found) if is_list(type_) else found


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
        item = field.type.value_type if is_list(field.type) else field.type
        if physical_type(item, field.name).vm is None or pat.is_decimal(item):
            raise SchemaError(
                f"{where}: state field {field.name!r} can't be {field.type}; use scalars, lists of them, or "
                "od.codec"
            )
        if is_special(field.name) or field.name in ("_types", "_values"):
            raise SchemaError(f"{where}: a state field can't be called {field.name!r}; choose another name")
    return schema


def stored_fields(state: pa.Schema) -> list[pa.Field]:
    """The columns of declared fields in rows of state. Of a list of numbers, bools or times: the list, with
    zeros for None, and the places of None. Of a list of texts or bytes: these, one behind the other, and the
    size of each in bytes, -1 for None.
    """
    found = []
    for field in state:
        if is_texts(field.type):
            sizes = pa.field(f"{field.name}.sizes", pa.list_(pa.int32()))
            found += [pa.field(field.name, pa.binary()), sizes]
        elif is_list(field.type):
            found += [field, pa.field(f"{field.name}.nulls", pa.list_(pa.int32()))]
        else:
            found.append(field)
    return found


def is_texts(type_: pa.DataType) -> bool:
    """A list of strings or of bytes."""
    return is_list(type_) and (is_string(type_.value_type) or is_binary(type_.value_type))


def stored_values(values: Sequence[Any], types: Sequence[pa.DataType]) -> list[Any]:
    """The values of `stored_fields`, of what fields hold."""
    found = []
    for value, type_ in zip(values, types, strict=True):
        if is_texts(type_):
            parts = [one.encode() if isinstance(one, str) else one for one in value]
            found += [
                b"".join(one for one in parts if one is not None),
                [-1 if one is None else len(one) for one in parts],
            ]
        elif is_list(type_):
            nulls = [place for place, one in enumerate(value) if one is None]
            zero = zero_of(type_.value_type)
            found += [[zero if one is None else one for one in value] if nulls else value, nulls]
        else:
            found.append(value)
    return found


def restored_values(columns: Sequence[Any], types: Sequence[pa.DataType]) -> list[Any]:
    """What fields hold, of the values of `stored_fields`.

    Raises
    ------
    ValueError
        They are not those of a state.
    """
    found, left = [], iter(columns)
    for type_ in types:
        value = next(left)
        if is_texts(type_):
            value = _texts(value, next(left), type_.value_type)
        elif is_list(type_):
            value = list(value)
            for place in next(left):
                if not 0 <= place < len(value):
                    raise ValueError(f"a list of {len(value)} elements has none at {place}")
                value[place] = None
            value = tuple(value)
        found.append(value)
    return found


def _texts(data: bytes, sizes: Sequence[int], type_: pa.DataType) -> tuple[Any, ...]:
    if sum(max(size, 0) for size in sizes) != len(data):
        raise ValueError(f"{len(data)} bytes are not {len(sizes)} texts of the sizes that are given")
    found, at = [], 0
    for size in sizes:
        part = None if size < 0 else data[at : at + size]
        found.append(part.decode() if part is not None and is_string(type_) else part)
        at += max(size, 0)
    return tuple(found)

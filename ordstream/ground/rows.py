"""Rows as a user's functions see them: `row.x`, `row["x"]`, and of a whole row `row[0]`.

The core makes rows of the same classes on bases of its own (`_core/state/named_rows.pyx`), which look a name
up without calling Python.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import pyarrow as pa


class NoSuchColumn(KeyError):
    """`row["x"]`, and there is no such column. Unlike `KeyError` it shows its text as it is."""

    __str__ = Exception.__str__


class NamedTuple(tuple[Any, ...]):
    """A tuple that takes a name in the place of an index. A class of rows has `__places__`, where each name
    lies, and `__missing__` for other names.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return tuple.__getitem__(self, key)
        made: Any = self
        place = type(made).__places__.get(key)
        return made.__missing__(key) if place is None else tuple.__getitem__(self, place)


class NamedSlots:
    """An object with slots that takes the name of one as an index."""

    __slots__ = ()

    __getitem__ = object.__getattribute__


def whole_row(schema: pa.Schema) -> tuple[type, ...]:
    """Types of the one value given to `emit` that is all columns of a row, as a function of rows returns it.
    Of one column a list or tuple is its value, and so is a dict where the column is a struct or a map.
    """
    if len(schema) > 1:
        return (dict, list, tuple)
    is_value = any(pa.types.is_struct(one.type) or pa.types.is_map(one.type) for one in schema)
    return () if is_value else (dict,)


def row_class(names: Sequence[str], base: type[tuple[Any, ...]] = NamedTuple) -> type[tuple[Any, ...]]:
    """A tuple class with an attribute per column, for any column name (`getattr` and `row["a b"]` reach
    names that are no identifiers).

    Like a named tuple it has `_fields` and `_asdict()`, unlike one it takes its values as one iterable:
    `Row(values)`.

    Parameters
    ----------
    names : sequence of str
    base : type
        `NamedTuple`, or what is the same and faster.
    """
    # Descriptors of a named tuple read the tuple where it lies, and not by an index.
    places: Any = namedtuple("places", [f"c{i}" for i in range(len(names))])  # type: ignore[misc]
    # Names that Python itself looks up stay Python's: a column called __getitem__ would be read by reading
    # it.
    body: dict[str, Any] = {
        name: vars(places)[f"c{i}"] for i, name in enumerate(names) if not is_special(name)
    }
    body |= {
        "__slots__": (),
        "__places__": {name: i for i, name in enumerate(names)},
        "_fields": tuple(names),
        "_asdict": lambda self: dict(zip(self._fields, self, strict=True)),
        "__repr__": lambda self: (
            f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"
        ),
        "__getattr__": _no_such_attribute,
        "__missing__": _no_such_column,
    }
    return type("Row", (base,), body)


def slotted_rows(names: Sequence[str], base: type[Any] = NamedSlots) -> type[Any]:
    """A class of rows that have these columns and nothing else.

    Parameters
    ----------
    names : sequence of str
    base : type
        `NamedSlots`, or what is the same and faster.
    """

    def shown(row: Any) -> str:
        values = (f"{name}={getattr(row, name)!r}" for name in names)
        return f"Row({', '.join(values)}: what the function reads)"

    return type("Row", (base,), {"__slots__": tuple(names), "__repr__": shown})


def is_special(name: str) -> bool:
    """Whether Python gives a meaning of its own to an attribute of this name, such as `__len__`."""
    return name.startswith("__") and name.endswith("__")


def _no_such_attribute(row: Any, name: str) -> NoReturn:
    raise AttributeError(no_column(name, row.__places__))


def _no_such_column(row: Any, name: str) -> NoReturn:
    raise NoSuchColumn(no_column(name, row.__places__))


def no_column(name: str, names: Iterable[str]) -> str:
    """What to say of a name that is no column of a row."""
    return f"this row has no column {name!r}; it has: {', '.join(names)}"

"""What stands behind `expression.list`: elements of lists, on the way from the name to the instruction.

On the stack of the expression machine a list is a packed value, whatever the core has it as in a column;
the reference has Python's list there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError, shown
from ordstream.expressions.fields import class_of, leaf_of, on_stack
from ordstream.expressions.lowered import Code, Lowered
from ordstream.expressions.synonyms import advice
from ordstream.expressions.wrong_calls import CalledMethods
from ordstream.ground.choices import flag
from ordstream.ground.packed_types import inner_format, is_any_list, is_core_list, is_packed
from ordstream.ground.types import from_storage, is_string, physical_type, to_python, to_storage

if TYPE_CHECKING:
    from ordstream.expressions.expr import Expr


class Lists(CalledMethods):
    """Functions of lists; a null list gives null."""

    def __init__(self, expr: Any, apply: Callable[..., Expr]) -> None:
        self._expr, self._apply = expr, apply

    def __repr__(self) -> str:
        return f"{self._expr!r}.list"

    def get(self, index: Any) -> Expr:
        """An element; null beyond the ends, and where the element is null.

        An element that is a number, text, bytes, time or bool can be computed with; one that is a list or a
        struct has `.list` and `.struct`, and passes as a column.

        Parameters
        ----------
        index : int or Expr
            0 is the first, -1 the last.
        """
        return self._made("get", index)

    def first(self) -> Expr:
        """The first element; null of an empty list."""
        return self.get(0)

    def last(self) -> Expr:
        """The last element; null of an empty list."""
        return self.get(-1)

    def length(self) -> Expr:
        """Number of elements, nulls among them: int64. `.length()` of the expression is the same."""
        return self._made("length")

    len = length

    def contains(self, value: Any) -> Expr:
        """Whether an element equals `value`, a constant or an expression, as `==` compares: a NaN equals
        nothing, and neither does a null element. A null value gives null. Lists of uint64, lists or structs
        are a SchemaError.
        """
        if value is None:
            raise SchemaError("list.contains: null equals no element; what is looked for must be a value")
        return self._made("contains", value)

    def join(self, separator: Any, *, ignore_nulls: bool = True) -> Expr:
        """The strings of a list, one behind the other.

        Parameters
        ----------
        separator : str or Expr
            What stands between two of them.
        ignore_nulls : bool
            Null elements are left out; False: a list that has some gives null.
        """
        return self._made(
            "join", separator, option=flag(ignore_nulls, "list.join: ignore_nulls", SchemaError)
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            where = advice(name, "list", dir(type(self)))
            raise AttributeError(f"`.list` has no {name!r}{where}", name=name, obj=self)

        __iter__ = None

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError(f"`.list` has no items: an element is .list.get({shown(key, 80)})")

    def _made(self, function: str, *arguments: Any, option: Any = None) -> Expr:
        return self._apply(f"list.{function}", self._expr, *arguments, option=option)


def is_nested(type_: Any) -> bool:
    """Of a value that passes, and is not computed with."""
    return is_core_list(type_) or is_packed(type_)


def is_listed(type_: pa.DataType) -> bool:
    """A list, in any layout."""
    return is_any_list(type_) or bool(pat.is_fixed_size_list(type_))


def loaded(index: int, type_: pa.DataType, name: str) -> Lowered:
    """A column of lists or of another packed type, as a packed value."""
    if is_packed(type_):
        return Lowered((("col_view", index),), "view", type_)
    item = physical_type(type_, name).element
    assert item is not None
    flags = pat.is_boolean(type_.value_type)
    return Lowered((("pack_list", index, inner_format(type_), item.width, flags, type_),), "view", type_)


def stored(low: Lowered) -> Code:
    """Code of what becomes a column: a list of numbers is no packed value there."""
    last = (("as_list", inner_format(low.arrow), low.arrow),) if is_core_list(low.arrow) else ()
    return (*low.code, *last)


def measured(low: Lowered) -> Lowered:
    """Number of elements."""
    return Lowered((*low.code, ("list_length",)), "i64", pa.int64())


def element_type(expr: Any, low: Lowered) -> pa.DataType:
    """Of a list on the stack.

    Raises
    ------
    SchemaError
        It is none; without the operator's name.
    """
    if low.arrow is None or not is_listed(low.arrow):
        raise SchemaError(f"{expr!r} is for lists, got {low.arrow}")
    return low.arrow.value_type


def element(expr: Any, low: Lowered, index: Lowered) -> Lowered:
    """One element, of its own type."""
    type_ = element_type(expr, low)
    if index.vm != "i64" or not pat.is_integer(index.arrow):
        raise SchemaError(f"the index must be an integer, got {index.arrow} in {expr!r}")
    vm = class_of(type_, repr(expr))
    code = (*low.code, *index.code, (f"get_{vm}", inner_format(low.arrow), leaf_of(type_), type_))
    return Lowered(code + ((("load_u64",),) if pat.is_uint64(type_) else ()), vm, type_)


def compared(expr: Any, low: Lowered) -> Lowered:
    """Stands for the elements that a value is compared with: no code, their class and type."""
    type_ = element_type(expr, low)
    if is_nested(type_) or pat.is_uint64(type_):
        raise SchemaError(f"{expr!r}: elements of type {type_} are not compared")
    return Lowered((), physical_type(type_, repr(expr)).vm, type_)


def membership(low: Lowered, value: Lowered) -> Lowered:
    """Whether the value, which has the elements' class, is one of them."""
    type_ = low.arrow.value_type
    code = (*low.code, *value.code, ("list_has", inner_format(low.arrow), leaf_of(type_), type_))
    return Lowered(code, "bool", pa.bool_())


def joined(expr: Any, low: Lowered, between: Lowered) -> Lowered:
    """Strings with a string between them."""
    type_ = element_type(expr, low)
    if not is_string(type_) or not is_string(between.arrow):
        wrong = low.arrow if not is_string(type_) else between.arrow
        raise SchemaError(f"{expr!r} is for lists of strings and a string between them, got {wrong}")
    code = (*low.code, *between.code, ("list_join", inner_format(low.arrow), not expr.option))
    return Lowered(code, "view", pa.string())


# ------------------------------------------------------------------------------- what instructions mean


def packed_list(value: Any, type_: pa.DataType) -> Any:
    """A list column's storage value on the stack of the reference."""
    if value is None:
        return None
    if type_.value_type == pa.time64("ns"):  # as counts: Python's times have no nanoseconds
        return from_storage([value], type_)[0].values.cast(pa.int64()).to_pylist()
    return to_python(value, type_)


def list_stored(value: Any, _: str, type_: pa.DataType) -> Any:
    """And back."""
    return to_storage(value, type_, "list")


def get(value: Any, index: int, _: str, __: str, type_: pa.DataType) -> Any:
    """An element on the stack, None beyond the ends."""
    return on_stack(value[index], type_) if -len(value) <= index < len(value) else None


def has(items: Any, value: Any, _: str, __: str, type_: pa.DataType) -> bool:
    """Whether one of the items is the value."""
    return any(item is not None and on_stack(item, type_) == value for item in items)


def join(items: Any, between: bytes, _: str, nulls: bool) -> bytes | None:
    """Strings with `between` between them, as bytes."""
    if nulls and None in items:
        return None
    return between.join(item.encode() for item in items if item is not None)

"""Expressions over columns: `od.col("price") * od.col("quantity") > 100`.

An expression is a small immutable tree. It knows no schema until a pipeline method lowers it
(`ordstream/expressions/lowering.py`) to a `BoundExpr` (`ordstream/expressions/bound.py`, where the meaning
of every operation is written down); types are checked then, so that a mistake is reported where the pipeline
is built.

Types: integers of all widths compute as int64 (checked), floats as float64; `/`, `**` and the mathematical
functions always give float64. Dates, times, timestamps and durations compare with their own type, with a
`datetime` object, or with an int in their unit; decimals compute exactly, with each other and with integers
(`ordstream/expressions/decimals.py`); the difference of two times is a duration, and a time plus a
duration is a time (`ordstream/expressions/elapsed.py`). Strings
compare by their UTF-8 bytes. `&`, `|`, `~` are Kleene logic, `a ^ b` is `a != b` of booleans; anything else
that meets a null is null.
"""

from __future__ import annotations

import builtins
import datetime
import decimal
import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from ordstream.errors import SchemaError, shown
from ordstream.expressions.dense_table import dense_table
from ordstream.expressions.fields import Structs
from ordstream.expressions.lists import Lists
from ordstream.expressions.namespaces import Strings, Times, reading
from ordstream.expressions.synonyms import advice, instead_of_constant, instead_of_item
from ordstream.ground.choices import flag, gone_through, is_text
from ordstream.ground.datetimes import scalar_value
from ordstream.ground.numbers import as_int, is_number
from ordstream.ground.type_names import kinds
from ordstream.ground.types import INT64_MAX, INT64_MIN, PYTHON_TYPES

TEMPORAL_OBJECTS = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
CONSTANTS = (bool, int, float, str, bytes, decimal.Decimal, *TEMPORAL_OBJECTS)


class Expr:
    """An expression; made by `col`, `lit`, `when`, `if_else` and by operators and methods on expressions."""

    # Python would silently drop half of `a and b` or `a < b < c`: both ask for the truth of an expression.
    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the expression {self!r} has no truth value yet: write & | ~ for and, or, not "
            "(each side in parentheses), (a < b) & (b < c) for a < b < c, od.when(c).then(a).otherwise(b) "
            "for a if c else b, and a.maximum(b) for max(a, b)"
        )

    def __contains__(self, value: Any) -> bool:
        raise TypeError(f"`in` can't look into the expression {self!r}: write column.isin([...])")

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            raise TypeError(f"the expression {self!r} has no value yet to format: .cast(str), or a function")
        return str(self)

    __hash__ = object.__hash__

    # A NumPy scalar on the left leaves the operation to the expression. It would compute with what `item()`
    # gives, which of a datetime64[ns] is a bare number.
    __array_priority__ = 1000.0

    def __array_function__(self, function: Any, *_: Any) -> NoReturn:
        name = function.__name__
        raise TypeError(f"np.{name} looks at arrays, and an expression is none{advice(name)}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            where = advice(name, there=dir(type(self)))
            raise AttributeError(f"an expression has no {name!r}{where}", name=name, obj=self)

        __iter__ = None  # else `__getitem__` would be asked for items

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError(f"an expression has no items: {instead_of_item(key)}")

    def __add__(self, other: Any) -> Expr:
        return Apply("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return Apply("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return Apply("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return Apply("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return Apply("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return Apply("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        """A float64, of decimals too."""
        return Apply("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return Apply("div", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return Apply("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return Apply("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return Apply("mod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return Apply("mod", other, self)

    def __pow__(self, other: Any) -> Expr:
        return Apply("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return Apply("pow", other, self)

    def __neg__(self) -> Expr:
        return Apply("neg", self)

    def __abs__(self) -> Expr:
        return Apply("abs", self)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return Apply("eq", self, _no_none(other, f"{self!r}.is_null()"))

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return Apply("ne", self, _no_none(other, f"{self!r}.is_not_null()"))

    def __lt__(self, other: Any) -> Expr:
        return Apply("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return Apply("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return Apply("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return Apply("ge", self, other)

    def __and__(self, other: Any) -> Expr:
        return Apply("and", self, other)

    def __rand__(self, other: Any) -> Expr:
        return Apply("and", other, self)

    def __or__(self, other: Any) -> Expr:
        return Apply("or", self, other)

    def __ror__(self, other: Any) -> Expr:
        return Apply("or", other, self)

    def __xor__(self, other: Any) -> Expr:
        """`!=` of two booleans, null where one is."""
        return Xor(self, other)

    def __rxor__(self, other: Any) -> Expr:
        return Xor(other, self)

    def __invert__(self) -> Expr:
        return Apply("not", self)

    if not TYPE_CHECKING:  # for a type checker these are mistakes

        def _no_shift(self, _: Any) -> NoReturn:
            raise TypeError(
                f"bits of the expression {self!r} can't be shifted: write column * 2**n for <<, and "
                "column // 2**n for >>"
            )

        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_shift

        def _no_product(self, _: Any) -> NoReturn:
            raise TypeError(f"the expression {self!r} is no matrix: the product of two columns is a * b")

        __matmul__ = __rmatmul__ = _no_product

        def _no_pair(self, _: Any) -> NoReturn:
            raise TypeError(f"divmod gives two values, the expression {self!r} is one: a // b, and a % b")

        __divmod__ = __rdivmod__ = _no_pair

    def is_null(self) -> Expr:
        """True where the value is null; never null itself. NaN is not null."""
        return Apply("is_null", self)

    def is_not_null(self) -> Expr:
        """True where the value is not null; never null itself."""
        return Apply("is_not_null", self)

    def coalesce(self, other: Any, *others: Any) -> Expr:
        """The first of the value, `other` and `others` that is not null."""
        result: Expr = self
        for one in (other, *others):
            result = Apply("coalesce", result, one)
        return result

    def fill_null(self, value: Any, *more: Any) -> Expr:
        """The first of the value, `value` and `more` that is not null: as `coalesce`."""
        return self.coalesce(value, *more)

    def isin(self, values: Any, *more: Any) -> Expr:
        """True where the value is one of `values` (no nulls among them), a list or several arguments
        (`isin(1, 2)`: `values` and `more`); null where the value is null.
        """
        return self._among("isin", (values, *more) if more else values)

    def is_in(self, values: Any, *more: Any) -> Expr:
        """As `isin`, of `values` and `more`, by Polars' name."""
        return self._among("is_in", (values, *more) if more else values)

    def _among(self, called: builtins.str, given: Any) -> Expr:
        among = None if isinstance(given, builtins.str | bytes) else gone_through(given)  # "ab": no "a", "b"
        if among is None:
            raise SchemaError(
                f"{called} takes a list of values, got {shown(given)}: one value is {self!r} == value"
            )
        if isinstance(given, np.ndarray) and given.dtype.kind in "iuU":
            among = given.tolist()  # Python's own values
        return Apply("isin", self, option=tuple(among))

    def between(self, low: Any, high: Any) -> Expr:
        """`(self >= low) & (self <= high)`, both ends included."""
        return Apply("and", self >= low, self <= high)

    is_between = between

    def clip(self, lower_bound: Any = None, upper_bound: Any = None) -> Expr:
        """The value, or that of `lower_bound` and `upper_bound` which it is beyond; null and NaN stay."""
        result: Expr = self
        if lower_bound is not None:
            result = if_else(result < lower_bound, lower_bound, result)
        if upper_bound is not None:
            result = if_else(result > upper_bound, upper_bound, result)
        return result

    def is_nan(self) -> Expr:
        """True where a float is NaN; null where it is null."""
        return self != self

    def is_not_nan(self) -> Expr:
        """True where a number is not NaN; null where it is null."""
        return self == self

    def fill_nan(self, value: Any) -> Expr:
        """`value` in the place of NaN; nulls stay."""
        return if_else(self.is_nan(), value, self)

    def abs(self) -> Expr:
        """The value without its sign; `abs(column)` is the same."""
        return Apply("abs", self)

    def pow(self, exponent: Any) -> Expr:
        """`self ** exponent`, float64."""
        return Apply("pow", self, exponent)

    def minimum(self, other: Any) -> Expr:
        """The smaller of the value and `other`; a NaN loses, a null gives null."""
        return Apply("min", self, other)

    def maximum(self, other: Any) -> Expr:
        """The larger of the value and `other`; a NaN loses, a null gives null."""
        return Apply("max", self, other)

    def sqrt(self) -> Expr:
        """Square root, float64."""
        return Apply("sqrt", self)

    def sin(self) -> Expr:
        """Sine, radians."""
        return Apply("sin", self)

    def cos(self) -> Expr:
        """Cosine, radians."""
        return Apply("cos", self)

    def tan(self) -> Expr:
        """Tangent, radians."""
        return Apply("tan", self)

    def asin(self) -> Expr:
        """Arc sine, radians."""
        return Apply("asin", self)

    def acos(self) -> Expr:
        """Arc cosine, radians."""
        return Apply("acos", self)

    def atan(self) -> Expr:
        """Arc tangent, radians."""
        return Apply("atan", self)

    def atan2(self, x: Any) -> Expr:
        """Angle of the point `(x, self)`, radians."""
        return Apply("atan2", self, x)

    def exp(self) -> Expr:
        """e to the power of the value."""
        return Apply("exp", self)

    def log(self, base: float | None = None) -> Expr:
        """Logarithm; default: the natural one. With a base: `log(x) / log(base)`; of 10 it is `log10`."""
        natural = Apply("log", self)
        if base is None:
            return natural
        if not is_number(base) or not 0 < base < math.inf or base == 1:
            raise SchemaError(f"log: base must be a positive finite number, and not 1, got {base!r}")
        return self.log10() if base == 10 else natural / math.log(base)

    def log10(self) -> Expr:
        """Logarithm to base 10, as C's: of a power of ten it is whole."""
        return Apply("log10", self)

    def floor(self) -> Expr:
        """Largest whole float64 not above the value."""
        return Apply("floor", self)

    def ceil(self) -> Expr:
        """Smallest whole float64 not below the value."""
        return Apply("ceil", self)

    def round(self, decimals: int = 0) -> Expr:
        """Nearest float64 of so many decimals, half to even; negative: of tens, hundreds.

        As in Polars `round(x * 10**decimals) / 10**decimals`; a float of 2**52 or more, which has no
        decimals, stays. Of a decimal it is a float64 too.
        """
        given = decimals = as_int(decimals)
        if isinstance(given, bool) or not isinstance(given, int) or not -15 <= given <= 15:
            raise SchemaError(f"round: decimals must be an int from -15 to 15, got {decimals!r}")
        if decimals == 0:
            return Apply("round", self)
        if decimals < 0:
            return Apply("round", self / 10.0**-decimals) * 10.0**-decimals
        moved = self * 10.0**decimals
        return if_else(abs(moved) < 2.0**52, Apply("round", moved) / 10.0**decimals, self * 1.0)

    def __round__(self, decimals: int | None = None) -> Expr:
        return self.round(decimals or 0)

    def length(self) -> Expr:
        """Number of elements of a list column, or of bytes of a string or binary value: int64."""
        return Apply("length", self)

    def lookup(self, table: Any) -> Expr:
        """`table[self]` from a dense side table; null outside the table and where its entry is null.

        Parameters
        ----------
        table : numpy.ndarray or pyarrow.Array
            One-dimensional, integers or floats. It is copied now.
        """
        return Apply("lookup", self, option=dense_table(table))

    def cast(self, type_: Any, *, strict: bool = True) -> Expr:
        """The value as another type.

        Float to int truncates (NaN or out of range is an error at that row), bool to number gives 0 or 1,
        int to bool is `!= 0`, a date/time goes to and from the int count of its unit (one that is no time of
        day, or no whole days of a date64, is an error at that row). Numbers, bools, dates and times are
        written as text, and but for times of day read from it, as Arrow does; text that says no such value
        is an error at that row.
        A decimal in fewer places is rounded, halves away from zero, as SQL does; a float becomes the nearest
        decimal, of two as near the even one (of more than 30 places, some units off in the last one); text
        with more places than the decimal is an error, so read it with more places and cast that. What has
        more digits than the decimal is an error at that row. As text a decimal has all places of its type,
        "-0.50".
        A timestamp or duration in a coarser unit is rounded down, and so is one that becomes a date. A cast
        to less than 64 bits is range-checked and must be the outermost operation of a column expression.

        Parameters
        ----------
        type_ : pyarrow.DataType, its name such as "int32", or int, float, bool, str, bytes
        strict : bool
            False: null in place of an error, where text says no such value, or a number is NaN or out of
            range. For text, and between numbers, decimals too. Of uint64 an expression has what int64 has.
        """
        strict = flag(strict, "cast: strict", SchemaError)
        return Apply("cast" if strict else "try_cast", self, option=_cast_target(type_))

    @property
    def str(self) -> Strings:
        """Functions of strings: `od.col("name").str.lower()`."""
        return Strings(self, Apply)

    @property
    def dt(self) -> Times:
        """Functions of dates and times: `od.col("ts").dt.truncate("15m")`."""
        return Times(self, Apply)

    @property
    def struct(self) -> Structs:
        """Fields of structs: `od.col("address").struct.field("city")`."""
        return Structs(self, Apply)

    @property
    def list(self) -> Lists:
        """Elements of lists: `od.col("tags").list.get(0)`."""
        return Lists(self, Apply)

    def alias(self, name: builtins.str) -> Expr:
        """The same expression under an output name (for names that are no Python keywords arguments)."""
        return Alias(self, name)


class Column(Expr):
    """A column of the operator's input."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def column_name(self) -> str:
        """Its name, for what takes a column by name or as an expression
        (`ordstream.ground.types.column_index`).
        """
        return self.name

    def __repr__(self) -> str:
        return str(self.name)


class Literal(Expr):
    """A constant. Without a `type` of its own it takes one from what it is combined with."""

    def __init__(self, value: Any, type_: Any = None) -> None:
        if isinstance(value, pa.Scalar):
            type_ = type_ or value.type
            value = scalar_value(value, type_)
        if isinstance(value, np.generic) and not isinstance(value, TEMPORAL_OBJECTS):
            value = value.item()
        if value is not None and not isinstance(value, CONSTANTS):
            raise SchemaError(
                f"{shown(value)} ({type(value).__name__}) can't be a constant in an expression"
                f"{instead_of_constant(value)}"
            )
        if isinstance(value, TEMPORAL_OBJECTS) and bool(value != value):
            raise SchemaError(
                "NaT can't be a constant in an expression: a null is None, or od.lit(None, type)"
            )
        if isinstance(value, int) and type_ is None and not INT64_MIN <= value <= INT64_MAX:
            raise SchemaError(
                f"the constant {value} does not fit into int64; beside a decimal write Decimal({value})"
            )
        self.value = value
        self.type = None if type_ is None else _cast_target(type_)

    def __repr__(self) -> str:
        return repr(self.value)


class Alias(Expr):
    """A named expression; only as the outermost node of a column of `select` or `with_columns`."""

    def __init__(self, expr: Expr, name: str) -> None:
        given: Any = name
        if not is_text(given) or not given:
            raise SchemaError(f"alias: a name must be a non-empty str, got {shown(name)}")
        self.expr, self.name = expr, name

    def __repr__(self) -> str:
        return repr(self.expr)


_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "neg": "-",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "and": "&",
    "or": "|",
    "not": "~",
}


class Apply(Expr):
    """A function of expressions; plain Python values among its arguments become constants."""

    def __init__(self, function: str, *arguments: Any, option: Any = None) -> None:
        self.function = function
        self.arguments = tuple(as_expression(argument) for argument in arguments)
        self.option = option

    def __repr__(self) -> str:
        symbol, texts = _SYMBOLS.get(self.function), [repr(argument) for argument in self.arguments]
        if symbol:
            return f"{symbol}{texts[0]}" if len(texts) == 1 else f"({texts[0]} {symbol} {texts[1]})"
        if "." in self.function:
            return self._method(texts)
        if self.function == "isin":
            texts.append(repr(list(self.option)))
        if self.function in ("cast", "try_cast"):
            return f"cast({texts[0]}, {self.option}{', strict=False' * (self.function == 'try_cast')})"
        return f"{self.function}({', '.join(texts)})"

    def _method(self, texts: list[str]) -> str:
        """ "name.str.lower()"."""
        given = texts[1:]
        if self.function == "str.to_time":
            return f"{texts[0]}.str.{reading(*self.option)}"
        if self.option is not None:
            given += map(repr, self.option if isinstance(self.option, tuple) else [self.option])
        return f"{texts[0]}.{self.function}({', '.join(given)})"


class Xor(Apply):
    """`a ^ b`: whether two booleans differ."""

    def __init__(self, a: Any, b: Any) -> None:
        self.sides = (as_expression(_no_none(a)), as_expression(_no_none(b)))
        super().__init__("ne", *(_Side(side, self.sides) for side in self.sides))

    def __repr__(self) -> str:
        return _text_of_xor(self.sides)


class _Side(Apply):
    """One side of a `Xor`: the value, checked to be a boolean. Its text is in the error where it is none."""

    def __init__(self, value: Expr, sides: tuple[Expr, Expr]) -> None:
        super().__init__("and", value, True)
        self.sides = sides

    def __repr__(self) -> str:
        return f"{_text_of_xor(self.sides)}, which is != of booleans; a power is **"


def _text_of_xor(sides: tuple[Expr, Expr]) -> str:
    return f"({sides[0]!r} ^ {sides[1]!r})"


def _no_none(other: Any, instead: str = "is_null(), or is_not_null()") -> Any:
    """The other side of `==` or `!=`; SchemaError where it is None: that is null for each row, so a filter
    would drop them all.
    """
    if other is None:
        raise SchemaError(f"nothing equals null, None, or differs from it: write {instead}")
    return other


def _cast_target(type_: Any) -> pa.DataType:
    target = PYTHON_TYPES.get(type_, type_) if isinstance(type_, type) else type_
    if isinstance(target, str):
        try:
            target = pa.field("", target).type
        except ValueError:
            raise SchemaError(f"{type_!r} is no type: {kinds(type_)}") from None
    if not isinstance(target, pa.DataType):
        raise SchemaError(f"{type_!r} is no type: {kinds(type_)}")
    return target


def col(name: str) -> Column:
    """The input column `name`."""
    if not isinstance(name, str):
        raise SchemaError(f"od.col takes a column name, got {name!r}")
    return Column(name)


def lit(value: Any, type_: Any = None) -> Literal:
    """A constant: bool, int, float, str, bytes, a `datetime` object, a `pyarrow.Scalar`, or None as `value`;
    `type_` is that of None.
    """
    return Literal(value, type_)


def if_else(condition: Any, value: Any, otherwise: Any) -> Expr:
    """`value` where `condition` is true, `otherwise` where it is false or null. Both are evaluated for
    every row.
    """
    return Apply("if", condition, value, otherwise)


def as_expression(value: Any) -> Expr:
    """The expression itself, or a plain Python value as a constant."""
    return value if isinstance(value, Expr) else Literal(value)

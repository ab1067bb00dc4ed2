"""BoundExpr: an expression lowered to postfix code for the core's column machine, and its meaning, one row
at a time.

The machine has a stack of values of five classes: i64, f64, bool, view (bytes of a string or binary) and
i128 (a decimal of more than 18 digits, as a count of its smallest unit).
`evaluate` is the reference: the core's column kernels give the same value or the same error for every row.
The rules:

a) *Null*: every instruction gives null when an operand is null, except `and`, `or` (Kleene), `is_null_*`,
   `is_not_null_*`, `coalesce_*` and `if_*` (a null condition counts as false). All operands are evaluated:
   an error in the branch that an `if` or a `coalesce` does not take is still an error. Operations on nulls
   can't fail.
b) *i64*: add, sub, mul, neg, abs, floordiv are checked; a result outside int64 is an OverflowError. floordiv
   and mod round towards minus infinity as Python's `//` and `%`; by zero is a ZeroDivisionError. Loading a
   uint64 above 2**63 - 1 is an OverflowError.
   *i128*: a result of more than 38 digits is an OverflowError; *i2d* widens, *scaled_f64* makes one
   float of units and scale; *small* is the value as an i64, or the least i64 where it has more bits.
c) *f64*: IEEE 754, never an error: x / 0.0 is an infinity or NaN. floordiv(x, 0.0) is x / 0.0 and mod(x,
   0.0) is NaN; otherwise both are CPython's `float.__floordiv__` and `float.__mod__` (fmod, then moved to
   the sign of the divisor). `round` goes half to even (C rint). pow, exp, log, ... are C's with its special
   cases; pow(x, 2.0) is x * x.
d) *min, max*: `min(a, b) = a if a <= b or b is NaN else b`, `max(a, b) = a if a >= b or b is NaN else b`: a
   NaN loses.
e) *Comparisons*: f64 as IEEE (NaN equals nothing); views by bytes.
f) *f2i* truncates towards zero; NaN or a result outside int64 is an error. *i2f* rounds to nearest. *bits*
   are those of the float, of -0.0 those of 0.0.
g) *lookup*: an index outside the table, or marked invalid, gives null.
h) *Strings and times*: `contains`, `starts_with`, `ends_with` compare bytes; `len_chars` counts code points,
   `chars_from` and `chars_until` cut there; `join_view` puts one behind the other;
   `year_of_day`, `month_of_day`, `day_of_month` take days since 1970 of the Gregorian calendar without end.
   `arrow_*` are functions of Arrow (`ArrowCall`); a value for which one has no answer is an
   OverflowError, a text a ValueError.
   *Lists and structs* are Python's here: `pack_list` loads a list, `as_list`, the last instruction, makes a
   column of one; `get_*`, `list_*` and `part_*` are in lists.py and fields.py.
i) A column that is only tested for null is not loaded: its range is not checked.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.expressions import lists
from ordstream.expressions.fields import field_value, part_of
from ordstream.ground.numbers import BEYOND_INT64
from ordstream.ground.types import (
    INT64_MAX,
    INT64_MIN,
    WIDE_DIGITS,
    integer_range,
    is_string,
    is_temporal,
    round_float32,
)

#: Classes a value on the stack can have.
VM_TYPES = ("i64", "f64", "bool", "view", "i128")

#: Instructions that load a column, whose index is their first operand.
LOADS = frozenset(
    (
        *("len_list", "len_packed", "pack_list"),
        *(f"{load}_{vm}" for load in ("col", "field") for vm in VM_TYPES),
    )
)


@dataclass(frozen=True, eq=False)
class BoundExpr:
    """A lowered expression.

    Attributes
    ----------
    code : tuple of tuple
        Instructions, each (name, *operands). The core's `expression.pyx` runs them.
    type : str
        Class of the result, one of `VM_TYPES`.
    arrow : pyarrow.DataType
        Type of the result column. Where it is narrower than the class (after a cast), the result is
        narrowed: integers and 32-bit dates/times with a range check (OverflowError), float32 by rounding.
    text : str
        The expression as written, for `explain()`.
    """

    code: tuple[tuple[Any, ...], ...]
    type: str
    arrow: pa.DataType
    text: str = ""

    def __len__(self) -> int:
        return len(self.code)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return self.code[index]

    def columns(self) -> tuple[int, ...]:
        """Indexes of the input columns that the program reads, ascending."""
        return tuple(sorted({instruction[1] for instruction in self.code if instruction[0] in LOADS}))

    def calls_arrow(self) -> bool:
        """Whether it has a function of Arrow's, which the core calls for all rows of a chunk at once."""
        return any(instruction[0].startswith("arrow_") for instruction in self.code)

    def tests_nulls_only(self) -> bool:
        """Whether all that is asked of a column of the input is whether it is null. Such a
        program cannot fail.
        """
        names = [instruction[0] for instruction in self.code]
        for position, name in enumerate(names):
            if name.startswith("col_"):
                if not (
                    position + 1 < len(names)
                    and names[position + 1].startswith(("is_null_", "is_not_null_"))
                ):
                    return False
            elif not (name in ("and", "or", "not") or name.startswith(("is_null_", "is_not_null_"))):
                return False
        return True

    def __repr__(self) -> str:
        return f"BoundExpr({self.text or self.code!r} -> {self.arrow})"


def evaluate_row(program: BoundExpr, row: Sequence[Any]) -> Any:
    """Value of a program on one row.

    Parameters
    ----------
    program : BoundExpr
    row : sequence
        Storage values (`ordstream.ground.types`) by column index.

    Returns
    -------
    Storage value of type `program.arrow`, None for null.

    Raises
    ------
    OverflowError, ZeroDivisionError, ValueError
        As the rules above say.
    """
    stack: list[Any] = []
    for position, (name, *operands) in enumerate(program.code):
        if name.startswith("col_"):
            follows = program.code[position + 1][0] if position + 1 < len(program.code) else ""
            value = row[operands[0]]
            tested = follows.startswith(("is_null_", "is_not_null_"))
            stack.append(value if tested else _load(name, value))
        elif name.startswith("lit_"):
            stack.append(None if name == "lit_null" else operands[0])
        elif name.startswith("field_"):
            stack.append(field_value(row, tuple(operands)))
        elif name == "pack_list":
            stack.append(lists.packed_list(row[operands[0]], operands[-1]))
        elif name in ("len_list", "len_packed"):
            items = row[operands[0]]
            stack.append(None if items is None else len(items))
        elif name in _NULL_AWARE:
            function, arity = _NULL_AWARE[name]
            arguments = [stack.pop() for _ in range(arity)][::-1]
            stack.append(function(*arguments))
        else:
            function, arity = _INSTRUCTIONS[name]
            arguments = [stack.pop() for _ in range(arity)][::-1]
            stack.append(None if any(a is None for a in arguments) else function(*arguments, *operands))
    (result,) = stack
    return _narrow(result, program.arrow)


def _load_u64(value: int) -> int:
    if value > INT64_MAX:
        raise OverflowError(
            f"{value} does not fit into int64, in which expressions compute; {BEYOND_INT64}, or compute "
            "with it in map"
        )
    return value


def _load(name: str, value: Any) -> Any:
    if name == "col_i64" and value is not None:
        return _load_u64(value)
    if name == "col_view" and isinstance(value, str):
        return value.encode()
    return value


def _narrow(value: Any, type_: pa.DataType) -> Any:
    if value is None:
        return None
    if is_string(type_):
        return value.decode()
    if pat.is_float32(type_):
        return round_float32(value)
    if pat.is_integer(type_) or is_temporal(type_):
        low, high = integer_range(type_)
        if not low <= value <= high:
            raise OverflowError(f"{value} does not fit into {type_}")
    return value


# ---------------------------------------------------------------------------------------------- instructions


def _checked(function: Callable[..., int]) -> Callable[..., int]:
    def checked(*arguments: int) -> int:
        value = function(*arguments)
        if not INT64_MIN <= value <= INT64_MAX:
            raise OverflowError(f"int64 overflow in {function.__name__}({', '.join(map(str, arguments))})")
        return value

    return checked


def _decimal(function: Callable[..., int]) -> Callable[..., int]:
    def checked(*arguments: int) -> int:
        value = function(*arguments)
        if abs(value) >= 10**WIDE_DIGITS:
            raise OverflowError(f"{function.__name__}({', '.join(map(str, arguments))}): over 38 digits")
        return value

    return checked


def _divide(a: float, b: float) -> float:
    if b != 0.0:
        return a / b
    if a == 0.0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _floor_divide(a: float, b: float) -> float:
    return a // b if b != 0.0 else _divide(a, b)


def _modulo(a: float, b: float) -> float:
    return a % b if b != 0.0 else math.nan


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two numbers; a NaN loses; the first of two equal ones."""
    return a if a <= b or b != b else b


def maximum(a: Any, b: Any) -> Any:
    """The larger of two numbers; a NaN loses; the first of two equal ones."""
    return a if a >= b or b != b else b


def _power(a: float, b: float) -> float:
    if b == 2.0:
        return a * a
    odd = math.isfinite(b) and b == math.floor(b) and math.fmod(b, 2.0) != 0.0
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and odd else math.inf
    except ValueError:  # a zero to a negative power, or a negative number to a fraction
        if a == 0.0:
            return math.copysign(math.inf, a) if odd else math.inf
        return math.nan


def _exponential(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _logarithm(x: float) -> float:
    return math.log(x) if x > 0 or math.isnan(x) else -math.inf if x == 0 else math.nan


def _logarithm10(x: float) -> float:
    return math.log10(x) if x > 0 or math.isnan(x) else -math.inf if x == 0 else math.nan


def _nan_outside(function: Callable[[float], float]) -> Callable[[float], float]:
    """C's answer where Python's `math` raises: NaN outside the domain."""

    def total(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan

    return total


def _integral(function: Callable[[float], int]) -> Callable[[float], float]:
    """floor, ceil or round of a float as a float, with the sign of a zero result kept."""

    def as_float(x: float) -> float:
        return math.copysign(float(function(x)), x) if math.isfinite(x) else x

    return as_float


def _truncate(x: float) -> int:
    if math.isnan(x) or not -(2.0**63) <= x < 2.0**63:
        raise OverflowError(f"{x} can't be cast to int64")
    return math.trunc(x)


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of the month of a day counted from 1970-01-01, in the Gregorian calendar.

    A year is taken to begin in March, so that the leap day is its last one: 400 such years have 146,097
    days.
    """
    days += 719_468  # from 0000-03-01
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return year + 400 * era + (month > 9), month + 3 if month < 10 else month - 9, day


def _arrow(value: Any, call: Any) -> Any:
    return call.value(value)


def _is_in(value: Any, members: Sequence[Any]) -> bool:
    return value in members


def bits_of_float(value: float) -> int:
    """A word that equal floats have in common, and no others; the zeros are equal."""
    return int.from_bytes(struct.pack("<d", value + 0.0), "little", signed=True)


def _small(value: int) -> int:
    return value if INT64_MIN <= value <= INT64_MAX else INT64_MIN


def _lookup(index: int, table: Any, valid: Any) -> Any:
    if not 0 <= index < len(table) or (valid is not None and not valid[index]):
        return None
    return table[index].item()


_COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

def _scaled(units: int, scale: int) -> float:
    return units / 10**scale if scale >= 0 else float(units * 10**-scale)


#: Name -> (function of non-null operands, number of operands taken from the stack).
_INSTRUCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "i2f": (float, 1),
    "f2i": (_truncate, 1),
    "b2i": (int, 1),
    "i2b": (bool, 1),
    "add_i64": (_checked(operator.add), 2),
    "sub_i64": (_checked(operator.sub), 2),
    "mul_i64": (_checked(operator.mul), 2),
    "floordiv_i64": (_checked(operator.floordiv), 2),
    "mod_i64": (_checked(operator.mod), 2),
    "neg_i64": (_checked(operator.neg), 1),
    "abs_i64": (_checked(abs), 1),
    "min_i64": (minimum, 2),
    "max_i64": (maximum, 2),
    "i2d": (int, 1),
    "scaled_f64": (_scaled, 2),
    "small_i128": (_small, 1),
    "bits_f64": (bits_of_float, 1),
    "add_i128": (_decimal(operator.add), 2),
    "sub_i128": (_decimal(operator.sub), 2),
    "mul_i128": (_decimal(operator.mul), 2),
    "neg_i128": (operator.neg, 1),
    "abs_i128": (abs, 1),
    "min_i128": (minimum, 2),
    "max_i128": (maximum, 2),
    "add_f64": (operator.add, 2),
    "sub_f64": (operator.sub, 2),
    "mul_f64": (operator.mul, 2),
    "div_f64": (_divide, 2),
    "floordiv_f64": (_floor_divide, 2),
    "mod_f64": (_modulo, 2),
    "neg_f64": (operator.neg, 1),
    "abs_f64": (abs, 1),
    "min_f64": (minimum, 2),
    "max_f64": (maximum, 2),
    "pow_f64": (_power, 2),
    "atan2": (math.atan2, 2),
    "exp": (_exponential, 1),
    "log": (_logarithm, 1),
    "log10": (_logarithm10, 1),
    "atan": (math.atan, 1),
    "floor": (_integral(math.floor), 1),
    "ceil": (_integral(math.ceil), 1),
    "round": (_integral(round), 1),
    **{
        name: (_nan_outside(getattr(math, name)), 1)
        for name in ("sqrt", "sin", "cos", "tan", "asin", "acos")
    },
    **{
        f"{name}_{vm}": (function, 2)
        for name, function in _COMPARISONS.items()
        for vm in ("i64", "f64", "view", "i128")
    },
    "eq_bool": (operator.eq, 2),
    "ne_bool": (operator.ne, 2),
    "not": (operator.not_, 1),
    "in_i64": (_is_in, 1),
    "in_view": (_is_in, 1),
    "len_view": (len, 1),
    "chars_from": (lambda text, k: text.decode()[k:].encode(), 2),
    "chars_until": (lambda text, k: text.decode()[:k].encode(), 2),
    "len_chars": (lambda text: len(text.decode()), 1),
    "contains": (lambda text, part: part in text, 2),
    "starts_with": (bytes.startswith, 2),
    "ends_with": (bytes.endswith, 2),
    "year_of_day": (lambda days: civil(days)[0], 1),
    "month_of_day": (lambda days: civil(days)[1], 1),
    "day_of_month": (lambda days: civil(days)[2], 1),
    "join_view": (operator.add, 2),
    "arrow_i64": (_arrow, 1),
    "arrow_f64": (_arrow, 1),
    "arrow_bool": (_arrow, 1),
    "arrow_view": (_arrow, 1),
    "arrow_i128": (_arrow, 1),
    **{f"get_{vm}": (lists.get, 2) for vm in VM_TYPES},
    **{f"part_{vm}": (lambda value, *operands: part_of(value, operands[-1]), 1) for vm in VM_TYPES},
    "list_has": (lists.has, 2),
    "list_join": (lists.join, 2),
    "list_length": (len, 1),
    "as_list": (lists.list_stored, 1),
    "load_u64": (_load_u64, 1),
    "lookup_i64": (_lookup, 1),
    "lookup_f64": (_lookup, 1),
}


def _kleene_and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def _kleene_or(a: bool | None, b: bool | None) -> bool | None:
    if a is True or b is True:
        return True
    return None if a is None or b is None else False


def _is_null(value: Any) -> bool:
    return value is None


def _is_not_null(value: Any) -> bool:
    return value is not None


def _coalesce(a: Any, b: Any) -> Any:
    return b if a is None else a


def _if(condition: bool | None, a: Any, b: Any) -> Any:
    return a if condition else b


#: Instructions that see nulls themselves.
_NULL_AWARE: dict[str, tuple[Callable[..., Any], int]] = {
    "and": (_kleene_and, 2),
    "or": (_kleene_or, 2),
    **{f"is_null_{vm}": (_is_null, 1) for vm in VM_TYPES},
    **{f"is_not_null_{vm}": (_is_not_null, 1) for vm in VM_TYPES},
    **{f"coalesce_{vm}": (_coalesce, 2) for vm in VM_TYPES},
    **{f"if_{vm}": (_if, 3) for vm in VM_TYPES},
}

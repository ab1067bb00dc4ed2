"""Lowering: an expression and a schema become a `BoundExpr`. All type rules of expressions are here."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.expressions import casts, decimals, lists
from ordstream.expressions.bound import VM_TYPES, BoundExpr, bits_of_float
from ordstream.expressions.calls import CALLS, lower_call
from ordstream.expressions.constants import float_words, is_null_constant, plain_members, type_of_constant
from ordstream.expressions.elapsed import ELAPSING, calculated, constant_beside
from ordstream.expressions.expr import TEMPORAL_OBJECTS, Alias, Apply, Column, Expr, Literal, as_expression
from ordstream.expressions.fields import field_instruction, part_instruction, path_of
from ordstream.expressions.lowered import Code, Lowered
from ordstream.ground.datetimes import no_value
from ordstream.ground.packed_types import is_packed, is_packed_list
from ordstream.ground.types import (
    INT64_MAX,
    INT64_MIN,
    column_index,
    is_binary,
    is_list,
    is_string,
    is_temporal,
    physical_type,
    to_storage,
)

# Parts of an expression. Beyond it is one that uses itself again and again, such as 30 steps of
# ``x = x * x + x``: it would take all memory before its first row.
MOST_NODES = 1 << 18


def lower(expr: Any, schema: pa.Schema, where: str) -> BoundExpr:
    """Type-check an expression against a schema and lower it.

    Parameters
    ----------
    expr : Expr or constant
    schema : pyarrow.Schema
        Of the operator's input.
    where : str
        Name of the operator, for error texts.

    Raises
    ------
    SchemaError
        An unknown column (lists the available ones), operands whose types do not go together, or an
        expression of more than MOST_NODES parts.
    """
    expr = as_expression(expr)
    if isinstance(expr, Alias):
        expr = expr.expr
    try:
        within_measure(expr, where)
        low, text = _Lowering(schema, where).lower(expr), repr(expr)
    except RecursionError:
        raise SchemaError(
            f"{where}: an expression is nested too deeply; use isin(...), or compute it in several columns"
        ) from None
    if low.vm is None:
        raise SchemaError(f"{where}: {_Lowering(schema, where).no_type(expr)}")
    return BoundExpr(lists.stored(low), low.vm, low.arrow, text)


def within_measure(expr: Expr, where: str) -> None:
    """Raise SchemaError where an expression has more than MOST_NODES parts: before its text is made."""
    nodes = _nodes(expr, {})
    if nodes > MOST_NODES:
        raise SchemaError(
            f"{where}: an expression of {nodes} parts, where {MOST_NODES} are the most: what is used "
            "several times in it is computed as often; make it a column in front, by with_columns"
        )


def _nodes(expr: Expr, known: dict[int, int]) -> int:
    """Of how many parts an expression is made, shared ones as often as they are used."""
    if not isinstance(expr, Apply):
        return 1
    found = known.get(id(expr))
    if found is None:
        found = known[id(expr)] = 1 + sum(_nodes(argument, known) for argument in expr.arguments)
    return found


def computed_type(type_: pa.DataType) -> pa.DataType:
    """Type of a computed column made from values of this type: 64-bit numbers, utf8 or binary, or a packed
    type as it is.
    """
    if is_packed(type_):
        return type_
    if pat.is_integer(type_):
        return pa.int64()
    if pat.is_floating(type_):
        return pa.float64()
    return pa.string() if is_string(type_) else pa.binary() if is_binary(type_) else type_


def _is_narrow(type_: pa.DataType) -> bool:
    """A column of it has not all values that the expression stack has."""
    return type_ != computed_type(type_) or (is_temporal(type_) and type_.bit_width < 64)


class _Lowering:
    def __init__(self, schema: pa.Schema, where: str) -> None:
        self.schema = schema
        self.where = where

    def error(self, text: str) -> SchemaError:
        return SchemaError(f"{self.where}: {text}")

    def lower(self, expr: Expr, hint: Any = None) -> Lowered:
        """Code of an expression; `hint` is the type that a constant without one should take."""
        if isinstance(expr, Column):
            return self.literal(Literal(None), hint) if self.is_none(expr) else self.column(expr)
        if isinstance(expr, Literal):
            return self.literal(expr, hint)
        if isinstance(expr, Apply):
            return _FAMILIES[expr.function](self, expr)
        name = expr.name if isinstance(expr, Alias) else repr(expr)
        raise self.error(f"the name {name!r} must be given to the whole expression, not to a part of it")

    def column(self, expr: Column) -> Lowered:
        index = column_index(self.schema, expr.name, self.where)
        type_ = self.schema.field(index).type
        vm = physical_type(type_, expr.name).vm
        if vm is None:
            text = f"column {expr.name!r} is {type_}: it can be passed through, not computed with"
            looked_into = lists.is_listed(type_) or pat.is_struct(type_)
            advice = ".list and .struct look into it" if looked_into else "cast it in front of the pipeline"
            raise self.error(f"{text}; {advice}")
        return Lowered(((f"col_{vm}", index),), vm, computed_type(type_), single=pat.is_float32(type_))

    def literal(self, expr: Literal, hint: Any) -> Lowered:
        value: Any = expr.value
        type_ = expr.type
        plain_int = isinstance(value, int) and not isinstance(value, bool)
        if type_ is None and hint is not None:
            as_time = is_temporal(hint) and (plain_int or isinstance(value, TEMPORAL_OBJECTS))
            if value is None or as_time or (plain_int and pat.is_floating(hint)):
                type_ = hint
        if type_ is None:
            if value is None:
                return Lowered((), None, None)
            if isinstance(value, decimal.Decimal):
                try:
                    value = decimals.constant(value)
                except SchemaError as error:
                    raise self.error(str(error)) from None
            try:
                type_ = type_of_constant(value)
            except SchemaError as error:
                raise self.error(str(error)) from error.__cause__
        if value is None and (is_packed(type_) or is_list(type_)):  # a packed value, as all lists here
            return Lowered((("lit_null", "view"),), "view", type_)
        vm = physical_type(type_, "constant").vm
        if vm is None:
            raise self.error(f"a constant can't be {type_}")
        if plain_int and pat.is_decimal128(type_):
            value = decimal.Decimal(value)
        told, type_ = type_, computed_type(type_)
        if value is None:
            return Lowered((("lit_null", vm),), vm, type_)
        try:
            given = float(value) if plain_int and vm == "f64" else value
            # what it is compared with may lie behind the end of a day
            value = to_storage(given, type_, "constant", counts=expr.type is None)
        except (TypeError, ValueError, OverflowError) as error:
            why = "" if told.equals(type_) else f": expressions compute {told} as {type_}"
            text = str(error).replace("column 'constant' is", "beside", 1) + why
            raise self.error(text) from error
        return Lowered(((f"lit_{vm}", value.encode() if isinstance(value, str) else value),), vm, type_)

    def operands(self, expr: Apply, hint: Any = None, *, elapses: bool = False) -> list[Lowered]:
        """The lowered arguments; constants take their type from the other arguments, or from `hint`. None is
        a list or a struct.

        `elapses`: beside a time a constant may be a duration, and beside a duration a time or a number.
        """
        lowered: dict[int, Lowered] = {}
        for i in sorted(range(len(expr.arguments)), key=lambda i: self.hints_little(expr.arguments[i])):
            known = next((low.arrow for low in lowered.values() if low.vm is not None), hint)
            argument = expr.arguments[i]
            if (
                elapses
                and known is not None
                and is_temporal(known)
                and isinstance(argument, Literal)
                and argument.type is None
            ):
                try:
                    argument, known = constant_beside(argument, known), None
                except SchemaError as error:
                    raise self.error(str(error)) from None
            low = self.lower(argument, known)
            if low.narrow:
                text = f"the cast to {low.arrow} in {expr!r} must be the outermost operation"
                raise self.error(f"{text}; use 64-bit types inside")
            if low.vm is not None and lists.is_nested(low.arrow):
                text = f"{argument!r} is {low.arrow}: it can be passed through, not computed with"
                raise self.error(f"{text}; .list and .struct look into it")
            lowered[i] = low
        if any(low.vm is None for low in lowered.values()):
            raise self.error(self.no_type(expr))
        return [lowered[i] for i in range(len(expr.arguments))]

    def no_type(self, expr: Expr) -> str:
        """What to say where nothing tells the type of None."""
        for one in getattr(expr, "arguments", (expr,)):
            if isinstance(one, Column) and self.is_none(one):
                return f"column {one.name!r} has nothing but nulls, no type; cast it, such as .cast(float)"
        within = f" in {expr!r}" if isinstance(expr, Apply) else ""
        return f"the type of None is not known{within}; write od.lit(None, type)"

    def hints_little(self, argument: Expr) -> int:
        """0: it has a type of its own; 1: a constant, which takes one from its neighbours; 2: None."""
        if self.is_none(argument) and getattr(argument, "type", None) is None:
            return 2
        return 1 if isinstance(argument, Literal) else 0

    def is_none(self, expr: Expr) -> bool:
        """A constant None, or a column of nothing but nulls, which says no type either."""
        if isinstance(expr, Literal):
            return expr.value is None
        type_ = self.column_type(expr)
        return type_ is not None and bool(pat.is_null(type_))

    def number(self, expr: Expr, low: Lowered) -> Lowered:
        if low.is_number:
            return low
        advice = "cast it to pa.int64() first" if low.vm in ("i64", "bool") else "a number is needed"
        raise self.error(f"can't calculate with {low.arrow} in {expr!r}: {advice}")

    def common(self, expr: Expr, a: Lowered, b: Lowered) -> tuple[Lowered, Lowered]:
        """Both operands in one class: int with float becomes float; everything else must agree."""
        if a.arrow == b.arrow:
            return a, b
        if decimals.meets_decimal(a, b):
            try:
                return decimals.in_one_unit(expr, a, b)[:2]
            except SchemaError as error:
                raise self.error(str(error)) from None
        if a.is_number and b.is_number:
            return _to_float(a), _to_float(b)
        text = f"{a.arrow} and {b.arrow} do not go together in {expr!r}"
        if any(is_string(x.arrow) and is_temporal(y.arrow) for x, y in ((a, b), (b, a))):
            text += "; write the time as a datetime object, or cast the string"
        raise self.error(text)

    def check_times(self, expr: Expr, *values: Lowered) -> None:
        """A constant that becomes a value is one of its type, as what it is compared with need not be."""
        for low in values:
            if is_temporal(low.arrow) and len(low.code) == 1 and low.code[0][0] == "lit_i64":
                why = no_value(low.code[0][1], low.arrow)
                if why:
                    raise self.error(f"{low.arrow} in {expr!r}: {why}")

    def boolean(self, expr: Expr, low: Lowered) -> Lowered:
        if low.vm == "bool":
            return low
        advice = "comparisons next to & and | need parentheses"
        raise self.error(f"a boolean is needed, got {low.arrow} in {expr!r} ({advice})")

    # ---------------------------------------------------------------------------- families of functions

    def arithmetic(self, expr: Apply) -> Lowered:
        a, b = self.operands(expr, elapses=expr.function in ELAPSING)
        if expr.function == "add" and (is_string(a.arrow) or is_string(b.arrow)):
            return self.joined(expr, a, b)
        if expr.function in ELAPSING and (is_temporal(a.arrow) or is_temporal(b.arrow)):
            try:
                return calculated(expr, a, b)
            except SchemaError as error:
                raise self.error(str(error)) from None
        if expr.function in decimals.EXACT and decimals.meets_decimal(a, b):
            try:
                return decimals.calculated(expr, a, b)
            except SchemaError as error:
                raise self.error(str(error)) from None
        if not (expr.function in ("min", "max") and is_temporal(a.arrow) and a.arrow == b.arrow):
            a, b = self.number(expr, a), self.number(expr, b)
        if expr.function in ("div", "pow", "atan2"):
            a, b = _to_float(a), _to_float(b)
        a, b = self.common(expr, a, b)
        self.check_times(expr, a, b)
        name = expr.function if expr.function == "atan2" else f"{expr.function}_{a.vm}"
        return Lowered((*a.code, *b.code, (name,)), a.vm, a.arrow)

    def joined(self, expr: Apply, a: Lowered, b: Lowered) -> Lowered:
        """One string behind the other."""
        for low in (a, b):
            if not is_string(low.arrow):
                instead = "a span is datetime.timedelta(...), else " if is_temporal(low.arrow) else ""
                raise self.error(f"{low.arrow} beside a string in {expr!r}: {instead}cast it to str first")
        return Lowered((*a.code, *b.code, ("join_view",)), "view", pa.string())

    def sign(self, expr: Apply) -> Lowered:
        (a,) = self.operands(expr)
        if not pat.is_duration(a.arrow):
            a = self.number(expr, a)
        return Lowered((*a.code, (f"{expr.function}_{a.vm}",)), a.vm, a.arrow)

    def mathematical(self, expr: Apply) -> Lowered:
        (a,) = self.operands(expr)
        return Lowered((*_to_float(self.number(expr, a)).code, (expr.function,)), "f64", pa.float64())

    def comparison(self, expr: Apply) -> Lowered:
        a, b = self.operands(expr)
        time_with_int = a.vm == b.vm == "i64" and (pat.is_integer(a.arrow) or pat.is_integer(b.arrow))
        if not time_with_int or decimals.meets_decimal(a, b):
            a, b = self.common(expr, a, b)
        if a.vm == "bool" and expr.function not in ("eq", "ne"):
            raise self.error(f"booleans have no order in {expr!r}; only == and != compare them")
        return Lowered((*a.code, *b.code, (f"{expr.function}_{a.vm}",)), "bool", pa.bool_())

    def logic(self, expr: Apply) -> Lowered:
        operands = [self.boolean(expr, low) for low in self.operands(expr, pa.bool_())]
        code = itertools.chain.from_iterable(low.code for low in operands)
        return Lowered((*code, (expr.function,)), "bool", pa.bool_())

    def null_test(self, expr: Apply) -> Lowered:
        argument = expr.arguments[0]
        if isinstance(argument, Column) and is_packed(self.column_type(argument)):
            # the values are not looked at
            a = Lowered((("col_view", column_index(self.schema, argument.name, self.where)),), "view", None)
        elif isinstance(argument, Apply) and argument.function in _OF_NESTED:
            a = self.lower(argument)
        else:
            a = self.length(expr) if self.is_list_column(argument) else self.operands(expr)[0]
        return Lowered((*a.code, (f"{expr.function}_{a.vm}",)), "bool", pa.bool_())

    def choice(self, expr: Apply) -> Lowered:
        code: Code = ()
        if expr.function == "if":
            code = self.boolean(expr, self.operands(Apply("if", expr.arguments[0]), pa.bool_())[0]).code
        a, b = self.common(expr, *self.operands(Apply(expr.function, *expr.arguments[-2:])))
        self.check_times(expr, a, b)
        return Lowered((*code, *a.code, *b.code, (f"{expr.function}_{a.vm}",)), a.vm, a.arrow)

    def membership(self, expr: Apply) -> Lowered:
        (a,) = self.operands(expr)
        if a.vm == "bool":
            raise self.error(f"isin on booleans in {expr!r}; use == or ~")
        plain = None if a.arrow is None else plain_members(expr.option, a.arrow)
        if plain is not None:
            return Lowered((*a.code, (f"in_{a.vm}", plain)), "bool", pa.bool_())
        if any(map(is_null_constant, expr.option)):
            raise self.error(f"None among the values of {expr!r}; combine with .is_null()")
        if decimals.is_decimal(a) and all(type(value) in (int, decimal.Decimal) for value in expr.option):
            try:
                found = decimals.members(a, expr.option)
            except SchemaError as error:
                raise self.error(str(error)) from None
            if a.vm == "i64":
                return Lowered((*a.code, ("in_i64", found)), "bool", pa.bool_())
            # what has more than 64 bits of its unit is rare, and compared one by one
            small = tuple(one for one in found if INT64_MIN < one <= INT64_MAX)
            wide = {one for one in found if not INT64_MIN < one <= INT64_MAX}
            compared = [Lowered((("lit_i128", one),), "i128", a.arrow) for one in sorted(wide)]
            return self.one_of(a, ("small_i128", small), compared)
        words = None if a.arrow is None else float_words(expr.option, a.arrow)
        if words is not None:
            return self.one_of(a, ("bits_f64", words), [])
        members = [self.literal(Literal(value), a.arrow) for value in expr.option]
        if a.vm == "f64":
            members = [_to_float(self.number(expr, low)) for low in members]
            known = [low for low in members if low.code[1:] in ((), (("i2f",),))]
            numbers = [float(low.code[0][1]) for low in known]
            bits = tuple(bits_of_float(number) for number in numbers if number == number)  # no NaN
            others = [low for low in members if low.code[1:] not in ((), (("i2f",),))]
            return self.one_of(a, ("bits_f64", bits), others)
        if a.vm == "i128":
            raise self.error(f"numbers among the values for {a.arrow} in {expr!r} must be ints or Decimals")
        for low in members:
            if low.arrow != a.arrow and not (low.vm == a.vm == "i64" and pat.is_integer(low.arrow)):
                raise self.error(f"{low.arrow} among the values for {a.arrow} in {expr!r}")
        values = tuple(low.code[0][1] for low in members)
        return Lowered((*a.code, (f"in_{a.vm}", values)), "bool", pa.bool_())

    def one_of(self, a: Lowered, by_word: tuple[str, tuple[int, ...]], others: list[Lowered]) -> Lowered:
        """Membership by a word that an instruction makes of a value, or x == m1 | x == m2 | ..."""
        word, values = by_word
        code: Code = (*a.code, (word,), ("in_i64", values))
        for low in others:
            code += (*a.code, *low.code, (f"eq_{a.vm}",), ("or",))
        return Lowered(code, "bool", pa.bool_())

    def is_list_column(self, expr: Expr) -> bool:
        type_ = self.column_type(expr)
        return type_ is not None and (is_list(type_) or is_packed_list(type_))

    def column_type(self, expr: Expr) -> pa.DataType | None:
        """Of an expression that is a column alone."""
        if not isinstance(expr, Column):
            return None
        return self.schema.field(column_index(self.schema, expr.name, self.where)).type

    def field(self, expr: Apply) -> Lowered:
        start, names = path_of(expr)
        if not isinstance(start, Column):
            return self.part(start, names)
        index = column_index(self.schema, start.name, self.where)
        try:
            instruction, vm, type_ = field_instruction(index, self.schema.field(index), names)
        except SchemaError as error:
            raise self.error(str(error)) from None
        return Lowered((instruction,), vm, computed_type(type_), single=pat.is_float32(type_))

    def part(self, start: Expr, names: list[str]) -> Lowered:
        """A field of a struct that is no column."""
        low = self.lower(start)
        if low.arrow is None:
            raise self.error("struct.field is for structs, got None")
        try:
            instruction, vm, type_ = part_instruction(low.arrow, repr(start), names)
        except SchemaError as error:
            raise self.error(str(error)) from None
        return Lowered((*low.code, instruction), vm, computed_type(type_), single=pat.is_float32(type_))

    def listed(self, expr: Expr) -> Lowered:
        """A list, as it is on the stack."""
        if not isinstance(expr, Column):
            return self.lower(expr)
        field = self.schema.field(column_index(self.schema, expr.name, self.where))
        if not lists.is_nested(field.type):
            return Lowered((), None, field.type)  # refused by who looks at the type
        return lists.loaded(self.schema.get_field_index(expr.name), field.type, expr.name)

    def of_list(self, expr: Apply) -> Lowered:
        argument, given = expr.arguments[0], expr.arguments[1:]
        try:
            low = self.listed(argument)
            type_ = lists.element_type(expr, low)
            if expr.function == "list.contains":
                mine = lists.compared(expr, low)
                mine = Lowered((), mine.vm, computed_type(type_))
                (value,) = self.operands(Apply("list.contains", *given), mine.arrow)
                fits = decimals.is_decimal(mine) and value.code[0][0].startswith("lit_")  # in its unit
                if decimals.meets_decimal(mine, value) and mine.arrow != value.arrow and not fits:
                    raise SchemaError(f"{expr!r}: cast the value to {mine.arrow}, as the elements are")
                same, value = self.common(expr, mine, value)
                if same.code or same.vm != mine.vm:
                    raise SchemaError(f"{expr!r}: cast the value to {mine.arrow}, as the elements are")
                return lists.membership(low, value)
            (other,) = self.operands(Apply(expr.function, *given), None)
            if expr.function == "list.join":
                return lists.joined(expr, low, other)
            made = lists.element(expr, low, other)
        except SchemaError as error:
            text = str(error)
            raise (error if text.startswith(f"{self.where}: ") else self.error(text)) from None
        return Lowered(made.code, made.vm, computed_type(made.arrow), single=pat.is_float32(made.arrow))

    def length(self, expr: Apply) -> Lowered:
        argument = expr.arguments[0]
        if isinstance(argument, Column) and self.is_list_column(argument):
            index = column_index(self.schema, argument.name, self.where)
            name = "len_packed" if is_packed(self.schema.field(index).type) else "len_list"
            return Lowered(((name, index),), "i64", pa.int64())
        if isinstance(argument, Apply) and argument.function in _OF_NESTED:
            low = self.lower(argument)
            if lists.is_listed(low.arrow):
                return lists.measured(low)
        (a,) = self.operands(expr)
        if expr.function == "list.length":
            raise self.error(f"{expr!r} is for lists, got {a.arrow}")
        if a.vm != "view":
            raise self.error(f"length() is for lists, strings and binaries, got {a.arrow} in {expr!r}")
        return Lowered((*a.code, ("len_view",)), "i64", pa.int64())

    def lookup(self, expr: Apply) -> Lowered:
        (a,) = self.operands(expr)
        if a.vm != "i64" or not pat.is_integer(a.arrow):
            raise self.error(f"the index of a lookup must be an integer, got {a.arrow} in {expr!r}")
        table = expr.option
        vm, arrow = ("f64", pa.float64()) if table.values.dtype.kind == "f" else ("i64", pa.int64())
        return Lowered((*a.code, (f"lookup_{vm}", table.values, table.valid)), vm, arrow)

    def call(self, expr: Apply) -> Lowered:
        operands = self.operands(expr)
        try:
            return lower_call(expr, operands)
        except SchemaError as error:
            raise self.error(str(error)) from error.__cause__

    def try_cast(self, expr: Apply) -> Lowered:
        argument, target = expr.arguments[0], expr.option
        if self.is_none(argument):
            return self.cast(expr)
        (a,) = self.operands(expr)
        try:
            if _is_decimal_cast(a, target):
                return decimals.cast(expr, a, target, strict=False)
            made = casts.or_null(expr, a, target)
        except SchemaError as error:
            raise self.error(str(error)) from error.__cause__
        return self.cast(expr) if made is None else made

    def cast(self, expr: Apply) -> Lowered:
        argument, target = expr.arguments[0], expr.option
        if self.is_none(argument):
            null = self.literal(Literal(None, target), None)
            return Lowered(null.code, null.vm, target, null.vm != "view" and _is_narrow(target))
        (a,) = self.operands(expr)
        if _is_decimal_cast(a, target):
            try:
                return decimals.cast(expr, a, target)
            except SchemaError as error:
                raise self.error(str(error)) from None
        try:
            made = casts.changed(expr, a, target)
        except SchemaError as error:
            raise self.error(str(error)) from error.__cause__
        if made is not None:
            return made
        vm = physical_type(target, "cast").vm
        code = _CONVERSIONS.get((a.vm, vm))
        changes_time = target != a.arrow and (
            (is_temporal(a.arrow) and not pat.is_integer(target))
            or (is_temporal(target) and not pat.is_integer(a.arrow))
        )
        changes_bytes = vm == "view" and (
            target not in (pa.string(), pa.binary()) or (is_string(target) and is_binary(a.arrow))
        )
        if code is None or changes_time or changes_bytes:
            zones = pat.is_timestamp(a.arrow) and pat.is_timestamp(target)
            advice = "; dt.convert_time_zone and dt.replace_time_zone change zones" if zones else ""
            raise self.error(f"no cast from {a.arrow} to {target} in {expr!r}{advice}")
        return Lowered((*a.code, *code), vm, target, _is_narrow(target))


def _is_decimal_cast(low: Lowered, target: pa.DataType) -> bool:
    return bool(decimals.is_decimal(low) or pat.is_decimal128(target)) and target != low.arrow


def _to_float(low: Lowered) -> Lowered:
    if decimals.is_decimal(low):
        return decimals.to_float(low)
    return low if low.vm == "f64" else Lowered((*low.code, ("i2f",)), "f64", pa.float64())


_CONVERSIONS: dict[tuple[str | None, str | None], tuple[tuple[str], ...]] = {
    ("i64", "f64"): (("i2f",),),
    ("f64", "i64"): (("f2i",),),
    ("bool", "i64"): (("b2i",),),
    ("i64", "bool"): (("i2b",),),
    ("bool", "f64"): (("b2i",), ("i2f",)),
    **{(vm, vm): () for vm in VM_TYPES},
}

_MATHEMATICAL = (
    "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "exp", "log", "log10", "floor", "ceil", "round",
)  # fmt: skip

#: Functions that may give a list or a struct.
_OF_NESTED = ("struct.field", "list.get", "str.split")

_FAMILIES: dict[str, Callable[[_Lowering, Apply], Lowered]] = {
    **dict.fromkeys(
        ("add", "sub", "mul", "div", "floordiv", "mod", "pow", "min", "max", "atan2"), _Lowering.arithmetic
    ),
    **dict.fromkeys(("neg", "abs"), _Lowering.sign),
    **dict.fromkeys(_MATHEMATICAL, _Lowering.mathematical),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _Lowering.comparison),
    **dict.fromkeys(("and", "or", "not"), _Lowering.logic),
    **dict.fromkeys(("is_null", "is_not_null"), _Lowering.null_test),
    **dict.fromkeys(("if", "coalesce"), _Lowering.choice),
    "isin": _Lowering.membership,
    **dict.fromkeys(("length", "list.length"), _Lowering.length),
    **dict.fromkeys(("list.get", "list.contains", "list.join"), _Lowering.of_list),
    "lookup": _Lowering.lookup,
    "struct.field": _Lowering.field,
    "cast": _Lowering.cast,
    "try_cast": _Lowering.try_cast,
    **dict.fromkeys(CALLS, _Lowering.call),
}

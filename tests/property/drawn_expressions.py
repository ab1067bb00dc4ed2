"""Random expressions over a schema, as Python text, for the property tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st
from property.drawn_values import FLOATS, STRINGS

from ordstream.ground.packed_types import is_packed_list
from ordstream.ground.types import (
    is_list,
    is_string,
    is_temporal,
)


def named(schema: pa.Schema, test: Any) -> list[str]:
    return [field.name for field in schema if test(field.type)]


def plain_number(type_: pa.DataType) -> bool:
    return pat.is_integer(type_) or pat.is_float32(type_) or pat.is_float64(type_)


def listing(test: Any) -> Any:
    """Whether a type is a list of what passes the test."""
    return lambda type_: (is_list(type_) or is_packed_list(type_)) and test(type_.value_type)


def counted(type_: pa.DataType) -> bool:
    """An integer that lists are searched for."""
    return pat.is_integer(type_) and not pat.is_uint64(type_)


def column_text(name: str) -> str:
    return f"od.col({name!r})"


@dataclass
class Expressions:
    """Texts of expressions over a schema."""

    draw: Any
    schema: pa.Schema

    def pick(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def integer(self, depth: int = 2) -> str:
        names = named(self.schema, pat.is_integer)
        kinds = ["literal"] + ["column"] * 4 * bool(names)
        if depth:
            kinds += ["binary", "binary", "unary", "if", "coalesce", "from_float", "from_bool", "lookup"]
            kinds += ["length"] * bool(named(self.schema, lambda t: is_string(t) or is_list(t)))
            kinds += ["time"] * bool(named(self.schema, is_temporal))
            kinds += ["element"] * bool(named(self.schema, listing(pat.is_integer)))
            kinds += ["parts"] * bool(named(self.schema, is_string))
        kind = self.pick(kinds)
        if kind == "element":
            return self.element(pat.is_integer, depth)
        if kind == "parts":
            return f"{self.parts()}.{self.pick(('list.length', 'length'))}()"
        if kind == "literal":
            return f"od.lit({self.draw(st.integers(-3, 9))})"
        if kind == "column":
            return column_text(self.pick(names))
        if kind == "length" and named(self.schema, is_string) and self.draw(st.booleans()):
            return f"{self.string()}.str.length()"
        if kind == "length":
            measured = named(self.schema, lambda t: is_string(t) or is_list(t))
            return f"{column_text(self.pick(measured))}.length()"
        if kind == "time":
            parts = named(self.schema, lambda t: pat.is_timestamp(t) or pat.is_date(t))
            if parts and self.draw(st.booleans()):
                part = self.pick(("year()", "month()", "day()", "weekday()", "week()", "epoch('s')"))
                return f"{self.time(self.pick(parts))}.dt.{part}"
            return f"{column_text(self.pick(named(self.schema, is_temporal)))}.cast(pa.int64())"
        if kind == "from_float":
            return f"{self.float(depth - 1)}.cast(pa.int64())"
        if kind == "from_bool":
            return f"{self.boolean(depth - 1)}.cast(pa.int64())"
        if kind == "lookup":
            return f"{self.integer(depth - 1)}.lookup(pa.array([5, None, -7, 9]))"
        return self.any_of(self.integer, kind, depth, ("+", "-", "*", "//", "%"))

    def string(self) -> str:
        """A string column as it is, or what a function of it gives."""
        column = column_text(self.pick(named(self.schema, is_string)))
        calls = ("lower()", "upper()", "slice(1, 3)", "slice(-2)", "replace('a', 'bb')", "reverse()")
        calls += ("extract('(.)$')", "pad_start(3, '-')", "strip_chars('a')")
        joined = f"({column} + {column_text(self.pick(named(self.schema, is_string)))})"
        part = f"{self.parts()}.list.{self.pick(('first()', 'last()', 'get(1)', 'get(-2)'))}"
        found = (column, joined, f"({joined} + '-')", *(f"{column}.str.{call}" for call in calls), part)
        if texts := named(self.schema, listing(is_string)):
            nulls = self.pick(("", ", ignore_nulls=False"))
            found += (f"{column_text(self.pick(texts))}.list.join('+'{nulls})", self.element(is_string, 1))
        return self.pick(found)

    def parts(self) -> str:
        """A list of the parts of a string column; there is one."""
        column = column_text(self.pick(named(self.schema, is_string)))
        by = ("'a'", "'b', n=1", "", "'[b ]+', regex=True", "'x*', regex=True, n=2", "'\\x00'")
        return f"{column}.str.split({self.pick(by)})"

    def element(self, test: Any, depth: int = 0) -> str:
        """An element of a list of what passes the test; there is one."""
        lists = column_text(self.pick(named(self.schema, listing(test))))
        if self.draw(st.booleans()):
            return f"{lists}.list.{self.pick(('first()', 'last()'))}"
        index = self.integer(depth - 1) if depth else f"{self.draw(st.integers(-3, 3))}"
        return f"{lists}.list.get({index})"

    def time(self, name: str) -> str:
        """A date or a timestamp as it is, or truncated."""
        column = column_text(name)
        return self.pick(
            (column, column, *(f"{column}.dt.truncate({every!r})" for every in ("2d", "1w", "1mo")))
        )

    def float(self, depth: int = 2) -> str:
        names = named(self.schema, lambda t: pat.is_float32(t) or pat.is_float64(t))
        kinds = ["literal"] + ["column"] * 4 * bool(names)
        if depth:
            kinds += ["binary", "binary", "unary", "if", "coalesce", "from_int", "divide", "math", "lookup"]
        kind = self.pick(kinds)
        if kind == "literal":
            return f"od.lit({self.pick(FLOATS)!r})"
        if kind == "column":
            return column_text(self.pick(names))
        if kind == "from_int":
            return f"{self.integer(depth - 1)}.cast(pa.float64())"
        if kind == "divide":
            return f"({self.integer(depth - 1)} / {self.integer(depth - 1)})"
        if kind == "lookup":
            return f"{self.integer(depth - 1)}.lookup(pa.array([0.5, -0.0, None, nan]))"
        if kind == "math":
            name = self.pick(
                (
                    "sqrt",
                    "sin",
                    "cos",
                    "tan",
                    "asin",
                    "acos",
                    "atan",
                    "exp",
                    "log",
                    "log10",
                    "floor",
                    "ceil",
                    "round",
                )
            )
            return f"{self.float(depth - 1)}.{name}()"
        return self.any_of(self.float, kind, depth, ("+", "-", "*", "/", "//", "%", "**"))

    def decimal(self, depth: int = 2) -> str:
        """Of a decimal column, of few digits or many; there is one."""
        names = named(self.schema, pat.is_decimal128)
        kind = self.pick(["column", "binary", "unary", "if", "coalesce"] if depth else ["column"])
        if kind == "column":
            return column_text(self.pick(names))
        if kind == "binary" and self.draw(st.booleans()):
            other = self.pick(("Decimal('-0.25')", "Decimal('12345678901234567890')", "3", self.integer(0)))
            return f"({self.decimal(depth - 1)} {self.pick('+-*')} {other})"
        return self.any_of(self.decimal, kind, depth, ("+", "-", "*"))

    def any_of(self, same: Any, kind: str, depth: int, symbols: tuple[str, ...]) -> str:
        a = same(depth - 1)
        if kind == "unary":
            return self.pick((f"(-{a})", f"abs({a})"))
        if kind == "if":
            return f"od.if_else({self.boolean(depth - 1)}, {a}, {same(depth - 1)})"
        if kind == "coalesce":
            return f"{a}.coalesce({same(depth - 1)})"
        symbol = self.pick((*symbols, "minimum", "maximum"))
        return (
            f"{a}.{symbol}({same(depth - 1)})" if symbol.isalpha() else f"({a} {symbol} {same(depth - 1)})"
        )

    def boolean(self, depth: int = 2) -> str:
        names = named(self.schema, pat.is_boolean)
        kinds = ["null", "compare"] + ["column"] * 3 * bool(names)
        kinds += ["text"] * 2 * bool(named(self.schema, is_string))
        kinds += ["time"] * 2 * bool(named(self.schema, is_temporal))
        kinds += ["contains"] * bool(named(self.schema, listing(counted)))
        if depth:
            kinds += ["compare", "compare", "logic", "logic", "not", "isin", "eq"]
        kind = self.pick(kinds)
        if kind == "null":
            return f"{column_text(self.pick(self.schema.names))}.{self.pick(('is_null', 'is_not_null'))}()"
        if kind == "column":
            return column_text(self.pick(names))
        if kind == "contains":
            lists = column_text(self.pick(named(self.schema, listing(counted))))
            return f"{lists}.list.contains({self.integer(max(depth - 1, 0))})"
        symbol = self.pick(("==", "!=", "<", "<=", ">", ">="))
        if kind == "text":
            column = column_text(self.pick(named(self.schema, is_string)))
            if self.draw(st.booleans()):
                return f"{column}.isin({self.draw(st.lists(st.sampled_from(STRINGS), max_size=3))!r})"
            other = repr(self.pick(STRINGS))
            test = self.pick(("contains", "starts_with", "ends_with", ""))
            if test:
                return f"{self.string()}.str.{test}({other})"
            return f"({column} {symbol} {other})"
        if kind == "time":
            column = column_text(self.pick(named(self.schema, is_temporal)))
            return f"({column} {symbol} {self.draw(st.integers(-5, 40))})"
        if kind == "compare":
            decimals = (self.decimal,) * bool(named(self.schema, pat.is_decimal128))
            same = self.pick((self.integer, self.float, *decimals, *decimals))
            return f"({same(max(depth - 1, 0))} {symbol} {same(max(depth - 1, 0))})"
        if kind == "isin":
            if self.draw(st.booleans()):
                return (
                    f"{self.integer(depth - 1)}.isin({self.draw(st.lists(st.integers(-4, 9), max_size=4))})"
                )
            return f"{self.float(depth - 1)}.isin({[self.pick(FLOATS), 0]})"
        if kind == "not":
            return f"(~{self.boolean(depth - 1)})"
        if kind == "eq":
            return f"({self.boolean(depth - 1)} {self.pick(('==', '!='))} {self.boolean(depth - 1)})"
        return f"({self.boolean(depth - 1)} {self.pick(('&', '|'))} {self.boolean(depth - 1)})"

    def any(self, depth: int = 2) -> str:
        decimals = (self.decimal,) * bool(named(self.schema, pat.is_decimal128))
        return self.pick((self.integer, self.float, self.boolean, *decimals))(depth)

    def aggregated(self, gathers: bool) -> list[tuple[str, str]]:
        """(function, arguments) of aggregations of expressions; `gathers`: some keep values."""
        whole, other, real = self.integer(1), self.integer(1), self.float(1)
        calls = [(function, whole) for function in ("sum", "mean", "min", "max", "count", "last")]
        calls += [(function, real) for function in ("sum", "var", "max", "first")]
        if gathers:
            calls += [("collect", f"{other}, 2"), ("arg_max", f"{whole}, {other}"), ("median", real)]
        return [*calls, ("sum", other)]

    def column(self) -> str:
        """An expression of any kind, perhaps with a narrowing cast around it."""
        text = self.any()
        if named(self.schema, is_string) and self.draw(st.integers(0, 3)) == 0:
            return self.string()
        if named(self.schema, is_string) and self.draw(st.integers(0, 5)) == 0:
            return self.parts()
        if (
            named(self.schema, listing(lambda type_: not pat.is_uint64(type_)))
            and self.draw(st.integers(0, 2)) == 0
        ):
            return self.element(lambda type_: not pat.is_uint64(type_), 1)
        if self.draw(st.integers(0, 4)) == 0:
            target = self.pick(("int8", "int16", "uint8", "int32", "uint64", "float32", "bool_"))
            if target != "bool_" and self.draw(st.booleans()):
                return f"{self.pick((self.integer(), self.float(1)))}.cast(pa.{target}(), strict=False)"
            return f"{self.integer()}.cast(pa.{target}())"
        if named(self.schema, is_string) and self.draw(st.integers(0, 7)) == 0:
            target = self.pick(("int8", "int64", "float64", "date32"))
            return f"{self.string()}.cast(pa.{target}(), strict=False)"
        return text

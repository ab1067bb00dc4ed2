"""What all operators with a function of the user's share: checks of the function, and its reference.

Rows go in as Python values, results come out strictly typed. A compiled function computes on storage values:
dates and times are ints of their unit.
"""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError, shown
from ordstream.expressions.expr import Expr
from ordstream.expressions.synonyms import instead_of_constant, is_uncalled
from ordstream.ground.columns_read import columns_read
from ordstream.ground.datetimes import check_nanoseconds
from ordstream.ground.rows import row_class, slotted_rows, whole_row
from ordstream.ground.types import pipeline_schema, to_python, to_storage
from ordstream.operators.operator import Operator
from ordstream.reference.base import Row, SerialOperator
from ordstream.udf.functions import is_native

#: Largest fan_out: room for so many outputs is reserved before a compiled function is called.
MOST_FAN_OUT = 1 << 24


def check_function(fn: Any, where: str, instead: str, *, compiled: bool, called: str = "fn(row)") -> None:
    """PlanError unless `fn` is a function that the operator can run.

    Parameters
    ----------
    fn : object
    where : str
    instead : str
        The method that takes an expression.
    compiled : bool
        A compiled function is welcome.
    called : str
        How the operator calls it.
    """
    if isinstance(fn, Expr):
        raise PlanError(f"{where}: a function is needed, got the expression {fn!r}; use {instead}")
    if is_uncalled(fn):
        raise PlanError(f"{where}: a function is needed, got {fn.__name__}{instead_of_constant(fn)}")
    if is_native(fn):
        if not compiled:
            raise PlanError(
                f"{where}: {fn!r} is a compiled function; only map, flat_map and process take one, with "
                "compiled=True"
            )
    elif not callable(fn):
        raise PlanError(f"{where}: a function is needed, got {fn!r}")
    elif not compiled:  # Numba tells of the others
        check_arguments(fn, where, called)


def check_arguments(fn: Any, where: str, called: str) -> None:
    """PlanError where a function can't be called in this way, such as "fn(row, state, emit)".

    It would fail at each row, and under `on_error="skip"` drop them all. What does not tell its arguments,
    such as some of Python's own functions, is left to the run.
    """
    try:  # a decorator's own arguments are meant, not those of what it wraps
        taken = inspect.signature(getattr(fn, "py_func", fn), follow_wrapped=False)
    except (TypeError, ValueError):
        return
    given = called.partition("(")[2].rstrip(")").split(", ")
    try:
        taken.bind(*filter(None, given))
    except TypeError as error:
        name = getattr(fn, "__qualname__", None) or shown(fn)
        raise PlanError(f"{where}: it is called as {called}, and {name}{taken} can't be: {error}") from None


def python_only(fn: Any, where: str, instead: str, called: str = "fn(row)") -> None:
    """PlanError unless `fn` is a Python function that can be called in this way."""
    check_function(fn, where, instead, compiled=False, called=called)


def declared_output(schema: Any, where: str) -> pa.Schema:
    """The declared schema of a function's outputs.

    Raises
    ------
    PlanError
        There is none.
    SchemaError
        A type that is not supported.
    """
    if schema is None:
        raise PlanError(f"{where}: a function needs schema=, the schema of its outputs")
    return pipeline_schema(schema, f"{where}: schema")


class FunctionText(Operator):
    """`describe` of an operator with a function."""

    def describe(self) -> str:
        fn: Any = getattr(self, "fn", None)
        return f"{self.op}{self.by_key} {getattr(fn, '__qualname__', repr(fn))}"


class RowFunctionText(FunctionText):
    """With a Python function of a row. It reads what the function looks at, where that is known."""

    def columns_read(self) -> set[int]:
        fn: Any = getattr(self, "fn", None)
        read = None if self.rejects else columns_read(fn, self.input.names)  # a rejected row is shown whole
        return super().columns_read() if read is None else {*read}


class FunctionReference(SerialOperator):
    """The reference of an operator with a function: `operator.fn`, `operator.output`.

    Raises
    ------
    PlanError
        A native function: the reference needs Python.
    """

    #: Computes on storage values.
    compiled = False

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        # A Numba dispatcher runs as the Python function that it was made from.
        self.fn = getattr(operator.fn, "py_func", operator.fn)
        if not callable(self.fn):
            raise PlanError(
                f"operator {operator.name!r} is a native function: run_serial needs Python; "
                "give run_serial a pipeline with the same function in Python"
            )
        names = operator.input.names
        self.row_type = row_class(names)
        #: The columns of a row; None: all, and it is a tuple.
        self.read: list[int] | None = None
        read = columns_read(self.fn, names)
        if read is not None:
            self.read = sorted(read)
            self.row_type = slotted_rows([names[index] for index in self.read])

    def python_row(self, row: Row) -> Any:
        """The row as the function sees it: an attribute per column that it reads."""
        fields = self.operator.input
        if self.read is None:
            return self.row_type(
                self.python_value(value, field.type) for value, field in zip(row, fields, strict=True)
            )
        seen = self.row_type()
        for index in self.read:
            field = fields.field(index)
            setattr(seen, field.name, self.python_value(row[index], field.type))
        return seen

    def python_value(self, value: Any, type_: pa.DataType) -> Any:
        """A value as the function sees it."""
        if self.compiled:
            return value
        check_nanoseconds(value, type_)
        return to_python(value, type_)

    def fitted(self, result: Any) -> Row:
        """An output of the function as a row of the declared schema.

        Raises
        ------
        TypeError, ValueError, OverflowError
            It is no tuple, list or dict, has other columns, or a value does not fit its column.
        """
        fields = list(self.operator.output)
        names = self.operator.output.names
        if isinstance(result, dict):
            if set(result) != set(names):
                raise ValueError(f"expected a dict with the keys {names}, got {list(result)}")
            result = [result[name] for name in names]
        if not isinstance(result, tuple | list):
            raise TypeError(
                f"expected a tuple, list or dict with {names}, got {type(result).__name__} {shown(result)}"
            )
        if len(result) != len(fields):
            raise ValueError(
                f"expected {len(fields)} values ({', '.join(names)}), got {len(result)}: {shown(result)}"
            )
        for field, value in zip(fields, result, strict=True):
            if value is None and not field.nullable:
                raise ValueError(f"column {field.name!r} is declared without nulls, got None")
        counts = self.compiled
        return tuple(
            to_storage(v, f.type, f.name, counts=counts) for v, f in zip(result, fields, strict=True)
        )

    def emitter(self, rows: list[Row]) -> Emitter:
        """The `emit` of one call: appends what it is given to `rows`."""
        return Emitter(self, rows)


class Emitter:
    """`emit(*values)`, or `emit` of one dict, list or tuple, within a `with`; behind it an error, as in the
    core.
    """

    __slots__ = ("is_over", "reference", "rows", "whole")

    def __init__(self, reference: FunctionReference, rows: list[Row]) -> None:
        self.reference, self.rows, self.is_over = reference, rows, False
        self.whole = () if reference.compiled else whole_row(reference.operator.output)

    def __call__(self, *values: Any) -> None:
        if self.is_over:
            raise RuntimeError("emit was called after the function that it was given to had returned")
        if self.reference.compiled and len(self.rows) == self.reference.operator.fan_out:
            raise ValueError(f"more than {len(self.rows)} outputs for one tuple; declare a larger fan_out")
        is_whole = len(values) == 1 and isinstance(values[0], self.whole)
        self.rows.append(self.reference.fitted(values[0] if is_whole else values))

    def __enter__(self) -> Emitter:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over = True

"""map and flat_map with a function of a row, in Python or compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ordstream.errors import shown
from ordstream.ground.choices import flag
from ordstream.operators.arguments import positive_int
from ordstream.operators.error_policy import gone_through_again, tried_again
from ordstream.operators.functions import (
    MOST_FAN_OUT,
    FunctionReference,
    FunctionText,
    RowFunctionText,
    check_function,
    declared_output,
)
from ordstream.operators.operator import Operator, Site
from ordstream.operators.row_clock import RowClock
from ordstream.reference.base import Row, SerialOperator
from ordstream.udf.compiled_function import CompiledFunction
from ordstream.udf.functions import compile_rows, interpret, is_native, native_function, resolve_callable


@dataclass(frozen=True, eq=False, kw_only=True)
class MapRows(RowFunctionText):
    """fn(row) -> tuple, list or dict: exactly one output per row."""

    op: ClassVar[str] = "python_rows"
    one_to_one: ClassVar[bool] = True
    is_python: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True
    may_reject: ClassVar[bool] = True
    may_retry: ClassVar[bool] = True

    fn: Callable[..., Any]

    @classmethod
    def bind(cls, site: Site, fn: Any, schema: Any) -> Self:
        """Raises PlanError and SchemaError for a function or a schema that can't be."""
        check_function(fn, site.name, "select or with_columns", compiled=False)
        again = gone_through_again if cls.fans_out else tried_again
        fn = again(fn, site.retries, site.schema)
        return cls(**site.fields(declared_output(schema, site.name)), fn=fn)

    def timing_rows(self, clock: RowClock) -> Self | None:
        # a generator works when it is asked, not when it is made
        return self.changed(fn=clock.timing(self.fn)) if self.one_to_one else None

    def kernel(self) -> Any:
        from ordstream._core.kernels.python_functions import RowsKernel

        return RowsKernel(self)

    def reference(self) -> SerialOperator:
        return MapRowsReference(self)


class MapRowsReference(FunctionReference):
    """One output per row."""

    def process(self, row: Row) -> list[Row]:
        return [self.fitted(self.fn(self.python_row(row)))]


@dataclass(frozen=True, eq=False, kw_only=True)
class FlatMapRows(MapRows):
    """fn(row) -> iterable of tuples, lists or dicts."""

    op: ClassVar[str] = "python_flat"
    one_to_one: ClassVar[bool] = False
    fans_out: ClassVar[bool] = True

    def kernel(self) -> Any:
        from ordstream._core.kernels.python_functions import FlatKernel

        return FlatKernel(self)

    def reference(self) -> SerialOperator:
        return FlatMapRowsReference(self)


class FlatMapRowsReference(FunctionReference):
    """The outputs are the elements of the iterable that the function returns."""

    def process(self, row: Row) -> list[Row]:
        results = self.fn(self.python_row(row))
        if not isinstance(results, Iterable) or isinstance(results, str | bytes | dict):
            raise TypeError(f"expected an iterable of tuples, got {type(results).__name__} {shown(results)}")
        return [self.fitted(result) for result in results]


class CompiledText(FunctionText):
    """What operators with a compiled function share: the kernel."""

    def compiled_function(self) -> CompiledFunction:
        """What the kernel runs. Compilation results are kept, so that asking early costs nothing later.

        Raises
        ------
        ImportError
            Numba is needed and not installed.
        PlanError
            The function does not compile, or has another signature.
        """
        raise NotImplementedError

    def kernel(self) -> Any:
        from ordstream._core.kernels.compiled import CompiledKernel

        return CompiledKernel(self, self.compiled_function(), interpret)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledFlatMap(CompiledText):
    """fn(row, emit), compiled.

    Attributes
    ----------
    fan_out : int
        Most emits per row.
    exact : bool
        map: exactly one emit.
    """

    op: ClassVar[str] = "compiled"
    runs_user_code: ClassVar[bool] = True
    fans_out: ClassVar[bool] = True

    fn: Callable[..., Any]
    fan_out: int
    exact: bool = False

    @classmethod
    def bind(cls, site: Site, fn: Any, schema: Any, fan_out: int) -> Self:
        """Raises PlanError and SchemaError for a function, a schema or a fan_out that can't be."""
        most = positive_int(fan_out, f"{site.name}: fan_out", MOST_FAN_OUT)
        check_function(fn, site.name, "select or with_columns", compiled=True)
        return cls(**site.fields(declared_output(schema, site.name)), fn=fn, fan_out=most)

    def compiled_function(self) -> CompiledFunction:
        if is_native(self.fn):
            return native_function(resolve_callable(self.fn), self.output, self.fan_out, None)
        return compile_rows(
            self.fn, self.input, self.output, self.fan_out, exact=self.exact, where=self.name
        )

    def reference(self) -> SerialOperator:
        return CompiledReference(self)


@dataclass(frozen=True, eq=False, kw_only=True)
class CompiledMap(CompiledFlatMap):
    """fn(row, emit), compiled, which emits exactly once."""

    one_to_one: ClassVar[bool] = True

    fan_out: int = 1
    exact: bool = True


class CompiledReference(FunctionReference):
    """map and flat_map with compiled=True: fn(row, emit)."""

    compiled = True

    def process(self, row: Row) -> list[Row]:
        rows: list[Row] = []
        with self.emitter(rows) as emit:
            self.fn(self.python_row(row), emit)
        if self.operator.exact and len(rows) != 1:
            raise ValueError("a compiled map must emit exactly once per tuple; use flat_map")
        return rows


def bind_map(site: Site, fn: Any, schema: Any, *, compiled: bool) -> Operator:
    """The operator of `Pipeline.map`."""
    if flag(compiled, f"{site.name}: compiled"):
        return CompiledMap.bind(site, fn, schema, 1)
    return MapRows.bind(site, fn, schema)


def bind_flat_map(site: Site, fn: Any, schema: Any, fan_out: int, *, compiled: bool) -> Operator:
    """The operator of `Pipeline.flat_map` with a function."""
    if flag(compiled, f"{site.name}: compiled"):
        return CompiledFlatMap.bind(site, fn, schema, fan_out)
    fan_out = positive_int(fan_out, f"{site.name}: fan_out", MOST_FAN_OUT)
    return FlatMapRows.bind(site, fn, schema)

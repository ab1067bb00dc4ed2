"""map_batches: a function of many tuples that treats each row by itself."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.ground.choices import flag, is_one_of
from ordstream.ground.function_arrays import fit_array, numpy_array
from ordstream.ground.numbers import WITH_NULLS
from ordstream.ground.types import from_storage, storage_values
from ordstream.operators.error_policy import batches_again
from ordstream.operators.frame_functions import FRAMES, FrameFunction
from ordstream.operators.functions import FunctionReference, FunctionText, declared_output, python_only
from ordstream.operators.operator import Site
from ordstream.reference.base import Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class MapBatches(FunctionText):
    """As many rows out as in.

    Attributes
    ----------
    fn : callable
    format : "numpy" or "arrow"
        Functions of frames are functions of record batches here (`FrameFunction`).
    releases_gil : bool
        The function spends its time outside the GIL.
    """

    op: ClassVar[str] = "python_batch"
    one_to_one: ClassVar[bool] = True
    is_python: ClassVar[bool] = True
    runs_user_code: ClassVar[bool] = True
    may_reject: ClassVar[bool] = True
    may_retry: ClassVar[bool] = True

    fn: Callable[..., Any]
    format: Literal["numpy", "arrow"] = "numpy"
    releases_gil: bool = False

    @classmethod
    def bind(cls, site: Site, fn: Any, schema: Any, format: Any, releases_gil: bool) -> Self:
        """Raises PlanError and SchemaError for a function, a schema or a format that can't be."""
        if not is_one_of(format, ("numpy", "arrow", *FRAMES)):
            raise PlanError(
                f"{site.name}: format must be 'numpy', 'arrow', 'pandas' or 'polars', got {format!r}"
            )
        python_only(fn, site.name, "select", "fn(batch)")
        output = declared_output(schema, site.name)
        releases_gil = flag(releases_gil, f"{site.name}: releases_gil")
        if format in FRAMES:
            fn, format = FrameFunction(fn, format, site.schema, output, site.name), "arrow"
        fn = batches_again(fn, site.retries)
        return cls(**site.fields(output), fn=fn, format=format, releases_gil=releases_gil)

    @property
    def leaves_gil(self) -> bool:
        return self.releases_gil

    def timing_calls(self, took: Callable[[int, float], None]) -> Self:
        fn = self.fn

        @functools.wraps(fn)
        def timed(batch: Any) -> Any:
            rows = batch.num_rows if self.format == "arrow" else len(next(iter(batch.values()), ()))
            began = time.perf_counter()
            try:
                return fn(batch)
            finally:
                if rows:
                    took(rows, time.perf_counter() - began)

        return self.changed(fn=timed)

    def kernel(self) -> Any:
        from ordstream._core.kernels.map_batches import BatchKernel

        return BatchKernel(self)

    def reference(self) -> SerialOperator:
        return MapBatchesReference(self)


class MapBatchesReference(FunctionReference):
    """The function is given batches of one row, which is enough because it must be row-wise."""

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        arrays = [from_storage([v], f.type) for v, f in zip(row, operator.input, strict=True)]
        if operator.format == "arrow":
            result = self.fn(pa.RecordBatch.from_arrays(arrays, schema=operator.input))
            if not isinstance(result, pa.RecordBatch | pa.Table):
                raise TypeError(f"expected a pyarrow.RecordBatch, got {type(result).__name__}")
            names = result.schema.names
            if len({*names}) != len(names):
                raise ValueError(f"expected the columns {operator.output.names}, got {names}")
            columns = dict(zip(names, result.columns, strict=True))
        else:
            for field, value in zip(operator.input, row, strict=True):
                if value is None:
                    raise ValueError(f"column {field.name!r} is null, and NumPy has no nulls; {WITH_NULLS}")
            names = operator.input.names
            # as in the core, arrays of the function's own: it may write into them
            given = [np.array(numpy_array(array, name)) for name, array in zip(names, arrays, strict=True)]
            columns = self.fn(dict(zip(names, given, strict=True)))
            if not isinstance(columns, dict):
                raise TypeError(f"expected a dict of arrays, got {type(columns).__name__}")
        if set(columns) != set(operator.output.names):
            raise ValueError(f"expected the columns {operator.output.names}, got {list(columns)}")
        values: list[Any] = []
        for field in operator.output:
            array = fit_array(columns[field.name], field.type, field.name)
            if len(array) != 1:
                raise ValueError(f"column {field.name!r} has {len(array)} values for 1 row")
            values += array.to_pylist() if pat.is_decimal128(field.type) else storage_values(array)
        return [self.fitted(values)]

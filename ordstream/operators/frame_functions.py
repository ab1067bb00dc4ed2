"""Functions of data frames for `map_batches`: what stands between them and record batches.

What a row gets must not depend on the rows beside it, so a column has one dtype whatever its batch holds,
and what comes back is taken by its declared type.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError, shown
from ordstream.ground.datetimes import check_parts
from ordstream.ground.frames import check_polars
from ordstream.ground.function_arrays import fit_array
from ordstream.ground.packed_types import is_packed
from ordstream.ground.types import from_storage, to_storage

#: `format=` of a frame: the library's name.
FRAMES = ("pandas", "polars")
#: The first float that may stand for several integers.
INEXACT = 2.0**53

#: pandas' dtypes of integers and bools that may be null. Others that have nulls there round integers.
_NULLABLE = {
    pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64",
    pa.uint8(): "UInt8", pa.uint16(): "UInt16", pa.uint32(): "UInt32", pa.uint64(): "UInt64",
    pa.bool_(): "boolean",
}  # fmt: skip


class FrameFunction:
    """fn(frame) -> frame as a function of a record batch. Pickles where `fn` does.

    Parameters
    ----------
    fn : callable
    library : "pandas" or "polars"
    input, output : pyarrow.Schema
        Of the batches, and of the results.
    where : str
        For the error.

    Raises
    ------
    PlanError
        The library is not there, or has no type for a column.
    """

    def __init__(
        self, fn: Callable[[Any], Any], library: str, input: pa.Schema, output: pa.Schema, where: str
    ) -> None:
        if importlib.util.find_spec(library) is None:
            raise PlanError(f"{where}: format={library!r} needs {library}: pip install {library}")
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.library, self.output = fn, library, output
        if library == "polars":
            _check_types(input, where)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The frame's columns, in the declared types.

        Raises
        ------
        TypeError, SchemaError
            The function gives no frame; a column of another kind.
        ValueError, OverflowError, pyarrow.ArrowInvalid
            Other columns than declared; a value that is none of the type.
        """
        library = importlib.import_module(self.library)
        of_pandas = self.library == "pandas"
        result = self.fn(_pandas(library, batch) if of_pandas else library.from_arrow(batch))
        if not isinstance(result, library.DataFrame):
            raise TypeError(f"expected a {self.library}.DataFrame, got {shown(result)}")
        names = list(result.columns)
        if len(names) != len(self.output) or set(names) != set(self.output.names):
            raise ValueError(f"expected the columns {self.output.names}, got {names}")
        if not of_pandas:
            check_polars(result.schema, "", SchemaError)
        made = [
            self._of_pandas(result[field.name], field) if of_pandas
            else _of_polars(result[field.name].to_arrow(), field)
            for field in self.output
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(made, names=self.output.names)

    def _of_pandas(self, series: Any, field: pa.Field) -> pa.Array:
        """A column, whose NaN, NaT and NA are null."""
        type_, name = field.type, field.name
        absent = series.isna()
        if absent.all():  # of whatever dtype: pandas has float64 or datetime64 for nothing
            return pa.nulls(len(series), type_)
        if pat.is_nested(type_) or (is_packed(type_) and not pat.is_decimal128(type_)):
            found = [None if gone else _plain(value) for value, gone in zip(series, absent, strict=True)]
            return from_storage([to_storage(value, type_, name) for value in found], type_)
        given = pa.array(series, type_ if pat.is_decimal(type_) else None, from_pandas=True)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if pat.is_floating(given.type):  # those that pandas masks may be NaN beside
            given = pc.if_else(pc.is_nan(given), pa.scalar(None, given.type), given)
            if pat.is_integer(type_):
                return _exact(given, field)
        return fit_array(given, type_, name)


def _exact(floats: pa.Array, field: pa.Field) -> pa.Array:
    """Integers that pandas has as floats, beside nulls."""
    if pc.any(pc.greater_equal(pc.abs(floats), INEXACT)).as_py():
        raise OverflowError(
            f"column {field.name!r} is {field.type}: floats from 2**53 on may be another integer; keep the "
            "dtype Int64"
        )
    return floats.cast(field.type)


def _plain(value: Any) -> Any:
    """A nested value with lists in the place of NumPy's arrays."""
    return list(value) if isinstance(value, np.ndarray) else value


def _of_polars(given: pa.Array, field: pa.Field) -> pa.Array:
    if pat.is_decimal(given.type) and pat.is_decimal(field.type):
        return given.cast(field.type)
    return fit_array(given, field.type, field.name)


def _check_types(schema: pa.Schema, where: str) -> None:
    """PlanError for a column that Polars has no type for: it would end the run's process at some row."""
    polars = importlib.import_module("polars")
    for field in schema:
        try:
            polars.from_arrow(pa.table([pa.array([None], field.type)], names=[field.name]))
        except BaseException as error:
            # a panic of Polars is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise PlanError(
                f"{where}: Polars has no column {field.name!r} of {field.type}: {error}; use "
                "format='arrow', or cast it in front"
            ) from error


def _pandas(pandas: Any, batch: pa.RecordBatch) -> Any:
    """A frame of pandas."""
    columns = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        check_parts(column)
        dtype = _NULLABLE.get(field.type) if field.nullable else None
        if dtype is not None:
            mapper = {field.type: pandas.api.types.pandas_dtype(dtype)}.get
            columns[field.name] = column.to_pandas(types_mapper=mapper)
        elif pat.is_nested(field.type):  # as arrays of NumPy's, integers beside nulls would be floats
            columns[field.name] = pandas.Series(column.to_pylist(), dtype=object)
        else:
            columns[field.name] = column.to_pandas()
    return pandas.DataFrame(columns)

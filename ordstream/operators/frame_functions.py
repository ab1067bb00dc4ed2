"""Functions of data frames for `map_batches`: what stands between them and record batches."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, shown

#: `format=` of a frame: the library's name.
FRAMES = ("pandas", "polars")


class FrameFunction:
    """fn(frame) -> frame as a function of a record batch. Pickles where `fn` does.

    Parameters
    ----------
    fn : callable
    library : "pandas" or "polars"
    output : pyarrow.Schema
        Of the results. A column of another name is left to the caller.
    where : str
        For the error.

    Raises
    ------
    PlanError
        The library is not there.
    """

    def __init__(self, fn: Callable[[Any], Any], library: str, output: pa.Schema, where: str) -> None:
        if importlib.util.find_spec(library) is None:
            raise PlanError(f"{where}: format={library!r} needs {library}: pip install {library}")
        functools.update_wrapper(self, fn, updated=())
        self.fn, self.library, self.output = fn, library, output

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        """The frame's columns.

        Raises
        ------
        TypeError
            The function gives no frame.
        pyarrow.ArrowInvalid
            A column that Arrow can't hold, or a fraction where integers are declared.
        """
        library = importlib.import_module(self.library)
        frame = _pandas(library, batch) if self.library == "pandas" else library.from_arrow(batch)
        result = self.fn(frame)
        if not isinstance(result, library.DataFrame):
            raise TypeError(f"expected a {self.library}.DataFrame, got {shown(result)}")
        if self.library == "polars":
            return result.to_arrow()
        return pa.table({name: self._column(result[name], name) for name in result.columns})

    def _column(self, series: Any, name: str) -> pa.Array:
        """A column of pandas, whose NaN is a null. Integers beside NaN are floats there, and what is nested
        does not tell its type. All else is taken as it is: the caller is strict.
        """
        index = self.output.get_field_index(name)
        declared = self.output.field(index).type if index >= 0 else None
        hides = declared is not None and (
            pat.is_nested(declared) or (pat.is_integer(declared) and series.dtype.kind == "f")
        )
        return pa.array(series, declared if hides else None, from_pandas=True)


def _pandas(pandas: Any, batch: pa.RecordBatch) -> Any:
    """A frame of pandas. Integers and bools beside nulls get the types that have both: as floats and objects
    they would be rounded, or no numbers.
    """
    whole = {
        pa.int8(): "Int8", pa.int16(): "Int16", pa.int32(): "Int32", pa.int64(): "Int64",
        pa.uint8(): "UInt8", pa.uint16(): "UInt16", pa.uint32(): "UInt32", pa.uint64(): "UInt64",
        pa.bool_(): "boolean",
    }  # fmt: skip
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        dtype = whole.get(column.type) if column.null_count else None
        mapper = None if dtype is None else {column.type: pandas.api.types.pandas_dtype(dtype)}.get
        columns[name] = column.to_pandas(types_mapper=mapper)
    return pandas.DataFrame(columns)

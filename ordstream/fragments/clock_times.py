"""What a clock shows at the rows of a source, where these go to several nodes: the caller computes it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.ground.types import storage_array
from ordstream.node.source import unread_column
from ordstream.operators.clocks import ComputedClock

Int64s = npt.NDArray[np.int64]


class ClockTimes:
    """Times of rows, batch by batch.

    Parameters
    ----------
    clock : int or ComputedClock
        That the source moves.
    source : pyarrow.Schema

    Attributes
    ----------
    field : pyarrow.Field
        The time.
    """

    def __init__(self, clock: int | ComputedClock, source: pa.Schema) -> None:
        self._columns = (clock,) if isinstance(clock, int) else clock.columns
        self._computed: _Computed | None = None
        if isinstance(clock, int):
            self.field = source.field(clock)
        else:
            self.field = clock.field
            self._computed = _Computed(clock, pa.schema([source.field(at) for at in clock.columns]))

    def __call__(self, rows: pa.RecordBatch) -> tuple[Int64s, Int64s]:
        """Where rows of the source have a time, from 0, and these times in storage values.

        Raises
        ------
        SourceError
            A column that the clock is computed of has a value that the core does not read.
        """
        columns = [rows.column(at) for at in self._columns]
        if self._computed is not None:
            times, known = self._computed(columns)
            places = np.flatnonzero(known)
            return places, times[places]
        (column,) = columns
        places = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        stored = storage_array(column.drop_null()).to_numpy(zero_copy_only=False)
        return places, stored.astype(np.int64)


class _Computed:
    """The core's own arithmetic, on the columns that a clock is computed of."""

    def __init__(self, clock: ComputedClock, columns: pa.Schema) -> None:
        # compiled: who only plans need not load it
        from ordstream._core.flow.computed_clock import ComputedColumn
        from ordstream._core.ground.arrow import core_schema
        from ordstream._core.ground.chunk import layout_of
        from ordstream._core.ground.imported_batch import BatchFormats

        self._column = ComputedColumn(replace(clock, columns=tuple(range(len(columns)))))
        self._schema = core_schema(columns)
        self._read = layout_of(columns), BatchFormats(self._schema)

    def __call__(self, columns: list[pa.Array]) -> tuple[Int64s, npt.NDArray[np.bool_]]:
        fields = zip(columns, self._schema.types, strict=True)
        arrays = [one if one.type.equals(type_) else one.cast(type_) for one, type_ in fields]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        try:
            return self._column.times(batch, *self._read)
        except TypeError as error:
            raise unread_column(batch, batch.schema.names, error) from error

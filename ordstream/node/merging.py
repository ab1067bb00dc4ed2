"""Several sources as one: rows in the order of a column that all have, ties by source, then position.

Of the sources' next rows the one with the smallest value comes next; among equal ones that of the source
named first. So each source keeps its own order, also where its values fall, and memory is bounded: a source
is asked for its next batch only when the merge can't go on without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.ground import arrow as core_arrow
from ordstream.errors import PlanError, SourceError
from ordstream.node import source
from ordstream.plan.outputs import Output


@dataclass
class _Waiting:
    """Rows of a source that are not merged yet.

    Attributes
    ----------
    batches : iterator of record batches
    index : int
        Of the merge column.
    rows : RecordBatch or None
        None: none is there.
    keys : array
        Of each row: the largest value so far. It never falls, and a merge by it is that of the rows as they
        come.
    ended : bool
    taken : int
        Rows that do not wait any more.
    latest : int
        The largest value that was read.
    """

    name: str
    batches: Iterator[pa.RecordBatch]
    index: int
    rows: pa.RecordBatch | None = None
    keys: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    ended: bool = False
    taken: int = 0
    latest: int = -(1 << 63)

    def read(self) -> None:
        """The next batch; no row waits."""
        try:
            batch = next(self.batches, None)
        except SourceError as error:
            raise SourceError(f"source {self.name!r}: {error}") from error.__cause__
        if batch is None:
            self.ended = True
            return
        column = batch.column(self.index)
        if column.null_count:
            row = self.taken + column.is_null().to_pylist().index(True) + 1
            name = batch.schema.names[self.index]
            raise SourceError(f"source {self.name!r}: {name!r}, by which it is merged, is null in row {row}")
        keys = _numbers(column)
        self.rows, self.keys = batch, np.maximum.accumulate(np.concatenate([[self.latest], keys]))[1:]
        self.latest = int(self.keys[-1])

    def take(self, count: int) -> pa.RecordBatch:
        """The first rows that wait, which do so no longer."""
        assert self.rows is not None
        found = self.rows.slice(0, count)
        self.rows, self.keys = self.rows.slice(count), self.keys[count:]
        self.taken += count
        return found


class MergedSources:
    """The rows of several sources as batches of their wide schema (`ordstream.plan.sources`); iterated once.

    Parameters
    ----------
    data : mapping of str to Arrow data
    ways : sequence of Output
        Of each source: its name, schema and columns of the wide rows, in the order of the plan.
    wide : pyarrow.Schema
    merge_by : str

    Raises
    ------
    PlanError
        Another source than those of the plan is given, or one is missing.
    """

    def __init__(
        self, data: Mapping[str, Any], ways: Sequence[Output], wide: pa.Schema, merge_by: str
    ) -> None:
        names = [way.name for way in ways]
        given: Any = data
        if not isinstance(given, Mapping) or set(given) != set(names):
            got = (
                f"sources {', '.join(map(repr, given))}"
                if isinstance(given, Mapping)
                else type(given).__name__
            )
            raise PlanError(
                f"the pipeline has the sources {', '.join(map(repr, names))}: run it on a mapping of each "
                f"to its data; got {got}"
            )
        self.live = any(source.is_live(one) for one in data.values())
        # ties: in the order of the mapping
        self._ways = {
            name: (number, way) for number, (name, way) in enumerate(zip(names, ways, strict=True))
        }
        self._wide = core_arrow.core_schema(wide)
        self._sources = []
        for name, one in data.items():
            schema = self._ways[name][1].schema
            without_nulls = [i for i, f in enumerate(schema) if not f.nullable]
            batches = source.batches(one, core_arrow.core_schema(schema), without_nulls)
            self._sources.append(_Waiting(name, batches, schema.get_field_index(merge_by)))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            counts = self._ready()
            if sum(counts):
                yield self._merged(counts)
                continue
            lacking = [one for one in self._sources if not one.ended and not len(one.keys)]
            if not lacking:
                return
            lacking[0].read()

    def _ready(self) -> list[int]:
        """How many rows of each source nothing that is still to come can stand in front of."""
        open_ = [(one.latest, at) for at, one in enumerate(self._sources) if not one.ended]
        if any(not one.ended and not len(one.keys) for one in self._sources):
            return [0] * len(self._sources)
        if not open_:
            return [len(one.keys) for one in self._sources]
        latest, at = min(open_)
        return [
            int(np.searchsorted(one.keys, latest, side="right" if number <= at else "left"))
            for number, one in enumerate(self._sources)
        ]

    def _merged(self, counts: list[int]) -> pa.RecordBatch:
        """So many rows of each source in one order, as wide rows."""
        keys = [one.keys[:count] for one, count in zip(self._sources, counts, strict=True)]
        parts = [(one, one.take(count)) for one, count in zip(self._sources, counts, strict=True) if count]
        alone = len(parts) == 1
        order = pa.array(np.argsort(np.concatenate(keys), kind="stable"))
        columns = []
        for at, wide in enumerate(self._wide):
            chunks = []
            for one, rows in parts:
                number, way = self._ways[one.name]
                if at == 0:
                    chunks.append(pa.array(np.full(rows.num_rows, number, np.int64)))
                elif at in way.columns:
                    chunks.append(rows.column(way.columns.index(at)))
                else:
                    chunks.append(pa.nulls(rows.num_rows, wide.type))
            columns.append(chunks[0] if alone else pa.concat_arrays(chunks).take(order))
        return pa.RecordBatch.from_arrays(columns, schema=self._wide)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64]:
    """An integer or temporal column without nulls as int64."""
    width = column.type.bit_width
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if width == 32 else pa.int64())
    found: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found

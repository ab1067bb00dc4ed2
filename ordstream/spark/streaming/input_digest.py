"""What a micro-batch's rows were, in a few bytes: a source that replays other rows is seen."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.ground.types import is_list


class InputDigest:
    """Digest of rows in order, whatever batches they come in, and in whatever time zone the session is.

    Attributes
    ----------
    rows : int
        So far.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._parts: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """The next rows, all of one schema."""
        self.rows += batch.num_rows
        for column, values in zip(batch.schema, batch.columns, strict=True):
            self._add(column.name, values)

    def _add(self, name: str, values: pa.Array) -> None:
        kind = values.type
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        self._update(f"{name} valid", valid.astype(np.uint8).tobytes())
        values = values.drop_null()
        kind = values.type
        if pat.is_time(kind):  # to numpy they are objects, whose bytes say where they lie
            values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
            kind = values.type
        if (
            pat.is_string(kind)
            or pat.is_binary(kind)
            or pat.is_large_string(kind)
            or pat.is_large_binary(kind)
        ):
            self._update(f"{name} lengths", pc.binary_length(values).cast(pa.int64()).to_numpy().tobytes())
            self._update(name, _joined(values.cast(pa.large_binary())))
        elif is_list(kind):
            self._update(
                f"{name} lengths", pc.list_value_length(values).cast(pa.int64()).to_numpy().tobytes()
            )
            self._add(f"{name}[]", values.flatten())
        elif pat.is_struct(kind):
            for number, one in enumerate(values.flatten()):
                self._add(f"{name}.{number}", one)
        elif pat.is_map(kind):
            ends = values.offsets.to_numpy().astype(np.int64)
            first, count = int(ends[0]), int(ends[-1] - ends[0])
            self._update(f"{name} lengths", np.diff(ends).tobytes())
            self._add(f"{name}[key]", values.keys.slice(first, count))
            self._add(f"{name}[value]", values.items.slice(first, count))
        elif _has_numpy_values(kind):
            plain = values.to_numpy(zero_copy_only=False)
            self._update(name, np.ascontiguousarray(plain).tobytes())
        else:  # decimals: rare, and their text tells them apart
            self._update(name, "\0".join(map(repr, values.to_pylist())).encode() + b"\0" * bool(len(values)))

    def _update(self, name: str, data: Any) -> None:
        if name not in self._parts:
            self._parts[name] = hashlib.blake2b(digest_size=16)
        self._parts[name].update(data)

    def hexdigest(self) -> str:
        """Of all columns."""
        whole = hashlib.blake2b(digest_size=16)
        for name in sorted(self._parts):
            whole.update(name.encode() + b"\0" + self._parts[name].digest())
        return whole.hexdigest()


def _has_numpy_values(kind: pa.DataType) -> bool:
    """Numbers and times that are no objects to numpy. Instants are counts there, of no time zone."""
    if pat.is_temporal(kind):
        return not pat.is_interval(kind)
    return bool(pat.is_integer(kind) or pat.is_floating(kind) or pat.is_boolean(kind))


def _joined(values: pa.Array) -> memoryview:
    """The bytes of large binaries without nulls, one behind the other."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    return memoryview(data)[ends[0] : ends[-1]]

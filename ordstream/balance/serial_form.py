"""Bytes of a sketch or a deployed map: one form for all, so that foreign, damaged or newer bytes are told
apart.

    b"ordsketch" | version (1 byte) | CRC-32 of the rest (4) | length of the header (4) | header | arrays

Integers are little-endian. The header holds `kind`, plain values, and (name, dtype, shape) of each array in
order. No code is ever loaded from the bytes (no pickle), so bytes from another process can be read without
trusting it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.errors import OrdstreamError

MAGIC = b"ordsketch"
VERSION = 1
_FIXED = len(MAGIC) + 1 + 4 + 4
_DTYPES = {"<i4", "<i8", "<u8", "<f8"}


class SketchBytesError(OrdstreamError, ValueError):
    """Bytes are not those of the sketch or map that was asked for."""


def packed(kind: str, values: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Bytes of something of a `kind`: `values` must be what JSON can hold; arrays are int32, int64,
    uint64 or float64.
    """
    described = []
    blocks = []
    for name, array in arrays.items():
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        described.append([name, little.dtype.str, list(little.shape)])
        blocks.append(little.tobytes())
    header = json.dumps(
        {"kind": kind, "values": dict(values), "arrays": described}, separators=(",", ":")
    ).encode()
    rest = len(header).to_bytes(4, "little") + header + b"".join(blocks)
    return MAGIC + bytes([VERSION]) + zlib.crc32(rest).to_bytes(4, "little") + rest


def unpacked(kind: str, data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Values and arrays that `packed` was given.

    Raises
    ------
    SketchBytesError
        The bytes were not made by `packed`, are damaged, of another kind, or of a newer version.
    """
    try:
        data = bytes(memoryview(data))
    except TypeError:
        raise SketchBytesError(
            f"a serialised {kind} is bytes, not {type(data).__name__}: {data!r:.80}"
        ) from None
    if not data.startswith(MAGIC) or len(data) < _FIXED:
        raise SketchBytesError(
            f"these {len(data)} bytes are no serialised {kind}: they do not start with {MAGIC!r}"
        )
    version = data[len(MAGIC)]
    if version != VERSION:
        raise SketchBytesError(
            f"the bytes have version {version}, this release of ordstream reads version {VERSION}"
        )
    checksum, rest = data[len(MAGIC) + 1 : len(MAGIC) + 5], data[len(MAGIC) + 5 :]
    if zlib.crc32(rest).to_bytes(4, "little") != checksum:
        raise SketchBytesError(f"the bytes of this {kind} are damaged: their checksum differs")
    size = int.from_bytes(rest[:4], "little")
    try:
        header = json.loads(rest[4 : 4 + size])
        found, values, described = header["kind"], header["values"], header["arrays"]
        if found != kind:
            raise SketchBytesError(f"the bytes hold a {found}, not a {kind}")
        arrays = {}
        at = 4 + size
        for name, dtype, shape in described:
            if dtype not in _DTYPES:
                raise ValueError(f"array {name} has type {dtype}")
            count = int(np.prod(shape, dtype=np.int64))
            array = np.frombuffer(rest, dtype=np.dtype(dtype), count=count, offset=at)
            at += array.nbytes
            arrays[name] = array.astype(array.dtype.newbyteorder("=")).reshape(shape)
        if at != len(rest):
            raise ValueError(f"{len(rest) - at} bytes are left over")
    except SketchBytesError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise SketchBytesError(f"the bytes of this {kind} cannot be read: {error}") from error
    return values, arrays


def key_to_json(key: Any) -> Any:
    """A key as JSON: int, str and None as they are; bytes, float and tuple tagged."""
    if isinstance(key, bytes):
        return {"bytes": key.hex()}
    if isinstance(key, float):
        return {"float": key.hex()}
    if isinstance(key, tuple):
        return {"tuple": [key_to_json(part) for part in key]}
    return key


def key_from_json(value: Any) -> Any:
    """The key that `key_to_json` was given. ValueError for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        tag, inner = next(iter(value.items()))
        if tag == "bytes":
            return bytes.fromhex(inner)
        if tag == "float":
            return float.fromhex(inner)
        if tag == "tuple":
            return tuple(key_from_json(part) for part in inner)
    if value is None or (isinstance(value, int | str) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{value!r} is no key")

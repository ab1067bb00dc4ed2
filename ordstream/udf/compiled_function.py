"""What compiling a function gives, whatever compiled it: addresses, the layout of a state, the message
where it does not compile.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import physical_type


@dataclass(frozen=True)
class CompiledFunction:
    """What a compiled kernel runs.

    Attributes
    ----------
    plain, nulls : int
        Addresses: for chunks whose `reads` columns have no nulls, and for the others.
    reads : tuple of int
        Nullable input columns that the function looks at.
    may_be_null : tuple of bool
        Per output column: the function may write a null.
    fan_out : int
        Most outputs per row.
    state : numpy.dtype or None
        Layout of a key's state.
    user_data : int
    interpreted : callable or None
        The Python function behind it, for the replay of a failing row.
    keep : tuple of object
        Owners of the code.
    """

    plain: int
    nulls: int
    reads: tuple[int, ...]
    may_be_null: tuple[bool, ...]
    fan_out: int
    state: Any = None
    user_data: int = 0
    interpreted: Callable[..., Any] | None = None
    keep: tuple[Any, ...] = field(default=(), repr=False)


def state_dtype(schema: pa.Schema, where: str = "compiled process") -> np.dtype[Any]:
    """Layout of a declared state: that of a C struct with its fields, padded to a multiple of 8 bytes.

    Raises
    ------
    SchemaError
        A field of variable size (strings, binaries).
    """
    formats = []
    for column in schema:
        physical = physical_type(column.type, column.name)
        if physical.name not in _STATE_FORMATS:
            raise SchemaError(
                f"{where}: the state of a compiled function can't hold {column.name!r}: {column.type}; "
                "numbers can"
            )
        formats.append(_STATE_FORMATS[physical.name])
    packed = np.dtype({"names": schema.names, "formats": formats}, align=True)
    offsets = [packed.fields[name][1] for name in schema.names] if packed.fields else []
    size = max(8, -(-packed.itemsize // 8) * 8)
    return np.dtype({"names": schema.names, "formats": formats, "offsets": offsets, "itemsize": size})


_STATE_FORMATS = {
    "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
    "f32": "f4", "f64": "f8", "bool": "?",
}  # fmt: skip


def compile_error(fn: Any, error: Exception, where: str) -> PlanError:
    """A compiler's message, shortened, with the user's line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    file = fn.__code__.co_filename
    lines = [
        int(number)
        for name, number in re.findall(r'File "([^"]+)", line (\d+)', text)
        if _same_file(name, file)
    ]
    lines += [
        int(number) for name, number in re.findall(r"at (\S+) \((\d+)\)", text) if _same_file(name, file)
    ]
    number = lines[-1] if lines else fn.__code__.co_firstlineno
    skipped = (
        "Failed in",
        "During:",
        "File ",
        "[",
        "-",
        "There are",
        "Enable logging",
        "This error",
        "Overload of",
    )
    place = text.find('\nFile "')  # from there on numba repeats the source
    reasons = [line.strip(" >^") for line in text[: place if place > 0 else None].splitlines()]
    reasons = [line for line in reasons if line and not line.startswith(skipped)]
    source = linecache.getline(file, number).strip()
    head = f'{where}: {fn.__name__} does not compile\n  File "{file}", line {number}'
    return PlanError(
        "\n".join([head, *([f"    {source}"] if source else []), *(f"  {line}" for line in reasons[:4])])
    )


def _same_file(name: str, file: str) -> bool:
    return name == file or (name != "<string>" and Path(name).name == Path(file).name)

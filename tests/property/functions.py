"""User functions of the random pipelines: pure functions of the row (and the state), for any schema.

`weight` gives every row a number that depends on all its values, so the functions need to know no columns.
The `compiled_...` ones expect the columns k: int64, x: int64, y: float64 and are made once, so that Numba
compiles each of them once per session.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import ordstream as od


class Refused(Exception):
    """What a user function raises; its text says for which weight."""


def weight(values: Any) -> int:
    """A number from 0 to 96 that depends on every value."""
    if hasattr(values, "_fields"):
        values = [values[name] for name in values._fields]
    return sum((i % 7 + 1) * byte for i, byte in enumerate(repr(tuple(values)).encode())) % 97


def refuse(row: Any, remainder: int | None) -> int:
    """The row's weight; raises for one row in 13 or so where `remainder` is not None."""
    w = weight(row)
    if remainder is not None and w % 13 == remainder:
        raise Refused(f"weight {w}")
    return w


def looking_at(names: list[str], fn: Any):
    """The function, of rows of which it looks at these columns only: its bytecode says so, and others need
    not be read from the source.
    """
    values = "".join(f"row[{name!r}], " for name in names)
    return eval(f"lambda row, *more: fn(({values}), *more)", {"fn": fn})


# ------------------------------------------------------------------------------------------------ stateless


def keeps(modulus: int, remainder: int | None = None):
    """Of filter: drops one row in `modulus`; None counts as False."""

    def fn(row: Any) -> Any:
        w = refuse(row, remainder)
        return None if w % 11 == 0 else w % modulus != 0

    return fn


def maps(kind: str, remainder: int | None = None):
    """Of map, to w: int64, t: string, f: float64."""

    def fn(row: Any) -> Any:
        w = refuse(row, remainder)
        values = (w, "é" * (w % 9) + "x", None if w % 5 == 0 else w / 8)
        return dict(zip(("w", "t", "f"), values, strict=True)) if kind == "dict" else eval(kind)(values)

    return fn


def flat_maps(most: int, remainder: int | None = None):
    """Of flat_map, to w: int32, t: string: weight % most outputs; a generator that may raise on its way."""

    def fn(row: Any) -> Any:
        w = weight(row)
        for i in range(w % (most + 1)):
            if remainder is not None and w % 13 == remainder and i == 1:
                raise Refused(f"output {i} of weight {w}")
            yield (w * 10 + i, None if (w + i) % 4 == 0 else chr(97 + (w + i) % 5) * (i + 1))

    return fn


def numpy_batch(remainder: int | None = None):
    """Of map_batches on a: int64, b: float64 (no nulls), to s: float64, a: int64."""

    def fn(columns: Any) -> Any:
        a, b = columns["a"], columns["b"]
        if remainder is not None and bool((abs(a) % 13 == remainder).any()):
            raise Refused("a batch")
        return {"a": a, "s": a * 0.5 + b}

    return fn


def arrow_batch(remainder: int | None = None):
    """Of map_batches on any columns: the first one back, and its validity as n: bool."""

    def fn(batch: Any) -> Any:
        first = batch.column(0)
        if remainder is not None and any(weight([v]) % 13 == remainder for v in first.to_pylist()):
            raise Refused("a batch")
        name = batch.schema.names[0]
        return pa.RecordBatch.from_arrays(
            [first, first.is_null()], names=[name, "n" if name != "n" else "m"]
        )

    return fn


# ------------------------------------------------------------------------------------------------ process


def forgets(w: int, forgotten: int | None) -> Any:
    """What a function of process returns: one key in five loses its state where `forgotten` is not None."""
    return od.FORGET if forgotten is not None and w % 5 == forgotten else None


def folds(fan_out: int, remainder: int | None = None, forgotten: int | None = None):
    """Of process with declared state n: int64, last: string, total: float64; to n, last, total."""

    def fn(row: Any, state: Any, emit: Any) -> Any:
        w = weight(row)
        state.n += 1
        state.total += w / 3
        for i in range(w % (fan_out + 1)):
            emit(state.n * 10 + i, state.last, state.total)
            if remainder is not None and w % 13 == remainder:
                raise Refused(f"weight {w}")
        state.last = "w" * (w % 15)
        return forgets(w, forgotten)

    return fn


def folds_flush(remainder: int | None = None):
    """on_flush of `folds`."""

    def on_flush(key: Any, state: Any, emit: Any) -> None:
        if remainder is not None and weight([key]) % 7 == remainder:
            raise Refused("flush")
        emit(-state.n, repr(key), state.total)

    return on_flush


def folds_time(remainder: int | None = None, forgotten: int | None = None):
    """on_time of `folds`: looks at the state, writes to it, and emits for some keys."""

    def on_time(key: Any, state: Any, time: int, emit: Any) -> Any:
        if remainder is not None and weight([key, time]) % 7 == remainder:
            raise Refused("time")
        if weight([key]) % 3:
            emit(time % 1000, repr(key), state.total)
        state.total = 0.0
        return forgets(weight([key, time]), forgotten)

    return on_time


def collects(remainder: int | None = None, forgotten: int | None = None):
    """Of process with undeclared state (`init=list`-like namespace): to n: int64, seen: list<int64>."""

    def fn(row: Any, state: Any, emit: Any) -> Any:
        w = weight(row)
        state.seen = [*getattr(state, "seen", []), w][-4:]
        if remainder is not None and w % 13 == remainder:
            raise Refused(f"weight {w}")
        if w % 2:
            emit(len(state.seen), state.seen)
        return forgets(w, forgotten)

    return fn


def collects_flush(key: Any, state: Any, emit: Any) -> None:
    emit(None, getattr(state, "seen", None))


def make_namespace() -> SimpleNamespace:
    return SimpleNamespace(seen=[])


def appends(remainder: int | None = None, forgotten: int | None = None):
    """Of process with a list behind a codec, changed in place before it may raise; to n: int64."""

    def fn(row: Any, state: Any, emit: Any) -> Any:
        w = weight(row)
        state.append(w)
        if remainder is not None and w % 13 == remainder:
            raise Refused(f"weight {w}")
        emit(sum(state[-3:]) + len(state))
        return forgets(w, forgotten)

    return fn


def appends_flush(key: Any, state: Any, emit: Any) -> None:
    emit(sum(state))


def list_codec() -> Any:
    return od.codec(lambda state: json.dumps(state).encode(), json.loads, list)


# ------------------------------------------------------------------------------------------------ compiled


def compiled_map(row, emit):
    if row.x is None:
        emit(row.k, None)
    else:
        emit(row.k, row.x % 7)


def compiled_flat(row, emit):
    if row["y"] is not None:
        emit(row.x, row["y"] * 0.5)
        if row.y > 1.0:
            emit(row["x"], row.y - 1.0)


def compiled_fold(row, state, emit):
    state.n += 1
    if row.y is not None:
        state.total += row.y
    if state.n % 4 == 3:
        raise ValueError("every fourth")
    emit(row.x, state.n, state.total)


def compiled_fold_flush(key, state, emit):
    emit(None, -state.n, state.total)

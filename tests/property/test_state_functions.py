"""The state contract for functions of the user's: Python state with declared fields or behind a codec, and
compiled state. As `test_state.py`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_states import KEYS, SCHEMA, tables
from property.moved_state import goes_on_anywhere, removed_keys_never_came

import ordstream as od

pytest.importorskip("numba")

FIELDS = {
    "n": pa.int64(),
    "small": pa.int16(),
    "u": pa.uint64(),
    "total": pa.float64(),
    "half": pa.float32(),
    "flag": pa.bool_(),
    "last": pa.string(),
    "raw": pa.binary(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "span": pa.duration("ms"),
    "recent": pa.list_(pa.int16()),
    "halves": pa.large_list(pa.float32()),
    "flags": pa.list_(pa.bool_()),
    "days": pa.list_(pa.date32()),
    "times": pa.list_(pa.timestamp("us", "UTC")),
}
#: Lists that no column can be.
HELD = {
    "names": pa.list_(pa.string()),
    "raws": pa.large_list(pa.binary()),
    "gaps": pa.list_(pa.int16()),
    "late": pa.list_(pa.timestamp("us", "UTC")),
    "maybe": pa.list_(pa.bool_()),
}
SHOWN = FIELDS | {"held": pa.string()}
STRUCT = {name: FIELDS[name] for name in ("flag", "n", "small", "half", "total", "day", "at")}
NUMBERS = {"n": pa.int64(), "total": pa.float64()}


class Refused(ValueError):
    """What a function raises on purpose."""


def declared(row: Any, state: Any, emit: Any) -> None:
    state.n += 1
    state.small = (state.small + (row.y or 1)) % 30_000
    state.u = (state.u * 3 + (row.u or 1)) % 2**64
    if row.y == 2 and row.b is None:
        raise Refused(f"after {state.n}")
    if row.x is not None:
        state.total, state.half = row.x, row.x
    state.flag = state.flag is not bool(row.b)
    state.last = (state.last + (row.s or "é"))[-6:]
    state.raw = (state.raw + row.z)[-5:]
    state.at = state.at if row.t is None else row.t
    state.day = state.day if row.d is None else row.d
    state.span = state.span * 2 + (state.at - state.at)
    state.recent = (*state.recent, state.small)[-3:]
    state.halves = [] if row.x is None else [*state.halves, row.x]
    state.flags = [state.flag, *state.flags][:4]
    state.days, state.times = (*state.days[-1:], state.day), (state.at,) * (state.n % 3)
    state.names, state.raws = (row.s, *state.names)[:3], [*state.raws[-2:], row.z if row.b else None]
    state.gaps, state.late = (*state.gaps[-3:], row.y), [row.t, None, state.at][: state.n % 4]
    state.maybe = (row.b,) * (state.n % 3)
    for _ in range(state.n % 3):
        emit(*shown(state))


def shown(state: Any) -> list[Any]:
    return [getattr(state, name) for name in FIELDS] + [repr([getattr(state, name) for name in HELD])]


def declared_flush(key: Any, state: Any, emit: Any) -> None:
    state.n = -state.n
    emit(*shown(state))


def coded(row: Any, state: list[Any], emit: Any) -> None:
    state.append(row.j)
    if row.y == 2 and row.b is None:
        raise Refused(f"after {len(state)}")
    del state[:-4]
    emit(len(state), float(sum(state)))


def coded_flush(key: Any, state: list[Any], emit: Any) -> None:
    emit(-len(state), float(state[0]))


def packed(state: list[int]) -> bytes:
    return struct.pack(f"<{len(state)}q", *state)


def unpacked(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def compiled(row, state, emit):
    state.n += row.j
    if row.y is not None and row.y == 2 and row.b is None:
        raise ValueError("as the others")
    if row.x is not None:
        state.total = row.x
        state.half = row.x
    if row.b is not None:
        state.flag = row.b
    state.small = 3 if state.small == 0 else 0
    if row.d is not None:
        state.day = row.d
    if row.t is not None:
        state.at = row.t
    emit(state.flag, state.n, state.small, state.half, state.total, state.day, state.at)


def compiled_flush(key, state, emit):
    emit(state.flag, -state.n, state.small, state.half, state.total, state.day, state.at)


def returning(row, state, emit):
    """A state that goes back to zeros: as that of a new key."""
    state.n = 0 if state.n else 5
    emit(row.i, state.n)


@st.composite
def functions(draw: Any, key: tuple[str, ...]) -> od.Pipeline:
    """One process operator."""
    built: Any = od.Pipeline(SCHEMA)
    if key:
        built = built.key_by(*key)
    kind = draw(st.sampled_from(["declared", "struct codec", "text codec", "compiled", "returning"]))
    flushes = draw(st.booleans())
    options: dict[str, Any] = {"on_error": "skip", "name": "fold"}
    if kind == "declared":
        on_flush = declared_flush if flushes else None
        return built.process(declared, schema=SHOWN, state=FIELDS | HELD, on_flush=on_flush, **options)
    if kind == "compiled":
        options |= {"compiled": True, "on_flush": compiled_flush if flushes else None}
        return built.process(compiled, schema=STRUCT, state=STRUCT, **options)
    if kind == "returning":
        schema, state = {"i": pa.int64(), "n": pa.int64()}, {"n": pa.int64()}
        return built.process(returning, schema=schema, state=state, compiled=True, name="fold")
    codec = od.codec(packed, unpacked, list)
    if kind == "text codec":
        codec = od.codec(lambda state: json.dumps(state).encode(), json.loads, list)
    return built.process(
        coded, schema=NUMBERS, state=codec, on_flush=coded_flush if flushes else None, **options
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_a_cut_stream_goes_on_anywhere(data, table, key):
    pipeline = data.draw(functions(key))
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, data.draw(functions(key)))

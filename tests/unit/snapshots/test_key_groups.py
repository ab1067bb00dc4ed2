"""Key groups: the order against Python's, the group of a key against the definition in
docs/checkpoint-format.md.
"""

from __future__ import annotations

import math
import random
import struct
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordstream.reference.base import sort_key

key_groups = pytest.importorskip("ordstream._core.state.key_groups", reason="the core is not built")

FULL = (1 << 64) - 1
LOW, HIGH = -(2**63), 2**63 - 1
REALS = st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5, -5e-324]) | st.floats()
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "a\x00",
        "ab",
        "a" * 7,
        "a" * 8,
        "a" * 8 + "\x00",
        "a" * 9,
        "a" * 300,
        "a" * 299 + "b",
        "ä",
        "\U0001f600",
    ]
) | st.text(max_size=12)
VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.sampled_from([LOW, HIGH, -1, 0, 1]) | st.integers(LOW, HIGH) | st.integers(0, 5),
    pa.uint8(): st.integers(0, 255),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.sampled_from([2**63, 2**63 - 1]),
    pa.float32(): st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]) | st.floats(width=32),
    pa.float64(): REALS,
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.binary(): st.binary(max_size=10) | st.sampled_from([b"", b"\x00", b"\xff" * 20]),
}


# The definition, in plain Python.


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & FULL
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & FULL
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & FULL
    return x ^ (x >> 31)


def fold(a, b):
    return (a * b & FULL) ^ (a * b >> 64)


def hash_bytes(data):
    h = 0x9E3779B97F4A7C15 ^ (len(data) * 0x9E3779B97F4A7C15 & FULL)
    while len(data) >= 8:
        w = int.from_bytes(data[:8], "little")
        h = (fold(h ^ w ^ 0xA0761D6478BD642F, 0xE7037ED1A0B428DB) + w) & FULL
        data = data[8:]
    return fold(h ^ int.from_bytes(data, "little") ^ 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3)


def word(value, type_):
    if value is None:
        return 0x1B873593CC9E2D51
    if isinstance(value, str):
        return hash_bytes(value.encode())
    if isinstance(value, bytes):
        return hash_bytes(value)
    if isinstance(value, float):
        if math.isnan(value):
            return FULL
        (bits,) = struct.unpack("<Q", struct.pack("<d", value + 0.0))
        return ~bits & FULL if bits >> 63 else bits | 1 << 63
    if pa.types.is_signed_integer(type_):
        return (value + (1 << 63)) & FULL
    return int(value)


def group_of(key, types):
    words = [word(value, type_) for value, type_ in zip(key, types, strict=True)]
    if not words:
        return 0
    h = words[0]
    if len(words) > 1:
        h = 0x9E3779B97F4A7C15
        for one in words[:-1]:
            h = mix(h ^ one)
        h ^= words[-1]
    return mix(h) >> 54


def batch_of(types, rows):
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.record_batch(arrays, names=[f"k{index}" for index in range(len(types))])


def comparable(key):
    return sort_key(tuple(value.encode() if isinstance(value, str) else value for value in key))


@st.composite
def keys(draw):
    types = draw(st.lists(st.sampled_from(sorted(VALUES, key=str)), min_size=1, max_size=4))
    rows = draw(st.lists(st.tuples(*(st.none() | VALUES[type_] for type_ in types)), max_size=80))
    return types, list({comparable(row): row for row in rows}.values())


@settings(max_examples=300, deadline=None)
@given(keys())
def test_rows_are_in_the_order_of_group_and_key(case):
    types, rows = case
    got, ends = key_groups.order(batch_of(types, rows), len(types))
    wanted = sorted(range(len(rows)), key=lambda row: (group_of(rows[row], types), comparable(rows[row])))
    assert got.tolist() == wanted
    groups = [group_of(row, types) for row in rows]
    assert ends.tolist() == np.cumsum(np.bincount(groups, minlength=1024)).tolist()
    assert key_groups.groups(batch_of(types, rows)).tolist() == groups


def in_one_group(make, types, candidates=160_000):
    """Keys of one group, so many that they are not sorted by comparing only."""
    rows = [make(index) for index in range(candidates)]
    got, ends = key_groups.order(batch_of(types, rows), len(types))
    found = [rows[row] for row in got[ends[6] : ends[7]]]
    assert len(found) > 128
    assert {group_of(row, types) for row in found} == {7}
    return found


@pytest.mark.parametrize(
    ("types", "make"),
    [
        ([pa.int64()], lambda i: (i * 0x9E3779B97F4A7C15 % 2**64 - 2**63,)),
        ([pa.string()], lambda i: (f"a common beginning {i % 3} and another {i}",)),
        ([pa.string()], lambda i: ("x" * (i % 7) + str(i),)),
        ([pa.int64(), pa.int64()], lambda i: ((i % 3 - 1) * 2**62, i * 0x9E3779B97F4A7C15 % 2**63)),
        ([pa.int64(), pa.string()], lambda i: ((i % 2) * LOW, f"same {i}")),
        ([pa.string(), pa.int32()], lambda i: (f"the same long word {i % 2}", i)),
        ([pa.float64(), pa.int64()], lambda i: (None if i % 3 else 0.5, None if i == 4 else i * 2**40)),
    ],
    ids=["numbers", "beginnings", "lengths", "wide", "pair", "strings first", "nulls"],
)
def test_large_groups(types, make):
    rows = in_one_group(make, types)
    random.Random(3).shuffle(rows)
    got, ends = key_groups.order(batch_of(types, rows), len(types))
    assert got.tolist() == sorted(range(len(rows)), key=lambda row: comparable(rows[row]))
    assert (ends[6], ends[7]) == (0, len(rows))


#: Version 1, for ever: files hold it.
PINNED = [
    ([pa.int64()], (0,), 288),
    ([pa.int64()], (1,), 880),
    ([pa.int64()], (None,), 505),
    ([pa.float64()], (math.nan,), 915),
    ([pa.float64()], (0.0,), 288),
    ([pa.string()], ("",), 311),
    ([pa.string()], ("ordstream",), 727),
    ([pa.int32(), pa.string()], (7, "a"), 165),
    ([pa.bool_(), pa.uint64()], (True, 2**64 - 1), 598),
]


@pytest.mark.parametrize(("types", "key", "group"), PINNED, ids=str)
def test_the_group_of_a_key_never_changes(types, key, group):
    assert key_groups.KEY_HASH_VERSION == 1
    assert key_groups.GROUPS == 1024
    _, ends = key_groups.order(batch_of(types, [key]), len(types))
    assert int(np.searchsorted(ends, 1)) == group


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.0, -0.0), (math.nan, -math.nan), (math.nan, np.uint64(0x7FF0000000000001).view("f8"))],
)
def test_equal_floats_are_one_key(one, other):
    batch = pa.record_batch([pa.array(np.array([one, other]))], names=["k"])
    with pytest.raises(ValueError, match=r"row \d: its key is there twice"):
        key_groups.order(batch, 1)


@pytest.mark.parametrize("count", [2, 40, 400])
def test_a_key_that_is_there_twice(count):
    for values in ([1, *range(count)], [f"a long common beginning {i}" for i in [1, *range(count)]]):
        with pytest.raises(ValueError, match="its key is there twice"):
            key_groups.order(pa.record_batch([pa.array(values)], names=["k"]), 1)


def test_no_rows_and_no_key():
    none, ends = key_groups.order(batch_of([pa.int64()], []), 1)
    assert len(none) == 0
    assert not ends.any()
    row, ends = key_groups.order(pa.record_batch([pa.array([[1, 2]])], names=["state"]), 0)
    assert row.tolist() == [0]
    assert (ends == 1).all()
    with pytest.raises(ValueError, match="twice"):
        key_groups.order(pa.record_batch([pa.array([1, 2])], names=["state"]), 0)


def test_what_can_not_be_a_key():
    with pytest.raises(TypeError, match="can't be a key"):
        key_groups.order(pa.record_batch([pa.array([[1]])], names=["k"]), 1)
    with pytest.raises(ValueError, match="2 key columns of 1"):
        key_groups.order(pa.record_batch([pa.array([1])], names=["k"]), 2)


def test_slices_and_threads():
    keys = pa.array([f"key {index * 7919 % 100_003}" for index in range(100_003)])
    whole = pa.record_batch([keys], names=["k"])
    piece = whole.slice(1_001, 90_000)
    apart = pa.record_batch([pa.array(piece.column(0).to_pylist())], names=["k"])
    expected = key_groups.order(apart, 1)
    found = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: key_groups.order(piece, 1)})) for i in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rows, ends in found.values():
        assert (rows == expected[0]).all()
        assert (ends == expected[1]).all()
    assert len(found) == 3

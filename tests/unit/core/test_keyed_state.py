"""The keyed map: keys against a dict of normal forms, order against Arrow's, hashes across processes."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ordstream.reference.base import sort_key

testing = pytest.importorskip("ordstream._core.lab.testing_kernels", reason="the core is not built")
from ordstream._core.ground.chunk import PHYSICAL_TYPES as PT  # noqa: E402

REALS = st.sampled_from([0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 1.5]) | st.floats(width=32)
VALUES = {
    "i8": st.integers(-128, 127),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    "u8": st.integers(0, 255),
    "u16": st.integers(0, 2**16 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1) | st.sampled_from([2**63, 2**63 - 1]),
    "f32": REALS,
    "f64": REALS | st.floats(),
    "bool": st.booleans(),
    "view": st.binary(max_size=20) | st.sampled_from([b"", b"a", b"ab", b"a\x00", b"\xff"]),
}
TYPES = st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4)


@st.composite
def keyed_rows(draw):
    types = draw(TYPES)
    return types, draw(
        st.lists(st.tuples(*(st.none() | VALUES[t] for t in types)), min_size=1, max_size=150)
    )


@settings(max_examples=200, deadline=None)
@given(keyed_rows())
def test_equal_keys_share_a_record_and_records_sort_as_arrow(case):
    types, rows = case
    tests = testing.MapRun([PT[t] for t in types])
    slots = []
    for low in range(0, len(rows), 70):
        slots += tests.add([list(column) for column in zip(*rows[low : low + 70], strict=True)])
    keys = [sort_key(row) for row in rows]
    first = {key: position for position, key in reversed(list(enumerate(keys)))}
    in_order = sorted(first, key=first.get)
    assert slots == [in_order.index(key) for key in keys]  # slots in order of first arrival
    assert tests.counts() == [Counter(keys)[key] for key in in_order]
    assert [in_order[slot] for slot in tests.ascending()] == sorted(in_order)
    tests.close()


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64(), pa.float64()], ids=str)
def test_order_is_that_of_arrow(type_):
    low_or_high = 2**63 if type_ == pa.uint64() else -(2**63)
    edges = [math.nan, -math.inf, 0.5] if type_ == pa.float64() else [2**63 - 1, 0, low_or_high]
    values = [3, *edges, 1]
    expected = pa.array(values, type_).sort().to_pylist()
    run = testing.MapRun([PT[{"double": "f64", "uint64": "u64", "int64": "i64"}[str(type_)]]])
    run.add([values])
    assert str([type_.to_pandas_dtype()(values[slot]).item() for slot in run.ascending()]) == str(expected)
    run.close()


def test_many_keys_grow_the_table():
    run = testing.MapRun([PT["i64"]])
    keys = np.random.default_rng(5).integers(0, 60_000, 200_000)
    slots = []
    for low in range(0, len(keys), 5_000):
        slots += run.add([keys[low : low + 5_000].tolist()])
    counts = run.counts()
    expected = Counter(keys.tolist())
    assert len(counts) == len(expected)
    assert all(counts[slot] == expected[key] for slot, key in zip(slots, keys.tolist(), strict=True))
    run.close()


def test_hash_halves_are_uniform():
    """Buckets come from the upper half, table cells from the lower bits: sequential keys spread in both."""
    for types, columns in (
        (["i64"], [list(range(50_000))]),
        (["i64"], [[i << 40 for i in range(50_000)]]),
        (["i32", "i32"], [[i % 100 for i in range(50_000)], [i // 100 for i in range(50_000)]]),
        (["view"], [[str(i).encode() for i in range(50_000)]]),
        (["f64"], [[float(i) for i in range(50_000)]]),
    ):
        run = testing.MapRun([PT[t] for t in types])
        hashes = run.hashes(columns)
        run.close()
        assert len(set(hashes)) == 50_000
        for part in ([((h >> 32) * 64) >> 32 for h in hashes], [h & 63 for h in hashes]):
            sizes = np.bincount(part, minlength=64)
            chi2 = ((sizes - 50_000 / 64) ** 2 / (50_000 / 64)).sum()
            assert chi2 < 125  # 63 degrees of freedom: p < 1e-5


def test_near_by_keys_have_different_hashes():
    """The mix of one 8-byte key is bijective: no two keys share a hash, not even near-by bit patterns."""
    keys = [i ^ (1 << b) for i in range(-500, 500) for b in range(63)]
    run = testing.MapRun([PT["i64"]])
    assert len(set(run.hashes([keys]))) == len(set(keys))
    run.close()


def test_keys_whose_tags_collide_are_told_apart():
    """The table keeps 32 bits of a hash: with 400,000 keys some pairs share them, and the key decides."""
    run = testing.MapRun([PT["i64"]])
    tags = [h & 0xFFFFFFFF for h in run.hashes([list(range(400_000))])]
    shared = {tag for tag, n in Counter(tags).items() if n > 1}
    assert shared
    keys = [key for key, tag in enumerate(tags) if tag in shared]
    slots = run.add([keys * 3])
    assert slots == list(range(len(keys))) * 3
    assert run.counts() == [3] * len(keys)
    run.close()


PROGRAM = """
import math
from ordstream._core.lab.testing_kernels import MapRun
from ordstream._core.ground.chunk import PHYSICAL_TYPES as PT
print(MapRun([PT["view"], PT["f64"], PT["i32"]]).hashes(
    [[b"", b"abc", None, b"a long string of bytes"], [0.0, -0.0, math.nan, None], [1, 2, None, -3]]))
"""


def test_hashes_are_the_same_in_every_process():
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert "[" in found.pop()


def test_float_keys_in_normal_form_hash_equal():
    run = testing.MapRun([PT["f64"]])
    zero, negative, one, other = run.hashes([[0.0, -0.0, math.nan, -math.nan]])
    assert zero == negative
    assert one == other
    run.close()


@pytest.mark.parametrize("bad", ["list", "fixed16"])
def test_lists_and_decimals_are_no_keys(bad):
    with pytest.raises(TypeError, match="can't be a key"):
        testing.MapRun([PT[bad]])

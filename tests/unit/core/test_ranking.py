"""Ranking lists: words of rank and key against the comparison of the keys, and the k best by every way
of sorting.
"""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.test_keyed_state import VALUES, keyed_rows

testing = pytest.importorskip("ordstream._core.lab.testing_kernels", reason="the core is not built")
from ordstream._core.ground.chunk import PHYSICAL_TYPES as PT  # noqa: E402

LOW, HIGH = -(2**63), 2**63 - 1
RANKS = {
    "equal": st.just(7),
    "few": st.integers(-1, 1),
    "counts": st.integers(1, 200),
    "wide": st.sampled_from([LOW, -1, 0, HIGH]) | st.integers(LOW, HIGH),
}
#: Values of a type at which an order may break: signs, zeros, NaN, ends; strings that share their first 8
#: bytes or differ by a zero byte.
EDGES = {
    "i8": [-128, -1, 0, 1, 127],
    "i16": [-(2**15), -1, 0, 2**15 - 1],
    "i32": [-(2**31), -1, 0, 2**31 - 1],
    "i64": [LOW, LOW + 1, -1, 0, 1, HIGH],
    "u8": [0, 1, 255],
    "u16": [0, 2**16 - 1],
    "u32": [0, 2**31, 2**32 - 1],
    "u64": [0, 1, HIGH, 2**63, 2**64 - 1],
    "f32": [-math.inf, -1.5, -(2.0**-149), 0.0, 2.0**-149, 1.5, math.inf, math.nan],
    "f64": [-math.inf, -1e308, -5e-324, -0.0, 5e-324, 1e-300, 1e308, math.inf, -math.nan],
    "bool": [False, True],
    "view": [b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"a\x00b", b"ab"]
    + [b"12345678", b"12345678\x00", b"123456789", b"12345679", b"\xff" * 9],
}


def filled(types, rows):
    """A map of the rows' keys, and its slots in the order of the keys."""
    run = testing.MapRun([PT[t] for t in types])
    for low in range(0, len(rows), 70):
        run.add([list(column) for column in zip(*rows[low : low + 70], strict=True)])
    return run, run.ascending()


def compare_all(run, ascending, slots, ranks):
    """Every k: the same as sorting by rank and by `key_compare`; words agree with that order."""
    place = {slot: i for i, slot in enumerate(ascending)}
    rank = dict(zip(slots, ranks, strict=True))
    expected = sorted(slots, key=lambda slot: (-rank[slot], place[slot]))
    n = len(slots)
    for k in sorted({1, 2, n // 10, n // 2, n - 1, n} & set(range(1, n + 1))):
        assert run.ranked(slots, ranks, k) == expected[:k]
    words, used, exact = run.words(slots, ranks)
    of_slot = dict(zip(slots, words, strict=True))
    in_order = [of_slot[slot] for slot in expected]
    assert in_order == sorted(words)
    assert max(words) >> used == 0
    assert used <= 64
    assert not exact or len(set(words)) == n
    assert all(rank[a] == rank[b] for a, b in itertools.pairwise(expected) if of_slot[a] == of_slot[b])
    return used, exact


@settings(max_examples=300, deadline=None)
@given(case=keyed_rows(), kind=st.sampled_from(sorted(RANKS)), data=st.data(), seed=st.integers(0, 99))
def test_lists_are_ranked_as_keys_compare(case, kind, data, seed):
    run, ascending = filled(*case)
    slots = random.Random(seed).sample(ascending, len(ascending))
    compare_all(
        run, ascending, slots, data.draw(st.lists(RANKS[kind], min_size=len(slots), max_size=len(slots)))
    )
    run.close()


@pytest.mark.parametrize("kind", ["equal", "wide"])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("second", [None, *sorted(VALUES)])
@pytest.mark.parametrize("first", sorted(VALUES))
def test_edges_of_every_type(first, second, nulls, kind):
    types = [first] if second is None else [first, second]
    columns = [EDGES[t] + [None] * nulls for t in types]
    rows = [(a,) for a in columns[0]] if second is None else [(a, b) for a in columns[0] for b in columns[1]]
    run, ascending = filled(types, rows)
    assert len(ascending) == len(rows)
    draw = random.Random(f"{types}{nulls}")
    slots = draw.sample(ascending, len(rows))
    ranks = [7 if kind == "equal" else draw.choice([LOW, 0, HIGH]) for _ in slots]
    _, exact = compare_all(run, ascending, slots, ranks)
    assert not (exact and "view" in types)
    run.close()


@pytest.mark.parametrize(
    ("types", "high", "bits"),
    [
        (["i64", "i64"], 2**14, 28),
        (["i32", "u16", "i8"], 100, 21),
        (["i64"], 2**40, 40),
        (["i64"], 2**60, 60),
        (["i64", "i64"], 2**40, 64),
    ],
)
@pytest.mark.parametrize("n", [2, 17, 300, 3000])
def test_integers_take_the_bits_of_their_list(types, high, bits, n):
    """Long and short lists, words that hold a whole key (and its slot) and those that do not."""
    draw = random.Random(n)
    rows = {tuple(draw.randrange(high) for _ in types) for _ in range(n)}
    run, ascending = filled(types, sorted(rows, key=lambda _: draw.random()))
    for spread in (0, 1):
        ranks = [draw.choice([5, 5 + spread]) for _ in ascending]
        used, exact = compare_all(run, ascending, draw.sample(ascending, len(ascending)), ranks)
        assert used <= min(bits + spread, 64)
        assert n == 2 or exact == (bits < 64)
    run.close()


def test_columns_that_do_not_vary_take_no_bits():
    """A string that all keys share ends the word, one of integers does not; so does a column of nulls."""
    run, ascending = filled(["i64", "f64", "i16", "i64"], [(HIGH, math.nan, None, i) for i in (3, 1, 2, 0)])
    assert run.words(ascending, [9] * 4) == ([0, 1, 2, 3], 2, True)
    run.close()

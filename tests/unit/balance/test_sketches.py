"""Key words, hash functions and sketches: small cases worked by hand, bytes, and what is refused."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ordstream._core.balance import hashing
from ordstream.balance import serial_form
from ordstream.balance.keys import integers_of, key_at, key_word, key_words
from ordstream.balance.serial_form import SketchBytesError
from ordstream.balance.sketches import CountMin, ExecutionTimes, count_min_size
from ordstream.balance.space_saving import SpaceSaving
from ordstream.errors import PlanError, SchemaError

PRIME = 2**61 - 1

# --- key words ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, -1, 2**62, -(2**63)], pa.int64()),
        pa.array([5, -1, 127, -128], pa.int8()),
        pa.array([0, 2**64 - 1], pa.uint64()),
        pa.array([0, 2**32 - 1], pa.uint32()),
        pa.array([], pa.int16()),
    ],
)
def test_an_integer_comes_back_from_its_word(column):
    assert integers_of(key_words(column), column.type).equals(column)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([5, None], pa.int64()), pa.int64()),
        (pa.array(["a"]), pa.string()),
        (pa.array([2.0]), pa.float64()),
        (pa.array([300], pa.int64()), pa.int8()),
    ],
)
def test_no_other_key_does(column, kind):
    assert integers_of(key_words(column), kind) is None


COLUMNS = [
    ([5, -1, 2**62], np.array([5, -1, 2**62])),
    ([5, 0, 7], np.array([5, 0, 7], dtype=np.int16)),
    ([5, 0, 2**64 - 1], np.array([5, 0, 2**64 - 1], dtype=np.uint64)),
    ([1, 0, 1], np.array([True, False, True])),
    ([1, 0, 1], pa.array([True, False, True])),
    ([5, None, -7], pa.array([5, None, -7], pa.int8())),
    ([5, None, -7], pa.chunked_array([pa.array([5, None]), pa.array([-7])])),
    ([5, 6], pa.array([1, 5, 6, 7])[1:3]),
    (["", "a", "ordstream-ordstream", "é"], np.array(["", "a", "ordstream-ordstream", "é"])),
    (["", "a", None, "é"], np.array(["", "a", None, "é"], dtype=object)),
    (["b", None, "cc"], pa.array(["a", "b", None, "cc", "d"])[1:4]),
    (["b", None, "cc"], pa.array(["b", None, "cc"], pa.large_string())),
    (["b", None, "cc"], pa.array(["b", None, "cc"], pa.string_view())),
    (["b", None, "cc", "b"], pa.array(["b", None, "cc", "b"]).dictionary_encode()),
    (["b", None], pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["b"]))),
    (["b", "cc"], pl.Series(["b", "cc"])),
    (["b", "cc"], pd.Series(["b", "cc"])),
    ([5, 7], pd.Series([5, 7], dtype="int32")),
    ([b"", b"abcdefgh", None], pa.array([b"", b"abcdefgh", None])),
    ([b"ab", b"cd"], pa.array([b"ab", b"cd"], pa.binary(2))),
    ([0.0, 0.5, -1.5], np.array([-0.0, 0.5, -1.5], dtype=np.float32)),
    ([0.0, float("nan"), None], pa.array([-0.0, float("nan"), None], pa.float64())),
    ([19000, None], pa.array([date(2022, 1, 8), None])),
    ([1_500_000], pa.array([1_500], pa.timestamp("ms")).cast(pa.timestamp("us"))),
    ([None, None], pa.nulls(2)),
    ([(1, "a"), (2, None)], (np.array([1, 2]), pa.array(["a", None]))),
    ([(1, "a"), (2, None)], pa.table({"x": [1, 2], "y": ["a", None]})),
    ([(1, "a"), (2, None)], pa.record_batch({"x": [1, 2], "y": ["a", None]}).to_struct_array()),
    ([(1, "a"), None], pa.array([{"x": 1, "y": "a"}, None])),
    ([1, 2], pa.table({"x": [1, 2]})),
    ([], pa.array([], pa.string())),
    ([], pa.chunked_array([], pa.int64())),
]


@pytest.mark.parametrize(("keys", "column"), COLUMNS)
def test_a_column_of_keys_has_the_words_of_its_keys(keys: list[Any], column: Any) -> None:
    words = key_words(column)
    assert words.dtype == np.uint64
    assert words.tolist() == [key_word(key) for key in keys]
    assert key_words(keys).tolist() == words.tolist()
    shown = key_at(column, np.arange(len(keys)))
    assert [repr(key) for key in shown] == [repr(key) for key in keys]


def test_an_integer_is_its_own_word_and_other_keys_differ() -> None:
    assert [key_word(key) for key in (0, 7, True, 2**64 - 1, -1)] == [0, 7, 1, 2**64 - 1, 2**64 - 1]
    keys = [
        "a",
        b"a",
        "b",
        "",
        b"",
        None,
        1.0,
        ("a", "b"),
        ("b", "a"),
        ("a", None),
        ("ab", ""),
        float("nan"),
        0.0,
    ]
    assert len({key_word(key) for key in keys}) == len(keys)
    assert key_word((7,)) == 7
    assert key_word(float("nan")) == key_word(-float("nan"))
    assert key_word(-0.0) == key_word(0.0)


def test_words_are_the_same_in_another_process() -> None:
    keys = [5, "ordstream", b"\x00\xff", ("a", 5, None), 2.5]
    code = f"from ordstream.balance.keys import key_word; print([key_word(k) for k in {keys!r}])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str([key_word(key) for key in keys])
    # Also across releases: a changed function would break every saved map.
    assert [key_word(key) for key in keys] == WORDS


WORDS = [5, 13112316295453504601, 12186336326010256102, 12812233862214059681, 1665361101573196774]


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ([[1]], TypeError),
        ([1, {}], TypeError),
        ([()], TypeError),
        ([2**64], OverflowError),
        ([-(2**63) - 1], OverflowError),
        (7, TypeError),
        (np.zeros((2, 2), dtype=np.int64), SchemaError),
        (np.zeros(2, dtype=np.complex128), SchemaError),
        (pa.array([[1], [2]]), SchemaError),
        ((np.zeros(2), np.zeros(3)), SchemaError),
        ((), SchemaError),
    ],
)
def test_what_cannot_be_a_key_is_refused(keys: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        key_words(keys)


# --- 2-universal functions ------------------------------------------------------------------------


@pytest.mark.parametrize("word", [0, 1, 5, 2**32 - 1, 2**32, 2**61 - 1, 2**61, 2**63 + 12345, 2**64 - 1])
def test_hash_functions_are_the_formula(word: int) -> None:
    """((a_low x_low + a_high x_high + b) mod p) mod c, with Python's integers."""
    edge = [(1, 1, 0), (PRIME - 1, PRIME - 1, PRIME - 1), (PRIME - 1, 0, 1), (0, PRIME - 1, PRIME - 1)]
    for columns in (1, 2, 55, 2**31 - 1):
        drawn = hashing.TwoUniversal(8, columns, seed=word % 97)
        fixed = hashing.TwoUniversal.from_coefficients(columns, edge)
        for functions in (drawn, fixed):
            for row, (a_low, a_high, b) in enumerate(functions.coefficients):
                expected = (a_low * (word % 2**32) + a_high * (word >> 32) + b) % PRIME % columns
                assert functions.cells(np.array([word], dtype=np.uint64), row).tolist() == [expected]


def test_a_seed_draws_the_same_functions_for_good() -> None:
    first = hashing.TwoUniversal(3, 10, seed=1)
    assert first == hashing.TwoUniversal(3, 10, seed=1)
    assert hash(first) == hash(hashing.TwoUniversal(3, 10, seed=1))
    assert first != hashing.TwoUniversal(3, 10, seed=2)
    assert first != hashing.TwoUniversal(3, 11, seed=1)
    assert pickle.loads(pickle.dumps(first)) == first
    assert first.coefficients[0] == COEFFICIENTS
    assert all(1 <= a < PRIME and 1 <= c < PRIME and 0 <= b < PRIME for a, c, b in first.coefficients)


COEFFICIENTS = (2175710985483820605, 104355531850764719, 1792647483581941109)


def test_two_keys_collide_at_most_as_often_as_the_family_promises() -> None:
    """P{h(x) = h(y)} <= 1/c over the functions: 4,000 draws, within five standard deviations."""
    draws, columns = 4_000, 10
    for x, y in [(1, 2), (3, 3 + columns), (2**32, 2**33), (7, 7 + 2**40)]:
        words = np.array([x, y], dtype=np.uint64)
        hits = sum(
            len(set(hashing.TwoUniversal(1, columns, seed).cells(words).tolist())) == 1
            for seed in range(draws)
        )
        assert hits <= draws / columns + 5 * (draws * 0.1 * 0.9) ** 0.5


@pytest.mark.parametrize(("rows", "columns"), [(0, 5), (65, 5), (1, 0), (1, 2**31), (1.5, 5), (1, True)])
def test_sizes_outside_the_range_are_refused(rows: int, columns: int) -> None:
    with pytest.raises(PlanError):
        CountMin(rows=rows, columns=columns)


# --- Count-Min and F/W ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta", "size"),
    [
        (0.05, 0.1, (4, 55)),
        (0.70, 0.25, (2, 4)),
        (1.0, 0.5, (1, 3)),
        (0.001, 0.1, (4, 2719)),
        (0.05, 0.125, (3, 55)),
    ],
)
def test_size_by_error(epsilon: float, delta: float, size: tuple[int, int]) -> None:
    assert count_min_size(epsilon, delta) == size
    sketch = ExecutionTimes(epsilon, delta)
    assert (sketch.rows, sketch.columns) == size


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 0.1), (-1, 0.1), (float("nan"), 0.1), (0.1, 0), (0.1, 1), (1e-12, 0.1)]
)
def test_size_by_error_refuses(epsilon: float, delta: float) -> None:
    with pytest.raises(PlanError):
        count_min_size(epsilon, delta)


def test_size_is_given_one_way() -> None:
    for given in ({"epsilon": 0.1, "rows": 2, "columns": 3}, {"rows": 2}, {"columns": 2}):
        with pytest.raises(PlanError, match="either"):
            CountMin(**given)


def test_count_min_by_hand() -> None:
    sketch = CountMin(rows=2, columns=4, seed=3)
    for key, count in [(1, 3), (2, 5), (9, 1)]:
        sketch.update(key, count)
    expected = np.zeros((2, 4), dtype=np.int64)
    for key, count in [(1, 3), (2, 5), (9, 1)]:
        for row in range(2):
            expected[row, sketch.hashes.cells(np.array([key], dtype=np.uint64), row)[0]] += count
    assert sketch.matrix.tolist() == expected.tolist()
    assert sketch.total == 9
    for key in range(20):
        cells = [sketch.hashes.cells(np.array([key], dtype=np.uint64), row)[0] for row in range(2)]
        assert sketch.estimate(key) == min(expected[0, cells[0]], expected[1, cells[1]])
    with pytest.raises(ValueError, match="read-only"):
        sketch.matrix[0, 0] = 1


def test_counts_are_checked_before_any_is_counted() -> None:
    sketch = CountMin(seed=1)
    sketch.update("a", 2**63 - 2)
    before = sketch.copy()
    with pytest.raises(OverflowError):
        sketch.update_many(["a", "b"])
    with pytest.raises(ValueError, match="negative"):
        sketch.update_many(["a", "b"], np.array([0, -1]))
    with pytest.raises(ValueError, match="counts"):
        sketch.update_many(["a", "b"], np.array([0]))
    with pytest.raises(OverflowError):
        sketch.merge(before)
    assert sketch == before
    sketch.update_many(["a", "b"], np.array([0, 1]))
    assert (sketch.total, before.total) == (2**63 - 1, 2**63 - 2)


@pytest.mark.parametrize("made", [CountMin, lambda: SpaceSaving(capacity=5)])
def test_counts_that_are_no_whole_numbers_are_refused(made: Any) -> None:
    """Measured costs below 1 counted as 0, without a word, and NaN as -9223372036854775808."""
    sketch = made()
    for counts in ([0.5, 2.7], np.array([np.nan, 1]), ["1", "2"], [True, False], [None, 1]):
        with pytest.raises(TypeError, match="counts and weights are whole numbers"):
            sketch.update_many([1, 2], counts)
        with pytest.raises(TypeError, match="a count is a whole number, not"):
            sketch.update(1, counts[0])
    for count in (2**63, 2**64):
        with pytest.raises(OverflowError, match="passes 2\\^63 - 1"):
            sketch.update_many([1, 2], [count, 1])
        with pytest.raises(OverflowError, match="passes 2\\^63 - 1"):
            sketch.update(1, count)
    assert sketch.total == 0
    sketch.update_many([1, 2], pa.array([2, 3], pa.uint8()))
    sketch.update_many([], [])
    sketch.update(1, np.int16(2))
    assert sketch.total == 7


def test_execution_times_by_hand() -> None:
    """Listing III.2: the row with the smallest F decides, not the smallest ratio; the first of equals;
    empty: the mean.
    """
    sketch = ExecutionTimes(rows=2, columns=3, seed=0)

    def cells(key: int) -> tuple[int, int]:
        word = np.array([key], dtype=np.uint64)
        return int(sketch.hashes.cells(word, 0)[0]), int(sketch.hashes.cells(word, 1)[0])

    assert sketch.estimate(1) == 0.0
    a = 0
    # b shares a's cell in row 0 alone, c in row 1 alone.
    b = next(k for k in range(1, 1000) if cells(k)[0] == cells(a)[0] and cells(k)[1] != cells(a)[1])
    c = next(k for k in range(1, 1000) if cells(k)[0] != cells(a)[0] and cells(k)[1] == cells(a)[1])
    sketch.update(a, 10.0)
    sketch.update(b, 1.0)
    assert sketch.estimate(a) == 10.0  # row 1: F = 1; row 0 has F = 2 and the smaller ratio 5.5
    sketch.update(c, 2.0)
    assert sketch.estimate(a) == 5.5  # F = 2 in both rows: the first one's (10 + 1) / 2, not (10 + 2) / 2
    sketch.update(c, 2.0)
    assert sketch.estimate(a) == 5.5  # row 0: F = 2, row 1: F = 3
    empty = next(
        k
        for k in range(1000)
        if sketch.frequency[0, cells(k)[0]] == 0 or sketch.frequency[1, cells(k)[1]] == 0
    )
    assert sketch.estimate(empty) == sketch.mean_time == 15.0 / 4
    filled = sketch.frequency > 0
    assert np.array_equal(sketch.ratios()[filled], (sketch.work / np.maximum(sketch.frequency, 1))[filled])
    assert not sketch.ratios()[~filled].any()
    sketch.reset()
    assert (sketch.tuples, sketch.total_time, sketch.frequency.any(), sketch.work.any()) == (
        0,
        0.0,
        False,
        False,
    )


@pytest.mark.parametrize("time", [-1.0, float("nan"), float("inf")])
def test_times_are_checked_before_any_is_counted(time: float) -> None:
    sketch = ExecutionTimes()
    with pytest.raises(ValueError, match="row 1"):
        sketch.update_many([1, 2], [1.0, time])
    with pytest.raises(ValueError, match="2 keys but 1"):
        sketch.update_many([1, 2], [1.0])
    assert (sketch.tuples, sketch.total_time) == (0, 0.0)


def test_only_equal_functions_merge() -> None:
    for other in (CountMin(seed=1), CountMin(rows=4, columns=54), CountMin(rows=3, columns=55)):
        with pytest.raises(ValueError, match="seed"):
            CountMin(seed=0).merge(other)
    with pytest.raises(ValueError, match="seed"):
        ExecutionTimes(seed=0).merge(ExecutionTimes(seed=1))


# --- Space-Saving ---------------------------------------------------------------------------------


def test_space_saving_by_hand() -> None:
    sketch = SpaceSaving(capacity=2)
    for key in "aab":
        sketch.update(key)
    assert (sketch.counters(), sketch.least) == ([("a", 2, 0), ("b", 1, 0)], 1)
    sketch.update("c")  # takes b's counter: 1 + 1, error 1
    assert sketch.counters() == [("a", 2, 0), ("c", 2, 1)]
    assert [sketch.estimate(key) for key in "abc"] == [2, 2, 2]
    sketch.update("d")  # a tie: a reached 2 first
    assert sketch.counters() == [("d", 3, 2), ("c", 2, 1)]
    assert (sketch.total, len(sketch), sketch.least) == (5, 2, 2)
    assert sketch.heavy_hitters(0.6) == [("d", 3, 2)]
    assert sketch.heavy_hitters(0.4) == [("d", 3, 2), ("c", 2, 1)]
    assert sketch.heavy_hitters(0.2, guaranteed=True) == [("d", 3, 2), ("c", 2, 1)]
    assert sketch.heavy_hitters(0.21, guaranteed=True) == []


def test_capacity_is_the_ceiling_of_one_over_epsilon() -> None:
    assert [SpaceSaving(epsilon).capacity for epsilon in (1.0, 0.5, 0.3, 0.05, 0.1, 0.49)] == [
        1,
        2,
        4,
        20,
        10,
        3,
    ]
    for given in (
        {},
        {"epsilon": 0.1, "capacity": 3},
        {"epsilon": 0.0},
        {"epsilon": 1.1},
        {"capacity": 0},
        {"capacity": 2**40},
    ):
        with pytest.raises(PlanError):
            SpaceSaving(**given)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="Theta"):
        SpaceSaving(0.5).heavy_hitters(0.0)


@pytest.mark.parametrize(("keys", "column"), [case for case in COLUMNS if len(case[0])])
def test_space_saving_shows_the_keys_of_every_kind_of_column(keys: list[Any], column: Any) -> None:
    sketch = SpaceSaving(capacity=8)
    sketch.update_many(column)
    found = {repr(key) for key, _, _ in sketch.counters()}
    distinct = {key_word(key): key for key in keys}
    assert {key_word(key) for key, _, _ in sketch.counters()} == set(distinct)
    assert found == {repr(key) for key in distinct.values()}
    again = SpaceSaving.from_bytes(sketch.to_bytes())
    assert {repr(key) for key, _, _ in again.counters()} == found


def test_space_saving_merges_only_one_capacity() -> None:
    with pytest.raises(ValueError, match="capacity"):
        SpaceSaving(capacity=2).merge(SpaceSaving(capacity=3))


def test_space_saving_merge_by_hand() -> None:
    left, right = SpaceSaving(capacity=2), SpaceSaving(capacity=2)
    left.update_many(["a", "a", "a", "b"])
    right.update_many(["c", "c", "a"])
    left.merge(right)
    # a: 3 + 1; b: 1 + least of the other (1); c: 2 + 1 with error 1. The two largest stay.
    assert left.counters() == [("a", 4, 0), ("c", 3, 1)]
    assert (left.total, left.least) == (7, 3)
    left.merge(SpaceSaving(capacity=2))
    assert (left.counters(), left.total) == ([("a", 4, 0), ("c", 3, 1)], 7)


def test_weighted_update_is_repeated_update() -> None:
    once, repeated = SpaceSaving(capacity=3), SpaceSaving(capacity=3)
    stream = [("a", 4), ("b", 1), ("c", 2), ("d", 3), ("a", 0), ("e", 5), ("b", 1)]
    once.update_many([key for key, _ in stream], np.array([count for _, count in stream]))
    for key, count in stream:
        repeated.update_many([key] * count)
    assert once.counters() == repeated.counters()
    with pytest.raises(ValueError, match="negative"):
        once.update("a", -1)
    once.update("a", 2**63 - 1 - once.total)
    with pytest.raises(OverflowError):
        once.update_many(["a"])


# --- bytes ----------------------------------------------------------------------------------------


def made(kind: str) -> Any:
    if kind == "CountMin":
        sketch: Any = CountMin(seed=5)
        sketch.update_many(["a", "b", "a"])
    elif kind == "ExecutionTimes":
        sketch = ExecutionTimes(seed=5)
        sketch.update_many([1, 2, 1], [0.1, 0.2, 0.3])
    else:
        sketch = SpaceSaving(capacity=4)
        sketch.update_many(pa.array([1, 2, 1, None, 5, 6]))
    return sketch


KINDS = {"CountMin": CountMin, "ExecutionTimes": ExecutionTimes, "SpaceSaving": SpaceSaving}


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_give_the_sketch_back(kind: str) -> None:
    sketch = made(kind)
    data = sketch.to_bytes()
    for again in (KINDS[kind].from_bytes(data), pickle.loads(pickle.dumps(sketch)), sketch.copy()):
        assert again.to_bytes() == data
        # It is independent, and goes on as the first one does.
        again.update(3, 1)
        other = made(kind)
        other.update(3, 1)
        assert again.to_bytes() == other.to_bytes() != sketch.to_bytes() == data


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_bytes_are_refused(kind: str) -> None:
    data = made(kind).to_bytes()
    read = KINDS[kind].from_bytes  # type: ignore[attr-defined]
    at = len(serial_form.MAGIC)
    cases = {
        b"": "0 bytes are no serialised",
        b"PAR1" * 10: "no serialised",
        data[:3]: "no serialised",
        data[:-1]: "damaged",
        data + b"x": "damaged",
        data[:-1] + bytes([data[-1] ^ 1]): "damaged",
        data[:at] + b"\x09" + data[at + 1 :]: "version 9",
        made(next(k for k in KINDS if k != kind)).to_bytes(): "not a " + kind,
        serial_form.packed(kind, {}, {}): "cannot be read",
        serial_form.packed(kind, {"columns": 0, "hashes": [[1, 1, 1]], "capacity": 0}, {}): "cannot be read",
    }
    for foreign, message in cases.items():
        with pytest.raises(SketchBytesError, match=message):
            read(foreign)
    for other in ("text", None, 5):
        with pytest.raises(SketchBytesError, match=f"a serialised {kind} is bytes, not"):
            read(other)
    assert read(memoryview(data)).to_bytes() == data


def test_bytes_with_impossible_content_are_refused() -> None:
    """Right checksum, wrong content: counts that no stream gives."""
    hashes = [[1, 1, 0], [1, 1, 1]]
    for cells in ([[1, 0], [0, 2]], [[-1, 1], [0, 0]]):
        with pytest.raises(SketchBytesError, match="CountMin"):
            CountMin.from_bytes(
                serial_form.packed("CountMin", {"columns": 2, "hashes": hashes}, {"cells": np.array(cells)})
            )
    for counts, errors, keys in [
        ([2, 1], [0, 0], [1, 2]),
        ([1, 2], [2, 0], [1, 2]),
        ([1, 1], [0, 0], [1, 1]),
        ([9, 9], [0, 0], [1, 2]),
    ]:
        arrays = {
            "words": np.array(keys, dtype=np.uint64),
            "counts": np.array(counts),
            "errors": np.array(errors),
        }
        with pytest.raises(SketchBytesError, match="SpaceSaving"):
            SpaceSaving.from_bytes(
                serial_form.packed("SpaceSaving", {"capacity": 2, "total": 5, "keys": keys}, arrays)
            )


def test_times_whose_sum_is_not_finite_are_refused() -> None:
    """The bytes of such matrices could not be read."""
    times = ExecutionTimes()
    times.update(1, 1e308)
    before = times.to_bytes()
    other = times.copy()
    for add in (
        lambda: times.update(1, 1e308),
        lambda: times.update(2, 1e308),  # another cell: the total
        lambda: times.update_many([3, 4], [1e307, 1e308]),
        lambda: ExecutionTimes().update_many([3, 4], [1e308, 1e308]),
        lambda: times.merge(other),
    ):
        with pytest.raises(ValueError, match=r"sum of .* times would not be finite: .*larger unit"):
            add()
    assert times.to_bytes() == before
    times.update_many([3, 4], [1e307, 2e307])
    times.update(5, Decimal("1e307"))
    assert ExecutionTimes.from_bytes(times.to_bytes()) == times
    for time in (math.inf, math.nan, -1e308):
        with pytest.raises(ValueError, match="an execution time is negative or not finite"):
            times.update(1, time)
        with pytest.raises(ValueError, match="an execution time is negative or not finite"):
            times.update_many([1], [time])
    with pytest.raises(TypeError, match="must be real number, not str"):
        times.update(1, "1")

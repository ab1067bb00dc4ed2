"""Aggregations that keep values, of many keys whose rows take turns: blocks of rows go into their objects
together, and give what rows one by one give.
"""

from __future__ import annotations

import math
import random

import pyarrow as pa
import pytest
from property.compare import agree, run_core
from state_runs import check_memory_comes_back, check_state_moves

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema(
    [
        ("k", pa.int64()), ("x", pa.int64()), ("y", pa.float64()), ("u", pa.uint64()), ("s", pa.string()),
        ("few", pa.string()), ("list", pa.list_(pa.int64())), ("b", pa.bool_()),
        ("d", pa.decimal128(30, 2)),
    ]
)  # fmt: skip
REALS = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, None, -2.25, 1e300]
TEXTS = [
    "",
    "a",
    "b",
    None,
    "a text that is longer than fifteen bytes",
    "another one, of thirty bytes!",
    "ä",
]
AGGREGATES = {
    "median": od.median("y"), "quantile": od.quantile("x", 0.3), "high": od.quantile("u", 0.9),
    "distinct": od.count_distinct("y"), "distinct_x": od.count_distinct("x"),
    "texts": od.count_distinct("s"),
    "collect": od.collect("x", 3), "lists": od.collect("list", 2), "words": od.collect("s", 2),
    "first": od.first("s"), "last": od.last("s"), "some": od.last("s", where=od.col("x") > 0),
    "one": od.first("s", where=od.col("x") > 0),
    "least": od.min("s"), "most": od.max("s"), "of": od.arg_max("s", "y"), "by": od.arg_min("x", "s"),
    "texts_by": od.arg_max("s", "few"), "words_by": od.arg_min("y", "x"), "last_list": od.last("list"),
    "positive": od.median("y", where=od.col("y") > 0), "n": od.count(), "sum": od.sum("u"),
    "exact": od.sum("d"), "flag": od.arg_max("b", "x"),
}  # fmt: skip


def rows(n: int, keys: int, seed: int = 0) -> pa.Table:
    rng = random.Random(seed)

    def column(choose):
        return [choose() for _ in range(n)]

    return pa.table(
        {
            "k": column(lambda: rng.randrange(keys)),
            "x": column(lambda: rng.choice([None, *range(-4, 9)])),
            "y": column(lambda: rng.choice(REALS)),
            "u": column(lambda: rng.choice([0, 1, 2**63 + 1, None]) if n < 9 else rng.randrange(9)),
            "s": column(lambda: rng.choice(TEXTS)),
            "few": column(lambda: rng.choice(TEXTS[:4])),
            "list": column(lambda: rng.choice([None, [], [1], [2, None], list(range(9))])),
            "b": column(lambda: rng.choice([True, False, None])),
            "d": pa.array(column(lambda: rng.choice([1, 2, None])), pa.int64()).cast(pa.decimal128(30, 2)),
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("keys", [1, 3, 50, 500])
@pytest.mark.parametrize("name", [*AGGREGATES, "all"])
def test_blocks_of_many_keys(name, keys):
    chosen = AGGREGATES if name == "all" else {name: AGGREGATES[name]}
    pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(**chosen, emit="final")
    data = rows(900, keys, seed=keys)
    expected = run_serial(pipeline, data)
    assert len(expected.rows) > 0
    for workers, chunk_rows, buckets in ((0, "auto", 1), (1, 64, 1), (2, "auto", 3), (4, 7, 2), (1, 1, 1)):
        options = {"workers": workers, "chunk_rows": chunk_rows, "buckets": buckets}
        agree(pipeline, expected, run_core(pipeline, data, **options))


@pytest.mark.parametrize("keys", [1, 40])
def test_a_sum_that_overflows_in_a_block_leaves_the_rows_behind_it_out(keys):
    """The block goes row by row then, and no object has a value of a row that is not in the answer."""
    chosen = {name: AGGREGATES[name] for name in ("median", "distinct", "last", "most", "sum", "collect")}
    data = rows(300, keys, seed=1)
    large = [2**64 - 1 if row in (100, 170) else 1 for row in range(300)]
    data = data.set_column(3, "u", pa.array(large, pa.uint64()))
    for on_error in ("fail", "skip"):
        pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(**chosen, emit="final", on_error=on_error)
        expected = run_serial(pipeline, data)
        assert (expected.error is not None) == (on_error == "fail")
        for workers in (0, 2):
            for chunk_rows in (300, 64, 1):
                found = run_core(pipeline, data, workers=workers, chunk_rows=chunk_rows)
                agree(pipeline, expected, found)


def test_states_between_blocks_move():
    pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(**AGGREGATES, emit="final")
    check_state_moves(pipeline, rows(60, 9, seed=2))


@pytest.mark.parametrize("name", AGGREGATES)
def test_memory_of_blocks_comes_back(name):
    pipeline = od.Pipeline(SCHEMA).key_by("k").aggregate(a=AGGREGATES[name], emit="final")
    check_memory_comes_back(pipeline, rows(2000, 40, seed=2))


@pytest.mark.parametrize("quantile", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_a_quantile_looked_at_again_and_again(quantile):
    """At first one value is put in its place, later all are."""
    pipeline = od.Pipeline(SCHEMA).key_by("k").window(od.tumbling(500), time="x").aggregate(
        a=od.quantile("y", quantile), emit="updates"
    )  # fmt: skip
    rng = random.Random(3)
    n = 400
    data = rows(n, 3, seed=3).set_column(1, "x", pa.array(range(n), pa.int64()))
    data = data.set_column(2, "y", pa.array([rng.choice([rng.random(), 0.5, None]) for _ in range(n)]))
    for source in (data, data.slice(0, 7)):
        expected = run_serial(pipeline, source)
        for chunk_rows in (1, 64, 400):
            agree(pipeline, expected, run_core(pipeline, source, workers=1, chunk_rows=chunk_rows))

"""preceding: the last tuples of a key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kernel_check import ROWS, ascending, check, pipeline

import ordstream as od
from ordstream.reference.run_serial import run_serial

KX = pa.schema([("k", pa.int64()), ("x", pa.int64())])
FEW = settings(max_examples=40, deadline=None)
CONDITIONS = {
    "always": {},
    "columns": {"when": od.col("b"), "where": od.col("j") > 0},
    "constants": {"when": od.lit(True), "where": od.lit(None, pa.bool_())},
    "failing": {"when": 1 // od.col("j") >= 0, "where": od.col("i") + 1 > 0},
}


@pytest.mark.parametrize("on_error", ["fail", "skip"])
@pytest.mark.parametrize("conditions", CONDITIONS)
@pytest.mark.parametrize("n", [1, 3, 11])  # the last: rings that grow
@FEW
@given(rows=ROWS)
@pytest.mark.thin(8)
def test_preceding_equals_the_reference(n, conditions, on_error, rows):
    options = {"on_error": on_error, **CONDITIONS[conditions]}
    kept = {"past_i": "i", "past_b": "b", "past_x": "x", "past_f": "f", "past_u": "u"}
    check(pipeline().key_by("b").preceding(n, kept, carry=["s", "l"], **options), rows)
    check(
        pipeline().key_by("j", "s").preceding(n, {"past": "j"}, time="i", within=2, **options),
        ascending(rows, "i"),
    )


def buyers(*clicks):
    """(user, item, ts, bought) as a table."""
    types = [pa.int64(), pa.int64(), pa.int64(), pa.bool_()]
    columns = zip(*clicks, strict=True)
    return pa.table(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=["user", "item", "ts", "bought"]
    )


def views(data, purchased, within, n=5):
    built = (
        od.Pipeline(data.schema)
        .key_by("user")
        .preceding(
            n,
            {"viewed": "item"},
            carry={"purchased": "item"},
            time="ts",
            within=within,
            when=od.col("bought") & (od.col("item") == purchased),
        )
    )
    expected = run_serial(built, data)
    assert built.run(data, workers=1).table.equals(expected.table)
    return expected.rows


def test_micro_fixtures_of_query_3():
    data = buyers(*[(1, item, 99 + item, item in (2, 3)) for item in range(1, 8)])
    assert views(data, 2, 864_000) == [(2, 1)]
    clicks = [
        (3, 39, 137, False),
        (3, 40, 138, False),
        (3, 41, 200, False),
        (3, 2, 201, True),
        (3, 2, 202, True),
    ]
    seen = [(2, 39), (2, 40), (2, 41)]
    assert views(buyers(*clicks), 2, 864_000) == [*seen, *seen, (2, 2)]
    assert views(buyers(*clicks), 2, 10) == [(2, 41), (2, 41), (2, 2)]
    clicks = [(2, item, 100 + item, False) for item in range(10, 20)] + [(2, 2, 120, True)]
    clicks = [(2, i, 100 + i, False) for i in range(11, 16)] + [(2, i, 99 + i, False) for i in range(16, 21)]
    clicks += [(2, 2, 120, True)]
    clicks += [(2, i, 99 + i, False) for i in range(22, 29)] + [(2, 2, 127, True)]
    assert views(buyers(*clicks), 2, 864_000) == [(2, i) for i in (*range(16, 21), *range(24, 29))]


def test_an_entry_of_exactly_the_limit_counts_and_one_of_the_same_time():
    data = buyers((1, 1, 0, False), (1, 2, 10, True), (1, 9, 20, False), (1, 2, 20, True))
    assert views(data, 2, 10) == [(2, 1), (2, 2), (2, 9)]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((0, ["i"]), {}, "n must be an int of at least 1"),
        ((2000, ["i"]), {}, "n must be at most 1024"),
        ((5, []), {}, "at least one column"),
        ((5, ["s"]), {}, "'s' must be a number, bool"),
        ((5, ["i"]), {"carry": ["i"]}, "duplicate column name"),
        ((5, ["i"]), {"within": 3}, "time and within go together"),
        ((5, ["i"]), {"time": "i", "within": -1}, "within must be at least 0"),
        ((5, ["i"]), {"when": od.col("i")}, "when: a boolean expression is needed"),
    ],
)
def test_mistakes(arguments, options, message):
    with pytest.raises(od.OrdstreamError, match=message):
        pipeline().key_by("b").preceding(*arguments, **options)


def state_bytes(data, n, workers=0):
    built = od.Pipeline(data.schema).key_by("k").preceding(n, {"past": "x"}, when=od.lit(False))
    return next(
        o for o in built.run(data, workers=workers).report.operators if o.name == "preceding_1"
    ).state_bytes


def test_memory_follows_what_is_held():
    """Not n: 30,000 keys with a row or two each took 1,075 MB at n = 1,024."""
    keys = 5_000
    few = pa.table({"k": [i % keys for i in range(2 * keys)], "x": range(2 * keys)})
    least = state_bytes(few, 1)
    assert state_bytes(few, 1_024) == state_bytes(few, 512) < least + keys * 200
    many = pa.table({"k": [0] * 3_000, "x": range(3_000)})
    assert state_bytes(many, 1_000) - state_bytes(many, 500) == 500 * 24, (
        "a full ring has room for n entries and no more"
    )


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=300),
    st.sampled_from([(0, 1), (1, 7), (2, 64), (4, "auto")]),
)
def test_a_ring_that_grows_and_turns_over(n, rows, options):
    """At every size of the ring: places are taken again only when it has its largest."""
    workers, chunk_rows = options
    data = pa.table(
        {"k": [k for k, _ in rows], "x": [10 * i + x for i, (_, x) in enumerate(rows)]}, schema=KX
    )
    built = (
        od.Pipeline(KX)
        .key_by("k", buckets=3)
        .preceding(n, {"past": "x"}, carry=["x"], when=od.col("x") % 10 < 5)
    )
    expected = run_serial(built, data)
    assert built.run(
        data, workers=workers, chunk_rows=None if chunk_rows == "auto" else chunk_rows
    ).table.equals(expected.table)

"""join_interval and join_asof on a lane of two sides: their meaning on a few rows, DuckDB's and Polars'
answers on many, state that is bounded.
"""

from __future__ import annotations

import datetime
import math

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from state_runs import Segment, exact_rows

import ordstream as od
from ordstream.operators.time_joins import Sides
from ordstream.testing import run_serial

SIDES = Sides("side", ("t", "t"), {"a": "a", "t": "t"}, {"b": "b", "at": "t"})
SCHEMA = pa.schema(
    [("side", pa.bool_()), ("k", pa.string()), ("t", pa.int64()), ("a", pa.int64()), ("b", pa.string())]
)


def lane(*rows: tuple) -> pa.Table:
    """Tuples (side, key, time, value)."""
    columns = [
        [side == "right" for side, *_ in rows],
        [key for _, key, _, _ in rows],
        [time for _, _, time, _ in rows],
        [value if side == "left" else None for side, _, _, value in rows],
        [str(value) if side == "right" else None for side, _, _, value in rows],
    ]
    return pa.table(columns, schema=SCHEMA)


def keyed(schema: pa.Schema = SCHEMA) -> od.KeyedPipeline:
    return od.Pipeline(schema).key_by("k")


def checked(made: od.Pipeline, data: pa.Table, **options) -> list[dict]:
    """The rows that every run gives, with their serials."""
    expected = run_serial(made, data, punctuate=options.get("punctuate"))
    assert expected.error is None, expected.error
    for workers, size in ((0, 1), (1, 3), (2, 64)):
        found = made.run(data, workers=workers, chunk_rows=size, tags=True, **options).table
        rows = found.drop(["_serial", "_index"])
        assert exact_rows([rows], rows.schema) == exact_rows([expected.table], expected.schema)
        tags = zip(found["_serial"].to_pylist(), found["_index"].to_pylist(), strict=True)
        assert list(tags) == expected.tags
    return found.to_pylist()


def pairs(rows: list[dict]) -> list[tuple]:
    return [(row["a"], row["b"], row["_serial"]) for row in rows]


def test_a_pair_comes_at_the_later_of_its_rows_in_the_order_of_the_partners():
    data = lane(
        ("left", "x", 0, 1), ("right", "x", 5, 51), ("left", "x", 5, 2), ("right", "y", 6, 61),
        ("right", "x", 10, 101), ("left", "x", 10, 3), ("right", "x", 21, 211),
    )  # fmt: skip
    rows = checked(keyed()._join_interval(SIDES, (0, 10)), data)
    assert pairs(rows) == [(1, "51", 2), (2, "51", 3), (1, "101", 5), (2, "101", 5), (3, "101", 6)]
    assert list(rows[0]) == ["k", "a", "t", "b", "at", "_serial", "_index"]
    rows = checked(keyed()._join_interval(SIDES, (-5, -1)), data)  # the right one comes before
    assert pairs(rows) == [(3, "51", 6)]
    rows = checked(keyed()._join_interval(SIDES, (6, 11)), data)  # not at once
    assert pairs(rows) == [(1, "101", 5), (3, "211", 7)]


def test_left_rows_without_a_match_come_when_that_is_settled():
    data = lane(
        ("left", "x", 0, 1), ("left", "y", 1, 2), ("right", "x", 3, 3), ("left", "x", 4, 4),
        ("left", None, 5, 5), ("right", None, 5, 6), ("left", "x", 20, 7), ("left", "z", 21, 8),
    )  # fmt: skip
    clocked = keyed()._join_interval(SIDES, (0, 10), "left")
    assert "forgotten by the clock, at multiples of 10" in clocked.explain()
    rows = checked(clocked, data)
    # the mark 20 settles 2 and 4, before its tuple; null equals nothing; the end settles 7 and 8, by key
    assert pairs(rows) == [
        *((1, "3", 3), (5, None, 5), (2, None, 7), (4, None, 7), (7, None, 8), (8, None, 8)),
    ]
    made = od.Pipeline(SCHEMA).map(tuple, schema=SCHEMA).key_by("k")  # a function's column is no clock
    rows = checked(made._join_interval(SIDES, (0, 10), "left"), data)
    assert pairs(rows) == [  # y comes at the end: no tuple of its key settles it
        *((1, "3", 3), (5, None, 5), (4, None, 7), (7, None, 8), (2, None, 8), (8, None, 8)),
    ]
    rows = checked(keyed()._join_interval(SIDES, (-10, -1), "left"), data)  # settled at once
    assert [row["a"] for row in rows] == [1, 2, 4, 5, 7, 8]
    assert [row["b"] for row in rows] == [None, None, "3", None, None, None]


def test_right_rows_without_a_match_come_when_that_is_settled():
    data = lane(
        ("left", "x", 0, 1), ("right", "y", 1, 2), ("right", "x", 3, 3), ("right", "x", 4, 4),
        ("left", None, 5, 5), ("right", None, 5, 6), ("left", "x", 20, 7), ("right", "z", 21, 8),
    )  # fmt: skip
    clocked = keyed()._join_interval(SIDES, (-10, 0), "right")
    assert "join_interval right by k" in clocked.explain()
    rows = checked(clocked, data)  # a null key is settled at once; the mark 20 settles 2, 3 and 4
    assert pairs(rows) == [(None, "6", 6), (None, "2", 7), (None, "3", 7), (None, "4", 7), (None, "8", 8)]
    assert [(row["k"], row["t"], row["at"]) for row in rows][:2] == [(None, None, 5), ("y", None, 1)]
    made = od.Pipeline(SCHEMA).map(tuple, schema=SCHEMA).key_by("k")  # a function's column is no clock
    rows = checked(made._join_interval(SIDES, (-10, 0), "right"), data)
    assert pairs(rows) == [(None, "6", 6), (None, "3", 7), (None, "4", 7), (None, "2", 8), (None, "8", 8)]
    rows = checked(keyed()._join_interval(SIDES, (1, 3), "right"), data)  # settled at once
    assert pairs(rows) == [(None, "2", 2), (1, "3", 3), (None, "4", 4), (None, "6", 6), (None, "8", 8)]


def test_full_gives_what_nothing_matched_of_both_sides():
    data = lane(
        ("right", "x", 0, 1), ("left", "x", 0, 2), ("left", "y", 0, 3), ("right", "y", 1, 4),
        ("left", "x", 1, 5), ("right", "x", 2, 6), ("right", None, 3, 7), ("left", None, 3, 8),
        ("left", "x", 30, 9), ("right", "x", 30, 10), ("right", "a", 31, 11), ("left", "a", 31, 12),
    )  # fmt: skip
    rows = checked(keyed()._join_interval(SIDES, (-9, -2), "full"), data)  # left ones are settled at once
    assert pairs(rows) == [
        *((2, None, 2), (3, None, 3), (5, None, 5), (None, "7", 7), (8, None, 8)),
        *((None, "1", 9), (None, "4", 9), (None, "6", 9), (9, None, 9)),  # the mark 27, by (time, key)
        *((12, None, 12), (None, "11", 12), (None, "10", 12)),  # the end, by key
    ]
    rows = checked(keyed()._join_interval(SIDES, (-9, 9), "full"), data)
    assert pairs(rows) == [
        *((2, "1", 2), (3, "4", 4), (5, "1", 5), (2, "6", 6), (5, "6", 6), (None, "7", 7), (8, None, 8)),
        *((9, "10", 10), (12, "11", 12)),
    ]


def test_a_side_of_nothing_but_unmatched_rows():
    rights = lane(*(("right", key, t, t) for t, key in enumerate(("b", "a", None, "b"))))
    lefts = lane(*(("left", key, t, t) for t, key in enumerate(("b", "a", None, "b"))))
    for how in ("left", "right", "full"):
        for data, given in ((lefts, how != "right"), (rights, how != "left")):
            for within in ((0, 9), (-9, 0), (-9, 9), (5, 9), (-9, -5)):
                rows = checked(keyed()._join_interval(SIDES, within, how), data)
                assert len(rows) == 4 * given
                assert {row["a"] is None for row in rows} <= {data is rights}
                assert {row["b"] is None for row in rows} <= {data is lefts}


def test_as_of_gives_each_left_row_with_the_last_right_one():
    data = lane(
        ("left", "x", 0, 1), ("right", "x", 0, 10), ("left", "x", 0, 2), ("right", "x", 2, 20),
        ("right", "x", 2, 21), ("left", "x", 7, 3), ("left", "y", 8, 4), ("left", None, 8, 5),
    )  # fmt: skip
    rows = checked(keyed()._join_asof(SIDES), data)
    assert pairs(rows) == [(1, None, 1), (2, "10", 3), (3, "21", 6), (4, None, 7), (5, None, 8)]
    assert [row["at"] for row in rows] == [None, 0, 2, None, None]
    rows = checked(keyed()._join_asof(SIDES, 4), data)
    assert pairs(rows)[2] == (3, None, 6)
    rows = checked(keyed()._join_asof(SIDES, 5), data)
    assert pairs(rows)[2] == (3, "21", 6)


def test_zeros_of_either_sign_are_one_key_and_nan_is_another():
    schema = SCHEMA.set(1, pa.field("k", pa.float64()))
    data = pa.table(
        [
            [True, False, False, True, False, False, True],
            [-0.0, 0.0, -0.0, math.nan, -math.nan, 1.0, 0.0],
            [0, 1, 2, 3, 4, 5, 6],
            [None, 1, 2, None, 3, 4, None],
            ["r0", None, None, "r3", None, None, "r6"],
        ],
        schema=schema,
    )
    rows = checked(keyed(schema)._join_asof(SIDES), data)
    assert pairs(rows) == [(1, "r0", 2), (2, "r0", 3), (3, "r3", 5), (4, None, 6)]
    rows = checked(keyed(schema)._join_interval(SIDES, (-9, 9)), data)
    assert pairs(rows) == [(1, "r0", 2), (2, "r0", 3), (3, "r3", 5), (1, "r6", 7), (2, "r6", 7)]


def test_times_are_durations_too():
    schema = SCHEMA.set(2, pa.field("t", pa.timestamp("ms")))
    data = lane(("left", "x", 0, 1), ("right", "x", 3_600_000, 2), ("right", "x", 3_600_001, 3)).cast(schema)
    for within in (("0s", "1h"), (0, datetime.timedelta(hours=1)), ("-1h", "60m")):
        assert pairs(checked(keyed(schema)._join_interval(SIDES, within), data)) == [(1, "2", 2)]


def test_times_at_the_ends_of_their_type():
    most, least = 2**63 - 1, -(2**63)
    data = lane(
        ("left", "x", least, 1), ("right", "x", least, 2), ("left", "x", most, 3), ("right", "x", most, 4)
    )
    for within in ((0, most), (least, most), (-most, 0), (0, 0)):
        made = keyed()._join_interval(SIDES, within, "left")
        assert pairs(checked(made, data)) == [(1, "2", 2), (3, "4", 4)]
    assert pairs(checked(keyed()._join_asof(SIDES, most), data)) == [(1, None, 1), (3, None, 3)]
    assert pairs(checked(keyed()._join_asof(SIDES), data)) == [(1, None, 1), (3, "2", 3)]


def test_times_that_run_backwards_or_are_null_are_errors_at_their_rows():
    data = lane(
        ("left", "x", 5, 1), ("right", "y", 4, 2), ("right", "x", 4, 3), ("right", "x", None, 4),
        ("left", "x", 6, 5), ("right", None, 0, 6),
    )  # fmt: skip
    computed = od.Pipeline(SCHEMA).map(tuple, schema=SCHEMA).key_by("k")  # not the clock
    for made in (computed._join_interval(SIDES, (0, 9)), computed._join_asof(SIDES)):
        error = run_serial(made, data).error
        with pytest.raises(od.OperatorError, match=r"serial 3: .*runs backwards") as found:
            made.run(data)
        assert str(found.value) == str(error)
    skips = computed._join_interval(SIDES, (-9, 9), on_error="skip")
    assert skips.run(data).report.operators[-1].skipped == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1, 0),), "its least is larger"),
        ((5,), "within must be a pair"),
        ((("1h", "2h"),), "a column of integers has no unit"),
        (((0, 1), "outer"), "'inner', 'left', 'right' or 'full', got 'outer'; write how='full'$"),
        (((0, 1), "right_outer"), "write how='right'$"),
        (((0, 1), "anti"), "write how='left', and behind it filter"),
    ],
)
def test_mistakes_are_told(arguments, message):
    with pytest.raises(od.PlanError, match=message):
        keyed()._join_interval(SIDES, *arguments)


def test_mistakes_of_the_lane_and_of_bounds_are_told():
    with pytest.raises(od.PlanError, match="tolerance must be at least 0"):
        keyed()._join_asof(SIDES, -1)
    with pytest.raises(od.SchemaError, match="'k' tells the sides apart and must be bool"):
        keyed()._join_asof(Sides("k", ("t", "t"), {"a": "a"}, {}))
    with pytest.raises(od.SchemaError, match="must be of one type, they are int64 and string"):
        keyed()._join_asof(Sides("side", ("t", "b"), {"a": "a"}, {}))
    with pytest.raises(od.PlanError, match="max_state_bytes must be an int of at least 1"):
        keyed()._join_asof(SIDES, max_state_bytes=0)
    with pytest.raises(od.PlanError, match="no answer at the end"):
        keyed()._join_asof(SIDES).run(lane(("left", "x", 0, 1)), emit="final")


def many(n: int = 6000, keys: int = 40) -> tuple[pa.Table, pa.Table]:
    """Left and right rows of one sequence, `row` their place in it; times without ties."""
    rng = np.random.default_rng(5)
    side, t = rng.random(n) < 0.4, np.cumsum(rng.integers(1, 4, n))
    k = pa.array([f"key {i}" for i in rng.integers(0, keys, n)], mask=rng.random(n) < 0.05)
    rows = pa.table({"row": np.arange(n), "k": k, "t": t, "v": rng.normal(size=n), "s": t.astype(str)})
    return rows.filter(pa.array(~side)), rows.filter(pa.array(side))


def one_lane(left: pa.Table, right: pa.Table) -> tuple[pa.Table, Sides]:
    """Both in the order of their rows, with columns of their own."""
    columns = [name for name in left.schema.names if name != "k"]
    both = []
    for is_right, table in ((False, left), (True, right)):
        made = table.select(["k"]).append_column("side", pa.array([is_right] * len(table)))
        for name in columns:
            for prefix in "lr":
                mine = (prefix == "r") == is_right
                column = table[name] if mine else pa.nulls(len(table), table[name].type)
                made = made.append_column(f"{prefix}_{name}", column)
        both.append(made.append_column("t", table["t"]).append_column("row", table["row"]))
    sides = Sides("side", ("t", "t"), *({f"{p}_{name}": f"{p}_{name}" for name in columns} for p in "lr"))
    return pa.concat_tables(both).sort_by("row").drop_columns("row"), sides


def theirs(query: str, left: pa.Table, right: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [name for name in left.schema.names if name != "k"]
    shown = ", ".join(
        ["coalesce(l.k, r.k) as k", *(f"{p}.{name} as {p}_{name}" for p in "lr" for name in columns)]
    )
    connection = duckdb.connect()
    connection.register("lefts", left)
    connection.register("rights", right)
    return connection.sql(query.format(shown=shown)).to_arrow_table().cast(schema)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@pytest.mark.parametrize("within", [(0, 60), (-30, 45), (-80, -10), (20, 90)])
def test_the_answer_of_duckdb(how, within):
    left, right = many()
    data, sides = one_lane(left, right)
    made = od.Pipeline(data.schema).key_by("k")._join_interval(sides, within, how)
    found = made.run(data, workers=2).table
    query = (
        f"select {{shown}} from lefts l {how} join rights r on l.k = r.k and r.t - l.t between {within[0]} "
        f"and {within[1]} order by greatest(l.row, r.row), least(l.row, r.row)"
    )
    wanted = theirs(query, left, right, found.schema)
    assert len(found) > 1000
    for mine, other in (("l_row", "r_row"), ("r_row", "l_row")):
        # those without a match come when it is settled
        alone = found.filter(pa.compute.is_null(found[other]))
        assert (len(alone) > 100) == (how in ("full", "left" if mine == "l_row" else "right"))
        order = [(mine, "ascending")]
        assert alone.sort_by(order).equals(wanted.filter(pa.compute.is_null(wanted[other])).sort_by(order))
        found = found.filter(pa.compute.is_valid(found[other]))
        wanted = wanted.filter(pa.compute.is_valid(wanted[other]))
    assert found.equals(wanted)


@pytest.mark.parametrize("tolerance", [None, 40])
def test_the_answers_of_polars_and_duckdb_as_of(tolerance):
    left, right = many()
    data, sides = one_lane(left, right)
    made = od.Pipeline(data.schema).key_by("k")._join_asof(sides, tolerance)
    found = made.run(data, workers=2).table
    named = [pl.from_arrow(t).rename({n: f"{p}_{n}" for n in t.schema.names if n != "k"})
             for p, t in (("l", left), ("r", right))]  # fmt: skip
    frame = named[0].join_asof(
        named[1], left_on="l_t", right_on="r_t", by="k", tolerance=tolerance, coalesce=False
    )
    wanted = frame.select(found.schema.names).to_arrow().cast(found.schema)
    nulls = pa.compute.is_null(wanted["k"])  # Polars lets null equal null here
    assert found.filter(pa.compute.invert(nulls)).equals(wanted.filter(pa.compute.invert(nulls)))
    assert found.filter(nulls)["r_row"].null_count == pa.compute.sum(nulls).as_py()
    if tolerance is None:
        query = (
            "select {shown} from lefts l asof left join rights r on l.k = r.k and l.t >= r.t order by l.row"
        )
        assert found.equals(theirs(query, left, right, found.schema))


@pytest.mark.parametrize(("within", "how"), [((0, 100), "left"), ((-100, 0), "right"), ((-50, 50), "full")])
def test_state_is_that_of_rows_within_reach(within, how):
    made = keyed()._join_interval(SIDES, within, how, name="join")
    rng = np.random.default_rng(0)
    with Segment(made, workers=0) as segment:
        empty = segment.bytes("join")
        held = []
        for turn in range(8):
            n = 4000
            t = np.sort(rng.integers(turn * 1000, turn * 1000 + 1000, n))
            keys = [f"{turn} {i}" for i in rng.integers(0, 500, n)]  # keys come once and never again
            side = rng.random(n) < 0.5
            segment.push(pa.table([side, keys, t, np.arange(n), ["r" * 20] * n], schema=SCHEMA))
            held.append(segment.bytes("join"))
        assert max(held) < 2 * held[0]
        assert held[-1] < empty + 400_000
        state = segment.state_of("join")
        assert 0 < len(state) < 600
        assert segment.remove("join", state) == len(state)
        assert segment.bytes("join") <= empty


def test_more_state_than_may_be_is_an_error_that_names_the_largest_key():
    n = 5000
    keys = ["busy" if i % 2 else f"k{i}" for i in range(n)]
    data = pa.table([[False] * n, keys, [0] * n, range(n), [None] * n], schema=SCHEMA)
    made = keyed()._join_interval(SIDES, (0, 9), name="clicks", max_state_bytes=300_000)
    told = (
        r"'clicks' failed at serial \d+: its state has \d{6} bytes, max_state_bytes is 300000; largest key: "
    )
    with pytest.raises(od.OperatorError, match=told + r"'busy', with \d{5} bytes in \d{3} rows"):
        made.run(data, workers=0)
    assert "at most 300000 bytes of state" in made.explain()
    few = keyed()._join_interval(SIDES, (0, 9), max_state_bytes=3_000_000)
    assert few.run(data, workers=2).table.num_rows == 0


def test_a_failing_row_has_the_columns_of_its_side_only():
    """It showed how the two sides go in one lane: 'side': True, and the other side's columns as nulls."""
    source = pa.table({"k": [1, 1, 1], "t": [5, 9, 3], "v": [1, 2, 3], "blocked": [True, False, True]})
    none, all_ = od.Pipeline(source).branch(od.col("v") > 9)
    for left, right, name in ((all_, none, "v"), (none, all_, "v_right")):
        made = left.select("k", "t", "v").join_asof(right, on="k", time="t")
        expected = run_serial(made, source).error
        for options in ({}, {"processes": 2}):
            with pytest.raises(od.OperatorError) as found:
                made.run(source, **options)
            assert found.value.row == expected.row
        assert {"k": 1, "t": 3, name: 3}.items() <= expected.row.items()
        assert "side" not in expected.row
        assert None not in expected.row.values()


@pytest.mark.parametrize("how", ["left", "right", "full"])
@pytest.mark.parametrize("within", [(0, 0), (0, 6), (-1, 1)], ids=str)
def test_rows_without_a_match_at_the_largest_time(how, within):
    """The mark there is due in a bucket that kept nothing at the one before."""
    most = 2**63 - 1
    for times in ([0, most - 2, most - 1, most, most], [0, most, most], [0, 1, most]):
        for keys in ([1, 2, 3, 4, 5], [1, 1, 2, 2, 3]):
            for right in (False, True):
                columns = {"t": times, "k": keys[: len(times)], "r": [right] * len(times)}
                data = pa.table(columns)
                pipeline = od.Pipeline(data.schema)
                left = pipeline.filter(~od.col("r"))
                other = pipeline.filter(od.col("r"))
                joined = left.join_interval(other, on="k", within=within, how=how, time="t")
                expected = run_serial(joined, data)
                for workers, buckets in ((0, 1), (2, 3)):
                    found = joined.run(data, tags=True, workers=workers, buckets=buckets).table
                    tags = zip(*(found[name].to_pylist() for name in ("_serial", "_index")), strict=True)
                    assert [*tags] == [tuple(tag) for tag in expected.tags]
                    assert found.drop(["_serial", "_index"]).to_pylist() == expected.table.to_pylist()

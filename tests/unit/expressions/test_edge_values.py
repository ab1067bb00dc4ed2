"""Values at the edge of their types: what is no time of day, float32 as text, matches that hang on the text
around them.
"""

from __future__ import annotations

import contextlib
import decimal
import math
import random
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
TEXTS = ["aaa", "", "ä", None, "foo foobar", " a  b ", "a\nb", "x" * 40]
PATTERNS = ["^a", r"\bfoo", r"\Bo", r"(?:^|\n)a?", "[^a]", r"(o+)(b|$)"]


def both(pipeline, data):
    """What the reference gives, and the core with small and large chunks."""
    expected = run_serial(pipeline, data)
    assert expected.error is None
    for options in ({"workers": 0, "chunk_rows": 1}, {"workers": 2, "chunk_rows": 3}, {"workers": 0}):
        assert pipeline.run(data, **options).table.equals(expected.table)
    return expected.table


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("n", [None, 1, 2])
def test_a_match_sees_the_text_in_front_of_it(pattern, n):
    """`^a` matches "aaa" once. Arrow cut off what it had looked at, and then found it three times; with `n=`
    it failed at `\\bfoo` or `\\Bo`."""
    data = pa.table({"x": TEXTS})
    pipeline = od.Pipeline(data.schema).select(
        count=X.str.count_matches(pattern), made=X.str.replace(pattern, r"<\0>", n=n, regex=True)
    )
    found = both(pipeline, data).to_pydict()
    texts = [(text, re.compile(pattern)) for text in TEXTS]
    assert found["count"] == [None if text is None else len(one.findall(text)) for text, one in texts]
    assert found["made"] == [
        None if text is None else one.sub(lambda match: f"<{match[0]}>", text, count=n or 0)
        for text, one in texts
    ]


def test_groups_of_the_first_matches():
    data = pa.table({"x": ["k=v; l=w; m=x", "k=v", None, ""]})
    pipeline = od.Pipeline(data.schema).select(y=X.str.replace(r"(\w)=(\w)", r"\2:\1", n=2, regex=True))
    assert both(pipeline, data)["y"].to_pylist() == ["v:k; w:l; m=x", "v:k", None, ""]


def test_marks_that_the_text_or_the_replacement_has():
    data = pa.table({"x": ["a\ufdd0b a", "\ufdd1a"]})
    pipeline = od.Pipeline(data.schema).select(y=X.str.replace("a", "\ufdd2\ufdd3", n=1, regex=True))
    assert both(pipeline, data)["y"].to_pylist() == ["\ufdd2\ufdd3\ufdd0b a", "\ufdd1\ufdd2\ufdd3"]


TIMES = [
    (pa.time32("s"), 86_400),
    (pa.time32("ms"), -1),
    (pa.time64("us"), 86_400 * 10**6),
    (pa.time64("ns"), -(2**63)),
    (pa.date64(), 1),
    (pa.date64(), 2**63 - 1),
]


@pytest.mark.parametrize(("type_", "count"), TIMES, ids=[f"{t} {c}" for t, c in TIMES])
def test_a_count_that_is_no_time_is_an_error_at_its_row(type_, count):
    """It became a value that Arrow calls invalid and that shows another time."""
    data = pa.table({"x": pa.array([0, None, count], pa.int64())})
    out = pa.schema([("y", type_)])
    for pipeline in (
        od.Pipeline(data.schema).select(y=X.cast(type_)),
        od.Pipeline(data.schema).map(lambda row: (row.x,), schema=out),
        od.Pipeline(data.schema).map_batches(lambda b: b.rename_columns(["y"]), schema=out, format="arrow"),
    ):
        assert "serial 3" in str(run_serial(pipeline, data).error)
        with pytest.raises(od.OperatorError, match="serial 3"):
            pipeline.run(data, workers=0)
        both(pipeline, data.slice(0, 2)).validate(full=True)
    times = pa.schema([("x", type_)])
    for make in (
        lambda: od.lit(count, type_),
        lambda: X.fill_null(count),
        lambda: X.minimum(count),
        lambda: od.when(X.is_null()).then(count).otherwise(X),
    ):
        with pytest.raises(od.SchemaError, match=f"{count} is no "):
            od.Pipeline(times).select(y=make())
    od.Pipeline(times).filter(count > X)  # what it is compared with need not be one


def test_a_date64_is_cut_to_days():
    data = pa.table({"x": pa.array([0, None, 20 * 86_400_000], pa.date64())})
    pipeline = od.Pipeline(data.schema).select(y=X.dt.truncate("2d"))
    assert both(pipeline, data)["y"].cast(pa.int64()).to_pylist() == [0, None, 20 * 86_400_000]
    for every in ("5h", "36h", "7us"):
        with pytest.raises(od.SchemaError, match=f"'{every}' is not a whole number of days"):
            od.Pipeline(data.schema).select(y=X.dt.truncate(every))


def test_a_float32_is_written_in_its_own_digits():
    """0.1 was 0.10000000149011612: its digits as a float64."""
    single = pa.array([0.1, -3.4e38, None, np.float32(1) / 3, 1e-45, np.nan, np.inf, -0.0], pa.float32())
    rows = [{"f": value} for value in single.to_pylist()]
    data = pa.table({
        "x": single,
        "s": pa.array(rows, pa.struct([("f", pa.float32())])),
        "l": pa.array([[value] for value in single.to_pylist()], pa.list_(pa.float32())),
    })  # fmt: skip
    pipeline = od.Pipeline(data.schema).select(
        x=X.cast(str), s=od.col("s").struct.field("f").cast(str), l=od.col("l").list.get(0).cast(str)
    )
    wanted = pc.cast(single, pa.string()).to_pylist()
    found = both(pipeline, data)
    assert [found[name].to_pylist() for name in "xsl"] == [wanted] * 3
    computed = od.Pipeline(data.schema).select(y=(X * 1).cast(str))  # a float64 by now
    assert both(computed, data)["y"][0].as_py() == "0.10000000149011612"


def test_text_is_not_read_as_a_half_float():
    """It gave nulls."""
    data = pa.schema([("x", pa.string())])
    with pytest.raises(od.SchemaError, match="no cast from string to halffloat"):
        od.Pipeline(data).select(y=X.cast(pa.float16()))


UNSIGNED = [0, 2**63 - 1, 2**63, 2**64 - 1, None, 2**63 + 5]
U = od.col("u")


@pytest.mark.parametrize(
    "build",
    [
        lambda base: base.select(x=U.cast(str)),
        lambda base: base.select(x=U.cast(float)),
        lambda base: base.filter(U > 1),
        lambda base: base.filter(decimal.Decimal(2**63) == U),
        lambda base: base.key_by("k").diff("u"),
        lambda base: base.key_by("k").scan(x=od.sum("u")),
        lambda base: base.key_by("k").scan(x=od.mean("u")),
        lambda base: base.key_by("k").window(od.rows(3)).aggregate(x=od.sum("u")),
    ],
)
def test_what_to_do_beyond_int64_is_said_and_works(build):
    """A cast in the pipeline, as the error of a sum advised, fails as the sum does."""
    column = pa.array(UNSIGNED, pa.uint64())
    data = pa.table({"u": column, "k": [1] * len(UNSIGNED)})
    pipeline = build(od.Pipeline(data.schema))
    said = run_serial(pipeline, data).error
    for workers in (0, 2):
        with pytest.raises(od.OperatorError, match=r"pa\.decimal128\(20, 0\), or to pa\.float64") as raised:
            pipeline.run(data, workers=workers)
        assert str(raised.value) == str(said)
    wider = pa.decimal128(20, 0), pa.float64()
    as_decimal, as_float = (data.set_column(0, "u", column.cast(one, safe=False)) for one in wider)
    both(build(od.Pipeline(as_float.schema)), as_float)
    with contextlib.suppress(od.SchemaError):  # which some raise, as that has too many digits for them
        both(build(od.Pipeline(as_decimal.schema)), as_decimal)


def test_what_a_uint64_can_do_it_does_in_all_of_its_range():
    data = pa.table({"u": pa.array(UNSIGNED, pa.uint64()), "k": [1, 1, 2, 2, 2, 1]})
    base = od.Pipeline(data.schema)
    found = both(base.key_by("k").scan(least=od.min("u"), most=od.max("u"), last=od.last("u")), data)
    assert found["most"].to_pylist() == [0, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 1, 2**63 + 5]
    assert both(base.key_by("u").count("n"), data)["n"].to_pylist() == [1] * 6
    united = both(base.filter(U.is_not_null()).key_by("k").top_k(1, by="u"), data)
    assert sorted(united["u"].to_pylist()) == [2**63 + 5, 2**64 - 1]
    made = base.filter(U.is_not_null()).map(lambda row: {"t": str(row.u)}, schema={"t": str})
    assert both(made, data)["t"].to_pylist() == [str(one) for one in UNSIGNED if one is not None]


TIMES = pa.array([86_399_999_999_999, 86_399_999_999_000, None]).cast(pa.time64("ns"))


def test_a_time_of_day_of_arrow_keeps_its_nanoseconds():
    """They were cut off: another row was equal."""
    table = pa.table(
        {"t": TIMES, "l": pa.array([[one] for one in TIMES[:2]] + [None], pa.list_(TIMES.type))}
    )
    exact, t = TIMES[0], od.col("t")
    chosen = {
        "equal": t == exact,
        "member": t.is_in([exact]),
        "less": t < exact,
        "inside": od.col("l").list.contains(exact),
        "got": od.col("l").list.get(0),
    }
    pipeline = od.Pipeline(table.schema).select(**chosen, filled=t.fill_null(exact), same=od.lit(exact))
    found = pipeline.run(table).table
    assert found.equals(run_serial(pipeline, table).table)
    assert [found[name].to_pylist() for name in ("equal", "member", "inside")] == [[True, False, None]] * 3
    assert found["less"].to_pylist() == [False, True, None]
    assert found["filled"].combine_chunks().equals(pa.concat_arrays([TIMES[:2], TIMES[:1]]))
    assert found["same"].combine_chunks().equals(TIMES.take(pa.array([0, 0, 0])))
    with pytest.raises(ValueError, match=r"23:59:59\.999999999 has nanoseconds"):
        od.lit(exact, pa.time64("us"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_key_with_nanoseconds_is_no_time_of_python(workers):
    table = pa.table({"t": TIMES[:2]})
    pipeline = (
        od.Pipeline(table.schema)
        .key_by("t")
        .process(
            lambda row, state, emit: None, schema=table.schema, on_flush=lambda key, state, emit: emit(key)
        )
    )
    with pytest.raises(od.OperatorError, match=r"23:59:59\.999999999 has nanoseconds"):
        pipeline.run(table.cast(table.schema), workers=workers)


@pytest.mark.parametrize(
    ("digits", "scale"),
    [(18, 2), (18, 6), (16, 0), (15, 15), (15, 30), (10, 2), (38, 0), (38, 10), (38, 38), (30, -4), (9, -3)],
)
def test_a_decimal_as_a_float_is_the_nearest(digits, scale):
    """Units were rounded, then what was divided: a unit in the last place off, in a quarter of the values of
    18 digits."""
    rng = random.Random(digits * 100 + scale)
    units = [rng.randrange(10 ** rng.randrange(1, digits + 1)) * rng.choice([1, -1]) for _ in range(2_000)]
    units += [0, 10**digits - 1, 1 - 10**digits, 2**53 + 1 if digits > 15 else 1]
    type_ = pa.decimal128(digits, scale)
    exact = [decimal.Decimal((int(one < 0), tuple(map(int, str(abs(one)))), -scale)) for one in units]
    table = pa.table({"x": pa.array(exact, type_)})
    pipeline = od.Pipeline(table.schema).select(f=od.col("x").cast(float))
    found = pipeline.run(table).table
    assert found["f"].to_pylist() == [float(one) for one in exact]
    assert found.equals(run_serial(pipeline, table).table)


def test_uint64_of_a_float_beyond_int64_is_no_null():
    table = pa.table({"x": [1.0, -1.0, math.nan, 2.0**64, None, 1.8e19]})
    pipeline = od.Pipeline(table.schema).select(u=od.col("x").cast(pa.uint64(), strict=False))
    assert pipeline.run(table[:5]).table["u"].to_pylist() == [1, None, None, None, None]
    with pytest.raises(od.OperatorError, match="serial 6"):
        pipeline.run(table)


def test_weeks_at_the_ends_of_time():
    ends = pa.array([2**63 - 1, -(2**63) + 7 * 86_400 * 10**9, 0, -1], pa.timestamp("ns"))
    pipeline = od.Pipeline(pa.table({"t": ends}).schema).select(w=od.col("t").dt.truncate("1w"))
    week = 7 * 86_400 * 10**9
    monday = 4 * 86_400 * 10**9
    wanted = [(one - monday) // week * week + monday for one in ends.cast(pa.int64()).to_pylist()]
    assert pipeline.run(pa.table({"t": ends})).table["w"].cast(pa.int64()).to_pylist() == wanted

"""Values at the edge of their types: what is no time of day, float32 as text, matches that hang on the text
around them.
"""

from __future__ import annotations

import contextlib
import decimal
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

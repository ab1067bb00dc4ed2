"""Lists: `col("s").str.split(" ")`, `col("tags").list.get(0)`."""

from __future__ import annotations

import datetime
import decimal
import math
import re

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.testing import run_serial

C = od.col
D = decimal.Decimal
DAY = datetime.date(2024, 2, 29)
T = datetime.datetime(2024, 2, 29, 12)

TEXTS = [
    "a b c", "", None, " é  ü ", "x", "日 本\n語", "aab\ufdd0b", "\t a", "no-space", "a" * 3000 + " b",
]  # fmt: skip
#: Name -> type and two values of an element.
ELEMENTS = {
    "int8": (pa.int8(), -128, 5),
    "int64": (pa.int64(), -(2**63), 7),
    "uint32": (pa.uint32(), 2**32 - 1, 0),
    "float32": (pa.float32(), 0.5, -0.0),
    "float64": (pa.float64(), 1e300, math.inf),
    "bool": (pa.bool_(), True, False),
    "date32": (pa.date32(), DAY, datetime.date(1969, 1, 1)),
    "date64": (pa.date64(), DAY, datetime.date(1969, 1, 1)),
    "time": (pa.time64("us"), datetime.time(1, 2, 3), datetime.time(0)),
    "timestamp": (pa.timestamp("ms"), T, datetime.datetime(1969, 1, 1)),
    "duration": (pa.duration("us"), datetime.timedelta(1), datetime.timedelta(-1)),
    "string": (pa.string(), "né", ""),
    "large_string": (pa.large_string(), "né", ""),
    "binary": (pa.binary(), b"\0x", b""),
    "decimal": (pa.decimal128(9, 2), D("-1.25"), D("0.00")),
    "wide": (pa.decimal128(30, 2), D("123456789012345678901234.50"), D("-0.01")),
    "list": (pa.list_(pa.int64()), [1, None, 3], []),
    "list of bool": (pa.list_(pa.bool_()), [True, None], []),
    "list of text": (pa.list_(pa.string()), ["x", None, ""], []),
    "deep": (pa.list_(pa.list_(pa.int16())), [[1], None, []], []),
    "struct": (pa.struct({"x": pa.int32(), "y": pa.string()}), {"x": 1, "y": None}, {"x": None, "y": "z"}),
    "bytes": (pa.binary(3), b"abc", b"\0\0\0"),
    "half": (pa.float16(), 0.5, 1.0),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 1)], []),
    "null": (pa.null(), None, None),
}
COMPARED = list(ELEMENTS)[: list(ELEMENTS).index("list")]


def lists_of(a, b):
    return [[a, b, a], None, [], [None], [b], [None, a], [a] * 9 + [None], [b, b]]


def table_of(name, times=12, large=False):
    type_, a, b = ELEMENTS[name]
    values = lists_of(a, b) * times
    made = (pa.large_list if large else pa.list_)(type_)
    at = [0, -1, 1, None, -2, 8, 2**62, -(2**63)] * times
    array = pa.array(values, made)
    return pa.table({"k": np.arange(len(values)) % 3, "v": array, "at": pa.array(at, pa.int64())})


def check(made, data, **options):
    """All ways to run it give the rows and the types of the reference."""
    expected = run_serial(made, data).table
    for rows in (1, 7, "auto"):
        for workers in (0, 1, 2):
            found = made.run(data, workers=workers, chunk_rows=rows, **options).table
            assert found.schema == expected.schema
            assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is NaN
    return expected


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.thin(20)
def test_elements_of_every_type(name, large):
    """Also of rows that a filter left, of slices, and behind a state; as Python counts them."""
    data = table_of(name, large=large)
    pipeline = od.Pipeline(data.schema)
    v = C("v").list
    made = pipeline.select("k", a=v.get(0), z=v.last(), second=v.get(1), some=v.get(C("at")), n=v.length())
    found = check(made, data).to_pylist()
    for row, items, at in zip(found, data["v"].to_pylist(), data["at"].to_pylist(), strict=True):
        items = [] if items is None else items
        assert row["a"] == (items[0] if items else None)
        assert row["z"] == (items[-1] if items else None)
        assert row["second"] == (items[1] if len(items) > 1 else None)
        known = at is not None and -len(items) <= at < len(items)
        assert row["some"] == (items[at] if known else None)
    assert [row["n"] for row in found[:4]] == [3, None, 0, 1]
    for other in (
        pipeline.filter(C("k") == 1).with_columns(x=v.get(0)),
        pipeline.key_by("k").lag("v").select(x=C("v_lag").list.get(-1)),
        pipeline.filter(v.first().is_null() | v.get(1).is_not_null()),
    ):
        for part in (data, data.slice(1, 29)):
            check(other, part)


@pytest.mark.parametrize("name", COMPARED)
def test_what_lists_contain(name):
    data = table_of(name)
    _, a, b = ELEMENTS[name]
    here = od.Pipeline(data.schema)
    made = here.select(a=C("v").list.contains(a), b=C("v").list.contains(b))
    made = made.with_columns(both=C("a") & C("b"))
    found = check(made, data).to_pylist()
    for row, items in zip(found, data["v"].to_pylist(), strict=True):
        assert row["a"] == (None if items is None else a in items)
        assert row["b"] == (None if items is None else b in items)
    rows = here.with_columns(first=C("v").list.first()).filter(C("v").list.contains(C("first")))
    assert check(rows, data).num_rows == 48


def test_a_nan_is_in_no_list_and_constants_take_the_elements_type():
    data = pa.table({"f": [[math.nan, 1.0], [2.0]], "n": [[1, 2], [3]]})
    found = check(
        od.Pipeline(data.schema).select(
            nan=C("f").list.contains(math.nan), one=C("f").list.contains(1),
            mine=C("f").list.contains(C("n").list.get(0)),
            null=C("n").list.contains(od.lit(None, pa.int64())),
        ), data,
    )  # fmt: skip
    assert found.to_pylist() == [
        {"nan": False, "one": True, "mine": True, "null": None},
        {"nan": False, "one": False, "mine": False, "null": None},
    ]


# ---------------------------------------------------------------------------------------------- split

DATA = pa.table({"k": [i % 3 for i in range(len(TEXTS) * 8)], "s": TEXTS * 8})


@pytest.mark.parametrize("n", [None, 1, 2, 50])
@pytest.mark.parametrize("by", [" ", "a", "ab", "\n", "é", "-"])
def test_split_is_that_of_arrow_and_polars(by, n):
    found = check(od.Pipeline(DATA.schema).select(x=C("s").str.split(by, n=n)), DATA)
    assert found.schema.field("x").type == pa.list_(pa.string())
    assert found["x"].to_pylist() == pc.split_pattern(DATA["s"], by, max_splits=n).to_pylist()
    column = pl.col("s").str.split(by) if n is None else None
    if column is not None:
        assert found["x"].to_pylist() == pl.from_arrow(DATA).select(column)["s"].to_list()


@pytest.mark.parametrize("n", [None, 1, 3])
def test_split_at_white_space(n):
    found = check(od.Pipeline(DATA.schema).select(x=C("s").str.split(n=n)), DATA)
    assert found["x"].to_pylist() == pc.utf8_split_whitespace(DATA["s"], max_splits=n).to_pylist()


@pytest.mark.parametrize("n", [None, 1, 2, 5])
def test_white_space_at_the_end_is_one_place(n):
    """Arrow's own function makes several of it."""
    random = np.random.default_rng(1)
    words = ["a", "bc", " ", "\t", "\u3000", "\x85", "\x1c", "\n ", ""]
    texts = ["".join(random.choice(words, 6)) for _ in range(500)] + ["a  ", "  ", "", "b\xa0\xa0", "a b  "]
    data = pa.table({"s": texts})
    found = check(od.Pipeline(data.schema).select(x=C("s").str.split(n=n)), data)
    assert found["x"].to_pylist() == [re.split(r"\s+", text, maxsplit=n or 0) for text in texts]


@pytest.mark.parametrize("n", [None, 1, 2, 50])
@pytest.mark.parametrize("by", [" +", r"\s", "[ab]+", "(a)(b)", "^a", "b$", r"(?i)A|É"])
def test_split_by_a_regular_expression(by, n):
    import re

    found = check(od.Pipeline(DATA.schema).select(x=C("s").str.split(by, n=n, regex=True)), DATA)
    python = re.compile(by.replace("(a)(b)", "ab"))
    assert found["x"].to_pylist() == [
        None if text is None else python.split(text, maxsplit=n or 0) for text in DATA["s"].to_pylist()
    ]
    if by not in ("^a", "b$"):  # Arrow looks at what is left of a text as at a text
        assert found["x"].to_pylist() == pc.split_pattern_regex(DATA["s"], by, max_splits=n).to_pylist()


@pytest.mark.parametrize(
    ("by", "n", "expected"),
    [
        ("", None, ["", "a", "b", ""]),
        ("x*", None, ["", "a", "b", ""]),
        ("", 1, ["", "ab"]),
        ("", 2, ["", "a", "b"]),
        (r"\b", None, ["", "ab", ""]),
        ("$", 5, ["ab", ""]),
    ],
)
def test_an_expression_may_match_nothing(by, n, expected):
    """Where Arrow's function does not end."""
    data = pa.table({"s": ["ab", None, "ab"]})
    found = check(od.Pipeline(data.schema).select(x=C("s").str.split(by, n=n, regex=True)), data)
    assert found["x"].to_pylist() == [expected, None, expected]


def test_word_count():
    lines = pa.table({"line": ["To be or", "not to be", "", None, "that IS the  question", "to"]})
    words = od.Pipeline(lines.schema).select(word=C("line").str.lower().str.split(" "))
    made = words.flat_map(od.explode("word")).key_by("word").count()
    for buckets in (1, 4, 64):
        found = check(made, lines, buckets=buckets).to_pylist()
    last = {row["word"]: row["count"] for row in found}
    assert last == {"to": 3, "be": 2, "or": 1, "not": 1, "": 2, "that": 1, "is": 1, "the": 1, "question": 1}
    frame = pl.from_arrow(lines).select(word=pl.col("line").str.to_lowercase().str.split(" "))
    counted = frame.explode("word").drop_nulls().group_by("word").len().rows()
    assert last == dict(counted)


def test_what_split_gives_is_looked_into():
    words = C("s").str.split(" ")
    made = od.Pipeline(DATA.schema).with_columns(
        first=words.list.first(), third=words.list.get(2), n=words.length(), n2=words.list.length(),
        a=words.list.contains("a"), back=words.list.join(" "), no=words.is_null(),
        upper=words.list.last().str.upper(), word=od.lit("x y").str.split(" "),
        y=od.lit("x y").str.split(" ").list.get(C("k")),
        none=od.lit(None, pa.string()).str.split(" ").list.get(0),
    )  # fmt: skip
    found = check(made.filter(words.list.length() > 0), DATA)
    assert found["back"].to_pylist() == found["s"].to_pylist()
    counts = [len(text.split(" ")) for text in found["s"].to_pylist()]
    assert found["n"].to_pylist() == found["n2"].to_pylist() == counts
    assert set(found["y"].to_pylist()) == {"x", "y", None}
    assert found["word"].to_pylist() == [["x", "y"]] * found.num_rows
    frame = pl.from_arrow(DATA.filter(pc.is_valid(DATA["s"])))
    rival = pl.col("s").str.split(" ").list
    expected = frame.select(first=rival.first(), third=rival.get(2, null_on_oob=True), a=rival.contains("a"))
    assert found.select(["first", "third", "a"]).to_pylist() == expected.to_dicts()


def test_conditions_keys_and_states_take_them():
    w, words = C("s").str.split(" "), C("s").str.split(" ").list
    pipeline = od.Pipeline(DATA.schema)
    for made in (
        pipeline.with_columns(first=words.first()).key_by("first").count(),
        pipeline.key_by("k").aggregate(n=od.count(where=words.contains("a")), emit="updates"),
        pipeline.key_by("k").aggregate(n=od.count(where=words.length() > 1), emit="final"),
        pipeline.with_columns(w=w).key_by("k").lag("w").filter(C("w_lag").list.get(1) == "b"),
        pipeline.with_columns(w=w).key_by("k").aggregate(last=od.last("w"), emit="final"),
    ):
        for buckets in (1, 3, 16):
            check(made, DATA, buckets=buckets)


# ---------------------------------------------------------------------------------------------- join


def test_join_is_that_of_polars_and_arrow():
    type_, x = pa.list_(pa.string()), "x" * 500
    lists = [["a", "b"], [], None, [None], ["é", None, ""], ["", ""], [None, None], [x, x]]
    data = pa.table({"v": pa.array(lists * 5, type_), "by": ["-", "", None, "--", "+", "é", "z", ", "] * 5})
    v = C("v").list
    made = od.Pipeline(data.schema).select(
        a=v.join("-"), b=v.join(C("by")), c=v.join(", ", ignore_nulls=False)
    )
    found = check(made, data)
    rival = pl.col("v").list
    frame = pl.from_arrow(data).select(
        a=rival.join("-"), b=rival.join(pl.col("by")), c=rival.join(", ", ignore_nulls=False)
    )
    assert found.to_pylist() == frame.to_dicts()
    assert found["c"].to_pylist() == pc.binary_join(data["v"], ", ").to_pylist()


# ---------------------------------------------------------------------------------------------- nested


def test_lists_in_lists_and_structs_in_lists():
    inner = pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string()), "n": pa.list_(pa.float32())})
    rows = [
        [{"x": 1, "tags": ["a", None], "n": [0.5, None]}, None], None, [], [None],
        [{"x": None, "tags": None, "n": None}, {"x": 7, "tags": [], "n": [1.5]}],
    ]  # fmt: skip
    deep = [[[1, 2], None, []], None, [], [None], [[3]]]
    fixed = [[1, 2], [None, 4], None, [5, 6], [7, 8]]
    data = pa.table({
        "v": pa.array(rows * 9, pa.list_(inner)), "deep": pa.array(deep * 9, pa.list_(pa.list_(pa.int64()))),
        "fixed": pa.array(fixed * 9, pa.list_(pa.int16(), 2)),
    })  # fmt: skip
    first = C("v").list.get(0)
    made = od.Pipeline(data.schema).with_columns(
        first=first, x=first.struct.field("x") + 1, tags=first.struct["tags"],
        tag=first.struct["tags"].list.get(0),
        n=first.struct["n"], m=first.struct["n"].list.length(), half=first.struct["n"].list.first() * 2,
        list=C("deep").list.last(), one=C("deep").list.get(0).list.get(-1),
        has=C("deep").list.get(0).list.contains(1), z=C("fixed").list.get(1), no=first.is_null(),
    )  # fmt: skip
    found = check(made, data)
    assert found.schema.field("n").type == pa.list_(pa.float32())
    assert found.schema.field("list").type == pa.list_(pa.int64())
    assert found["x"].to_pylist()[:5] == [2, None, None, None, None]
    assert found["tag"].to_pylist()[:5] == ["a", None, None, None, None]
    assert found["half"].to_pylist()[:5] == [1.0, None, None, None, None]
    assert found["one"].to_pylist()[:5] == [2, None, None, None, 3]
    assert found["z"].to_pylist()[:5] == [2, 4, None, 6, 8]
    again = od.Pipeline(found.schema).flat_map(od.explode("list", carry=["n", "tags"]))
    check(again.filter(C("list") > 0), found)


def test_collected_lists_are_looked_into():
    data = pa.table({
        "k": [1, 2, 1, 1, 2] * 8, "x": np.arange(40),
        "c": pa.array([D("1.25"), None] * 20, pa.decimal128(9, 2)),
    })  # fmt: skip
    kept = (
        od.Pipeline(data.schema)
        .key_by("k")
        .aggregate(xs=od.collect("x", 100), cs=od.collect("c", 100), emit="final")
    )
    made = kept.with_columns(
        last=C("xs").list.last(), has=C("xs").list.contains(3), c=C("cs").list.get(0),
        d=C("cs").list.contains(D("1.25")),
    )  # fmt: skip
    for buckets in (1, 4):
        found = check(made, data, buckets=buckets).to_pylist()
    assert [(row["last"], row["has"], row["c"], row["d"]) for row in found] == [
        (38, True, D("1.25"), True), (39, False, D("1.25"), True),
    ]  # fmt: skip


def test_a_uint64_that_is_no_int64_is_an_error_of_its_row():
    data = pa.table({"v": pa.array([[1], [2**64 - 1], None, [None]], pa.list_(pa.uint64()))})
    made = od.Pipeline(data.schema).select(x=C("v").list.get(0))
    with pytest.raises(od.OperatorError, match="serial 2"):
        made.run(data, workers=1)
    rows = od.Pipeline(data.schema).select(x=C("v").list.get(0), on_error="skip")
    assert check(rows, data)["x"].to_pylist() == [1, None, None]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: C("s").list.get(0), "is for lists, got string"),
        (lambda: C("s").list.length(), "is for lists, got string"),
        (lambda: C("k").list.contains(1), "is for lists, got int64"),
        (lambda: C("v").list.contains(D("1.5")), "cast the value to int64, as the elements are"),
        (lambda: od.lit(None).list.get(0), "is for lists"),
        (lambda: C("v").list.get("a"), "index must be an integer, got string"),
        (lambda: C("v").list.get(1.5), "index must be an integer, got double"),
        (lambda: C("v").list.contains("a"), "int64 and string do not go together"),
        (lambda: C("v").list.contains(1.5), "cast the value to int64"),
        (lambda: C("v").list.join("-"), "lists of strings.*got list<.*int64"),
        (lambda: C("t").list.join(1), "a string between them, got int64"),
        (lambda: C("t").list.contains(None), "null equals no element"),
        (lambda: C("d").list.contains(1), "elements of type list<.* are not compared"),
        (lambda: C("u").list.contains(1), "elements of type uint64 are not compared"),
        (lambda: C("s").str.split(" ") == "a", r"is list<.*not computed with; .list and .struct look"),
        (lambda: C("s").str.split(" ").str.lower(), "not computed with"),
        (lambda: C("d").list.get(0) + 1, "not computed with"),
        (lambda: od.when(C("k") == 1, C("s").str.split(" ")).otherwise(C("t")), "not computed with"),
        (lambda: C("k").str.split(" "), "is for strings, got int64"),
        (lambda: C("s").str.split("("  , regex=True), r"the regular expression '\(' is not valid"),
        (lambda: C("s").str.split(""), "must not be empty"),
        (lambda: C("s").str.split(regex=True), "needs a regular expression"),
        (lambda: C("s").str.split(3), "a str is needed, got 3"),
        (lambda: C("s").str.split(" ", n=0), "n must be an int of at least 1"),
    ],
)  # fmt: skip
def test_mistakes_are_told(made, words):
    schema = {
        "k": pa.int64(), "s": pa.string(), "v": pa.list_(pa.int64()), "t": pa.list_(pa.string()),
        "d": pa.list_(pa.list_(pa.int64())), "u": pa.list_(pa.uint64()),
    }  # fmt: skip
    with pytest.raises(od.SchemaError, match=words):
        od.Pipeline(schema).with_columns(x=made())


def test_other_names_are_answered():
    with pytest.raises(AttributeError, match=r"`.list` has no 'size': write list.length\(\)"):
        C("x").list.size()
    with pytest.raises(AttributeError, match=r"write str.split\(by\)"):
        C("x").split(" ")
    with pytest.raises(AttributeError, match=r"`.str` has no 'splitn'.*n=n"):
        C("x").str.splitn(" ", 2)
    assert repr(C("t").list.get(-1).str.split(" ")) == "t.list.get(-1).str.split(' ', None, False)"

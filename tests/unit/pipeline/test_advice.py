"""What users of other systems write first: the error says what to write here."""

from __future__ import annotations

import copy
import datetime
import decimal
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
P = od.Pipeline(
    {"k": "int64", "x": "int64", "b": "bool", "d": pa.duration("s"), "tags": pa.list_(pa.int64())},
)
TIMED = od.Pipeline({"k": "int64", "ts": pa.timestamp("us")})
COMING_FROM = Path(__file__).parents[3] / "docs" / "coming-from.md"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: P.with_columns(y="paid"), r"unknown column 'paid' .*a text is od\.lit\('paid'\)"),
        (lambda: P.select("k", y="xs"), r"Did you mean 'x'\?.*a text is od\.lit\('xs'\)"),
        (lambda: P.key_by("k").lag("x", "b"), "lag_1: n must be an int, got 'b'; .* given as a list"),
        (lambda: P.key_by("k").lead("x", X), "lead_1: n must be an int, got x; .* given as a list"),
        (lambda: P.deduplicate([X * 2]), r"got \(x \* 2\); compute it first: \.with_columns"),
        (lambda: od.sum("x") / od.count(), r"od\.sum.*behind.*ratio=od\.col\('total'\) / od\.col\('n'\)"),
        (lambda: 1 - od.count(), r"od\.count\(\.\.\.\) can't be computed with"),
        (lambda: od.sum(X.alias("y")), r"sum: .*od\.sum\(\.\.\.\)\.alias\('y'\)"),
        (lambda: P.key_by("k").cum_sum(X * 2), r"\(x \* 2\) needs a name: cum_sum\(\.\.\., 'total'\)"),
        (lambda: P.key_by("k").aggregate(n=od.sum("b")), r"od\.count\(where=od\.col\('b'\)\)"),
        (
            lambda: P.key_by("k").scan(a=od.var("d")),
            r"with_columns\(as_number=od\.col\('d'\)\.cast\(pa\.int64",
        ),
        (lambda: P.key_by("k").deduplicate("x"), r"pipeline\.deduplicate\(\[key, \.\.\.\]\)"),
        (lambda: P.x, r"has no 'x': a column is written od\.col\('x'\)"),
        (lambda: P.upsample("1m"), "fill_gaps=True"),
        (lambda: P.semi_join(None), r"join_lookup\(table, on=\.\.\., how='semi'\)$"),
        (lambda: P.suppress(), "a window says nothing before it closes"),
        (lambda: P.key_by("k").bfill("x"), "process, which keeps the rows without a value"),
        (lambda: P.split(X > 0), r"branch\(condition\)"),
        (lambda: P.key_by("k").apply(len), r"a function with a state per key is process\(function"),
        (lambda: P.key_by("k").map(len), r"state per key is process\(.*one of a row alone comes before"),
        (lambda: P.key_by("k").nth(2), r"cum_count\('n'\), then filter"),
        (lambda: P.key_by("k").window("1m"), r"od\.calendar\(\.\.\.\).*got '1m'"),
        (lambda: P.top_k(3, "x"), "without key= all other columns are the key: column 'tags'"),
        (lambda: od.union([P, P]), r"a list of them behind a star, \*"),
        (lambda: od.concat([P, P]), r"pipelines are united by od\.union\(a, b\)"),
        (lambda: X["city"], r"column\.struct\.field\('city'\)"),
        (lambda: X[0], r"column\.list\.get\(0\), a character column\.str\.slice\(0, 1\)"),
        (lambda: X[:3], r"column\.str\.slice\(offset, length\)"),
        (lambda: X.str[0], r"\.str\.slice\(offset, length\)"),
        (lambda: TIMED.select(t=od.col("ts") + "1h"), r"a span is datetime\.timedelta\(\.\.\.\)"),
        (lambda: TIMED.key_by("k").window(od.session("2w"), time="ts").aggregate(n=od.count()), "'7d'"),
        (lambda: TIMED.key_by("k").window(od.rolling("1w"), time="ts").aggregate(n=od.count()), "'7d'"),
        (lambda: X.sign(), r"od\.when\(column > 0\)"),
        (lambda: X.rle_id(), r"pipeline\.key_by\(\.\.\.\)\.lag\(column\), and a filter"),
        (lambda: od.any("b"), r"write od\.max\(column\)$"),
        (lambda: od.count_if(X > 0), r"write od\.count\(where=condition\)"),
        (lambda: od.window("ts", "1m"), r"write od\.tumbling\(length\)"),
        (
            lambda: TIMED.join_interval(TIMED, on="k", within=(0, 1), how="cross", time="ts"),
            "how must be 'inner', 'left', 'right' or 'full', got 'cross'$",
        ),
        (
            lambda: TIMED.join_interval(TIMED, on="k", within=(0, 1), how="outer", time="ts"),
            "got 'outer'; write how='full'$",
        ),
        (
            lambda: P.join_lookup(pa.table({"k": [1]}), on="k", how="leftanti"),
            "got 'leftanti'; write how='anti'$",
        ),
        (lambda: P.key_by("k").ewm_mean("x"), "process, which keeps the value so far"),
        (lambda: P.key_by("k").aggregate([od.count().alias("n")]), r"a list is written behind a star, \*\["),
        (
            lambda: P.key_by("k").scan(x=od.sum("x")),
            r"scan_1: duplicate column name\(s\) 'x': the input's columns are in the output, too; give",
        ),
        (
            lambda: P.key_by("k").aggregate(k=od.sum("x")),
            r"duplicate column name\(s\) 'k': the key columns are in the output, too; give",
        ),
        (lambda: P.key_by("k").run(None), r"such as key_by\(\.\.\.\)\.count\(\)"),
        (lambda: P.key_by("k").filter(X > 0), "other operators come before key_by"),
        (lambda: P.explode("tags"), r"od\.explode\(column, carry=\[\.\.\.\]\)"),
        (lambda: od.coalesce(X, 0), r"write column\.coalesce"),
        (lambda: od.len(), r"write od\.count\(\)"),
        (lambda: od.no_such_name, "has no attribute 'no_such_name'$"),
        (lambda: getattr(od, ""), "has no attribute ''$"),
        (lambda: od.column, r"write od\.col\(name\)$"),
        (lambda: od.CsvSource, r"write pyarrow\.csv\.open_csv"),
        (lambda: X.lead, r"looks at one row; write pipeline\.key_by\(\.\.\.\)\.lead"),
        (lambda: od.lower, r"behind a column: od\.col\(name\)\.str\.lower\(\.\.\.\)"),
        (lambda: od.date_trunc, r"behind a column, write dt\.truncate\(every\)"),
        (lambda: od.struct, "a function with map gives a dict"),
        (lambda: X.truncate, r"dt\.truncate\(every\)"),
        (lambda: X.dt.day_name, r"dt\.strftime\('%A'\)"),
        (lambda: P.sink, r"stream\(data\), or od\.spark\.stream"),
        (lambda: P.connect, r"united by od\.union\(a, b\)"),
        (lambda: P.uid, "here it is called name= of each operator$"),
        (lambda: P.set_parallelism, r"run\(data, workers=, processes=\)"),
        (lambda: P.loc, r"filter\(condition\) and select\(columns\)"),
        (lambda: f"{X + 1:.2f}", r"no value yet to format"),
        (lambda: P.resample, r"window\(od\.tumbling\(\.\.\.\), time=\.\.\.\)"),
        (lambda: P.sum, r"written aggregate\(name=od\.sum\(column\)\)"),
        (lambda: P.key_by("k").avg, r"aggregate\(name=od\.mean\(column\)\)"),
        (
            lambda: P.window(od.rows(2)).sum,
            r"a window has no 'sum': write \.aggregate\(name=od\.sum\(column",
        ),
        (lambda: P.window(od.rows(2)).count, r"write \.aggregate\(n=od\.count\(\)\)"),
        (lambda: P.window(od.rows(2)).rows, r"write \.aggregate\(\.\.\.\) next$"),
        (lambda: P.select({"y": X}), r"behind two stars, \*\*\{'y': x\}"),
        (lambda: P.aggregate({"n": od.count()}), r"a mapping is written behind two stars"),
        (
            lambda: P.with_columns(y=lambda row: row.x),
            r"a function of rows goes to \.map\(fn, schema=\.\.\.\)",
        ),
        (
            lambda: P.deduplicate("k", "x"),
            "within is a length of time, got 'x'; columns are given as a list",
        ),
        (lambda: TIMED.join_asof(TIMED, on="ts"), r"'ts' is in on=.*: write on='key', time='ts'"),
        (lambda: P.filter(X > 0, "late"), "filter_1: several predicates must be expressions, got 'late'"),
    ],
)
def test_the_error_says_what_to_write(make, text):
    with pytest.raises((od.SchemaError, od.PlanError, AttributeError, TypeError), match=text):
        make()


class Float32:
    """As Polars has its types."""


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (datetime.datetime, r"'timestamp\[us\]'"),
        (datetime.date, "'date32'"),
        (datetime.timedelta, r"'duration\[us\]'"),
        (decimal.Decimal, r"pa\.decimal128"),
        (list[int], r"pa\.list_\(type\)"),
        (int | None, "the type alone, each column may have nulls"),
        (np.int32, "'int32'"),
        (np.uint8, "'uint8'"),
        (np.str_, "'string'"),
        (Float32, "'float32'"),
        (Float32(), "'float32'"),
    ],
)
def test_a_type_of_another_library_is_answered_with_ours(given, ours):
    for make in (lambda: od.Pipeline({"x": given}), lambda: P.select(y=X.cast(given))):
        with pytest.raises(od.SchemaError, match=f"for .* write {ours}"):
            make()


@pytest.mark.parametrize(
    ("type_", "instead"),
    [
        (pa.struct({"a": pa.int64()}), r"with_columns\(key=od\.col\('c'\)\.struct\.field\(name\)\)"),
        (pa.list_(pa.int64()), r"with_columns\(key=od\.col\('c'\)\.list\.get\(0\)\)"),
        (pa.null(), r"with_columns\(key=od\.col\('c'\)\.cast\(int\)\)"),
        (pa.binary(16), r"cast it in the source to pa\.binary\(\)"),
        (pa.uuid(), "cast it in the source to a type that is compared"),
        (pa.float16(), r"cast it in the source to pa\.float32\(\)"),
    ],
)
def test_a_column_that_can_t_be_a_key_says_what_can(type_, instead):
    with pytest.raises(od.SchemaError, match=f"key_by.*column 'c'.* can't be a key; .*{instead}"):
        od.Pipeline({"c": type_}).key_by("c")


def test_round_of_python_is_round():
    data = pa.table({"x": [1.25, 2.5, None]})
    pipeline = od.Pipeline(data.schema).select(a=round(X), b=round(X, 1))
    expected = {"a": [1.0, 2.0, None], "b": [1.2, 2.5, None]}
    assert pipeline.run(data).table.to_pydict() == run_serial(pipeline, data).table.to_pydict() == expected


def test_an_expression_is_not_gone_through():
    for value in (X, X.str):
        with pytest.raises(TypeError, match="not iterable"):
            list(value)


def test_with_columns_takes_a_list():
    data = pa.table({"x": [1, 2]})
    pipeline = od.Pipeline(data.schema).with_columns([(X + 1).alias("y"), (X * 2).alias("z")], a=od.lit("a"))
    expected = {"x": [1, 2], "y": [2, 3], "z": [2, 4], "a": ["a", "a"]}
    assert pipeline.run(data).table.to_pydict() == run_serial(pipeline, data).table.to_pydict() == expected


def elsewhere(section, columns):
    """The names that the pages of other systems have in a table of docs/coming-from.md."""
    table = COMING_FROM.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    for line in table.splitlines():
        if line.startswith("| ") and not line.startswith("| Polars"):
            for code in re.findall("`([^`]*)`", "|".join(line.split("|")[1 : columns + 1])):
                yield from re.findall(r"([A-Za-z_]\w*)\(", code) or re.findall(
                    r"^(?:str\.|list\.)?(\w+)$", code
                )


def is_answered(name, *places):
    """It is a name here, or the error says what to write."""
    for place in places:
        try:
            getattr(place, name)
        except AttributeError as error:
            if ": " not in str(error):
                continue
        return True
    return False


#: Parts of an example that are no operator.
EXAMPLES = {"broadcast", "desc", "orderBy", "b"}


@pytest.mark.parametrize("name", sorted({*elsewhere("Rows", 3)} - EXAMPLES))
def test_every_name_of_the_page_about_rows_is_answered(name):
    """`resample`, `ffill`, `nlargest`, `over` were not, and the page says that they are."""
    assert is_answered(name, P, P.key_by("k"), od, X)


@pytest.mark.parametrize("name", sorted({*elsewhere("Expressions", 2)} - EXAMPLES))
def test_every_name_of_the_page_about_expressions_is_answered(name):
    assert is_answered(name, X, X.str, X.list, X.dt, X.struct, od)


OF_EXPRESSIONS = (
    "eq ne gt ge lt le add sub mul truediv div floordiv neg eqNullSafe eq_missing isNaN and_ or_ rolling_max"
    " rolling_min rolling_std rolling_median expanding head tail drop_nulls dropna unique explode"
    " value_counts"
)
OF_PIPELINES = (
    "write_parquet to_parquet sink_parquet to_csv to_dicts to_numpy iter_rows itertuples toLocalIterator"
    " take bottom_k fill_nan merge_sorted expanding"
)
OF_THE_PACKAGE = (
    "scan_parquet scan_csv read_ipc from_pandas from_dicts countDistinct variance stddev_samp array_agg"
    " isnan ln log2 cum_sum dayofmonth unix_timestamp date_add regexp_like power arctan2"
)


@pytest.mark.parametrize(
    ("place", "names"),
    [(X, OF_EXPRESSIONS), (P, OF_PIPELINES), (P.key_by("k"), "expanding take"), (od, OF_THE_PACKAGE)],
    ids=["expression", "pipeline", "keyed", "package"],
)
def test_names_of_other_systems_are_answered(place, names):
    """Operators as methods, rolling_max beside rolling_mean, what writes and reads files."""
    assert [name for name in names.split() if not is_answered(name, place)] == []


def test_equal_where_both_are_null_is_written_as_the_advice_says():
    data = pa.table({"a": [1, 1, None, None], "b": [1, 2, 1, None]})
    a, b = od.col("a"), od.col("b")
    same = od.Pipeline(data.schema).select(same=(a == b).fill_null(a.is_null() & b.is_null()))
    assert same.run(data).table["same"].to_pylist() == [True, False, False, True]


def test_what_a_keyed_pipeline_has_not_is_an_attribute_that_it_has_not():
    """`hasattr` raised, and with it all that asks for attributes, such as a debugger or `inspect`."""
    keyed = P.key_by("k")
    assert not hasattr(keyed, "filter")
    assert hasattr(keyed, "count")
    assert getattr(keyed, "run", None) is None
    with pytest.raises(od.PlanError):
        _ = keyed.filter


def test_several_predicates_and_values():
    """As Polars has `filter(a, b)`, and PySpark `isin(a, b)`."""
    data = pa.table({"x": [1, 2, 3, None], "y": ["a", "b", "c", "a"]})
    pipeline = od.Pipeline(data.schema).filter(X > 1, od.col("y").isin("a", "b"), name="both")
    rows = run_serial(pipeline, data).table.to_pylist()
    assert pipeline.run(data).table.to_pylist() == rows == [{"x": 2, "y": "b"}]
    for several in (X.isin(1, 3), X.is_in([1, 3]), X.is_in((1, 3))):
        assert od.Pipeline(data.schema).filter(several).run(data).table["x"].to_pylist() == [1, 3]


def test_a_result_is_no_table():
    result = P.run(P.schema.empty_table())
    with pytest.raises(AttributeError, match=r"a Result has no 'head'; its rows are \.table"):
        result.head()
    for use in (lambda: result["x"], lambda: list(result)):
        with pytest.raises(TypeError, match=r"a Result has no items; its rows are \.table"):
            use()
    again = copy.copy(pickle.loads(pickle.dumps(result)))
    assert again.table.equals(result.table)


def test_a_pipeline_has_no_items():
    with pytest.raises(TypeError, match=r"no items: a column is written od\.col\(name\).*got \['x'\]"):
        P["x"]
    with pytest.raises(TypeError, match=r"several are chosen by select"):
        P.key_by("k")[P.schema.names]
    with pytest.raises(TypeError, match="a pipeline has no items"):
        list(P)


@pytest.mark.parametrize("method", ["run", "stream"])
def test_help_is_indented_in_one_way(method):
    lines = inspect.getdoc(getattr(od.Pipeline, method)).splitlines()
    own = lines[: lines.index("Parameters")]
    assert len(own) > 3
    assert not [line for line in own if line.startswith(" ")]


def test_a_time_that_runs_backwards_leads_to_reorder():
    rows = pa.table({"k": [1, 1], "ts": pa.array([9, 3], pa.timestamp("us"))})
    sums = TIMED.key_by("k").window(od.tumbling("1s"), time="ts").aggregate(n=od.count())
    with pytest.raises(od.SourceError, match=r"put reorder\(time, slack=\.\.\.\) in front"):
        sums.run(rows)
    left, right = TIMED.branch(od.col("k") > 0)
    with pytest.raises(od.OperatorError, match=r"unite both sides by od\.union and put reorder"):
        left.join_asof(right, on="k", time="ts").run(rows)
    assert "by od.union" in str(run_serial(left.join_asof(right, on="k", time="ts"), rows).error)

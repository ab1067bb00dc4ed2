"""Arguments that other systems have, and methods that were not called: the error says what to write here."""

from __future__ import annotations

import inspect
import pickle
import re

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.expressions.wrong_calls import _FOUND
from ordstream.testing import run_serial

DATA = pa.table({"k": [1], "x": [2.5], "s": ["a"], "ts": pa.array([3], pa.timestamp("us")), "l": [[1]]})
P = od.Pipeline(DATA.schema)
K = P.key_by("k")
X, S, TS = od.col("x"), od.col("s"), od.col("ts")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: K.lag("x", default=0), r"lag\(\) .*'default': .*x_lag'\)\.fill_null\(value\)\) fills all"),
        (lambda: K.lag("x", 1, 0), r"positional arguments .*; the call is lag\(columns, n=1, \*, name"),
        (lambda: K.forward_fill("x", limit=1), r"it has no limit; .* process\(fn"),
        (lambda: P.deduplicate(subset=["k"]), r"'subset': by=; the call is deduplicate\(by=None, within"),
        (lambda: P.sample(n=10), r"a share: sample\(0\.1\); so many rows are head\(n\)"),
        (lambda: P.sample(frac=0.1), "'frac': fraction=;"),
        (lambda: P.join_lookup(DATA, left_on="k", right_on="k"), "on={'left column': 'right column'}"),
        (lambda: P.join_asof(P, by="k", on="ts"), "on='key', time='ts'"),
        (lambda: P.reorder("ts", "5s"), r"; the call is reorder\(time, \*, slack, late='raise'"),
        (lambda: P.map(len), r"missing 1 .*'schema'; the call is map\(fn, \*, schema, compiled=False"),
        (lambda: P.filter(x=3), r"'x': a condition is written od\.col\('x'\) == value"),
        (lambda: P.rename(columns={"k": "a"}), r"rename\(\{'old': 'new'\}\)"),
        (lambda: od.hopping("10m", "1m"), r"hopping\(\) .*; the call is hopping\(length, \*, every, offset"),
        (lambda: od.union(P, P, by_name=True), "'by_name': how='diagonal'; the call is union"),
        (lambda: od.std("x", ddof=0), "divides by n - 1"),
        (lambda: X.fill_null(strategy="forward"), r"fill_null\(\) .*key_by\(\.\.\.\)\.forward_fill\(column"),
        (lambda: X.fill_null(), r"fill_null\(\) missing 1 .*; the call is fill_null\(value, \*more\)"),
        (lambda: S.str.contains("a", case=False), r"str\.contains\(\) .*begins with \(\?i\)"),
        (lambda: TS.dt.strftime(), r"dt\.strftime\(\) missing .*; the call is dt\.strftime\(format\)$"),
        (lambda: TS.dt.hour == 3, r"hour is a method, and is called before it is compared: \.hour\(\)"),
        (lambda: S.str.lower != "a", r"lower is a method, and is called before it is compared"),
        (lambda: od.col("l").list.length == 1, "length is a method"),
        (lambda: np.where(X > 1, 1, 0), r"np\.where looks at arrays, .*od\.when\(condition, value\)"),
        (lambda: P.run(), r"^run\(\) missing 1 .*'data'; the call is run\(data, \*, outputs=None"),
        (lambda: P.stream(), r"^stream\(\) missing 1 .*'data'; the call is stream\(data, \*, outputs=None"),
        (lambda: run_serial(P, DATA, workers=2), r"'workers'; the call is run_serial\(pipeline, data, \*"),
        (lambda: od.Pipeline(DATA.schema, "clicks"), r"^Pipeline\(\) .*; the call is Pipeline\(schema, \*"),
        (
            lambda: od.Mixed(thetta=1),
            r"^Mixed\(\) .*'thetta'( \(did you mean 'theta'\?\))?; the call is Mixed\(theta=0\.08",
        ),
        (lambda: od.OrderTag(), r"^OrderTag\(\) missing .*; the call is OrderTag\(serial, index=-1\)$"),
        (lambda: od.IpcSource(), r"^IpcSource\(\) missing .*; the call is IpcSource\(paths\)$"),
        (lambda: X.is_between(1), r"^is_between\(\) .*; the call is is_between\(low, high\)$"),
        (lambda: S.str.len_chars(1), r"^str\.len_chars\(\) .*; the call is str\.len_chars\(\)$"),
        (lambda: od.when(), r"^when\(\) .*; the call is when\(condition, value=<by then\(value\)>\)$"),
        (lambda: P.top_k(2, "x", reverse=True), r"'reverse': descending=False for the smallest, with key="),
        (lambda: P.map(len, output={"n": int}), r"'output': schema=\{'column': type\}; the call is map"),
        (lambda: K.head(3, key="k"), r"'key': key_by\(column\) in front; the call is head\("),
        (lambda: od.calendar("1mo", tz="UTC"), r"'tz': the zone is that of the time column: .* in front;"),
        (lambda: od.retry(attempts=3), r"'attempts': n=: so many times more; the call is retry\("),
        (lambda: od.col("l").list[0], r"`\.list` has no items: an element is \.list\.get\(0\)"),
    ],
)
def test_a_wrong_call_is_a_type_error_that_says_what_to_write(make, text):
    """They ended in Python's bare "unexpected keyword argument", and `.dt.hour == 3` was False."""
    with pytest.raises(TypeError, match=text) as caught:
        make()
    assert not isinstance(caught.value, od.OrdstreamError)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: P.branch(lambda row: row.x > 1), r"compute a column in front, map\(function, schema"),
        (lambda: P.assert_that("x > 3"), r"got 'x > 3', which is a text: .* od\.col\('x'\) > 1"),
        (lambda: P.explain(DATA), r"nodes must be an int .*, got pyarrow\.Table [^\n]{1,80}\.\.\.$"),
        (lambda: P.run(DATA, DATA), r"got pyarrow\.Table [^\n]{1,90} behind the data"),
        (lambda: P.join_lookup({"k": [1]}, "k"), r"of columns in a dict pyarrow\.table\(data\)"),
        (lambda: P.join_lookup(P, "k"), "of another pipeline are joined by join_interval and join_asof"),
        (lambda: P.join_asof(DATA, "k"), r"given by join_lookup, a source is od\.Pipeline\(schema, source="),
        (
            lambda: P.filter(X.is_null),
            r"filter_1: a function is needed, got is_null; it is a method, and is",
        ),
        (lambda: P.filter(S.str.contains), r"got contains; it is a method, and is called: \.contains\("),
        (lambda: P.branch(X.is_null), r"; it is a method, and is called: \.is_null\("),
        (lambda: P.select(t=TS.dt.strftime("YYYY")), r"letters behind a %, such as .*, got 'YYYY'"),
        (lambda: K.aggregate(n=od.count), r"n must be an aggregation .*: write od\.count\(column\)$"),
        (lambda: K.aggregate(n="mean"), r"got 'mean': write od\.mean\(column\)$"),
        (lambda: K.aggregate(n=X), r"got x: say which value of many, such as od\.last\(x\)$"),
        (lambda: K.scan(lambda a, b: a), r"a function with a state goes to process\(function"),
        (lambda: P.reorder("s", slack="1s"), "reorder_1: slack: the time column 's' must be"),
        (lambda: od.sum("x").over("k"), r"a running value is key_by\(\.\.\.\)\.scan\(name=od\.sum"),
        (lambda: od.sum("x").cast(int), r"\.aggregate\(name=od\.sum\(\.\.\.\)\)\.with_columns"),
        (lambda: od.when(X > 1).then(1).else_(2), r"write otherwise\(value\)$"),
        (lambda: od.when(X > 1).otherwise(2), r"has no 'otherwise': add \.then\(value\) first$"),
        (lambda: od.when(None), r"^when: a condition is needed, such as .*, got None$"),
        (lambda: od.when(X > 1, 2).when(None, 3), r"^when: a condition is needed, such as .*, got None$"),
        (lambda: od.Pipline, r"has no attribute 'Pipline'; did you mean 'Pipeline'\?$"),
        (lambda: P.fliter, r"a Pipeline has no 'fliter'; did you mean 'filter'\?$"),
        (lambda: K.agregate, r"a KeyedPipeline has no 'agregate'; did you mean 'aggregate'\?$"),
        (lambda: X.isnul, r"an expression has no 'isnul'; did you mean 'is_null'\?$"),
        (lambda: S.str.uper, r"`\.str` has no 'uper'; did you mean 'upper'\?$"),
        (lambda: TS.dt.yaer, r"`\.dt` has no 'yaer'; did you mean 'year'\?$"),
        (lambda: od.col("l").list.lenght, r"`\.list` has no 'lenght'; did you mean 'length'\?$"),
        (lambda: X.is_in(5), "^is_in takes a list of values, got 5"),
        (lambda: X.isin(5), "^isin takes a list of values, got 5"),
        (lambda: K.diff("x", n=0), "^diff_1: n must be an int of at least 1, got 0$"),
        (lambda: K.forward_fill(None), "^forward_fill_1: a column name is needed, got None$"),
        (lambda: P.shed("1ms", "k", epsilon=-1), "^shed_1: epsilon must be positive, not -1$"),
        (lambda: P.shed("1ms", "k", delta=2), "^shed_1: delta must lie between 0 and 1, not 2$"),
        (lambda: K.window(od.rows(2)).aggregate(n=od.count(), emit="both"), "^rolling_1: od.rows has a win"),
        (lambda: S + S.str, r"^s\.str \(Strings\) can't be a constant"),
        (lambda: X.cast("decimal(10, 2)"), r"for 'decimal\(10, 2\)' write pa\.decimal128\(10, 2\)$"),
        (lambda: P.filter(od.sum("x")), r"got od\.sum\('x'\)$"),
    ],
)
def test_other_errors_say_it_too(make, text):
    with pytest.raises((od.OrdstreamError, AttributeError), match=text):
        make()


STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def functions(name):
    family, _, method = name.rpartition(".")
    places = [getattr(X, family)] if family else [P, K, X, od]
    return [found for place in places if (found := inspect.unwrap(getattr(place, method, None)))]


@pytest.mark.parametrize("method", sorted({method for method, _ in _FOUND}))
def test_the_words_are_of_calls_that_are_there(method):
    """An argument that is there needs no word, and one that a word names must be there."""
    of = [
        {one.name for one in inspect.signature(function).parameters.values() if one.kind not in STARRED}
        for function in functions(method)
    ]
    assert of
    for (of_method, argument), text in _FOUND.items():
        if of_method == method and argument != "*":
            assert any(argument not in there for there in of), argument
            named = re.match(r"(\w+)=(?=[;,'\[{]|$)", text)
            assert named is None or any(named[1] in there for there in of), text


def test_an_error_from_inside_stays_as_it_is():
    def part(pipeline, *, by):
        return pipeline.key_by(by)

    with pytest.raises(TypeError, match=r"part\(\) missing 1 required keyword-only argument: 'by'$"):
        P.pipe(part)
    with pytest.raises(od.SchemaError, match="unknown column 'y' in filter_1"):
        P.filter(od.col("y") > 1)


def changes_an_item(row, state, emit):
    state.n[0] = 1


@pytest.mark.parametrize(
    ("function", "state", "text"),
    [
        (lambda row, state, emit: emit(state["n"]), None, r"declare state=\{'n': int\}, or give init=dict"),
        (
            lambda row, state, emit: state.n.append(1),
            {"n": pa.list_(pa.int64())},
            r"= \[\*state\.x, value\]",
        ),
        (changes_an_item, {"n": pa.list_(pa.int64())}, r"item assignment; .*= \[\*state\.x, value\]"),
    ],
)
def test_a_state_that_is_used_as_it_is_not(function, state, text):
    pipeline = K.process(function, schema={"n": int}, state=state)
    with pytest.raises(od.OperatorError, match=text) as run:
        pipeline.run(DATA, workers=0)
    assert str(run_serial(pipeline, DATA).error) == str(run.value)


def test_what_users_call_is_what_it_was():
    for function in (od.sum, od.Pipeline.lag, od.tumbling):
        assert pickle.loads(pickle.dumps(function)) is function
    assert str(inspect.signature(od.Pipeline.drop)).startswith("(self, *columns: 'str', name: 'str | None'")


@pytest.mark.parametrize(
    ("words", "short"), [("1 day", "1d"), ("1 week", "1w"), ("1 month", "1mo"), ("1 years", "1y")]
)
def test_an_interval_of_the_calendar_in_words(words, short):
    """ "5 minutes" was taken, "1 month" refused."""
    assert od.calendar(words) == od.calendar(short)
    assert od.tumbling(words) == od.tumbling(short)
    at = [P.select(at=TS.dt.truncate(every)).run(DATA).table for every in (words, short)]
    assert at[0].equals(at[1])
    with pytest.raises(od.PlanError, match=r"a week is '7d', and windows by weeks .* od\.calendar\('1w'\)"):
        K.window(od.session("2 weeks"), "ts").aggregate(n=od.count())


@pytest.mark.parametrize("method", ["select", "with_columns"])
def test_a_column_called_name_is_not_lost(method):
    """`select(id="k", name="s")` gave the column id alone, from an operator called "s"."""
    with pytest.raises(od.PlanError, match=rf"{method}: name='s' .* od\.col\('s'\)\.alias\('name'\)"):
        getattr(P, method)(id="k", name="s")
    assert getattr(P, method)(id="k", name="first").plan.operators[-1].name == "first"


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (lambda: K.window(od.tumbling(0), "ts"), "window: tumbling: the length must be at least 1, got 0"),
        (lambda: K.window(od.tumbling("foo"), "ts"), "window: tumbling: a duration is .*, got 'foo'|'foo'"),
        (lambda: K.window(od.tumbling(None), "ts"), "window: tumbling must be .*, got None"),
        (lambda: K.window(od.tumbling("1m"), "at"), "unknown column 'at' in window"),
        (lambda: K.window(od.tumbling("1m")), "window: tumbling: a window needs its time column"),
        (lambda: K.window(od.tumbling("1m"), "s"), "window: tumbling: the time column 's' must be"),
        (lambda: K.window(od.rows("a")), "window: rows must be an int of at least 1, got 'a'"),
        (lambda: K.window(od.rows(2), "ts"), "window: od.rows counts rows and looks at no time"),
        (lambda: K.window(od.calendar("2mo"), "ts"), "window: calendar: an interval .*, got '2mo'"),
        (lambda: K.window(od.tumbling("1m"), "ts", fill_gaps="x"), "window: fill_gaps: .*'x'"),
        (lambda: od.every("ts", None), "every: the period must be an int, .*, got None"),
        (lambda: od.every("ts", "soon"), "every: the period: a duration is .*'soon'"),
        (lambda: od.every("ts", 0), "every: the period must be at least 1, got 0"),
    ],
)
def test_a_window_is_checked_where_it_is_written(window, text):
    """They waited for `aggregate`, or for the run."""
    with pytest.raises(od.OrdstreamError, match=text):
        window()


def test_what_is_written_is_shown_as_it_is_written():
    """An aggregation showed eight fields, the others an address."""
    for made, text in (
        (od.sum("x"), "od.sum('x')"),
        (od.count(), "od.count()"),
        (od.quantile("x", 0.5).alias("n"), "od.quantile('x', 0.5).alias('n')"),
        (od.sum(X * 2, where=X > 1), "od.sum((x * 2), where=(x > 1))"),
        (od.arg_max("x", "ts"), "od.arg_max('x', 'ts')"),
        (od.collect("x", 3), "od.collect('x', n=3)"),
        (od.collect("x"), "od.collect('x')"),
        (S.str, "s.str"),
        (TS.dt, "ts.dt"),
        (od.col("l").list, "l.list"),
        (od.col("p").struct, "p.struct"),
        (od.when(X > 1), "when((x > 1))"),
    ):
        assert repr(made) == text

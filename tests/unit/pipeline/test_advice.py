"""What users of other systems write first: the error says what to write here."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

X = od.col("x")
P = od.Pipeline(
    {"k": "int64", "x": "int64", "b": "bool", "d": pa.duration("s"), "tags": pa.list_(pa.int64())},
)


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
        (lambda: P.key_by("k").run(None), r"such as key_by\(\.\.\.\)\.count\(\)"),
        (lambda: P.key_by("k").filter(X > 0), "other operators come before key_by"),
        (lambda: P.explode("tags"), r"od\.explode\(column, carry=\[\.\.\.\]\)"),
        (lambda: od.coalesce(X, 0), r"write column\.coalesce"),
        (lambda: od.len(), r"write od\.count\(\)"),
        (lambda: od.no_such_name, "has no attribute 'no_such_name'$"),
    ],
)
def test_the_error_says_what_to_write(make, text):
    with pytest.raises((od.SchemaError, od.PlanError, AttributeError), match=text):
        make()


def test_with_columns_takes_a_list():
    data = pa.table({"x": [1, 2]})
    pipeline = od.Pipeline(data.schema).with_columns([(X + 1).alias("y"), (X * 2).alias("z")], a=od.lit("a"))
    expected = {"x": [1, 2], "y": [2, 3], "z": [2, 4], "a": ["a", "a"]}
    assert pipeline.run(data).table.to_pydict() == run_serial(pipeline, data).table.to_pydict() == expected

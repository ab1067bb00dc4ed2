"""The digest of a micro-batch's rows: of the values and their order, not of batches."""

import datetime
import decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from ordstream.spark.streaming.input_digest import InputDigest

UTC = datetime.UTC
COLUMNS = {
    "whole": pa.array([1, None, 3, 4], pa.int32()),
    "float": pa.array([0.5, float("nan"), None, 2.0]),
    "text": pa.array(["a", "", None, "bc"]),
    "bytes": pa.array([b"x", None, b"", b"yz"]),
    "list": pa.array([[1, 2], [], None, [None, 3]], pa.list_(pa.int64())),
    "flag": pa.array([True, None, False, True]),
    "when": pa.array([datetime.datetime(2024, 1, d, tzinfo=UTC) for d in (1, 2, 3, 4)]),
    "price": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("2.00"), decimal.Decimal("3.00")]),
    "pair": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": ""}]),
}


def digest(*batches):
    found = InputDigest()
    for batch in batches:
        found.add(batch)
    return found.rows, found.hexdigest()


@pytest.mark.parametrize("name", COLUMNS)
def test_a_digest_is_of_values_in_order(name):
    rows = pa.record_batch({name: COLUMNS[name]})
    whole = digest(rows)
    assert whole == digest(rows.slice(0, 1), rows.slice(1, 0), rows.slice(1, 3))
    shuffled = rows.take(pa.array([1, 0, 2, 3]))
    assert digest(shuffled) != whole
    again = rows.take(pa.array([0, 1, 2, 2]))
    assert digest(again) != whole
    assert digest(rows.slice(0, 3))[1] != whole[1]


def test_texts_that_are_cut_elsewhere_differ():
    assert digest(pa.record_batch({"t": ["ab", "c"]})) != digest(pa.record_batch({"t": ["a", "bc"]}))
    assert digest(pa.record_batch({"t": [None, ""]})) != digest(pa.record_batch({"t": ["", None]}))

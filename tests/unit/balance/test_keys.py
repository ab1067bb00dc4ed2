"""Keys as Python values beside their words: what a sketch shows, and writes down, is what was counted."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap
from ordstream.balance.keys import key_at, key_word, key_words
from ordstream.errors import SchemaError

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "date": (pa.date32(), [dt.date(2020, 1, 2), None, dt.date(1960, 1, 1)]),
    "timestamp": (pa.timestamp("ns", "UTC"), [dt.datetime(2020, 1, 2), None, dt.datetime(1960, 1, 1)]),
    "time": (pa.time32("ms"), [dt.time(1, 2), None, dt.time(3)]),
    "duration": (pa.duration("us"), [dt.timedelta(1), None, dt.timedelta(2)]),
    "decimal": (pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal("-3.10")]),
    "wide": (pa.decimal128(30, 2), [Decimal("1.25"), None, Decimal("-3.10")]),
    "text": (pa.string(), ["a", None, "b"]),
    "flag": (pa.bool_(), [True, None, False]),
    "real": (pa.float32(), [1.5, None, -0.0]),
    "code": (pa.dictionary(pa.int8(), pa.string()), ["x", None, "y"]),
}


def structs(column: pa.Array) -> dict[str, pa.Array]:
    """Structs with a column in them, each once in every place."""
    pair = pa.StructArray.from_arrays([column, pa.array([1, 2, 3])], ["x", "y"])
    one = pa.StructArray.from_arrays([column], ["x"])
    return {
        "pair": pair,
        "one": one,
        "nested, names twice": pa.StructArray.from_arrays([pair, one, column], ["x", "x", "y"]),
        "null": pa.StructArray.from_arrays([pair, column], ["p", "q"], mask=pa.array([False, True, False])),
    }


@pytest.mark.parametrize("name", COLUMNS)
def test_a_structs_keys_have_its_words_and_bytes(name: str) -> None:
    kind, given = COLUMNS[name]
    for array in structs(pa.array(given, kind)).values():
        keys = key_at(array, np.arange(3))
        assert [key_word(key) for key in keys] == key_words(array).tolist()
        made = DKG(theta=0.1).fit(array, 2)
        again = KeyMap.from_bytes(made.to_bytes())
        assert len(again.heavy) == len(set(keys)) > 1
        assert again.route(array).tolist() == made.route(array).tolist()


def test_a_struct_shows_storage_values() -> None:
    array = pa.array([{"day": dt.date(1970, 1, 3), "price": Decimal("1.25")}], pa.struct(
        [("day", pa.date32()), ("price", pa.decimal128(10, 2))]
    ))  # fmt: skip
    assert key_at(array, np.arange(1)) == [(2, 125)]


@pytest.mark.parametrize("inner", [pa.list_(pa.date32()), pa.map_(pa.string(), pa.int64())])
def test_a_struct_with_a_list_is_no_key(inner: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="cannot be a key"):
        key_words(pa.array([{"x": None}], pa.struct([("x", inner)])))

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
from ordstream.balance.keys import NULL_WORD, key_at, key_word, key_words
from ordstream.balance.posg import POSG
from ordstream.balance.sketches import CountMin, ExecutionTimes
from ordstream.balance.space_saving import SpaceSaving
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


MASK = [False, True, False, True]
MASKED = {
    "i": np.array([1, 2, 1, 2]),
    "u": np.array([1, 2, 1, 2], np.uint8),
    "b": np.array([True, False, True, False]),
    "f": np.array([0.5, 2, 0.5, np.nan]),
    "U": np.array(["a", "b", "a", "b"]),
    "S": np.array([b"a", b"b", b"a", b"b"]),
    "O": np.array(["a", 2, "a", "\ud800"], object),
}


@pytest.mark.parametrize("kind", MASKED)
def test_what_is_masked_is_null(kind: str) -> None:
    """Routes went by what lies under the mask, while the heavy hitters had None."""
    column = np.ma.array(MASKED[kind], mask=MASK)
    words, keys = key_words(column), key_at(column, np.arange(4))
    assert keys[1] is keys[3] is None
    assert words.tolist() == [key_word(key) for key in keys]
    assert words.tolist() == key_words(keys).tolist()
    made = DKG(theta=0.3).fit(column, 2)
    assert {key for key, _ in made.heavy} == set(keys)
    assert made.route(column).tolist() == made.route(keys).tolist()
    pair = (column, np.arange(4))
    assert key_words(pair).tolist() == [key_word(key) for key in key_at(pair, np.arange(4))]


def test_a_masked_array_without_a_mask() -> None:
    assert key_words(np.ma.array([1, 2])).tolist() == [1, 2]
    assert key_words(np.ma.array([1, 2], mask=True)).tolist() == [NULL_WORD] * 2


def test_half_a_surrogate_pair_is_no_key() -> None:
    text, posg = "\ud800", POSG(instances=2)
    fitted, times = DKG(theta=0.3).fit(["a", "b"], 2), ExecutionTimes()
    for use in (
        lambda: key_word(text),
        lambda: key_word(("a", text)),
        lambda: key_words([text]),
        lambda: key_words(np.array([text])),
        lambda: key_words((np.array(["a"]), [text])),
        lambda: DKG().fit([text], 2),
        lambda: fitted.route([text]),
        lambda: fitted.instance_of(text),
        lambda: posg.times().update(text, 1.0),
        lambda: times.estimate(text),
        lambda: CountMin(0.1, 0.1).update(text),
        lambda: SpaceSaving(capacity=2).update(text),
        lambda: SpaceSaving(capacity=2).update_many([text]),
    ):
        with pytest.raises(SchemaError, match=r"the key '\\ud800' is no text: surrogates not allowed"):
            use()

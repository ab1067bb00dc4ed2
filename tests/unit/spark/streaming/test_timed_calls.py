"""What a tuple of each key takes in a function: CPU time of some calls."""

import time

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od

pytest.importorskip("pyspark")
from patience import measured, patiently

from ordstream.balance.keys import key_words
from ordstream.fragments.fragment_node import FragmentNode
from ordstream.fragments.fragmenting import fragments_of
from ordstream.ground.columns_read import columns_read
from ordstream.ground.ordertags import TAG, source_tags
from ordstream.spark.streaming import timed_calls
from ordstream.spark.streaming.timed_calls import TimedCalls

SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])


def kept(row, state, emit):
    """Word "a" works long, "b" is held up long, "c" takes no time."""
    if row.word == "a":
        sum(range(20_000))
    elif row.word == "b":
        time.sleep(0.0005)
    state.n += 1
    emit(row.word, state.n)


def run(fragment, words):
    tags = source_tags(np.arange(1, len(words) + 1))
    rows = pa.record_batch([pa.array(words), pa.array(range(len(words))), tags], names=["word", "n", TAG])
    with FragmentNode(fragment, iter([rows]), None, {"workers": 0}) as running:
        return [row for batch in running for row in zip(*batch.to_pydict().values(), strict=True)]


def test_times_are_the_processors_and_of_some_calls(monkeypatch):
    monkeypatch.setattr(timed_calls, "TOGETHER", 10)
    patiently(times_are_the_processors)


def times_are_the_processors():
    fields = {"word": pa.string(), "seen": pa.int64()}
    made = od.Pipeline(SCHEMA).key_by("word").process(kept, schema=fields, state={"n": pa.int64()})
    fragment = fragments_of(made.plan)[1]
    calls = TimedCalls(fragment, 1)
    words = ["a", "b", "c"] * 500
    assert run(calls.fragment, words) == run(fragment, words)
    times = calls.times
    assert 1_500 / 32 < times.tuples < 1_500 / 8
    long, held, short = times.estimate_many(pa.array(["a", "b", "c"]))
    measured(long > 3 * held, long, held)
    measured(long > 10 * short, long, short)
    assert long > 50_000


def hands_on(row, state, emit):
    kept(row, state, emit)


def looks_beside(row, state, emit):
    state.n += row.n
    emit("", state.n)


@pytest.mark.parametrize("key", [("word",), ("n", "word")])
@pytest.mark.parametrize(("function", "read"), [(kept, {0}), (hands_on, None), (looks_beside, {1})])
def test_rows_stay_what_the_function_would_get(function, read, key, monkeypatch):
    given = []
    monkeypatch.setattr(timed_calls, "SAMPLED", 1)
    monkeypatch.setattr(timed_calls, "key_words", lambda keys: given.append(keys) or key_words(keys))
    fields = {"word": pa.string(), "seen": pa.int64()}
    made = od.Pipeline(SCHEMA).key_by(*key).process(function, schema=fields, state={"n": pa.int64()})
    fragment = fragments_of(made.plan)[1]
    calls = TimedCalls(fragment, 1)
    words = ["a", "c", "é", "c"] * 50
    assert run(calls.fragment, words) == run(fragment, words)
    assert calls.times.tuples == 200
    keys = given[0] if len(key) > 1 else (given[0],)
    expected = {"word": words, "n": list(range(200))}
    assert [column.to_pylist() for column in keys] == [expected[name] for name in key]
    timed = calls.fragment.operators[0].fn
    beside = {SCHEMA.get_field_index(name) for name in key}
    assert columns_read(timed, SCHEMA.names) == (None if read is None else read | beside)


def test_functions_that_are_not_called_once_per_row_are_not_timed():
    counted = od.Pipeline(SCHEMA).key_by("word").scan(seen=od.count())
    assert TimedCalls(fragments_of(counted.plan)[1], 1).fragment is None
    two = od.Pipeline(SCHEMA).key_by("word").scan(seen=od.count()).map(tuple, schema=SCHEMA)
    assert TimedCalls(fragments_of(two.plan)[1], 1).fragment is None

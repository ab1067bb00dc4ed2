"""Ranges of the order in tags, and where the rows of an output go by them."""

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments.exchange import RangeRoute
from ordstream.ground.ordertags import (
    MOST_RANGES,
    SERIAL_BITS,
    places_and_rests,
    ranges_of,
    source_serial,
    source_serials,
    source_tags,
    step_tags,
    tags_of_places,
    with_index,
)

PLACES = [(0, 1), (0, 2), (1, 3), (7, 4), (MOST_RANGES - 1, 1 << 47)]  # range, serial
SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def tags():
    """Of source tuples, of the third output of each, and of what the end makes two keys emit."""
    places = np.array([(number << SERIAL_BITS) | serial for number, serial in PLACES], dtype=np.int64)
    plain = source_tags(places)
    steps = step_tags(2, pa.array([b"a", b"b"]), np.zeros(2, dtype=np.int64))
    return pa.concat_arrays([plain, with_index(plain, np.full(len(places), 2)), steps])


def test_a_tag_tells_range_and_serial_apart_and_orders_by_both(tags):
    ranges, at_end = ranges_of(tags)
    serials, same = source_serials(tags)
    assert ranges.tolist() == [number for number, _ in PLACES] * 2 + [0, 0]
    assert serials.tolist() == [serial for _, serial in PLACES] * 2 + [0, 0]
    assert at_end.tolist() == same.tolist() == [False] * 10 + [True] * 2
    values = tags.to_pylist()
    assert [source_serial(one) for one in values[:5]] == [serial for _, serial in PLACES]
    assert values[:5] == sorted(values[:5])
    assert max(values[:10]) < values[10] < values[11]


def test_a_tag_in_two_columns_orders_as_it_does(tags):
    place, rest = places_and_rests(tags)
    told = [
        (number is None, number, bytes_)
        for number, bytes_ in zip(place.to_pylist(), rest.to_pylist(), strict=True)
    ]
    index = b"\x00\x00\x00\x02"
    assert [one[1:] for one in told[:10]] == [
        *[((number << SERIAL_BITS) | serial, b"") for number, serial in PLACES],
        *[((number << SERIAL_BITS) | serial, index) for number, serial in PLACES],
    ]
    assert [one[1:] for one in told[10:]] == [(None, tag) for tag in tags.to_pylist()[10:]]
    by_bytes = sorted(range(12), key=lambda k: tags[k].as_py())
    assert sorted(range(12), key=lambda k: (told[k][0], told[k][1] or 0, told[k][2])) == by_bytes
    for low, high in ((0, 5), (5, 10), (2, 4), (10, 12), (0, 0)):  # all of one length: another way
        some = tags.slice(low, high - low)
        places, rests = places_and_rests(some)
        assert places.to_pylist() == place.to_pylist()[low:high]
        assert [one or b"" for one in rests.to_pylist()] == rest.to_pylist()[low:high]


@pytest.mark.parametrize(("low", "high"), [(0, 5), (5, 10), (0, 12), (2, 11), (10, 12), (0, 0)])
def test_two_columns_become_the_tag_again(tags, low, high):
    places, rests = places_and_rests(tags.slice(low, high - low))
    assert tags_of_places(places, rests).to_pylist() == tags.to_pylist()[low:high]
    if high == 5:  # nothing behind any place
        assert tags_of_places(places, None).to_pylist() == tags.to_pylist()[:5]


def test_rows_go_to_their_range_and_what_the_end_causes_behind_them_by_node(tags):
    rows = pa.record_batch({"n": pa.array(range(12))})
    assert RangeRoute(8, 8)(rows, tags).tolist() == [0, 0, 1, 7, 7] * 2 + [
        8,
        8,
    ]  # a range too many: the last
    for node in range(4):
        found = RangeRoute(8, 8, spread=3, own=node)(rows, tags).tolist()
        assert found[10:] == [8 + node % 3] * 2


def test_operators_know_whether_the_end_of_the_stream_makes_them_emit():
    users = od.Pipeline(SOURCE).key_by("user")
    emitting = {
        users.count(emit="final"): True,
        users.count(): False,
        users.scan(seen=od.count()): False,
        users.lag({"before": "n"}): False,
        users.lead({"behind": "n"}): True,
        users.head(3): False,
        users.tail(3): True,
        users.sessionize("ts", 5): True,
        users.aggregate(total=od.sum("n"), emit="final"): True,
        od.Pipeline(SOURCE).filter(od.col("n") > 3): False,
    }
    found = {pipeline: pipeline.plan.operators[-1].emits_at_end for pipeline in emitting}
    assert found == emitting

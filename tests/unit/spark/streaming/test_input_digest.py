"""The digest of a micro-batch's rows: of the values and their order, not of batches."""

import datetime
import decimal

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from ordstream.spark.streaming.input_digest import InputDigest

UTC = datetime.UTC
ZONES = ("UTC", "Etc/UTC", "Europe/Berlin", "+05:30")
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
    "map": pa.array([[("a", 1), ("b", 2)], [], None, [("a", None)]], pa.map_(pa.string(), pa.int64())),
    "time": pa.array([datetime.time(1), None, datetime.time(2, 3, 4, 5), datetime.time(3)], pa.time64("ns")),
}


def instants(zone):
    return pa.timestamp("us", zone)


#: Type for a session's time zone, and values: counts of microseconds.
WITH_INSTANTS = {
    "instant": (instants, [1, None, 3, 4]),
    "map": (
        lambda zone: pa.map_(instants(zone), instants(zone)),
        [[(1, 10**15), (2, None)], [], None, [(3, 4)]],
    ),
    "map of maps": (
        lambda zone: pa.map_(pa.string(), pa.map_(pa.int32(), instants(zone))),
        [[("a", [(1, 5)]), ("b", None)], None, [], [("a", [])]],
    ),
    "list": (lambda zone: pa.list_(instants(zone)), [[1, None], [], None, [2]]),
    "list of maps": (
        lambda zone: pa.list_(pa.map_(pa.string(), instants(zone))),
        [[[("a", 1)], None], [], None, [[("b", 2), ("c", 3)]]],
    ),
    "struct": (
        lambda zone: pa.struct([("t", instants(zone)), ("m", pa.map_(pa.string(), instants(zone)))]),
        [{"t": 1, "m": [("a", 2)]}, None, {"t": None, "m": None}, {"t": 3, "m": []}],
    ),
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


@pytest.mark.parametrize("name", WITH_INSTANTS)
def test_a_session_in_another_time_zone_sees_the_same_rows(name):
    """Maps were digested as texts, in which each instant has the zone: a replay was refused."""
    kind, values = WITH_INSTANTS[name]
    found = [digest(pa.record_batch({"k": pa.array(values, kind(zone))})) for zone in ZONES]
    assert set(found) == {found[0]}
    rows = pa.record_batch({"k": pa.array(values, kind("UTC"))})
    assert digest(rows.slice(0, 1), rows.slice(1, 2), rows.slice(3, 1)) == found[0]
    assert digest(rows.take(pa.array([1, 0, 2, 3]))) != found[0]


def test_maps_that_are_cut_elsewhere_differ():
    kind = pa.map_(pa.string(), pa.int64())
    cuts = [[[("a", 1), ("b", 2)], []], [[("a", 1)], [("b", 2)]], [[], [("a", 1), ("b", 2)]]]
    found = [digest(pa.record_batch({"m": pa.array(maps, kind)})) for maps in cuts]
    others = [[[("a", 1), ("b", 3)], []], [[("a", 1), ("c", 2)], []], [None, [("a", 1), ("b", 2)]]]
    found += [digest(pa.record_batch({"m": pa.array(maps, kind)})) for maps in others]
    assert len(set(found)) == len(found)


def test_equal_times_are_the_same_wherever_they_lie():
    """To numpy they are objects, and the digest was one of pointers."""
    values = [datetime.time(1), datetime.time(2, 3, 4, 5)]
    kept = [pa.record_batch({"t": pa.array(values, pa.time64("ns"))}) for _ in range(4)]
    assert len({digest(rows) for rows in kept}) == 1


def test_digests_that_manifests_have():
    """Of types whose digest never changed; with another one no batch could be replayed after an update."""
    plain = {name: column for name, column in COLUMNS.items() if name not in ("map", "time")}
    assert digest(pa.record_batch(plain))[1] == "1f3aa230b7ffeee7696233246e9a3a6d"

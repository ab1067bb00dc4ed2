"""`explain` writes spans of time as users do; what a stored state tells of its operator stays in units."""

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.duration import time_span, written_span

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("ns")), ("n", pa.int64()), ("v", pa.int64())])
P = od.Pipeline(SCHEMA)
KEYED = P.key_by("k")
HIT, MISS = P.branch(od.col("v") > 1)
COUNT = {"c": od.count()}


@pytest.mark.parametrize(
    ("made", "texts"),
    [
        (
            KEYED.window(od.tumbling("5m"), time="at").aggregate(**COUNT),
            ["tumbling 5m of at", "multiples of 5m"],
        ),
        (
            KEYED.window(od.hopping("1h", every="90s", offset="1s"), time="at").aggregate(**COUNT),
            ["hopping 1h every 1m30s from 1s of at", "multiples of 1s"],
        ),
        (KEYED.window(od.session("30m"), time="at").aggregate(**COUNT), ["session 30m of at"]),
        (KEYED.window(od.rolling("1d12h"), time="at").aggregate(**COUNT), ["rolling 1d12h of at"]),
        (KEYED.window(od.rows(60)).aggregate(**COUNT), ["window by k: rows 60: "]),
        (
            KEYED.window(od.tumbling(300), time="n").aggregate(**COUNT),
            ["tumbling 300 of n", "multiples of 300"],
        ),
        (KEYED.sessionize(time="at", timeout="1h"), ["timeout 1h"]),
        (P.deduplicate("k", within="10s", time="at"), ["within 10s of at", "at multiples of 10s"]),
        (P.deduplicate("k", within="10s", time="at", keep="last"), ["keep last within 10s of at"]),
        (P.reorder("at", slack="1500ms"), ["slack 1s500ms, late"]),
        (HIT.join_asof(MISS, on="k", time="at", tolerance="2s"), ["at most 2s before it"]),
        (
            HIT.join_interval(MISS, on="k", time="at", within=("-1m", "0s")),
            ["- left in [-1m, 0s]", "at multiples of 1m"],
        ),
    ],
)
def test_spans_in_explain(made, texts):
    text = made.explain()
    for wanted in texts:
        assert wanted in text
    assert "000000000" not in text


def test_a_stored_state_tells_units_as_it_always_has():
    """Snapshots of former releases have this text, and another one would be refused."""
    (window,) = KEYED.window(od.tumbling("5m"), time="at").aggregate(**COUNT).plan.operators
    assert "tumbling 300000000000 of at" in window.state_identity()["parameters"]
    (sessions,) = KEYED.sessionize(time="at", timeout="1h").plan.operators
    assert "timeout 3600000000000" in sessions.state_identity()["parameters"]


@pytest.mark.parametrize("type_", [pa.timestamp("s"), pa.timestamp("ns", "UTC"), pa.date32(), pa.date64()])
@pytest.mark.parametrize("units", [0, 1, -1, 59, 3600, 86_400_000, -90_061])
def test_a_written_span_is_read_as_the_same(type_, units):
    field = pa.field("at", type_)
    text = written_span(units, field)
    assert time_span(text, field, "it") == units


def test_spans_without_a_unit_stay_numbers():
    assert written_span(60, pa.field("n", pa.int32())) == "60"
    assert written_span(2**63 - 1, pa.field("at", pa.timestamp("ns"))) == str(2**63 - 1)

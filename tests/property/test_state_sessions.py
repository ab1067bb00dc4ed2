"""The state contract of sessions, rings and pairs: a stream with time punctuations that is cut anywhere, and
goes on in runs that have nothing in common with the ones before, gives what an uninterrupted run gives.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from property.moved_state import goes_on_anywhere, removed_keys_never_came
from state_runs import exact_rows, run_cut

import ordstream as od
from ordstream.testing import run_serial

LEAST, MOST = -(2**63), 2**63 - 1
#: Columns that ascend: type, and the values that they may have. `p` is that of punctuations.
TIMES: dict[str, tuple[pa.DataType, list[int]]] = {
    "p": (pa.int64(), [*range(-20, 20)]),
    "t": (pa.int64(), [LEAST, LEAST, LEAST + 1, *range(-12, 12), MOST - 1, MOST]),
    "v": (pa.uint32(), [*range(20), 2**31 - 1, 2**31, 2**32 - 1]),
    "d": (pa.date32(), [-(2**31), *range(-9, 9), 2**31 - 1]),
    "m": (pa.timestamp("ms", "UTC"), [*range(-15, 15)]),
    "w": (pa.int16(), [-(2**15), *range(-9, 9), 2**15 - 1]),
}
POOLS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i": (pa.int64(), [0, 1, None, LEAST]),
    "u": (pa.uint64(), [0, 2**64 - 1, None]),
    "s": (pa.string(), ["", "a", "häuser", "z" * 50, None]),
    "x": (pa.float64(), [0.0, -0.0, 1.5, math.nan, -math.inf, None]),
    "f": (pa.float32(), [0.0, -0.0, 0.5, math.nan, None]),
    "b": (pa.bool_(), [True, False, None]),
    "y": (pa.int16(), [0, -1, 2, 7, -(2**15), 2**15 - 1]),
    "j": (pa.int32(), [0, 1, -3, None]),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in (TIMES | POOLS).items()])
KEYS = [("i",), ("u",), ("s",), ("f",), ("i", "s"), ("b",), ("b", "j", "x")]
PLAIN: dict[tuple[pa.DataType, ...], pa.DataType] = {
    pa.date32(): pa.int32(),  # type: ignore[index]
    pa.timestamp("ms", "UTC"): pa.int64(),  # type: ignore[index]
}
CONDITION = od.col("y") >= 0
#: Of 64 bits, and no sum that may overflow: such sessions lie in slots.
PLAIN_AGGREGATES = {
    "n": od.count(),
    "n_x": od.count("x", where=CONDITION),
    "sum_x": od.sum("x", where=od.col("b")),
    "min_u": od.min("u", where=CONDITION),
    "first_i": od.first("i"),
    "last_t": od.last("t", where=od.col("j") == 0),
    "max_i": od.max("i", where=CONDITION),
}
AGGREGATES = PLAIN_AGGREGATES | {
    "sum_y": od.sum("y"),
    "mean_j": od.mean("j", where=CONDITION),
    "min_f": od.min("f"),
    "last_b": od.last("b", where=CONDITION),
    "first_d": od.first("d"),
}


@st.composite
def tables(draw: Any) -> pa.Table:
    n = draw(st.integers(2, 90))
    columns = []
    for type_, pool in (TIMES | POOLS).values():
        picks = draw(st.binary(min_size=n, max_size=n))
        values = [pool[pick % len(pool)] for pick in picks]
        columns.append(pa.array(values, PLAIN.get(type_, type_)).cast(type_))
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    for name in TIMES:
        ascending = table[name].combine_chunks().sort()
        table = table.set_column(table.column_names.index(name), SCHEMA.field(name), ascending)
    return table


@st.composite
def sessions(draw: Any, built: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    pool = draw(st.sampled_from([PLAIN_AGGREGATES, PLAIN_AGGREGATES, AGGREGATES]))
    names = draw(st.lists(st.sampled_from(sorted(pool)), max_size=5, unique=True))
    collect = draw(st.just([]) | st.lists(st.sampled_from("tvdmwy"), max_size=3, unique=True))
    time = draw(st.sampled_from("tttvdmw"))
    timeout = draw(st.sampled_from([0, 1, 3, 10, 2**63 - 1 if time == "t" else 2**15]))
    collected = {f"list_{column}": column for column in collect}
    return built.key_by(*key).sessionize(
        time, timeout, collected, aggregate={name: pool[name] for name in names}
    )


@st.composite
def rings(draw: Any, built: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    columns = draw(st.lists(st.sampled_from("tvdmwyiuxfbj"), min_size=1, max_size=5, unique=True))
    time = draw(st.none() | st.sampled_from("tvdmw"))
    return built.key_by(*key).preceding(
        draw(st.sampled_from([1, 2, 3, 5, 40, 1000])),
        {f"past_{column}": column for column in columns},
        carry=["p", *draw(st.lists(st.sampled_from("suyx"), max_size=2, unique=True))],
        time=time,
        within=None if time is None else draw(st.sampled_from([0, 2, 20])),
        when=draw(st.sampled_from([None, CONDITION])),
        where=draw(st.sampled_from([None, od.col("b"), od.col("y") > -2])),
    )


@st.composite
def pairs(draw: Any, built: od.Pipeline, key: tuple[str, ...]) -> od.Pipeline:
    column = draw(st.sampled_from("tvdmwyixfj"))
    carry = draw(st.lists(st.sampled_from("psy"), max_size=2, unique=True))
    return built.filter(od.col(column).is_not_null()).key_by(*key).pair_up(column, carry=carry)


@st.composite
def pipelines(draw: Any) -> od.Pipeline:
    """Perhaps a filter, then sessions, a ring or pairs, then perhaps a scan that keeps all columns."""
    built = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        built = built.filter(od.col("y") != draw(st.integers(-1, 2)))
    kind = draw(st.sampled_from([sessions, sessions, rings, pairs]))
    built = draw(kind(built, draw(st.sampled_from(KEYS))))
    if draw(st.integers(0, 3)) == 0:
        built = built.key_by(built.schema.names[-1 if kind is rings else 0]).scan(so_many=od.count())
    event(kind.__name__)
    return built


def punctuated(draw: Any, table: pa.Table) -> tuple[int | None, list[int]]:
    """The period of time punctuations, if any, and where the stream may be cut: a run knows the time of no
    tuple before its first one, so not where a punctuation would have come.
    """
    period = draw(st.sampled_from([None, 1, 2, 5, 5, 20]))
    if period is None:
        return None, [*range(len(table) + 1)]
    ticks = [time // period for time in table["p"].to_pylist()]
    return period, [0, *(i for i in range(1, len(table)) if ticks[i] == ticks[i - 1]), len(table)]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    period, places = punctuated(data.draw, table)
    punctuate = None if period is None else od.every("p", period)
    goes_on_anywhere(data.draw, table, pipeline, places=places, punctuate=punctuate)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    kind = data.draw(st.sampled_from([sessions, rings, pairs]))
    pipeline = data.draw(kind(od.Pipeline(SCHEMA), key))
    table = table.filter(pc.and_(*[pc.is_valid(table[column]) for column in "ix"]))  # for pairs of them
    for column in "fj":
        table = table.filter(pc.is_valid(table[column])) if kind is pairs else table
    assume(len(table) > 1)
    removed_keys_never_came(data.draw, table, pipeline)  # no punctuation: it shows a time to other keys


@pytest.mark.parametrize("way", [{"workers": 0, "buckets": 1}, {"workers": 2, "buckets": 3}], ids=str)
@pytest.mark.parametrize("share", [0.02, 0.4, 0.9])
@pytest.mark.parametrize(
    "build",
    [
        lambda p: p.key_by("k").sessionize("t", 3, aggregate={"n": od.count()}),
        lambda p: p.key_by("k").sessionize("t", 3, {"all": "t"}),
        lambda p: p.key_by("s").sessionize("t", 3, {"all": "t"}),
    ],
)
@pytest.mark.thin(8)
def test_keys_that_stay_are_found_behind_those_that_leave(build, share, way):
    """Many keys in one table: of those that were there a share leaves at each punctuation, others come."""
    rng = random.Random(share)
    rows, time = [], 0
    for _ in range(12):
        time += 5
        if rows:
            rows += [(key, time - 1) for key in sorted({key for key, _ in rows}) if rng.random() > share]
        rows += [(rng.randrange(3000), time) for _ in range(300)]
    keys, times = zip(*rows, strict=True)
    data = pa.table({"k": keys, "s": list(map(str, keys)), "t": times})
    pipeline = build(od.Pipeline(data.schema))
    punctuate = od.every("t", 5)
    result = run_serial(pipeline, data, punctuate=punctuate)
    assert result.error is None
    wanted = exact_rows([result.table], pipeline.schema)
    for cut in (0, 2000):
        cut += next(i for i in range(len(rows)) if times[cut + i] // 5 == times[max(cut + i, 1) - 1] // 5)
        batches, _ = run_cut(pipeline, data, [cut], [{**way, "punctuate": punctuate}])
        assert exact_rows(batches, pipeline.schema) == wanted

"""A stored state and the operator that goes on from it: what may have changed, and what is refused with
what differs.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from state_runs import Segment

import ordstream as od

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("y", pa.int32()), ("s", pa.string())])
FIELDS = {"n": pa.int64(), "last": pa.string()}


def operator(build, schema=SCHEMA, key=("k",)):
    pipeline = od.Pipeline(schema)
    return build(pipeline.key_by(*key) if key else pipeline).plan.operators[-1]


def adapted(stored, now):
    return now.adapt_state(stored.state_identity(), stored.state_schema())


def refusal(stored, now):
    with pytest.raises(od.CheckpointError) as raised:
        adapted(stored, now)
    assert f"operator {now.name!r}" in str(raised.value)
    assert str(raised.value).endswith("or begin anew with another folder")
    assert "another name" not in str(raised.value)
    return str(raised.value)


def aggregate(*, emit="updates", **aggregations):
    return lambda keyed: keyed.aggregate(emit=emit, name="a", **aggregations)


def counts(emit):
    return lambda keyed: keyed.count("n", emit=emit, name="c")


def process(fn=None, *, state=FIELDS, version=None, compiled=False, on_flush=None):
    def build(keyed):
        return keyed.process(
            fn or writes,
            schema={"n": pa.int64()},
            state=state,
            version=version,
            compiled=compiled,
            on_flush=on_flush,
            name="p",
        )

    return build


def writes(row, state, emit):
    state.n += 1


def flushes(key, state, emit):
    emit(state.n)


def text_codec():
    return od.codec(lambda state: json.dumps(state).encode(), json.loads, dict)


# ---------------------------------------------------------------------------------------------- the same


@pytest.mark.parametrize(
    ("stored", "now"),
    [
        (aggregate(n=od.count(), m=od.mean("x", where=od.col("y") > 0)),) * 2,
        (aggregate(n=od.count()), aggregate(n=od.count(), emit="final")),
        (counts("updates"), counts("final")),
        (lambda p: p.forward_fill("x", "s"),) * 2,
        (process(), process(lambda row, state, emit: None)),
        (process(version="2"), process(version=2)),
        (process(state=text_codec()), process(state=text_codec())),
        (process(state={"n": int}, compiled=True),) * 2,
    ],
)
def test_what_a_state_does_not_depend_on_may_change(stored, now):
    stored, now = operator(stored), operator(now)
    rows = pa.RecordBatch.from_pylist([], stored.state_schema())
    assert adapted(stored, now)(rows).equals(rows)


def test_a_rewrite_for_an_operator_behind_does_not_show():
    count = operator(counts("updates"))
    best = count.keeping_best(len(count.key), 3)
    assert best.best == 3
    assert best.state_identity() == count.state_identity()


def test_nullability_is_not_part_of_a_state():
    strict = pa.schema([field.with_nullable(False) for field in SCHEMA])
    stored, now = operator(aggregate(n=od.max("y"))), operator(aggregate(n=od.max("y")), strict)
    rows = pa.RecordBatch.from_pylist([{"k": 1, "n": 2}], stored.state_schema())
    assert adapted(stored, now)(rows).schema.equals(now.state_schema())


# ---------------------------------------------------------------------------------------------- appended


@pytest.mark.parametrize("method", ["aggregate", "scan"])
@pytest.mark.parametrize("key", [("k",), ()])
def test_appended_aggregates_begin_empty_and_cover_what_comes(method, key):
    """Against aggregates that have a second operator of their own, which begins with the second half."""
    first = {"n": od.count(), "m": od.mean("x")}
    more = {"t": od.sum("y"), "q": od.mean("y"), "c": od.count("s"), "f": od.first("x")}

    def built(aggregations):
        pipeline = od.Pipeline(SCHEMA)
        return getattr(pipeline.key_by(*key) if key else pipeline, method)(name="a", **aggregations)

    data = pa.table(
        {"k": [1, 2, 1, 1, 3], "x": [1.0, 2.0, None, 4.0, 5.0], "y": [1, 2, 3, 4, 5], "s": ["", *"abcd"]}
    ).cast(SCHEMA)
    with Segment(built(first), workers=0) as segment:
        segment.push(data.slice(0, 2))
        stored = segment.state()["a"]
        old = segment.stages["a"][1]
    pipeline = built({**first, **more})
    now = pipeline.plan.operators[0]
    rows = pa.Table.from_batches([adapted(old, now)(batch) for batch in stored.to_batches()])
    assert rows.schema.equals(now.state_schema())
    empty = {"t": None, "q.sum": None, "q.count": 0, "c": 0, "f": None}  # as where no value came
    assert rows.select(list(empty)).to_pylist() == [empty] * len(stored)
    with Segment(pipeline, workers=0) as segment:
        segment.install({"a": rows})
        assert segment.state_of("a").equals(rows)
        segment.push(data.slice(2))
        found = pa.Table.from_batches(segment.batches).to_pylist()
    sums = [3, 7, 5] if key else [3, 7, 12]
    assert [row["t"] for row in found] == sums
    assert [row["n"] for row in found] == ([2, 3, 1] if key else [3, 4, 5])
    assert [row["q"] for row in found] == ([3.0, 3.5, 5.0] if key else [3.0, 3.5, 4.0])
    assert [row["c"] for row in found] == ([1, 2, 1] if key else [1, 2, 3])
    assert [row["f"] for row in found] == ([None, 4.0, 5.0] if key else [None, 4.0, 4.0])


@pytest.mark.parametrize(
    ("stored", "now", "difference"),
    [
        (
            {"n": od.count(), "m": od.sum("y")},
            {"m": od.sum("y"), "n": od.count()},
            "aggregate 1: stored n = count(), the pipeline has m = sum(y: int32)",
        ),
        (
            {"n": od.count(), "m": od.sum("y")},
            {"n": od.count()},
            "aggregate 2: stored m = sum(y: int32), the pipeline has nothing",
        ),
        (
            {"m": od.sum("y")},
            {"m": od.sum("y", where=od.col("x") > 0), "n": od.count()},
            "aggregate 1: stored m = sum(y: int32), the pipeline has m = sum(y: int32) where (x > 0)",
        ),
        (
            {"m": od.max("y")},
            {"m": od.max("x")},
            "column 2: stored m: int32, the pipeline has m: double",
        ),
    ],
)
def test_other_aggregates_are_refused(stored, now, difference):
    assert difference in refusal(operator(aggregate(**stored)), operator(aggregate(**now)))


# ---------------------------------------------------------------------------------------------- refused


def test_another_key_is_refused():
    stored = operator(counts("updates"))
    text = refusal(stored, operator(counts("updates"), key=("k", "y")))
    assert "key: stored k: int64, the pipeline has k: int64, y: int32" in text
    wider = SCHEMA.set(0, pa.field("k", pa.string()))
    assert "key: stored k: int64, the pipeline has k: string" in refusal(
        stored, operator(counts("updates"), wider)
    )
    assert "key: stored k: int64, the pipeline has none" in refusal(
        stored, operator(counts("updates"), key=())
    )


def test_another_operator_is_refused():
    stored = operator(aggregate(n=od.count()))
    assert "operator: stored aggregate, the pipeline has count" in refusal(
        stored, operator(counts("updates"))
    )
    now = operator(lambda keyed: keyed.count().filter(od.col("k") > 0, name="a"))
    assert "operator: stored aggregate, the pipeline has nothing" in refusal(stored, now)


@pytest.mark.parametrize(
    ("stored", "now", "difference"),
    [
        (process(version=1), process(version="1b"), "version: stored 1, the pipeline has 1b"),
        (process(), process(version=1), "version: stored nothing, the pipeline has 1"),
        (process(version=1), process(), "version: stored 1, the pipeline has nothing"),
        (
            process(),
            process(state={"n": pa.int32(), "last": pa.string()}),
            "column 2: stored n: int64, the pipeline has n: int32",
        ),
        (process(), process(state=text_codec()), "state: stored declared fields, the pipeline has bytes of"),
        (
            process(state={"state": pa.binary()}),
            process(state=text_codec()),
            "state: stored declared fields, the pipeline has bytes of a codec",
        ),
        (
            process(state={"n": int}, compiled=True),
            process(state={"n": int}, compiled=True, on_flush=flushes),
            "the pipeline has declared fields of all keys",
        ),
    ],
)
def test_another_version_or_form_of_a_functions_state_is_refused(stored, now, difference):
    assert difference in refusal(operator(stored), operator(now))


def test_undeclared_state_is_refused_by_name():
    undeclared = operator(process(state=None))
    assert not undeclared.can_snapshot
    with pytest.raises(od.PlanError, match=r"operator 'p' .*declare the fields .*or give od\.codec"):
        undeclared.state_schema()
    with pytest.raises(od.PlanError, match="declare the fields"):
        adapted(operator(process()), undeclared)


@pytest.mark.parametrize("version", [True, 1.5, b"1", ("1",)])
def test_a_version_is_text_or_a_whole_number(version):
    with pytest.raises(od.PlanError, match="p: version must be a str or an int"):
        operator(process(version=version))

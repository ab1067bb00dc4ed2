"""Graphs over nodes: branches, unions and joins of rows that share a key run in several nodes, and give what
`run_serial` gives, order tags and errors included. Windows and flushes on any branch, chains behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from property.compare import exact_rows, large
from property.drawn_options import PARTITIONINGS, SCHEDULERS
from random_moves import RandomMoves

import ordstream as od
from ordstream.errors import OperatorError, PlanError, SourceError
from ordstream.fragments.balancing import movable
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.node.merging import MergedSources
from ordstream.pipeline.runs import fed
from ordstream.testing import run_serial

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())])
TEXTS = SCHEMA.set(0, pa.field("k", pa.string()))
#: Each gives the columns of its schema again, so that any two streams can be united.
STEPS = (
    "{p}.filter(od.col('v') > {n})",
    "{p}.with_columns(v=od.col('v') + {n})",
    "{p}.select('k', 'j', 'ts', v=60 // (od.col('v') + {n}))",  # fails, for some
    "{p}.flat_map(twice, schema={p}.schema)",
    "{p}.map(fails, schema={p}.schema, on_error='skip')",
    "{p}.key_by('k').process(counted, state={{'c': int}}, schema={p}.schema, on_error='skip')",
    "{p}.key_by('k').scan(c=od.count()).select('k', 'j', 'ts', v='c')",
    "{p}.key_by('k', 'j').scan(c=od.sum('v')).select('k', 'j', 'ts', v='c')",
    "{p}.key_by('k').tail({n} + 1)",
    "{p}.key_by('j', 'k').lead('v', n={n} + 1).select('k', 'j', 'ts', v='v_lead')",
    "{p}.key_by('k').window(od.tumbling({n} + 1), time='ts').aggregate(j=od.last('j'), v=od.count())"
    ".select('k', 'j', ts='end', v='v')",
    "{p}.key_by('k').window(od.rolling({n} + 1), time='ts').aggregate(c=od.count())"
    ".select('k', 'j', 'ts', v='c')",
    "{p}.deduplicate(['k', 'j'], within={n} + 1, time='ts')",
)
#: Behind a graph, where its rows are cut again.
BEHIND = ("{p}.key_by('j').scan(c=od.count())", "{p}.top_k(3, by='v')", "{p}.key_by('v').count()")


def twice(row: Any) -> list[Any]:
    return [tuple(row)] * (1 + row.v % 2 if row.v is not None else 0)


def fails(row: Any) -> Any:
    return (row.k, row.j, row.ts, 6 // row.v)  # of null and 0 not


def counted(row: Any, state: Any, emit: Any) -> None:
    state.c += 1
    if row.v == 0:
        raise ValueError("0")
    emit(row.k, row.j, row.ts, state.c)


def step(draw: Any, p: Any, of: tuple[str, ...]) -> Any:
    text = draw(st.sampled_from(of)).format(p="p", n=draw(st.integers(0, 4)))
    return eval(text, {"od": od, "p": p, "twice": twice, "fails": fails, "counted": counted})


def grown(draw: Any, p: Any, depth: int) -> Any:
    for _ in range(draw(st.integers(0, 2))):
        p = step(draw, p, STEPS)
    if depth == 0:
        return p
    a, b = (p, p) if draw(st.booleans()) else p.branch(od.col("v") > draw(st.integers(0, 4)))
    a, b = grown(draw, a, depth - 1), grown(draw, b, depth - 1)
    if draw(st.integers(0, 2)):
        return grown(
            draw, od.union(*draw(st.permutations([a, b, *([a] if draw(st.booleans()) else [])]))), 0
        )
    how, reach = draw(st.sampled_from(("inner", "left", "right", "full"))), draw(st.integers(0, 3))
    joined = a.join_interval(b, on="k", within=(-reach, reach), how=how, time="ts")
    ts = od.col("ts").coalesce(od.col("ts_right"))
    return grown(draw, joined.select("k", "j", ts=ts, v="v_right"), 0)


@st.composite
def tables(draw: Any, schema: pa.Schema = SCHEMA) -> pa.Table:
    """Also without rows, with one, and with a hot key."""
    rows = draw(st.sampled_from((0, 1)) | st.integers(0, 30))
    steps = st.lists(st.integers(0, 4), min_size=rows, max_size=rows)
    small = st.lists(st.none() | st.integers(0, 3), min_size=rows, max_size=rows)
    ts, now = [], 0
    for delta in draw(steps):
        now += delta
        ts.append(now)
    keys = [2] * rows if draw(st.integers(0, 3)) == 0 else draw(small)
    if schema is TEXTS:
        keys = [None if key is None else "é" * key for key in keys]
    return pa.table([keys, draw(small), ts, draw(small)], schema=schema)


@st.composite
def long_tables(draw: Any) -> pa.Table:
    """Of enough rows for keys to move several times."""
    chance = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    rows = draw(st.sampled_from((60, 200)))
    k, j, v = (chance.integers(0, most, rows) for most in (draw(st.sampled_from((2, 9))), 4, 5))
    ts = np.cumsum(chance.integers(0, 3, rows))
    if draw(st.booleans()):
        return pa.table([k, j, ts, v], schema=SCHEMA)
    return pa.table([["é" * int(key) for key in k], j, ts, v], schema=TEXTS)


def drawn(draw: Any, table: pa.Table, least: int) -> tuple[Any, Any, Any, Any]:
    """A pipeline of `least` to 2 levels of branches, its punctuations, its answer and its fragments."""
    pipeline = grown(draw, od.Pipeline(table.schema), draw(st.integers(least, 2)))
    if draw(st.booleans()):
        pipeline = step(draw, pipeline, BEHIND)
    punctuate = od.every("ts", 3) if draw(st.booleans()) else None
    try:
        expected = run_serial(pipeline, table, punctuate=punctuate)
        return pipeline, punctuate, expected, fragments_of(pipeline.plan)
    except PlanError:
        assume(False)  # tests/unit/fragments/test_graph_cut.py says which are cut
        raise


def given_in_front(here: SameProcess, expected: Any) -> None:
    """A failed run has no output; but so many rows were given, and its commit point says which."""
    assert here.driver.rows_out == len(expected.tags)
    assert here.driver.report(0.0).emitted_through == expected.emitted_through


def check(
    pipeline: Any, data: Any, expected: Any, how: Any, moving: dict[str, Any] | None = None, **options: Any
) -> None:
    nodes, seed, block_rows, channel_bytes = how
    failure: Any = None
    here = SameProcess(seed)
    try:
        found = run_here(
            pipeline, data, nodes, {"tags": True, **options}, here=here,
            block_rows=block_rows, channel_bytes=channel_bytes, **(moving or {}),
        )  # fmt: skip
    except (OperatorError, SourceError) as error:
        failure = error
    assert type(failure) is type(expected.error)
    if isinstance(failure, OperatorError):
        assert (failure.operator, failure.serial) == (expected.error.operator, expected.error.serial)
    if failure is not None:
        given_in_front(here, expected)
        return
    tags = zip(found.table["_serial"].to_pylist(), found.table["_index"].to_pylist(), strict=True)
    assert list(tags) == expected.tags
    schema = expected.schema
    rows = [batch.select(list(range(len(schema)))) for batch in found.batches]
    assert exact_rows(rows, schema) == exact_rows(expected.table.to_batches(), schema)
    assert found.report.emitted_through == expected.emitted_through


#: Each takes some hundredths of a second.
FEW = large(max_examples=max(20, settings.default.max_examples // 2))
HOW = st.tuples(
    st.sampled_from((1, 2, 4)), st.none() | st.integers(0, 99), st.sampled_from((1, 5)),
    st.sampled_from((None, 1)),
)  # fmt: skip


@FEW
@given(st.data(), tables() | tables(TEXTS), HOW)
def test_graphs_with_one_key(data, table, how):
    pipeline, punctuate, expected, fragments = drawn(data.draw, table, least=1)
    assert any(fragment.plan.is_graph for fragment in fragments) or not pipeline.plan.is_graph
    workers = data.draw(st.sampled_from((0, 0, 2)))
    check(pipeline, table, expected, how, punctuate=punctuate, workers=workers, chunk_rows=data.draw(
        st.sampled_from((None, 1, 3))))  # fmt: skip


#: Of each node.
OPTIONS = st.fixed_dictionaries({
    "workers": st.sampled_from((0, 0, 1, 2, 4)),
    "chunk_rows": st.sampled_from((None, 1, 3)),
    "scheduler": st.sampled_from(SCHEDULERS),
    "partitioning": st.sampled_from(PARTITIONINGS),
    "buckets": st.sampled_from((None, 1, 7)),
})  # fmt: skip


def moves(draw: Any, fragments: Any, nodes: int) -> dict[str, Any] | None:
    """Keys of all keyed fragments change their node, at random, at every report."""
    try:
        keyed = movable(fragments, nodes)
    except PlanError:
        return None
    seed, interval = draw(st.integers(0, 1000)), draw(st.sampled_from((1, 4, 20)))
    return {"balance": {k: RandomMoves(seed + k, nodes) for k in keyed}, "interval": interval}


@FEW
@given(st.data(), long_tables(), HOW)
def test_keys_of_a_graph_that_move_all_the_time(data, table, how):
    pipeline, punctuate, expected, fragments = drawn(data.draw, table, least=1)
    moving = moves(data.draw, fragments, how[0])
    assume(moving is not None and all(one.can_snapshot for of in fragments for one in of.operators))
    options = data.draw(OPTIONS)
    check(pipeline, table, expected, how, moving, punctuate=punctuate, **options)


@FEW
@given(st.data(), tables(), tables(), HOW)
def test_two_sources_that_share_a_key(data, left, right, how):
    a, b = (od.Pipeline(SCHEMA, source=name) for name in "ab")
    pipeline = grown(data.draw, a, 0).join_asof(grown(data.draw, b, 0), on="k", time="ts")
    sources = {"a": left, "b": right}
    try:
        expected = run_serial(pipeline, sources, merge_by="ts")
        plan, merged = fed(pipeline.plan, sources, "ts")
        assert isinstance(merged, MergedSources)
        moving = None
        if data.draw(st.booleans()) and all(one.can_snapshot for one in plan.operators):
            moving = moves(data.draw, fragments_of(plan), how[0])
        check(od.Pipeline.of(plan), merged, expected, how, moving)
    except PlanError:
        assume(False)


@FEW
@given(st.data(), tables() | tables(TEXTS), st.integers(1, 3), st.integers(0, 99))
def test_what_the_tasks_of_spark_make_of_a_graph(data, table, nodes, seed):
    pytest.importorskip("pyspark")
    from spark_steps import run_as_spark_does

    pipeline, punctuate, expected, _ = drawn(data.draw, table, least=0)
    if expected.error is not None:  # which of several comes first is open
        with pytest.raises(type(expected.error)):
            run_as_spark_does(pipeline, table, nodes, seed, punctuate=punctuate)
        return
    found = run_as_spark_does(pipeline, table, nodes, seed, punctuate=punctuate)
    *columns, serials, indexes = found.columns
    assert [*zip(serials.to_pylist(), indexes.to_pylist(), strict=True)] == expected.tags
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    assert [*rows] == [tuple(row) for row in expected.rows]


@FEW
@given(st.data(), tables() | tables(TEXTS) | long_tables(), st.tuples(HOW, HOW))
def test_a_graph_goes_on_from_what_other_nodes_have_left(data, table, how):
    """Over nodes and in one, in two parts."""
    pipeline = grown(data.draw, od.Pipeline(table.schema), data.draw(st.integers(1, 2)))
    at = data.draw(st.integers(0, len(table)))
    parts: list[Any] = []
    try:
        expected = run_serial(pipeline, table)
        fragments = fragments_of(pipeline.plan)
        for part, (nodes, seed, block_rows, channel_bytes) in enumerate(how):
            rows, options = (table.slice(0, at), table.slice(at))[part], {"tags": True}
            options |= {"restore": parts[0].snapshot} if part else {"end": "suspend"}
            if data.draw(st.booleans()):
                parts.append(pipeline.run(rows, **options))
                continue
            moving = moves(data.draw, fragments, nodes) if data.draw(st.booleans()) else None
            made = run_here(
                pipeline, rows, nodes, options, seed=seed, block_rows=block_rows,
                channel_bytes=channel_bytes, **(moving or {}),
            )  # fmt: skip
            parts.append(made)
    except PlanError:
        assume(False)
    except (OperatorError, SourceError) as failure:
        assert type(failure) is type(expected.error)  # noqa: PT017
        return
    assert expected.error is None
    found = [tuple(row.values()) for part in parts for row in part.table.to_pylist()]
    assert found == [(*row, *tag) for row, tag in zip(expected.rows, expected.tags, strict=True)]

"""Clocks that are computed, and that leave `reorder`, over several nodes: the windows and timers of one
node, in values, order and tags.
"""

from __future__ import annotations

import itertools
import random

import pyarrow as pa
import pytest
from property.compare import agree, outcome_of, same_error
from unit.operators.test_clocks import computed, generated
from unit.operators.test_timers import timed
from unit.operators.test_window import SCHEMA, per_key, rows

import ordstream as od
from ordstream.balance.mixed.controller import Controller
from ordstream.errors import OperatorError, SourceError
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.same_process import run_here
from ordstream.node.polled_stream import PolledStream
from ordstream.testing import run_serial

#: (nodes, seed of their turns, rows of a block, bytes of a channel, options)
WAYS = (
    (1, None, 1000, None, {}),
    (2, 3, 7, 1, {}),
    (3, None, 50, 200, {"chunk_rows": 5, "workers": 2}),
    (3, 11, 4, None, {"chunk_rows": 1}),
)


ROWS = 140


def drawn(jitter=0):
    return generated(ROWS, jitter=jitter)


def over_nodes(pipeline, data, least=2):
    """The output of all ways is that of one node; nothing is refused, and there are `least` fragments."""
    assert len(fragments_of(pipeline.plan)) >= least
    expected = run_serial(pipeline, data)
    for nodes, seed, block_rows, channel_bytes, options in WAYS:
        try:
            found = run_here(
                pipeline, data, nodes, {"tags": True, **options},
                seed=seed, block_rows=block_rows, channel_bytes=channel_bytes,
            )  # fmt: skip
        except (OperatorError, SourceError) as error:
            same_error(pipeline, expected.error, error)
            continue
        agree(pipeline, expected, outcome_of(pipeline, found.batches, report=found.report), reports=False)
    return expected


def reordered(source=None, slack=8, **options):
    return (source or od.Pipeline(SCHEMA)).reorder("ts", slack=slack, **options)


# ---------------------------------------------------------------------------------------------- computed


@pytest.mark.parametrize(
    "kind", [od.tumbling(6), od.tumbling(6, offset=1), od.hopping(8, every=4, offset=3), od.session(3)]
)
def test_windows_by_a_computed_clock(kind):
    pipeline = per_key(kind, source=computed(), emit="both", n=od.count(), s=od.sum("x"))
    assert over_nodes(pipeline.key_by("n").scan(m=od.count()), drawn(), least=3).rows


def test_a_computed_clock_closes_windows_of_keys_in_other_nodes():
    pipeline = per_key(od.tumbling(20), source=computed())
    found = over_nodes(pipeline, rows((1, "a", 1), (25, "z", -1), (26, "b", 1)))
    assert found.rows == [("a", 0, 20, 1), ("b", 40, 60, 1)]
    assert [serial for serial, _ in found.tags] == [2, 3]


def test_a_null_or_a_failing_expression_moves_no_clock():
    source = od.Pipeline(SCHEMA).filter(od.col("x") > 0).with_columns(t=100 // od.col("x") + od.col("ts"))
    data = rows((0, "a", 50), (30, "b", 0), (None, "b", 1), (20, "b", 50), (30, "c", 50))
    assert over_nodes(per_key(od.tumbling(10), source=source, time="t"), data).error is not None
    skips = source.key_by("k").window(od.tumbling(10), time="t").aggregate(n=od.count(), on_error="skip")
    assert [serial for serial, _ in over_nodes(skips, data).tags] == [4, 5, 5]


def test_a_computed_clock_that_runs_backwards():
    source = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") - od.col("x"))
    pipeline, data = per_key(od.tumbling(10), source=source, time="t"), rows((5, "a", 1), (6, "a", 4))
    error = over_nodes(pipeline, data).error
    assert "tuple 2 of the source: column 't' runs backwards: 2 after 4; the clock of 'window_2'" in str(
        error
    )


def test_strings_days_and_empty_blocks():
    schema = pa.schema({"s": pa.large_string(), "k": pa.string(), "d": pa.date32()})
    texts = ["a", "bb", None, "dddd", "e" * 9, "f" * 30]
    days = pa.array([1, 2, 3, 4, 40, 41], pa.int32()).cast(pa.date32())
    data = pa.table([pa.array(texts, pa.large_string()), list("aabbcc"), days], schema=schema)
    upper = od.Pipeline(schema).with_columns(n=od.col("s").str.upper())
    by_text = upper.with_columns(n=od.col("n").str.length().cast(pa.int16())).filter(
        od.col("s").is_not_null()
    )
    assert over_nodes(per_key(od.tumbling(3), source=by_text, time="n"), data).rows
    by_day = od.Pipeline(schema).with_columns(m=od.col("d").dt.truncate("1w"))
    assert len(over_nodes(per_key(od.tumbling("7d"), source=by_day, time="m"), data).rows) == 4


def test_of_two_clocks_of_branches_the_column_s_closes_over_nodes_too():
    """The fragment behind has the window by the computed time alone."""
    low, high = od.Pipeline(SCHEMA).branch(od.col("x") < 5)
    made = high.with_columns(t=od.col("ts") + 5)
    a = low.with_columns(t=od.col("ts")).key_by("k").window(od.rolling(5), time="t").aggregate(n=od.count())
    b = made.key_by("k").window(od.rolling(5), time="t").aggregate(n=od.count())
    pipeline = per_key(od.tumbling(7), source=od.union(a, b), by="x", time="ts")
    over_nodes(pipeline, drawn())


# ---------------------------------------------------------------------------------------------- reorder


@pytest.mark.parametrize("late", ["drop", "adjust"])
@pytest.mark.parametrize(
    "kind", [od.tumbling(6), od.tumbling(6, offset=1), od.hopping(8, every=4, offset=3), od.session(3)]
)
@pytest.mark.thin(2)
def test_windows_behind_reorder(kind, late):
    data = drawn(jitter=12)
    source = reordered(late=late).filter(od.col("x") > 2)
    pipeline = per_key(kind, source=source, emit="both", n=od.count(), s=od.sum("x"))
    assert over_nodes(pipeline, data).rows
    # a second cut, behind the windows and in front of them
    assert over_nodes(pipeline.key_by("n").scan(m=od.count()), data, least=4).rows
    rolls = source.key_by("x").window(od.rolling(5), time="ts").aggregate(r=od.count())
    assert over_nodes(per_key(kind, source=rolls, n=od.count(), s=od.sum("r")), data, least=4).rows


def test_rows_that_one_tuple_lets_go_have_marks_among_them():
    pipeline = per_key(od.tumbling(10), source=reordered(slack=100))
    data = rows((31, "d", 1), (1, "a", 1), (12, "b", 1), (21, "c", 1), (140, "z", 1))
    found = over_nodes(pipeline, data)
    assert found.rows == [(k, t, t + 10, 1) for k, t in zip("abcdz", (0, 10, 20, 30, 140), strict=True)]
    assert [serial for serial, _ in found.tags] == [5, 5, 5, 5, 5]


def test_marks_without_rows_between_them():
    """What a filter in the node of the reorder drops moves the clock: several marks at one place."""
    source = reordered(slack=0).filter(od.col("x") > 0)
    pipeline = per_key(od.session(1), source=source)
    data = rows((-9, "a", 1), (-5, "z", -1), (-3, "b", 1), (0, "z", -1), (8, "z", -1), (9, "c", 1))
    found = over_nodes(pipeline, data)
    assert [serial for serial, _ in found.tags][:2] == [2, 4]


def test_windows_in_front_of_reorder_and_behind_have_their_own_clocks():
    schema = pa.schema([*SCHEMA, pa.field("at", pa.int64())])
    rng = random.Random(5)
    made = drawn().append_column("at", pa.array([i - rng.randrange(9) for i in range(ROWS)]))
    front = per_key(od.tumbling(5), source=od.Pipeline(schema), emit="both", at=od.last("at"), n=od.count())
    behind = per_key(
        od.tumbling(7), source=front.reorder("at", slack=9, late="drop"), time="at", m=od.sum("n")
    )
    assert over_nodes(behind, made, least=4).rows  # also those that the end of the stream lets go


def test_a_reorder_behind_another_has_its_own_clock():
    one = per_key(od.tumbling(5), source=reordered(late="adjust"), emit="both", n=od.count())
    two = one.with_columns(at=od.col("end") - od.col("n") * 3).reorder("at", slack=9, late="drop")
    pipeline = per_key(od.hopping(10, every=5), source=two, by="n", time="at", emit="both", m=od.count())
    assert over_nodes(pipeline, drawn(jitter=9), least=5).rows


def test_a_window_without_key_beside_the_reorder_and_one_behind():
    alone = per_key(od.tumbling(6), source=reordered(), by=None, n=od.count(), k=od.last("k"))
    pipeline = per_key(od.tumbling(9), source=reordered().filter(od.col("x") > 1))
    for one in (alone.key_by("k").scan(m=od.count()), pipeline):
        assert over_nodes(one, drawn(jitter=6)).rows


def test_timers_and_errors_behind_reorder():
    data = drawn(jitter=6)
    assert over_nodes(timed(source=reordered(), every=4), data).rows
    failing = reordered(slack=2, late="drop").with_columns(x=10 // (od.col("x") - 3))
    assert over_nodes(per_key(od.tumbling(3), source=failing), data).error is not None
    assert over_nodes(per_key(od.tumbling(3), source=reordered(slack=2)), data).error is not None


def test_more_marks_than_rows_of_a_chunk():
    n = 300
    data = pa.table(
        [pa.array(range(n)), pa.array(["a", "b", "c"] * (n // 3)), pa.array([1] * n)], schema=SCHEMA
    )
    for source in (reordered(slack=1), reordered(slack=1).with_columns(x=od.col("x") + 1)):
        pipeline = per_key(od.tumbling(1), source=source, s=od.sum("x"))
        for workers in (0, 2):
            found = run_here(pipeline, data, 3, {"tags": True, "chunk_rows": 512, "workers": workers}).table
            assert found["start"].to_pylist() == list(range(n))
            assert found["_serial"].to_pylist() == [min(t + 3, n) for t in range(n)]


# -------------------------------------------------------------------------------------- going on, processes


@pytest.mark.parametrize("source", [computed(), reordered(late="drop")], ids=["computed", "reorder"])
def test_a_run_goes_on_in_other_nodes(source):
    pipeline = per_key(od.tumbling(10), source=source, emit="both", n=od.count())
    data = drawn(jitter=0 if source.plan.operators[0].op != "reorder" else 12)
    expected = run_serial(pipeline, data)
    batches, snapshot = [], None
    cuts = [0, len(data) // 7, len(data) // 2, len(data) - 3, len(data)]
    for part, (first, last) in enumerate(itertools.pairwise(cuts)):
        options = {"tags": True, "end": "finish" if last == len(data) else "suspend"}
        given = {"restore": snapshot} if snapshot is not None else {}
        rest = data.slice(first, last - first)
        nodes = (2, None, 3, 1)[part]
        result = (
            pipeline.run(rest, **options, **given)
            if nodes is None
            else run_here(pipeline, rest, nodes, {**options, **given}, seed=part, block_rows=9)
        )
        batches += result.batches
        snapshot = result.snapshot
    agree(pipeline, expected, outcome_of(pipeline, batches), reports=False)


def test_processes():
    data = drawn(jitter=6)
    one = per_key(od.tumbling(10), source=reordered().with_columns(x=od.col("x") + 1))
    halved = od.Pipeline(SCHEMA).with_columns(t=od.col("ts") // 2)
    two = per_key(od.tumbling(5), source=halved, time="t")
    for made, table in ((one, data), (two, drawn())):
        expected = run_serial(made, table)
        found = made.run(table, processes=2, tags=True)
        agree(made, expected, outcome_of(made, found.batches, report=found.report), reports=False)


def test_keys_move_beside_the_clock_of_reorder():
    data, behind = drawn(jitter=6), per_key(od.tumbling(7), source=reordered())
    expected = run_serial(behind, data)
    found = behind.run(data, processes=2, balance=od.Mixed(), tags=True)
    agree(behind, expected, outcome_of(behind, found.batches, report=found.report), reports=False)


@pytest.mark.parametrize("moving", [False, True])
def test_marks_in_front_of_every_row_do_not_make_a_step_of_each(monkeypatch, moving):
    """What a step costs beside its rows is shared by many marks and the rows between them."""
    polls, poll = [], PolledStream.poll

    def counted(stream, *given):
        polls.append(1)
        return poll(stream, *given)

    monkeypatch.setattr(PolledStream, "poll", counted)
    table = pa.table({"k": [n * n % 37 for n in range(3_000)], "ts": range(3_000)})
    pipeline = od.Pipeline(table.schema).key_by("k").window(od.tumbling(1), time="ts")
    pipeline = pipeline.aggregate(n=od.count())
    balance = {1: Controller(od.Mixed(), 2)} if moving else None
    found = run_here(pipeline, table, 2, {"tags": True}, balance=balance)
    tags = zip(found.table["_serial"].to_pylist(), found.table["_index"].to_pylist(), strict=True)
    expected = run_serial(pipeline, table)
    assert [*tags] == expected.tags
    assert found.table.select(pipeline.schema.names).equals(expected.table)
    assert len(polls) < (1_200 if moving else 300)

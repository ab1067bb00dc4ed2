"""Where a pipeline is cut, and the bytes of order tags."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.fragments import fragmenting
from ordstream.fragments.exchange import Route
from ordstream.fragments.processes import prepare
from ordstream.ground import ordertags
from ordstream.node import node
from ordstream.reference.run_serial import run_serial

SOURCE = pa.schema([("a", pa.int64()), ("b", pa.string()), ("x", pa.float64())])


def keys(pipeline):
    """Per fragment: operator names and the columns that rows are spread by."""
    return [
        ([s.name for s in p.operators], None if p.key is None else [p.source.names[k] for k in p.key])
        for p in fragmenting.fragments_of(pipeline.plan)
    ]


@pytest.mark.parametrize("kept", [False, True])
def test_what_grows_is_known_behind_a_cut(kept):
    """A top-k that did not know would keep the latest row of every key; where its state leaves the run it
    keeps them.
    """
    pipeline = od.Pipeline(SOURCE).key_by("a").count("n").top_k(3, by="n", key="a", emit="updates")
    fragments, *_ = prepare(pipeline, {"snapshots": kept}, "processes=2", keeps_state=True)
    (top,) = fragments[-1].operators
    assert len(fragments) > 1
    assert top.by_grows == (not kept)


def test_a_fragment_ends_where_the_key_changes():
    pipeline = (
        od.Pipeline(SOURCE)
        .filter(od.col("x") > 0, name="positive")
        .key_by("a")
        .scan(n=od.count(), name="first")
        .select("a", "b", "n", name="chosen")
        .key_by("b")
        .count("m", name="second")
        .top_k(3, by="m", name="top")
        .rename({"b": "letter"}, name="renamed")
    )
    assert keys(pipeline) == [
        (["positive"], None),
        (["first", "chosen"], ["a"]),
        (["second"], ["b"]),
        (["top", "renamed"], []),
    ]
    text = pipeline.explain(nodes=4)
    assert "cut: rows to nodes by hash of b" in text
    assert "fragment 4, in one node" in text
    assert "cut" not in pipeline.explain()


def test_operators_of_one_partitioning_stay_together():
    same = od.Pipeline(SOURCE).key_by("a").scan(n=od.count(), name="one").rename({"a": "k"}, name="renamed")
    assert keys(same.key_by("k").count(name="two")) == [([], None), (["one", "renamed", "two"], ["a"])]
    # equal (k, b) have equal k: they are in one node already
    finer = same.key_by("k", "b").count(name="two")
    assert keys(finer) == [([], None), (["one", "renamed", "two"], ["a"])]
    computed = same.with_columns((od.col("k") + 0).alias("k"), name="computed").key_by("k").count(name="two")
    assert keys(computed)[-1] == (["two"], ["k"])
    coarser = (
        od.Pipeline(SOURCE).key_by("a", "b").scan(n=od.count(), name="one").key_by("a").count(name="two")
    )
    assert keys(coarser) == [([], None), (["one"], ["a", "b"]), (["two"], ["a"])]


def test_one_state_for_all_runs_in_one_node_and_what_follows_it_too():
    pipeline = (
        od.Pipeline(SOURCE)
        .count(name="all")
        .scan(n=od.count(), name="again")
        .key_by("n")
        .count("m", name="keyed")
    )
    assert keys(pipeline) == [([], None), (["all", "again"], []), (["keyed"], ["n"])]
    assert [fragment.nodes(4) for fragment in fragmenting.fragments_of(pipeline.plan)] == [4, 1, 4]


def test_without_operators_there_is_one_empty_fragment():
    (fragment,) = fragmenting.fragments_of(od.Pipeline(SOURCE).plan)
    assert (fragment.operators, fragment.key, fragment.output) == ((), None, SOURCE)


@pytest.mark.parametrize(
    "option",
    [{"snapshot_every": 5}, {"arrivals": np.arange(3)}],
)
def test_what_does_not_cross_nodes_is_refused(option):
    (name,) = option
    with pytest.raises(
        od.PlanError, match=f"{name} can't be combined with processes=2: .*; run in one node"
    ):
        od.Pipeline(SOURCE).run(pa.table([[], [], []], schema=SOURCE), processes=2, **option)


def test_tags_order_as_causes_do():
    source = ordertags.source_tags(np.array([1, 2, 256, 2**40]))
    outputs = ordertags.with_index(source.take(pa.array([0, 0, 1, 2, 3])), np.array([0, 300, 0, 0, 0]))
    keys_ = ordertags.step_keys(np.array([1, 3]), b"aab").cast(pa.binary())
    flushed = [ordertags.step_tags(p, keys_, np.array([0, 1])) for p in (1, 2, 300)]
    tags = [*outputs.to_pylist(), *itertools.chain.from_iterable(part.to_pylist() for part in flushed)]
    assert tags == sorted(tags)
    assert len(set(tags)) == len(tags)
    serials, at_end = ordertags.source_serials(pa.array(tags, pa.binary()))
    assert serials.tolist() == [1, 1, 2, 256, 2**40] + [0] * 6
    assert at_end.tolist() == [False] * 5 + [True] * 6


def test_an_index_that_does_not_fit_is_an_error():
    with pytest.raises(OverflowError, match="order tags"):
        ordertags.with_index(ordertags.source_tags(np.array([1])), np.array([1 << 32]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [None, -(2**63), -1, 0, 1, 2**63 - 1]),
        (pa.uint64(), [None, 0, 1, 2**63, 2**64 - 1]),
        (pa.float64(), [None, -math.inf, -1.5, -5e-324, 0.0, 5e-324, 2.0, math.inf, math.nan]),
        (pa.float32(), [None, -math.inf, -1.5, 0.0, 2.0, math.inf, math.nan]),
        (pa.string(), [None, "", "\x00", "\x00\x00", "\x00a", "a", "a\x00", "a\x00b", "ab", "é"]),
        (pa.bool_(), [None, False, True]),
        (pa.timestamp("s"), [None, -1, 0, 7]),
    ],
)
def test_step_keys_order_as_arrow_sorts(kind, values):
    """What the end of the stream emits comes by ascending key; its tags must say the same."""
    ascending = (
        pa.array(values, kind)
        if not pa.types.is_timestamp(kind)
        else pa.array(values, pa.int64()).cast(kind)
    )
    table = pa.table(
        {"k": pa.concat_arrays([ascending[::-1], ascending]), "j": pa.concat_arrays([ascending] * 2)}
    )
    pipeline = od.Pipeline(table.schema).key_by("k", "j").count(emit="final")
    with node.stream(pipeline, table, tags=True, steps=True, workers=0) as out:
        batches = list(out)
        ((name, (first, ends, data)),) = out.steps.flush().items()
    rows = pa.Table.from_batches(batches)
    expected = run_serial(pipeline, table)
    assert rows.num_rows == len(expected.rows) == len(ends)
    assert name == "count_1"
    assert first == len(table) + 1
    assert rows["_serial"].to_pylist() == list(range(first, first + len(ends)))
    encoded = ordertags.step_keys(ends, data).to_pylist()
    assert encoded == sorted(set(encoded))


def test_rows_out_of_the_order_of_their_tags_are_an_error():
    tags = ordertags.source_tags(np.array([1, 2, 2, 3]))
    with pytest.raises(od.SourceError, match="row 13 of the partition comes before row 12"):
        ordertags.check_ascending(tags, None, 10)
    with pytest.raises(od.SourceError, match="row 11 of the partition comes before row 10"):
        ordertags.check_ascending(tags.slice(0, 2), ordertags.source_tags(np.array([1]))[0].as_py(), 10)
    ordertags.check_ascending(tags.slice(0, 2), None, 10)


def test_equal_keys_go_to_one_node_and_nodes_share_the_keys():
    schema = pa.schema([("k", pa.float64()), ("s", pa.string())])
    route = Route(schema, (0, 1), 4)
    batch = pa.record_batch(
        [[0.0, -0.0, math.nan, -math.nan, None, None, 1.0], ["a", "a", "b", "b", None, None, "a"]],
        schema=schema,
    )
    nodes = route(batch).tolist()
    assert nodes[0] == nodes[1]
    assert nodes[2] == nodes[3]
    assert nodes[4] == nodes[5]
    many = pa.record_batch([np.arange(10_000.0), ["a"] * 10_000], schema=schema)
    shares = np.bincount(route(many), minlength=4)
    assert (np.abs(shares - 2_500) < 250).all()
    assert route(many.slice(5_000)).tolist() == route(many)[5_000:].tolist()
    assert Route(schema, (), 1)(many).tolist() == [0] * 10_000

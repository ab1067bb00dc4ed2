"""Which operators are combined in each node first, and what that may and may not change."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from plan_tools import final

import ordstream as od
from ordstream.fragments import fragmenting, same_process
from ordstream.fragments.fragment_node import FragmentNode
from ordstream.ground.ordertags import TAG, merge_sorted, source_tags
from ordstream.reference.run_serial import run_serial

SOURCE = pa.schema(
    [("a", pa.int64()), ("u", pa.uint64()), ("x", pa.float64()), ("d", pa.date32()), ("t", pa.bool_())]
)
LARGE = 2**62


def source(values):
    n = len(values)
    columns = [values, [None if v is None else abs(v) % 7 for v in values], [0.5] * n, range(n), [True] * n]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SOURCE, strict=True)], schema=SOURCE)


def spread(pipeline, values, n=3, *, whole=False, **options):
    """The result over n nodes, and the operators of each fragment that gave it; `whole`: the first halves in
    the fragments in front and no second run, as in Spark.
    """
    ran = []

    class Noted(same_process.SameProcess):
        def run(self, topology, *rest):
            ran.append([[one.name for one in fragment.operators] for fragment in topology.fragments])
            return super().run(topology, *rest)

    cut = fragmenting.combined(fragmenting.fragments_of(final(pipeline).plan)) if whole else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(same_process, "SameProcess", Noted)
        chosen = {"emit": "final", **options}
        found = same_process.run_here(pipeline, source(values), n, chosen, block_rows=1, fragments=cut)
    return found, ran


def totals(pipeline=None, **more):
    start = od.Pipeline(SOURCE).filter(od.col("t"), name="kept") if pipeline is None else pipeline
    return start.aggregate(total=od.sum("a"), n=od.count(), name="totals", **more)


def test_exact_aggregations_have_halves_and_others_have_not():
    exact = [
        od.sum("a"),
        od.sum("u"),
        od.mean("a"),
        od.min("u"),
        od.max("d"),
        od.count(),
        od.count("x"),
        od.sum("a", where=od.col("x") > 0),
    ]
    for aggregation in exact:
        (stage,) = final(od.Pipeline(SOURCE).aggregate(v=aggregation)).plan.operators
        assert stage.halves() is not None, aggregation
    for aggregation in (
        od.sum("x"),
        od.mean("x"),
        od.min("x"),
        od.max("x"),
        od.first("a"),
        od.last("d"),
        od.last("t"),
    ):
        (stage,) = final(od.Pipeline(SOURCE).aggregate(n=od.count(), v=aggregation)).plan.operators
        assert stage.halves() is None, aggregation


def test_only_the_answer_of_a_last_operator_without_key_is_combined():
    rows = od.Pipeline(SOURCE)
    yes = [
        final(rows.count()),
        rows.count(above=3, emit="final"),
        final(rows.key_by("a").scan(m=od.count()).aggregate(s=od.sum("m"))),
    ]
    no = [
        rows.count(),  # every update
        final(rows.key_by("a").count()),
        final(rows.count(on_error="skip")),
        final(rows.top_k(3, by="a")),
        rows.count(window=2, time="a"),
        rows.count(emit="final").filter(od.col("count") > 1),
        final(rows.count("m").aggregate(s=od.sum("m"))),  # in one node already
    ]
    for pipeline in yes:
        assert fragmenting.halved(fragmenting.fragments_of(pipeline.plan)) is not None, pipeline
    for pipeline in no:
        fragments = fragmenting.fragments_of(pipeline.plan)
        assert fragmenting.halved(fragments) is None, pipeline
        assert fragmenting.combined(fragments) == fragments


def test_explain_says_it():
    text = totals().explain(nodes=3, emit="final")
    assert (
        "in every node: totals is combined first, and only one row goes on (combined early, exactly)" in text
    )
    assert "cut: one row of each node to one node\n" in text
    for other in (
        totals().explain(nodes=3),
        totals().explain(nodes=1, emit="final"),
        totals(on_error="skip").explain(3, emit="final"),
    ):
        assert "combined" not in other
        assert "cut: all rows to one node, in the order of their tags" in other


@pytest.mark.parametrize("whole", [False, True])
def test_each_node_gives_one_row(whole):
    values = [5, None, -3, 7, 7, 2, -9, 0, 1, 1]
    pipeline = totals(
        mean=od.mean("a"), least=od.min("a"), none=od.mean("a", where=od.col("a") > 99), day=od.max("d")
    )
    found, ran = spread(pipeline, values, whole=whole, tags=True)
    expected = run_serial(final(pipeline), source(values))
    assert found.table.drop(["_serial", "_index"]).equals(expected.table)
    assert (
        list(zip(found.table["_serial"].to_pylist(), found.table["_index"].to_pylist(), strict=True))
        == expected.tags
        == [(10, 0)]
    )
    assert ran == [[["kept", "totals"], ["totals", "totals (values)"]]]
    (_, operator) = found.report.operators
    assert (operator.name, operator.tuples_in, operator.tuples_out, found.report.rows_out) == (
        "totals",
        10,
        1,
        1,
    )


@pytest.mark.parametrize("above", [None, 0, 9, 10])
def test_a_count_and_its_bound(above):
    pipeline = od.Pipeline(SOURCE).filter(od.col("t")).count("n", above=above, name="all")
    for whole in (False, True):
        found, ran = spread(pipeline, range(10), whole=whole)
        assert found.table.equals(run_serial(final(pipeline), source(range(10))).table)
        assert [len(fragments) for fragments in ran] == [2]
        assert ran[0][0][-1] == "all"
        assert spread(pipeline, [], whole=whole)[0].table.num_rows == 0


def test_one_node_has_nothing_to_combine():
    found, ran = spread(totals(), range(10), n=1)
    assert ran == [[["kept"], ["totals"]]]
    assert found.table.to_pylist() == [{"total": 45, "n": 10}]


# Sums of 2**62 and more: what a sequential run says depends on the order; so it is a sequential run that is
# asked.
FITS_IN_ORDER = [LARGE, -LARGE, LARGE, -LARGE, LARGE, 3]
OVERFLOWS = [LARGE, LARGE - 1, 1, -LARGE, 5, -LARGE]
LOWEST = [-LARGE, -LARGE, 1, 2]
BELOW = [-LARGE, 1, -LARGE, -2, LARGE]


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("values", [FITS_IN_ORDER, OVERFLOWS, LOWEST, BELOW])
def test_an_overflow_is_an_error_at_the_row_where_a_sequential_run_meets_it(values, n):
    expected = run_serial(final(totals()), source(values))
    if expected.error is None:
        found, ran = spread(totals(), values, n)
        assert found.table.equals(expected.table)
        if values is LOWEST:
            assert ran == [[["kept", "totals"], ["totals", "totals (values)"]]]
        else:
            assert ran[1:] == [[["kept"], ["totals"]]]  # the halves could not decide
        return
    with pytest.raises(od.OperatorError) as raised:
        spread(totals(), values, n)
    assert (raised.value.operator, raised.value.serial) == ("totals", expected.error.serial)
    assert raised.value.row["a"] == expected.error.row["a"]
    assert isinstance(raised.value.__cause__, OverflowError)
    assert "combined" not in str(raised.value)


@pytest.mark.parametrize("values", [FITS_IN_ORDER, OVERFLOWS, BELOW])
@pytest.mark.parametrize("n", [2, 6])  # in a node, and in the merge
def test_where_nothing_else_decides_the_error_says_what_to_do(values, n):
    with pytest.raises(
        od.OperatorError, match=r"'totals' failed .* combined in each node first.*: run in one node, or with"
    ) as found:
        spread(totals(), values, n, whole=True)
    assert isinstance(found.value.__cause__, OverflowError)
    assert spread(totals(), LOWEST, n, whole=True)[0].table.to_pylist() == [{"total": 3 - 2**63, "n": 4}]


def test_a_failure_in_front_is_raised_unless_the_overflow_comes_before():
    late = od.Pipeline(SOURCE).with_columns(a=od.col("a") // (od.col("a") - 7), name="divides")
    fails = [1, 2, 3, 7, LARGE, LARGE, LARGE]
    with pytest.raises(od.OperatorError, match="operator 'divides' failed at serial 4"):
        spread(totals(late), fails)
    kept = od.Pipeline(SOURCE).with_columns(b=od.col("a") // (od.col("a") - 7), name="divides")
    with pytest.raises(od.OperatorError, match="operator 'totals' failed at serial 2"):
        spread(totals(kept), [LARGE, LARGE, 3, 7, 1])


def test_a_condition_fails_at_its_row():
    pipeline = totals(part=od.sum("a", where=1 // od.col("a") == 0))
    expected = run_serial(final(pipeline), source([3, 4, 5, 0, 6, 0])).error
    with pytest.raises(od.OperatorError, match="operator 'totals' failed at serial 4") as found:
        spread(pipeline, [3, 4, 5, 0, 6, 0])
    assert found.value.row["a"] == expected.row["a"] == 0
    assert isinstance(found.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_parts_of_a_key_in_several_nodes_are_merged(n):
    """The rows of a key lie in all nodes: a part in each, a merge by key that sees the parts in any
    order.
    """
    rows = od.Pipeline(SOURCE).key_by("u")
    pipelines = [
        rows.count("m", emit="final").filter(od.col("m") != 4),
        rows.count(above=2, emit="final"),
        rows.aggregate(
            part_1=od.sum("a"),
            mean=od.mean("a"),
            low=od.min("d"),
            high=od.max("a", where=od.col("a") > 3),
            emit="final",
        ),
        rows.count("m", emit="final").key_by("u", "m").count("k", emit="final"),
    ]
    data = source([5, None, -3, 7, 7, 2, -9, 0, 1, 1, 14, -14, 6, 6, 6, 6])
    for pipeline in pipelines:
        expected = run_serial(pipeline, data)
        _, keyed = fragmenting.fragments_of(pipeline.plan)
        part, merge, *rest = fragmenting.split(keyed)
        tagged = data.append_column(TAG, source_tags(np.arange(1, len(data) + 1))).to_batches()[0]
        parts = [take(tagged, range(node, len(data), n)) for node in range(n)]
        sent = [through(part, one) for one in reversed(parts)]
        found = through(merge, pa.concat_batches(sent))
        for fragment in rest:
            found = through(fragment, merge_sorted([found]))
        found = pa.Table.from_batches([merge_sorted([found])])
        assert found.drop([TAG]).equals(expected.table)
        assert len(rest) == (pipeline is pipelines[3])


def take(batch, rows):
    return batch.take(pa.array(rows))


def through(fragment, batch):
    with FragmentNode(fragment, iter([batch]), None, {"workers": 0}) as node:
        batches = list(node)
    schema = fragment.output.append(pa.field(TAG, pa.binary(), False))
    return pa.Table.from_batches(batches, schema=schema).combine_chunks().to_batches()[0]


def test_what_has_no_declared_merge_is_not_split():
    rows = od.Pipeline(SOURCE).key_by("u")
    merge = "has no declared merge of partial results"
    floats = r"the key of operator 'n' has a float, 'x': 0\.0 and -0\.0 are one key .*; cast it .* 'dkg'"
    no = [
        (rows.count(), merge),
        (rows.scan(m=od.count()), merge),
        (rows.count(emit="final", on_error="skip"), merge),
        (rows.aggregate(s=od.sum("x"), emit="final"), merge),
        (rows.aggregate(s=od.first("a"), emit="final"), merge),
        (od.Pipeline(SOURCE).key_by("u", "x").count(emit="final", name="n"), floats),
    ]
    for pipeline, why in no:
        fragment = fragmenting.fragments_of(pipeline.plan)[1]
        assert fragmenting.split(fragment) is None, pipeline
        assert re.search(why, fragmenting.why_whole(fragment)), pipeline


def test_a_graph_is_not_split_and_says_so():
    """Its operator may well have a merge."""
    some, others = od.Pipeline(SOURCE).branch(od.col("a") > 1)
    graph = od.union(*(one.key_by("u").count("c", emit="final") for one in (some, others)))
    fragment = next(one for one in fragmenting.fragments_of(graph.plan) if one.key)
    assert fragment.plan.is_graph
    assert fragmenting.split(fragment) is None
    assert "runs in the nodes of a graph" in fragmenting.why_whole(fragment)

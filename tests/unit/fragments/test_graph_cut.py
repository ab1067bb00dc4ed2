"""Which graphs are cut, by which key, and what `explain` says of those that are not."""

import re

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import PlanError
from ordstream.fragments.fragment import used_columns
from ordstream.fragments.fragmenting import fragments_of
from ordstream.plan.columns import compared_source_columns, used_source_columns

P = od.Pipeline(pa.schema([("k", pa.int64()), ("j", pa.int64()), ("ts", pa.int64()), ("v", pa.int64())]))
HIT, MISS = P.branch(od.col("v") > 1)


def count(pipeline, *key):
    return pipeline.key_by(*key).scan(c=od.count())


def shown(pipeline):
    """(key, number of operators) of each fragment."""
    return [
        (None if f.key is None else tuple(f.source.names[at] for at in f.key), len(f.operators))
        for f in fragments_of(pipeline.plan)
    ]


def test_a_graph_without_state_runs_anywhere():
    assert shown(od.union(HIT, MISS)) == [(None, 2)]
    assert shown(od.union(HIT, MISS).filter(od.col("v") > 2).top_k(2, by="v")) == [(None, 3), ((), 1)]


def test_states_that_share_a_key_column_and_a_join_behind_a_stateless_part():
    assert shown(od.union(count(HIT, "k"), count(MISS, "k", "j"))) == [(None, 0), (("k",), 4)]
    assert shown(HIT.join_interval(MISS, on="k", within=(0, 3), time="ts")) == [(None, 2), (("k",), 1)]


def test_functions_in_front_run_where_there_is_room():
    front = P.map(lambda row: tuple(row), schema=P.schema)
    a, b = front.branch(od.col("v") > 1)
    assert shown(od.union(count(a, "j"), count(b, "j"))) == [(None, 1), (("j",), 4)]


def test_a_chain_behind_is_cut_as_a_chain():
    made = count(od.union(count(HIT, "k").select("k", "j"), MISS.select("k", "j")), "j")
    assert shown(made) == [(None, 0), (("k",), 5), (("j",), 1)]


def test_positions_ascend_where_rows_are_copied():
    twice = od.union(count(P, "k").select("k", "v"), P.select("k", "v"))
    first, graph, behind = fragments_of(count(twice, "v").plan)
    assert first.first == 0
    assert behind.first == graph.first + len(graph.operators)
    assert len(graph.operators) == 5  # with the copies


@pytest.mark.parametrize(
    ("pipeline", "why"),
    [
        (od.union(count(HIT, "k"), count(MISS, "j")), "no column of the source is in the keys of all of"),
        (  # operators of two pipelines may be called the same
            od.union(P.key_by("k").scan(c=od.count()), P.key_by("j", "ts").scan(c=od.count())),
            "in the keys of all of scan_1 (k), scan_1 (j, ts)",
        ),
        (od.union(HIT.top_k(2, by="v", name="top"), MISS), "top has one state for all rows"),
        (
            od.union(HIT, MISS.select("k", "j", "ts", v=od.col("v") * 2)).join_asof(
                count(MISS.select("j", "ts", k=od.col("v") + 1), "k"), on="k", time="ts", name="asof"
            ),
            "has no column of the source in its key",
        ),
        (
            P.map(lambda row: tuple(row), schema=P.schema, on_error="dead_letter").side_output(),
            "rows of a second output tell serials",
        ),
    ],
)
def test_why_a_graph_is_not_cut(pipeline, why):
    with pytest.raises(PlanError, match=re.escape(why)):
        fragments_of(pipeline.plan)
    assert why in pipeline.explain(processes=2).split("\n")[0]
    assert why in pipeline.explain(nodes=2).split("\n")[0]


@pytest.mark.parametrize(
    ("pipeline", "only"),
    [
        (od.union(HIT.key_by("k").tail(1), MISS.key_by("k").tail(2)), True),
        (od.union(HIT.key_by("k").tail(1), MISS), False),
        (od.union(HIT.key_by("k").tail(1), MISS).key_by("j").tail(1), True),
        (od.union(HIT, MISS), False),
    ],
)
def test_whether_all_rows_come_at_the_end(pipeline, only):
    assert any(fragment.only_at_end for fragment in fragments_of(pipeline.plan)) is only


def test_columns_that_fragments_use_are_those_of_the_whole_graph():
    joined = HIT.join_interval(MISS.select("k", "ts"), on="k", within=(0, 3), time="ts")
    behind = count(joined.select("ts", "k"), "ts")
    for pipeline in (joined.select("ts"), behind, od.union(HIT, MISS).select("j")):
        assert used_columns(fragments_of(pipeline.plan)) == used_source_columns(pipeline.plan)
    short = od.union(HIT.select("k", "j"), MISS.select("k", "j")).key_by("j").scan(c=od.count())
    assert used_columns(fragments_of(short.select("c").plan)) == (False, True, False, True)


def test_a_key_that_the_other_side_has_elsewhere_is_compared():
    left, right = P.select("ts", "k", "v"), P.select("v", "ts", k="j")
    joined = left.join_asof(right, on="k", time="ts")
    assert compared_source_columns(joined.plan) >= {0, 1, 2}

"""Joins: values and order in any run, cut or not."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import agree, run_core, run_reference
from property.drawn_expressions import Expressions, named
from property.drawn_joins import SPANS
from property.drawn_options import can_be_time, settled
from property.drawn_values import batches, comparable, schemas, tables
from property.drawn_windows import agreed
from property.test_cut import BLOCKS, NODES, TURNS
from property.test_cut import check as check_over_nodes
from property.test_run_serial import check
from property.test_snapshots import check_cut

import ordstream as od

LARGE = settings(
    max_examples=8,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
LOOKUPS = ("join_lookup", "join_lookup", "filter", "select", "lag", "count", "drop")
WORDS = ("join_interval", "join_interval", "join_asof", "join_lookup", "filter", "select", "window")


@LARGE
@given(s.cases(vocabulary=WORDS, most=4))
def test_any_run_is_that_of_one_row_at_a_time(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), st.data())
def test_suspended_runs(case, data):
    check_cut(case, data)


SIDES = ("filter", "with_columns", "deduplicate", "reorder", "lag", "ends", "flat_map")


def side_of(draw: Any, source: od.Pipeline, text: str, ascending: frozenset[str]) -> s.Chain:
    """One side of a join: the source, or a branch of it, and perhaps an operator."""
    pipeline = eval(text, s.NAMESPACE | {"p": source})
    chain = s.Chain(draw, pipeline, [text], ascending)
    for _ in range(draw(st.integers(0, 1))):
        getattr(chain, draw(st.sampled_from(SIDES)))()
    return chain


@st.composite
def joined(draw: Any) -> s.Case:
    """Two pipelines of one source, joined by columns that both have, and perhaps an operator behind."""
    schema = draw(schemas())
    ascending = draw(s.clocks(schema))
    source = od.Pipeline(schema)
    condition = Expressions(draw, schema).boolean(1)
    texts = draw(
        st.sampled_from([("p", "p"), *[(f"p.branch({condition})[0]", f"p.branch({condition})[1]")] * 2])
    )
    left, right = (side_of(draw, source, text, ascending) for text in texts)
    both = [f.name for f in left.schema if f.name in right.schema.names
            and right.schema.field(f.name).type == f.type]  # fmt: skip
    times = [name for name in both if can_be_time(left.schema.field(name).type)]
    made, taken = left, set(left.schema.names)
    clashes = any(name in taken and name + "_2" in taken for name in right.schema.names)
    if times and len(both) > 1 and not clashes:
        time = left.time(times)
        able = [name for name in named(left.schema, comparable)
                if name in both and name != time]  # fmt: skip
        on = draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True)) if able else []
        argument = draw(st.sampled_from([repr(span) for span in SPANS])) + draw(
            st.sampled_from(["", ", 'left'", ", 'right'", ", 'full'"])
        )
        method, how = draw(
            st.sampled_from([("join_interval", argument), ("join_asof", "2"), ("join_asof", "None")])
        )
        policy = draw(st.sampled_from(["", ", on_error='skip'"]))
        more = f"{on!r}, {how}, time={time!r}, suffix='_2'{policy}"
        if on:
            text = f"{''.join(left.texts)}.{method}({''.join(right.texts)}, {more})"
            call = eval(f"left.{method}(right, {more})", {"left": left.pipeline, "right": right.pipeline})
            made = s.Chain(draw, call, [f" # {text}"])
            for _ in range(draw(st.integers(0, 1))):
                getattr(made, draw(st.sampled_from(("filter", "count", "window", "lag"))))()
    given = agreed(made.pipeline, draw(s.options(schema, ascending)))
    return s.Case(made, draw(batches(draw(tables(schema, clocks=ascending)))), given, draw(st.booleans()))


@LARGE
@given(joined())
def test_two_pipelines_of_one_source(case):
    options = settled(case.options)
    expected = run_reference(case.pipeline, case.batches, options.get("punctuate"))
    found = run_core(case.pipeline, case.source, **options)
    agree(case.pipeline, expected, found, reports=False)


@LARGE
@given(s.cases(vocabulary=LOOKUPS, most=4), NODES, BLOCKS, TURNS)
def test_lookups_over_nodes(case, nodes, block_rows, turns):
    check_over_nodes(case, nodes, block_rows, turns)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), NODES, BLOCKS, TURNS)
def test_joins_over_nodes(case, nodes, block_rows, turns):
    check_over_nodes(case, nodes, block_rows, turns)

"""A pipeline cut over nodes gives what `run_serial` gives, order tags and errors included: random pipelines,
inputs and options, through the very nodes that run in Spark's tasks and in the processes of `run(...,
processes=N)`, which take turns here in a random order, with channels that hold next to nothing."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from plan_tools import final
from property import strategies as s
from property.compare import (
    Outcome,
    agree,
    blocks_for,
    exact_rows,
    for_several_nodes,
    large,
    options_over_nodes,
    outcome_of,
    run_reference,
)
from property.drawn_clocked import clocked

from ordstream.errors import OperatorError, SourceError
from ordstream.fragments import fragmenting
from ordstream.fragments.processes import prepare
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.operators.halves import UNDECIDED

LARGE = large()
NODES = st.sampled_from((1, 2, 3, 5))


def check(
    case: s.Case, nodes: int, block_rows: int, turns: tuple[int | None, int | None], emit: str = "updates"
) -> None:
    assume(not any(operator.reads_serial for operator in case.pipeline.plan.operators))
    options = options_over_nodes(case)
    expected = run_reference(
        final(case.pipeline) if emit == "final" else case.pipeline, case.batches, options.get("punctuate")
    )
    seed, channel_bytes = turns
    here = SameProcess(seed)
    try:
        result = run_here(
            case.pipeline, case.source, nodes, options | {"tags": True, "emit": emit}, here=here,
            block_rows=blocks_for(case, block_rows), channel_bytes=channel_bytes,
        )  # fmt: skip
    except (OperatorError, SourceError) as failure:
        # a failed run has no output; but so many rows were given, and its commit point says which
        assert here.driver.rows_out == len(expected.tags)
        assert here.driver.report(0.0).emitted_through == expected.emitted_through
        rows = exact_rows(expected.table.to_batches(), case.pipeline.schema)
        found = Outcome(case.pipeline.schema, rows, expected.tags, failure, None)
    else:
        given = pa.schema(list(result.table.schema)[:-2])
        found = replace(outcome_of(case.pipeline, result.batches, report=result.report), schema=given)
    agree(case.pipeline, expected, found)


#: Of the widest vocabularies, whose examples take seconds.
WIDE = large(max_examples=max(20, settings.default.max_examples // 2))
BLOCKS = st.sampled_from((1, 3, 1000))
TURNS = st.tuples(st.none() | st.integers(0, 1000), st.sampled_from((None, 1, 200)))


@WIDE
@given(s.cases(vocabulary=s.BUILTIN), NODES, BLOCKS, TURNS)
def test_built_in_operators(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@WIDE
@given(s.cases(), NODES, BLOCKS, TURNS)
def test_all_operators(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@LARGE
@given(s.cases(vocabulary=s.FAILING, most=4), NODES, BLOCKS, TURNS)
def test_the_first_failure_in_order_is_the_one_that_is_raised(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@LARGE
@given(s.cases(vocabulary=("scan", "count", "sessionize", "process", "top_k"), most=5), NODES, BLOCKS, TURNS)
def test_chains_of_states(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@WIDE
@given(clocked(), NODES, BLOCKS, TURNS)
def test_clocks_that_are_computed_and_that_leave_reorder(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@LARGE
@given(s.answers(), NODES, BLOCKS, TURNS)
def test_answers_that_are_combined_in_each_node_first(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns, "final")


@LARGE
@given(s.answers(), NODES, BLOCKS)
def test_halves_in_the_nodes_of_the_fragment_in_front(case, nodes, block_rows):
    """As Spark runs them: an answer is the sequential one, and only an overflow may be an error that it
    is not.
    """
    assume(for_several_nodes(case.pipeline.plan))
    expected = run_reference(final(case.pipeline), case.batches)
    fragments, _, _ = prepare(case.pipeline, {"emit": "final"}, "nodes")
    error = None
    try:
        early = fragmenting.combined(fragments)
        result = run_here(
            case.pipeline,
            case.source,
            nodes,
            {"emit": "final"},
            block_rows=blocks_for(case, block_rows),
            fragments=early,
        )
    except (OperatorError, SourceError) as failure:
        error = failure
    if error is None:
        assert expected.error is None
        schema = case.pipeline.schema
        assert exact_rows(result.batches, schema) == exact_rows(expected.table.to_batches(), schema)
    elif expected.error is None:
        assert UNDECIDED in error.reason
        assert isinstance(error.__cause__, OverflowError)

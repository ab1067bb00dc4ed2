"""A pipeline cut over nodes gives what `run_serial` gives, order tags and errors included: random pipelines,
inputs and options, through the very functions that run in Spark's tasks and in the processes of `run(...,
processes=N)`."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_tools import final
from property import strategies as s
from property.compare import Outcome, agree, exact_rows, run_reference

from ordstream.errors import OperatorError
from ordstream.fragments import fragmenting, processes
from ordstream.operators.halves import UNDECIDED

LARGE = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)
NODES = st.sampled_from((1, 2, 3, 5))


def check(case: s.Case, nodes: int, block_rows: int, emit: str = "updates") -> None:
    options = {
        name: value for name, value in case.options.items() if name not in ("punctuate", "snapshot_every")
    }
    expected = run_reference(final(case.pipeline) if emit == "final" else case.pipeline, case.batches)
    fragments, chosen, tags = processes.prepare(
        case.pipeline, options | {"tags": True, "emit": emit}, "nodes"
    )
    rows, found_tags, error, report, schema = [], [], None, None, case.pipeline.schema
    try:
        result = processes.run_fragments(
            fragments, case.source, nodes, chosen, processes.SameProcess(), tags, block_rows
        )
    except OperatorError as failure:
        error = failure
        if expected.error is not None:  # a failed run has no output
            rows, found_tags = exact_rows(expected.table.to_batches(), schema), expected.tags
    else:
        report = result.report
        table = result.table
        found_tags = list(zip(table["_serial"].to_pylist(), table["_index"].to_pylist(), strict=True))
        rows = exact_rows([batch.select(schema.names) for batch in result.batches], schema)
        schema = pa.schema(list(result.table.schema)[:-2])
    agree(case.pipeline, expected, Outcome(schema, rows, found_tags, error, report))


BLOCKS = st.sampled_from((1, 3, 1000))


@LARGE
@given(s.cases(vocabulary=s.BUILTIN), NODES, BLOCKS)
def test_built_in_operators(case, nodes, block_rows):
    check(case, nodes, block_rows)


@LARGE
@given(s.cases(), NODES, BLOCKS)
def test_all_operators(case, nodes, block_rows):
    check(case, nodes, block_rows)


@LARGE
@given(s.cases(vocabulary=s.FAILING, most=4), NODES, BLOCKS)
def test_the_first_failure_in_order_is_the_one_that_is_raised(case, nodes, block_rows):
    check(case, nodes, block_rows)


@LARGE
@given(s.cases(vocabulary=("scan", "count", "sessionize", "process", "top_k"), most=5), NODES, BLOCKS)
def test_chains_of_states(case, nodes, block_rows):
    check(case, nodes, block_rows)


@LARGE
@given(s.answers(), NODES, BLOCKS)
def test_answers_that_are_combined_in_each_node_first(case, nodes, block_rows):
    check(case, nodes, block_rows, "final")


@LARGE
@given(s.answers(), NODES, BLOCKS)
def test_halves_in_the_nodes_of_the_fragment_in_front(case, nodes, block_rows):
    """As Spark runs them: an answer is the sequential one, and only an overflow may be an error that it
    is not.
    """
    expected = run_reference(final(case.pipeline), case.batches)
    fragments, chosen, _ = processes.prepare(case.pipeline, {"emit": "final"}, "nodes")
    error = None
    try:
        early = fragmenting.combined(fragments)
        result = processes.run_fragments(
            early, case.source, nodes, chosen, processes.SameProcess(), False, block_rows
        )
    except OperatorError as failure:
        error = failure
    if error is None:
        assert expected.error is None
        schema = case.pipeline.schema
        assert exact_rows(result.batches, schema) == exact_rows(expected.table.to_batches(), schema)
    elif expected.error is None:
        assert UNDECIDED in error.reason
        assert isinstance(error.__cause__, OverflowError)

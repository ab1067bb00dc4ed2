"""A pipeline cut over nodes gives what `run_serial` gives, order tags and errors included: random pipelines,
inputs and options, through the very nodes that run in Spark's tasks and in the processes of `run(...,
processes=N)`, which take turns here in a random order, with channels that hold next to nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plan_tools import final
from property import strategies as s
from property.compare import Outcome, agree, exact_rows, for_several_nodes, run_reference

from ordstream.errors import OperatorError, PlanError
from ordstream.fragments import fragmenting
from ordstream.fragments.processes import prepare
from ordstream.fragments.same_process import run_here
from ordstream.operators.halves import UNDECIDED
from ordstream.plan.clock import clock_of

LARGE = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)
NODES = st.sampled_from((1, 2, 3, 5))


def check(
    case: s.Case, nodes: int, block_rows: int, turns: tuple[int | None, int | None], emit: str = "updates"
) -> None:
    assume(not any(operator.reads_serial for operator in case.pipeline.plan.operators))
    options = {
        name: value for name, value in case.options.items() if name not in ("punctuate", "snapshot_every")
    }
    expected = run_reference(final(case.pipeline) if emit == "final" else case.pipeline, case.batches)
    seed, channel_bytes = turns
    if clock_of(case.pipeline.plan, None) is not None:
        with pytest.raises(PlanError, match="run in one node"):
            run_here(case.pipeline, case.source, nodes, options | {"emit": emit})
        return
    rows, found_tags, error, report, schema = [], [], None, None, case.pipeline.schema
    try:
        result = run_here(
            case.pipeline, case.source, nodes, options | {"tags": True, "emit": emit},
            seed=seed, block_rows=block_rows, channel_bytes=channel_bytes,
        )  # fmt: skip
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
TURNS = st.tuples(st.none() | st.integers(0, 1000), st.sampled_from((None, 1, 200)))


@LARGE
@given(s.cases(vocabulary=s.BUILTIN), NODES, BLOCKS, TURNS)
def test_built_in_operators(case, nodes, block_rows, turns):
    check(case, nodes, block_rows, turns)


@LARGE
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
            case.pipeline, case.source, nodes, {"emit": "final"}, block_rows=block_rows, fragments=early
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

"""Keys that change their node all the time change nothing of the output: random pipelines, random tables at
every report, nodes that take turns in a random order, with channels that hold next to nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import (
    agree,
    as_table,
    blocks_for,
    for_several_nodes,
    large,
    options_over_nodes,
    outcome_of,
    run_reference,
    same_error,
)
from random_moves import RandomMoves

from ordstream.errors import OperatorError, PlanError, SourceError
from ordstream.fragments.balancing import movable
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.same_process import run_here

LARGE = large(max_examples=max(8, settings.default.max_examples // 5))
HOW = st.fixed_dictionaries(
    {
        "seed": st.none() | st.integers(0, 1000),
        "block_rows": st.sampled_from((1, 3, 50)),
        "channel_bytes": st.sampled_from((None, 1, 200)),
        "interval": st.sampled_from((1, 5, 40)),
    }
)


def check(case: s.Case, nodes: int, how: dict[str, Any], data: Any) -> None:
    pipeline = case.pipeline
    assume(for_several_nodes(pipeline.plan))
    assume(all(one.can_snapshot for one in pipeline.plan.operators))
    fragments = fragments_of(pipeline.plan)
    try:
        keyed = movable(fragments, nodes)
    except PlanError:
        assume(False)
    seed = data.draw(st.integers(0, 1000))
    balance = {k: RandomMoves(seed + k, nodes) for k in keyed}
    options = options_over_nodes(case)
    table = as_table(case)
    how = {
        **how,
        "interval": max(how["interval"], len(table) // 12),
        "block_rows": blocks_for(case, how["block_rows"]),
    }
    expected = run_reference(pipeline, table, options.get("punctuate"))
    cut = data.draw(st.none() | st.integers(0, len(table)))
    batches: list[pa.RecordBatch] = []
    options = options | {"tags": True}
    try:
        if cut is None:
            batches = run_here(pipeline, table, nodes, options, balance=balance, **how).batches
        else:  # a snapshot may find keys on their way
            first = run_here(
                pipeline, table.slice(0, cut), nodes, options | {"end": "suspend"}, balance=balance, **how
            )
            rest = pipeline.run(table.slice(cut), restore=first.snapshot, **options)
            batches = [*first.batches, *rest.batches]
    except (OperatorError, SourceError) as failure:
        same_error(pipeline, expected.error, failure)
        return
    agree(pipeline, expected, outcome_of(pipeline, batches), reports=False)


@pytest.mark.parametrize("vocabulary", [s.BUILTIN, s.FAILING, None], ids=["built in", "failing", "all"])
def test_keys_that_move_at_every_report(vocabulary):
    cases = s.cases() if vocabulary is None else s.cases(vocabulary=vocabulary, most=4)

    @LARGE
    @given(cases, st.sampled_from((2, 3, 5)), HOW, st.data())
    def moves(case, nodes, how, data):
        check(case, nodes, how, data)

    moves()

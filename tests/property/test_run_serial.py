"""Whatever the pipeline, the input and the options: the output of a run is that of `run_serial`,
unsorted.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from plan_tools import final
from property import drawn_options
from property import strategies as s
from property.compare import agree, exact_rows, large, run_core, run_reference
from property.drawn_values import comparable

LARGE = large()


def check(case: s.Case, **further: Any) -> None:
    options = drawn_options.settled(case.options) | further
    expected = run_reference(case.pipeline, case.batches, options.get("punctuate"))
    agree(case.pipeline, expected, run_core(case.pipeline, case.source, **options))


@LARGE
@given(s.cases(vocabulary=s.BUILTIN))
def test_built_in_operators(case):
    check(case)


@LARGE
@given(s.cases())
def test_all_operators(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=s.FAILING, most=3))
def test_operators_that_often_fail(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=(*s.COMPILED, "filter", "scan", "count"), most=3))
def test_compiled_functions(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=("window", "rolling", "window", "rolling", "reorder", "filter", "select"), most=3))
def test_windows(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=("filled", "filled", "filled", "window", "filter", "reorder", "lag"), most=3))
def test_windows_without_gaps(case):
    check(case)


@LARGE
@given(
    s.cases(vocabulary=("scan", "count", "sessionize", "process", "top_k", "top_values", "pair_up"), most=4)
)
def test_chains_of_states(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=("filter", "select", "rename", "lists", "sessionize"), most=3), st.data())
def test_answer_at_the_end(case, data):
    """With emit="final": the rows that the updates end in, whatever is combined early."""
    keys = [f.name for f in case.chain.schema if comparable(f.type)]
    chosen = data.draw(st.lists(st.sampled_from(keys), unique=True, max_size=3)) if keys else []
    counted = case.pipeline.key_by(*chosen) if chosen else case.pipeline
    counted = counted.count("counted", name="the count")
    ranked = counted.top_k(data.draw(st.integers(1, 9)), by="counted", name="the top") if chosen else counted
    pipeline = data.draw(st.sampled_from([counted, ranked]))
    options = drawn_options.settled(case.options)
    updates = run_reference(pipeline, case.batches, options.get("punctuate"))
    expected = run_reference(final(pipeline), case.batches, options.get("punctuate"))
    agree(final(pipeline), expected, run_core(pipeline, case.source, **options, emit="final"))
    if updates.error is not None:
        return
    rows = exact_rows(updates.table.to_batches(), updates.schema)
    if pipeline is not ranked or not chosen:
        latest = {row[:-1]: row for row in rows}  # key columns, count: the last update of each key
        rows = sorted(latest.values(), key=repr)
        assert sorted(exact_rows(expected.table.to_batches(), expected.schema), key=repr) == rows
    else:
        assert exact_rows(expected.table.to_batches(), expected.schema) == rows

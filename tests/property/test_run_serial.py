"""Whatever the pipeline, the input and the options: the output of a run is that of `run_serial`, unsorted."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from property import strategies as s
from property.compare import agree, run_core, run_reference

LARGE = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
)


def check(case: s.Case, **further: Any) -> None:
    options = s.settled(case.options) | further
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
@given(s.cases(vocabulary=("scan", "count", "sessionize", "process", "top_k"), most=4))
def test_chains_of_states(case):
    check(case)

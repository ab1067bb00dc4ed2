"""Joins: values and order in any run, cut or not."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from property import strategies as s
from property.test_cut import BLOCKS, NODES, TURNS
from property.test_cut import check as check_cut_over_nodes
from property.test_run_serial import check

LARGE = settings(
    max_examples=12,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
)
WORDS = ("join_lookup", "join_lookup", "filter", "select", "lag", "count", "drop")


@LARGE
@given(s.cases(vocabulary=WORDS, most=4))
def test_any_run_is_that_of_one_row_at_a_time(case):
    check(case)


@LARGE
@given(s.cases(vocabulary=WORDS, most=4), NODES, BLOCKS, TURNS)
def test_over_nodes(case, nodes, block_rows, turns):
    check_cut_over_nodes(case, nodes, block_rows, turns)

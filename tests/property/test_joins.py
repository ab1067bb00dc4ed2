"""Joins: values and order in any run, cut or not."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.test_cut import BLOCKS, NODES, TURNS
from property.test_cut import check as check_over_nodes
from property.test_run_serial import check
from property.test_snapshots import check_cut

LARGE = settings(
    max_examples=12,
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


@LARGE
@given(s.cases(vocabulary=LOOKUPS, most=4), NODES, BLOCKS, TURNS)
def test_lookups_over_nodes(case, nodes, block_rows, turns):
    check_over_nodes(case, nodes, block_rows, turns)


@LARGE
@given(s.cases(vocabulary=WORDS, most=3), NODES, BLOCKS, TURNS)
def test_joins_over_nodes(case, nodes, block_rows, turns):
    check_over_nodes(case, nodes, block_rows, turns)

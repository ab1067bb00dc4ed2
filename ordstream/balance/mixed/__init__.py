"""Mixed: a bounded routing table over consistent hashing, and rebalancing plans that move little state.

Fang, Zhang, Fu, Zhang, Zhou, Zhu, "Parallel Stream Processing Against Workload Skewness and Variance"
(2016).

    policy = Mixed(theta=0.08, table=3_000)
    assignment = Assignment(policy.ring(15))
    nodes = assignment.route(keys)
    words, statistics = assignment.statistics(met_keys, costs, state_sizes)  # what an interval measured
    assignment = assignment.after(words, policy.plan(statistics))  # once plan.moved has its state there

`Controller` does this from the nodes' reports, interval after interval.

| module | concept |
|---|---|
| `ring` | consistent hashing, h |
| `table` | the assignment F: a routing table over h |
| `statistics` | c, S(k, w), loads, θ, γ |
| `llfd` | Least-Load Fit Decreasing with Adjust |
| `planners` | MinTable, MinMig, Mixed, brute force; the plan |
| `discretise` | half-linear-half-exponential values whose deviations cancel |
| `compact` | six-field records in place of keys |
| `report` | what a node tells of its keys after an interval |
| `evidence` | what the reports add up to, and whether it is enough |
| `payback` | whether a move is worth what it costs |
| `controller` | when keys move, which, and the table in force |
| `readj` | the rival; PKG is in `ordstream.balance.baselines` |
"""

from ordstream.balance.mixed.compact import Compact, plan_compact
from ordstream.balance.mixed.controller import Controller, Move
from ordstream.balance.mixed.discretise import discretised, representatives
from ordstream.balance.mixed.payback import MoveCosts, Payback
from ordstream.balance.mixed.planners import (
    PLANNERS,
    Mixed,
    Plan,
    min_mig,
    min_table,
    mixed,
    mixed_brute_force,
)
from ordstream.balance.mixed.readj import ReadjPlan, readj, readj_once
from ordstream.balance.mixed.report import Report
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.statistics import StateWindow, Statistics
from ordstream.balance.mixed.table import Assignment

__all__ = [
    "PLANNERS",
    "Assignment",
    "Compact",
    "ConsistentHash",
    "Controller",
    "Mixed",
    "Move",
    "MoveCosts",
    "Payback",
    "Plan",
    "ReadjPlan",
    "Report",
    "StateWindow",
    "Statistics",
    "discretised",
    "min_mig",
    "min_table",
    "mixed",
    "mixed_brute_force",
    "plan_compact",
    "readj",
    "readj_once",
    "representatives",
]

"""Mixed: a bounded routing table over consistent hashing, and rebalancing plans that move little state.

Fang, Zhang, Fu, Zhang, Zhou, Zhu, "Parallel Stream Processing Against Workload Skewness and Variance"
(2016).

    ring = ConsistentHash(instances=15) assignment = Assignment(ring) nodes = assignment.route(keys) words,
    statistics = assignment.statistics(met_keys, costs, state_sizes)     # what an interval measured, by key
    plan = Mixed(theta_max=0.08, a_max=3_000).plan(statistics) assignment = assignment.after(words, plan)
    # to be used once plan.moved has its state there

| module | concept |
|---|---|
| `ring` | consistent hashing, h |
| `table` | the assignment F: a routing table over h |
| `statistics` | c, S(k, w), loads, θ, γ |
| `llfd` | Least-Load Fit Decreasing with Adjust |
| `planners` | MinTable, MinMig, Mixed, brute force; the plan |
| `discretise` | half-linear-half-exponential values whose deviations cancel |
| `compact` | six-field records in place of keys |
| `readj` | the rival; PKG is in `ordstream.balance.baselines` |
"""

from ordstream.balance.mixed.compact import Compact, plan_compact
from ordstream.balance.mixed.discretise import discretised, representatives
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
from ordstream.balance.mixed.ring import ConsistentHash
from ordstream.balance.mixed.statistics import StateWindow, Statistics
from ordstream.balance.mixed.table import Assignment

__all__ = [
    "PLANNERS",
    "Assignment",
    "Compact",
    "ConsistentHash",
    "Mixed",
    "Plan",
    "ReadjPlan",
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

"""The compiled core, in folders that import one way: ground, balance and state, flow, kernels, lab.

A tuple meets, in this order: `ground/imported_batch`, `flow/ingress`, `flow/slices` (a worker's time slice
in one operator, with the worklists inlined into it), `flow/split`, a kernel of `kernels/` (through
`flow/parts` where rows have keys), `flow/assemble`, `flow/delivery` (with the reorder buffer),
`flow/egress`, `ground/output_batch` and `ground/arrow` (export). Beside them `flow/scheduler` and
`flow/runtime` decide who works where, and `flow/build` makes a run. Input is checked before it gets here.
"""

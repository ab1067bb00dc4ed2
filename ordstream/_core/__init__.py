"""The compiled core, in folders that import one way: ground, then balance and state, then flow, then kernels; lab on top.

A tuple meets, in this order: `ground/arrow` (import), `flow/ingress`, `flow/operator` (with `flow/split`, `flow/assemble`, the worklists
and the reorder buffer that are inlined into it), a kernel of `kernels/`, `flow/egress`, `ground/arrow` (export); beside them
`flow/scheduler` and `flow/runtime`. Input is checked before it gets here.
"""

"""Worklists: where the input of an operator waits until a worker takes it (ordered paper, section 4).

One producer at a time fills a worklist: the holder of the upstream release flag, or the ingress. Any number
of workers take from it. What it must keep is the arrival order of each key, and that no two workers touch
one key's state at a time; between keys it is free.

Operator             Worklist
-------------------  -----------------------------------------------------------------------------------
stateless            one MPMC queue of chunks (`ground/mpmc.pxd`): chunks have no state to share
stateful             one SPSC queue of chunks (`ground/spsc.pxd`): one worker at a time
partitioned          queues of *parts* (`ground/chunk.pxd`: a chunk's rows of one bucket), by one of three
                     schemes:
                     `shared.pxd`       4.1: one queue; who takes an item takes its bucket in the same step
                     `partitioned.pxd`  4.2: a queue per bucket; workers look for a bucket that is free
                     `hybrid.pxd`       4.3, Fig. 7: a queue per bucket and a master queue that says whose
                                        turn it is

`buckets.pxd` has what the three schemes share, `partition_queues.pxd` the one interface through which
operators use them.
"""

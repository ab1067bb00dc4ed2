"""What a run tells about itself, as Python values: figures for reports, latency markers, steps of the final
flush.

With the GIL. `live`, while workers run: what belongs to them alone, and may be moved meanwhile, is left out
(bytes of state, tuples per bucket); every figure is a statistic, and those of one call need not be of one
moment.
"""
from libc.stdint cimport int64_t
from ordstream._core.ground.chunk cimport Layout
from ordstream._core.flow.runtime cimport Runtime

cdef dict run_figures(Runtime* rt, list names, list kinds, int64_t peak, bint live=*)
cdef list first_skips(Runtime* rt, list names)
cdef object markers(Runtime* rt)
cdef list flush_steps(Runtime* rt)
cdef list mark_steps(Runtime* rt, list names)
cdef object failing_row(Runtime* rt, list operators, const Layout* out_layout, schema)

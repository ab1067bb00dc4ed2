"""A run is built here from its operators and options (ordstream/node/core_options.py), and its memory given
back.

Everything here has the GIL and runs before the first worker starts, or after the last has ended.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.runtime cimport Runtime
from ordstream._core.ground.chunk cimport Layout, LayoutOwner, Worker

cdef int build_shared(Runtime* rt, object operators, object options, const Layout* source) except -1
cdef int build_worker(Runtime* rt, Worker* w, int32_t id) except -1
cdef int build_ends(Runtime* rt, LayoutOwner source, LayoutOwner output, object options) except -1
cdef int build_operators(Runtime* rt, object operators, object options) except -1
cdef int32_t most_columns(object operators, const Layout* source) except -1
cdef void free_operator(Operator* op) noexcept
cdef void free_shared(Runtime* rt) noexcept

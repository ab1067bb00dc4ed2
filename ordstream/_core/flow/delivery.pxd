"""Delivery: from the operator that made a unit to the worklist of the next operator, or to the egress, in
ticket order.

  operator_send      split for the next operator, place in the reorder buffer, release what is ready
  operator_release   deliver ready units downstream
  send_or_hold       operator_send, but units of one claim are sent together
Nothing here waits. Whoever delivers holds the operator's release flag and no bucket's kernel.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.ground.chunk cimport Chunk, Column, Failure, Worker, chunk_alloc
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, Kernel

cdef void out_of_memory(Operator* op) noexcept nogil

cdef bint operator_has_room(Operator* op, int64_t chunks, int64_t parts) noexcept nogil
cdef bint operator_can_release(Operator* op) noexcept nogil
cdef void operator_release(Operator* op, Worker* w) noexcept nogil

cdef void expect_release(Operator* op) noexcept nogil
cdef Chunk* prepare_unit(Operator* op, Worker* w, Chunk* unit) noexcept nogil
cdef void operator_send(Operator* op, Worker* w, int64_t ticket, Chunk* unit) noexcept nogil
cdef void operator_send_run(Operator* op, Worker* w, int64_t ticket, const int64_t* units,
                            int32_t n) noexcept nogil
cdef void send_or_hold(Operator* op, Worker* w, int64_t ticket, Chunk* unit, Slice* slice) noexcept nogil
cdef void send_held(Operator* op, Worker* w, Slice* slice) noexcept nogil

cdef Chunk* fail_unit(Operator* op, Worker* w, Chunk* source, const Column* cols, Chunk* out,
                      Failure* failure) noexcept nogil
cdef int inherit(Operator* op, Worker* w, Chunk* out, Chunk* source) noexcept nogil


cdef inline int prepare_rows(Kernel* kernel, Worker* w, Chunk* c) noexcept nogil:
    """What a kernel needs in a data chunk before its rows are processed. 0, or -1: no memory."""
    c.keep = NULL
    if kernel.prepare != NULL and kernel.prepare(kernel, w, c) != 0:
        return -1
    if kernel.in_place and kernel.on_error == ON_ERROR_SKIP and c.keep == NULL:
        c.keep = <uint8_t*> chunk_alloc(w, c, c.slots)
        if c.keep == NULL:
            return -1
        memset(c.keep, 1, c.slots)
    return 0

"""How a simulated worker sends a unit and releases what is ready: delivery.pyx in virtual time.

The phases from AT_SEND to AT_CLEAR. `after` is the phase that follows when the release is over.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.lab.sim_node cimport *

cdef double wake_one(SimNode* s, double now) noexcept nogil
cdef bint send_held(SimWorker* me, int32_t after) noexcept nogil
cdef void at_send(SimNode* s, int32_t id, SimWorker* me) noexcept nogil
cdef void at_flag(SimNode* s, int32_t id, SimWorker* me) noexcept nogil
cdef void at_delivery(SimNode* s, int32_t id, SimWorker* me) noexcept nogil
cdef void at_clear(SimNode* s, int32_t id, SimWorker* me) noexcept nogil


cdef inline void begin_release(SimNode* s, SimWorker* me, int32_t i, int32_t after) noexcept nogil:
    me.rel_op = i
    me.after = after
    me.sent = 0
    me.pushed = 0
    me.own = 0
    me.own_end = 0
    me.phase = AT_FLAG


cdef inline void begin_send(SimWorker* me, int32_t after) noexcept nogil:
    me.tries = 0
    me.after = after
    me.phase = AT_SEND


cdef inline void send_one(SimWorker* me, int64_t ticket, int64_t k, int32_t after) noexcept nogil:
    me.nunits = 1
    me.ticket = ticket
    me.units[0] = k
    begin_send(me, after)


cdef inline void hold(SimWorker* me, int64_t ticket, int64_t k) noexcept nogil:
    if me.nheld == 0:
        me.held_ticket = ticket
    me.held[me.nheld] = k
    me.nheld += 1


cdef inline void part_over(SimWorker* me) noexcept nogil:
    me.done += 1
    me.over = me.tuples_in + me.chunks >= me.budget or me.chunks >= me.end
    me.phase = AT_LEAVE if me.over or me.done >= me.run else AT_PART

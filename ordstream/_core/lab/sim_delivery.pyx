"""Sending and releasing in virtual time, phase by phase. See sim_delivery.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.kernel cimport PS
from ordstream._core.lab.sim_flow cimport has_room, ready
from ordstream._core.lab.sim_machine cimport line_locked, line_read, line_store
from ordstream._core.lab.sim_node cimport *

cdef double PAUSE_NS = 25.0            # between two offers of units whose turn is near
cdef double HELD_NS = 2.0              # a unit's bookkeeping in the release loop, beside what is delivered


cdef double wake_one(SimNode* s, double now) noexcept nogil:
    """Wake a parked worker; what that costs the caller."""
    cdef int32_t k
    for k in range(s.workers):
        if s.workers_at[k].parkedness == 1:
            s.workers_at[k].parkedness = 0
            s.workers_at[k].now = now + s.cost.wake
            s.workers_at[k].phase = AT_LOCK
            s.parked -= 1
            s.woken[s.nwoken] = k                     # into the heap when this event is over
            s.nwoken += 1
            return s.cost.notify
    return 0.0


cdef bint send_held(SimWorker* me, int32_t after) noexcept nogil:
    """What is held is sent next. False: nothing is."""
    cdef int32_t k
    if me.nheld == 0:
        return False
    me.nunits = me.nheld
    me.ticket = me.held_ticket
    for k in range(me.nheld):
        me.units[k] = me.held[k]
    me.nheld = 0
    begin_send(me, after)
    return True


cdef void at_send(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """reorder_offer, reorder_offer_run: a unit whose turn it is passes; several wait a little for it."""
    cdef SimOperator* op = &s.ops[me.op]
    cdef int64_t height
    me.now = line_read(s, &op.next_line, id, me.now)
    height = me.ticket - op.next
    if height + me.nunits - 1 > op.height:
        op.height = height + me.nunits - 1
    if height == 0:
        begin_release(s, me, me.op, me.after)
        me.own = 1
    elif not wait_for_turn(me, height):
        put_units(s, id, me, op)


cdef inline bint wait_for_turn(SimWorker* me, int64_t height) noexcept nogil:
    """A pause before several units are offered again. False: not worth it."""
    me.tries += 1
    if me.nunits == 1 or me.tries > TURN_TRIES or height > TURN_NEAR:
        return False
    me.now += PAUSE_NS
    me.phase = AT_SEND
    return True


cdef void put_units(SimNode* s, int32_t id, SimWorker* me, SimOperator* op) noexcept nogil:
    """Units into their slots; then what is ready is released."""
    cdef int64_t ticket
    cdef int32_t k
    for k in range(me.nunits):
        ticket = me.ticket + k
        me.now = s.cost.rmw + line_locked(
            s, &op.slot_lines[(ticket & op.slot_mask) // SLOTS_PER_LINE], id, me.now)
        op.slots[ticket & op.slot_mask] = me.units[k] + 1
    begin_release(s, me, me.op, me.after)


cdef void at_flag(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.rel_op]
    cdef int32_t k
    if not me.own:
        me.now = line_read(s, &op.next_line, id, me.now)
        me.now = line_read(s, &op.slot_lines[(op.next & op.slot_mask) // SLOTS_PER_LINE], id, me.now)
        if not ready(op):
            release_over(s, id, me)                   # whoever brings that unit will see the ones behind it
            return
    me.now = line_locked(s, &op.flag_line, id, me.now)
    if op.flag:
        me.now += s.cost.rmw
        if not me.own:
            release_over(s, id, me)
        elif not wait_for_turn(me, 0):
            put_units(s, id, me, op)
        return
    op.flag = 1
    op.releases += 1
    op.releasing -= me.now
    if op.releaser != id and op.releaser >= 0:
        me.now += 2 * s.cost.transfer                 # what the last producer of the next queue wrote
    op.releaser = id
    if me.own:
        me.own_end = me.ticket + me.nunits
        for k in range(me.nunits):
            op.slots[(me.ticket + k) & op.slot_mask] = me.units[k] + 1
    me.phase = AT_DELIVERY


cdef void release_over(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef int32_t direct = me.pushed & 0x40000000
    if (me.pushed & 0x3fffffff) and s.parked > 0:
        me.now += wake_one(s, me.now)
    me.pushed = 0
    if direct:                                        # empty units went straight to the next order
        begin_release(s, me, me.rel_op + 1, me.after)
        return
    if me.after == AT_PART_END:
        part_over(me)
    else:
        me.phase = me.after


cdef void to_egress(SimNode* s, int32_t id, SimWorker* me, int64_t k) noexcept nogil:
    cdef SimChunk* c = &s.chunks[k]
    cdef SimOperator* sink_op = &s.ops[s.n]
    me.now += c.n * sink_op.per_tuple
    if c.n:
        me.now += sink_op.enter_chunk
    if c.maker != id:
        me.now += c.n * sink_op.row_bytes * s.cost.byte
    if c.last <= s.last_serial:
        s.disorder += 1
    s.last_serial = c.last
    s.emitted += c.tuples
    s.reading += c.tuples * s.cost.read_row
    s.rows_out += c.n
    s.retired_chunks += 1
    if c.last >= s.next_sample:
        s.next_sample = c.last + s.sample_every
        if s.nsamples < s.most_samples:
            s.samples[4 * s.nsamples] = c.dispatched
            s.samples[4 * s.nsamples + 1] = c.arrived
            s.samples[4 * s.nsamples + 2] = me.now
            s.samples[4 * s.nsamples + 3] = <double> c.last
            s.nsamples += 1
    s.batch += c.n
    if s.batch >= s.batch_rows:
        me.now += s.cost.publish
        s.batch = 0
    s.free_chunks[s.nfree] = k
    s.nfree += 1


cdef void enqueue(SimNode* s, int32_t id, SimWorker* me, SimOperator* to, int64_t k) noexcept nogil:
    cdef SimChunk* c = &s.chunks[k]
    cdef SimBucket* b
    cdef int32_t j
    to.enqueued += 1
    to.tuples_enqueued += c.n
    c.ticket = to.enqueued
    me.now += to.enter_chunk + to.enter_part * c.nparts
    if to.kind != PS:
        to.list[to.tail & to.list_mask] = k
        to.tail += 1
    elif c.nparts == 0:
        to.slots[c.ticket & to.slot_mask] = k + 1     # nothing to process: straight to the order
        me.pushed |= 0x40000000
        return
    else:
        for j in range(c.nparts):
            b = &to.buckets[c.parts[2 * j]]
            b.ring[b.tail & to.slot_mask] = k << 16 | j
            b.tail += 1
            to.list[to.tail & to.list_mask] = c.ticket << 16 | c.parts[2 * j]
            to.tail += 1
    line_store(s, &to.tail_line, id, me.now)
    me.pushed += 1


cdef void at_delivery(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.rel_op]
    cdef int64_t n = op.next
    cdef int64_t item = op.slots[n & op.slot_mask]
    cdef SimChunk* c
    if n >= me.own_end:
        # Not its own unit whose turn it is: the slot is looked at.
        me.now = line_read(s, &op.slot_lines[(n & op.slot_mask) // SLOTS_PER_LINE], id, me.now)
    if item == 0:
        me.phase = AT_CLEAR
        return
    c = &s.chunks[item - 1]
    if me.sent >= RELEASE_MAX or (me.rel_op < s.n - 1 and not has_room(s, &s.ops[me.rel_op + 1], c.nparts)):
        op.parked += 1
        me.sent = -1                                  # stopped
        me.phase = AT_CLEAR
        return
    if c.maker != id:
        me.now += s.cost.transfer
        s.transfers += 1
    op.slots[n & op.slot_mask] = 0
    if me.rel_op == s.n - 1:
        to_egress(s, id, me, item - 1)
    else:
        enqueue(s, id, me, &s.ops[me.rel_op + 1], item - 1)
    op.next = n + 1
    op.delivered += 1
    me.sent += 1
    me.now += HELD_NS
    line_store(s, &op.next_line, id, me.now)


cdef void at_clear(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.rel_op]
    me.now = line_locked(s, &op.flag_line, id, me.now)
    op.flag = 0
    op.releasing += me.now
    if me.sent >= 0 and ready(op):
        me.sent = 0
        me.own = 0
        me.phase = AT_FLAG
        return
    release_over(s, id, me)

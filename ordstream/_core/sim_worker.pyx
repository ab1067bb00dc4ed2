"""A simulated worker, phase by phase: the loop of runtime.pyx and operator.pyx in virtual time (sim_node.pxd states the design)."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.kernel cimport PS, SF, SL
from ordstream._core.scheduler cimport OperatorStats, chunk_rows_for, scheduler_choose, stats_account
from ordstream._core.sim_flow cimport anything_runnable, can_release, due, form, has_room, limit_of, outputs, prepare, ready, runnable
from ordstream._core.sim_machine cimport drop_top, line_locked, line_read, line_store, line_take, push, sink
from ordstream._core.sim_node cimport *

cdef double BUSY_WAIT_NS = 800.0       # ingress: 32 pauses, then the worker goes away
cdef double HELD_NS = 2.0              # a unit's bookkeeping in the release loop, beside what is delivered


cdef double look(SimNode* s, int32_t w, double t) noexcept nogil:
    """When worker w has seen every operator's lines; those of one operator come together, operators one after the other."""
    cdef int32_t i
    cdef double a
    cdef double b
    for i in range(s.n):
        a = line_read(s, &s.ops[i].next_line, w, t)
        b = line_read(s, &s.ops[i].tail_line, w, t) if i else line_read(s, &s.in_state, w, t)
        t = a if a > b else b
    return t


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


cdef void account_work(SimNode* s, SimWorker* me, SimOperator* op, double kernel, double ns) noexcept nogil:
    me.work += kernel
    op.worked += ns


# ---------------------------------------------------------------- phases

cdef void slice_over(SimNode* s, SimWorker* me) noexcept nogil:
    s.ops[me.op].tuples_done += me.tuples_in
    me.now += s.cost.slice
    me.phase = AT_LOCK


cdef void at_lock(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """The lock is held from when it is free until the decision has been made; workers get it in the order in which they asked."""
    cdef double begin = me.now if me.now > s.lock_free else s.lock_free
    cdef double taken = line_take(s, &s.lock_line, id, begin)
    s.lock_waited += begin - me.now
    taken = look(s, id, taken)
    s.lock_free = taken + s.cost.decide + s.cost.decide_each * s.n
    s.lock_busy += s.lock_free - begin
    me.now = taken
    me.phase = AT_DECISION


cdef void at_decision(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef int32_t i
    cdef OperatorStats* o
    cdef int best = -1
    if me.op >= 0:
        stats_account(&s.stats[me.op], me.now - me.slice_start, me.tuples_in, me.tuples_out, me.chunks)
        s.stats[me.op].w -= 1
        me.busy += me.now - me.slice_start
        if s.auto_rows and s.scheduler.decisions % ADAPT_EVERY == 0:
            s.rows = chunk_rows_for(s.stats, s.n, s.chunk_ns, s.min_rows, s.max_rows)
    if id < s.active:
        for i in range(s.n):
            o = &s.stats[i]
            o.I = (s.issued + due(s, s.queued, me.now) if i == 0 else s.ops[i].tuples_enqueued) - s.ops[i].tuples_done
            if o.I < 0:
                o.I = 0
            o.schedulable = o.w < o.M and runnable(s, i, me.now)
        best = scheduler_choose(&s.scheduler, s.stats, s.n, <int64_t> me.now, &me.budget)
    me.now += s.cost.decide + s.cost.decide_each * s.n
    me.slice_start = me.now
    if best < 0:
        me.op = -1
        me.phase = AT_IDLE
        return
    s.stats[best].w += 1
    me.op = best
    me.idle = 0
    me.tuples_in = 0
    me.tuples_out = 0
    me.chunks = 0
    me.phase = AT_SLICE
    if s.parked > 0 and anything_runnable(s, me.now):
        me.now += wake_one(s, me.now)


cdef inline void begin_release(SimNode* s, SimWorker* me, int32_t i, int32_t after) noexcept nogil:
    me.rel_op = i
    me.after = after
    me.sent = 0
    me.pushed = 0
    me.phase = AT_FLAG


cdef void process(SimNode* s, int32_t id, SimWorker* me, SimOperator* op, int64_t k) noexcept nogil:
    """A whole chunk through a stateless or stateful operator; its send comes next."""
    cdef SimChunk* c = &s.chunks[k]
    cdef double kernel = c.n * op.work * s.cost.slowdown
    cdef double ns = op.per_chunk + c.n * op.per_tuple + kernel
    me.chunk = k
    me.ticket = c.ticket
    me.chunks += 1
    me.tuples_in += c.n
    if c.maker != id:
        ns += s.cost.transfer + c.n * op.row_bytes * s.cost.byte
    if c.n:
        c.n = outputs(op, c.n)
    me.tuples_out += c.n
    c.maker = id
    account_work(s, me, op, kernel, ns)
    ns += prepare(s, me.op, c)
    me.now += ns
    me.phase = AT_SEND
    me.after = AT_TAKE


cdef void from_ingress(SimNode* s, int32_t id, SimWorker* me, SimOperator* op) noexcept nogil:
    cdef int64_t k
    cdef int32_t most = 1
    cdef double begin
    cdef double t
    if me.at_run < me.nrun:
        me.at_run += 1
        process(s, id, me, op, me.chunk_run[me.at_run - 1])
        return
    me.nrun = 0
    me.at_run = 0
    if me.tuples_in + me.chunks >= me.budget:
        slice_over(s, me)
        return
    if s.in_free > me.now + BUSY_WAIT_NS:
        me.now += BUSY_WAIT_NS                        # another worker stayed here too long
        slice_over(s, me)
        return
    begin = me.now if me.now > s.in_free else s.in_free
    t = line_locked(s, &s.in_flag, id, begin)
    t = line_take(s, &s.in_state, id, t)
    if op.kind == SL and due(s, 4 * INGRESS_RUN, t) >= 4 * INGRESS_RUN:
        most = INGRESS_RUN // <int32_t> s.rows
        if most < 1:
            most = 1
    while me.nrun < most:
        k = form(s, id, t)
        if k < 0:
            break
        me.chunk_run[me.nrun] = k
        me.nrun += 1
    t += s.cost.hold
    s.in_busy += t - begin
    s.in_free = t
    me.now = t
    if me.nrun == 0:
        slice_over(s, me)


cdef void at_take(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimBucket* b
    cdef int64_t item
    cdef double t
    if me.op == 0 and op.kind != PS:
        from_ingress(s, id, me, op)
        return
    if me.tuples_in + me.chunks >= me.budget:
        slice_over(s, me)
        return
    t = line_read(s, &op.next_line, id, me.now)
    if op.kind != PS:
        t = line_read(s, &op.tail_line, id, t)
        if op.tail == op.head or (op.kind == SL and op.head + 1 >= limit_of(op)) or (
                op.kind == SF and ready(op) and not can_release(s, me.op)):
            me.now = t
            slice_over(s, me)
            return
        me.now = line_locked(s, &op.head_line, id, t) if op.kind == SL else t
        op.head += 1
        process(s, id, me, op, op.list[(op.head - 1) & op.list_mask])
        return
    if op.hand_tail > op.hand_head:
        me.bucket = <int32_t> op.handover[op.hand_head % (op.p + 1)]
        op.hand_head += 1
        b = &op.buckets[me.bucket]
        me.now = line_locked(s, &b.count_line, id, t) + 2 * s.cost.rmw
        me.run = b.count
        me.done = 0
        me.phase = AT_PART
        return
    t = line_read(s, &op.tail_line, id, t)
    if op.tail == op.head or op.list[op.head & op.list_mask] >> 16 >= limit_of(op):
        me.now = t
        slice_over(s, me)
        return
    t = line_locked(s, &op.head_line, id, t)
    item = op.list[op.head & op.list_mask]
    op.head += 1
    me.bucket = <int32_t> (item & 0xffff)
    b = &op.buckets[me.bucket]
    me.now = line_locked(s, &b.count_line, id, t)
    b.count += 1
    if b.count == 1:
        me.run = 1
        me.done = 0
        me.phase = AT_PART
    else:
        me.now += 2 * s.cost.rmw                      # delegated: on to the next item


cdef void at_part(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimBucket* b = &op.buckets[me.bucket]
    cdef int64_t item = b.ring[b.head & op.slot_mask]
    cdef SimChunk* c = &s.chunks[item >> 16]
    cdef int32_t n = c.parts[2 * (item & 0xffff) + 1]
    cdef double kernel = n * op.work * s.cost.slowdown
    cdef double ns = op.per_part + n * op.per_tuple + kernel
    b.head += 1
    if c.maker != id:
        # The part, then its chunk; the columns stream.
        ns += 2 * s.cost.transfer + n * op.row_bytes * s.cost.byte
    if b.holder != id and b.holder >= 0:
        ns += op.state_lines * s.cost.transfer + (n - 1) * 64 * s.cost.byte
    b.holder = id
    b.tuples += n
    b.busy += ns
    me.chunk = item >> 16
    me.tuples_in += n
    me.chunks += 1
    account_work(s, me, op, kernel, ns)
    me.now += ns
    me.phase = AT_PART_END


cdef void part_over(SimWorker* me) noexcept nogil:
    me.done += 1
    me.over = me.tuples_in + me.chunks >= me.budget
    me.phase = AT_LEAVE if me.over or me.done >= me.run else AT_PART


cdef void at_part_end(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimChunk* c = &s.chunks[me.chunk]
    cdef double ns
    if c.nparts > 1:
        me.now += s.cost.rmw
        if c.toucher != id:
            me.now += s.cost.transfer
            s.transfers += 1
    c.toucher = id
    c.pending -= 1
    if c.pending > 0:
        part_over(me)
        return
    ns = op.per_chunk
    if c.nparts > 1 and c.maker != id:
        ns += s.cost.transfer
    c.n = outputs(op, c.n)
    c.maker = id
    me.tuples_out += c.n
    me.ticket = c.ticket
    account_work(s, me, op, 0.0, ns)
    me.now += ns + prepare(s, me.op, c)
    me.phase = AT_SEND
    me.after = AT_PART_END                            # part_over then


cdef void at_leave(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimBucket* b = &op.buckets[me.bucket]
    me.now = line_locked(s, &b.count_line, id, me.now)
    b.count -= me.done
    if b.count == 0:
        me.phase = AT_TAKE
        return
    if me.over:
        op.handover[op.hand_tail % (op.p + 1)] = me.bucket
        op.hand_tail += 1
        me.now += s.cost.rmw
        me.phase = AT_TAKE
        return
    me.run = b.count
    me.done = 0
    me.phase = AT_PART


cdef void at_send(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef int64_t height = me.ticket - op.next
    me.now = line_read(s, &op.next_line, id, me.now)
    if height > op.height:
        op.height = height
    if height:
        me.now = line_locked(s, &op.slot_lines[(me.ticket & op.slot_mask) // SLOTS_PER_LINE], id, me.now) + s.cost.rmw
    op.slots[me.ticket & op.slot_mask] = me.chunk + 1
    begin_release(s, me, me.op, me.after)


cdef void at_flag(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.rel_op]
    me.now = line_locked(s, &op.flag_line, id, me.now)
    if op.flag:
        me.now += s.cost.rmw
        release_over(s, id, me)
        return
    op.flag = 1
    op.releases += 1
    op.releasing -= me.now
    if op.releaser != id and op.releaser >= 0:
        me.now += 2 * s.cost.transfer                 # the egress, or the next worklist: what its last producer wrote
    op.releaser = id
    me.phase = AT_DELIVERY


cdef void release_over(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef int32_t direct = me.pushed & 0x40000000
    if (me.pushed & 0x3fffffff) and s.parked > 0:
        me.now += wake_one(s, me.now)
    me.pushed = 0
    if direct:                                        # empty units went straight into the next reorder buffer
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
        if s.workers >= s.cores:
            me.now += s.batch * s.cost.read_row       # the reading thread takes a worker's core
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
    if me.sent or item == 0 or item != me.chunk + 1:
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
        me.phase = AT_FLAG
        return
    release_over(s, id, me)


cdef bint at_idle(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """False: the worker parked."""
    cdef double t
    if id >= s.active:
        me.parkedness = 2
        return False
    me.idle += 1
    t = look(s, id, me.now)
    if anything_runnable(s, me.now):
        me.now = t
        me.phase = AT_LOCK
        return True
    if me.idle <= IDLE_ROUNDS:
        me.now = t + s.cost.yields
        return True
    if s.schedule != NULL and s.issued < s.tuples and <double> s.schedule[s.issued] > me.now:
        t = <double> s.schedule[s.issued] - me.now
        if t < 50_000:
            me.now += s.cost.yields                   # as park_time: not worth parking
            return True
        # A timed wait: the first one to find the tuple due wakes by itself.
        s.parks += 1
        me.now += t + s.cost.wake
        return True
    s.parks += 1
    s.parked += 1
    me.parkedness = 1
    return False


cdef bint step(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """One event. False: the worker waits to be woken."""
    if me.phase == AT_LOCK:
        at_lock(s, id, me)
    elif me.phase == AT_DECISION:
        at_decision(s, id, me)
    elif me.phase == AT_SLICE:
        if ready(&s.ops[me.op]):
            me.chunk = -1
            begin_release(s, me, me.op, AT_TAKE)
        else:
            me.phase = AT_TAKE
    elif me.phase == AT_TAKE:
        at_take(s, id, me)
    elif me.phase == AT_PART:
        at_part(s, id, me)
    elif me.phase == AT_PART_END:
        at_part_end(s, id, me)
    elif me.phase == AT_SEND:
        at_send(s, id, me)
    elif me.phase == AT_FLAG:
        at_flag(s, id, me)
    elif me.phase == AT_DELIVERY:
        at_delivery(s, id, me)
    elif me.phase == AT_CLEAR:
        at_clear(s, id, me)
    elif me.phase == AT_LEAVE:
        at_leave(s, id, me)
    else:
        return at_idle(s, id, me)
    return True


cdef int sim_advance(SimNode* s, double until) noexcept nogil:
    """Events up to `until`. 1: the time came; 0: every tuple was delivered; -1: nobody runs and nobody will."""
    cdef int32_t id
    cdef SimWorker* me
    while s.emitted < s.tuples:
        if s.nheap == 0:
            return -1
        id = s.heap[0]
        me = &s.workers_at[id]
        if me.now > until:
            s.now = until
            return 1
        s.now = me.now
        s.events += 1
        if step(s, id, me):
            sink(s, id)
        else:
            drop_top(s)
        while s.nwoken:
            s.nwoken -= 1
            push(s, s.woken[s.nwoken])
    return 0

"""A simulated worker, phase by phase: the loop of runtime.pyx and slices.pyx in virtual time.

sim_node.pxd states the design.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.kernel cimport PS, SF, SL
from ordstream._core.flow.scheduler cimport OperatorStats, chunk_rows_for, scheduler_choose, stats_account
from ordstream._core.lab.sim_delivery cimport (
    at_clear, at_delivery, at_flag, at_send, begin_release, hold, part_over, send_held, send_one, wake_one,
)
from ordstream._core.lab.sim_flow cimport (
    anything_runnable, can_release, due, due_at_least, form, limit_of, outputs, prepare,
    ready, runnable,
)
from ordstream._core.lab.sim_machine cimport (
    drop_top, line_locked, line_prefetch, line_read, line_take, push, sink,
)
from ordstream._core.lab.sim_node cimport *

cdef double BUSY_WAIT_NS = 800.0       # ingress: 32 pauses, then the worker goes away


cdef double look(SimNode* s, int32_t w, double t) noexcept nogil:
    """When worker w has seen every operator's lines; those of one operator come together."""
    cdef int32_t i
    cdef double a
    cdef double b
    for i in range(s.n):
        a = line_read(s, &s.ops[i].next_line, w, t)
        b = line_read(s, &s.ops[i].tail_line, w, t) if i else line_read(s, &s.in_state, w, t)
        t = a if a > b else b
    return t


cdef void account_work(SimNode* s, SimWorker* me, SimOperator* op, double kernel, double ns,
                       int64_t n) noexcept nogil:
    me.work += kernel
    op.worked += ns
    if me.kernel_rows == 0:                           # as a slice times its first chunk or part
        me.kernel_ns = kernel
        me.kernel_rows = n


# ---------------------------------------------------------------- phases

cdef void slice_over(SimNode* s, SimWorker* me) noexcept nogil:
    s.ops[me.op].tuples_done += me.tuples_in
    me.now += s.cost.slice
    if s.workers >= s.cores:                          # the thread that feeds and reads takes a worker's core
        me.now += s.reading
        s.reading = 0
    me.phase = AT_LOCK


cdef void at_lock(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """The scheduler's lock: workers get it in the order of their asking, and keep it for one decision."""
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
    cdef int64_t came
    cdef int best = -1
    if me.op >= 0:
        stats_account(&s.stats[me.op], me.now - me.slice_start, me.tuples_in, me.tuples_out, me.chunks,
                      me.kernel_ns, me.kernel_rows)
        s.stats[me.op].w -= 1
        me.busy += me.now - me.slice_start
        if s.auto_rows and s.scheduler.decisions % ADAPT_EVERY == 0:
            s.rows = chunk_rows_for(s.stats, s.n, s.chunk_ns, s.min_rows, s.max_rows)
    if id < s.active:
        for i in range(s.n):
            o = &s.stats[i]
            came = s.issued + due(s, s.queued, me.now) if i == 0 else s.ops[i].tuples_enqueued
            o.I = came - s.ops[i].tuples_done
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
    me.kernel_rows = 0
    me.phase = AT_SLICE
    if s.parked > 0 and anything_runnable(s, me.now):
        me.now += wake_one(s, me.now)


cdef void process(SimNode* s, int32_t id, SimWorker* me, SimOperator* op, int64_t k) noexcept nogil:
    """A whole chunk through a stateless or stateful operator; its send comes next."""
    cdef SimChunk* c = &s.chunks[k]
    cdef double kernel = c.n * op.work * s.cost.slowdown
    cdef double ns = op.per_chunk + c.n * op.per_tuple + kernel if c.n else op.per_empty
    cdef int64_t n = c.n
    me.chunks += 1
    me.tuples_in += c.n
    if c.maker != id:
        ns += s.cost.transfer + c.n * op.row_bytes * s.cost.byte
    if c.n:
        c.n = outputs(op, c.n)
    me.tuples_out += c.n
    c.maker = id
    account_work(s, me, op, kernel, ns, n)
    ns += prepare(s, me.op, c)
    me.now += ns
    if me.op == 0 and op.kind == SL:
        # A run from the ingress, sent together as far as it is a small part of a slice.
        hold(me, c.ticket, k)
        if me.nheld * s.rows >= me.budget // CLAIM_PART or me.at_run == me.nrun:
            send_held(me, AT_TAKE)
        return
    send_one(me, c.ticket, k, AT_TAKE)


cdef void from_ingress(SimNode* s, int32_t id, SimWorker* me, SimOperator* op) noexcept nogil:
    cdef int64_t k
    cdef int64_t most = 1
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
    if op.kind == SL and due_at_least(s, 4 * INGRESS_RUN * s.rows, t):
        most = max(<int64_t> INGRESS_RUN, me.budget // QUICK) // s.rows
        most = max(<int64_t> 1, min(most, <int64_t> INGRESS_RUN, me.budget // HOLD_PART // s.rows))
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
    cdef double t
    if me.op == 0 and op.kind != PS:
        from_ingress(s, id, me, op)
        return
    if me.tuples_in + me.chunks >= me.budget:
        slice_over(s, me)
        return
    if op.kind == PS:
        take_bucket(s, id, me, op)
        return
    t = line_read(s, &op.next_line, id, me.now)
    t = line_read(s, &op.tail_line, id, t)
    if op.tail == op.head or (op.kind == SL and op.head + 1 >= limit_of(op)) or (
            op.kind == SF and ready(op) and not can_release(s, me.op)):
        me.now = t
        slice_over(s, me)
        return
    me.now = line_locked(s, &op.head_line, id, t) if op.kind == SL else t
    op.head += 1
    process(s, id, me, op, op.list[(op.head - 1) & op.list_mask])


cdef void take_bucket(SimNode* s, int32_t id, SimWorker* me, SimOperator* op) noexcept nogil:
    """pq_claim and pq_enter: several parts that are quick, else one."""
    cdef SimBucket* b
    cdef int64_t item
    cdef double t
    me.end = me.chunks + me.budget
    if op.hand_tail > op.hand_head:
        me.bucket = <int32_t> op.handover[op.hand_head % (op.p + 1)]
        op.hand_head += 1
        b = &op.buckets[me.bucket]
        me.now = line_locked(s, &b.count_line, id, me.now) + 2 * s.cost.rmw
        me.run = b.count
        me.done = 0
        me.phase = AT_PART
        return
    t = line_read(s, &op.tail_line, id, me.now)
    if op.tail > op.head and op.list[op.head & op.list_mask] >> 16 >= me.limit:
        t = line_read(s, &op.next_line, id, t)
        me.limit = limit_of(op)
    if op.tail == op.head or op.list[op.head & op.list_mask] >> 16 >= me.limit:
        me.now = t
        slice_over(s, me)
        return
    t = line_locked(s, &op.head_line, id, t)
    if me.most > 1 and op.tail - op.head >= CLAIM_ROOM * me.most:
        me.nclaims = 0
        while (me.nclaims < me.most and op.tail > op.head
               and op.list[op.head & op.list_mask] >> 16 < me.limit):
            me.claims[me.nclaims] = <int32_t> (op.list[op.head & op.list_mask] & 0xffff)
            me.nclaims += 1
            op.head += 1
        me.at_claim = 0
        me.holding = 1
        me.now = t
        prefetch_claim(s, id, me, op, 0)
        me.phase = AT_CLAIM
        return
    item = op.list[op.head & op.list_mask]
    op.head += 1
    me.bucket = <int32_t> (item & 0xffff)
    b = &op.buckets[me.bucket]
    me.prefetched = 1
    me.ready = t + s.cost.transfer                    # its part comes while the bucket's line does
    me.now = line_locked(s, &b.count_line, id, t)
    b.count += 1
    if b.count == 1:
        me.run = 1
        me.done = 0
        me.phase = AT_PART
    else:
        me.now += 2 * s.cost.rmw                      # delegated: on to the next item


cdef inline void prefetch_claim(SimNode* s, int32_t id, SimWorker* me, SimOperator* op,
                                int32_t k) noexcept nogil:
    me.ready = me.now + s.cost.transfer               # the part's
    line_prefetch(s, &op.buckets[me.claims[k]].count_line, id, me.now)


cdef void at_claim(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """run_claims: the next claimed bucket, while the one behind it loads; at the end, send the units."""
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimBucket* b
    if me.at_claim == me.nclaims:
        me.nclaims = 0
        me.holding = 0
        if not send_held(me, AT_TAKE):
            me.phase = AT_TAKE
        return
    if me.ready > me.now:
        me.now = me.ready
    me.bucket = me.claims[me.at_claim]
    b = &op.buckets[me.bucket]
    me.now = line_locked(s, &b.count_line, id, me.now)
    me.at_claim += 1
    me.prefetched = 1
    if me.at_claim < me.nclaims:
        me.end = me.chunks + CLAIM_MAX                # what is delegated must not keep the other claims
        prefetch_claim(s, id, me, op, me.at_claim)
    else:
        me.end = me.chunks + me.budget
        me.holding = 2
    b.count += 1
    if b.count == 1:
        me.run = 1
        me.done = 0
        me.phase = AT_PART
    else:
        me.now += 2 * s.cost.rmw


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
        # The part, which comes with its chunk where that has no other, then the chunk; the columns stream.
        if not me.prefetched:
            ns += s.cost.transfer
        elif me.holding == 0 and me.ready > me.now:
            ns += me.ready - me.now
        if c.nparts > 1 or not me.prefetched:
            ns += s.cost.transfer
        ns += n * op.row_bytes * s.cost.byte
    me.prefetched = 0
    if b.holder != id and b.holder >= 0:
        ns += op.state_lines * (s.cost.transfer + (n - 1) * s.cost.scatter)
    b.holder = id
    b.tuples += n
    b.busy += ns
    me.chunk = item >> 16
    me.tuples_in += n
    me.chunks += 1
    account_work(s, me, op, kernel, ns, n)
    me.now += ns
    me.expects = n == 1 and me.holding != 1
    me.phase = AT_PART_END


cdef inline void expect_release(SimNode* s, int32_t id, SimWorker* me, SimOperator* op) noexcept nogil:
    """What sending touches comes at once, not line by line."""
    me.ready = me.now
    line_prefetch(s, &op.next_line, id, me.now)
    line_prefetch(s, &op.head_line, id, me.now)
    if me.op == s.n - 1 and op.releaser != id and op.releaser >= 0 and op.flag == 0:
        op.releaser = id
        if me.now + s.cost.transfer > me.ready:
            me.ready = me.now + s.cost.transfer
    me.now = me.ready


cdef void at_part_end(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimChunk* c = &s.chunks[me.chunk]
    cdef double ns
    if me.expects:
        me.expects = 0
        expect_release(s, id, me, op)
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
    account_work(s, me, op, 0.0, ns, 0)
    me.now += ns + prepare(s, me.op, c)
    if not me.holding:
        send_one(me, c.ticket, me.chunk, AT_PART_END)         # part_over then
        return
    if ((me.nheld < CLAIM_MAX and (me.nheld == 0 or me.held_ticket + me.nheld == c.ticket))
            or not send_held(me, AT_PART_END)):
        part_over(me)
    hold(me, c.ticket, me.chunk)


cdef void at_leave(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    cdef SimOperator* op = &s.ops[me.op]
    cdef SimBucket* b = &op.buckets[me.bucket]
    me.now = line_locked(s, &b.count_line, id, me.now)
    b.count -= me.done
    if b.count == 0:
        me.phase = AT_CLAIM if me.nclaims else AT_TAKE
        return
    if me.over:
        op.handover[op.hand_tail % (op.p + 1)] = me.bucket
        op.hand_tail += 1
        me.now += s.cost.rmw
        me.phase = AT_CLAIM if me.nclaims else AT_TAKE
        return
    me.run = b.count
    me.done = 0
    me.phase = AT_PART


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


cdef void begin_slice(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """What a slice keeps: the limit of tickets, and how many parts of the mean size are claimed together."""
    cdef SimOperator* op = &s.ops[me.op]
    cdef int64_t mean
    me.prefetched = 0
    if op.kind == PS:
        me.now = line_read(s, &op.next_line, id, me.now)
        me.limit = limit_of(op)
        mean = op.tuples_enqueued // op.enqueued if op.enqueued else 1
        me.most = 1
        if s.workers > 1:
            me.most = min(me.budget // CLAIM_PART // max(mean, <int64_t> 1), <int64_t> CLAIM_MAX)
    if ready(op):
        begin_release(s, me, me.op, AT_TAKE)
    else:
        me.phase = AT_TAKE


cdef bint step(SimNode* s, int32_t id, SimWorker* me) noexcept nogil:
    """One event. False: the worker waits to be woken."""
    if me.phase == AT_LOCK:
        at_lock(s, id, me)
    elif me.phase == AT_DECISION:
        at_decision(s, id, me)
    elif me.phase == AT_SLICE:
        begin_slice(s, id, me)
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
    elif me.phase == AT_CLAIM:
        at_claim(s, id, me)
    else:
        return at_idle(s, id, me)
    return True


cdef int sim_advance(SimNode* s, double until) noexcept nogil:
    """Run the events up to `until`. 1: the time came; 0: all tuples were delivered; -1: nobody will run."""
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

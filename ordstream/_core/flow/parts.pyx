"""Processing parts, and completing chunks whose parts are all processed (parts.pxd)."""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int16_t, int32_t, int64_t
from libc.stdlib cimport calloc, free
from ordstream._core.flow.assemble cimport merge_flush, merge_parts
from ordstream._core.flow.delivery cimport (
    expect_release, fail_unit, inherit, operator_send, out_of_memory, send_held, send_or_hold,
)
from ordstream._core.flow.exports cimport export_state
from ordstream._core.flow.ingress cimport came_with_rows
from ordstream._core.flow.lanes cimport inherit_pieces, mark_flush
from ordstream._core.flow.operator cimport Operator, Slice
from ordstream._core.flow.sampling cimport sample_rows
from ordstream._core.flow.state_bound cimport state_too_large
from ordstream._core.flow.steps cimport MarkSteps, mark_steps_push, steps_free
from ordstream._core.flow.shedding cimport ShedRows, shed_begin, shed_completed, shed_end, shed_learn
from ordstream._core.ground.atomics cimport *
from ordstream._core.ground.chunk cimport *
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, Kernel, skip_is_first, skip_note, skip_note_error
from ordstream._core.ground.marked_rows cimport marked_date, marked_drop, marked_rest, marked_unit
from ordstream._core.ground.stopping cimport stop_asked
from ordstream._core.ground.threads cimport now_ns
from ordstream._core.state.key_records cimport key_compare

from ordstream.errors import NO_ROWS_FAULT

cdef enum:
    NO_CUT = 0x7fffffff
    # rows of a part that a kernel is given at once: a flush upstream may have made a chunk of any size
    ROWS_BLOCK = 16384


# ---------------------------------------------------------------- failures

cdef void drop_exception(void* exc) noexcept with gil:
    Py_DECREF(<object> <PyObject*> exc)


cdef void note_skipped(Kernel* kernel, int64_t serial, Failure* f) noexcept with gil:
    skip_note_error(kernel, serial, False, <object> <PyObject*> f.exc)


cdef bint ends_the_run(void* exc) noexcept with gil:
    """True for KeyboardInterrupt, SystemExit and NO_ROWS_FAULT: on_error="skip" does not skip them."""
    error = <object> <PyObject*> exc
    return isinstance(error, NO_ROWS_FAULT) or not isinstance(error, Exception)


cdef void drop_failure(Failure* f) noexcept nogil:
    if f != NULL:
        if f.exc != NULL:
            drop_exception(f.exc)
        free(f)


cdef Failure* first_failure(Chunk* c) noexcept nogil:
    """Take the failure of the earliest row among a chunk's parts, and drop the others. NULL: no part
    failed."""
    cdef Failure* first = NULL
    cdef Failure* f
    cdef int32_t k
    for k in range(c.nparts):
        f = c.parts[k].failure
        if f == NULL:
            continue
        c.parts[k].failure = NULL
        if first == NULL or f.slot < first.slot:
            first, f = f, first
        if f != NULL:
            if f.exc != NULL:
                drop_exception(f.exc)
            free(f)
    return first


cdef Failure* first_flush_failure(Operator* op, Chunk* c, const char** cut,
                                  int64_t* cut_time) noexcept nogil:
    """Take the failure at the smallest (time, key) among a punctuation's parts, and drop the others. `cut`
    gets that key; NULL where the operator has no keys."""
    cdef Failure* first = NULL
    cdef Failure* f
    cdef Chunk* out
    cdef const char* key
    cdef int64_t time
    cdef int32_t k
    cut[0] = NULL
    cut_time[0] = 0
    for k in range(c.nparts):
        f = c.parts[k].failure
        if f == NULL:
            continue
        c.parts[k].failure = NULL
        out = c.parts[k].out
        # A punctuate that fails writes the key that failed behind its last row.
        key = NULL
        time = 0
        if out != NULL and out.flush_key != NULL and out.n < out.capacity:
            key = out.flush_key[out.n]
            time = out.flush_time[out.n]
        if first == NULL or (op.keys != NULL and key != NULL and cut[0] != NULL and time <= cut_time[0]
                             and (time < cut_time[0] or key_compare(op.keys, key, cut[0]) < 0)):
            first, f = f, first
            cut[0] = key
            cut_time[0] = time
        if f != NULL:
            if f.exc != NULL:
                drop_exception(f.exc)
            free(f)
    return first


cdef void drop_parts(Worker* w, Chunk* c) noexcept nogil:
    """Free a chunk and what its parts made, after the run was stopped. Its ticket is never offered, so
    nothing behind it is delivered."""
    cdef int32_t k
    for k in range(c.nparts):
        if c.parts[k].out != NULL:
            marked_drop(w, c.parts[k].out)
        drop_failure(c.parts[k].failure)
    c.nparts = 0
    unit_free(w, c)


# ---------------------------------------------------------------- rows through the kernel

cdef int32_t process_sampled(
    Operator* op, Worker* w, void* state, Part* part, int32_t done, int32_t n, Chunk* out, Failure* f
) noexcept nogil:
    """kernel.process for `n` rows of the part from the `done`-th on, each of them timed."""
    cdef int64_t* costs = <int64_t*> scratch_alloc(w, <int64_t> n * 8)
    cdef int64_t total = 0
    cdef int32_t k
    cdef int32_t finished
    if costs == NULL:
        return op.kernel.process(op.kernel, w, state, part.chunk, part.rows + done, n, out, f)
    finished = sample_rows(op.kernel, w, state, part.chunk, part.rows + done, n, out, f, costs, NULL, NULL)
    for k in range(finished):
        total += costs[k]
        if costs[k] > load_relaxed(&op.sampled_max_ns):
            store_relaxed(&op.sampled_max_ns, costs[k])       # statistic
        # a part of one row is learnt in shed_end
        if op.shed != NULL and part.chunk.shed != NULL and part.n > 1:
            shed_learn(op.shed, (<ShedRows*> part.chunk.shed).words[part.rows[done + k]], <double> costs[k])
    add_relaxed(&op.sampled_rows, finished)                   # statistic
    add_relaxed(&op.sampled_ns, total)                        # statistic
    return finished


cdef void run_rows(Operator* op, Worker* w, void* state, Part* part) noexcept nogil:
    """Run a PS/SF kernel on a part's rows. Sets part.out and part.failure. Returns early, between two blocks
    of rows, when the run is stopped."""
    cdef Kernel* kernel = op.kernel
    cdef Chunk* c = part.chunk
    cdef Chunk* out = NULL
    cdef Failure f
    cdef int32_t done = 0
    cdef int32_t given
    cdef int32_t finished
    cdef bint sampled = op.sample_every > 0 and add_relaxed(&op.sample_clock, 1) % op.sample_every == 0
    if kernel.in_place != 1:
        out = chunk_new(w)
        if out == NULL:
            out_of_memory(op)
            return
        part.out = out
    f.exc = NULL
    f.code = FAIL_MEMORY                                      # of a kernel that could not even say so
    f.message[0] = 0
    while True:
        scratch_reset(w)
        given = min(part.n - done, <int32_t> ROWS_BLOCK)
        if sampled:
            finished = process_sampled(op, w, state, part, done, given, out, &f)
        else:
            finished = kernel.process(kernel, w, state, c, part.rows + done, given, out, &f)
        done += finished
        if done >= part.n:
            return
        if finished == given:
            if stop_asked(w):
                return
            continue
        if (kernel.on_error == ON_ERROR_SKIP and f.code != FAIL_MEMORY
                and (f.exc == NULL or not ends_the_run(f.exc))):
            add_relaxed(&kernel.skipped, 1)                   # statistic
            if skip_is_first(kernel, slot_serial(c, part.rows[done])):
                if f.exc != NULL:
                    note_skipped(kernel, slot_serial(c, part.rows[done]), &f)
                else:
                    skip_note(kernel, slot_serial(c, part.rows[done]), False, f.code, f.message)
            if f.exc != NULL:
                drop_exception(f.exc)
                f.exc = NULL
            if kernel.in_place:
                c.keep[part.rows[done]] = 0
            done += 1
            if done >= part.n:
                return
            continue
        f.slot = part.rows[done]
        part.failure = failure_new(f.slot, f.code, f.message)
        if part.failure == NULL:
            out_of_memory(op)
            return
        part.failure.exc = f.exc
        return


# ---------------------------------------------------------------- a complete chunk

cdef int narrow(Worker* w, Chunk* c, int32_t before_slot) noexcept nogil:
    """Select the rows in front of `before_slot` that an in-place kernel kept. 0, or -1: no memory."""
    cdef int32_t* sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4 + 4)
    cdef int32_t k
    cdef int32_t s
    cdef int32_t n = 0
    if sel == NULL:
        return -1
    for k in range(c.n):
        s = row_slot(c, k)
        if s < before_slot and (c.keep == NULL or c.keep[s]):
            sel[n] = s
            n += 1
    c.sel = sel
    c.n = n
    return 0


cdef void complete_rows(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """Assemble and send a data chunk all of whose parts are processed."""
    cdef Failure* failure = first_failure(c)
    cdef int32_t cut = NO_CUT
    cdef Chunk* out = c
    cdef Chunk* tail = NULL
    cdef Chunk* marked = NULL          # of an operator that moves a clock: what is behind `out`
    cdef bint pieces = False           # ... which takes other lanes along
    cdef int64_t rows = 0
    cdef Chunk empty_holder
    cdef int64_t ticket = c.ticket
    cdef int64_t last = c.last_serial
    if op.shed != NULL and c.shed != NULL:
        shed_completed(op.shed, <ShedRows*> c.shed)
    if failure != NULL:
        cut = failure.slot
        # Make the FAILURE chunk first: the row's columns are still those of the input.
        if fail_unit(op, w, c, c.cols, &empty_holder, failure) == NULL:
            return                                            # not sent: nothing behind it is delivered
        tail = empty_holder.link
        last = empty_holder.last_serial
    if op.kernel.in_place:
        if (c.keep != NULL or failure != NULL) and narrow(w, c, cut) != 0:
            out_of_memory(op)
        if op.kernel.finish != NULL and op.kernel.finish(op.kernel, w, c) != 0:
            out_of_memory(op)
        c.keep = NULL
        c.nparts = 0
    else:
        marked = marked_rest(c)
        out = merge_parts(w, c, op.kernel.output, op.has_views, cut)
        pieces = marked != NULL and op.lanes != 0
        if out == NULL or (pieces and inherit_pieces(w, out, marked, c) != 0):
            out_of_memory(op)
            return
        if marked != NULL:
            rows = marked_date(w, marked, c, op.kernel.output, op.index)
        if rows < 0 or (not pieces and inherit(op, w, out, c) != 0):
            out_of_memory(op)
            return
    out.last_serial = last
    out.link = tail
    rows += out.n
    if marked != NULL:
        out = marked_unit(out, marked)
    slice.tuples_out += rows
    send_or_hold(op, w, ticket, out, slice)


cdef inline bint divided_behind(const Operator* op) noexcept nogil:
    """Whether an operator behind moves rows between lanes. Cost: a look at each; once per punctuation."""
    cdef const Operator* to = op.next
    while to != NULL and not to.kernel.units:
        to = to.next
    return to != NULL


cdef inline int16_t lane_of(const Operator* op) noexcept nogil:
    """The lane of an operator that works on one."""
    cdef int16_t lane = 0
    while not op.reads >> lane & 1:
        lane += 1
    return lane


cdef void number_mark(Operator* op, Chunk* c, Chunk* out, MarkSteps* mark) noexcept nogil:
    """Give what a mark made an operator emit the serials of its steps, and hand the log over. Ownership of
    `mark`: taken."""
    cdef int64_t k
    mark.index = op.index
    mark.log.first_serial = c.first_serial + 1
    for k in range(out.n):
        out.serials[k] = mark.log.first_serial + out.origin[k]
        out.origin[k] = 0
    c.first_serial += mark.log.n                              # operators behind go on from there
    mark_steps_push(&op.run.mark_steps, mark)


cdef void complete_punctuation(Operator* op, Worker* w, Chunk* c, Slice* slice) noexcept nogil:
    """Every bucket has processed the punctuation: send what the buckets emitted, then the punctuation
    itself."""
    cdef Chunk* out = NULL
    cdef const char* cut = NULL
    cdef int64_t cut_time = 0
    cdef Failure* failure = first_flush_failure(op, c, &cut, &cut_time)
    cdef int64_t ticket = c.ticket
    cdef bint logged
    cdef MarkSteps* mark = NULL
    cdef int32_t k
    for k in range(c.nparts):
        if c.parts[k].out != NULL:
            out = c.parts[k].out
            break
    if out != NULL:
        logged = op.run.steps != 0 and c.kind == END_OF_STREAM
        if op.run.steps != 0 and came_with_rows(c):
            mark = <MarkSteps*> calloc(1, sizeof(MarkSteps))
            if mark == NULL:
                out_of_memory(op)
                return
        out = merge_flush(w, c, op.kernel.output, op.has_views, op.keys, cut, cut_time,
                          &op.steps if logged else &mark.log if mark != NULL else NULL, mark != NULL)
        if out == NULL and mark != NULL:
            steps_free(&mark.log)
            free(mark)
        if out == NULL and load_relaxed(&op.run.stop) != 0:
            drop_failure(failure)
            drop_parts(w, c)
            return
        if out == NULL:
            out_of_memory(op)
            return
        out.serials = <int64_t*> chunk_alloc(w, out, <int64_t> out.n * 8 + 8)
        if out.serials == NULL:
            out_of_memory(op)
            return
        for k in range(out.n):
            out.serials[k] = c.last_serial
        if mark != NULL:
            number_mark(op, c, out, mark)
        if logged:
            for k in range(out.n):
                out.serials[k] += 1 + out.origin[k]
                out.origin[k] = 0
            op.steps.first_serial = c.last_serial + 1
            # operators downstream number their steps from there
            c.last_serial += op.steps.n
            store_release(&op.steps.published, 1)             # pairs with load_acquire in Run.steps
        out.first_serial = c.last_serial
        out.last_serial = c.last_serial
        out.lane = lane_of(op)
        if op.lanes and divided_behind(op) and mark_flush(w, out) != 0:
            out_of_memory(op)
            return
    c.nparts = 0
    if failure != NULL:
        failure.slot = -1
        if mark != NULL:
            c.last_serial = c.first_serial                    # of the step that failed, if it has a key
        if out == NULL:
            out = chunk_new(w)
            if out == NULL:
                out_of_memory(op)
                return
        if fail_unit(op, w, c, NULL, out, failure) == NULL:
            return
        # the punctuation follows the failure; the egress drops it
        out.link.link = c
        operator_send(op, w, ticket, out)
        return
    if out == NULL:
        operator_send(op, w, ticket, c)
        return
    slice.tuples_out += out.n
    if out.n == 0:
        chunk_free(w, out)
        operator_send(op, w, ticket, c)
        return
    out.link = c
    operator_send(op, w, ticket, out)


cdef void process_part(Operator* op, Worker* w, void* state, Part* part, Slice* slice) noexcept nogil:
    """Run one part. If it is the last of its chunk to finish, assemble and send the chunk."""
    cdef Chunk* c = part.chunk
    cdef Failure f
    cdef int64_t began
    cdef int64_t timed = 0
    if c.kind == DATA:
        slice.tuples_in += part.n
        if slice.kernel_rows == 0 and part.n > 0:
            timed = now_ns()
        if op.shed != NULL and c.shed != NULL:
            began = shed_begin(op.shed, w, c, part.rows, part.n)
            run_rows(op, w, state, part)
            shed_end(op.shed, w, <ShedRows*> c.shed, part.rows, part.n, began)
        else:
            run_rows(op, w, state, part)
            if part.n == 1 and not op.rb.alone and slice.holding != 1:
                expect_release(op)
        if timed:
            slice.kernel_ns = now_ns() - timed
            slice.kernel_rows = part.n
        if op.run.bound != NULL and part.failure == NULL:
            part.failure = state_too_large(op, w, state, part)
    elif op.kernel.punctuate != NULL and (
            c.kind == END_OF_STREAM or (c.kind == TIME and c.failed_operator == op.marks_of)):
        send_held(op, w, slice)                               # a flush may take long
        part.out = chunk_new(w)
        if part.out == NULL:
            out_of_memory(op)
        else:
            part.out.kind = c.kind                            # makes chunk_reserve keep flush arrays
            f.exc = NULL
            scratch_reset(w)
            if op.kernel.punctuate(op.kernel, w, state, c, part.out, &f) != 0:
                part.failure = failure_new(-1, f.code, f.message)
                if part.failure != NULL:
                    part.failure.exc = f.exc
                else:
                    out_of_memory(op)
            part.out.kind = DATA
    elif op.run.exports.on and (c.kind == SNAPSHOT or c.kind == SUSPEND):
        send_held(op, w, slice)                               # a large state takes long
        f.exc = NULL
        if export_state(&op.run.exports, op.kernel, w, op.index, state, c.time, &f) != 0:
            part.failure = failure_new(-1, f.code, f.message)
            if part.failure != NULL:
                part.failure.exc = f.exc
            else:
                out_of_memory(op)
    # acq_rel: the last one sees what the others wrote into the chunk and their outputs
    if c.nparts == 1 or sub_acq_rel(&c.pending, 1) == 1:
        # A worker that left a part early had seen `stop` before it counted that part. So this worker sees
        # `stop` as well.
        if load_relaxed(&op.run.stop) != 0:
            drop_parts(w, c)
        elif c.kind == DATA:
            complete_rows(op, w, c, slice)
        else:
            complete_punctuation(op, w, c, slice)

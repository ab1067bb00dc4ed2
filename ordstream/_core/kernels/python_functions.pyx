"""Python kernels. See python_functions.pxd."""
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_REFCNT, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.atomics cimport add_relaxed, load_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, TIME, Chunk, Failure, Worker, chunk_alloc, chunk_free, chunk_new, chunk_reserve,
    failure_note, failure_set, row_slot, scratch_alloc, slot_serial,
)
from ordstream._core.ground.kernel cimport (
    ON_ERROR_SKIP, PS, SF, SL, Kernel, KernelOwner, StateCursor, skip_is_first, skip_note_error,
)
from ordstream._core.ground.kernel_tools cimport owner_setup
from ordstream._core.ground.memory_reserve cimport reserve_leave
from ordstream._core.kernels.rejected cimport RejectedKernel
from ordstream._core.state.keyed_state cimport (
    KeySpecOwner, keyed_bytes, keyed_free, keyed_init, keyed_lookup, keyed_state,
)
from ordstream._core.state.python_rows cimport PythonBucket, PythonRows, keys_forget, place_forget
from ordstream._core.state.python_state cimport (
    Callbacks, Emitter, State, StateSpec, field_of, fields_of, forgets, growth, put_fields,
)
from ordstream._core.state.python_timers cimport Timers
from ordstream._core.state.key_values cimport KeyReader
from ordstream._core.state.python_values cimport RowWriter, exception_set
from ordstream._core.state.row_cursor cimport RowCursor, RowShape
from ordstream._core.state.state_rows cimport owner_state

import copy
import sysconfig
from collections.abc import Iterable

import numpy as np
from ordstream.errors import NO_ROWS_FAULT, Cancelled, Uncopied, shown

CANCELLED = "the run was cancelled before its end"

cdef bint HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")

cdef Chunk* python_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """SL contract of kernel.pxd: takes the GIL and runs the owner."""
    let_reader_pass(k.reader_turn, &(<PythonKernel> k.ctx).passed)
    cdef bint left = reserve_leave(False)                     # the function may call pyarrow
    with gil:
        c = apply_with_gil(<PythonKernel> k.ctx, w, c)
    reserve_leave(left)
    return c


cdef Chunk* apply_with_gil(PythonKernel owner, Worker* w, Chunk* c) noexcept:
    """Run an SL kernel; whatever goes wrong outside the user's function is a failure of the chunk without a
    row."""
    cdef Chunk* out = NULL
    cdef bint failed = False
    try:
        if c.n == 0:
            return c if isinstance(owner, FilterKernel) else owner.new_output(w, 1)
        if owner.makes_chunk:
            out = owner.new_output(w, c.n)
        out = owner.run(w, c, out)
    except BaseException as error:
        failed = True
        try:
            owner.failed(c, -1, error)
        except BaseException:
            if c.failure == NULL:
                failure_note(c, -1, FAIL_MEMORY, "out of memory")
    if failed and out == NULL:
        c.n = 0
        return c
    return out


cdef class CalledFunction:
    """See python_functions.pxd.

    Parameters
    ----------
    fn : callable
    """

    def __init__(self, fn):
        self.fn = fn
        self.clock = getattr(fn, "timed_by", None)
        self.untimed = getattr(fn, "untimed", None)
        self.left = -1 if self.clock is None else self.clock.untimed()


cdef class PythonKernel(KernelOwner):
    """Base of the SL kernels.

    Memory ownership: keeps the function and the converters. Thread safety: the function is called with the
    GIL.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
    """

    def __init__(self, operator):
        owner_setup(self, operator, SL)
        self.fn = operator.fn
        self.called = CalledFunction(operator.fn)
        self.shape = RowShape(operator.input, operator.fn)
        self.writer = RowWriter(operator.output)
        self.kernel.ctx = <void*> self
        self.makes_chunk = True
        self.kernel.apply = python_apply
        self.kernel.unbounded = 1
        self.kernel.max_workers = 1 if HAS_GIL and not operator.leaves_gil else 0

    def reject_to(self, RejectedKernel taker):
        """Note skipped rows for the operator that makes the second output. Before the run."""
        self.rejections = taker.rejections

    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL:
        """Process c.n > 0 rows; `out` has room for as many (NULL: an in-place kernel). Returns the output
        chunk."""
        raise NotImplementedError

    cdef Chunk* new_output(self, Worker* w, int32_t n) except NULL:
        """An output chunk with room for n rows. Ownership: the caller."""
        cdef Chunk* out = chunk_new(w)
        if out == NULL:
            raise MemoryError
        if chunk_reserve(w, out, self.kernel.output, n) < 0:
            chunk_free(w, out)
            raise MemoryError
        return out

    cdef int failed(self, Chunk* c, int32_t slot, object error) except -1:
        """A row raised. Under "skip" count it (returns 0), else record the failure (returns 1)."""
        if slot >= 0 and self.kernel.on_error == ON_ERROR_SKIP and isinstance(error, Exception):
            if self.rejections is not None:
                self.rejections.add(c, slot, error)
            add_relaxed(&self.kernel.skipped, 1)        # statistic; no partner
            if skip_is_first(&self.kernel, slot_serial(c, slot)):
                skip_note_error(&self.kernel, slot_serial(c, slot), False, error)
            return 0
        return self.fails_with(c, slot, error)

    cdef int fails_with(self, Chunk* c, int32_t slot, object error) except -1:
        """Record the failure of a row (-1: none). Returns 1."""
        if c.failure == NULL:
            failure_note(c, slot, FAIL_MEMORY, "out of memory")
            if c.failure == NULL:
                raise MemoryError
        exception_set(c.failure, slot, error)
        return 1


cdef class RowsKernel(PythonKernel):
    """map: fn(row) -> one output."""

    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL:
        cdef int32_t i, slot
        cdef RowCursor rows = self.shape.over(c, c.sel, c.n)
        for i in range(c.n):
            slot = row_slot(c, i)
            if is_cancelled(self.kernel.stop):
                self.fails_with(c, slot, Cancelled(CANCELLED))
                break
            try:
                self.writer.append(w, out, self.writer.fitted(self.called.of_next()(rows.at(i))), slot)
            except BaseException as error:
                if self.failed(c, slot, error):
                    break
        return out


cdef class FilterKernel(PythonKernel):
    """filter: fn(row) -> bool or None. Narrows the chunk's selection."""

    def __init__(self, operator):
        PythonKernel.__init__(self, operator)
        self.makes_chunk = False

    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL:
        cdef int32_t i, slot
        cdef int32_t n = 0
        cdef RowCursor rows = self.shape.over(c, c.sel, c.n)
        cdef int32_t* sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
        if sel == NULL:
            raise MemoryError
        for i in range(c.n):
            slot = row_slot(c, i)
            if is_cancelled(self.kernel.stop):
                self.fails_with(c, slot, Cancelled(CANCELLED))
                break
            try:
                answer = self.called.of_next()(rows.at(i))
                if answer is True:
                    sel[n] = slot
                    n += 1
                elif answer is not None and answer is not False:
                    if not isinstance(answer, np.bool_):
                        raise TypeError(f"expected a bool, got {type(answer).__name__} {shown(answer)}")
                    if answer:
                        sel[n] = slot
                        n += 1
            except BaseException as error:
                if self.failed(c, slot, error):
                    break
        c.sel = sel
        c.n = n
        return c


cdef class FlatKernel(PythonKernel):
    """flat_map: fn(row) -> iterable of outputs."""

    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL:
        cdef int32_t i, slot, start
        cdef bint stopped = False
        cdef RowCursor rows = self.shape.over(c, c.sel, c.n)
        for i in range(c.n):
            slot = row_slot(c, i)
            if is_cancelled(self.kernel.stop):
                self.fails_with(c, slot, Cancelled(CANCELLED))
                break
            start = out.n
            try:
                results = self.fn(rows.at(i))
                if type(results) is not list and (
                        not isinstance(results, Iterable) or isinstance(results, (str, bytes, dict))):
                    raise TypeError(f"expected an iterable of tuples, got {type(results).__name__} "
                                    f"{shown(results)}")
                for result in results:
                    # the function may be a generator without an end
                    stopped = is_cancelled(self.kernel.stop)
                    if stopped:
                        break
                    if chunk_reserve(w, out, self.kernel.output, 1) < 0:
                        raise MemoryError
                    self.writer.append(w, out, self.writer.fitted(result), slot)
            except BaseException as error:
                out.n = start
                out.slots = start
                if self.failed(c, slot, error):
                    break
            if stopped:
                out.n = start
                out.slots = start
                self.fails_with(c, slot, Cancelled(CANCELLED))
                break
        return out


# ---------------------------------------------------------------- process

cdef int32_t python_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """PS/SF contract of kernel.pxd. Keys are looked up without the GIL."""
    cdef PythonBucket* b = <PythonBucket*> state
    cdef bint left
    cdef int32_t* records = NULL
    if k.kind == PS:
        records = <int32_t*> scratch_alloc(w, <int64_t> n * 4 + 4)
        if records == NULL or keyed_lookup(&b.keyed, w, c, rows, n, records) < 0:
            failure_set(f, rows[0], FAIL_MEMORY, "out of memory")
            return 0
    let_reader_pass(k.reader_turn, &(<ProcessKernel> k.ctx).passed)
    left = reserve_leave(False)
    with gil:
        n = (<ProcessKernel> k.ctx).process(w, b, c, rows, n, records, out, f)
    reserve_leave(left)
    return n


cdef int python_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                          Failure* f) noexcept nogil:
    """Contract (c) of kernel.pxd."""
    cdef bint left = reserve_leave(False)
    cdef int done
    with gil:
        done = (<ProcessKernel> k.ctx).punctuate(w, <PythonBucket*> state, punctuation, out, f)
    reserve_leave(left)
    return done


cdef void* python_bucket_new(Kernel* k, int32_t bucket) noexcept nogil:
    """An empty bucket; NULL: no memory. Takes the GIL."""
    cdef PythonBucket* b = <PythonBucket*> calloc(1, sizeof(PythonBucket))
    cdef bint made
    if b == NULL:
        return NULL
    with gil:
        made = bucket_fill(<ProcessKernel> k.ctx, b)
    if not made:
        free(b)
        return NULL
    return b


cdef bint bucket_fill(ProcessKernel owner, PythonBucket* b) noexcept:
    states = timers = None
    try:
        states, timers = [], []
    except BaseException:
        pass
    if timers is None:
        return False
    if owner.kernel.kind == PS and keyed_init(&b.keyed, &(<KeySpecOwner> owner.key_spec).spec, 8,
                                              &b.pool) < 0:
        return False
    Py_INCREF(states)
    b.states = <void*> states
    Py_INCREF(timers)
    b.timers = <void*> timers
    b.timers_known = 1
    return True


cdef void python_bucket_free(Kernel* k, void* state) noexcept nogil:
    """Free a bucket and drop its states. Takes the GIL."""
    cdef PythonBucket* b = <PythonBucket*> state
    if b == NULL:
        return
    with gil:
        Py_DECREF(<object> <PyObject*> b.states)
        Py_DECREF(<object> <PyObject*> b.timers)
    if k.kind == PS:
        keyed_free(&b.keyed)
    free(b)


cdef int64_t python_bucket_bytes(Kernel* k, void* state) noexcept nogil:
    """Bytes of the key map and of the states: a guess, which of a state that is not declared sees one
    size."""
    cdef PythonBucket* b = <PythonBucket*> state
    cdef int64_t bytes = (<ProcessKernel> k.ctx).state_bytes * b.count + b.grown + 8 * b.holes
    if k.kind != PS:
        return bytes
    return bytes + keyed_bytes(&b.keyed) + load_relaxed(&b.pool.bytes)   # statistic; no partner


cdef int32_t python_export(Kernel* k, Worker* w, void* state, StateCursor* cursor, Chunk* out,
                           Failure* f) noexcept nogil:
    """Rows (key..., fields... or the codec's bytes). Contract: kernel.pxd (f), python_rows.pxd (c)."""
    with gil:
        return (<ProcessKernel> k.ctx).as_rows.export_rows(k, w, <PythonBucket*> state, cursor, out, f)


cdef int32_t python_install(Kernel* k, Worker* w, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                            Failure* f) noexcept nogil:
    """Take such rows in. Contract: kernel.pxd (f), python_rows.pxd (c)."""
    (<PythonBucket*> state).timers_known = 0
    with gil:
        return (<ProcessKernel> k.ctx).as_rows.install_rows(k, <PythonBucket*> state, rows, slots, n, f)


cdef int32_t python_remove(Kernel* k, Worker* w, void* state, Chunk* keys, const int32_t* slots, int32_t n,
                           Failure* f) noexcept nogil:
    """Forget keys. Contract: kernel.pxd (f)."""
    (<PythonBucket*> state).timers_known = 0
    with gil:
        return (<ProcessKernel> k.ctx).as_rows.remove_rows(k, <PythonBucket*> state, keys, slots, n)


cdef class PythonStates(Callbacks):
    """Where the states of Python process functions live: a list per bucket."""

    def __init__(self, operator):
        self.codec = operator.codec
        self.spec = StateSpec(operator.state) if self.codec is None and operator.state is not None else None
        self.init = self.codec.init if self.codec is not None else operator.init
        self.on_flush = operator.on_flush
        self.on_time = operator.on_time
        self.writer = RowWriter(operator.output)
        self.keys = KeyReader([operator.input.field(i).type for i in operator.key])
        self.fan_out = -1

    cdef object new_state(self):
        if self.spec is not None:
            return self.spec.new()
        return self.init()

    cdef object load(self, void* bucket, char* record):
        cdef int64_t position = (<int64_t*> record)[0]
        if position == 0:
            return None
        return (<list> (<PythonBucket*> bucket).states)[position - 1]

    cdef int save(self, void* bucket, char* record, object state) except -1:
        if self.spec is not None:
            (<PythonBucket*> bucket).grown += growth(<State> state)
        return 0

    cdef int forget(self, void* bucket, char* record) except -1:
        place_forget(<PythonBucket*> bucket, <int64_t*> record)
        return 0

    cdef object preserve(self, object state):
        """What `restore` needs: the values of a declared state, else a second state."""
        if self.spec is not None:
            return fields_of(<State> state)
        try:
            if self.codec is not None:
                return self.codec.decode(self.codec.encode(state))
            return copy.deepcopy(state)
        except Exception as error:
            raise Uncopied.because(error) from error

    cdef int restore(self, void* bucket, char* record, object state, object copied) except -1:
        if self.spec is not None:
            put_fields(<State> state, copied)
        else:
            (<list> (<PythonBucket*> bucket).states)[(<int64_t*> record)[0] - 1] = copied
        return 0


cdef class ProcessKernel(KernelOwner):
    """process with a Python function: fn(row, state, emit).

    Thread safety: one call at a time per bucket.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
    """

    def __init__(self, operator):
        owner_setup(self, operator, PS if operator.kind == "PS" else SF)
        self.called = CalledFunction(operator.fn)
        self.shape = RowShape(operator.input, operator.fn)
        self.states = PythonStates(operator)
        self.writer = self.states.writer
        self.key_spec = None
        if operator.kind == "PS":
            self.key_spec = KeySpecOwner(operator.key, self.input_layout.types)
            self.kernel.uses_hash = 1
        self.state_bytes = 64 if self.states.spec is None else 96 + 40 * len(self.states.spec.names)
        self.kernel.ctx = <void*> self
        self.kernel.unbounded = 1
        self.kernel.max_workers = 1 if HAS_GIL else 0
        self.kernel.process = python_process
        self.kernel.bucket_new = python_bucket_new
        self.kernel.bucket_free = python_bucket_free
        self.kernel.bucket_bytes = python_bucket_bytes
        if self.states.on_flush is not None or self.states.on_time is not None:
            self.kernel.punctuate = python_punctuate
        if operator.timer is not None:
            self.timers = Timers(operator, self.input_layout.types[operator.clock_column])
            self.kernel.punctuate = python_punctuate
        if operator.state is not None:
            self.as_rows = PythonRows(operator, self.states.spec)
            owner_state(self, operator, python_export, python_install, python_remove)
        self.retries = operator.retries

    def reject_to(self, RejectedKernel taker):
        """As PythonKernel. A step of a punctuation is no row: it is not skipped then."""
        self.rejections = taker.rejections
        self.states.steps_fail = True

    cdef int punctuate(self, Worker* w, PythonBucket* b, Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept:
        """See python_punctuate."""
        cdef Kernel* k = &self.kernel
        cdef int done
        if punctuation.kind == TIME and self.timers is not None:
            done = self.timers.fire(self.states, k, w, b, punctuation, out, f)
        else:
            done = self.states.punctuate(
                k, w, b, &b.keyed if k.kind == PS else NULL, <char*> &b.single, punctuation, out, f)
        keys_forget(k, b)
        return done

    cdef int32_t process(self, Worker* w, PythonBucket* b, Chunk* c, const int32_t* rows, int32_t n,
                         const int32_t* records,
                         Chunk* out, Failure* f) noexcept:
        """Run the rows; see python_process."""
        cdef int32_t i = 0
        cdef int64_t* record
        cdef RowCursor values
        cdef Emitter emit = None
        try:
            emit = self.states.emitter(&self.kernel, w, out)
            emit.left = -1
            if chunk_reserve(w, out, self.kernel.output, n) < 0:
                raise MemoryError
            values = self.shape.over(c, rows, n)
            while i < n:
                if is_cancelled(self.kernel.stop):
                    exception_set(f, rows[i], Cancelled(CANCELLED))
                    break
                record = &b.single if records == NULL else <int64_t*> keyed_state(&b.keyed, records[i])
                row = values.at_or_none(i)
                if not self.one_row(w, b, c, rows[i], record, row, out, emit, f, self.retries):
                    break
                row = None                               # the cursor uses it again
                i += 1
                if Py_REFCNT(emit) > 1:                  # the function keeps it: it is for that call only
                    emit.out = NULL
                    emit = self.states.emitter(&self.kernel, w, out)
                    emit.left = -1
            if i >= n - 1:                               # else rows are left, whose keys have no state yet
                keys_forget(&self.kernel, b)
            return i
        # not the user's: memory, or an interrupt between rows
        except BaseException as error:
            try:
                exception_set(f, rows[i], error)
            except BaseException:
                failure_set(f, rows[i], FAIL_MEMORY, "out of memory")
            if self.rejections is not None and isinstance(error, MemoryError):
                f.code = FAIL_MEMORY                         # not the row's fault: it is not skipped
        finally:
            if emit is not None:
                emit.out = NULL
        return i

    cdef bint one_row(self, Worker* w, PythonBucket* b, Chunk* c, int32_t slot, int64_t* record, object row,
                      Chunk* out,
                      Emitter emit, Failure* f, int32_t left) except -1:
        """Call the function for one row; where it raises, up to `left` times again. False: it failed; f is
        filled, outputs and (under "skip") state are as before."""
        cdef int32_t start = out.n
        cdef int64_t position = record[0]
        cdef list states = <list> b.states
        cdef bint undoes = self.kernel.on_error == ON_ERROR_SKIP or self.retries > 0
        cdef int64_t armed = 0
        cdef bint final
        before = None
        emit.origin = slot
        try:
            if row is None:
                row = self.shape.row(c, slot)
            if position:
                state = states[position - 1]
                if undoes:
                    before = self.states.preserve(state)
            else:
                state = self.states.new_state()
            timer = None if self.timers is None else field_of(<State> state, self.timers.field)
            result = self.called.of_next()(row, state, emit)
            if forgets(result):
                if position:
                    place_forget(b, record)
                return True
            if self.timers is not None:
                armed = self.timers.armed(<State> state, timer, c, slot)
            if self.states.spec is not None:
                b.grown += growth(<State> state)
            if not position:
                states.append(state)
                record[0] = len(states)
                b.count += 1
            if armed:
                self.timers.put(b, armed, record)
            return True
        except BaseException as error:
            out.n = start
            out.slots = start
            if self.states.spec is not None:
                self.states.spec.tell_fields(error)
            if position and before is not None:
                self.states.restore(b, <char*> record, states[position - 1], before)
            final = (left == 0 or not isinstance(error, Exception) or isinstance(error, NO_ROWS_FAULT)
                     or is_cancelled(self.kernel.stop))
            if final:
                self.gives_up(c, slot, error, f)
        if final:
            return False
        # a row of its own: the failed try may have changed lists and dicts of this one
        return self.one_row(w, b, c, slot, record, None, out, emit, f, left - 1)

    cdef bint gives_up(self, const Chunk* c, int32_t slot, object error, Failure* f) except -1:
        """The row failed: fill f; note the row, where it is rejected. Returns False."""
        exception_set(f, slot, error)
        if (self.rejections is not None and isinstance(error, Exception)
                and not isinstance(error, NO_ROWS_FAULT)):
            self.rejections.add(c, slot, error)
        return False

"""Compiled kernels: the call, its checks, rollback, and the plain-Python replay that names what went
wrong."""
from cpython.ref cimport PyObject, Py_DECREF
from libc.stdint cimport int32_t, int64_t, uint8_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport (
    FAIL_COMPILED, FAIL_MEMORY, PT_LIST, PT_VIEW, Chunk, Failure, Layout, Worker, chunk_alloc, chunk_new,
    chunk_reserve, chunk_set_valid, failure_note, failure_set, scratch_alloc, slot_serial,
)
from ordstream._core.ground.kernel cimport (
    ON_ERROR_SKIP, PS, SF, SL, Kernel, KernelOwner, skip_is_first, skip_note, skip_note_error,
)
from ordstream._core.ground.kernel_tools cimport owner_setup
from ordstream._core.state.keyed_bucket cimport Bucket, bytes_of_bucket, free_bucket, new_bucket_of
from ordstream._core.state.keyed_rows cimport keyed_sift
from ordstream._core.state.keyed_state cimport KeySpecOwner, keyed_lookup
from ordstream._core.state.python_state cimport Callbacks, State, StateSpec, fields_of
from ordstream._core.state.key_values cimport KeyReader
from ordstream._core.state.python_values cimport RowReader, RowWriter, exception_set
from ordstream._core.state.state_rows cimport owner_bucket_state
from ordstream._core.state.struct_rows cimport FIELDS, any_field

import numpy as np
import pyarrow as pa

from ordstream.ground.types import is_list

cdef extern from *:
    """
    #include <cstddef>
    """
    int offsetof_columns "(int)offsetof(ordstream_call, columns)"
    int offsetof_rows "(int)offsetof(ordstream_call, rows)"
    int offsetof_states "(int)offsetof(ordstream_call, states)"
    int offsetof_stride "(int)offsetof(ordstream_call, state_stride)"
    int offsetof_records "(int)offsetof(ordstream_call, records)"
    int offsetof_out "(int)offsetof(ordstream_call, out)"
    int offsetof_origin "(int)offsetof(ordstream_call, origin)"
    int offsetof_n_out "(int)offsetof(ordstream_call, n_out)"

cdef enum:
    CALL_NO_MEMORY = -1
    # outputs that one call reserves room for; a larger fan_out gets fewer rows per call
    CALL_OUTPUTS = 1 << 16
    FEWEST_SIFTED = 1024   # keys of a bucket, before those are looked for whose fields are all zero

cdef struct CallRuntime:
    Worker* worker
    Chunk* out

cdef struct CallResult:
    int64_t outputs        # outputs of the rows that are done, at out.n ..; not yet part of `out`
    const char* reason     # of a failure that the runtime found; NULL: the function said so


cdef char* call_alloc(ordstream_call* call, int64_t size) noexcept nogil:
    """Memory for output views: as `alloc` in ordstream_kernel.h."""
    cdef CallRuntime* r = <CallRuntime*> call.runtime
    return chunk_alloc(r.worker, r.out, size if size > 0 else 1)


cdef inline row_function choose(const CompiledContext* x, const Chunk* c) noexcept nogil:
    """The variant of the function for this chunk."""
    cdef int32_t j
    for j in range(x.nreads):
        if c.cols[x.reads[j]].valid != NULL:
            return x.nulls
    return x.plain


cdef bint origins_are_rows(const CompiledContext* x, const ordstream_call* call, int64_t n,
                           int64_t done) noexcept nogil:
    """Whether the origins ascend, lie among the chunk's rows, and repeat at most fan_out times (`exact`:
    equal the rows)."""
    cdef const int32_t* origin = call.origin
    cdef int64_t m = call.n_out
    cdef int64_t fan_out = x.fan_out
    cdef int64_t i
    cdef int32_t bad = 0
    if x.exact and fan_out == 1:
        return m == done and memcmp(origin, call.rows, m * sizeof(int32_t)) == 0
    if m == 0:
        return True
    for i in range(1, m):
        bad |= origin[i] < origin[i - 1]
    for i in range(fan_out, m):
        bad |= origin[i] == origin[i - fan_out]
    return not bad and origin[0] >= call.rows[0] and origin[m - 1] <= call.rows[n - 1]


cdef int64_t call_rows(
    const CompiledContext* x, const Layout* layout, Worker* w, Chunk* c, const int32_t* rows, int64_t n,
    Chunk* out, char* states, int64_t stride, const int32_t* records, CallResult* result,
) noexcept nogil:
    """Call the function on `n` rows; its outputs are written behind out.n and not yet counted.

    Thread safety: the worker that owns chunk, out and state. Ownership: none taken.
    Returns: rows done (n, or k when row k failed; `result` filled), or CALL_NO_MEMORY.
    Cost: ~40 ns per call, ~0.1 ns per nullable output column and row.
    """
    cdef ordstream_call call
    cdef CallRuntime runtime
    cdef ordstream_column* cols
    cdef int64_t status, k
    cdef int64_t capacity = n * x.fan_out
    cdef int32_t j
    result.outputs = 0
    result.reason = NULL
    if capacity > 0x7fffffff - out.n or chunk_reserve(w, out, layout, <int32_t> capacity) < 0:
        return CALL_NO_MEMORY
    cols = <ordstream_column*> scratch_alloc(w, (layout.ncols + 1) * <int64_t> sizeof(ordstream_column))
    if cols == NULL:
        return CALL_NO_MEMORY
    for j in range(layout.ncols):
        if x.may_be_null[j] and chunk_set_valid(w, out, j) < 0:
            return CALL_NO_MEMORY
        cols[j].data = out.cols[j].data + <int64_t> out.n * layout.width[j]
        cols[j].valid = NULL
        if x.may_be_null[j]:
            cols[j].valid = out.cols[j].valid + out.n
            memset(cols[j].valid, 1, capacity)      # a call that was repeated may have left zeros
    runtime.worker = w
    runtime.out = out
    call.version = ORDSTREAM_KERNEL_VERSION
    call.fan_out = x.fan_out
    call.columns = <ordstream_column*> c.cols
    call.rows = rows
    call.states = states
    call.state_stride = stride
    call.records = records
    call.out = cols
    call.origin = out.origin + out.n
    call.capacity = capacity
    call.n_out = 0
    call.alloc = call_alloc
    call.runtime = &runtime
    status = choose(x, c)(n, &call, x.user_data)
    if call.n_out < 0 or call.n_out > capacity:
        result.reason = "the compiled function wrote more outputs than n * fan_out"
        return 0
    if status == n:
        k = n
    elif status < 0 and -1 - status < n:
        k = -1 - status
        # a failed row's outputs do not count; its slot is the last origin, if it got that far
        while call.n_out > 0 and call.origin[call.n_out - 1] == rows[k]:
            call.n_out -= 1
    else:
        result.reason = "the compiled function returned neither n nor -1 - k"
        return 0
    if not x.trusted and not origins_are_rows(x, &call, n, k):
        result.reason = ("the compiled function wrote origins that are not its rows in ascending order, or "
                         "too many for a row")
        return 0
    result.outputs = call.n_out
    return k


cdef inline int64_t rows_per_call(const CompiledContext* x, int64_t n) noexcept nogil:
    """How many of n rows to hand over at once."""
    if n * x.fan_out <= CALL_OUTPUTS:
        return n
    return CALL_OUTPUTS // x.fan_out if x.fan_out < CALL_OUTPUTS else 1


cdef void commit(const CompiledContext* x, Chunk* out, int64_t outputs) noexcept nogil:
    """Count the outputs of a call. Drop validity that is all ones, so that a later kernel takes its path
    without nulls."""
    cdef int32_t j
    out.n += <int32_t> outputs
    out.slots = out.n
    for j in range(out.ncols):
        if x.may_be_null[j] and out.cols[j].valid != NULL and memchr(out.cols[j].valid, 0, out.n) == NULL:
            out.cols[j].valid = NULL


cdef bint settled(
    Kernel* k, Worker* w, Chunk* c, int32_t slot, char* state, const char* reason, Chunk* out, Failure* f,
) noexcept nogil:
    """Give a row that failed in the compiled function to the interpreted one, which decides. True: it was
    processed there.

    Inside a compiled function integers are signed 64-bit, so it rejects values that the interpreted one
    takes (uint64 from 2**63 on). If the row fails there as well, or there is no interpreted function, `f` is
    filled. With on_error="skip" the row is tried again only if it may hold such values, or, if it is the
    first row skipped, to learn the reason.

    Thread safety: the worker that owns chunk, out and state; without core locks. Ownership: f.exc gets a new
    reference. Cost: ~50 us with a replay.
    """
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    failure_set(f, slot, FAIL_COMPILED, "the compiled function reported a failing row")
    if reason != NULL:
        failure_set(f, slot, FAIL_COMPILED, reason)
        return False
    if not x.has_replay or (k.on_error == ON_ERROR_SKIP and not x.unsigned_
                            and not skip_is_first(k, slot_serial(c, slot))):
        return False
    with gil:
        return replay_row(<CompiledKernel> x.owner, k, w, c, slot, state, out, f)


cdef void note_skipped(Kernel* k, Chunk* c, int32_t slot, Failure* f) noexcept nogil:
    """Skip a row of a stateless function; note the row and the reason if it is the first. Ownership of
    f.exc: taken."""
    if f.exc != NULL:
        with gil:
            if skip_is_first(k, slot_serial(c, slot)):
                skip_note_error(k, slot_serial(c, slot), False, <object> <PyObject*> f.exc)
            Py_DECREF(<object> <PyObject*> f.exc)
    elif skip_is_first(k, slot_serial(c, slot)):
        skip_note(k, slot_serial(c, slot), False, f.code, f.message)


cdef bint replay_row(CompiledKernel owner, Kernel* k, Worker* w, Chunk* c, int32_t slot, char* state,
                     Chunk* out, Failure* f) noexcept:
    """Run one row through the interpreted function: True when its outputs and its state were written; else
    `f` has what it raised.

    Never raises. GIL held. A failure leaves `out` and `state` as they were.
    """
    cdef int32_t before = out.n
    try:
        try:
            row = owner.reader.row(c, slot)
            owner.run_plain(k, w, row, slot, state, out)
            return True
        except BaseException as error:
            out.n = before
            out.slots = before
            exception_set(f, slot, error)
            f.code = FAIL_COMPILED
    except BaseException as error:
        try:
            exception_set(f, slot, error)
        except BaseException:
            pass
    return False


cdef Chunk* compiled_apply(Kernel* k, Worker* w, Chunk* c) noexcept nogil:
    """SL contract of kernel.pxd."""
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    cdef Chunk* out = chunk_new(w)
    cdef const int32_t* rows = c.sel
    cdef int32_t* iota
    cdef int64_t n = c.n
    cdef int64_t done = 0
    cdef int64_t m, r
    cdef int32_t i
    cdef CallResult result
    cdef Failure failure
    if out == NULL:
        failure_note(c, -1, FAIL_MEMORY, "out of memory")
        return NULL
    if rows == NULL:
        iota = <int32_t*> scratch_alloc(w, n * 4 + 4)
        if iota == NULL:
            failure_note(c, -1, FAIL_MEMORY, "out of memory")
            return out
        for i in range(<int32_t> n):
            iota[i] = i
        rows = iota
    while done < n:
        m = rows_per_call(x, n - done)
        r = call_rows(x, k.output, w, c, rows + done, m, out, NULL, 0, NULL, &result)
        if r == CALL_NO_MEMORY:
            failure_note(c, rows[done], FAIL_MEMORY, "out of memory")
            return out
        commit(x, out, result.outputs)
        done += r
        if r == m:
            continue
        memset(&failure, 0, sizeof(Failure))
        if settled(k, w, c, rows[done], NULL, result.reason, out, &failure):
            done += 1
            continue
        if k.on_error == ON_ERROR_SKIP:
            add_relaxed(&k.skipped, 1)      # statistic; no partner
            note_skipped(k, c, rows[done], &failure)
            done += 1
            continue
        failure_note(c, rows[done], FAIL_COMPILED, "")
        if c.failure != NULL:
            c.failure[0] = failure
        break
    if out.ncols == 0 and chunk_reserve(w, out, k.output, 1) < 0:
        failure_note(c, -1, FAIL_MEMORY, "out of memory")
    return out


cdef int32_t compiled_process(
    Kernel* k, Worker* w, void* state, Chunk* c, const int32_t* rows, int32_t n, Chunk* out, Failure* f,
) noexcept nogil:
    """PS/SF contract of kernel.pxd."""
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    cdef int32_t* records = <int32_t*> scratch_alloc(w, (<int64_t> n + 1) * 4)
    cdef char* base
    cdef char* copy = NULL
    cdef int64_t stride = 0
    cdef int64_t m, r
    cdef int64_t done = 0
    cdef int32_t i
    cdef CallResult result
    if records == NULL or (x.keyed and keyed_lookup(&b.keyed, w, c, rows, n, records) < 0):
        failure_set(f, rows[0], FAIL_MEMORY, "out of memory")
        return 0
    if x.keyed:
        base = b.keyed.records + x.keys.size + x.fields.liveness
        stride = b.keyed.stride
    else:
        base = b.single + x.fields.liveness
        memset(records, 0, <size_t> n * 4)
    if not x.trusted and k.on_error == ON_ERROR_SKIP:
        copy = scratch_alloc(w, rows_per_call(x, n) * x.state_size)
        if copy == NULL:
            failure_set(f, rows[0], FAIL_MEMORY, "out of memory")
            return 0
    while done < n:
        m = rows_per_call(x, n - done)
        if copy == NULL:
            r = call_rows(x, k.output, w, c, rows + done, m, out, base, stride, records + done, &result)
        else:
            r = call_undoable(k, w, c, rows + done, m, out, base, stride, records + done, copy, &result)
        if r == CALL_NO_MEMORY:
            failure_set(f, rows[done], FAIL_MEMORY, "out of memory")
            break
        commit(x, out, result.outputs)
        done += r
        if r < m:
            if settled(k, w, c, rows[done], base + records[done] * stride, result.reason, out, f):
                done += 1
                continue
            break
    if x.fields.liveness:
        for i in range(<int32_t> done):
            (<int64_t*> (base - x.fields.liveness + records[i] * stride))[0] = 1
    elif x.keyed:
        forget_zeros(k, <CompiledBucket*> b)
    return <int32_t> done


cdef void forget_zeros(Kernel* k, CompiledBucket* b) noexcept nogil:
    """Forget keys whose fields are all zero, as those of a new key are, each time that there are twice as
    many keys.

    Thread safety: the bucket's holder, who knows no places of records. Cost: a comparison, or keyed_sift.
    """
    if b.common.keyed.count < max(b.most, FEWEST_SIFTED):
        return
    keyed_sift(&b.common.keyed, k, any_field)
    b.most = 2 * b.common.keyed.count


cdef int64_t call_undoable(
    Kernel* k, Worker* w, Chunk* c, const int32_t* rows, int64_t n, Chunk* out, char* base, int64_t stride,
    const int32_t* records, char* copy, CallResult* result,
) noexcept nogil:
    """call_rows for a function that cannot undo a row: when row r fails, states go back to before the call
    and rows 0..r-1 run again.

    Thread safety, ownership: as call_rows; `copy` is room for n states. Returns: as call_rows. Cost: a copy
    of every row's state (2.3 ns per row of 16 bytes, measured); a second call where a row fails.
    """
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    cdef int64_t size = x.state_size
    cdef int64_t i
    cdef int64_t r = n
    cdef int64_t done
    cdef const char* reason = NULL
    for i in range(n):
        memcpy(copy + i * size, base + records[i] * stride, size)
    while True:
        done = call_rows(x, k.output, w, c, rows, r, out, base, stride, records, result)
        if done == r or done == CALL_NO_MEMORY:
            if reason != NULL:
                result.reason = reason
            return done
        # fewer in each round; the second one succeeds if the function is deterministic
        r = done
        if reason == NULL:
            reason = result.reason
        for i in range(n):
            memcpy(base + records[i] * stride, copy + i * size, size)
        if r == 0:
            result.outputs = 0
            return 0


cdef int compiled_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                            Failure* f) noexcept nogil:
    """Contract (c) of kernel.pxd: on_flush and on_time run in plain Python, key by key in ascending
    order."""
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    cdef Bucket* b = <Bucket*> state
    with gil:
        return (<CompiledKernel> x.owner).states.punctuate(
            k, w, b, &b.keyed if x.keyed else NULL, b.single, punctuation, out, f)


# ---------------------------------------------------------------- buckets

cdef void* compiled_bucket_new(Kernel* k, int32_t bucket) noexcept nogil:
    """An empty bucket; NULL: no memory."""
    cdef CompiledContext* x = <CompiledContext*> k.ctx
    return new_bucket_of(sizeof(CompiledBucket), x.keys, x.fields.liveness + x.state_size, &FIELDS)


cdef class CompiledStates(Callbacks):
    """States of compiled functions as Python objects, for on_flush and on_time."""

    def __init__(self, operator, dtype):
        self.spec = StateSpec(operator.state, True)
        self.dtype = dtype
        self.on_flush = operator.on_flush
        self.on_time = operator.on_time
        self.writer = RowWriter(operator.output)
        self.keys = KeyReader([operator.input.field(i).type for i in operator.key], True)
        self.liveness = 8 if self.on_flush is not None or self.on_time is not None else 0
        self.fan_out = operator.fan_out

    cdef State state_of(self, bytes record):
        return self.spec.new_state(list(np.frombuffer(record, self.dtype).tolist()[0]))

    cdef object load(self, void* bucket, char* record):
        if (<int64_t*> record)[0] == 0:
            return None
        return self.state_of((record + self.liveness)[:self.dtype.itemsize])

    cdef int save(self, void* bucket, char* record, object state) except -1:
        cdef bytes data = np.array([tuple(fields_of(<State> state))], self.dtype).tobytes()
        memcpy(record + self.liveness, <const char*> data, len(data))
        return 0


def _holds_uint64(type_):
    return pa.types.is_uint64(type_) or is_list(type_) and pa.types.is_uint64(type_.value_type)


cdef class CompiledKernel(KernelOwner):
    """Kernel of a compiled function.

    Memory ownership: compiled.pxd. Thread safety: read-only while a run lasts; the function must be thread
    safe.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
        Op "compiled".
    compiled : ordstream.udf.functions.CompiledFunction
    interpret : callable
        `interpret(function, output schema, fan_out, exact, row, state)`: runs the interpreted function on
        one row by the rules of run_serial and returns its outputs as storage values
        (ordstream.udf.functions.interpret).
    """

    def __cinit__(self, operator, compiled, interpret):
        cdef CompiledContext* x = &self.context
        memset(<void*> x, 0, sizeof(CompiledContext))
        x.reads = <int32_t*> calloc(len(compiled.reads) + 1, sizeof(int32_t))
        x.may_be_null = <uint8_t*> calloc(len(compiled.may_be_null) + 1, 1)
        x.fields.offset = <int32_t*> calloc(len(compiled.state or ()) + 1, sizeof(int32_t))
        if x.reads == NULL or x.may_be_null == NULL or x.fields.offset == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.context.reads)
        free(self.context.may_be_null)
        free(self.context.fields.offset)

    def __init__(self, operator, compiled, interpret):
        cdef CompiledContext* x = &self.context
        cdef int32_t j
        owner_setup(self, operator, {"SL": SL, "PS": PS, "SF": SF}[operator.kind])
        self.kernel.unbounded = 1
        self.references.append(compiled)
        self.function = compiled.interpreted
        self.interpret = interpret
        self.output_schema = operator.output
        self.writer = RowWriter(operator.output)
        self.reader = RowReader(operator.input, True)
        x.plain = <row_function> <uintptr_t> compiled.plain
        x.nulls = <row_function> <uintptr_t> compiled.nulls
        x.user_data = <void*> <uintptr_t> compiled.user_data
        x.fan_out = compiled.fan_out
        x.exact = operator.kind == "SL" and operator.exact
        x.nreads = <int32_t> len(compiled.reads)
        for j in range(x.nreads):
            x.reads[j] = compiled.reads[j]
        for j, flag in enumerate(compiled.may_be_null):
            x.may_be_null[j] = flag
        x.trusted = compiled.interpreted is not None
        x.has_replay = x.trusted
        state = operator.state if operator.kind != "SL" else ()
        x.unsigned_ = any([_holds_uint64(field.type) for field in (*operator.input, *state)])
        x.owner = <void*> self
        self.kernel.ctx = <void*> x
        self.kernel.keeps_views = any([t in (PT_VIEW, PT_LIST) for t in self.output_layout.types])
        if operator.kind == "SL":
            self.kernel.apply = compiled_apply
            return
        self.states = CompiledStates(operator, compiled.state)
        x.state_size = compiled.state.itemsize
        x.fields.liveness = self.states.liveness
        x.keyed = operator.kind == "PS"
        if x.keyed:
            self.key_spec = KeySpecOwner(operator.key, self.input_layout.types)
            x.keys = &(<KeySpecOwner> self.key_spec).spec
            self.kernel.uses_hash = 1
        self.kernel.process = compiled_process
        self.kernel.bucket_new = compiled_bucket_new
        self.kernel.bucket_free = free_bucket
        self.kernel.bucket_bytes = bytes_of_bucket
        for j, name in enumerate(operator.state.names):
            x.fields.offset[j] = compiled.state.fields[name][1]
        x.fields.n = <int32_t> len(operator.state)
        owner_bucket_state(self, operator)
        if x.fields.liveness:
            self.kernel.punctuate = compiled_punctuate

    cdef int run_plain(self, Kernel* k, Worker* w, object row, int32_t slot, char* record,
                       Chunk* out) except -1:
        """Run the interpreted function on one row as run_serial would; raises what it raises, else writes
        outputs and state."""
        cdef bytes before
        state = None
        if self.states is not None:
            before = record[:self.context.state_size]
            state = self.states.state_of(before)
        rows = self.interpret(self.function, self.output_schema, self.context.fan_out,
                              bool(self.context.exact), row, state)
        if chunk_reserve(w, out, k.output, <int32_t> len(rows) + 1) < 0:
            raise MemoryError
        for values in rows:
            self.writer.append(w, out, values, slot)
        if state is not None:
            self.states.save(NULL, record - self.context.fields.liveness, state)
        return 0


CALL_OFFSETS = {
    "columns": offsetof_columns, "rows": offsetof_rows, "states": offsetof_states,
    "state_stride": offsetof_stride, "records": offsetof_records, "out": offsetof_out,
    "origin": offsetof_origin, "n_out": offsetof_n_out,
}
"""Byte offsets in ordstream_call, for code that is generated without a C compiler
(ordstream/udf/numba_compiler.py)."""

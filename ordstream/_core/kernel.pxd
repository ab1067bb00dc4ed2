"""Kernel: the code an operator runs on a chunk. One struct of nogil function pointers is the contract between kernels
(built-in, compiled, Python) and the runtime.

a) SL: `apply(k, w, in)` returns the output chunk: `in` itself (narrowed or with other columns) or a new chunk whose `origin`
   names the input slot of each row, ascending. On a failing row it sets `in.failure` (slot, code, message or exc) and returns the
   outputs of the rows before it. With on_error == ON_ERROR_SKIP it drops failing rows itself, counts them in `skipped`, and tells
   `skip_note` or `skip_note_error` which and why where `skip_is_first`.
b) PS/SF: `process(k, w, state, in, rows, n, out, f)` handles `n` rows (slots, in arrival order) of one bucket, in order, and returns
   how many it finished: n, or j < n when rows[j] failed (f is filled; the state is as before that row; outputs of rows[:j] are
   kept). An in-place kernel (`in_place`) writes into columns that `prepare` made in `in` and may clear `in.keep[slot]`; otherwise
   it appends rows to `out` (chunk_reserve, n/slots, origin = the input row's slot).
   `finish(k, w, in)` runs once per chunk after all parts (in-place kernels: rearrange in.cols into the output layout).
c) `punctuate(k, w, state, punctuation, out, f)`: appends what the punctuation makes this bucket emit, any order, and fills
   flush_time/flush_key of every row (the runtime sorts by (flush_time, key, emission index)). SF kernels may leave flush_key
   NULL: emission order is kept. A loop over keys looks at the stop flag (stopping.pxd) and returns 0 early: the run's output is then
   dropped, and its state is never used again.
d) All functions are nogil; Python kernels take the GIL inside, once per call, never while they hold a core lock.
e) Lanes. A kernel works on the lane that the plan gave it (`reads`) and sees no other: `in` is that lane's chunk, and the
   rows that it makes stay in that lane. Columns of `in` may be shared with other lanes: they are never written into; its
   selection is its own. Two inputs of an operator are one lane, united in front of it, with a column that says which input
   a row comes from; rows for a side output are told apart by a column, for a branch behind.
   With `units` (SL), `apply` takes and gives whole units: `in` has rows in a lane of `reads`, `in.beside` are the other
   chunks. It sets lane, beside, fork, place and serials of what it makes (`origin` is not read); of the chunks that it
   leaves out of the unit, the one it returns holds all but `in`.
f) Functions are called by any worker, one call at a time per bucket state; the `Kernel` itself is read-only while a run lasts.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.chunk cimport Chunk, Failure, Layout, Worker
from ordstream._core.atomics cimport a64, as_pointer, load_acquire

cdef enum OperatorKind:
    SL = 0
    PS = 1
    SF = 2

cdef enum OnError:
    ON_ERROR_FAIL = 0
    ON_ERROR_SKIP = 1

ctypedef Chunk* (*apply_t)(Kernel*, Worker*, Chunk*) noexcept nogil
ctypedef int (*prepare_t)(Kernel*, Worker*, Chunk*) noexcept nogil            # 0, or -1: no memory
ctypedef int32_t (*process_t)(Kernel*, Worker*, void* state, Chunk* chunk, const int32_t* rows, int32_t n, Chunk* out,
                              Failure*) noexcept nogil
ctypedef int (*finish_t)(Kernel*, Worker*, Chunk*) noexcept nogil             # 0, or -1: no memory
ctypedef int (*punctuate_t)(Kernel*, Worker*, void* state, Chunk* punctuation, Chunk* out, Failure*) noexcept nogil
ctypedef void* (*bucket_new_t)(Kernel*, int32_t bucket) noexcept nogil        # NULL: no memory
ctypedef void (*bucket_free_t)(Kernel*, void*) noexcept nogil                 # may be called with or without the GIL
ctypedef int64_t (*bucket_bytes_t)(Kernel*, void*) noexcept nogil             # bytes of state held by the bucket

cdef struct Skip:
    # A row, or a step of a punctuation, that on_error == skip dropped: what a report says about it. Never changed once it is linked.
    Skip* later            # noted before, but later in the order
    int64_t serial
    int32_t at_end         # 1: a step of the final flush
    int32_t code           # FailureCode
    char[256] text         # UTF-8, cut where it is too long

cdef struct Kernel:
    int32_t kind           # OperatorKind
    int32_t in_place       # PS/SF: writes into prepared columns of the input chunk
    int32_t on_error       # OnError
    int32_t max_workers    # 0: no bound of its own (1 for a Python function under the GIL)
    int32_t keeps_views    # outputs may hold views into the input chunk: the runtime holds it
    int32_t uses_hash      # PS: looks keys up, so in.hash saves hashing them; 0: in.hash may be NULL
    int32_t unbounded      # a row may take as long as it likes (a user's function): nothing waits in the worker's hands meanwhile
    int32_t units          # SL: apply takes and gives whole units; 0: a chunk of one lane
    uint64_t reads         # lanes that it works on, a bit each; without `units` one; 0: lane 0
    int32_t extra_cols     # columns that prepare/apply add beyond max(input, output)
    const Layout* input
    const Layout* output
    void* ctx              # the kernel's own, owned by its KernelOwner
    apply_t apply
    prepare_t prepare
    process_t process
    finish_t finish
    punctuate_t punctuate  # NULL: punctuations make this operator emit nothing
    bucket_new_t bucket_new
    bucket_free_t bucket_free
    bucket_bytes_t bucket_bytes
    a64 skipped            # rows and steps dropped by on_error == skip
    a64 first_skip         # Skip* of the first of them in the order, as far as it is known; 0: none. Owned, with those linked from it


cdef inline bint skip_is_first(Kernel* k, int64_t serial) noexcept nogil:
    """Whether a skipped row comes before all that were noted. Any worker. Cost: a load; of a line that is written a few times per run."""
    cdef Skip* s = <Skip*> as_pointer(load_acquire(&k.first_skip))   # pairs with cas_acq_rel in skip_note
    return s == NULL or serial < s.serial

cdef void skip_note(Kernel* k, int64_t serial, bint at_end, int32_t code, const char* text) noexcept nogil
cdef void skip_note_error(Kernel* k, int64_t serial, bint at_end, object error) noexcept
cdef object skip_first(Kernel* k)


cdef class KernelOwner:
    # Memory ownership: owns `kernel.ctx` (freed by the subclass's __dealloc__), both layouts, and every Python object that
    # the kernel borrows. Must outlive the run.
    cdef Kernel kernel
    cdef public object input_layout
    cdef public object output_layout
    cdef public object references

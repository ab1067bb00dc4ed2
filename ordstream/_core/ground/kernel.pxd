"""Kernel: the code an operator runs on a chunk. One struct of nogil function pointers is the contract
between kernels (built-in, compiled, Python) and the runtime.

a) SL: `apply(k, w, in)` returns the output chunk: `in` itself (narrowed or with other columns) or a new
   chunk whose `origin` names the input slot of each row, ascending. On a failing row it sets `in.failure`
   (slot, code, message or exc) and returns the outputs of the rows before it. With on_error == ON_ERROR_SKIP
   it drops failing rows itself, counts them in `skipped`, and tells `skip_note` or `skip_note_error` which
   row and why, if `skip_is_first`.
b) PS/SF: `process(k, w, state, in, rows, n, out, f)` handles `n` rows (slots, in arrival order) of one
   bucket, in order, and returns how many it finished: n, or j < n when rows[j] failed (f is filled; the
   state is as before that row; outputs of rows[:j] are kept). An in-place kernel (`in_place`) writes into
   columns that `prepare` made in `in` and may clear `in.keep[slot]`; otherwise it appends rows to `out`
   (chunk_reserve, n/slots, origin = the input row's slot). `finish(k, w, in)` runs once per chunk after all
   parts (in-place kernels: rearrange in.cols into the output layout).
c) `punctuate(k, w, state, punctuation, out, f)`: appends what the punctuation makes this bucket emit, any
   order, and fills flush_time/flush_key of every row (the runtime sorts by (flush_time, key, emission
   index)). SF kernels may leave flush_key NULL: emission order is kept. A loop over keys looks at the stop
   flag (stopping.pxd) and returns 0 early: the run's output is then dropped, and its state is never used
   again.
d) All functions are nogil; Python kernels take the GIL inside, once per call, never while they hold a core
   lock.
e) Functions are called by any worker, one call at a time per bucket state; the `Kernel` itself is read-only
   while a run lasts.
f) The state contract: the keys of a bucket leave it as rows, come into another bucket, and are forgotten.
   A row has the layout `state`: the key columns (`state_keys`: columns 0, 1, ... of the row; NULL: an
   operator without a key, whose rows are one state together), then the operator's own columns. Mostly a
   key has one row; where it has several (top_values), further columns tell them apart
   (`Operator.state_order`), and a key that is named means all of its rows. Rows are canonical: which
   rows a set of tuples leaves depends on these tuples alone, not on workers, buckets, the neighbours of
   the operator, or how a bucket stores them; their order may be any.
   The caller holds the bucket, and no chunk is on its way whose views point into the bucket's state.
   `state_export(k, w, state, cursor, out, f)` appends at most `cursor.most` rows to `out`, moves the
   cursor, and returns how many. With `cursor.keys` it takes only those keys (rows of the layout `state`,
   of which only the key columns are read): none for a key that is not there. `cursor.done` says that
   nothing is left. The rows own their bytes: they outlive the state. What later tuples emit stays as it
   is. Between two calls for one cursor nothing else is done to the state. A key that no tuple left
   anything for (all of them failed) has no row. Returns -1 without memory, or with FAIL_PYTHON where the
   user's codec raised (f is filled, and f.exc owned; what `out` has is worth nothing).
   `state_install(k, w, state, rows, slots, n, f)` takes rows in, copying what it keeps, and returns how
   many: n, or j < n when row slots[j] can't be taken; the rows before it are in. f is filled: FAIL_STATE
   (the key is there already, or a value that no state has), FAIL_PYTHON (as above) or FAIL_MEMORY. From
   then on a key behaves as if the tuples behind its row had been processed here.
   `state_remove(k, w, state, keys, slots, n, f)` forgets the keys of these rows (only their key columns
   are read) and returns how many were there; absent ones are no error. A key that comes again begins anew.
   Memory is given back before it returns, as far as there is memory to move the rest into: what a bucket
   holds stays proportional to the keys that it has. Returns -1 without memory (f is filled): nothing was
   removed.
   Cost per key: a lookup and a copy; state_remove a move in addition, and its share of copies of what is
   left, each of which is due when three quarters of a table, or half of the strings' bytes, are unused.
   Callers pass bounded numbers of rows: no call looks at the stop flag.
   All of `state`, `state_export`, `state_install`, `state_remove` NULL: the operator has no state, or its
   state can't leave it yet.
g) Lanes. A kernel works on the lane that the plan gave it (`reads`) and sees no other: `in` is that lane's
   chunk, and the rows that it makes stay in that lane. Columns of `in` may be shared with other lanes: they
   are never written into; its selection is its own. Two inputs of an operator are one lane, united in front
   of it, with a column that says which input a row comes from; rows for a side output are told apart by a
   column, for a branch behind.
   With `units` (SL), `apply` takes and gives whole units: `in` has rows in a lane of `reads`, `in.beside`
   are the other chunks. It sets lane, beside, fork, place and serials of what it makes (`origin` is not
   read); of the chunks that it leaves out of the unit, the one it returns holds all but `in`.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Layout, Worker
from ordstream._core.ground.atomics cimport a64, as_pointer, load_acquire
from ordstream._core.ground.kept_batches cimport KeptBatches
from ordstream._core.ground.key_spec cimport KeySpec

cdef enum OperatorKind:
    SL = 0
    PS = 1
    SF = 2

cdef enum:
    IN_PLACE_AND_BYTES = 2

cdef enum OnError:
    ON_ERROR_FAIL = 0
    ON_ERROR_SKIP = 1

ctypedef Chunk* (*apply_t)(Kernel*, Worker*, Chunk*) noexcept nogil
ctypedef int (*prepare_t)(Kernel*, Worker*, Chunk*) noexcept nogil            # 0, or -1: no memory
ctypedef int32_t (*process_t)(Kernel*, Worker*, void* state, Chunk* chunk, const int32_t* rows, int32_t n,
                              Chunk* out, Failure*) noexcept nogil
ctypedef int (*finish_t)(Kernel*, Worker*, Chunk*) noexcept nogil             # 0, or -1: no memory
ctypedef int (*punctuate_t)(Kernel*, Worker*, void* state, Chunk* punctuation, Chunk* out,
                            Failure*) noexcept nogil
ctypedef void* (*bucket_new_t)(Kernel*, int32_t bucket) noexcept nogil        # NULL: no memory
ctypedef void (*bucket_free_t)(Kernel*, void*) noexcept nogil                 # with or without the GIL
ctypedef int64_t (*bucket_bytes_t)(Kernel*, void*) noexcept nogil             # bytes of the bucket's state
ctypedef int32_t (*state_export_t)(Kernel*, Worker*, void* state, StateCursor*, Chunk* out,
                                   Failure*) noexcept nogil
ctypedef int32_t (*state_rows_t)(Kernel*, Worker*, void* state, Chunk* rows, const int32_t* slots, int32_t n,
                                 Failure*) noexcept nogil

cdef struct StateCursor:
    # How far an export of a bucket is. Memory ownership: the caller's, who sets `most`, perhaps the keys,
    # and zeroes the rest.
    int32_t most           # rows that one call appends at most; at least 1
    int32_t done           # 1: nothing is left
    Chunk* keys            # NULL: every key; else only those of the rows slots[:n]
    const int32_t* slots
    int32_t n
    int64_t part           # the kernel's own
    int64_t at             # the kernel's own

cdef struct Skip:
    # A row, or a step of a punctuation, that on_error == skip dropped: what a report says about it. Never
    # changed once it is linked.
    Skip* later            # noted before, but later in the order
    int64_t serial
    int32_t at_end         # 1: a step of the final flush
    int32_t code           # FailureCode
    char[256] text         # UTF-8, cut where it is too long

cdef struct Kernel:
    int32_t kind           # OperatorKind
    # PS/SF: writes into prepared columns of the input chunk. IN_PLACE_AND_BYTES: what they point to lies in
    # part.out, a chunk without rows, which `finish` takes
    int32_t in_place
    int32_t on_error       # OnError
    int32_t max_workers    # 0: no bound of its own (1 for a Python function under the GIL)
    int32_t keeps_views    # outputs may hold views into the input chunk: the runtime holds it
    int32_t uses_hash      # PS: looks keys up, so in.hash saves hashing them; 0: in.hash may be NULL
    int32_t shows_kept     # PS/SF: outputs for rows may hold views into batches that states let go of
    int32_t unbounded      # a row may take any time (a user's function): no finished unit is kept meanwhile
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
    const Layout* state    # of an exported row; NULL: no state, or none that can leave
    const KeySpec* state_keys  # of an exported row; NULL: no key
    state_export_t state_export
    state_rows_t state_install
    state_rows_t state_remove
    a64 skipped            # rows and steps dropped by on_error == skip
    a64 first_skip         # Skip* of the first of them in the order, as far as known, or 0. Owned
    # Lent by the run while it lasts; NULL outside a run. For kernels that call a user's function.
    a64* stop              # RunState.stop
    a64* reader_turn       # RunState.reader_turn
    KeptBatches* batches   # input batches, whose rows states may refer to
    # Told by the kernel to the run.
    void* shed             # ShedControl (flow/shedding.pxd), if it sheds for the next operator, or NULL


cdef inline bint skip_is_first(Kernel* k, int64_t serial) noexcept nogil:
    """Whether a skipped row comes before all that were noted.

    Thread safety: any worker. Ownership: none. Cost: a load from a line that is written a few times per run.
    """
    cdef Skip* s = <Skip*> as_pointer(load_acquire(&k.first_skip))   # pairs with cas_acq_rel in skip_note
    return s == NULL or serial < s.serial

cdef void skip_note(Kernel* k, int64_t serial, bint at_end, int32_t code, const char* text) noexcept nogil
cdef void skip_note_error(Kernel* k, int64_t serial, bint at_end, object error) noexcept
cdef object skip_first(Kernel* k)


cdef class KernelOwner:
    # Memory ownership: owns `kernel.ctx` (freed by the subclass's __dealloc__), both layouts, and every
    # Python object that the kernel borrows. Must outlive the run.
    cdef Kernel kernel
    cdef public object input_layout
    cdef public object output_layout
    cdef public object state_layout     # None: no state, or none that can leave
    cdef public object state_keys
    cdef public object references

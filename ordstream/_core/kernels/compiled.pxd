"""Kernels that call a compiled user function (Numba, C, Cython) once per chunk, without the GIL.

a) The contract with the function is ordstream/include/ordstream_kernel.h; this file adds nothing to it that
   a user must know.
b) Room for n * fan_out outputs is reserved before the call, and keys get their records before it, so that no
   pointer that the function sees moves while it runs.
c) Rollback of a failed row's state. A Numba kernel saves a row's record before each row (constant size, a
   few vector moves) and restores it itself: `trusted`. For an opaque C function the records of all rows are
   copied before the call (`call_undoable`); when row k fails, they are put back and rows 0..k-1 run again.
d) With `fields.liveness` (on_flush or on_time exist) a record starts with 8 bytes that become 1 when its
   first row succeeded: a key whose only rows failed has no state, as in a run that never saw them.
   Without it a key whose fields are all zero is as a new one, and is forgotten in time.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.kernel cimport Kernel, KernelOwner
from ordstream._core.state.keyed_bucket cimport Bucket
from ordstream._core.state.keyed_state cimport KeySpec
from ordstream._core.state.python_state cimport Callbacks, State
from ordstream._core.state.python_values cimport RowReader, RowWriter
from ordstream._core.state.struct_rows cimport StructFields

cdef extern from "ordstream_kernel.h" nogil:
    int ORDSTREAM_KERNEL_VERSION
    ctypedef struct ordstream_column:
        char* data
        uint8_t* valid
    ctypedef struct ordstream_call:
        int32_t version
        int32_t fan_out
        const ordstream_column* columns
        const int32_t* rows
        char* states
        int64_t state_stride
        const int32_t* records
        const ordstream_column* out
        int32_t* origin
        int64_t capacity
        int64_t n_out
        char* (*alloc)(ordstream_call*, int64_t) noexcept nogil
        void* runtime

cdef struct CompiledBucket:
    Bucket common              # first
    int64_t most               # keys, before those are looked for whose fields are all zero

ctypedef int64_t (*row_function)(int64_t, void*, void*) noexcept nogil

cdef struct CompiledContext:
    # Ownership: the CompiledKernel; the arrays too.
    StructFields fields        # of a user state; first: struct_rows reads it through Kernel.ctx
    row_function plain         # no column of `reads` has nulls in the chunk
    row_function nulls         # used where one has; the same function where it makes no difference
    void* user_data
    int32_t fan_out
    int32_t exact              # every row must emit exactly fan_out rows (checked here where not `trusted`)
    int32_t nreads
    # nullable input columns that the function reads: these decide between plain and nulls
    int32_t* reads
    uint8_t* may_be_null       # per output column: the function may write a null
    int32_t state_size         # bytes of one user state (multiple of 8); 0: stateless
    int32_t keyed              # 1: PS, 0: SF
    # 1: compiled by ordstream.udf.functions: rolls its state back, and origins are right by construction
    int32_t trusted
    int32_t has_replay
    # 1: rows or state may hold a uint64, which a compiled function takes only below 2**63
    int32_t unsigned_
    const KeySpec* keys
    void* owner                # borrowed: the CompiledKernel

cdef class CompiledStates(Callbacks):
    # States as records: `load` makes a State of a record's bytes, `save` writes it back.
    cdef object dtype          # numpy structured dtype of a user state
    cdef int32_t liveness
    cdef State state_of(self, bytes record)

cdef class CompiledKernel(KernelOwner):
    # Memory ownership: owns `context` and its arrays, and (in `references`) what keeps the function alive.
    cdef CompiledContext context
    cdef RowReader reader
    cdef RowWriter writer
    cdef object function             # the interpreted function, or None
    cdef object interpret            # runs it on one row; handed in by whoever makes the kernel
    cdef CompiledStates states       # None: stateless
    cdef object output_schema
    cdef object key_spec             # KeySpecOwner, or None
    cdef int run_plain(self, Kernel* k, Worker* w, object row, int32_t slot, char* record,
                       Chunk* out) except -1

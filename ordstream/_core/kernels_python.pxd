"""Kernels that call Python functions row by row, without and with a state per key (batches: kernels_batch.pxd).

a) The GIL is taken once per kernel call. Values cross as in values.pxd; a function never sees pooled memory.
b) A row that fails: its outputs are dropped and (policy "skip") its state is put back. Under "fail" the run ends at that row, so
   nobody can look at the state any more and it is not copied beforehand, which would cost more than the call.
c) `max_workers` is 1 unless the interpreter has no GIL or the function releases it.
d) Of a BaseException that is no Exception (KeyboardInterrupt, SystemExit) nothing is ever skipped.
e) A run that is cancelled stops before the next row: one row may take long. That row is then the failing one, with `Cancelled`, so nothing
   behind it is delivered.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.atomics cimport a64, load_relaxed
from ordstream._core.chunk cimport Chunk, ChunkPool, Failure, Worker
from ordstream._core.kernel cimport KernelOwner
from ordstream._core.keyed_state cimport KeyedState
from ordstream._core.python_state cimport Callbacks, Emitter, StateSpec
from ordstream._core.values cimport RowReader, RowWriter

cdef inline bint is_cancelled(a64* stop) noexcept nogil:
    """Whether the run was cancelled. `stop` NULL: there is none. Cost: one load."""
    return stop != NULL and load_relaxed(stop) != 0           # a hint: the worker loop's acquire load decides


cdef class PythonKernel(KernelOwner):
    # Base of the SL kernels. `kernel.ctx` borrows the owner itself.
    cdef a64* stop                 # the run's, borrowed while it lasts; NULL outside a run
    cdef object fn
    cdef RowReader reader
    cdef RowWriter writer
    cdef bint makes_chunk          # `run` is given a fresh output chunk
    cdef Chunk* new_output(self, Worker* w, int32_t n) except NULL
    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL
    cdef list read(self, Chunk* c, const int32_t* rows, int32_t n)
    cdef int failed(self, Chunk* c, int32_t slot, object error) except -1
    cdef int fails_with(self, Chunk* c, int32_t slot, object error) except -1

cdef class RowsKernel(PythonKernel):
    pass

cdef class FilterKernel(PythonKernel):
    pass

cdef class FlatKernel(PythonKernel):
    pass

cdef struct PythonBucket:
    # A record's 8 bytes are the position of the key's state in `states`, plus 1; 0: the key has no state.
    KeyedState keyed           # PS
    int64_t single             # SF: the one record
    void* states               # list, owned; touched with the GIL only
    int64_t count              # len(states), for bucket_bytes

cdef class PythonStates(Callbacks):
    cdef StateSpec spec        # declared state, or None
    cdef object codec
    cdef object init
    cdef object new_state(self)

cdef class ProcessKernel(KernelOwner):
    # Memory ownership: `heap` counts the keys' string bytes.
    cdef a64* stop             # as PythonKernel's
    cdef object fn
    cdef RowReader reader
    cdef RowWriter writer
    cdef PythonStates states
    cdef object key_spec       # KeySpecOwner, None for SF
    cdef ChunkPool heap
    cdef int64_t state_bytes   # of one state, a guess
    cdef bint one_row(self, Worker* w, PythonBucket* b, Chunk* c, int32_t slot, int64_t* record, object row, Chunk* out,
                      Emitter emit, Failure* f) except -1
    cdef int32_t process(self, Worker* w, PythonBucket* b, Chunk* c, const int32_t* rows, int32_t n, const int32_t* records,
                         Chunk* out, Failure* f) noexcept

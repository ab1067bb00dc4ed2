"""Kernels that call Python functions row by row, without and with a state per key (batches:
map_batches.pxd).

a) The GIL is taken once per kernel call. Values cross as in python_values.pxd; a function never sees pooled
   memory.
b) When a row fails, its outputs are dropped and (policy "skip") its state is restored. Under "fail" the run
   ends at that row and its state is never read again, so no copy is made beforehand: that would cost more
   than the call.
c) `max_workers` is 1 unless the interpreter has no GIL or the function releases it.
d) A BaseException that is not an Exception (KeyboardInterrupt, SystemExit) is never skipped.
e) A run that is cancelled stops before the next row: one row may take long. That row is then the failing
   one, with `Cancelled`, so nothing behind it is delivered.
f) When the reading thread has been woken and wants the GIL, a worker lets it go first, once. Otherwise the
   thread is woken each time that the GIL is free, between any two calls, and mostly finds it taken again.
   That cost a third of a batch function's time (decisions.md).
g) Where rows are rejected, they are skipped, and noted for the operator that makes the second output.
h) Where some calls are timed, the others are of the user's function itself: one more Python function around
   every call costs more than all that is timed.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.atomics cimport a64, load_relaxed, store_relaxed
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport KernelOwner
from ordstream._core.ground.rejections cimport Rejections
from ordstream._core.state.python_rows cimport PythonBucket, PythonRows
from ordstream._core.state.python_state cimport Callbacks, Emitter
from ordstream._core.state.python_timers cimport Timers
from ordstream._core.ground.threads cimport SPIN_LIMIT, cpu_pause, cpu_yield
from ordstream._core.state.python_values cimport RowWriter
from ordstream._core.state.row_cursor cimport RowShape

cdef enum:
    # pauses of a worker that lets the reading thread pass, some 15 to 50 ns each
    TURN_LIMIT = 2_000


cdef inline bint is_cancelled(a64* stop) noexcept nogil:
    """Whether the run was cancelled. `stop` NULL: there is none. Cost: one load."""
    # a hint: the worker loop's acquire load decides
    return stop != NULL and load_relaxed(stop) != 0


cdef inline void let_reader_pass(a64* turn, a64* passed) noexcept nogil:
    """Before taking the GIL, give the reading thread some 20 us to take it and do its work, if it has been
    woken since the last call.

    turn: RunState.reader_turn, NULL outside a run; passed: the value that this kernel has let pass already.
    Thread safety: any worker; several workers that read the same `passed` may each wait. Cost: two loads, or
    the wait.
    """
    cdef int64_t now
    cdef int rounds = 0
    if turn == NULL:
        return
    now = load_relaxed(turn)                                  # a hint, with store_relaxed in Run.wait
    if now & 1 and now != load_relaxed(passed):
        store_relaxed(passed, now)
        while load_relaxed(turn) == now and rounds < TURN_LIMIT:
            rounds += 1
            if rounds % SPIN_LIMIT == 0:                      # its core may be this one
                cpu_yield()
            else:
                cpu_pause()


cdef class CalledFunction:
    # A user's function, of whose calls a clock times some (ordstream.operators.row_clock.SomeCalls). Thread
    # safety: one caller where there is a clock.
    cdef object fn                 # the timed one, where there is a clock
    cdef object untimed
    cdef object clock
    cdef int64_t left              # calls until the next one that is timed; -1: there is no clock

    cdef inline object of_next(self):
        # What the next call is of. Cost: ~1 ns.
        if self.left < 0:
            return self.fn
        if self.left:
            self.left -= 1
            return self.untimed
        self.left = self.clock.untimed()
        return self.fn


cdef class PythonKernel(KernelOwner):
    # Base of the SL kernels. `kernel.ctx` borrows the owner itself.
    cdef a64 passed                # let_reader_pass
    cdef object fn
    cdef CalledFunction called     # the same, where it is called once per row
    cdef RowShape shape
    cdef RowWriter writer
    cdef bint makes_chunk          # `run` is given a fresh output chunk
    cdef Rejections rejections     # None: rows are not rejected
    cdef Chunk* new_output(self, Worker* w, int32_t n) except NULL
    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL
    cdef int failed(self, Chunk* c, int32_t slot, object error) except -1
    cdef int fails_with(self, Chunk* c, int32_t slot, object error) except -1

cdef class RowsKernel(PythonKernel):
    pass

cdef class FilterKernel(PythonKernel):
    pass

cdef class FlatKernel(PythonKernel):
    pass

cdef class PythonStates(Callbacks):
    cdef object codec
    cdef object init
    cdef object new_state(self)

cdef class ProcessKernel(KernelOwner):
    cdef a64 passed            # as PythonKernel's
    cdef CalledFunction called
    cdef RowShape shape
    cdef RowWriter writer
    cdef PythonStates states
    cdef Timers timers         # None: there are none
    cdef PythonRows as_rows    # None: the state is not declared, and stays
    cdef object key_spec       # KeySpecOwner, None for SF
    cdef int64_t state_bytes   # of one state, a guess
    cdef Rejections rejections     # None: rows are not rejected
    cdef int32_t retries
    cdef bint one_row(self, Worker* w, PythonBucket* b, Chunk* c, int32_t slot, int64_t* record, object row,
                      Chunk* out,
                      Emitter emit, Failure* f, int32_t left) except -1
    cdef bint gives_up(self, const Chunk* c, int32_t slot, object error, Failure* f) except -1
    cdef int punctuate(self, Worker* w, PythonBucket* b, Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept
    cdef int32_t process(self, Worker* w, PythonBucket* b, Chunk* c, const int32_t* rows, int32_t n,
                         const int32_t* records,
                         Chunk* out, Failure* f) noexcept

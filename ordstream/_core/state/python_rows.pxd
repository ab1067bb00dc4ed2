"""The state contract (kernel.pxd, f) for states that are Python objects: declared fields as one column each,
a codec's bytes as one column.

a) All of it needs the GIL. The codec is the user's code: nothing else turns an object into bytes here.
b) A key's record is the place of its state in a list. A key that leaves leaves None in the list; when half
   of the list is so, `remove_rows` copies what is left together. A key that a function has forgotten, or
   that never got a state, stays as one without, until half of the list or of the keys is so
   (`keys_forget`): both take constant time per key.
c) What a codec raises is a failure with an exception (FAIL_PYTHON) that names operator and key: of an export
   too, which then returns -1.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel, StateCursor
from ordstream._core.state.keyed_state cimport KeyedState
from ordstream._core.state.python_state cimport StateSpec
from ordstream._core.state.key_values cimport KeyReader

cdef struct PythonBucket:
    # A record's 8 bytes are the position of the key's state in `states`, plus 1; 0: the key has no state.
    KeyedState keyed           # PS
    int64_t single             # SF: the one record
    void* states               # list, owned; touched with the GIL only
    int64_t count              # states that a key has, for bucket_bytes
    int64_t grown              # bytes of the states' texts and lists, for bucket_bytes
    int64_t holes              # entries of `states` whose keys were removed
    ChunkPool pool             # counts the bytes of the keys' strings; only `bytes` is used
    void* timers               # list, owned: python_timers.pxd (b); touched with the GIL only
    int32_t timers_known       # 0: the list says nothing

cdef void place_forget(PythonBucket* b, int64_t* record) noexcept
cdef void keys_forget(Kernel* k, PythonBucket* b) noexcept

cdef class PythonRows:
    # Columns of an operator's states. Thread safety: read-only after __init__.
    cdef StateSpec spec            # None: a codec
    cdef object codec
    cdef str where                 # operator, for error texts
    cdef KeyReader keys
    cdef list readers              # ColumnReader per own column
    cdef list writers              # ColumnWriter per own column
    cdef list gathered             # whether a column is written as an array, not value by value
    cdef int32_t first             # own columns begin here
    cdef int32_t export_rows(self, Kernel* k, Worker* w, PythonBucket* b, StateCursor* cursor, Chunk* out,
                             Failure* f) noexcept
    cdef int32_t install_rows(self, Kernel* k, PythonBucket* b, Chunk* rows, const int32_t* slots, int32_t n,
                              Failure* f) noexcept
    cdef int32_t remove_rows(self, Kernel* k, PythonBucket* b, Chunk* keys, const int32_t* slots,
                             int32_t n) noexcept
    cdef bint install_row(self, Kernel* k, PythonBucket* b, Chunk* rows, int32_t slot, list values,
                          Failure* f) except -1
    cdef bytes encoded(self, Kernel* k, const char* record, object state)
    cdef object state_of(self, Kernel* k, Chunk* rows, int32_t slot, list values)
    cdef list read_row(self, Chunk* rows, int32_t slot)
    cdef object of_key(self, Kernel* k, const char* record)
    cdef object of_row(self, Kernel* k, Chunk* rows, int32_t slot)
    cdef object wrong(self, str what, object key, object error)

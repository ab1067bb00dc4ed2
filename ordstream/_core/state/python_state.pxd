"""State and outputs of Python process functions: declared state, `emit`, and the callbacks of punctuations.

Everything here needs the GIL.
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Layout, Worker
from ordstream._core.ground.kernel cimport Kernel
from ordstream._core.state.keyed_state cimport KeyedState, KeySpec
from ordstream._core.state.key_values cimport KeyReader
from ordstream._core.state.python_values cimport RowWriter

cdef class StateSpec:
    # Declared fields of a state. Shared by the states of an operator.
    cdef readonly object schema
    cdef readonly dict index         # name -> position
    cdef list types
    cdef list names
    cdef list zeros
    cdef list lists                  # positions of fields that are lists
    cdef list growing                # positions of fields without a fixed size, and whether they hold texts
    cdef int32_t* kinds              # what may be stored without a conversion: FastKind per field; owned
    cdef int64_t* lows
    cdef int64_t* highs
    cdef object states               # class of its states
    cdef Py_ssize_t* slots           # where each field lies in a state; owned
    cdef State new_state(self, list values)
    cdef State state_of(self, list values)
    cdef str no_field(self, object name)
    cdef int tell_fields(self, object error) except -1

cdef class State:
    # As ordstream.ground.declared_state.DeclaredState, with a slot per field (`StateSpec.states`).
    cdef StateSpec spec
    cdef int64_t told                # bytes of its texts and lists that its bucket knows of

cdef int64_t growth(State state) except? -1
cdef object field_of(State state, Py_ssize_t i)
cdef list fields_of(State state)
cdef int put_field(State state, Py_ssize_t i, object value) except -1
cdef int put_fields(State state, list values) except -1

cdef class Emitter:
    # The `emit` of one kernel call. Dead (raises) once the call is over.
    cdef RowWriter writer
    cdef const Layout* layout
    cdef Worker* worker
    cdef Chunk* out                  # NULL: dead
    cdef int32_t origin
    cdef int64_t left                # outputs that the row may still emit; -1: no bound

cdef bint forgets(object result) except -1

cdef int callback_failed(Failure* f, object error) noexcept

cdef class Callbacks:
    # on_flush and on_time of a process operator. Subclasses know where states are kept.
    cdef public object on_flush
    cdef public object on_time
    cdef RowWriter writer
    cdef KeyReader keys
    cdef int64_t fan_out             # bound of emits per call, -1: none
    cdef bint steps_fail             # whatever the policy for rows
    cdef StateSpec spec              # declared state, or None
    cdef Emitter emitter(self, Kernel* k, Worker* w, Chunk* out)
    cdef object load(self, void* bucket, char* record)          # a state, or None: this key has none
    cdef int save(self, void* bucket, char* record, object state) except -1
    cdef int forget(self, void* bucket, char* record) except -1
    cdef object preserve(self, object state)
    cdef int restore(self, void* bucket, char* record, object state, object copied) except -1
    cdef bint one_key(self, Kernel* k, Worker* w, void* bucket, KeyedState* keyed, char* record,
                      Chunk* punctuation, Chunk* out,
                      object callback, Failure* f, int64_t at) except -1
    cdef int punctuate(self, Kernel* k, Worker* w, void* bucket, KeyedState* keyed, char* single,
                       Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept

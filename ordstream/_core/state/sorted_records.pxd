"""The records of a keyed state in ascending key order: what callbacks for every key are called in."""
from libc.stdint cimport int32_t
from ordstream._core.ground.chunk cimport Worker
from ordstream._core.state.keyed_state cimport KeyedState

cdef int32_t* sorted_records(KeyedState* s, Worker* w, bint* stopped) noexcept nogil

"""How sessions in slots (session_slots.pxd) close at punctuations: one by one, as their deadlines say, or by
a pass over all slots where most of them go.
"""
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport Kernel

cdef int slots_punctuate(Kernel* k, Worker* w, void* state, Chunk* punctuation, Chunk* out,
                         Failure* f) noexcept nogil

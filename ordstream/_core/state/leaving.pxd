"""Keys that leave a map in a wave, when what they are for is closed.

Inline only: there is no module of this name at run time. Thread safety: the bucket's holder.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy
from ordstream._core.ground.chunk cimport Worker
from ordstream._core.ground.stopping cimport stop_due
from ordstream._core.state.keyed_rows cimport keyed_bury, keyed_forget, keyed_reindex, keyed_settle
from ordstream._core.state.keyed_state cimport KeyedState, keyed_record

cdef enum:
    LEAVES = -1            # in the word of a record that says so


cdef inline void keys_leave(Worker* w, KeyedState* s, int32_t word, int64_t closed) noexcept nogil:
    """Forget the keys whose record has LEAVES at offset `word`, `closed` of them. Memory stays for as many
    keys as there were: the next wave is as large.

    Ownership: none; records move. Cost: a pass over the keys, and per key that goes three cache misses;
    where most go, per key that stays a copy and a cache miss.
    """
    cdef char* record
    cdef int64_t before = s.count
    cdef int64_t kept = 0
    cdef int64_t i = 0
    if closed and 2 * closed < before:
        while i < s.count:
            if stop_due(w, i):
                return
            if (<const int64_t*> (keyed_record(s, i) + word))[0] == LEAVES:
                keyed_forget(s, i)                           # another key lies there now
            else:
                i += 1
    elif closed:
        for i in range(before):
            if stop_due(w, i):
                return
            record = keyed_record(s, i)
            if (<const int64_t*> (record + word))[0] == LEAVES:
                keyed_bury(s, record)
                continue
            if kept != i:
                memcpy(keyed_record(s, kept), record, <size_t> s.stride)
            kept += 1
        keyed_reindex(s, kept)
    keyed_settle(s, before)

"""Timers of Python process functions. See python_timers.pxd."""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport Chunk, Failure, Worker
from ordstream._core.ground.kernel cimport PS, Kernel
from ordstream._core.ground.stopping cimport stop_asked
from ordstream._core.state.key_records cimport key_compare
from ordstream._core.state.keyed_state cimport keyed_record, keyed_state
from ordstream._core.state.marks cimport own_mark
from ordstream._core.state.python_rows cimport PythonBucket
from ordstream._core.state.python_state cimport (
    Callbacks, State, callback_failed, field_of, forgets, put_field,
)
from ordstream._core.state.row_values cimport row_null, value_at

import heapq

from ordstream.ground.declared_state import zero_of
from ordstream.ground.types import to_python, to_storage

cdef enum:
    MOST_STALE = 64        # of a bucket's noted timers, beside as many as it has states


cdef class Firing:
    def __lt__(self, Firing other):
        if self.at != other.at:
            return self.at < other.at
        return self.keys != NULL and key_compare(self.keys, self.record, other.record) < 0


cdef class Timers:
    """The timers of an operator.

    Parameters
    ----------
    operator : ordstream.operators.process.Process
        `timer` (index of a declared field), `on_timer`, `clock_column`, `period`.
    clock_type : int
        PhysicalType of the clock's column.
    """

    def __init__(self, operator, clock_type):
        field = operator.state.field(operator.timer)
        self.on_timer = operator.on_timer
        self.field = operator.timer
        self.name, self.type, self.zero = field.name, field.type, zero_of(field.type)
        self.clock = operator.clock_column
        self.clock_type = clock_type
        self.period = operator.period

    cdef int64_t due(self, State state) except? -1:
        """Time of a state's timer; 0: there is none."""
        value = field_of(state, self.field)
        return value if type(value) is int else to_storage(value, self.type, self.name)

    cdef int64_t armed(self, State state, object before, const Chunk* c, int32_t slot) except? -1:
        """Time of the timer that a function has set; 0: it set none. ValueError where it is not behind the
        row's time."""
        cdef int64_t at
        if field_of(state, self.field) is before:
            return 0
        at = self.due(state)
        if at == 0 or field_of(state, self.field) == before:
            return 0
        if row_null(c, self.clock, slot):
            raise ValueError("a timer is set at a row whose time is null")
        now = value_at(self.clock_type, c.cols[self.clock].data, slot)
        if at <= now:
            raise ValueError(f"the timer at {at} is not behind the row's time, {now}")
        return at

    cdef int put(self, PythonBucket* b, int64_t at, int64_t* record) except -1:
        """Note a timer of a key; `record`: where the place of its state stands."""
        cdef list heap = <list> b.timers
        cdef int64_t slot = 0
        if b.timers_known and len(heap) > 2 * b.count + MOST_STALE:
            b.timers_known = 0                               # most are of timers set again, or forgotten
            heap.clear()
        if not b.timers_known:
            return 0                                         # `find` will see it
        if record != &b.single:
            slot = (<char*> record - keyed_state(&b.keyed, 0)) // b.keyed.stride
        heapq.heappush(heap, (at, record[0], slot))
        return 0

    cdef int find(self, Kernel* k, PythonBucket* b) except -1:
        """Make the heap anew. Cost: a look at each key."""
        cdef list heap = []
        cdef list states = <list> b.states
        cdef int64_t slot
        cdef int64_t place
        cdef int64_t at
        for slot in range(b.keyed.count if k.kind == PS else 1):
            place = (<int64_t*> keyed_state(&b.keyed, slot))[0] if k.kind == PS else b.single
            if place:
                at = self.due(<State> states[place - 1])
                if at:
                    heap.append((at, place, slot))
        heapq.heapify(heap)
        (<list> b.timers)[:] = heap
        b.timers_known = 1
        return 0

    cdef list firing(self, Kernel* k, PythonBucket* b, int64_t mark):
        """The timers that are due at a mark, by (time, key): a heap. They leave that of the bucket."""
        cdef list heap
        cdef list states = <list> b.states
        cdef Firing one
        cdef dict found = {}
        if not b.timers_known:
            self.find(k, b)
        heap = <list> b.timers
        while heap and heap[0][0] <= mark:
            at, place, slot = heapq.heappop(heap)
            if place > len(states) or states[place - 1] is None or self.due(<State> states[place - 1]) != at:
                continue                                     # it was changed
            one = Firing.__new__(Firing)
            one.at = at
            one.state = <State> states[place - 1]
            one.place = &b.single
            one.record = <char*> &b.single
            if k.kind == PS:
                one.keys = b.keyed.keys
                one.record = keyed_record(&b.keyed, slot)
                one.place = <int64_t*> keyed_state(&b.keyed, slot)
            found[place] = one
        return sorted(found.values())

    cdef int fire(self, Callbacks states, Kernel* k, Worker* w, PythonBucket* b, Chunk* punctuation,
                  Chunk* out, Failure* f) noexcept:
        """Fire what is due at a mark. Contract (c) of kernel.pxd, as Callbacks.punctuate.

        Thread safety: the bucket's holder, GIL held. Returns: 0; -1 when on_timer raised and the policy is
        "fail". Cost: a comparison; per timer that fires a call, and log of how many there are.
        """
        cdef int64_t mark = punctuation.time
        cdef int failed
        if not own_mark(self.period, &mark):
            return 0
        try:
            due = self.firing(k, b, mark)
            if not due:
                return 0
            failed = 0 if self.run(states, due, mark, k, w, b, punctuation, out, f) else -1
        except BaseException as error:
            failed = callback_failed(f, error)
        return failed

    cdef bint run(self, Callbacks states, list due, int64_t mark, Kernel* k, Worker* w, PythonBucket* b,
                  Chunk* punctuation, Chunk* out, Failure* f) except -1:
        """Call on_timer for each, and for those that it sets up to the mark. False: it failed, and the
        policy is "fail"."""
        cdef Firing one
        cdef int64_t again

        def callback(key, state, at, emit):
            result = self.on_timer(key, state, to_python(at, self.type), emit)
            again = 0 if forgets(result) else self.due(<State> state)
            if again and again <= at:
                raise ValueError(f"the timer at {again} is not behind the one that fires, {at}")
            return result

        while due:
            if stop_asked(w):
                return True
            one = heapq.heappop(due)
            put_field(one.state, self.field, self.zero)
            if not states.one_key(k, w, b, &b.keyed if k.kind == PS else NULL, one.record, punctuation, out,
                                  callback, f, one.at):
                return False
            again = self.due(one.state) if one.place[0] != 0 else 0      # 0: its key is forgotten
            if again and again <= mark:
                one.at = again
                heapq.heappush(due, one)
            elif again:
                self.put(b, again, one.place)
        return True

"""Declared state, emit and punctuation callbacks. See python_state.pxd."""
cimport cython
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport (
    END_OF_STREAM, FAIL_MEMORY, Chunk, Failure, Worker, chunk_alloc, chunk_reserve, failure_set,
)
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, Kernel, skip_is_first, skip_note_error
from ordstream._core.ground.kernel_tools cimport flush_reserve
from ordstream._core.state.key_records cimport key_copy
from ordstream._core.state.keyed_state cimport KeyedState, keyed_record
from ordstream._core.state.object_slots cimport Py_XDECREF, ord_put, ord_slot, slot_of
from ordstream._core.ground.stopping cimport stop_asked
from ordstream._core.state.python_values cimport exception_set
from ordstream._core.state.sorted_records cimport sorted_records

import pyarrow.types as pat
from ordstream.errors import shown
from ordstream.ground import declared_state
from ordstream.ground.declared_state import restored_values, state_value, stored_values, zero_of
from ordstream.ground.forget import FORGET
from ordstream.ground.types import integer_range, is_list, is_string, storage_type

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(PyObject*)
    bint PyObject_IS_GC(PyObject*)

cdef enum:
    OF_ELEMENT = 40        # bytes of a list's element: a reference, and an object

cdef enum FastKind:
    FAST_NONE = 0
    FAST_INT = 1
    FAST_FLOAT = 2
    FAST_BOOL = 3
    FAST_STR = 4


cdef class StateSpec:
    """Declared fields of a state.

    Memory ownership: owns the arrays of kinds and ranges.

    Parameters
    ----------
    schema : pyarrow.Schema
    storage : bool
        Temporal fields are ints of their unit (what a compiled function sees).
    """

    def __cinit__(self, schema, storage=False):
        cdef int32_t n = <int32_t> len(schema)
        self.kinds = <int32_t*> calloc(n + 1, sizeof(int32_t))
        self.lows = <int64_t*> calloc(n + 1, sizeof(int64_t))
        self.highs = <int64_t*> calloc(n + 1, sizeof(int64_t))
        self.slots = <Py_ssize_t*> calloc(n + 1, sizeof(Py_ssize_t))
        if self.kinds == NULL or self.lows == NULL or self.highs == NULL or self.slots == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.kinds)
        free(self.lows)
        free(self.highs)
        free(self.slots)

    def __init__(self, schema, storage=False):
        cdef int32_t i
        self.schema = schema
        self.names = list(schema.names)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.types = [storage_type(f.type) if storage else f.type for f in schema]
        self.zeros = [zero_of(t) for t in self.types]
        self.lists = [i for i, t in enumerate(self.types) if is_list(t)]
        self.growing = [
            (i, is_list(t) and not has_fixed_size(t.value_type))
            for i, t in enumerate(self.types) if not has_fixed_size(t)
        ]
        slots = [name if is_plain(name) else hidden_slot(i, self.index) for i, name in enumerate(self.names)]
        odd = {"__getattr__": field_by_name} if slots != self.names else {}
        self.states = type("State", (State,), {"__slots__": slots, **odd})
        for i, name in enumerate(slots):
            self.slots[i] = slot_of(self.states, name)
        for i, t in enumerate(self.types):
            if pat.is_integer(t) and not pat.is_uint64(t):
                self.kinds[i] = FAST_INT
                self.lows[i], self.highs[i] = integer_range(t)
            elif pat.is_float64(t):
                self.kinds[i] = FAST_FLOAT
            elif pat.is_boolean(t):
                self.kinds[i] = FAST_BOOL
            elif is_string(t):
                self.kinds[i] = FAST_STR

    cdef State state_of(self, list values):
        """A state of values that were read from rows. ValueError where they are not those of one."""
        return self.new_state(restored_values(values, self.types) if self.lists else values)

    def stored(self, list values):
        """The values of a state as they go into rows."""
        return stored_values(values, self.types) if self.lists else values

    cdef State new_state(self, list values):
        """A state of these values, one per field.

        Scalars and tuples of them make no circles of references, so the garbage collector need not look at
        a state: it would look again and again at those of all keys.
        """
        cdef State state = self.states()
        if PyObject_IS_GC(<PyObject*> state):
            PyObject_GC_UnTrack(<PyObject*> state)
        state.spec = self
        put_fields(state, values)
        return state

    def new(self):
        """The state of a new key."""
        return self.new_state(self.zeros)

    cdef str no_field(self, object name):
        return declared_state.no_field(name, self.names)

    cdef int tell_fields(self, object error) except -1:
        """Say which fields there are where a function asked for another one: a class with slots can't."""
        if type(error) is AttributeError and type(error.obj) is self.states and error.name not in self.index:
            error.args = (self.no_field(error.name),)
        return 0


def has_fixed_size(type_):
    """Whether values of a field take the same room."""
    return not (is_list(type_) or is_string(type_) or pat.is_binary(type_) or pat.is_large_binary(type_))


def is_plain(name):
    """Whether a slot can have the name of a field."""
    return name.isidentifier() and not name.startswith("__")


def hidden_slot(i, names):
    """The slot of a field whose name no slot can have."""
    name = f"field_{i}"
    while name in names:
        name += "_"
    return name


def field_by_name(State state, name):
    """`__getattr__` where some fields have hidden slots."""
    cdef StateSpec spec = spec_of(state)
    position = spec.index.get(name)
    if position is None:
        raise AttributeError(spec.no_field(name))
    return field_of(state, position)


cdef StateSpec spec_of(State state):
    """Its fields. TypeError where a user's function made it."""
    if state.spec is None:
        raise TypeError("a State that a function makes has no fields: copy the one that it is given")
    return state.spec


cdef object field_of(State state, Py_ssize_t i):
    """The value of a field."""
    return <object> ord_slot(<PyObject*> state, state.spec.slots[i])[0]


cdef list fields_of(State state):
    """All values, in a new list."""
    return [field_of(state, i) for i in range(len(state.spec.names))]


cdef int64_t growth(State state) except? -1:
    """How much more its texts and lists take than when this was asked last: numbers in lists are counted
    as an object each. GIL held. Cost: that of the length of a value; of a list of texts, of each."""
    cdef int64_t bytes = 0
    if not state.spec.growing:
        return 0
    for i, texts in state.spec.growing:
        value = field_of(state, i)
        if type(value) is not tuple:
            bytes += len(value)
            continue
        bytes += OF_ELEMENT * len(<tuple> value)
        if texts:
            for text in <tuple> value:
                bytes += 0 if text is None else len(text)
    bytes, state.told = bytes - state.told, bytes
    return bytes


cdef int put_field(State state, Py_ssize_t i, object value) except -1:
    """Replace a value by one that is known to fit."""
    Py_XDECREF(ord_put(ord_slot(<PyObject*> state, state.spec.slots[i]), <PyObject*> value))
    return 0


cdef int put_fields(State state, list values) except -1:
    """Replace all values."""
    cdef Py_ssize_t i
    for i in range(len(values)):
        put_field(state, i, values[i])
    return 0


@cython.no_gc
cdef class State:
    """State of one key with declared fields: the meaning is DeclaredState's
    (ordstream/ground/declared_state.py), this is the fast one.

    Each StateSpec has a class of its own below this one, with a slot per field: Python reads a slot as fast
    as a local variable. An int, float, bool or str of exactly the field's kind is stored as it is;
    everything else goes through `to_storage`.
    """

    def __setattr__(self, name, value):
        cdef Py_ssize_t i
        cdef int32_t kind
        cdef int64_t v
        cdef int overflow = 0
        cdef StateSpec spec = spec_of(self)
        position = spec.index.get(name)
        if position is None:
            raise AttributeError(spec.no_field(name))
        i = position
        kind = spec.kinds[i]
        if type(value) is int:
            if kind == FAST_INT:
                v = PyLong_AsLongLongAndOverflow(value, &overflow)
                if not overflow and spec.lows[i] <= v <= spec.highs[i]:
                    put_field(self, i, value)
                    return
        elif (type(value) is float and kind == FAST_FLOAT) or (type(value) is bool and kind == FAST_BOOL):
            put_field(self, i, value)
            return
        elif type(value) is str and kind == FAST_STR and value.isascii():
            put_field(self, i, value)
            return
        put_field(self, i, state_value(value, spec.types[i], name))

    def __getitem__(self, name):
        cdef StateSpec spec = spec_of(self)
        position = spec.index.get(name)
        if position is None:
            raise AttributeError(spec.no_field(name))
        return field_of(self, position)

    def __setitem__(self, name, value):
        self.__setattr__(name, value)

    def __contains__(self, name):
        return name in spec_of(self).index

    def __iter__(self):
        raise TypeError(declared_state.no_items(spec_of(self).names))

    def __delattr__(self, name):
        raise AttributeError(f"fields of the declared state always have a value: {name!r} can't be deleted")

    def __copy__(self):
        """Another with these values, which is nobody's state."""
        return spec_of(self).new_state(fields_of(self))

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __reduce_ex__(self, protocol):
        raise TypeError("a State can't be pickled: take its fields")

    def __dir__(self):
        return list(spec_of(self).names)

    def __repr__(self):
        fields = [f"{name}={value!r}" for name, value in zip(spec_of(self).names, fields_of(self))]
        return f"State({', '.join(fields)})"


cdef class Emitter:
    """`emit(*values)`, or `emit` of one dict, list or tuple: appends one output row, strictly typed.

    Memory ownership: borrows the output chunk for the length of one kernel call. Thread safety: the calling
    worker's.
    """

    def __call__(self, *values):
        if self.out == NULL:
            raise RuntimeError("emit was called after the function that it was given to had returned")
        if self.left == 0:
            raise ValueError("more outputs for one tuple than fan_out; declare a larger fan_out")
        if chunk_reserve(self.worker, self.out, self.layout, 1) < 0:
            raise MemoryError
        if len(values) == 1 and isinstance(values[0], self.writer.whole):
            values = self.writer.fitted(values[0])
        self.writer.append(self.worker, self.out, values, self.origin)
        self.left -= 1

    def __repr__(self):
        names = () if self.writer is None else self.writer.names
        return f"<emit({', '.join(names)})>"


cdef bint forgets(object result) except -1:
    """Whether a function of `process` wants its key's state forgotten, by what it returned. TypeError where
    that is neither None nor FORGET."""
    if result is None:
        return False
    if result is FORGET:
        return True
    raise TypeError("a process function outputs with emit(...) and returns nothing or od.FORGET, got "
                    f"{shown(result)}")


cdef int callback_failed(Failure* f, object error) noexcept:
    """Note what a callback raised that no policy took. Returns -1."""
    if isinstance(error, MemoryError):
        failure_set(f, -1, FAIL_MEMORY, "out of memory")
        return -1
    try:
        exception_set(f, -1, error)
    except BaseException:
        failure_set(f, -1, FAIL_MEMORY, "out of memory")
    return -1


cdef class Callbacks:
    """Runs on_flush or on_time for every key of a bucket, in ascending key order."""

    cdef Emitter emitter(self, Kernel* k, Worker* w, Chunk* out):
        """An `emit` for one call. Whoever asked for it sets `out` to NULL when that is over."""
        cdef Emitter emit = Emitter.__new__(Emitter)
        emit.writer = self.writer
        emit.layout = k.output
        emit.worker = w
        emit.out = out
        return emit

    cdef object load(self, void* bucket, char* record):
        raise NotImplementedError

    cdef int save(self, void* bucket, char* record, object state) except -1:
        raise NotImplementedError

    cdef int forget(self, void* bucket, char* record) except -1:
        """Drop the state of a record, whose key then has none."""
        raise TypeError("a key of a compiled function can't be forgotten: od.FORGET is for compiled=False")

    cdef object preserve(self, object state):
        return None

    cdef int restore(self, void* bucket, char* record, object state, object copied) except -1:
        return 0

    cdef int punctuate(self, Kernel* k, Worker* w, void* bucket, KeyedState* keyed, char* single,
                       Chunk* punctuation, Chunk* out,
                       Failure* f) noexcept:
        """Contract (c) of kernel.pxd. `keyed` is NULL for SF (one record: `single`).

        Thread safety: the bucket's holder, GIL held. Ownership: none taken. Returns: 0; -1 when a callback
        raised and the policy is "fail": f is filled, `out` holds the outputs of smaller keys, and
        flush_key[out.n] is the failing key. Cost: a sort of the keys and a Python call per key.
        """
        cdef int32_t* order = NULL
        cdef bint stopped
        cdef int failed = 0
        cdef int32_t i
        cdef int64_t n = 1
        cdef char* record
        callback = self.on_flush if punctuation.kind == END_OF_STREAM else self.on_time
        if callback is None:
            return 0
        if keyed != NULL:
            n = keyed.count
            with nogil:                                       # seconds, where there are millions of keys
                order = sorted_records(keyed, w, &stopped)
            if order == NULL and stopped:
                return 0
            if order == NULL:
                failure_set(f, -1, FAIL_MEMORY, "out of memory")
                return -1
        try:
            for i in range(<int32_t> n):
                if stop_asked(w):
                    return 0
                record = single if keyed == NULL else keyed_record(keyed, order[i])
                if not self.one_key(k, w, bucket, keyed, record, punctuation, out, callback, f, 0):
                    return -1
        except BaseException as error:
            failed = callback_failed(f, error)
        finally:
            free(order)
        return failed

    cdef bint one_key(self, Kernel* k, Worker* w, void* bucket, KeyedState* keyed, char* record,
                      Chunk* punctuation, Chunk* out,
                      object callback, Failure* f, int64_t at) except -1:
        """Call back for one key; `at`: of a timer that fires, else 0. False: it failed, and the policy is
        "fail"."""
        cdef int32_t start = out.n
        cdef int32_t i
        cdef char* copied = NULL
        cdef char* user = record
        cdef Emitter emit
        cdef bint skips = k.on_error == ON_ERROR_SKIP and not self.steps_fail
        cdef bint skipped = False
        cdef bint failed = False
        if keyed != NULL:
            user = record + keyed.keys.size
        state = self.load(bucket, user)
        if state is None:
            return True
        before = self.preserve(state) if skips else None
        if keyed != NULL:
            if flush_reserve(w, out, k.output, 1) < 0:
                raise MemoryError
            copied = chunk_alloc(w, out, keyed.keys.size)
            if copied == NULL or key_copy(keyed.keys, record, w, out, copied) < 0:
                raise MemoryError
        emit = self.emitter(k, w, out)
        emit.left = self.fan_out
        try:
            key = () if keyed == NULL else self.keys.key(keyed.keys, record)
            if punctuation.kind == END_OF_STREAM:
                result = callback(key, state, emit)
            else:
                result = callback(key, state, at if at else punctuation.time, emit)
            if forgets(result):
                self.forget(bucket, user)
            else:
                self.save(bucket, user, state)
        except BaseException as error:
            out.n = start
            out.slots = start
            if self.spec is not None:
                self.spec.tell_fields(error)
            if skips and isinstance(error, Exception):
                self.restore(bucket, user, state, before)
                add_relaxed(&k.skipped, 1)           # statistic; no partner
                if skip_is_first(k, punctuation.last_serial):
                    skip_note_error(k, punctuation.last_serial, punctuation.kind == END_OF_STREAM, error)
                skipped = True
            else:
                failed = True
                exception_set(f, -1, error)
                if copied != NULL:
                    out.flush_key[start] = copied
                    out.flush_time[start] = at
        finally:
            emit.out = NULL
        if failed or skipped:
            return skipped
        if copied != NULL:
            for i in range(start, out.n):
                out.flush_key[i] = copied
                out.flush_time[i] = at
        return True

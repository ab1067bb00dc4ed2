"""States that are Python objects, as rows. See python_rows.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, FAIL_STATE, Chunk, Failure, Worker, chunk_reserve, failure_set,
)
from ordstream._core.ground.kernel cimport PS, Kernel, StateCursor
from ordstream._core.state.keyed_rows cimport (
    KEY_IS_THERE, key_put, keyed_find, keyed_install, keyed_remove, keyed_shrink, keyed_sift,
)
from ordstream._core.state.key_records cimport key_read
from ordstream._core.state.keyed_state cimport keyed_record, keyed_state
from ordstream._core.state.python_state cimport State, StateSpec, fields_of, growth
from ordstream._core.state.key_values cimport KeyReader
from ordstream._core.state.python_values cimport ColumnReader, ColumnWriter, exception_set

import pyarrow as pa
import pyarrow.types as pat
from ordstream.errors import CheckpointError, told
from ordstream.ground.numbers import byte_strings
from ordstream.ground.types import is_string

cdef enum:
    FEWEST_HOLES = 32      # of a bucket (or keys without a state), before these are looked for


cdef class PythonRows:
    """Columns of the states of a Python process operator.

    Memory ownership: keeps the converters and the codec.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
        Its `state` is declared fields or a codec.
    spec : StateSpec or None
        Of declared fields.
    """

    def __init__(self, operator, StateSpec spec):
        schema = operator.state_schema()
        self.first = <int32_t> len(operator.key)
        own = list(schema)[self.first:]
        self.spec = spec
        self.codec = operator.codec
        self.where = f"operator {operator.name!r} ({operator.op})"
        self.keys = KeyReader([operator.input.field(i).type for i in operator.key])
        self.readers = [ColumnReader(field.type, field.name) for field in own]
        self.writers = [ColumnWriter(field) for field in own]
        # what ColumnWriter.put has a fast way for is written value by value
        self.gathered = [
            not (pat.is_integer(field.type) and not pat.is_uint64(field.type) or pat.is_float64(field.type)
                 or pat.is_boolean(field.type) or is_string(field.type))
            for field in own
        ]

    cdef int32_t export_rows(self, Kernel* k, Worker* w, PythonBucket* b, StateCursor* cursor, Chunk* out,
                             Failure* f) noexcept:
        """state_export; beyond the contract -1 with FAIL_PYTHON where the codec raised.

        Thread safety: the bucket's holder, GIL held. Ownership: out's arena; f.exc gets a new reference.
        Returns: rows appended, or -1 (f is filled). Cost: ~0.1 us per key and declared field that is a
        number, bool or string; a codec's call.
        """
        cdef int64_t all_of = 1 if k.state_keys == NULL else b.keyed.count
        cdef int64_t slot
        cdef int64_t position
        cdef int32_t start = out.n
        cdef int32_t n = 0
        cdef int32_t j
        cdef list states = <list> b.states
        cdef list columns, values
        cdef char* record
        if cursor.keys != NULL:
            all_of = cursor.n if k.state_keys != NULL else min(cursor.n, 1)
        try:
            if chunk_reserve(w, out, k.state, cursor.most) != 0:
                raise MemoryError
            columns = [[] for _ in self.writers]
            while n < cursor.most and cursor.at < all_of:
                slot = cursor.at
                record = <char*> &b.single
                if k.state_keys != NULL:
                    if cursor.keys != NULL:
                        slot = keyed_find(&b.keyed, k.state_keys, cursor.keys, cursor.slots[slot])
                    record = <char*> NULL if slot < 0 else keyed_state(&b.keyed, slot)
                position = 0 if record == NULL else (<int64_t*> record)[0]
                if position != 0:
                    if k.state_keys != NULL:
                        record = keyed_record(&b.keyed, slot)
                        if key_put(k.state_keys, record, w, out, out.n) != 0:
                            raise MemoryError
                    if self.spec is None:
                        values = [self.encoded(k, record, states[position - 1])]
                    else:
                        values = self.spec.stored(fields_of(<State> states[position - 1]))
                    for j in range(<int32_t> len(values)):
                        if self.gathered[j]:
                            (<list> columns[j]).append(values[j])
                        else:
                            (<ColumnWriter> self.writers[j]).write(w, out, self.first + j, out.n, values[j])
                    out.n += 1
                    n += 1
                cursor.at += 1
            for j in range(<int32_t> len(columns)):
                if self.gathered[j] and n > 0:
                    if self.spec is None:
                        array = byte_strings(columns[j])
                    else:
                        array = pa.array(columns[j], (<ColumnWriter> self.writers[j]).type)
                    (<ColumnWriter> self.writers[j]).write_array(w, out, self.first + j, start, array)
            out.slots = out.n
            cursor.done = cursor.at >= all_of
        except MemoryError:
            n = -1
            failure_set(f, -1, FAIL_MEMORY, "out of memory")
        except BaseException as error:
            n = -1
            try:
                exception_set(f, -1, error)
            except BaseException:
                failure_set(f, -1, FAIL_MEMORY, "out of memory")
        return n

    cdef bytes encoded(self, Kernel* k, const char* record, object state):
        """What the codec makes of a state. CheckpointError with the key where it raises."""
        try:
            data = self.codec.encode(state)
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"expected bytes, got {type(data).__name__}")
            return bytes(data)
        except Exception as error:
            raise self.wrong("encode of its codec", self.of_key(k, record), error) from error

    cdef int32_t install_rows(self, Kernel* k, PythonBucket* b, Chunk* rows, const int32_t* slots, int32_t n,
                              Failure* f) noexcept:
        """state_install; FAIL_PYTHON where the codec raised.

        Thread safety: the bucket's holder, GIL held. Ownership: values are copied; f.exc gets a new
        reference. Returns: rows taken in (f is filled where fewer than n). Cost: as export_rows.
        """
        cdef int32_t i = 0
        cdef int32_t j
        cdef list columns = None
        cdef list values
        try:
            try:
                columns = [
                    (<ColumnReader> self.readers[j]).read(&rows.cols[self.first + j], slots, n)
                    for j in range(<int32_t> len(self.readers))
                ]
            except Exception:
                columns = None                           # some value can't be read: find it one by one
            while i < n:
                if columns is None:
                    values = self.read_row(rows, slots[i])
                else:
                    values = [column[i] for column in columns]
                if not self.install_row(k, b, rows, slots[i], values, f):
                    break
                i += 1
        except MemoryError:
            failure_set(f, slots[i], FAIL_MEMORY, "out of memory")
        except BaseException as error:
            try:
                if isinstance(error, CheckpointError) or not isinstance(error, Exception):
                    exception_set(f, slots[i], error)
                else:                                    # a string that is no UTF-8, a time out of range
                    failure_set(f, slots[i], FAIL_STATE, told(error).encode("utf-8", "replace"))
            except BaseException:
                failure_set(f, slots[i], FAIL_MEMORY, "out of memory")
        return i

    cdef list read_row(self, Chunk* rows, int32_t slot):
        """The own columns of one row."""
        cdef int32_t j
        return [
            (<ColumnReader> self.readers[j]).read(&rows.cols[self.first + j], &slot, 1)[0]
            for j in range(<int32_t> len(self.readers))
        ]

    cdef bint install_row(self, Kernel* k, PythonBucket* b, Chunk* rows, int32_t slot, list values,
                          Failure* f) except -1:
        """Take one row in. `values`: of its own columns; the state keeps the list.

        Returns: False: it can't be, and `f` is filled. Raises: MemoryError; CheckpointError where the codec
        raised. The states are as before in these cases.
        """
        cdef int64_t* record = &b.single
        cdef int64_t at
        cdef bint done = False
        cdef list states = <list> b.states
        if k.state_keys != NULL:
            at = keyed_install(&b.keyed, k.state_keys, rows, slot)
            if at == KEY_IS_THERE:
                at = keyed_find(&b.keyed, k.state_keys, rows, slot)
            if at < 0:
                raise MemoryError
            record = <int64_t*> keyed_state(&b.keyed, at)
        if record[0] != 0:
            failure_set(f, slot, FAIL_STATE, "the key is there already" if k.state_keys != NULL
                        else "the operator has one state, and it is there already")
            return False
        try:
            if None in values:
                failure_set(f, slot, FAIL_STATE, "a column is null, which no state has")
                return False
            state = self.state_of(k, rows, slot, values)
            if self.spec is not None:
                b.grown += growth(<State> state)
            states.append(state)
            record[0] = len(states)
            b.count += 1
            done = True
        finally:
            if not done and k.state_keys != NULL:
                keyed_remove(&b.keyed, k.state_keys, rows, slot)
        return True

    cdef object state_of(self, Kernel* k, Chunk* rows, int32_t slot, list values):
        """The state that a row's own columns say. CheckpointError where the codec raises."""
        if self.spec is not None:
            return self.spec.state_of(values)
        try:
            return self.codec.decode(values[0])
        except Exception as error:
            raise self.wrong("decode of its codec", self.of_row(k, rows, slot), error) from error

    cdef int32_t remove_rows(self, Kernel* k, PythonBucket* b, Chunk* keys, const int32_t* slots,
                             int32_t n) noexcept:
        """state_remove, which can't fail.

        Thread safety: the bucket's holder, GIL held. Ownership: references are dropped. Cost: kernel.pxd
        (f).
        """
        cdef list states = <list> b.states
        cdef int64_t* record
        cdef int64_t at
        cdef int32_t there = 0
        cdef int32_t i
        if k.state_keys == NULL:
            if n > 0 and b.single != 0:
                there = 1
                place_clear(b, states, b.single)
                b.single = 0
        else:
            for i in range(n):
                at = keyed_find(&b.keyed, k.state_keys, keys, slots[i])
                if at < 0:
                    continue
                record = <int64_t*> keyed_state(&b.keyed, at)
                if record[0] != 0:
                    there += 1
                    place_clear(b, states, record[0])
                keyed_remove(&b.keyed, k.state_keys, keys, slots[i])
            keyed_shrink(&b.keyed)
        b.count -= there
        if 2 * b.holes >= len(states) > 0:
            close_holes(k, b)
        return there

    cdef object of_key(self, Kernel* k, const char* record):
        """What the user calls the key of a record."""
        return () if k.state_keys == NULL else self.keys.key(k.state_keys, record)

    cdef object of_row(self, Kernel* k, Chunk* rows, int32_t slot):
        """What the user calls the key of a row of state."""
        cdef bytes record
        if k.state_keys == NULL:
            return ()
        record = PyBytes_FromStringAndSize(NULL, k.state_keys.size)
        key_read(k.state_keys, rows, slot, PyBytes_AS_STRING(record))
        return self.keys.key(k.state_keys, PyBytes_AS_STRING(record))

    cdef object wrong(self, str what, object key, object error):
        """The error for a codec that raised."""
        key_text = "" if key == () else f", key {key!r}"
        return CheckpointError(f"{self.where}{key_text}: {what} raised {told(error)}")


cdef void place_forget(PythonBucket* b, int64_t* record) noexcept:
    """Drop a key's state. The key stays until keys_forget.

    Thread safety: the bucket's holder, GIL held.
    """
    place_clear(b, <list> b.states, record[0])
    record[0] = 0
    b.count -= 1


cdef void place_clear(PythonBucket* b, list states, int64_t position) noexcept:
    """Leave a hole where a state was. As place_forget."""
    state = states[position - 1]
    if isinstance(state, State):
        b.grown -= (<State> state).told
    states[position - 1] = None
    b.holes += 1


cdef bint has_place(Kernel* k, const char* state) noexcept nogil:
    """Whether a key has a state."""
    return (<const int64_t*> state)[0] != 0


cdef void keys_forget(Kernel* k, PythonBucket* b) noexcept:
    """Forget the keys without a state, where half of the states are gone, or half of the keys have none (a
    function that fails, or forgets, at a key's first tuple makes none): others move then.

    Thread safety: the bucket's holder, GIL held; nobody may know places of records. Cost: two comparisons;
    else one pass over keys and states, of which at least as many as half of these were forgotten since the
    one before.
    """
    cdef int64_t n = b.keyed.count
    cdef int64_t stateless = n - b.count if k.kind == PS else 0
    if ((2 * b.holes < len(<list> b.states) or b.holes < FEWEST_HOLES)
            and (2 * stateless < n or stateless < FEWEST_HOLES)):
        return
    if k.kind == PS:
        keyed_sift(&b.keyed, k, has_place)
    close_holes(k, b)
    b.timers_known = 0


cdef void close_holes(Kernel* k, PythonBucket* b) noexcept:
    """Copy the states that a key has together. Without memory they stay where they are.

    Thread safety: the bucket's holder, GIL held. Cost: one pass over the keys.
    """
    cdef list states = <list> b.states
    cdef list left = None
    cdef int64_t* record
    cdef int64_t i
    cdef Py_ssize_t n = 0
    try:
        left = [None] * b.count
    except BaseException:
        pass
    if left is None:
        return
    for i in range(b.keyed.count if k.kind == PS else 1):
        record = &b.single if k.kind != PS else <int64_t*> keyed_state(&b.keyed, i)
        if record[0] != 0:
            left[n] = states[record[0] - 1]
            n += 1
            record[0] = n
    Py_INCREF(left)
    b.states = <void*> left
    b.holes = 0
    Py_DECREF(states)

"""Batch kernels. See map_batches.pxd."""
from cpython.dict cimport PyDict_GetItem
from cpython.ref cimport Py_REFCNT, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memset
from ordstream._core.ground.atomics cimport add_relaxed
from ordstream._core.ground.chunk cimport (
    Chunk, Column, Worker, chunk_alloc, chunk_reserve, row_slot, scratch_alloc, slot_serial,
)
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, skip_is_first, skip_note_error
from ordstream._core.ground.slot_values cimport gather
from ordstream._core.kernels.python_functions cimport PythonKernel
from ordstream._core.state.python_values cimport ColumnReader, ColumnWriter

import sysconfig

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from ordstream.errors import told
from ordstream.ground.columns_read import columns_read
from ordstream.ground.numbers import WITH_NULLS, dtype_of
from ordstream.ground.function_arrays import fit_array, numpy_array

cdef extern from *:
    """
    #define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
    #include <numpy/ndarraytypes.h>
    // Memory of a one-dimensional contiguous array of exactly this dtype and length, else NULL. The buffer
    // protocol takes 150 ns for it.
    static inline void* ord_plain_array(PyObject* array, PyObject* dtype, npy_intp n) {
        PyArrayObject* a = (PyArrayObject*)array;
        if (PyArray_NDIM(a) != 1 || PyArray_DIMS(a)[0] != n || (PyObject*)PyArray_DESCR(a) != dtype
            || !PyArray_CHKFLAGS(a, NPY_ARRAY_C_CONTIGUOUS)) return NULL;
        return PyArray_DATA(a);
    }
    static inline void* ord_input_array(PyObject* array, PyObject* dtype, npy_intp n) {
        return PyArray_CHKFLAGS((PyArrayObject*)array, NPY_ARRAY_WRITEABLE)
            ? ord_plain_array(array, dtype, n) : NULL;
    }
    """
    void* ord_plain_array(PyObject*, PyObject*, Py_ssize_t) noexcept
    void* ord_input_array(PyObject*, PyObject*, Py_ssize_t) noexcept

cdef object of_batch(object error, int32_t n):
    """The error of a batch none of whose rows fails alone."""
    if n == 1:
        return error
    found = RuntimeError(
        f"the function failed on a batch of {n:,} rows, and on none of them alone: {told(error)}. A row's "
        "answer must be its own: flat_map and process give another number of rows, process has a state"
    )
    found.__cause__ = error
    return found


cdef object NUMPY_EMPTY = np.empty
cdef object NUMPY_ARRAY = np.ndarray
cdef bint HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
cdef int32_t ALL_ROWS = 0      # its address stands for "slots 0..n-1"


cdef object null_error(list names, Chunk* c, int32_t slot):
    """Why a row can't be handed to NumPy."""
    cdef int32_t j
    for j in range(<int32_t> len(names)):
        if c.cols[j].valid != NULL and not c.cols[j].valid[slot]:
            return ValueError(f"column {names[j]!r} is null, and NumPy has no nulls; {WITH_NULLS}")
    raise AssertionError("a row without nulls")


cdef class Arrays:
    """Input arrays of one call."""

    def __cinit__(self, int32_t n, int columns):
        self.n = n
        self.arrays = [None] * columns
        self.data = <void**> calloc(columns + 1, sizeof(void*))
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.data)


def numpy_memory(type_):
    """The NumPy dtype whose values lie in memory as this Arrow type's do in a chunk, or None."""
    if pat.is_boolean(type_):
        return np.dtype(np.bool_)
    if pat.is_integer(type_) or pat.is_float32(type_) or pat.is_float64(type_):
        return dtype_of(type_)
    if pat.is_timestamp(type_):
        return np.dtype(f"datetime64[{type_.unit}]")
    if pat.is_duration(type_):
        return np.dtype(f"timedelta64[{type_.unit}]")
    return None


def arrays_read(fn, names):
    """The columns of which a function gets arrays, ascending: those that its code reads, if that is known. A
    name that a dict has itself may be no column."""
    read = columns_read(fn, names)
    if not read or any(hasattr(dict, names[j]) for j in read):
        return list(range(len(names)))
    return sorted(read)


cdef class BatchKernel(PythonKernel):
    """map_batches: fn(dict of arrays) or fn(RecordBatch), row-wise."""

    def __init__(self, operator):
        PythonKernel.__init__(self, operator)
        self.arrow = operator.format == "arrow"
        self.names = list(operator.input.names)
        self.dtypes = [numpy_memory(f.type) for f in operator.input]
        out_dtypes = [numpy_memory(f.type) for f in operator.output]
        self.out_dtypes = [d if d is None or d.kind not in "mM" else None for d in out_dtypes]
        self.in_place = not self.arrow and None not in self.out_dtypes
        self.makes_chunk = False
        self.spare = []
        self.read = range(len(self.names)) if self.arrow else arrays_read(operator.fn, self.names)
        self.input_schema = operator.input

    cdef Chunk* run(self, Worker* w, Chunk* c, Chunk* out) except? NULL:
        """`c` with other columns where all rows go through NumPy memory, else a new chunk."""
        cdef int32_t n = c.n
        cdef int32_t first_null = -1
        cdef int32_t* rows = c.sel
        cdef Arrays held = None
        cdef bint ended = False
        if not self.arrow:
            rows = self.complete_rows(w, c, &n, &first_null)
            if rows == &ALL_ROWS:
                rows = NULL
        if n:
            try:
                if self.arrow:
                    result = self.call_arrow(c, rows, n)
                else:
                    held = self.arrays(n)
                    result = self.call_numpy(c, rows, n, held)
                if rows == NULL and self.in_place and self.replace(w, c, result, n):
                    out = c
                else:
                    out = self.new_output(w, n)
                    self.append(w, c, rows, n, out, result)
                result = None
                self.put_back(held)
                if out == c:
                    return c
            except Exception as error:                   # only smaller batches show which row failed
                if out == NULL:
                    out = self.new_output(w, n)
                ended = self.in_halves(w, c, rows, n, out)
                if not ended and self.kernel.on_error != ON_ERROR_SKIP:     # no row alone: the batch
                    out.n = 0
                    out.slots = 0
                    ended = self.failed(c, row_slot(c, 0) if rows == NULL else rows[0], of_batch(error, n))
            # an interrupt belongs to the first row: nothing was delivered
            except BaseException as error:
                self.failed(c, row_slot(c, 0), error)
        if ended:
            return out
        if out == NULL:
            out = self.new_output(w, 1)
        if c.failure == NULL and first_null >= 0 and self.kernel.on_error != ON_ERROR_SKIP:
            self.failed(c, first_null, null_error(self.names, c, first_null))
        return out

    cdef bint in_halves(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out) except -1:
        """The rows of a batch that failed, in halves and halves of these, down to the rows that fail alone.
        True: one did, and the policy is "fail"."""
        cdef int32_t* slots
        cdef int32_t i
        if rows == NULL:
            slots = <int32_t*> scratch_alloc(w, <int64_t> n * 4)
            if slots == NULL:
                raise MemoryError
            for i in range(n):
                slots[i] = i
            rows = slots
        if n == 1:
            return self.part(w, c, rows, 1, out)
        return self.part(w, c, rows, n // 2, out) or self.part(w, c, rows + n // 2, n - n // 2, out)

    cdef bint part(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out) except -1:
        """Some rows in one call, then in halves. True: see `in_halves`."""
        cdef bint alone = False
        cdef bint ended = False
        try:
            if self.arrow:
                result = self.call_arrow(c, rows, n)
            else:
                result = self.call_numpy(c, rows, n, Arrays(n, len(self.names)))
            self.append(w, c, rows, n, out, result)
            return False
        except BaseException as error:
            alone = n == 1 or not isinstance(error, Exception)
            if alone:
                ended = self.failed(c, rows[0], error)
        return ended if alone else self.in_halves(w, c, rows, n, out)

    cdef int32_t* complete_rows(self, Worker* w, Chunk* c, int32_t* n, int32_t* first_null) except NULL:
        """Rows that may be handed to NumPy: those without nulls; under "fail" only those before the first
        null.

        Returns: &ALL_ROWS for slots 0..n-1, else slots in the scratch or c.sel. `first_null`: slot of the
        first row with a null.
        """
        cdef int32_t j, i, slot, m
        cdef int32_t* rows
        cdef bint complete
        for j in range(<int32_t> len(self.names)):
            if c.cols[j].valid != NULL and (c.sel != NULL or memchr(c.cols[j].valid, 0, c.n) != NULL):
                break
        else:
            return &ALL_ROWS if c.sel == NULL else c.sel
        rows = <int32_t*> scratch_alloc(w, <int64_t> c.n * 4)
        if rows == NULL:
            raise MemoryError
        m = 0
        for i in range(c.n):
            slot = row_slot(c, i)
            complete = True
            for j in range(<int32_t> len(self.names)):
                if c.cols[j].valid != NULL and not c.cols[j].valid[slot]:
                    complete = False
            if complete:
                rows[m] = slot
                m += 1
                continue
            if first_null[0] < 0:
                first_null[0] = slot
            if self.kernel.on_error != ON_ERROR_SKIP:
                break
            if self.rejections is not None:
                self.failed(c, slot, null_error(self.names, c, slot))
                continue
            add_relaxed(&self.kernel.skipped, 1)         # statistic; no partner
            if skip_is_first(&self.kernel, slot_serial(c, slot)):
                skip_note_error(&self.kernel, slot_serial(c, slot), False, null_error(self.names, c, slot))
        n[0] = m
        return rows

    cdef int append(self, Worker* w, Chunk* c, const int32_t* rows, int32_t n, Chunk* out,
                    object result) except -1:
        """Append the outputs of one call. An error leaves out.n as it was."""
        cdef int32_t i
        cdef int32_t* origin
        if chunk_reserve(w, out, self.kernel.output, n) < 0:
            raise MemoryError
        self.take_outputs(w, out, result, n)
        origin = out.origin + out.n
        if rows == NULL:
            for i in range(n):
                origin[i] = i
        else:
            memcpy(origin, rows, <size_t> n * 4)
        out.n += n
        out.slots = out.n
        return 0

    cdef object call_arrow(self, Chunk* c, const int32_t* rows, int32_t n):
        columns = [(<ColumnReader> reader).arrow(&c.cols[i], rows, n) for i,
                   reader in enumerate(self.shape.reader.readers)]
        result = self.fn(pa.RecordBatch.from_arrays(columns, schema=self.input_schema))
        if not isinstance(result, (pa.RecordBatch, pa.Table)):
            raise TypeError(f"expected a pyarrow.RecordBatch, got {type(result).__name__}")
        found = dict(zip(result.schema.names, result.columns))
        if len(found) != len(result.schema.names):
            raise ValueError(f"expected the columns {list(self.writer.names)}, got {result.schema.names}")
        return found

    cdef Arrays arrays(self, int32_t n):
        """Input arrays for n rows: those of the last call, where nothing kept them."""
        cdef Arrays held
        if self.spare:
            held = <Arrays> self.spare.pop()
            if held.n == n:
                return held
        return Arrays(n, len(self.names))

    cdef int put_back(self, Arrays held) except -1:
        """Keep input arrays for the next call. The result must have been copied and dropped before: it may
        refer to them."""
        cdef int32_t j
        if held is None or not HAS_GIL:
            return 0
        for j in range(<int32_t> len(held.arrays)):
            array = held.arrays[j]
            # 2: this name and the list; more: the function kept it, or a view of it
            if array is not None and Py_REFCNT(array) > 2:
                held.arrays[j] = None
            array = None
        try:
            self.spare.append(held)
        # the rows have been written already: do not run them again
        except MemoryError:
            pass
        return 0

    cdef object call_numpy(self, Chunk* c, const int32_t* rows, int32_t n, Arrays held):
        cdef dict columns = {}
        cdef int32_t j
        cdef ColumnReader reader
        for j in self.read:
            reader = <ColumnReader> self.shape.reader.readers[j]
            dtype = self.dtypes[j]
            if dtype is None or c.cols[j].data == NULL:
                columns[self.names[j]] = numpy_array(reader.arrow(&c.cols[j], rows, n), self.names[j])
                continue
            array = held.arrays[j]
            # a function may reshape it
            if array is None or ord_input_array(<PyObject*> array, <PyObject*> dtype, n) != held.data[j]:
                array = NUMPY_EMPTY(n, dtype)
                held.data[j] = ord_plain_array(<PyObject*> array, <PyObject*> dtype, n)
                if held.data[j] == NULL:
                    raise AssertionError("numpy.empty gave another array than it was asked for")
                held.arrays[j] = array
            gather(<char*> held.data[j], c.cols[j].data, rows, n, reader.width)
            columns[self.names[j]] = array
        result = self.fn(columns)
        if type(result) is not dict and not isinstance(result, dict):
            raise TypeError(f"expected a dict of arrays, got {type(result).__name__}")
        return result

    cdef bint replace(self, Worker* w, Chunk* c, dict columns, int32_t n) except -1:
        """Make the results the columns of `c` itself. False: one is not an array of exactly its column's
        memory; `c` is unchanged."""
        cdef int32_t j
        cdef ColumnWriter writer
        cdef PyObject* found
        cdef Column* new = <Column*> scratch_alloc(w, (self.writer.ncols + 1) * <int64_t> sizeof(Column))
        if new == NULL:
            raise MemoryError
        if len(columns) != self.writer.ncols:
            return False
        for j in range(self.writer.ncols):
            writer = <ColumnWriter> self.writer.writers[j]
            found = PyDict_GetItem(columns, writer.name)
            if found == NULL:
                return False
            new[j].valid = NULL
            new[j].data = chunk_alloc(w, c, <int64_t> n * writer.width)
            if new[j].data == NULL:
                raise MemoryError
            if not copy_plain(<object> found, self.out_dtypes[j], new[j].data, n, writer.width):
                return False
        memcpy(c.cols, new, self.writer.ncols * sizeof(Column))
        c.ncols = self.writer.ncols
        return True

    cdef int take_outputs(self, Worker* w, Chunk* out, dict columns, int32_t n) except -1:
        """Write the result columns behind out.n (which stays)."""
        cdef int32_t j
        cdef ColumnWriter writer
        if len(columns) != self.writer.ncols or any([name not in columns for name in self.writer.names]):
            raise ValueError(f"expected the columns {list(self.writer.names)}, got {list(columns)}")
        for j in range(self.writer.ncols):
            writer = <ColumnWriter> self.writer.writers[j]
            array = columns[writer.name]
            if copy_plain(array, self.out_dtypes[j], out.cols[j].data + <int64_t> out.n * writer.width, n,
                          writer.width):
                if out.cols[j].valid != NULL:
                    memset(out.cols[j].valid + out.n, 1, n)
                continue
            if self.put_values(w, out, j, array, n):
                continue
            fitted = fit_array(array, writer.type, writer.name)
            if len(fitted) != n:
                rows = f"{n} row{'s' * (n > 1)}"
                raise ValueError(f"column {writer.name!r} has {len(fitted)} values for {rows}")
            writer.write_array(w, out, j, out.n, fitted)
        return 0

    cdef bint put_values(self, Worker* w, Chunk* out, int32_t j, object values, int32_t n) except -1:
        """Write Python values of a packed type, such as lists of texts, one by one: Arrow would make an
        array of each. False: they are something else, or not n."""
        cdef ColumnWriter writer = <ColumnWriter> self.writer.writers[j]
        cdef int32_t i = 0
        if not (writer.packed and writer.nullable) or isinstance(values, (pa.Array, pa.ChunkedArray)):
            return False
        if not hasattr(values, "__len__") or len(values) != n:
            return False
        for value in values:
            if i == n:
                return False
            writer.write(w, out, j, out.n + i, value)
            i += 1
        return i == n


cdef bint copy_plain(object array, object dtype, char* to, int32_t n, int32_t width) except -1:
    """Copy a one-dimensional contiguous array of exactly `dtype` and length n; False: it is something else.
    Cost: a memcpy."""
    cdef void* data
    if dtype is None or type(array) is not NUMPY_ARRAY:
        return False
    data = ord_plain_array(<PyObject*> array, <PyObject*> dtype, n)
    if data == NULL:
        return False
    memcpy(to, data, <size_t> n * width)
    return True

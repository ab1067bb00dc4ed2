"""A clock that is computed: the column of times of an input batch, made when the batch comes in.

The ingress reads it as it reads a column of the source: behind the last one of the batch. No chunk has it.
Who sends rows to several nodes has no ingress, and asks for the times of a record batch.
"""
import numpy as np
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from ordstream._core.ground.chunk cimport (
    DATA, Chunk, Column, LayoutOwner, Worker, chunk_free, chunk_new, pool_free, pool_init,
    scratch_reset, worker_free, worker_init,
)
from ordstream._core.ground.computed_column cimport compute_column
from ordstream._core.ground.expression cimport Evaluation, evaluation_begin
from ordstream._core.ground.expression_code cimport CodeOwner
from ordstream._core.ground.imported_batch cimport (
    Batch, BatchFormats, batch_alloc, batch_free, batch_import, batch_new,
)
from ordstream._core.ground.widths cimport WIDTHS
from ordstream._core.state.row_values cimport value_at

from ordstream._core.ground.chunk import layout_of, physical_type

cdef enum:
    BLOCK = 4096               # rows that are computed at a time


cdef class ComputedColumn:
    """What computes the times. Memory ownership: owns steps, a pool and a worker of its own; the programs
    belong to `programs`. Thread safety: the feeding thread.

    Parameters
    ----------
    clock : ordstream.operators.clocks.ComputedClock
    """

    def __init__(self, clock):
        cdef int32_t i
        cdef int32_t j
        cdef int32_t most = len(clock.columns)
        cdef CodeOwner program
        cdef LayoutOwner layout
        columns = list(clock.columns)
        self.ncolumns = len(columns)
        self.nsteps = len(clock.steps)
        self.columns = <int32_t*> calloc(self.ncolumns + 1, sizeof(int32_t))
        self.steps = <Step*> calloc(self.nsteps + 1, sizeof(Step))
        if self.columns == NULL or self.steps == NULL:
            raise MemoryError
        for i, column in enumerate(columns):
            self.columns[i] = column
        self.programs = []
        for i, step in enumerate(clock.steps):
            most = max(most, <int32_t> len(step.columns))
            layout = layout_of(step.schema)
            following = clock.steps[i + 1].schema.types if i + 1 < self.nsteps else [clock.field.type]
            self.steps[i].n = len(step.columns)
            self.steps[i].made = <Making*> calloc(self.steps[i].n + 1, sizeof(Making))
            if self.steps[i].made == NULL:
                raise MemoryError
            for j, made in enumerate(step.columns):
                if isinstance(made, int):
                    self.steps[i].made[j].source = made
                    continue
                program = CodeOwner(made, layout, physical_type(following[j])[0])
                self.programs.append(program)
                self.steps[i].made[j].source = -1
                self.steps[i].made[j].code = &program.code
        self.time_type = physical_type(clock.field.type)[0]
        pool_init(&self.pool, most + 1, 1 << 20)
        worker_init(&self.worker, &self.pool, 0)
        self.room = <Column*> calloc(2 * (most + 1), sizeof(Column))
        if self.room == NULL:
            raise MemoryError
        self.now = self.room
        self.next = self.now + most + 1

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.nsteps):
            if self.steps != NULL:
                free(self.steps[i].made)
        free(self.steps)
        free(self.columns)
        free(self.room)
        if self.worker.pool != NULL:
            worker_free(&self.worker)
            pool_free(&self.pool)

    def times(self, batch, LayoutOwner source not None, BatchFormats formats not None):
        """The times of a record batch, all of whose columns are read.

        Parameters
        ----------
        batch : pyarrow.RecordBatch
            Exactly of the schema that `source` and `formats` were made of, fewer than 2**31 rows.

        Returns
        -------
        (array of int64, array of bool)
            Storage values, and where they are known: as `fill`.

        Raises
        ------
        TypeError
            (text, index): of a column that the core does not read.
        MemoryError
        """
        cdef int64_t n = batch.num_rows
        cdef int64_t i
        cdef int rc
        cdef Batch* b
        found = np.zeros(n, np.int64)
        known = np.zeros(n, np.uint8)
        cdef int64_t[::1] values = found
        cdef uint8_t[::1] there = known
        cdef bytes all_used = b"\1" * (source.layout.ncols + 1)
        if n == 0:
            return found, known.view(np.bool_)
        b = batch_new(source.layout.ncols + 1, DATA)
        if b == NULL:
            raise MemoryError
        try:
            batch._export_to_c(<size_t> &b.array)
            rc = batch_import(b, &source.layout, <const uint8_t*> <const char*> all_used, formats.formats)
            if rc < -1:
                raise TypeError("a layout that the core does not read (a list with null elements?)", -2 - rc)
            if rc < 0:
                raise MemoryError
            computed_fill(self, b)
            for i in range(n):
                there[i] = b.cols[b.ncols - 1].valid[i]
                if there[i]:
                    values[i] = value_at(self.time_type, b.cols[b.ncols - 1].data, <int32_t> i)
        finally:
            batch_free(b)
        return found, known.view(np.bool_)

    cdef int fill(self, Batch* b) noexcept nogil:
        """Make the column behind the last one of a batch: null where the time is, or where it can't be
        computed. 0, or -1: no memory."""
        cdef int32_t width = WIDTHS[self.time_type]
        cdef char* data = <char*> batch_alloc(b, b.rows * width)
        cdef uint8_t* valid = <uint8_t*> batch_alloc(b, b.rows)
        cdef int64_t at = 0
        cdef int32_t n
        if data == NULL or valid == NULL:
            return -1
        while at < b.rows:
            n = <int32_t> min(b.rows - at, <int64_t> BLOCK)
            if self.block(b, at, n, data + at * width, valid + at) != 0:
                return -1
            at += n
        b.cols[b.ncols - 1].data = data
        b.cols[b.ncols - 1].valid = valid
        return 0

    cdef int block(self, Batch* b, int64_t at, int32_t n, char* data, uint8_t* valid) noexcept nogil:
        """Times of rows [at, at + n). 0, or -1: no memory."""
        cdef Worker* w = &self.worker
        cdef Chunk* c = chunk_new(w)
        cdef Column* own
        cdef Column* swap
        cdef Evaluation e
        cdef int32_t i
        cdef int32_t k
        cdef int32_t j
        cdef int rc
        if c == NULL:
            return -1
        scratch_reset(w)
        own = c.cols
        c.n = n
        c.slots = n
        for i in range(self.ncolumns):
            k = self.columns[i]
            self.now[i].data = b.cols[k].data + at * b.widths[k]
            self.now[i].valid = b.cols[k].valid + at if b.cols[k].valid != NULL else NULL
        evaluation_begin(&e, c)
        rc = 0
        for i in range(self.nsteps):
            for j in range(self.steps[i].n):
                if rc == 0:
                    rc = self.make(&self.steps[i].made[j], w, c, &e, j)
            swap = self.now
            self.now = self.next
            self.next = swap
        if rc == 0:
            memcpy(data, self.now[0].data, n * WIDTHS[self.time_type])
            memset(valid, 1, n)
            for i in range(n):
                valid[i] = ((self.now[0].valid == NULL or self.now[0].valid[i] != 0)
                            and (e.bad == NULL or e.bad[i] == 0))
        c.cols = own
        chunk_free(w, c)
        return rc

    cdef int make(self, const Making* made, Worker* w, Chunk* c, Evaluation* e, int32_t j) noexcept nogil:
        """Column j of a step. 0, or -1: no memory."""
        if made.source >= 0:
            self.next[j] = self.now[made.source]
            return 0
        c.cols = self.now
        return compute_column(made.code, w, c, e, &self.next[j])


cdef int computed_fill(object column, Batch* b) except -1:
    """Make the times of a batch, whose last column is not filled yet. Raises MemoryError."""
    cdef ComputedColumn computed = column
    cdef int rc
    with nogil:
        rc = computed.fill(b)
    if rc != 0:
        raise MemoryError
    return 0

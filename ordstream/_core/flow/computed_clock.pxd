"""A clock that is computed (computed_clock.pyx)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport Chunk, ChunkPool, Column, Worker
from ordstream._core.ground.expression cimport Evaluation
from ordstream._core.ground.expression_code cimport Code
from ordstream._core.ground.imported_batch cimport Batch

cdef struct Making:
    # One column that a step makes: a column that it takes, or what a program computes.
    int32_t source             # -1: computed
    const Code* code           # owned by a CodeOwner

cdef struct Step:
    # Columns made of those before. Memory ownership: ComputedColumn.
    int32_t n
    Making* made

cdef class ComputedColumn:
    cdef int32_t ncolumns
    cdef int32_t nsteps
    cdef readonly int time_type   # PhysicalType
    cdef int32_t* columns      # of the source: what the first step takes
    cdef Step* steps
    cdef list programs
    cdef ChunkPool pool
    cdef Worker worker
    cdef Column* now           # what the step takes; and what it makes
    cdef Column* next
    cdef Column* room          # of both
    cdef int fill(self, Batch* b) noexcept nogil
    cdef int block(self, Batch* b, int64_t at, int32_t n, char* data, uint8_t* valid) noexcept nogil
    cdef int make(self, const Making* made, Worker* w, Chunk* c, Evaluation* e, int32_t j) noexcept nogil

cdef int computed_fill(object column, Batch* b) except -1

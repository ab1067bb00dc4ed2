"""A column that an expression makes of the rows of a chunk."""
from ordstream._core.ground.chunk cimport Chunk, Column, Worker
from ordstream._core.ground.expression cimport Evaluation
from ordstream._core.ground.expression_code cimport Code

cdef int compute_column(const Code* code, Worker* w, Chunk* c, Evaluation* e, Column* made) noexcept nogil

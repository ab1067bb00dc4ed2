"""Operator "filter". What other kernels with a condition of their own share with it: `keep_rows`."""
from ordstream._core.ground.chunk cimport Chunk, Worker
from ordstream._core.ground.expression_code cimport Code
from ordstream._core.ground.kernel cimport Kernel

cdef Chunk* keep_rows(Kernel* k, const Code* code, Worker* w, Chunk* c) noexcept nogil

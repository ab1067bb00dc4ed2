"""Compiled programs of the expression machine: instructions, and their loader (`CodeOwner`)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from ordstream._core.ground.chunk cimport LayoutOwner
from ordstream._core.ground.packed_parts cimport PackedParts

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    ctypedef int64_t (*binary_t)(void* r, const void* a, int sa, const void* b, int sb,
                                 int64_t n) noexcept nogil
    ctypedef void (*mark2_t)(uint8_t* bad, const uint8_t* valid, const void* a, int sa, const void* b,
                             int sb, int64_t n) noexcept nogil
    ctypedef int64_t (*unary_t)(void* r, const void* a, int64_t n) noexcept nogil
    ctypedef void (*mark1_t)(uint8_t* bad, const uint8_t* valid, const void* a, int64_t n) noexcept nogil

cdef enum Opcode:
    OP_COLUMN = 0
    OP_LITERAL = 1
    OP_UNARY = 2
    OP_BINARY = 3
    OP_AND = 4
    OP_OR = 5
    OP_IS_NULL = 6
    OP_IS_NOT_NULL = 7
    OP_COALESCE = 8
    OP_IF = 9
    OP_IN_I64 = 10
    OP_IN_VIEW = 11
    OP_LOOKUP = 12

cdef struct Instruction:
    int32_t op             # Opcode
    int32_t width          # bytes per result value: 1, 8 or 16
    int32_t column         # OP_COLUMN: index in the input layout
    int32_t type           # OP_COLUMN: PhysicalType of that column
    binary_t binary        # OP_BINARY
    mark2_t mark2          # OP_BINARY that can fail, else NULL
    unary_t unary          # OP_UNARY; OP_COLUMN of uint64: its range check
    mark1_t mark1          # OP_UNARY that can fail, else NULL
    # OP_LITERAL: the value (also a readable zero for results that are null in every row)
    int64_t[2] constant
    uint8_t constant_valid  # OP_LITERAL: 0 = null
    # OP_IN_*: sorted members; OP_LOOKUP: 8-byte values. Borrowed from the owner of the code
    const void* table
    const uint8_t* table_valid  # OP_LOOKUP: NULL: all valid
    int64_t size           # entries of `table`
    # OP_COLUMN of a packed type: a field of it, by its place in each struct on the way; NULL: the column
    PackedParts* parts
    int32_t* path
    int32_t depth          # places of `path`
    int32_t leaf           # PackedLeaf

cdef struct Code:
    # A compiled program. Read-only while a run lasts. Memory ownership: its CodeOwner.
    int32_t n
    int32_t depth          # deepest stack
    int32_t type           # PhysicalType of the result column
    Instruction* instructions

cdef class CodeOwner:
    # Memory ownership: allocates and frees `code.instructions`; keeps tables and literals alive.
    cdef Code code
    cdef list references
    cdef int load(self, Instruction* op, str name, list operands, LayoutOwner layout) except -100
    cdef int load_field(self, Instruction* op, str vm, int32_t column, tuple path, str format,
                        str leaf) except -1
    cdef int load_literal(self, Instruction* op, str vm, value) except -1
    cdef int load_table(self, Instruction* op, str name, list operands) except -1

"""Loading programs (expression_code.pxd)."""
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from ordstream._core.ground.arrow_calls cimport OP_ARROW, OP_JOIN
from ordstream._core.ground.chunk cimport PT_FIXED16, PT_I64, PT_LIST, PT_U64, PT_VIEW, LayoutOwner, View
from ordstream._core.ground.own_functions cimport find_part, find_text
from ordstream._core.ground.packed_lists cimport (
    OP_AS_LIST, OP_LIST_GET, OP_LIST_HAS, OP_LIST_JOIN, OP_PART, leaf_width,
)
from ordstream._core.ground.packed_parts cimport (
    LEAF_BOOL, LEAF_COUNTED, LEAF_FLOAT, LEAF_INT, LEAF_PACKED, LEAF_TEXT, LEAF_UINT, LEAF_WIDE,
    packed_parts, packed_parts_free,
)

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    cppclass BinaryEntry:
        binary_t run
        mark2_t mark
        char operand
        char result
    cppclass UnaryEntry:
        unary_t run
        mark1_t mark
        char operand
        char result
    const BinaryEntry* find_binary(const char* name)
    const UnaryEntry* find_unary(const char* name)

cdef extern from "decimal_ops.hpp" namespace "ord" nogil:
    const BinaryEntry* find_decimal_binary(const char* name)
    const UnaryEntry* find_decimal_unary(const char* name)

cdef dict STACK_WIDTH = {"i64": 8, "f64": 8, "bool": 1, "view": 16, "i128": 16}
cdef dict LEAVES = {"int": LEAF_INT, "uint": LEAF_UINT, "float": LEAF_FLOAT, "bool": LEAF_BOOL,
                    "text": LEAF_TEXT, "counted": LEAF_COUNTED, "wide": LEAF_WIDE, "packed": LEAF_PACKED}
cdef dict RESULT_WIDTH = {"i": 8, "f": 8, "b": 1, "v": 16, "d": 16}


cdef int load_arrow(Instruction* op, str vm, call) except -1:
    """A function of Arrow; the caller keeps it."""
    op.op = OP_ARROW
    op.width = STACK_WIDTH[vm]
    op.type = PT_VIEW if call.takes_text else PT_I64
    op.size = call.case_step
    op.table = <const void*> <PyObject*> call
    return 0


cdef int load_column(Instruction* op, str vm, int32_t column, LayoutOwner layout) except -1:
    """A column of the input; what its values need before they are on the stack."""
    cdef const UnaryEntry* unary = NULL
    if not 0 <= column < layout.layout.ncols:
        raise ValueError(f"col_{vm}: no column {column}")
    op.op = OP_COLUMN
    op.column = column
    op.type = layout.layout.type[column]
    op.width = STACK_WIDTH[vm]
    if op.type == PT_U64:
        unary = find_unary(b"load_u64")
    elif vm == "i128":
        unary = find_decimal_unary(b"load_i128")
    if unary != NULL:
        op.unary = unary.run
        op.mark1 = unary.mark
    return 0


cdef int load_parts(Instruction* op, str format) except -1:
    """What finds parts in packed values of a format; the owner of the code frees it."""
    cdef bytes encoded = format.encode()
    op.parts = packed_parts(encoded)
    if op.parts == NULL:
        raise MemoryError
    return 0


cdef int load_path(Instruction* op, tuple path) except -1:
    """Places of a field in each struct on the way; the owner of the code frees them."""
    cdef int32_t i
    op.depth = <int32_t> len(path)
    op.path = <int32_t*> calloc(op.depth + 1, sizeof(int32_t))
    if op.path == NULL:
        raise MemoryError
    for i in range(op.depth):
        op.path[i] = path[i]
    return 0


cdef int load_nested(Instruction* op, str name, list operands, LayoutOwner layout) except -100:
    """Functions of lists and structs (ordstream/expressions/lists.py); returns as `load`."""
    kind, _, vm = name.rpartition("_")
    if name == "pack_list":                          # column, format, bytes of an element, booleans?
        op.op = OP_COLUMN
        op.column = operands[0]
        op.type = layout.layout.type[op.column]
        op.width = 16
        op.size = operands[2]
        op.depth = operands[3]
        load_parts(op, operands[1])
        return 1
    load_parts(op, operands[0])
    if kind == "part":                               # format, leaf, path
        op.op = OP_PART
        op.width = STACK_WIDTH[vm]
        op.leaf = LEAVES[operands[1]]
        load_path(op, operands[2])
        return 0
    if kind == "get":                                # format, leaf
        op.op = OP_LIST_GET
        op.leaf = LEAVES[operands[1]]
        op.width = <int32_t> leaf_width(op.leaf)
        return -1
    if name == "list_has":
        op.op = OP_LIST_HAS
        op.leaf = LEAVES[operands[1]]
        op.width = 1
        return -1
    op.width = 16
    if name == "as_list":                            # format
        op.op = OP_AS_LIST
        return 0
    op.op = OP_LIST_JOIN                             # format, whether a null element makes it null
    op.depth = operands[1]
    return -1


cdef class CodeOwner:
    """A program compiled against a layout.

    Parameters
    ----------
    program : ordstream.expressions.bound.BoundExpr
    layout : LayoutOwner
        Of the operator's input.
    type : int
        PhysicalType of the result column.

    Raises
    ------
    ValueError
        An instruction is unknown or the stack does not balance: a defect of the lowering.
    """

    def __cinit__(self, program, LayoutOwner layout, int type):
        cdef Instruction* op
        cdef int32_t depth = 0
        self.references = []
        self.code.n = <int32_t> len(program.code)
        # the column is views of their 16 bytes, the values are 128-bit numbers
        self.code.type = PT_FIXED16 if program.type == "i128" else type
        self.code.instructions = <Instruction*> calloc(self.code.n + 1, sizeof(Instruction))
        if self.code.instructions == NULL:
            raise MemoryError
        op = self.code.instructions
        for name, *operands in program.code:
            depth += self.load(op, name, operands, layout)
            self.code.depth = max(self.code.depth, depth)
            if depth < 1:
                raise ValueError(f"the stack runs empty at {name} in {program!r}")
            op += 1
        if depth != 1:
            raise ValueError(f"{program!r} leaves {depth} values")

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.code.n if self.code.instructions != NULL else 0):
            if self.code.instructions[i].parts != NULL:
                packed_parts_free(self.code.instructions[i].parts)
            free(self.code.instructions[i].path)
        free(self.code.instructions)

    cdef int load_field(self, Instruction* op, str vm, int32_t column, tuple path, str format,
                        str leaf) except -1:
        """A field of a column of structs (ordstream/expressions/fields.py)."""
        op.op = OP_COLUMN
        op.column = column
        op.type = PT_VIEW
        op.width = STACK_WIDTH[vm]
        op.leaf = LEAVES[leaf]
        load_parts(op, format)
        load_path(op, path)
        return 0

    cdef int load(self, Instruction* op, str name, list operands, LayoutOwner layout) except -100:
        """Fill one instruction; returns by how much it grows the stack."""
        cdef const BinaryEntry* binary
        cdef const UnaryEntry* unary
        cdef bytes encoded = name.encode()
        kind, _, vm = name.rpartition("_")
        if kind == "col":
            load_column(op, vm, operands[0], layout)
            return 1
        if name in ("len_list", "len_packed"):
            op.op = OP_COLUMN
            op.column = operands[0]
            op.type = layout.layout.type[op.column]
            op.width = 8
            op.unary = find_unary(b"len_list" if op.type == PT_LIST else b"len_packed").run
            return 1
        if kind == "field":
            self.load_field(op, vm, operands[0], operands[1], operands[2], operands[3])
            return 1
        if name in ("pack_list", "list_has", "list_join", "as_list") or kind in ("part", "get"):
            return load_nested(op, name, operands, layout)
        if kind == "lit":
            self.load_literal(op, vm, operands[0])
            return 1
        if name in ("and", "or"):
            op.op = OP_AND if name == "and" else OP_OR
            op.width = 1
            return -1
        if kind in ("is_null", "is_not_null"):
            op.op = OP_IS_NULL if kind == "is_null" else OP_IS_NOT_NULL
            op.width = 1
            return 0
        if kind in ("coalesce", "if"):
            op.op = OP_COALESCE if kind == "coalesce" else OP_IF
            op.width = STACK_WIDTH[vm]
            return -1 if kind == "coalesce" else -2
        if kind == "arrow":
            self.references.append(operands[0])
            load_arrow(op, vm, operands[0])
            return 0
        if name == "join_view":
            op.op = OP_JOIN
            op.width = 16
            return -1
        if kind in ("in", "lookup"):
            self.load_table(op, name, operands)
            return 0
        binary = find_binary(encoded)
        if binary == NULL:
            binary = find_decimal_binary(encoded)
        if binary != NULL:
            op.op = OP_BINARY
            op.binary = binary.run
            op.mark2 = binary.mark
            op.width = RESULT_WIDTH[chr(binary.result)]
            return -1
        if find_text(name) != NULL:
            op.op = OP_BINARY
            op.binary = <binary_t> find_text(name)
            op.width = 16 if kind == "chars" else 1
            return -1
        op.op = OP_UNARY
        if find_part(name) != NULL:
            op.unary = <unary_t> find_part(name)
            op.width = 8
            return 0
        unary = find_unary(b"len_packed" if name == "list_length" else encoded)
        if unary == NULL:
            unary = find_decimal_unary(encoded)
        if unary == NULL:
            raise ValueError(f"unknown instruction {name!r}")
        op.unary = unary.run
        op.mark1 = unary.mark
        op.width = RESULT_WIDTH[chr(unary.result)]
        return 0

    cdef int load_literal(self, Instruction* op, str vm, value) except -1:
        cdef bytes data
        cdef double real
        op.op = OP_LITERAL
        op.constant_valid = vm != "null"
        if vm == "null":
            op.width = STACK_WIDTH[value]
            return 0
        op.width = STACK_WIDTH[vm]
        if vm == "i64":
            op.constant[0] = value
        elif vm == "i128":
            op.constant[0] = (value & (2**64 - 1)) - (2**64 if value & 2**63 else 0)
            op.constant[1] = value >> 64
        elif vm == "f64":
            real = value
            memcpy(op.constant, &real, 8)
        elif vm == "bool":
            (<uint8_t*> op.constant)[0] = bool(value)
        else:
            data = bytes(value)
            self.references.append(data)
            (<View*> op.constant).data = data
            (<View*> op.constant).size = len(data)
        return 0

    cdef int load_table(self, Instruction* op, str name, list operands) except -1:
        """Members of isin, sorted; or the arrays of a lookup."""
        import numpy as np

        cdef int64_t i
        cdef int64_t address
        cdef View* views
        cdef bytes member
        if name == "in_i64":
            op.op = OP_IN_I64
            op.width = 1
            table = np.array(sorted(set(operands[0])), dtype=np.int64)
        elif name == "in_view":
            op.op = OP_IN_VIEW
            op.width = 1
            members = sorted({bytes(m) for m in operands[0]})
            table = np.zeros((len(members) + 1, 2), dtype=np.int64)
            address = table.ctypes.data
            views = <View*> address
            for i, member in enumerate(members):
                views[i].data = member
                views[i].size = len(member)
            self.references.append(members)
            op.size = len(members)
            self.references.append(table)
            op.table = <const void*> address
            return 0
        else:
            op.op = OP_LOOKUP
            op.width = 8
            table = np.ascontiguousarray(operands[0], dtype=np.int64 if name == "lookup_i64" else np.float64)
            if len(operands) > 1 and operands[1] is not None:
                valid = np.ascontiguousarray(operands[1], dtype=np.bool_)
                if len(valid) != len(table):
                    raise ValueError(f"{name}: {len(table)} values but {len(valid)} validity flags")
                self.references.append(valid)
                address = valid.ctypes.data
                op.table_valid = <const uint8_t*> address
        self.references.append(table)
        address = table.ctypes.data
        op.table = <const void*> address
        op.size = len(table)
        return 0

"""The expression machine's interpreter. See expression.pxd; kernels/filter.pyx, project.pyx and others use
it."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset
from ordstream._core.ground.arrow_calls cimport OP_ARROW, OP_JOIN, arrow_call, ascii_case, join_text
from ordstream._core.ground.chunk cimport (
    PT_BOOL, PT_F64, PT_I64, PT_LIST, PT_U64, PT_VIEW, Chunk, View, Worker, chunk_alloc, row_slot,
    scratch_alloc, slot_serial,
)
from ordstream._core.ground.expression_code cimport (
    Code, Instruction, OP_AND, OP_COALESCE, OP_COLUMN, OP_IF, OP_IN_I64, OP_IS_NOT_NULL, OP_IS_NULL,
    OP_LITERAL, OP_LOOKUP, OP_OR, OP_BINARY, OP_UNARY,
)
from ordstream._core.ground.packed_lists cimport (
    OP_AS_LIST, OP_LIST_GET, OP_LIST_HAS, OP_LIST_JOIN, OP_PART, pack_lists, packed_get, packed_has,
    packed_join,
)
from ordstream._core.ground.packed_parts cimport packed_fields
from ordstream._core.ground.kernel cimport ON_ERROR_SKIP, Kernel, skip_is_first, skip_note
from ordstream._core.ground.kernel_tools cimport chunk_fail, failure_text

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    cppclass ByteView "ord::View":
        const char* data
        int64_t size
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    void clear_null_views(ByteView* views, const uint8_t* valid, int64_t n)
    void kleene(bint is_or, uint8_t* r, uint8_t* rv, const uint8_t* a, const uint8_t* av, const uint8_t* b,
                const uint8_t* bv,
                int64_t n)
    void select(int width, void* r, const uint8_t* pick, const void* a, int sa, const void* b, int sb,
                int64_t n)
    void in_i64(uint8_t* r, const int64_t* a, int64_t n, const int64_t* members, int64_t m)
    void in_view(uint8_t* r, const ByteView* a, int64_t n, const ByteView* members, int64_t m)
    void lookup(int64_t* r, uint8_t* rv, const int64_t* a, const uint8_t* av, int64_t n,
                const int64_t* table, const uint8_t* valid,
                int64_t size)
    void both_valid(uint8_t* r, const uint8_t* a, const uint8_t* b, int64_t n)
    int32_t narrow(int32_t* out, const int32_t* sel, const uint8_t* keep, const uint8_t* valid, int32_t n)
    int64_t first_bad(const uint8_t* bad, int64_t n)

cdef uint8_t[16] ZERO      # readable, never written: false, null, 0
cdef uint8_t ONE = 1
memset(ZERO, 0, 16)


# ---------------------------------------------------------------------------------------------- interpreter


cdef int fail_all(Evaluation* e, Worker* w, uint8_t code) noexcept nogil:
    """Mark every row as failed with `code`; earlier reasons stay. 0, or -1: no memory."""
    cdef int32_t i
    if mark_begin(e, w) != 0:
        return -1
    for i in range(e.n):
        if e.bad[i] == 0:
            e.bad[i] = code
    return 0


cdef inline void null_in_every_row(Value* v, int32_t width) noexcept nogil:
    v.data = <char*> ZERO
    v.valid = ZERO
    v.scalar = 1
    v.width = width


cdef int run_pack(const Instruction* op, Worker* w, const Evaluation* e, const View* lists,
                  const uint8_t* valid, Value* v) noexcept nogil:
    """A column of lists of fixed width, as packed values. 0, or -1: no memory."""
    cdef int64_t size = pack_lists(op.size, op.depth, lists, valid, e.sel, e.n, NULL, <View*> NULL)
    cdef char* to = scratch_alloc(w, size + 1)
    v.data = scratch_alloc(w, <int64_t> e.n * 16 + 1)
    if to == NULL or v.data == NULL:
        return -1
    pack_lists(op.size, op.depth, lists, valid, e.sel, e.n, to, <View*> v.data)
    return 0


cdef int run_column(const Instruction* op, Worker* w, Chunk* c, Evaluation* e, bint validity,
                    Value* v) noexcept nogil:
    """Load a column. Without a selection a 64-bit, bool or null-free view column is used where it lies. With
    `validity` a null test follows: the values are not touched (there may be none)."""
    cdef const char* data = c.cols[op.column].data
    cdef uint8_t* valid = c.cols[op.column].valid
    cdef int32_t width
    cdef bint direct = e.sel == NULL and (op.type == PT_I64 or op.type == PT_F64 or op.type == PT_BOOL
                                          or op.type == PT_U64
                                          or (op.type == PT_VIEW and valid == NULL) or op.type == PT_LIST)
    v.scalar = 0
    v.width = op.width
    if op.parts != NULL and op.type != PT_LIST:
        v.data = scratch_alloc(w, <int64_t> e.n * op.width + 1)
        v.valid = <uint8_t*> scratch_alloc(w, e.n + 1)
        if v.data == NULL or v.valid == NULL:
            return -1
        packed_fields(op.parts, op.path, op.depth, op.leaf, <const View*> data, valid, e.sel, e.n, v.data,
                      v.valid)
        return 0
    v.valid = valid
    if valid != NULL and e.sel != NULL:
        v.valid = <uint8_t*> scratch_alloc(w, e.n)
        if v.valid == NULL:
            return -1
        load(v.valid, PT_BOOL, valid, e.sel, e.n)
    if op.parts != NULL:
        return run_pack(op, w, e, <const View*> data, valid, v)
    if direct or validity:
        v.data = <char*> data
        if validity:
            return 0
    else:
        width = 16 if op.type == PT_LIST or op.type == PT_VIEW else op.width
        v.data = scratch_alloc(w, <int64_t> e.n * width)
        if v.data == NULL:
            return -1
        load(v.data, op.type, data, e.sel, e.n)
        if op.type == PT_VIEW and valid != NULL:
            clear_null_views(<ByteView*> v.data, v.valid, e.n)
    if op.unary != NULL:              # uint64: the same bits, checked; list: its length; decimals: of bytes
        data = v.data
        v.data = scratch_alloc(w, <int64_t> e.n * op.width)
        if v.data == NULL:
            return -1
        if op.unary(v.data, data, e.n) < 0:
            if mark_begin(e, w) != 0:
                return -1
            op.mark1(e.bad, v.valid, data, e.n)
    return 0


cdef int run_unary(const Instruction* op, Worker* w, Evaluation* e, char* into, Value* v) noexcept nogil:
    """`into`: where the result is to lie, unless it is one value; NULL: anywhere."""
    cdef int64_t m = 1 if v.scalar else e.n
    cdef char* a = v.data
    cdef uint8_t code = 0
    v.data = into if into != NULL and not v.scalar else scratch_alloc(w, m * op.width)
    if v.data == NULL:
        return -1
    v.width = op.width
    if op.unary(v.data, a, m) < 0:
        if v.scalar:
            op.mark1(&code, v.valid, a, 1)
            return fail_all(e, w, code) if code else 0
        if mark_begin(e, w) != 0:
            return -1
        op.mark1(e.bad, v.valid, a, m)
    return 0


cdef int run_binary(const Instruction* op, Worker* w, Evaluation* e, char* into, Value* a,
                    Value* b) noexcept nogil:
    """a = a op b. `into`: as in run_unary."""
    cdef int32_t scalar = a.scalar & b.scalar
    cdef int64_t m = 1 if scalar else e.n
    cdef char* x = a.data
    cdef uint8_t* valid
    cdef uint8_t* other
    cdef uint8_t code = 0
    cdef int64_t alarm
    cdef int32_t sx = a.scalar
    if is_null_scalar(a) or is_null_scalar(b):
        null_in_every_row(a, op.width)
        return 0
    valid = <uint8_t*> NULL if a.scalar else a.valid
    other = <uint8_t*> NULL if b.scalar else b.valid
    if valid == NULL:
        valid = other
    elif other != NULL and other != valid:
        a.valid = <uint8_t*> scratch_alloc(w, e.n)
        if a.valid == NULL:
            return -1
        both_valid(a.valid, valid, other, e.n)
        valid = a.valid
    a.data = into if into != NULL and not scalar else scratch_alloc(w, m * op.width)
    if a.data == NULL:
        return -1
    a.valid = valid
    a.scalar = scalar
    a.width = op.width
    if op.op == OP_JOIN:
        return join_text(x, sx, b.data, b.scalar, valid, m, w, a.data)
    alarm = op.binary(a.data, x, sx, b.data, b.scalar, m)
    if alarm < 0:
        if scalar:
            op.mark2(&code, NULL, x, 1, b.data, 1, 1)
            return fail_all(e, w, code) if code else 0
        if mark_begin(e, w) != 0:
            return -1
        op.mark2(e.bad, valid, x, sx, b.data, b.scalar, m)
    return 0


cdef int densify(Value* v, Worker* w, Evaluation* e) noexcept nogil:
    """Turn a bool scalar into n values. 0, or -1: no memory."""
    cdef uint8_t value
    if v.scalar:
        value = v.data[0]
        v.data = scratch_alloc(w, e.n)
        if v.data == NULL:
            return -1
        memset(v.data, value, e.n)
        v.scalar = 0
        if v.valid != NULL:
            value = v.valid[0]
            v.valid = <uint8_t*> scratch_alloc(w, e.n)
            if v.valid == NULL:
                return -1
            memset(v.valid, value, e.n)
    return 0


cdef int run_logic(bint is_or, Worker* w, Evaluation* e, Value* a, Value* b) noexcept nogil:
    """a = a and/or b, Kleene."""
    cdef uint8_t* r
    cdef uint8_t* rv = NULL
    # a constant, such as "x is not null" of a chunk without nulls
    if a.scalar and a.valid == NULL:
        if (a.data[0] != 0) != is_or:
            a[0] = b[0]
        return 0
    if b.scalar and b.valid == NULL:
        if (b.data[0] != 0) == is_or:
            a[0] = b[0]
        return 0
    if densify(a, w, e) != 0 or densify(b, w, e) != 0:
        return -1
    r = <uint8_t*> scratch_alloc(w, e.n)
    if a.valid != NULL or b.valid != NULL:
        rv = <uint8_t*> scratch_alloc(w, e.n)
        if rv == NULL:
            return -1
    if r == NULL:
        return -1
    kleene(is_or, r, rv, <uint8_t*> a.data, a.valid, <uint8_t*> b.data, b.valid, e.n)
    a.data = <char*> r
    a.valid = rv
    return 0


cdef int run_is_null(bint negated, Worker* w, Evaluation* e, Value* v) noexcept nogil:
    cdef int32_t i
    cdef uint8_t* r
    if v.valid == NULL:
        v.data = <char*> (&ONE if negated else ZERO)
        v.scalar = 1
    elif v.scalar:
        v.data = <char*> (&ONE if (v.valid[0] != 0) == negated else ZERO)
    elif negated:
        v.data = <char*> v.valid
    else:
        r = <uint8_t*> scratch_alloc(w, e.n)
        if r == NULL:
            return -1
        for i in range(e.n):
            r[i] = v.valid[i] ^ 1
        v.data = <char*> r
    v.valid = NULL
    v.width = 1
    return 0


cdef int choose(Worker* w, Evaluation* e, const uint8_t* pick, const Value* a, const Value* b,
                Value* r) noexcept nogil:
    """r[i] = a[i] where pick[i], else b[i]; r may be a."""
    cdef char* data = scratch_alloc(w, <int64_t> e.n * a.width)
    cdef uint8_t* valid = NULL
    if data == NULL:
        return -1
    select(a.width, data, pick, a.data, a.scalar, b.data, b.scalar, e.n)
    if a.valid != NULL or b.valid != NULL:
        valid = <uint8_t*> scratch_alloc(w, e.n)
        if valid == NULL:
            return -1
        select(1, valid, pick, a.valid if a.valid != NULL else &ONE, a.scalar or a.valid == NULL,
               b.valid if b.valid != NULL else &ONE, b.scalar or b.valid == NULL, e.n)
    r.width = a.width
    r.data = data
    r.valid = valid
    r.scalar = 0
    return 0


cdef int run_if(Worker* w, Evaluation* e, Value* condition, Value* a, Value* b) noexcept nogil:
    """condition = a where condition is true, else b."""
    cdef uint8_t* pick = <uint8_t*> condition.data
    if condition.scalar:
        condition[0] = a[0] if pick[0] and not is_null_scalar(condition) else b[0]
        return 0
    if condition.valid != NULL:
        pick = <uint8_t*> scratch_alloc(w, e.n)
        if pick == NULL:
            return -1
        both_valid(pick, <uint8_t*> condition.data, condition.valid, e.n)
    return choose(w, e, pick, a, b, condition)


cdef int run_member(const Instruction* op, Worker* w, Evaluation* e, Value* v) noexcept nogil:
    """isin and lookup: one operand and a table."""
    cdef int64_t m = 1 if v.scalar else e.n
    cdef char* a = v.data
    cdef uint8_t* valid = v.valid
    v.data = scratch_alloc(w, m * op.width)
    if v.data == NULL:
        return -1
    v.width = op.width
    if op.op == OP_LOOKUP:
        v.valid = <uint8_t*> scratch_alloc(w, m)
        if v.valid == NULL:
            return -1
        lookup(<int64_t*> v.data, v.valid, <int64_t*> a, valid, m, <const int64_t*> op.table, op.table_valid,
               op.size)
    elif op.op == OP_IN_I64:
        in_i64(<uint8_t*> v.data, <int64_t*> a, m, <const int64_t*> op.table, op.size)
    else:
        in_view(<uint8_t*> v.data, <ByteView*> a, m, <const ByteView*> op.table, op.size)
    return 0


cdef int run_arrow(const Instruction* op, Worker* w, Evaluation* e, Value* v) noexcept nogil:
    """A function of Arrow: takes the GIL."""
    cdef int64_t m = 1 if v.scalar else e.n
    cdef bint text = op.type == PT_VIEW
    cdef char* a = v.data
    cdef uint8_t code = 0
    cdef int status
    v.width = op.width
    if is_null_scalar(v):
        null_in_every_row(v, op.width)
        return 0
    v.data = scratch_alloc(w, m * op.width)
    if v.data == NULL:
        return -1
    status = ascii_case(op.size, a, v.valid, m, w, v.data) if op.size else 1
    if status == 1:
        status = arrow_call(<void*> op.table, text, op.width, a, v.valid, m, w, v.data, NULL)
    if status <= 0:
        return status
    if v.scalar:
        status = arrow_call(<void*> op.table, text, op.width, a, v.valid, 1, w, v.data, &code)
        return status if status != 0 or code == 0 else fail_all(e, w, code)
    if mark_begin(e, w) != 0:
        return -1
    return arrow_call(<void*> op.table, text, op.width, a, v.valid, m, w, v.data, e.bad)


cdef int run_nested(const Instruction* op, Worker* w, Evaluation* e, Value* a, Value* b) noexcept nogil:
    """a = a field of the structs a; an element of the lists a, whether they have b, their strings joined."""
    cdef bint alone = a.scalar and (b == NULL or b.scalar)
    cdef int64_t m = 1 if alone else e.n
    cdef const View* values = <const View*> a.data
    cdef char* out = scratch_alloc(w, m * op.width + 1)
    cdef uint8_t* valid = <uint8_t*> scratch_alloc(w, m + 1)
    cdef char* to
    if out == NULL or valid == NULL:
        return -1
    if op.op == OP_PART:
        packed_fields(op.parts, op.path, op.depth, op.leaf, values, a.valid, NULL, m, out, valid)
    elif op.op == OP_LIST_GET:
        packed_get(op.parts, op.leaf, values, a.scalar, a.valid, <const int64_t*> b.data, b.scalar, b.valid,
                   m, out, valid)
    elif op.op == OP_LIST_HAS:
        packed_has(op.parts, op.leaf, values, a.scalar, a.valid, b.data, b.scalar, b.valid, m, out, valid)
    else:
        to = scratch_alloc(w, 1 + packed_join(
            op.parts, op.depth, values, a.scalar, a.valid, <const View*> b.data, b.scalar, b.valid, m, NULL,
            <View*> NULL, NULL))
        if to == NULL:
            return -1
        packed_join(op.parts, op.depth, values, a.scalar, a.valid, <const View*> b.data, b.scalar, b.valid,
                    m, to, <View*> out, valid)
    a.data = out
    a.valid = valid
    a.scalar = alone
    a.width = op.width
    return 0


cdef inline bint tests_null(const Code* code, int32_t i) noexcept nogil:
    """True when instruction i, a column, is only tested for null."""
    cdef int32_t following = code.instructions[i + 1].op if i + 1 < code.n else <int32_t> OP_COLUMN
    return following == OP_IS_NULL or following == OP_IS_NOT_NULL


cdef int evaluate(const Code* code, Worker* w, Chunk* c, Evaluation* e, char* into,
                  Value* result) noexcept nogil:
    """Run a program over the rows of `e` (at least one). `into`: room for a result of all rows, which lies
    there where the last instruction computes numbers; NULL: none.

    Thread safety: any worker; the chunk's owner. Ownership: `result` points into scratch, the chunk or the
    code: valid until the next kernel call. Returns: 0, or -1 when memory is exhausted; failing rows are in
    e.bad. Cost: ~5 ns per instruction plus 0.1-1 ns per row and instruction.
    """
    cdef Value* stack = <Value*> scratch_alloc(w, code.depth * <int64_t> sizeof(Value))
    cdef Value* top                                          # the last value
    cdef const Instruction* op
    cdef const uint8_t* pick
    cdef int32_t i
    cdef int status = 0
    if stack == NULL:
        return -1
    top = stack - 1
    for i in range(code.n):
        op = &code.instructions[i]
        if op.op == OP_COLUMN:
            top += 1
            status = run_column(op, w, c, e, tests_null(code, i), top)
        elif op.op == OP_LITERAL:
            top += 1
            top.data = <char*> op.constant
            top.valid = <uint8_t*> NULL if op.constant_valid else <uint8_t*> ZERO
            top.scalar = 1
            top.width = op.width
        elif op.op == OP_BINARY or op.op == OP_JOIN:
            top -= 1
            status = run_binary(op, w, e, into if i == code.n - 1 else <char*> NULL, top, top + 1)
        elif op.op == OP_UNARY:
            status = run_unary(op, w, e, into if i == code.n - 1 else <char*> NULL, top)
        elif op.op == OP_AND or op.op == OP_OR:
            top -= 1
            status = run_logic(op.op == OP_OR, w, e, top, top + 1)
        elif op.op == OP_IS_NULL or op.op == OP_IS_NOT_NULL:
            status = run_is_null(op.op == OP_IS_NOT_NULL, w, e, top)
        elif op.op == OP_COALESCE:
            top -= 1
            if is_null_scalar(top):
                top[0] = top[1]
            elif top.valid != NULL and not top.scalar:
                pick = top.valid
                if top[1].valid == NULL:                     # no row is left without a value
                    top.valid = NULL
                status = choose(w, e, pick, top, top + 1, top)
        elif op.op == OP_IF:
            top -= 2
            status = run_if(w, e, top, top + 1, top + 2)
        elif op.op in (OP_LIST_GET, OP_LIST_HAS, OP_LIST_JOIN):
            top -= 1
            status = run_nested(op, w, e, top, top + 1)
        elif op.op == OP_PART:
            status = run_nested(op, w, e, top, NULL)
        elif op.op == OP_ARROW:
            status = run_arrow(op, w, e, top)
        elif op.op != OP_AS_LIST:                                # compute_column does that
            status = run_member(op, w, e, top)
        if status != 0:
            return -1
    result[0] = top[0]
    return 0


cdef void evaluation_begin(Evaluation* e, const Chunk* c) noexcept nogil:
    """Start an evaluation: all selected rows of a chunk, none failed yet."""
    e.n = c.n
    e.sel = c.sel
    e.bad = NULL


cdef int evaluation_finish(Evaluation* e, Worker* w, Chunk* c, Kernel* kernel) noexcept nogil:
    """Apply the error policy: rows from the first failing one on (fail) or all failing rows (skip) leave the
    chunk's selection.

    With the policy "fail" the chunk gets its failure; with "skip" the first row is noted in the kernel.
    Thread safety: the chunk's owner. Ownership: a new selection lies in the chunk's arena. Returns: rows
    skipped, or -1: no memory. Cost: nothing when no row failed.
    """
    cdef int64_t k
    cdef int64_t serial
    cdef int32_t i
    cdef int32_t m
    cdef int32_t* sel
    if e.bad == NULL:
        return 0
    k = first_bad(e.bad, e.n)
    if k == e.n:
        return 0
    if kernel.on_error != ON_ERROR_SKIP:
        chunk_fail(c, row_slot(c, <int32_t> k), e.bad[k])
        c.n = <int32_t> k
        if c.sel == NULL:
            c.slots = c.n
        return 0
    serial = slot_serial(c, row_slot(c, <int32_t> k))
    if skip_is_first(kernel, serial):
        skip_note(kernel, serial, False, e.bad[k], failure_text(e.bad[k]))
    for i in range(e.n):
        e.bad[i] = e.bad[i] == 0
    sel = c.sel
    if sel == NULL:
        sel = <int32_t*> chunk_alloc(w, c, <int64_t> c.n * 4)
        if sel == NULL:
            return -1
    m = narrow(sel, c.sel, e.bad, NULL, c.n)
    c.sel = sel
    c.n = m
    return e.n - m

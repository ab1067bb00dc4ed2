"""Loading blocks of rows for aggregations, and making accumulators from the plan. See fold.pxd."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from ordstream._core.ground.chunk cimport (
    FAIL_MEMORY, PT_BOOL, PT_F32, PT_F64, PT_I64, PT_LIST, PT_U64, PT_VIEW, Chunk, Failure, LayoutOwner,
    View, Worker, chunk_alloc, failure_set, row_slot, scratch_alloc, scratch_reset,
)
from ordstream._core.ground.expression cimport CodeOwner, Evaluation, Value, evaluate
from ordstream._core.ground.kernel_tools cimport failure_text
from ordstream._core.state.keyed_state cimport LOOKUP_BLOCK
from ordstream._core.state.listed_values cimport OrdGatherSpec, element_spec

cdef extern from "column_ops.hpp" namespace "ord" nogil:
    void load(void* r, int type, const void* data, const int32_t* sel, int64_t n)
    int64_t first_bad(const uint8_t* bad, int64_t n)

cdef extern from "gathered.hpp" nogil:
    enum: ORD_FIRST
    enum: ORD_LAST
    enum: ORD_LOW
    enum: ORD_HIGH
    enum: ORD_DISTINCT
    enum: ORD_QUANTILE
    enum: ORD_LATEST
    enum: ORD_SIGNED
    enum: ORD_UNSIGNED
    enum: ORD_REAL
    enum: ORD_BYTES
    enum: ORD_NO_VALUE


cdef inline void set_bits(uint8_t* mask, uint8_t bit, const uint8_t* data, const uint8_t* valid,
                          int32_t n) noexcept nogil:
    """Set `bit` of each mask[i] whose data[i] is true and, with `valid`, not null.

    The loops are plain, so that a compiler vectorises them.
    """
    cdef int32_t i
    if valid == NULL:
        for i in range(n):
            mask[i] |= <uint8_t> (-<int32_t> (data[i] != 0)) & bit
    else:
        for i in range(n):
            mask[i] |= <uint8_t> (-<int32_t> (data[i] != 0 and valid[i] != 0)) & bit


cdef int fold_prepare(const Fold* x, Worker* w, Chunk* c, int32_t first) noexcept nogil:
    """Find out for all selected rows of a chunk which accumulators look at them. Columns `first`.., one per
    FOLD_GROUP accumulators: `data` is one byte per slot, bit j % FOLD_GROUP that of accumulator j; `valid`
    is one byte in all, with the bits of the accumulators whose condition failed at some row. Of these
    fold_load evaluates the condition block by block, and their bits say only what is null.

    Thread safety: the chunk's owner. Ownership: the chunk's arena; resets the worker's scratch. Returns: 0,
    or -1: no memory. Cost: the conditions' programs, ~0.2 ns per row and accumulator that has one.
    """
    cdef const Accumulator* a
    cdef Evaluation e
    cdef Value v
    cdef const uint8_t* valid
    cdef uint8_t* mask = NULL
    cdef uint8_t bit
    cdef int32_t i
    cdef int32_t s
    cdef int32_t j
    for j in range(x.n):
        a = &x.accumulators[j]
        if j % FOLD_GROUP == 0:
            mask = <uint8_t*> chunk_alloc(w, c, c.slots + 1)
            if mask == NULL:
                return -1
            memset(mask, 0, c.slots + 1)
            c.cols[first + j // FOLD_GROUP].data = <char*> mask
            c.cols[first + j // FOLD_GROUP].valid = mask + c.slots
        bit = <uint8_t> (1 << (j % FOLD_GROUP))
        valid = c.cols[a.source].valid if a.source >= 0 else NULL
        v.scalar = 1
        v.valid = NULL
        e.bad = NULL
        if a.where != NULL:
            scratch_reset(w)
            e.n = c.n
            e.sel = c.sel
            if evaluate(a.where, w, c, &e, NULL, &v) != 0:
                return -1
        if a.where == NULL or e.bad != NULL:
            if e.bad != NULL:
                mask[c.slots] |= bit
            v.scalar = 1
        elif v.scalar and (v.data[0] == 0 or (v.valid != NULL and v.valid[0] == 0)):
            continue                                         # none
        if v.scalar:
            if valid != NULL:
                set_bits(mask, bit, valid, NULL, c.slots)
            else:
                for i in range(c.slots):
                    mask[i] |= bit
        elif c.sel == NULL and (v.valid == NULL or valid == NULL):
            set_bits(mask, bit, <const uint8_t*> v.data, valid if v.valid == NULL else v.valid, c.n)
        else:
            for i in range(c.n):
                s = row_slot(c, i)
                if (v.data[i] != 0 and (v.valid == NULL or v.valid[i] != 0)
                        and (valid == NULL or valid[s] != 0)):
                    mask[s] |= bit
    return 0


cdef int fold_begin(const Fold* x, Worker* w, FoldBlock* b) noexcept nogil:
    """Scratch for blocks of LOOKUP_BLOCK rows. 0, or -1: no memory.

    Ownership: the worker's scratch, until the next kernel call.
    """
    b.values = <int64_t*> scratch_alloc(w, x.n * <int64_t> LOOKUP_BLOCK * 8 + 8)
    b.column = <const int64_t**> scratch_alloc(w, x.n * <int64_t> sizeof(int64_t*) + 8)
    b.used = <uint8_t**> scratch_alloc(w, x.n * <int64_t> sizeof(uint8_t*) + 8)
    return 0 if b.values != NULL and b.column != NULL and b.used != NULL else -1


cdef int32_t fold_load(const Fold* x, Worker* w, Chunk* c, const int32_t* rows, int32_t n, int32_t first,
                       FoldBlock* b, Failure* f) noexcept nogil:
    """Load at most LOOKUP_BLOCK rows of a chunk that fold_prepare has seen (`first`: as there).

    Thread safety: a chunk that no one writes. Ownership: scratch. Returns: n, or j < n when a condition
    fails at rows[j], or when there is no memory (j = 0); f is filled. Cost: ~0.5 ns per row and accumulator.
    """
    cdef const Accumulator* a
    cdef Evaluation e
    cdef Value v
    cdef const uint8_t* mask
    cdef uint8_t* used
    cdef int32_t shift
    cdef uint8_t[LOOKUP_BLOCK] bools
    cdef const View* views
    cdef int32_t i
    cdef int32_t j
    cdef int32_t good = n
    e.n = n
    e.sel = rows
    e.bad = NULL
    b.rows = rows
    for j in range(x.n):
        a = &x.accumulators[j]
        used = NULL
        b.column[j] = NULL
        b.used[j] = NULL
        if a.ends:
            continue
        if a.where != NULL or (a.source >= 0 and c.cols[a.source].valid != NULL):
            mask = <const uint8_t*> c.cols[first + j // FOLD_GROUP].data
            shift = j % FOLD_GROUP
            used = <uint8_t*> scratch_alloc(w, LOOKUP_BLOCK)
            if used == NULL:
                failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return 0
            for i in range(n):
                used[i] = (mask[rows[i]] >> shift) & 1
        if a.source >= 0 and a.function != F_COUNT and a.function != F_GATHER:
            if a.type == PT_I64 or a.type == PT_U64 or a.type == PT_F64:
                b.column[j] = <const int64_t*> c.cols[a.source].data
            elif a.type == PT_VIEW:                          # decimals: where their bytes lie
                views = <const View*> c.cols[a.source].data
                for i in range(n):
                    b.values[j * LOOKUP_BLOCK + i] = <int64_t> views[rows[i]].data
            elif a.type == PT_BOOL:
                load(bools, PT_BOOL, c.cols[a.source].data, rows, n)
                for i in range(n):
                    b.values[j * LOOKUP_BLOCK + i] = bools[i]
            else:
                load(b.values + j * LOOKUP_BLOCK, a.type, c.cols[a.source].data, rows, n)
        if a.where != NULL and (c.cols[first + j // FOLD_GROUP].valid[0] >> (j % FOLD_GROUP)) & 1:
            if evaluate(a.where, w, c, &e, NULL, &v) != 0:
                failure_set(f, rows[0], FAIL_MEMORY, failure_text(FAIL_MEMORY))
                return 0
            if v.scalar:
                if v.data[0] == 0 or (v.valid != NULL and v.valid[0] == 0):
                    memset(used, 0, n)
            elif v.valid == NULL:
                for i in range(n):
                    used[i] &= <uint8_t> v.data[i]
            else:
                for i in range(n):
                    used[i] &= <uint8_t> v.data[i] & v.valid[i]
        b.used[j] = used
    if e.bad != NULL:
        good = <int32_t> first_bad(e.bad, n)
        if good < n:
            failure_set(f, rows[good], e.bad[good], failure_text(e.bad[good]))
    return good


cdef int32_t value_class(int32_t type) except -1:
    """OrdValueClass of a PhysicalType."""
    if type == PT_VIEW or type == PT_LIST:
        return ORD_BYTES
    if type == PT_F64 or type == PT_F32:
        return ORD_REAL
    return ORD_UNSIGNED if type == PT_U64 else ORD_SIGNED


cdef class FoldOwner:
    """Accumulators of an operator.

    Parameters
    ----------
    aggregates : sequence of BoundAggregation
    layout : LayoutOwner
        Of the operator's input.
    results : sequence of int
        PhysicalType of each output column.
    slides : bool
        For a window that slides.

    Raises
    ------
    ValueError
        An unknown function: a defect of the plan.
    """

    def __init__(self, aggregates, LayoutOwner layout, results, slides=False):
        cdef Accumulator* a
        cdef CodeOwner code
        cdef int32_t at
        aggregates = list(aggregates)
        self.codes = []
        self.fold.n = <int32_t> len(aggregates)
        self.fold.accumulators = <Accumulator*> calloc(self.fold.n + 1, sizeof(Accumulator))
        self.specs = calloc(self.fold.n + 1, sizeof(OrdGatherSpec))
        if self.fold.accumulators == NULL or self.specs == NULL:
            raise MemoryError
        at = (1 + self.fold.n + 7) & ~7
        for j, aggregate in enumerate(aggregates):
            function, column, where = aggregate[:3]
            a = &self.fold.accumulators[<int> j]
            a.source = -1 if column is None else column
            a.type = results[j] if column is None else layout.types[column]
            a.result = results[j]
            a.may_be_null = function not in ("sum", "count", "count_distinct", "collect")
            a.offset = at
            a.power = 10 ** aggregate.places
            a.by = -1
            a.digits = aggregate.digits
            at += {"mean": 16, "var": 24, "std": 24}.get(function, 8) + (8 if a.digits else 0)
            if aggregate.gathered(a.type == PT_VIEW or a.type == PT_LIST):
                self.set_object(a, <int32_t> j, aggregate, layout)
                (<OrdGatherSpec*> a.gather).slides = slides
            else:
                self.set_function(a, function, column)
            self.fold.any_checked |= a.checked
            self.fold.apart += a.function == F_GATHER or a.result == PT_VIEW
            if where is not None:
                code = CodeOwner(where, layout, PT_BOOL)
                self.codes.append(code)
                a.where = &code.code
        self.fold.size = at if self.fold.n else 0

    cdef int set_function(self, Accumulator* a, str function, column) except -1:
        cdef bint real = a.type == PT_F64 or a.type == PT_F32
        if function == "count":
            a.function = F_COUNT
        elif column is None:
            raise ValueError(f"{function} needs a column")
        elif a.digits:
            if function == "sum":
                a.function = F_SUM_FAR if a.type == PT_VIEW else F_SUM_WIDE
            else:
                a.function = F_MEAN_FAR if a.type == PT_VIEW else F_MEAN_WIDE
        elif function == "sum":
            a.function = F_SUM_F64 if real else F_SUM_I64
        elif function == "mean":
            a.function = F_MEAN_F64 if real else F_MEAN_I64 if a.result == PT_F64 else F_MEAN_DECIMAL
        elif function in ("min", "max"):
            low = function == "min"
            if real:
                a.function = F_MIN_F64 if low else F_MAX_F64
            elif a.type == PT_U64:
                a.function = F_MIN_U64 if low else F_MAX_U64
            else:
                a.function = F_MIN_I64 if low else F_MAX_I64
        elif function in ("var", "std"):
            a.function = F_VAR if function == "var" else F_STD
        elif function in ("first", "last"):
            a.function = F_FIRST if function == "first" else F_LAST
        else:
            raise ValueError(f"unknown aggregate {function!r}")
        a.checked = a.digits > 0 or a.function in (F_SUM_I64, F_MEAN_I64, F_MEAN_DECIMAL)
        a.is_u64 = a.type == PT_U64
        a.is_real = real
        return 0

    cdef int set_object(self, Accumulator* a, int32_t j, aggregate, LayoutOwner layout) except -1:
        """An accumulator with an object (gathered.pxd)."""
        cdef OrdGatherSpec* spec = <OrdGatherSpec*> self.specs + j
        kinds = {"first": ORD_FIRST, "last": ORD_LAST, "min": ORD_LOW, "max": ORD_HIGH, "arg_min": ORD_LOW,
                 "arg_max": ORD_HIGH, "count_distinct": ORD_DISTINCT, "median": ORD_QUANTILE,
                 "quantile": ORD_QUANTILE, "collect": ORD_LATEST}
        spec.kind = kinds[aggregate.function]
        spec.value = value_class(a.type)
        element_spec(spec, aggregate.element, aggregate.width)
        spec.by = ORD_NO_VALUE
        if aggregate.by is not None:
            a.by = aggregate.by
            a.by_type = layout.types[aggregate.by]
            spec.by = value_class(a.by_type)
        a.is_u64 = a.type == PT_U64
        a.is_real = spec.value == ORD_REAL
        if spec.kind == ORD_QUANTILE:
            spec.value = ORD_REAL                            # as which its values are kept
            spec.quantile = 0.5 if aggregate.parameter is None else aggregate.parameter
        elif spec.kind == ORD_LATEST:
            spec.n = aggregate.parameter
        a.function = F_GATHER
        a.gather = spec
        self.fold.gathers += 1
        return 0

    def __dealloc__(self):
        free(self.fold.accumulators)
        free(self.specs)

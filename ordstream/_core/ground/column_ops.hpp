// Element-wise loops of the expression machine (expression.pyx): one template per shape, one functor per
// instruction.
//
// a) A column of operands is dense: n values, or one value that stands for all rows (`scalar`). Results are
//    dense, never aliased with operands. Loops are plain, so that a compiler vectorises them; floats keep
//    IEEE order (never -ffast-math).
// b) A checked loop returns an alarm: negative when some row *may* have failed (values under a null are
//    garbage and may raise a false alarm). Only then `mark` looks again, row by row, at the rows that are
//    valid, and writes a FailureCode into bad[row].
// c) Portable C++17: gcc, clang, MSVC. No exceptions, no allocation.
// Thread safety: pure functions. Ownership: none. Cost: 0.1-1 ns per row and instruction, about 5 ns per
// call.
#ifndef ORDSTREAM_COLUMN_OPS_HPP
#define ORDSTREAM_COLUMN_OPS_HPP
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#if defined(_MSC_VER)
#include <intrin.h>
#define ORD_RESTRICT __restrict
#else
#define ORD_RESTRICT __restrict__
#endif

namespace ord {
// Same layout as `View` of chunk.pxd.
struct View {
    const char* data;
    int64_t size;
};

// FailureCode of chunk.pxd.
enum Fail : uint8_t { OVERFLOW_ = 1, ZERO_DIVISION = 2, CAST = 3 };

// PhysicalType of chunk.pxd.
enum Type { I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, BOOL, VIEW, LIST, FIXED16 };

typedef int64_t (*binary_t)(void* r, const void* a, int sa, const void* b, int sb, int64_t n);
typedef void (*mark2_t)(uint8_t* bad, const uint8_t* valid, const void* a, int sa, const void* b, int sb,
                        int64_t n);
typedef int64_t (*unary_t)(void* r, const void* a, int64_t n);
typedef void (*mark1_t)(uint8_t* bad, const uint8_t* valid, const void* a, int64_t n);

inline bool add_overflows(int64_t a, int64_t b, int64_t* r) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_add_overflow(a, b, r);
#else
    *r = static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    return ((a ^ *r) & (b ^ *r)) < 0;
#endif
}

inline bool mul_overflows(int64_t a, int64_t b, int64_t* r) {
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_mul_overflow(a, b, r);
#elif defined(_MSC_VER) && defined(_M_X64)
    int64_t high;
    *r = _mul128(a, b, &high);
    return high != (*r >> 63);
#elif defined(_MSC_VER) && defined(_M_ARM64)
    *r = static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    return __mulh(a, b) != (*r >> 63);
#else
    *r = static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    if (a == 0) return false;
    if ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN)) return true;
    return *r / a != b;
#endif
}

inline int compare_bytes(const View& a, const View& b) {
    const int64_t n = a.size < b.size ? a.size : b.size;
    const int c = n ? std::memcmp(a.data, b.data, static_cast<size_t>(n)) : 0;
    return c ? c : (a.size > b.size) - (a.size < b.size);
}

// ------------------------------------------------------------------------------------------------ shapes
template <class R, class A, class B, class F>
inline void map2(R* ORD_RESTRICT r, const A* a, int sa, const B* b, int sb, int64_t n, F f) {
    if (sa && sb) {
        r[0] = f(a[0], b[0]);
    } else if (sb) {
        const B y = b[0];
        for (int64_t i = 0; i < n; i++) r[i] = f(a[i], y);
    } else if (sa) {
        const A x = a[0];
        for (int64_t i = 0; i < n; i++) r[i] = f(x, b[i]);
    } else {
        for (int64_t i = 0; i < n; i++) r[i] = f(a[i], b[i]);
    }
}

// Op: types A, R; static R eval(A, A).
template <class Op>
int64_t binary(void* r, const void* a, int sa, const void* b, int sb, int64_t n) {
    typedef typename Op::A A;
    map2(static_cast<typename Op::R*>(r), static_cast<const A*>(a), sa, static_cast<const A*>(b), sb, n,
         [](const A& x, const A& y) { return Op::eval(x, y); });
    return 0;
}

// Op: type A; static A eval(A, A, int64_t& alarm): the sign bit of alarm says "failed"; divides.
template <class Op>
int64_t checked(void* r, const void* a, int sa, const void* b, int sb, int64_t n) {
    typedef typename Op::A A;
    int64_t alarm = 0;
    map2(static_cast<A*>(r), static_cast<const A*>(a), sa, static_cast<const A*>(b), sb, n,
         [&alarm](const A& x, const A& y) { return Op::eval(x, y, alarm); });
    return alarm;
}

template <class Op>
void mark_checked(uint8_t* bad, const uint8_t* valid, const void* a, int sa, const void* b, int sb,
                  int64_t n) {
    typedef typename Op::A A;
    const A* x = static_cast<const A*>(a);
    const A* y = static_cast<const A*>(b);
    for (int64_t i = 0; i < n; i++) {
        int64_t alarm = 0;
        const A& second = y[sb ? 0 : i];
        Op::eval(x[sa ? 0 : i], second, alarm);
        if (alarm < 0 && !bad[i] && (valid == nullptr || valid[i])) {
            bad[i] = OVERFLOW_;
            if constexpr (Op::divides)
                if (second == 0) bad[i] = ZERO_DIVISION;
        }
    }
}

template <class Op>
int64_t unary(void* r, const void* a, int64_t n) {
    typename Op::R* ORD_RESTRICT out = static_cast<typename Op::R*>(r);
    const typename Op::A* in = static_cast<const typename Op::A*>(a);
    for (int64_t i = 0; i < n; i++) out[i] = Op::eval(in[i]);
    return 0;
}

template <class Op>
int64_t checked1(void* r, const void* a, int64_t n) {
    int64_t* ORD_RESTRICT out = static_cast<int64_t*>(r);
    const typename Op::A* in = static_cast<const typename Op::A*>(a);
    int64_t alarm = 0;
    for (int64_t i = 0; i < n; i++) out[i] = Op::eval(in[i], alarm);
    return alarm;
}

template <class Op>
void mark_checked1(uint8_t* bad, const uint8_t* valid, const void* a, int64_t n) {
    const typename Op::A* in = static_cast<const typename Op::A*>(a);
    for (int64_t i = 0; i < n; i++) {
        int64_t alarm = 0;
        Op::eval(in[i], alarm);
        if (alarm < 0 && !bad[i] && (valid == nullptr || valid[i])) bad[i] = Op::code;
    }
}

// --------------------------------------------------------------------------------------------- instructions
#define ORD_CHECKED(name, can_divide, body)                                  \
    struct name {                                                            \
        typedef int64_t A;                                                   \
        static const bool divides = can_divide;                              \
        static inline int64_t eval(int64_t a, int64_t b, int64_t& alarm) body \
    }
ORD_CHECKED(AddI, false, {
    const int64_t r = static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    alarm |= (a ^ r) & (b ^ r);
    return r;
});
ORD_CHECKED(SubI, false, {
    const int64_t r = static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
    alarm |= (a ^ b) & (a ^ r);
    return r;
});
ORD_CHECKED(MulI, false, {
    int64_t r;
    alarm |= -static_cast<int64_t>(mul_overflows(a, b, &r));
    return r;
});
// checked<MulI>. Where one factor is the same in all rows, numbers up to a limit have a product: compilers
// vectorise that test, but not the one by row. The least product of all raises a false alarm.
inline int64_t multiply(void* r, const void* a, int sa, const void* b, int sb, int64_t n) {
    const int64_t factor = *static_cast<const int64_t*>(sb ? b : a);
    const uint64_t size = factor < 0 ? 0 - static_cast<uint64_t>(factor) : static_cast<uint64_t>(factor);
    if (sa == sb || size < 2) return checked<MulI>(r, a, sa, b, sb, n);
    const uint64_t limit = static_cast<uint64_t>(INT64_MAX) / size;   // below 2**62
    const int64_t* in = static_cast<const int64_t*>(sb ? a : b);
    int64_t* ORD_RESTRICT out = static_cast<int64_t*>(r);
    uint64_t alarm = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = static_cast<uint64_t>(in[i]);
        alarm |= (limit - x) | (limit + x);
        out[i] = static_cast<int64_t>(x * static_cast<uint64_t>(factor));
    }
    return static_cast<int64_t>(alarm);
}
ORD_CHECKED(FloorDivI, true, {
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        alarm = -1;
        return 0;
    }
    const int64_t q = a / b;
    return q - ((a % b != 0) & ((a ^ b) < 0));
});
ORD_CHECKED(ModI, true, {
    if (b == 0) {
        alarm = -1;
        return 0;
    }
    if (b == -1) return 0;
    const int64_t m = a % b;
    return m + (((m != 0) & ((m ^ b) < 0)) ? b : 0);
});
#undef ORD_CHECKED

// Values are passed as they lie in memory; `if` expressions keep the loops free of branches where the target
// can.
#define ORD_BINARY(name, in, out, body)                      \
    struct name {                                            \
        typedef in A;                                        \
        typedef out R;                                       \
        static inline R eval(const A& a, const A& b) body    \
    }
ORD_BINARY(MinI, int64_t, int64_t, { return a <= b ? a : b; });
ORD_BINARY(MaxI, int64_t, int64_t, { return a >= b ? a : b; });
ORD_BINARY(AddF, double, double, { return a + b; });
ORD_BINARY(SubF, double, double, { return a - b; });
ORD_BINARY(MulF, double, double, { return a * b; });
ORD_BINARY(DivF, double, double, { return a / b; });
ORD_BINARY(MinF, double, double, { return (a <= b) | (b != b) ? a : b; });
ORD_BINARY(MaxF, double, double, { return (a >= b) | (b != b) ? a : b; });
// A square is a product: the library's pow takes twenty times as long, and may be off by the last bit.
ORD_BINARY(PowF, double, double, { return b == 2.0 ? a * a : std::pow(a, b); });
ORD_BINARY(Atan2F, double, double, { return std::atan2(a, b); });
// CPython's float.__mod__ and float.__floordiv__, total: what stands in expressions/bound.py for a zero
// divisor.
ORD_BINARY(ModF, double, double, {
    if (b == 0.0) return std::numeric_limits<double>::quiet_NaN();
    double m = std::fmod(a, b);
    if (m != 0.0) {
        if ((b < 0) != (m < 0)) m += b;
    } else {
        m = std::copysign(0.0, b);
    }
    return m;
});
ORD_BINARY(FloorDivF, double, double, {
    if (b == 0.0) return a / b;
    double m = std::fmod(a, b);
    double d = (a - m) / b;
    if (m != 0.0 && (b < 0) != (m < 0)) d -= 1.0;
    if (d == 0.0) return std::copysign(0.0, a / b);
    const double f = std::floor(d);
    return d - f > 0.5 ? f + 1.0 : f;
});
#define ORD_COMPARE(suffix, type, left)                             \
    ORD_BINARY(Eq##suffix, type, uint8_t, { return left(==); });    \
    ORD_BINARY(Ne##suffix, type, uint8_t, { return left(!=); });    \
    ORD_BINARY(Lt##suffix, type, uint8_t, { return left(<); });     \
    ORD_BINARY(Le##suffix, type, uint8_t, { return left(<=); });    \
    ORD_BINARY(Gt##suffix, type, uint8_t, { return left(>); });     \
    ORD_BINARY(Ge##suffix, type, uint8_t, { return left(>=); })
#define ORD_PLAIN(op) a op b
#define ORD_BYTES(op) compare_bytes(a, b) op 0
ORD_COMPARE(I, int64_t, ORD_PLAIN);
ORD_COMPARE(F, double, ORD_PLAIN);
ORD_COMPARE(B, uint8_t, ORD_PLAIN);
struct EqV {
    typedef View A;
    typedef uint8_t R;
    static inline R eval(const A& a, const A& b) {
        return a.size == b.size
            && (a.size == 0 || std::memcmp(a.data, b.data, static_cast<size_t>(a.size)) == 0);
    }
};
struct NeV {
    typedef View A;
    typedef uint8_t R;
    static inline R eval(const A& a, const A& b) { return !EqV::eval(a, b); }
};
ORD_BINARY(LtV, View, uint8_t, { return ORD_BYTES(<); });
ORD_BINARY(LeV, View, uint8_t, { return ORD_BYTES(<=); });
ORD_BINARY(GtV, View, uint8_t, { return ORD_BYTES(>); });
ORD_BINARY(GeV, View, uint8_t, { return ORD_BYTES(>=); });
#undef ORD_BINARY
#undef ORD_COMPARE
#undef ORD_PLAIN
#undef ORD_BYTES
#define ORD_UNARY(name, in, out, body)                 \
    struct name {                                      \
        typedef in A;                                  \
        typedef out R;                                 \
        static inline R eval(const A& a) body          \
    }
ORD_UNARY(IntToFloat, int64_t, double, { return static_cast<double>(a); });
ORD_UNARY(BoolToInt, uint8_t, int64_t, { return a; });
ORD_UNARY(IntToBool, int64_t, uint8_t, { return a != 0; });
ORD_UNARY(Not, uint8_t, uint8_t, { return a ^ 1; });
ORD_UNARY(NegF, double, double, { return -a; });
ORD_UNARY(AbsF, double, double, { return std::fabs(a); });
ORD_UNARY(Sqrt, double, double, { return std::sqrt(a); });
ORD_UNARY(Sin, double, double, { return std::sin(a); });
ORD_UNARY(Cos, double, double, { return std::cos(a); });
ORD_UNARY(Tan, double, double, { return std::tan(a); });
ORD_UNARY(Asin, double, double, { return std::asin(a); });
ORD_UNARY(Acos, double, double, { return std::acos(a); });
ORD_UNARY(Atan, double, double, { return std::atan(a); });
ORD_UNARY(Exp, double, double, { return std::exp(a); });
ORD_UNARY(Log, double, double, { return std::log(a); });
ORD_UNARY(Log10, double, double, { return std::log10(a); });
ORD_UNARY(Floor, double, double, { return std::floor(a); });
ORD_UNARY(Ceil, double, double, { return std::ceil(a); });
ORD_UNARY(Round, double, double, { return std::rint(a); });
ORD_UNARY(Length, View, int64_t, { return a.size; });
// Of a list, whose size also says whether elements are null (list_values.pxd).
ORD_UNARY(ListLength, View, int64_t, { return a.size & ((INT64_C(1) << 62) - 1); });
// Of a packed list (packed_values.hpp); 0 of a null.
ORD_UNARY(PackedLength, View, int64_t, {
    int32_t n = 0;
    if (a.size) std::memcpy(&n, a.data, 4);
    return n;
});
#undef ORD_UNARY

struct NegI {
    typedef int64_t A;
    static const uint8_t code = OVERFLOW_;
    static inline int64_t eval(int64_t a, int64_t& alarm) {
        const int64_t r = static_cast<int64_t>(0 - static_cast<uint64_t>(a));
        alarm |= a & r;  // both negative: INT64_MIN only
        return r;
    }
};
struct AbsI {
    typedef int64_t A;
    static const uint8_t code = OVERFLOW_;
    static inline int64_t eval(int64_t a, int64_t& alarm) {
        const int64_t s = a >> 63;
        const int64_t r = static_cast<int64_t>((static_cast<uint64_t>(a) ^ static_cast<uint64_t>(s))
                                               - static_cast<uint64_t>(s));
        alarm |= r;
        return r;
    }
};
struct FloatBits {
    typedef double A;
    typedef int64_t R;
    static inline int64_t eval(double a) {
        const double one_zero = a == 0.0 ? 0.0 : a;
        int64_t bits;
        std::memcpy(&bits, &one_zero, 8);
        return bits;
    }
};
struct FloatToInt {
    typedef double A;
    static const uint8_t code = OVERFLOW_;
    static inline int64_t eval(double a, int64_t& alarm) {
        if (!(a >= -9223372036854775808.0 && a < 9223372036854775808.0)) {
            alarm = -1;
            return 0;
        }
        return static_cast<int64_t>(a);
    }
};
struct LoadU64 {
    typedef int64_t A;
    static const uint8_t code = OVERFLOW_;
    static inline int64_t eval(int64_t a, int64_t& alarm) {
        alarm |= a;
        return a;
    }
};

struct BinaryEntry {
    const char* name;
    binary_t run;
    mark2_t mark;  // nullptr: cannot fail
    char operand;  // i, f, b, v: class of both operands
    char result;
};
struct UnaryEntry {
    const char* name;
    unary_t run;
    mark1_t mark;
    char operand;
    char result;
};

#define ORD_SIX(suffix, S, t)                                                                          \
    {"eq_" suffix, binary<Eq##S>, nullptr, t, 'b'}, {"ne_" suffix, binary<Ne##S>, nullptr, t, 'b'},    \
    {"lt_" suffix, binary<Lt##S>, nullptr, t, 'b'}, {"le_" suffix, binary<Le##S>, nullptr, t, 'b'},    \
    {"gt_" suffix, binary<Gt##S>, nullptr, t, 'b'}, {"ge_" suffix, binary<Ge##S>, nullptr, t, 'b'}
inline const BinaryEntry* find_binary(const char* name) {
    static const BinaryEntry table[] = {
        {"add_i64", checked<AddI>, mark_checked<AddI>, 'i', 'i'},
        {"sub_i64", checked<SubI>, mark_checked<SubI>, 'i', 'i'},
        {"mul_i64", multiply, mark_checked<MulI>, 'i', 'i'},
        {"floordiv_i64", checked<FloorDivI>, mark_checked<FloorDivI>, 'i', 'i'},
        {"mod_i64", checked<ModI>, mark_checked<ModI>, 'i', 'i'},
        {"min_i64", binary<MinI>, nullptr, 'i', 'i'}, {"max_i64", binary<MaxI>, nullptr, 'i', 'i'},
        {"add_f64", binary<AddF>, nullptr, 'f', 'f'}, {"sub_f64", binary<SubF>, nullptr, 'f', 'f'},
        {"mul_f64", binary<MulF>, nullptr, 'f', 'f'}, {"div_f64", binary<DivF>, nullptr, 'f', 'f'},
        {"floordiv_f64", binary<FloorDivF>, nullptr, 'f', 'f'}, {"mod_f64", binary<ModF>, nullptr, 'f', 'f'},
        {"min_f64", binary<MinF>, nullptr, 'f', 'f'}, {"max_f64", binary<MaxF>, nullptr, 'f', 'f'},
        {"pow_f64", binary<PowF>, nullptr, 'f', 'f'}, {"atan2", binary<Atan2F>, nullptr, 'f', 'f'},
        ORD_SIX("i64", I, 'i'), ORD_SIX("f64", F, 'f'), ORD_SIX("bool", B, 'b'), ORD_SIX("view", V, 'v'),
        {nullptr, nullptr, nullptr, 0, 0},
    };
    for (const BinaryEntry* e = table; e->name; e++)
        if (!std::strcmp(e->name, name)) return e;
    return nullptr;
}
#undef ORD_SIX

inline const UnaryEntry* find_unary(const char* name) {
    static const UnaryEntry table[] = {
        {"i2f", unary<IntToFloat>, nullptr, 'i', 'f'},
        {"bits_f64", unary<FloatBits>, nullptr, 'f', 'i'},
        {"f2i", checked1<FloatToInt>, mark_checked1<FloatToInt>, 'f', 'i'},
        {"b2i", unary<BoolToInt>, nullptr, 'b', 'i'}, {"i2b", unary<IntToBool>, nullptr, 'i', 'b'},
        {"not", unary<Not>, nullptr, 'b', 'b'},
        {"neg_i64", checked1<NegI>, mark_checked1<NegI>, 'i', 'i'},
        {"abs_i64", checked1<AbsI>, mark_checked1<AbsI>, 'i', 'i'},
        {"neg_f64", unary<NegF>, nullptr, 'f', 'f'}, {"abs_f64", unary<AbsF>, nullptr, 'f', 'f'},
        {"sqrt", unary<Sqrt>, nullptr, 'f', 'f'},
        {"sin", unary<Sin>, nullptr, 'f', 'f'},
        {"cos", unary<Cos>, nullptr, 'f', 'f'},
        {"tan", unary<Tan>, nullptr, 'f', 'f'},
        {"asin", unary<Asin>, nullptr, 'f', 'f'},
        {"acos", unary<Acos>, nullptr, 'f', 'f'},
        {"atan", unary<Atan>, nullptr, 'f', 'f'},
        {"exp", unary<Exp>, nullptr, 'f', 'f'},
        {"log", unary<Log>, nullptr, 'f', 'f'}, {"log10", unary<Log10>, nullptr, 'f', 'f'},
        {"floor", unary<Floor>, nullptr, 'f', 'f'}, {"ceil", unary<Ceil>, nullptr, 'f', 'f'},
        {"round", unary<Round>, nullptr, 'f', 'f'}, {"len_view", unary<Length>, nullptr, 'v', 'i'},
        {"len_list", unary<ListLength>, nullptr, 'v', 'i'},
        {"len_packed", unary<PackedLength>, nullptr, 'v', 'i'},
        {"load_u64", checked1<LoadU64>, mark_checked1<LoadU64>, 'i', 'i'},
        {nullptr, nullptr, nullptr, 0, 0},
    };
    for (const UnaryEntry* e = table; e->name; e++)
        if (!std::strcmp(e->name, name)) return e;
    return nullptr;
}

// ----------------------------------------------------------------------------------------- loads and stores
// Selected rows of a column, widened. R: class on the stack, T: in the chunk.
template <class R, class T>
inline void gather(void* r, const void* data, const int32_t* sel, int64_t n) {
    R* ORD_RESTRICT out = static_cast<R*>(r);
    const T* in = static_cast<const T*>(data);
    if (sel == nullptr) {
        for (int64_t i = 0; i < n; i++) out[i] = static_cast<R>(in[i]);
    } else {
        for (int64_t i = 0; i < n; i++) out[i] = static_cast<R>(in[sel[i]]);
    }
}

// The stack class of each physical type: integers i64, floats f64, bool one byte, view/list View.
inline void load(void* r, int type, const void* data, const int32_t* sel, int64_t n) {
    switch (type) {
        case I8: return gather<int64_t, int8_t>(r, data, sel, n);
        case I16: return gather<int64_t, int16_t>(r, data, sel, n);
        case I32: return gather<int64_t, int32_t>(r, data, sel, n);
        case I64: case U64: return gather<int64_t, int64_t>(r, data, sel, n);
        case U8: return gather<int64_t, uint8_t>(r, data, sel, n);
        case U16: return gather<int64_t, uint16_t>(r, data, sel, n);
        case U32: return gather<int64_t, uint32_t>(r, data, sel, n);
        case F32: return gather<double, float>(r, data, sel, n);
        case F64: return gather<double, double>(r, data, sel, n);
        case BOOL: return gather<uint8_t, uint8_t>(r, data, sel, n);
        default: return gather<View, View>(r, data, sel, n);
    }
}

// A view under a null may point nowhere: no later instruction shall look at it.
inline void clear_null_views(View* views, const uint8_t* valid, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!valid[i]) views[i] = View{nullptr, 0};
}

// Stack values into a slot-indexed column of type T. Returns the alarm of values outside T (garbage under
// nulls included).
template <class T, class V>
inline int64_t scatter(void* data, const int32_t* sel, const void* values, int scalar, int64_t n) {
    T* ORD_RESTRICT out = static_cast<T*>(data);
    const V* in = static_cast<const V*>(values);
    const bool checks = std::is_integral<V>::value && !std::is_same<T, V>::value && sizeof(V) == 8;
    bool outside = false;
    auto narrowed = [&outside](V v) {
        const T t = static_cast<T>(v);
        if (checks) outside |= static_cast<V>(t) != v || (std::is_unsigned<T>::value && v < V(0));
        return t;
    };
    if (scalar) {
        const T t = narrowed(in[0]);
        for (int64_t i = 0; i < n; i++) out[sel == nullptr ? i : sel[i]] = t;
    } else if (sel == nullptr) {
        for (int64_t i = 0; i < n; i++) out[i] = narrowed(in[i]);
    } else {
        for (int64_t i = 0; i < n; i++) out[sel[i]] = narrowed(in[i]);
    }
    return outside ? -1 : 0;
}

inline void scatter_views(void* data, const int32_t* sel, const void* values, int scalar, int64_t n) {
    View* ORD_RESTRICT out = static_cast<View*>(data);
    const View* in = static_cast<const View*>(values);
    for (int64_t i = 0; i < n; i++) out[sel == nullptr ? i : sel[i]] = in[scalar ? 0 : i];
}

inline int64_t store(void* data, int type, const int32_t* sel, const void* values, int scalar, int64_t n) {
    switch (type) {
        case I8: return scatter<int8_t, int64_t>(data, sel, values, scalar, n);
        case I16: return scatter<int16_t, int64_t>(data, sel, values, scalar, n);
        case I32: return scatter<int32_t, int64_t>(data, sel, values, scalar, n);
        case I64: return scatter<int64_t, int64_t>(data, sel, values, scalar, n);
        case U8: return scatter<uint8_t, int64_t>(data, sel, values, scalar, n);
        case U16: return scatter<uint16_t, int64_t>(data, sel, values, scalar, n);
        case U32: return scatter<uint32_t, int64_t>(data, sel, values, scalar, n);
        case U64: return scatter<uint64_t, int64_t>(data, sel, values, scalar, n);
        case F32: return scatter<float, double>(data, sel, values, scalar, n);
        case F64: return scatter<double, double>(data, sel, values, scalar, n);
        case BOOL: return scatter<uint8_t, uint8_t>(data, sel, values, scalar, n);
        default: scatter_views(data, sel, values, scalar, n); return 0;
    }
}

inline bool fits(int type, int64_t v) {
    switch (type) {
        case I8: return v >= INT8_MIN && v <= INT8_MAX;
        case I16: return v >= INT16_MIN && v <= INT16_MAX;
        case I32: return v >= INT32_MIN && v <= INT32_MAX;
        case U8: return v >= 0 && v <= UINT8_MAX;
        case U16: return v >= 0 && v <= UINT16_MAX;
        case U32: return v >= 0 && v <= static_cast<int64_t>(UINT32_MAX);
        case U64: return v >= 0;
        default: return true;
    }
}

inline void mark_store(uint8_t* bad, const uint8_t* valid, int type, const void* values, int scalar,
                       int64_t n) {
    const int64_t* in = static_cast<const int64_t*>(values);
    for (int64_t i = 0; i < n; i++)
        if (!fits(type, in[scalar ? 0 : i]) && !bad[i] && (valid == nullptr || valid[i])) bad[i] = OVERFLOW_;
}

}  // namespace ord

#include "null_ops.hpp"
#endif

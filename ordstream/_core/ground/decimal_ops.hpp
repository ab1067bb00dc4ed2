// Instructions of the expression machine on decimals of 19 to 38 digits ("i128"): what column_ops.hpp is for
// the other classes, in the same shapes. A result of more than 38 digits is an overflow.
// Portable C++17. Thread safety: pure functions. Ownership: none.
#ifndef ORDSTREAM_DECIMAL_OPS_HPP
#define ORDSTREAM_DECIMAL_OPS_HPP
#include "column_ops.hpp"
#include "decimal128.hpp"

namespace ord {
inline const Int128& largest_decimal() { return decimal_bound(38); }

// For `checked` and `mark_checked`.
struct CheckedDecimal {
    typedef Int128 A;
    static const bool divides = false;
};
struct AddD : CheckedDecimal {
    static inline Int128 eval(const Int128& a, const Int128& b, int64_t& alarm) {
        const Int128 r = int128_add(a, b);
        if (!int128_within(r, largest_decimal())) alarm = -1;
        return r;
    }
};
struct SubD : CheckedDecimal {
    static inline Int128 eval(const Int128& a, const Int128& b, int64_t& alarm) {
        return AddD::eval(a, int128_negated(b), alarm);
    }
};
struct MulD : CheckedDecimal {
    static inline Int128 eval(const Int128& a, const Int128& b, int64_t& alarm) {
        Int128 r{0, 0};
        if (!int128_product(a, b, &r) || !int128_within(r, largest_decimal())) alarm = -1;
        return r;
    }
};

#define ORD_DECIMAL(name, out, body)                                   \
    struct name {                                                      \
        typedef Int128 A;                                              \
        typedef out R;                                                 \
        static inline R eval(const A& a, const A& b) body              \
    }
ORD_DECIMAL(MinD, Int128, { return int128_less(b, a) ? b : a; });
ORD_DECIMAL(MaxD, Int128, { return int128_less(a, b) ? b : a; });
ORD_DECIMAL(EqD, uint8_t, { return int128_equal(a, b); });
ORD_DECIMAL(NeD, uint8_t, { return !int128_equal(a, b); });
ORD_DECIMAL(LtD, uint8_t, { return int128_less(a, b); });
ORD_DECIMAL(LeD, uint8_t, { return !int128_less(b, a); });
ORD_DECIMAL(GtD, uint8_t, { return int128_less(b, a); });
ORD_DECIMAL(GeD, uint8_t, { return !int128_less(a, b); });
// Units, and the scale.
ORD_DECIMAL(ScaledD, double, { return decimal_to_double(a, static_cast<int>(b.low)); });
#undef ORD_DECIMAL

#define ORD_DECIMAL1(name, in, out, body)                              \
    struct name {                                                      \
        typedef in A;                                                  \
        typedef out R;                                                 \
        static inline R eval(const A& a) body                          \
    }
ORD_DECIMAL1(NegD, Int128, Int128, { return int128_negated(a); });
ORD_DECIMAL1(AbsD, Int128, Int128, { return int128_size(a); });
ORD_DECIMAL1(IntToDecimal, int64_t, Int128, { return int128_of(a); });
// What has more than 64 bits is the least int64.
ORD_DECIMAL1(Small, Int128, int64_t, {
    const int64_t low = static_cast<int64_t>(a.low);
    return a.high == (low >> 63) ? low : INT64_MIN;
});
// Under a null there are no bytes.
ORD_DECIMAL1(LoadDecimal, View, Int128, { return a.size == 16 ? int128_decode(a.data) : int128_of(0); });
#undef ORD_DECIMAL1

inline const BinaryEntry* find_decimal_binary(const char* name) {
    static const BinaryEntry table[] = {
        {"add_i128", checked<AddD>, mark_checked<AddD>, 'd', 'd'},
        {"sub_i128", checked<SubD>, mark_checked<SubD>, 'd', 'd'},
        {"mul_i128", checked<MulD>, mark_checked<MulD>, 'd', 'd'},
        {"min_i128", binary<MinD>, nullptr, 'd', 'd'}, {"max_i128", binary<MaxD>, nullptr, 'd', 'd'},
        {"eq_i128", binary<EqD>, nullptr, 'd', 'b'}, {"ne_i128", binary<NeD>, nullptr, 'd', 'b'},
        {"lt_i128", binary<LtD>, nullptr, 'd', 'b'}, {"le_i128", binary<LeD>, nullptr, 'd', 'b'},
        {"gt_i128", binary<GtD>, nullptr, 'd', 'b'}, {"ge_i128", binary<GeD>, nullptr, 'd', 'b'},
        {"scaled_f64", binary<ScaledD>, nullptr, 'd', 'f'},
        {nullptr, nullptr, nullptr, 0, 0},
    };
    for (const BinaryEntry* e = table; e->name; e++)
        if (!std::strcmp(e->name, name)) return e;
    return nullptr;
}

inline const UnaryEntry* find_decimal_unary(const char* name) {
    static const UnaryEntry table[] = {
        {"neg_i128", unary<NegD>, nullptr, 'd', 'd'}, {"abs_i128", unary<AbsD>, nullptr, 'd', 'd'},
        {"i2d", unary<IntToDecimal>, nullptr, 'i', 'd'},
        {"small_i128", unary<Small>, nullptr, 'd', 'i'},
        {"load_i128", unary<LoadDecimal>, nullptr, 'v', 'd'},
        {nullptr, nullptr, nullptr, 0, 0},
    };
    for (const UnaryEntry* e = table; e->name; e++)
        if (!std::strcmp(e->name, name)) return e;
    return nullptr;
}

// Stack values into a slot-indexed column of views: their bytes go to `heap`, 16 for each value.
inline void store_decimals(void* data, const int32_t* sel, const void* values, int scalar, int64_t n,
                           char* heap) {
    View* out = static_cast<View*>(data);
    const Int128* in = static_cast<const Int128*>(values);
    for (int64_t i = 0; i < n; i++) {
        int128_encode(in[scalar ? 0 : i], heap + 16 * i);
        out[sel == nullptr ? i : sel[i]] = View{heap + 16 * i, 16};
    }
}
}  // namespace ord
#endif

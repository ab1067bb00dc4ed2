// Functions of lists as packed values (packed_values.hpp), on columns of the expression machine: a View per
// row, a byte per row that says whether it is no null (nullptr: none is). `one_*`: one value stands for all
// rows. And lists of fixed width (list_values.pxd) as packed ones, and back.
//
// Portable C++17. Thread safety: pure. Ownership: views point into the values, or into `to`, which the
// caller has measured.
#ifndef ORDSTREAM_PACKED_LISTS_HPP
#define ORDSTREAM_PACKED_LISTS_HPP
#include "packed_parts.hpp"

namespace ord {

constexpr int64_t kListNulls = INT64_C(1) << 62;   // LIST_NULLS of list_values.pxd

inline bool list_row(const uint8_t* valid, bool one, int64_t i) { return !valid || valid[one ? 0 : i]; }

// Element at[i] of list i; null beyond the ends. A null's bytes are zero.
template <typename View>
void packed_get(const PackedParts* parts, int leaf, const View* lists, bool one_list,
                const uint8_t* lists_valid, const int64_t* at, bool one_at, const uint8_t* at_valid,
                int64_t n, char* out, uint8_t* out_valid) {
    const int64_t width = leaf_width(leaf);
    for (int64_t i = 0; i < n; i++, out += width) {
        const PackedNode* node = nullptr;
        const char* found = nullptr;
        if (list_row(lists_valid, one_list, i) && list_row(at_valid, one_at, i))
            found = parts->element(lists[one_list ? 0 : i].data, at[one_at ? 0 : i], &node);
        out_valid[i] = found != nullptr;
        std::memset(out, 0, static_cast<size_t>(width));
        if (found != nullptr) packed_leaf<View>(parts, leaf, node, found, out);
    }
}

// Whether list i has x[i] among its elements, as == compares: a NaN is in no list.
template <typename View>
void packed_has(const PackedParts* parts, int leaf, const View* lists, bool one_list,
                const uint8_t* lists_valid, const char* x, bool one_x, const uint8_t* x_valid, int64_t n,
                char* out, uint8_t* out_valid) {
    const int64_t width = leaf_width(leaf);
    for (int64_t i = 0; i < n; i++) {
        out_valid[i] = list_row(lists_valid, one_list, i) && list_row(x_valid, one_x, i);
        out[i] = 0;
        if (!out_valid[i]) continue;
        const char* wanted = x + (one_x ? 0 : i * width);
        const View& list = lists[one_list ? 0 : i];
        out[i] = parts->any_element(list.data, [&](const char* at, const PackedNode* node) {
            if (at == nullptr) return false;
            alignas(16) char mine[16] = {};
            packed_leaf<View>(parts, leaf, node, at, mine);
            if (leaf == LEAF_FLOAT) {
                double a, b;
                std::memcpy(&a, mine, 8);
                std::memcpy(&b, wanted, 8);
                return a == b;
            }
            if (leaf != LEAF_TEXT) return std::memcmp(mine, wanted, static_cast<size_t>(width)) == 0;
            View a, b;
            std::memcpy(&a, mine, sizeof a);
            std::memcpy(&b, wanted, sizeof b);
            return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, a.size) == 0);
        });
    }
}

// The strings of list i with between[i] between them. Nulls are left out, or with `nulls` make it null.
// to == nullptr: only returns how many bytes it takes.
template <typename View>
int64_t packed_join(const PackedParts* parts, bool nulls, const View* lists, bool one_list,
                    const uint8_t* lists_valid, const View* between, bool one_between,
                    const uint8_t* between_valid, int64_t n, char* to, View* out, uint8_t* out_valid) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = total;
        bool valid = list_row(lists_valid, one_list, i) && list_row(between_valid, one_between, i);
        if (valid) {
            const View gap = between[one_between ? 0 : i];
            bool first = true;
            const auto add = [&](const char* data, int64_t size) {
                if (to && size) std::memcpy(to + total, data, static_cast<size_t>(size));
                total += size;
            };
            const View& list = lists[one_list ? 0 : i];
            valid = !parts->any_element(list.data, [&](const char* at, const PackedNode*) {
                if (at == nullptr) return nulls;
                int32_t size;
                std::memcpy(&size, at, 4);
                if (!first) add(gap.data, gap.size);
                first = false;
                add(at + 4, size);
                return false;
            });
        }
        if (!valid) total = begin;
        if (!to) continue;
        out_valid[i] = valid;
        out[i] = View{to + begin, total - begin};
    }
    return total;
}

// Lists of elements of `width` bytes as packed ones. `flags`: booleans, each with a byte in front.
// to == nullptr: only returns how many bytes they take.
template <typename View>
int64_t pack_lists(int64_t width, bool flags, const View* lists, const uint8_t* valid, const int32_t* sel,
                   int64_t n, char* to, View* out) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = sel ? sel[i] : i;
        if (valid && !valid[row]) {
            if (to) out[i] = View{nullptr, 0};
            continue;
        }
        const View list = lists[row];
        const bool some = list.size >= kListNulls;
        const int64_t count = some ? list.size - kListNulls : list.size;
        const int64_t size = 4 + (flags ? 2 * count : 1 + (some ? count : 0) + count * width);
        if (to) {
            char* at = to + total;
            const int32_t few = static_cast<int32_t>(count);
            const char* marks = some ? list.data + count * width : nullptr;
            out[i] = View{at, size};
            std::memcpy(at, &few, 4);
            at += 4;
            if (flags) {
                for (int64_t k = 0; k < count; k++) {
                    if (marks && !marks[k]) {
                        *at++ = 0;
                    } else {
                        *at++ = 1;
                        *at++ = list.data[k];
                    }
                }
            } else {
                *at++ = some;
                if (some) std::memcpy(at, marks, static_cast<size_t>(count));
                at += some ? count : 0;
                if (count) std::memcpy(at, list.data, static_cast<size_t>(count * width));
            }
        }
        total += size;
    }
    return total;
}

// Packed lists of booleans or of values of fixed width as lists of those: rows `sel` of `views`, in place;
// of nulls nothing is left. Each begins at a multiple of 8. to == nullptr: only returns how many bytes they
// take.
template <typename View>
int64_t unpack_lists(const PackedParts* parts, View* views, const uint8_t* valid, const int32_t* sel,
                     int64_t n, char* to) {
    const PackedNode* one = parts->root() + 1;
    const int64_t width = one->kind == 'b' ? 1 : one->width;
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        View& view = views[sel ? sel[i] : i];
        if (view.size == 0 || (valid && !valid[sel ? sel[i] : i])) {
            if (to) view = View{nullptr, 0};
            continue;
        }
        int32_t count;
        std::memcpy(&count, view.data, 4);
        if (to) {
            char* values = to + total;
            char* marks = values + count * width;
            bool some = false;
            int64_t k = 0;
            parts->any_element(view.data, [&](const char* at, const PackedNode*) {
                marks[k] = at != nullptr;
                some = some || at == nullptr;
                if (at != nullptr)
                    std::memcpy(values + k * width, at, static_cast<size_t>(width));
                else
                    std::memset(values + k * width, 0, static_cast<size_t>(width));
                k++;
                return false;
            });
            view = View{values, some ? count | kListNulls : count};
        }
        total += (count * (width + 1) + 7) / 8 * 8;
    }
    return total;
}
}  // namespace ord
#endif

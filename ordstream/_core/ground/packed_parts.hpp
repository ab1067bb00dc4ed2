// Parts of packed values (packed_values.hpp): fields of structs, elements of lists.
//
// Portable C++17. Thread safety: pure, once made. Ownership: what is found points into the values. Cost: ~2
// ns per part that is passed over.
#ifndef ORDSTREAM_PACKED_PARTS_HPP
#define ORDSTREAM_PACKED_PARTS_HPP
#include "decimal128.hpp"
#include "packed_values.hpp"

namespace ord {

class PackedParts {
  public:
    explicit PackedParts(const char* format) : type_(format) {}

    // The value at the end of a path through structs: where it begins; nullptr: it, or what it is part of,
    // is null. `leaf`: its node.
    const char* field(const char* value, const int32_t* path, int32_t depth, const PackedNode** leaf) const {
        const PackedNode* node = type_.root();
        for (int32_t step = 0; step < depth; step++) {
            const PackedNode* one = node + 1;
            for (int32_t k = 0; k < path[step]; k++) {
                value = skip_slot(one, value);
                one = type_.behind(one);
            }
            if (*value++ == 0) return nullptr;
            node = one;
        }
        *leaf = node;
        return value;
    }

    // The elements of a list: for each where it begins and how many bytes it has, and whether it is no null.
    // A text is its own bytes alone, anything else as it is. Returns whether some are null.
    template <typename View>
    bool elements(const char* list, View* out, uint8_t* valid) const {
        const PackedNode* one = type_.root() + 1;
        int32_t n;
        std::memcpy(&n, list, 4);
        const char* at = list + 4;
        bool some = false;
        if (one->kind == 'F') {
            some = *at++;
            if (some) std::memcpy(valid, at, static_cast<size_t>(n));
            else std::memset(valid, 1, static_cast<size_t>(n));
            at += some ? n : 0;
            for (int32_t i = 0; i < n; i++, at += one->width) out[i] = View{at, one->width};
            return some;
        }
        for (int32_t i = 0; i < n; i++) {
            valid[i] = static_cast<uint8_t>(*at++);
            out[i] = View{nullptr, 0};
            some = some || !valid[i];
            if (!valid[i]) continue;
            const char* end = skip(one, at);
            out[i] = one->kind == 's' || one->kind == 'S' ? View{at + 4, end - at - 4} : View{at, end - at};
            at = end;
        }
        return some;
    }

    // Element k of a list, counted from its end where k is negative: where it begins; nullptr: there is
    // none, or a null. `leaf`: its node.
    const char* element(const char* list, int64_t k, const PackedNode** leaf) const {
        const PackedNode* one = type_.root() + 1;
        int32_t n;
        std::memcpy(&n, list, 4);
        if (k < 0) k += n;
        if (k < 0 || k >= n) return nullptr;
        *leaf = one;
        const char* at = list + 4;
        if (one->kind == 'F') {
            const bool some = *at++;
            if (some && !at[k]) return nullptr;
            return at + (some ? n : 0) + k * one->width;
        }
        for (; k > 0; k--) at = skip_slot(one, at);
        return *at ? at + 1 : nullptr;
    }

    // Calls visit(where an element begins, or nullptr for a null, its node) for each; stops where that is
    // true, and returns whether it was.
    template <typename Visit>
    bool any_element(const char* list, Visit visit) const {
        const PackedNode* one = type_.root() + 1;
        int32_t n;
        std::memcpy(&n, list, 4);
        const char* at = list + 4;
        if (one->kind == 'F') {
            const char* valid = *at++ ? at : nullptr;
            at += valid ? n : 0;
            for (int32_t k = 0; k < n; k++, at += one->width)
                if (visit(valid && !valid[k] ? nullptr : at, one)) return true;
            return false;
        }
        for (int32_t k = 0; k < n; k++) {
            if (visit(*at ? at + 1 : nullptr, one)) return true;
            at = skip_slot(one, at);
        }
        return false;
    }

    // Behind a value of a node.
    const char* behind(const PackedNode* node, const char* at) const { return skip(node, at); }
    const PackedNode* root() const { return type_.root(); }

  private:
    const char* skip_slot(const PackedNode* node, const char* at) const {
        return *at == 0 ? at + 1 : skip(node, at + 1);
    }
    const char* skip(const PackedNode* node, const char* at) const {
        const PackedNode* one = node + 1;
        int32_t n;
        switch (node->kind) {
            case 'F': return at + node->width;
            case 'b': return at + 1;
            case 's': case 'S':
                std::memcpy(&n, at, 4);
                return at + 4 + n;
            case '{':
                for (; one != type_.behind(node); one = type_.behind(one)) at = skip_slot(one, at);
                return at;
            case 'l': case 'L': case 'f':
                std::memcpy(&n, at, 4);
                at += 4;
                if (one->kind == 'F') return at + 1 + (*at ? n : 0) + n * one->width;
                for (int32_t k = 0; k < n; k++) at = skip_slot(one, at);
                return at;
            default: return at;
        }
    }
    PackedType type_;
};

inline PackedParts* packed_parts(const char* format) {
    try {
        return new PackedParts(format);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
inline void packed_parts_free(PackedParts* parts) { delete parts; }

inline int64_t packed_length(const char* list) {
    int32_t n;
    std::memcpy(&n, list, 4);
    return n;
}

// How a leaf's bytes become a value: an integer of `width` bytes, a float, a decimal of 64 or of 128 bits,
// or as they are; a packed value stays one.
enum PackedLeaf {
    LEAF_INT, LEAF_UINT, LEAF_FLOAT, LEAF_BOOL, LEAF_TEXT, LEAF_COUNTED, LEAF_WIDE, LEAF_PACKED
};

// Bytes of a value on the stack of the expression machine.
inline int64_t leaf_width(int leaf) {
    return leaf == LEAF_BOOL ? 1 : leaf == LEAF_TEXT || leaf == LEAF_WIDE || leaf == LEAF_PACKED ? 16 : 8;
}

// A leaf that begins at `at` as a value on the stack, which is zero so far.
template <typename View>
void packed_leaf(const PackedParts* parts, int leaf, const PackedNode* node, const char* at, char* out) {
    if (leaf == LEAF_TEXT) {
        int32_t size;
        std::memcpy(&size, at, 4);
        const View view{at + 4, size};
        std::memcpy(out, &view, sizeof view);
    } else if (leaf == LEAF_PACKED) {
        const View view{at, parts->behind(node, at) - at};
        std::memcpy(out, &view, sizeof view);
    } else if (leaf == LEAF_FLOAT) {
        double v;
        float narrow;
        if (node->width == 4) {
            std::memcpy(&narrow, at, 4);
            v = static_cast<double>(narrow);
        } else {
            std::memcpy(&v, at, 8);
        }
        std::memcpy(out, &v, 8);
    } else if (leaf == LEAF_WIDE || leaf == LEAF_COUNTED || leaf == LEAF_BOOL || leaf == LEAF_UINT) {
        // little endian: of a decimal that an int64 counts the lower half is the count
        std::memcpy(out, at, static_cast<size_t>(leaf == LEAF_UINT ? node->width : leaf_width(leaf)));
    } else {
        int64_t v = 0;
        std::memcpy(&v, at, static_cast<size_t>(node->width));
        const int unused = static_cast<int>(64 - 8 * node->width);
        v = static_cast<int64_t>(static_cast<uint64_t>(v) << unused) >> unused;
        std::memcpy(out, &v, 8);
    }
}

// Fields of rows `sel` (nullptr: the first n) on the stack of the expression machine; a null's bytes are
// zero.
template <typename View>
void packed_fields(const PackedParts* parts, const int32_t* path, int32_t depth, int leaf,
                   const View* values, const uint8_t* valid, const int32_t* sel, int64_t n, char* out,
                   uint8_t* out_valid) {
    const int64_t width = leaf_width(leaf);
    for (int64_t i = 0; i < n; i++, out += width) {
        const int64_t row = sel ? sel[i] : i;
        const PackedNode* node = nullptr;
        const char* at = valid && !valid[row] ? nullptr : parts->field(values[row].data, path, depth, &node);
        out_valid[i] = at != nullptr;
        std::memset(out, 0, static_cast<size_t>(width));
        if (at != nullptr) packed_leaf<View>(parts, leaf, node, at, out);
    }
}
}  // namespace ord
#endif

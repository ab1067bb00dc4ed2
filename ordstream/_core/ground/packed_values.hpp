// Values of types that no kernel computes on (structs, maps, lists of these or of texts, ...) as bytes, one
// run of bytes per value, and back to Arrow arrays.
//
// What a type is made of is a text (ordstream/ground/packed_types.py, `packed_format`): "P", then a node:
//   F<bytes>;        values of so many bytes        b   booleans              n   nothing but nulls
//   s, S             text or bytes, 32- or 64-bit offsets
//   l, L <node>      lists, 32- or 64-bit offsets   f<n>;<node>   lists of n elements each
//   {<nodes>}        structs
// The bytes of a value: of F its own; of b one; of s four of size, then its own; of a struct its fields, of
// a list four of how many, then its elements. In front of each field or element is a byte: 1, or 0 for a
// null, which has no more. Elements of F lie side by side behind one byte that says whether some are null,
// and, where it is 1, a byte for each.
//
// Portable C++17. Thread safety: pure. No exception leaves: what can't get memory returns -1. Cost: ~5 ns
// per node and value.
#ifndef ORDSTREAM_PACKED_VALUES_HPP
#define ORDSTREAM_PACKED_VALUES_HPP
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>
#include "arrow_structs.hpp"
#include "growing.hpp"

namespace ord {

struct PackedNode {
    char kind;
    int64_t width;   // F: bytes of a value; f: elements of one
    int next;        // of the nodes: the first behind this one and its children
};

class PackedType {
  public:
    explicit PackedType(const char* format) {
        const char* at = format + 1;
        while (*at) read(&at);
    }
    const PackedNode* root() const { return nodes_.data(); }
    const PackedNode* behind(const PackedNode* node) const { return nodes_.data() + node->next; }

  private:
    void read(const char** at) {
        const size_t place = nodes_.size();
        const char kind = *(*at)++;
        nodes_.push_back(PackedNode{kind, 0, 0});
        if (kind == 'F' || kind == 'f') {
            int64_t width = 0;
            while (**at != ';') width = 10 * width + (*(*at)++ - '0');
            ++*at;
            nodes_[place].width = width;
        }
        if (kind == 'l' || kind == 'L' || kind == 'f') read(at);
        if (kind == '{') {
            while (**at != '}') read(at);
            ++*at;
        }
        nodes_[place].next = static_cast<int>(nodes_.size());
    }
    std::vector<PackedNode> nodes_;
};

// ------------------------------------------------------------------------------------------ to bytes

inline bool packed_bit(const void* bits, int64_t i) {
    return (static_cast<const uint8_t*>(bits)[i >> 3] >> (i & 7)) & 1;
}

// Whether row i of an array, its offset not counted, is no null. An array of nothing but nulls has no
// buffers.
inline bool packed_valid(const ArrowArray* a, int64_t i) {
    if (a->n_buffers == 0) return false;
    return a->null_count == 0 || a->buffers[0] == nullptr || packed_bit(a->buffers[0], a->offset + i);
}

class Packer {
  public:
    explicit Packer(const char* format) : type_(format) {}

    // Lists of values of fixed width, none of which is null: the bytes of row i are told by its length.
    bool is_simple(const ArrowArray* a) const {
        const PackedNode* root = type_.root();
        const bool of_fixed = (root->kind == 'l' || root->kind == 'L') && root[1].kind == 'F';
        return of_fixed && a->children[0]->null_count == 0;
    }
    int64_t simple_size(const ArrowArray* a, int64_t i) const {
        const PackedNode* root = type_.root();
        return 5 + range(root, a, i).count * root[1].width;
    }
    char* simple_write(const ArrowArray* a, int64_t i, char* to) const {
        const PackedNode* root = type_.root();
        const Range r = range(root, a, i);
        const size_t bytes = static_cast<size_t>(r.count * root[1].width);
        to = write_count(r.count, to);
        *to++ = 0;
        if (bytes)
            std::memcpy(to, static_cast<const char*>(r.child->buffers[1])
                                + (r.child->offset + r.first) * root[1].width, bytes);
        return to + bytes;
    }
    int64_t size(const ArrowArray* a, int64_t i) const { return size(type_.root(), a, i); }
    char* write(const ArrowArray* a, int64_t i, char* to) const { return write(type_.root(), a, i, to); }
    // Bytes of n rows from `start` in the buffers.
    int64_t extent(const ArrowArray* a, int64_t start, int64_t n) const {
        return extent(type_.root(), a, start, n);
    }

    // At least as many bytes as n rows take, from `start` in the buffers on.
    int64_t bound(const ArrowArray* a, int64_t start, int64_t n) const {
        return bound(type_.root(), a, start, n);
    }

  private:
    struct Range {
        const ArrowArray* child;
        int64_t first, count;
    };
    // Where the elements of row i lie; the last row's end is the row behind it.
    static Range range(const PackedNode* node, const ArrowArray* a, int64_t i, int64_t rows = 1) {
        const int64_t at = a->offset + i;
        if (node->kind == 'f') return {a->children[0], at * node->width, rows * node->width};
        if (a->buffers[1] == nullptr) return {a->children ? a->children[0] : nullptr, 0, 0};
        if (node->kind == 'l' || node->kind == 's') {
            const int32_t* offsets = static_cast<const int32_t*>(a->buffers[1]) + at;
            return {a->children ? a->children[0] : nullptr, offsets[0], offsets[rows] - offsets[0]};
        }
        const int64_t* offsets = static_cast<const int64_t*>(a->buffers[1]) + at;
        return {a->children ? a->children[0] : nullptr, offsets[0], offsets[rows] - offsets[0]};
    }
    static bool has_nulls(const Range& r) {
        for (int64_t k = 0; k < r.count; k++)
            if (!packed_valid(r.child, r.first + k)) return true;
        return false;
    }
    int64_t slot_size(const PackedNode* node, const ArrowArray* a, int64_t i) const {
        return 1 + (packed_valid(a, i) ? size(node, a, i) : 0);
    }
    int64_t size(const PackedNode* node, const ArrowArray* a, int64_t i) const {
        int64_t total = 0;
        Range r;
        switch (node->kind) {
            case 'F': return node->width;
            case 'b': return 1;
            case 's': case 'S': return 4 + range(node, a, i).count;
            case '{':
                for (int64_t k = 0; k < a->n_children; k++) {
                    node = k == 0 ? node + 1 : type_.behind(node);
                    total += slot_size(node, a->children[k], a->offset + i);
                }
                return total;
            case 'l': case 'L': case 'f':
                r = range(node, a, i);
                if (node[1].kind == 'F')
                    return 5 + (r.count && has_nulls(r) ? r.count : 0) + r.count * node[1].width;
                for (int64_t k = 0; k < r.count; k++) total += slot_size(node + 1, r.child, r.first + k);
                return 4 + total;
            default: return 0;
        }
    }
    char* write_slot(const PackedNode* node, const ArrowArray* a, int64_t i, char* to) const {
        const bool valid = packed_valid(a, i);
        *to++ = valid;
        return valid ? write(node, a, i, to) : to;
    }
    static char* write_count(int64_t count, char* to) {
        const int32_t n = static_cast<int32_t>(count);
        std::memcpy(to, &n, 4);
        return to + 4;
    }
    static char* write_values(int64_t width, const Range& r, char* to) {
        const bool some = r.count && has_nulls(r);
        *to++ = some;
        if (some)
            for (int64_t k = 0; k < r.count; k++) *to++ = packed_valid(r.child, r.first + k);
        if (r.count)
            std::memcpy(to,
                        static_cast<const char*>(r.child->buffers[1]) + (r.child->offset + r.first) * width,
                        static_cast<size_t>(r.count * width));
        // what is under a null is anything
        if (some)
            for (int64_t k = 0; k < r.count; k++)
                if (!packed_valid(r.child, r.first + k)) std::memset(to + k * width, 0, width);
        return to + r.count * width;
    }
    char* write(const PackedNode* node, const ArrowArray* a, int64_t i, char* to) const {
        Range r;
        switch (node->kind) {
            case 'F':
                std::memcpy(to, static_cast<const char*>(a->buffers[1]) + (a->offset + i) * node->width,
                            static_cast<size_t>(node->width));
                return to + node->width;
            case 'b':
                *to = packed_bit(a->buffers[1], a->offset + i);
                return to + 1;
            case 's': case 'S':
                r = range(node, a, i);
                to = write_count(r.count, to);
                if (r.count)
                    std::memcpy(to, static_cast<const char*>(a->buffers[2]) + r.first,
                                static_cast<size_t>(r.count));
                return to + r.count;
            case '{':
                for (int64_t k = 0; k < a->n_children; k++) {
                    node = k == 0 ? node + 1 : type_.behind(node);
                    to = write_slot(node, a->children[k], a->offset + i, to);
                }
                return to;
            case 'l': case 'L': case 'f':
                r = range(node, a, i);
                to = write_count(r.count, to);
                if (node[1].kind == 'F') return write_values(node[1].width, r, to);
                for (int64_t k = 0; k < r.count; k++) to = write_slot(node + 1, r.child, r.first + k, to);
                return to;
            default: return to;
        }
    }
    int64_t bound(const PackedNode* node, const ArrowArray* a, int64_t start, int64_t n) const {
        int64_t bytes = 0;
        Range r;
        switch (node->kind) {
            case 'F': return n * node->width;
            case 'b': return n;
            case 's': case 'S': return 4 * n + (n ? range(node, a, start, n).count : 0);
            case '{':
                for (int64_t k = 0; k < a->n_children; k++) {
                    node = k == 0 ? node + 1 : type_.behind(node);
                    bytes += n + bound(node, a->children[k], a->offset + start, n);
                }
                return bytes;
            case 'l': case 'L': case 'f':
                if (n == 0) return 0;
                r = range(node, a, start, n);
                return 5 * n + r.count + (r.count ? bound(node + 1, r.child, r.first, r.count) : 0);
            default: return 0;
        }
    }
    int64_t extent(const PackedNode* node, const ArrowArray* a, int64_t start, int64_t n) const {
        int64_t bytes = a->n_buffers > 0 && a->buffers[0] != nullptr ? n / 8 : 0;
        Range r;
        switch (node->kind) {
            case 'F': return bytes + n * node->width;
            case 'b': return bytes + n / 8;
            case 's': return bytes + 4 * n + range(node, a, start, n).count;
            case 'S': return bytes + 8 * n + range(node, a, start, n).count;
            case '{':
                for (int64_t k = 0; k < a->n_children; k++) {
                    node = k == 0 ? node + 1 : type_.behind(node);
                    bytes += extent(node, a->children[k], a->offset + start, n);
                }
                return bytes;
            case 'l': case 'L': case 'f':
                r = range(node, a, start, n);
                bytes += node->kind == 'f' ? 0 : (node->kind == 'l' ? 4 : 8) * n;
                return r.count ? bytes + extent(node + 1, r.child, r.first, r.count) : bytes;
            default: return bytes;
        }
    }
    PackedType type_;
};

// ------------------------------------------------------------------------------------------ to Arrow

// Growing buffers of an array. Offsets are of 32 bits: the bytes of all rows are less than 2^31.
struct PackedColumn {
    int64_t length = 0, nulls = 0;
    Growing<uint8_t> valid;        // a byte each; empty while there was no null
    Growing<char> data;            // values; a byte for each boolean; the bytes of texts
    Growing<int32_t> offsets;
    std::vector<PackedColumn> children;
    // as handed over
    Growing<uint8_t> bits, values;
    const void* buffers[3] = {nullptr, nullptr, nullptr};
    std::vector<ArrowArray> arrays;
    std::vector<ArrowArray*> pointers;
};

class Unpacker {
  public:
    explicit Unpacker(const char* format) : type_(format), root_(std::make_shared<PackedColumn>()) {
        prepare(type_.root(), root_.get());
    }
    // Whether a value that is no null may have no bytes.
    bool may_be_empty() const {
        const PackedNode* root = type_.root();
        return (root->kind == 'F' && root->width == 0) || (root->kind == '{' && root->next == 1);
    }
    void append(const char* value) { read(type_.root(), root_.get(), value); }
    void append_null() { null(type_.root(), root_.get()); }

    // The array, which owns what it is made of.
    void export_to(ArrowArray* out) {
        finish(type_.root(), root_.get());
        fill(type_.root(), root_.get(), out);
    }

  private:
    using Holder = std::shared_ptr<PackedColumn>;

    void prepare(const PackedNode* node, PackedColumn* c) {
        const char kind = node->kind;
        if (kind == 's' || kind == 'S' || kind == 'l' || kind == 'L') c->offsets.add(0);
        if (kind == 'l' || kind == 'L' || kind == 'f') c->children.resize(1);
        if (kind == '{')
            for (const PackedNode* one = node + 1; one != type_.behind(node); one = type_.behind(one))
                c->children.emplace_back();
        const PackedNode* one = node + 1;
        for (PackedColumn& child : c->children) {
            prepare(one, &child);
            one = type_.behind(one);
        }
    }
    void count(PackedColumn* c, bool valid) {
        if (!valid && c->nulls == 0) c->valid.add_times(1, c->length);
        c->nulls += !valid;
        if (c->nulls) c->valid.add(valid);
        c->length++;
    }
    void null(const PackedNode* node, PackedColumn* c) {
        count(c, false);
        fill_up(node, c);
    }
    // Values that stand under a null of what they are part of: Arrow has no null there either.
    void empty(const PackedNode* node, PackedColumn* c) {
        count(c, node->kind != 'n');
        fill_up(node, c);
    }
    void fill_up(const PackedNode* node, PackedColumn* c) {
        const PackedNode* one = node + 1;
        switch (node->kind) {
            case 'F': c->data.add_times(0, node->width); return;
            case 'b': c->data.add(0); return;
            case 's': case 'S': case 'l': case 'L': c->offsets.add(c->offsets.back()); return;
            case 'f':
                for (int64_t k = 0; k < node->width; k++) empty(one, &c->children[0]);
                return;
            case '{':
                for (PackedColumn& child : c->children) {
                    empty(one, &child);
                    one = type_.behind(one);
                }
                return;
            default: return;
        }
    }
    static const char* read_count(const char* at, int32_t* n) {
        std::memcpy(n, at, 4);
        return at + 4;
    }
    const char* read_slot(const PackedNode* node, PackedColumn* c, const char* at) {
        if (*at++) return read(node, c, at);
        null(node, c);
        return at;
    }
    static const char* read_values(int64_t width, int32_t n, PackedColumn* c, const char* at) {
        const bool some = *at++;
        if (some && c->nulls == 0) c->valid.add_times(1, c->length);
        if (some) {
            for (int32_t k = 0; k < n; k++) c->nulls += !at[k];
            c->valid.add(reinterpret_cast<const uint8_t*>(at), n);
            at += n;
        } else if (c->nulls) {
            c->valid.add_times(1, n);
        }
        c->data.add(at, n * width);
        c->length += n;
        return at + n * width;
    }
    const char* read(const PackedNode* node, PackedColumn* c, const char* at) {
        const PackedNode* one = node + 1;
        int32_t n;
        count(c, node->kind != 'n');
        switch (node->kind) {
            case 'F':
                c->data.add(at, node->width);
                return at + node->width;
            case 'b':
                c->data.add(*at);
                return at + 1;
            case 's': case 'S':
                at = read_count(at, &n);
                c->data.add(at, n);
                c->offsets.add(static_cast<int32_t>(c->data.size()));
                return at + n;
            case '{':
                for (PackedColumn& child : c->children) {
                    at = read_slot(one, &child, at);
                    one = type_.behind(one);
                }
                return at;
            case 'l': case 'L': case 'f':
                at = read_count(at, &n);
                if (one->kind == 'F')
                    at = read_values(one->width, n, &c->children[0], at);
                else
                    for (int32_t k = 0; k < n; k++) at = read_slot(one, &c->children[0], at);
                if (node->kind != 'f') c->offsets.add(static_cast<int32_t>(c->children[0].length));
                return at;
            default: return at;
        }
    }
    static void to_bits(const uint8_t* bytes, int64_t n, Growing<uint8_t>* bits) {
        bits->add_times(0, n / 8 + 1);
        uint8_t* to = bits->data();
        for (int64_t i = 0; i < n; i++)
            to[i >> 3] = static_cast<uint8_t>(to[i >> 3] | (bytes[i] != 0) << (i & 7));
    }
    // All memory that handing over takes.
    void finish(const PackedNode* node, PackedColumn* c) {
        if (c->nulls && node->kind != 'n') {
            to_bits(c->valid.data(), c->length, &c->bits);
            c->buffers[0] = c->bits.data();
        }
        if (node->kind == 'b') {
            to_bits(reinterpret_cast<const uint8_t*>(c->data.data()), c->length, &c->values);
            c->buffers[1] = c->values.data();
        } else if (node->kind == 'F') {
            c->data.add(0);                                   // a buffer is never NULL
            c->buffers[1] = c->data.data();
        } else if (!c->offsets.empty()) {
            c->buffers[1] = c->offsets.data();
            c->data.add(0);
            c->buffers[2] = c->data.data();
        }
        const PackedNode* one = node + 1;
        c->arrays.resize(c->children.size());
        for (ArrowArray& child : c->arrays) c->pointers.push_back(&child);
        for (PackedColumn& child : c->children) {
            finish(one, &child);
            one = type_.behind(one);
        }
    }
    static void release(ArrowArray* a) {
        for (int64_t k = 0; k < a->n_children; k++)
            if (a->children[k]->release != nullptr) a->children[k]->release(a->children[k]);
        Holder* holder = static_cast<Holder*>(a->private_data);
        a->release = nullptr;
        delete holder;
    }
    void fill(const PackedNode* node, PackedColumn* c, ArrowArray* out) {
        std::memset(out, 0, sizeof(ArrowArray));
        Holder* holder = new Holder(root_);
        out->private_data = holder;
        out->release = release;
        out->length = c->length;
        out->null_count = node->kind == 'n' ? c->length : c->nulls;
        const char kind = node->kind;
        const bool text = kind == 's' || kind == 'S', apart = kind == '{' || kind == 'f';
        out->n_buffers = kind == 'n' ? 0 : apart ? 1 : text ? 3 : 2;
        out->buffers = c->buffers;
        out->children = c->pointers.data();
        const PackedNode* one = node + 1;
        for (size_t k = 0; k < c->children.size(); k++) {
            fill(one, &c->children[k], &c->arrays[k]);
            out->n_children++;                                // an exception releases what is there
            one = type_.behind(one);
        }
    }
    PackedType type_;
    Holder root_;
};

// ------------------------------------------------------------------------------------------ for the core

// Bytes of n rows: `rows`, or those from `first` on (an array's own offset not counted). sizes, unless NULL:
// how many each row has, 0 for a null. -1: no memory; -2: a row of 2^31 bytes or more.
inline int64_t packed_measure(const char* format, const ArrowArray* a, int64_t first, const int32_t* rows,
                              int64_t n, int32_t* sizes) {
    try {
        const Packer packer(format);
        const bool simple = packer.is_simple(a);
        int64_t total = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = first + (rows ? rows[i] : i);
            const int64_t size =
                !packed_valid(a, row) ? 0 : simple ? packer.simple_size(a, row) : packer.size(a, row);
            if (size > INT32_MAX) return -2;
            if (sizes) sizes[i] = static_cast<int32_t>(size);
            total += size;
        }
        return total;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// No fewer bytes than n rows from `first` on take; -1: no memory. Cost: ~5 ns per node.
inline int64_t packed_bound(const char* format, const ArrowArray* a, int64_t first, int64_t n) {
    try {
        return Packer(format).bound(a, first, n);
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// Rows from `first` on as views of bytes from `to` on, which has room for packed_bound. 0; -1: no memory.
template <typename View>
int packed_views(const char* format, const ArrowArray* a, int64_t first, int64_t n, char* to, View* views) {
    try {
        const Packer packer(format);
        const bool simple = packer.is_simple(a);
        for (int64_t i = 0; i < n; i++) {
            views[i] = View{to, 0};
            if (!packed_valid(a, first + i)) continue;
            to = simple ? packer.simple_write(a, first + i, to) : packer.write(a, first + i, to);
            views[i].size = to - views[i].data;
        }
        return 0;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// The bytes of what was measured, side by side. 0; -1: no memory.
inline int packed_write(const char* format, const ArrowArray* a, int64_t first, const int32_t* rows,
                        int64_t n, char* to) {
    try {
        const Packer packer(format);
        const bool simple = packer.is_simple(a);
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = first + (rows ? rows[i] : i);
            if (!packed_valid(a, row)) continue;
            to = simple ? packer.simple_write(a, row, to) : packer.write(a, row, to);
        }
        return 0;
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// Bytes of n rows in the buffers of an array; -1: no memory.
inline int64_t packed_extent(const char* format, const ArrowArray* a, int64_t first, int64_t n) {
    try {
        return Packer(format).extent(a, first, n);
    } catch (const std::bad_alloc&) {
        return -1;
    }
}

// An array of n values: of views, at `rows` or from the first on, or of bytes behind offsets (views NULL).
// valid: a byte per value, or NULL. A value without bytes is null, unless its type has none: so columns are
// filled that nobody reads. The caller releases the array. 0; -1: no memory.
template <typename View>
int packed_export(const char* format, const View* views, const int32_t* rows, const int32_t* offsets,
                  const char* heap, const uint8_t* valid, int64_t n, ArrowArray* out) {
    out->release = nullptr;
    try {
        Unpacker unpacker(format);
        const bool may_be_empty = unpacker.may_be_empty();
        for (int64_t i = 0; i < n; i++) {
            const int64_t row = rows ? rows[i] : i;
            const bool empty = views ? views[row].size == 0 : offsets[row + 1] == offsets[row];
            if (format[1] == 'n' || (valid && !valid[row]) || (empty && !may_be_empty))
                unpacker.append_null();
            else
                unpacker.append(views ? views[row].data : heap + offsets[row]);
        }
        unpacker.export_to(out);
        return 0;
    } catch (const std::bad_alloc&) {
        if (out->release != nullptr) out->release(out);
        out->release = nullptr;
        return -1;
    }
}
}  // namespace ord
#endif

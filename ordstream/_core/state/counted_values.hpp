// How often each value is there, of values of one key: a flat table, probed one entry after the other.
// Portable C++17.
//
// A node of std::unordered_map is one more line of memory per look, and an allocation per value: where many
// keys take turns each row misses the cache twice, and frees twice at the end.
// Thread safety: its owner's. Memory: std::bad_alloc leaves `add`; the values are then as before.
#ifndef ORDSTREAM_COUNTED_VALUES_HPP
#define ORDSTREAM_COUNTED_VALUES_HPP
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <utility>
#include "spare_blocks.hpp"

namespace ord {

template <class V>
struct CountedValues {
    struct Entry {
        V value{};
        int64_t times = 0;  // 0: nothing is here
    };
    static constexpr size_t LEAST = 4;
    Vector<Entry> table;  // empty, or a power of 2, three quarters of it full at most
    size_t count = 0;

    size_t size() const { return count; }
    int64_t bytes() const { return static_cast<int64_t>(table.capacity() * sizeof(Entry)); }

    // Where a value is, or would be. The table has room.
    size_t place(const V& value) const {
        size_t i = start(value);
        while (table[i].times && !(table[i].value == value)) i = (i + 1) & (table.size() - 1);
        return i;
    }
    // Where the look for a value begins.
    size_t start(const V& value) const {
        // The standard hash of a number is the number. Numbers often differ in their upper bits only (whole
        // ones as doubles) or in their lower ones: both go into all bits of the place.
        uint64_t h = static_cast<uint64_t>(std::hash<V>{}(value));
        h = (h ^ h >> 32) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
        return static_cast<size_t>(h ^ h >> 32) & (table.size() - 1);
    }
    // One more of a value. The entry, where it is the first one; else nullptr.
    const Entry* add(const V& value) {
        if (table.empty()) table.resize(LEAST);
        size_t i = place(value);
        if (table[i].times) {
            table[i].times++;
            return nullptr;
        }
        if ((count + 1) * 4 > table.size() * 3) {
            in_room_for(2 * table.size());
            i = place(value);
        }
        table[i].value = value;
        table[i].times = 1;
        count++;
        return &table[i];
    }
    // One less of a value that is there. Whether it was the last one: `left` is then the value.
    bool drop(const V& value, V* left) {
        size_t i = place(value);
        if (--table[i].times) return false;
        *left = std::move(table[i].value);
        table[i] = Entry{};
        count--;
        const size_t mask = table.size() - 1;
        // entries behind it that were put off by it move up: none is looked for past an empty one
        for (size_t j = (i + 1) & mask; table[j].times; j = (j + 1) & mask) {
            Entry moved = std::move(table[j]);
            table[j] = Entry{};
            const size_t to = place(moved.value);
            table[to] = std::move(moved);
        }
        if (table.size() > LEAST && count * 8 < table.size()) try {
            in_room_for(table.size() / 2);
        } catch (const std::bad_alloc&) {  // it stays as large as it is
        }
        return true;
    }
    template <class F>
    void each(F&& f) const {
        for (const Entry& entry : table)
            if (entry.times) f(entry.value);
    }

  private:
    void in_room_for(size_t entries) {
        Vector<Entry> before(entries);
        before.swap(table);
        for (Entry& entry : before)
            if (entry.times) {
                const size_t to = place(entry.value);
                table[to] = std::move(entry);
            }
    }
};

}  // namespace ord
#endif

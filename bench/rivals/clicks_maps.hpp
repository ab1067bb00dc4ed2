// What the hand-written rivals share: hash maps that grow, since nothing is known about keys, with
// prefetching for batched lookups; counts of pairs; sessions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

inline uint64_t mix(uint64_t x) {  // SplitMix64's output function
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// Zeroed memory, on huge pages where the system has them.
template <class T>
class Block {
    T* data_ = nullptr;
    size_t n_ = 0;

  public:
    explicit Block(size_t n) : n_(n) {
        const size_t bytes = n * sizeof(T), page = size_t(2) << 20;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        if (bytes >= page) {
            void* p = nullptr;
            if (posix_memalign(&p, page, bytes) != 0) std::abort();
            madvise(p, bytes, MADV_HUGEPAGE);
            data_ = static_cast<T*>(p);
            std::fill_n(reinterpret_cast<char*>(data_), bytes, 0);
            return;
        }
#endif
        data_ = static_cast<T*>(std::calloc(n, sizeof(T)));
        if (data_ == nullptr) std::abort();
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { std::free(data_); }
    T& operator[](size_t i) { return data_[i]; }
    size_t size() const { return n_; }
    void swap(Block& other) {
        std::swap(data_, other.data_);
        std::swap(n_, other.n_);
    }
};

// Open addressing, linear probing, at most three quarters full. Slot::n == 0: empty.
template <class Slot>
class Map {
    Block<Slot> slots_{1024};
    size_t used_ = 0;

    void grow() {
        Block<Slot> larger(slots_.size() * 2);
        const size_t mask = larger.size() - 1;
        for (size_t i = 0; i < slots_.size(); i++) {
            if (slots_[i].n == 0) continue;
            size_t at = slots_[i].hash() & mask;
            while (larger[at].n) at = (at + 1) & mask;
            larger[at] = slots_[i];
        }
        slots_.swap(larger);
    }

  public:
    void reserve(size_t more) {
        while ((used_ + more) * 4 > slots_.size() * 3) grow();
    }
    void prefetch(uint64_t hash) { __builtin_prefetch(&slots_[hash & (slots_.size() - 1)], 1); }
    Slot& find(const Slot& key, uint64_t hash) {  // the key's slot, or the empty one where it belongs
        const size_t mask = slots_.size() - 1;
        size_t at = hash & mask;
        while (slots_[at].n && !slots_[at].same(key)) at = (at + 1) & mask;
        return slots_[at];
    }
    void added() { used_++; }
    size_t used() const { return used_; }
    size_t size() const { return slots_.size(); }
    Slot& slot(size_t i) { return slots_[i]; }
};

struct Pair {
    int64_t left, right, n;
    bool same(const Pair& other) const { return left == other.left && right == other.right; }
    uint64_t hash() const { return mix(mix(static_cast<uint64_t>(left)) ^ static_cast<uint64_t>(right)); }
};

inline bool better(const Pair& a, const Pair& b) {
    if (a.n != b.n) return a.n > b.n;
    return a.left != b.left ? a.left < b.left : a.right < b.right;
}

// Keeps the k best pairs.
inline void keep_best(std::vector<Pair>& best, const Pair& pair, size_t k) {
    if (best.size() < k) {
        best.push_back(pair);
        std::push_heap(best.begin(), best.end(), better);
    } else if (better(pair, best.front())) {
        std::pop_heap(best.begin(), best.end(), better);
        best.back() = pair;
        std::push_heap(best.begin(), best.end(), better);
    }
}

// Best first into triples; how many there are.
inline int64_t write_best(std::vector<Pair>& best, int64_t* rows) {
    std::sort(best.begin(), best.end(), better);
    for (const Pair& pair : best) {
        *rows++ = pair.left;
        *rows++ = pair.right;
        *rows++ = pair.n;
    }
    return static_cast<int64_t>(best.size());
}

// Number of each pair. Lookups are batched: all slots of a batch are on their way before the first is looked
// at.
class PairCounts {
    static constexpr size_t BATCH = 128;
    Map<Pair> map_;
    Pair waiting_[BATCH];
    uint64_t hashes_[BATCH];
    size_t n_ = 0;

    void flush() {
        map_.reserve(n_);
        for (size_t i = 0; i < n_; i++) map_.prefetch(hashes_[i] = waiting_[i].hash());
        for (size_t i = 0; i < n_; i++) {
            Pair& slot = map_.find(waiting_[i], hashes_[i]);
            if (slot.n == 0) {
                map_.added();
                slot = waiting_[i];
            }
            slot.n++;
        }
        total += static_cast<int64_t>(n_);
        n_ = 0;
    }

  public:
    int64_t total = 0;

    void add(int64_t left, int64_t right) {
        waiting_[n_++] = {left, right, 0};
        if (n_ == BATCH) flush();
    }
    void collect_best(std::vector<Pair>& best, size_t k) {
        flush();
        for (size_t i = 0; i < map_.size(); i++)
            if (map_.slot(i).n) keep_best(best, map_.slot(i), k);
    }
    template <class Body>
    void each(Body body) {
        flush();
        for (size_t i = 0; i < map_.size(); i++)
            if (map_.slot(i).n) body(map_.slot(i));
    }
    int64_t distinct() const { return static_cast<int64_t>(map_.used()); }
};

struct ItemSession {
    int64_t last = 0;
    std::vector<int64_t> items;
};

// All pairs of the distinct items of a session, which is empty afterwards.
template <class Pairs>
void close_session(std::vector<int64_t>& v, Pairs& pairs) {
    std::sort(v.begin(), v.end());
    const auto end = std::unique(v.begin(), v.end());
    for (auto a = v.begin(); a != end; ++a)
        for (auto b = a + 1; b != end; ++b) pairs.add(*a, *b);
    v.clear();
}

// One record per user, in the order of arrival, found through a map; lookups are batched.
template <class Record>
class Users {
    struct Slot {  // n: 1 + place of the record
        int64_t key, n;
        bool same(const Slot& other) const { return key == other.key; }
        uint64_t hash() const { return mix(static_cast<uint64_t>(key)); }
    };
    Map<Slot> map_;

  public:
    static constexpr int64_t BATCH = 64;
    std::vector<Record> records;

    // Places of n <= BATCH users' records; their memory is on its way.
    void find(const int64_t* keys, int64_t n, size_t* places) {
        uint64_t hashes[BATCH];
        map_.reserve(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; i++) map_.prefetch(hashes[i] = mix(static_cast<uint64_t>(keys[i])));
        for (int64_t i = 0; i < n; i++) {
            Slot& slot = map_.find({keys[i], 0}, hashes[i]);
            if (slot.n == 0) {
                map_.added();
                records.emplace_back();
                slot = {keys[i], static_cast<int64_t>(records.size())};
            }
            places[i] = static_cast<size_t>(slot.n - 1);
        }
        for (int64_t i = 0; i < n; i++) __builtin_prefetch(&records[places[i]], 1);
    }
};

// Q4: an open session, and the totals of the closed ones with a page in [0, dynamic) and none in [dynamic,
// order).
struct PageSession {
    int64_t last = 0, n = 0;
    bool dynamic = false, order = false;
};

struct Abandoned {
    int64_t timeout, dynamic, order;
    int64_t clicks = 0, sessions = 0;

    void close(const PageSession& s) {
        if (s.n && s.dynamic && !s.order) {
            clicks += s.n;
            sessions++;
        }
    }
    void add(PageSession& s, int64_t ts, int64_t page) {
        if (s.n && ts - s.last > timeout) {
            close(s);
            s = PageSession();
        }
        s.n++;
        s.dynamic |= page < dynamic;
        s.order |= page >= dynamic && page < order;
        s.last = ts;
    }
};

// Speed between consecutive clicks of a user: items per second, NaN at the first.
struct LastClick {
    int64_t ts = 0, item = 0;
    bool any = false;

    double next(int64_t new_ts, int64_t new_item) {
        const double speed = any ? static_cast<double>(new_item - item) / static_cast<double>(new_ts - ts)
                                 : std::numeric_limits<double>::quiet_NaN();
        ts = new_ts;
        item = new_item;
        any = true;
        return speed;
    }
};

}  // namespace

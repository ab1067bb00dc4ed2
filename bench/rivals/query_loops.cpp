// The five TPCx-BB queries (paper profile) as hand-written loops over Arrow columns, on one thread: what a
// core can do without a stream system, for bench/gaps.py. They know that the stream is in order, and nothing
// of keys: every map grows. A validity bitmap may be NULL.
#include <cstring>

#include "clicks_maps.hpp"

namespace {

inline bool is_valid(const uint8_t* bits, int64_t i) {
    return bits == nullptr || (bits[i >> 3] >> (i & 7)) & 1;
}

// Value of a side table that is dense by key, or `none`.
template <class T>
inline T looked_up(const T* table, int64_t size, int64_t key, T none) {
    return key >= 0 && key < size ? table[key] : none;
}

struct Rows {  // an answer of unknown length; the caller copies it
    std::vector<int64_t> values;
    template <class... T>
    void add(T... row) {
        (values.push_back(row), ...);
    }
};
Rows found;

// Calls body(row, record) for the rows that `wanted` lets through, in order; lookups are batched.
template <class Record, class Wanted, class Body>
void for_wanted(const int64_t* key, int64_t n, Users<Record>& users, Wanted wanted, Body body) {
    constexpr int64_t BATCH = Users<Record>::BATCH;
    int64_t rows[BATCH], keys[BATCH];
    size_t places[BATCH];
    int64_t i = 0;
    while (i < n) {
        int64_t m = 0;
        for (; i < n && m < BATCH; i++) {
            rows[m] = i;
            keys[m] = key[i];
            m += wanted(i);
        }
        users.find(keys, m, places);
        for (int64_t k = 0; k < m; k++) body(rows[k], users.records[places[k]]);
    }
}

// The `best` first of pairs, in order.
void sort_best(std::vector<Pair>::iterator begin, int64_t best, int64_t n) {
    if (2 * best >= n) std::sort(begin, begin + n, better);  // half as long as a heap then
    else std::partial_sort(begin, begin + best, begin + n, better);
}

struct Basket {  // the distinct items of a ticket, few as a rule
    static constexpr int64_t FEW = 6;
    int64_t n = 0, first[FEW];
    std::vector<int64_t> more;
    const int64_t* items() const { return n <= FEW ? first : more.data(); }
    bool has(int64_t item) const {
        bool there = false;
        for (int64_t k = 0; k < n; k++) there |= items()[k] == item;
        return there;
    }
    void add(int64_t item) {
        if (n == FEW) more.assign(first, first + FEW);
        if (n < FEW) first[n] = item;
        else more.push_back(item);
        n++;
    }
};

// Counts of the pairs of one window: entries in the order of arrival, found through a table of their places.
class WindowCounts {
    std::vector<int32_t> table_ = std::vector<int32_t>(256, 0);
    std::vector<Pair> entries_;

    void grow() {
        table_.assign(table_.size() * 2, 0);
        for (size_t i = 0; i < entries_.size(); i++) {
            size_t at = entries_[i].hash() & (table_.size() - 1);
            while (table_[at]) at = (at + 1) & (table_.size() - 1);
            table_[at] = static_cast<int32_t>(i + 1);
        }
    }

  public:
    void add(int64_t left, int64_t right) {
        const Pair pair{left, right, 1};
        if ((entries_.size() + 1) * 2 > table_.size()) grow();
        size_t at = pair.hash() & (table_.size() - 1);
        while (table_[at] && !entries_[static_cast<size_t>(table_[at] - 1)].same(pair))
            at = (at + 1) & (table_.size() - 1);
        if (table_[at]) {
            entries_[static_cast<size_t>(table_[at] - 1)].n++;
            return;
        }
        entries_.push_back(pair);
        table_[at] = static_cast<int32_t>(entries_.size());
    }
    void close(int64_t window, size_t limit, Rows& rows) {
        const size_t best = std::min(limit, entries_.size());
        sort_best(entries_.begin(), static_cast<int64_t>(best), static_cast<int64_t>(entries_.size()));
        for (size_t i = 0; i < best; i++)
            rows.add(window, entries_[i].left, entries_[i].right, entries_[i].n);
        entries_.clear();
        std::memset(table_.data(), 0, table_.size() * sizeof(int32_t));
    }
};

struct Click {
    int64_t ts, item;
    bool counts;
};

template <int64_t N>
struct Ring {  // the last N clicks of a user
    int64_t n = 0, next = 0;
    Click clicks[N];
    void push(const Click& click) {
        clicks[next] = click;
        next = next + 1 == N ? 0 : next + 1;
        n = std::min(n + 1, N);
    }
};

struct Group {
    int64_t left = 0, n = 0, begin = 0;
};

struct Cart {
    int64_t last = 0, pages = 0, dynamic = -1, order = -1;
};

struct Line {
    int64_t category = 0, n = 0, sx = 0, sxx = 0, sy = 0, sxy = 0;
    int64_t last = std::numeric_limits<int64_t>::min();
};

int64_t width_of(int64_t columns) { return static_cast<int64_t>(found.values.size()) / columns; }

}  // namespace

// Copies the last answer.
extern "C" void query_rows(int64_t* rows) {
    std::memcpy(rows, found.values.data(), found.values.size() * sizeof(int64_t));
}

// Q1: (window, item1, item2, count), the `limit` best of each window. Returns the number of rows;
// `query_rows` has them.
extern "C" int64_t query_q1(const int64_t* ts, const int64_t* ticket, const int64_t* item, int64_t n,
                            int64_t seconds, int64_t limit) {
    found.values.clear();
    Users<Basket> tickets;
    WindowCounts counts;
    int64_t window = n ? ts[0] / seconds : 0;
    for_wanted(ticket, n, tickets, [](int64_t) { return true; }, [&](int64_t i, Basket& basket) {
        const int64_t now = ts[i] / seconds;
        if (now != window) {
            counts.close(window, static_cast<size_t>(limit), found);
            window = now;
        }
        const int64_t bought = item[i];
        if (basket.has(bought)) return;
        for (int64_t k = 0; k < basket.n; k++) {
            const int64_t other = basket.items()[k];
            counts.add(std::min(other, bought), std::max(other, bought));
        }
        basket.add(bought);
    });
    if (n) counts.close(window, static_cast<size_t>(limit), found);
    return width_of(4);
}

// Q2: (left, right, count), the `limit` best pairs of all sessions.
extern "C" int64_t query_q2(const int64_t* ts, const int64_t* user, const uint8_t* known,
                            const int64_t* item, const uint8_t* any, int64_t n, int64_t timeout,
                            int64_t limit) {
    found.values.clear();
    Users<ItemSession> users;
    PairCounts pairs;
    for_wanted(user, n, users, [&](int64_t i) { return is_valid(known, i) && is_valid(any, i); },
               [&](int64_t i, ItemSession& s) {
        if (!s.items.empty() && ts[i] - s.last > timeout) close_session(s.items, pairs);
        s.items.push_back(item[i]);
        s.last = ts[i];
    });
    for (ItemSession& s : users.records) close_session(s.items, pairs);
    std::vector<Pair> best;
    pairs.collect_best(best, static_cast<size_t>(limit));
    found.values.resize(best.size() * 3);
    return write_best(best, found.values.data());
}

// Q3: (purchased, viewed, count), the `limit` best of each purchased item, ascending; the last 5 clicks are
// looked at.
extern "C" int64_t query_q3(const int64_t* ts, const int64_t* user, const uint8_t* known,
                            const int64_t* item, const uint8_t* any, const uint8_t* bought,
                            const uint8_t* counting, int64_t items, int64_t n, int64_t within,
                            int64_t limit) {
    found.values.clear();
    Users<Ring<5>> users;
    PairCounts pairs;
    for_wanted(user, n, users, [&](int64_t i) { return is_valid(known, i) && is_valid(any, i); },
               [&](int64_t i, Ring<5>& ring) {
        if (is_valid(bought, i)) {
            for (int64_t k = 0; k < ring.n; k++) {
                const Click& click = ring.clicks[k];
                if (click.counts && click.ts >= ts[i] - within) pairs.add(item[i], click.item);
            }
        }
        ring.push({ts[i], item[i], looked_up<uint8_t>(counting, items, item[i], 0) != 0});
    });
    std::vector<Pair> all;
    Users<Group> groups;
    pairs.each([&](const Pair& pair) { all.push_back(pair); });
    std::vector<size_t> group_of(all.size());
    for (size_t i = 0; i < all.size(); i += Users<Group>::BATCH) {
        int64_t keys[Users<Group>::BATCH];
        const size_t m = std::min(all.size() - i, static_cast<size_t>(Users<Group>::BATCH));
        for (size_t k = 0; k < m; k++) keys[k] = all[i + k].left;
        groups.find(keys, static_cast<int64_t>(m), group_of.data() + i);
        for (size_t k = 0; k < m; k++) {
            Group& group = groups.records[group_of[i + k]];
            group.left = keys[k];
            group.n++;
        }
    }
    int64_t at = 0;
    for (Group& group : groups.records) {
        group.begin = at;
        at += group.n;
        group.n = 0;
    }
    std::vector<Pair> grouped(all.size());
    for (size_t i = 0; i < all.size(); i++) {
        Group& group = groups.records[group_of[i]];
        grouped[static_cast<size_t>(group.begin + group.n++)] = all[i];
    }
    std::sort(groups.records.begin(), groups.records.end(),
              [](const Group& a, const Group& b) { return a.left < b.left; });
    for (const Group& group : groups.records) {
        const auto begin = grouped.begin() + group.begin;
        const int64_t best = std::min(limit, group.n);
        sort_best(begin, best, group.n);
        for (auto pair = begin; pair != begin + best; ++pair) found.add(pair->left, pair->right, pair->n);
    }
    return width_of(3);
}

// Q4: (pages, sessions) of the abandoned carts, no row where there is none. kinds: 1 dynamic, 2 order, 0
// another page, -1 no page.
extern "C" int64_t query_q4(const int64_t* ts, const int64_t* user, const uint8_t* known,
                            const int64_t* page, const uint8_t* any, const uint8_t* bought,
                            const int8_t* kinds, int64_t pages, int64_t n, int64_t timeout) {
    found.values.clear();
    Users<Cart> users;
    int64_t total = 0, sessions = 0;
    const auto kind_of = [&](int64_t i) {
        return is_valid(any, i) ? looked_up<int8_t>(kinds, pages, page[i], -1) : int8_t(-1);
    };
    const auto close = [&](const Cart& cart) {
        if (cart.dynamic > cart.order) {
            total += cart.pages;
            sessions++;
        }
    };
    const auto viewed = [&](int64_t i) {
        return is_valid(known, i) && !(bought != nullptr && is_valid(bought, i)) && kind_of(i) >= 0;
    };
    for_wanted(user, n, users, viewed, [&](int64_t i, Cart& cart) {
        if (cart.pages && ts[i] - cart.last > timeout) {
            close(cart);
            cart = Cart();
        }
        const int8_t kind = kind_of(i);
        if (kind == 1) cart.dynamic = std::max(cart.dynamic, ts[i]);
        if (kind == 2) cart.order = std::max(cart.order, ts[i]);
        cart.pages++;
        cart.last = ts[i];
    });
    for (const Cart& cart : users.records) close(cart);
    if (sessions) found.add(total, sessions);
    return width_of(2);
}

// Q15: (category, n, rise, run, height) of each category with two points or more, ascending: the line's
// exact integers, in two halves each.
extern "C" int64_t query_q15(const int64_t* date, const int64_t* store, const int64_t* item,
                             const int64_t* cents, const int64_t* categories, int64_t items, int64_t n,
                             int64_t wanted_store, int64_t from, int64_t to) {
    found.values.clear();
    Users<Line> lines;
    int64_t rows[Users<Line>::BATCH], keys[Users<Line>::BATCH];
    size_t places[Users<Line>::BATCH];
    int64_t i = 0;
    while (i < n) {
        int64_t m = 0;
        for (; i < n && m < Users<Line>::BATCH; i++) {
            const bool wanted = (store[i] == wanted_store) & (date[i] >= from) & (date[i] <= to);
            if (!wanted) continue;
            keys[m] = looked_up<int64_t>(categories, items, item[i], -1);
            rows[m] = i;
            m += keys[m] >= 0;
        }
        lines.find(keys, m, places);
        for (int64_t k = 0; k < m; k++) {
            Line& line = lines.records[places[k]];
            const int64_t x = date[rows[k]], y = cents[rows[k]];
            line.category = keys[k];
            if (x != line.last) {
                line.n++;
                line.sx += x;
                line.sxx += x * x;
                line.last = x;
            }
            line.sy += y;
            line.sxy += x * y;
        }
    }
    std::sort(lines.records.begin(), lines.records.end(),
              [](const Line& a, const Line& b) { return a.category < b.category; });
    for (const Line& line : lines.records) {
        if (line.n < 2) continue;
        const __int128 count = line.n, sx = line.sx, sxx = line.sxx, sy = line.sy, sxy = line.sxy;
        const __int128 rise = count * sxy - sx * sy, run = count * sxx - sx * sx;
        const __int128 height = sy * sxx - sx * sxy;
        found.add(line.category);
        for (const __int128 one : {rise, run, height})
            found.add(static_cast<int64_t>(one >> 64), static_cast<int64_t>(one));
    }
    return width_of(7);
}

// The jobs of bench/peers.py and bench/queries.py as hand-written loops over the columns, on one and on two
// threads: what one core and two can do without a stream system. Two threads: each takes the users whose
// hash is even or odd, in the order of arrival; the pairs of Q2 are written down by hash and counted by the
// thread that has that hash.
#include <thread>

#include "clicks_maps.hpp"

namespace {

constexpr int64_t BATCH = Users<int>::BATCH;

inline size_t part_of(int64_t key, size_t parts) {
    return static_cast<size_t>(mix(static_cast<uint64_t>(key)) >> 32) % parts;
}

// Calls body(row, record) for each row whose user is of this part, in order.
template <class Record, class Body>
void for_rows(const int64_t* user, int64_t n, size_t part, size_t parts, Users<Record>& users, Body body) {
    int64_t rows[BATCH], keys[BATCH];
    size_t places[BATCH];
    int64_t i = 0;
    while (i < n) {
        int64_t m = 0;
        for (; i < n && m < BATCH; i++) {
            rows[m] = i;
            keys[m] = user[i];
            m += parts == 1 || part_of(user[i], parts) == part;
        }
        users.find(keys, m, places);
        for (int64_t k = 0; k < m; k++) body(rows[k], users.records[places[k]]);
    }
}

template <class Body>
void on_threads(size_t threads, Body body) {
    std::vector<std::thread> others;
    for (size_t t = 1; t < threads; t++) others.emplace_back(body, t);
    body(size_t(0));
    for (std::thread& other : others) other.join();
}

template <class Pairs>
void sessions_of(const int64_t* ts, const int64_t* user, const int64_t* item, int64_t n, int64_t timeout,
                 size_t part, size_t parts, Pairs& pairs) {
    Users<ItemSession> users;
    for_rows(user, n, part, parts, users, [&](int64_t i, ItemSession& s) {
        if (!s.items.empty() && ts[i] - s.last > timeout) close_session(s.items, pairs);
        s.items.push_back(item[i]);
        s.last = ts[i];
    });
    for (ItemSession& s : users.records) close_session(s.items, pairs);
}

struct ByHash {  // pairs, by the thread that counts them
    std::vector<std::vector<Pair>> of;
    void add(int64_t left, int64_t right) {
        const Pair pair{left, right, 0};
        of[static_cast<size_t>(pair.hash() >> 40) % of.size()].push_back(pair);
    }
};

}  // namespace

// Q2, all pairs: rows gets `limit` triples (left, right, count); facts: pairs, distinct pairs. Returns the
// number of rows.
extern "C" int64_t loop_q2(const int64_t* ts, const int64_t* user, const int64_t* item, int64_t n,
                           int64_t timeout, int64_t limit, int64_t* rows, int64_t* facts, int64_t threads) {
    const size_t parts = static_cast<size_t>(threads), k = static_cast<size_t>(limit);
    std::vector<Pair> best;
    facts[0] = facts[1] = 0;
    if (parts == 1) {
        PairCounts pairs;
        sessions_of(ts, user, item, n, timeout, 0, 1, pairs);
        pairs.collect_best(best, k);
        facts[0] = pairs.total;
        facts[1] = pairs.distinct();
        return write_best(best, rows);
    }
    std::vector<ByHash> made(parts);
    for (ByHash& of_thread : made) of_thread.of.resize(parts);
    on_threads(parts, [&](size_t t) { sessions_of(ts, user, item, n, timeout, t, parts, made[t]); });
    std::vector<std::vector<Pair>> bests(parts);
    std::vector<int64_t> totals(parts), distinct(parts);
    on_threads(parts, [&](size_t t) {
        PairCounts pairs;
        for (ByHash& from : made) {
            for (const Pair& pair : from.of[t]) pairs.add(pair.left, pair.right);
            std::vector<Pair>().swap(from.of[t]);
        }
        pairs.collect_best(bests[t], k);
        totals[t] = pairs.total;
        distinct[t] = pairs.distinct();
    });
    for (size_t t = 0; t < parts; t++) {
        for (const Pair& pair : bests[t]) keep_best(best, pair, k);
        facts[0] += totals[t];
        facts[1] += distinct[t];
    }
    return write_best(best, rows);
}

// Q4: sessions with a page in [0, dynamic) and none in [dynamic, order): result gets their clicks and their
// number.
extern "C" void loop_q4(const int64_t* ts, const int64_t* user, const int64_t* page, int64_t n,
                        int64_t timeout, int64_t dynamic, int64_t order, int64_t* result, int64_t threads) {
    const size_t parts = static_cast<size_t>(threads);
    std::vector<Abandoned> found(parts, Abandoned{timeout, dynamic, order});
    on_threads(parts, [&](size_t t) {
        Users<PageSession> users;
        Abandoned mine = found[t];
        for_rows(user, n, t, parts, users, [&](int64_t i, PageSession& s) { mine.add(s, ts[i], page[i]); });
        for (const PageSession& s : users.records) mine.close(s);
        found[t] = mine;
    });
    result[0] = result[1] = 0;
    for (const Abandoned& one : found) {
        result[0] += one.clicks;
        result[1] += one.sessions;
    }
}

// Speed between consecutive clicks of a user, for every row, in order.
extern "C" void loop_speed(const int64_t* ts, const int64_t* user, const int64_t* item, int64_t n,
                           double* speed, int64_t threads) {
    const size_t parts = static_cast<size_t>(threads);
    on_threads(parts, [&](size_t t) {
        Users<LastClick> users;
        for_rows(user, n, t, parts, users,
                 [&](int64_t i, LastClick& last) { speed[i] = last.next(ts[i], item[i]); });
    });
}

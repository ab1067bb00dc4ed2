// The jobs of bench/peers.py in oneTBB's parallel_pipeline, cut where it can be cut: what needs a state in
// the order of arrival is a serial_in_order filter, what does not is a parallel one between two of them.
//
//   Q2     serial: rows -> closed sessions | parallel: sessions -> sorted distinct items, pairs
//          | serial: counts of pairs
//   Q4     serial: next unit | serial: sessions of users (nothing is left for a parallel filter)
//   speed  serial: next unit, changes since the user's last click | parallel: quotients
//          | serial: rows out in order
#include <utility>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>

#include "clicks_maps.hpp"

namespace {

constexpr int64_t UNIT = 4096;

struct Collected {
    std::vector<std::pair<int64_t, int64_t>> pairs;
    void add(int64_t left, int64_t right) { pairs.emplace_back(left, right); }
};

struct Unit {
    int64_t first = 0, n = 0;
    std::vector<int64_t> items, ends;  // Q2: closed sessions, one behind the other
    Collected made;
    std::vector<double> steps, gaps;
};

template <class Body>
void for_unit(const int64_t* user, int64_t first, int64_t n, Body body) {
    for (int64_t at = first; at < first + n; at += 64)
        body(at, std::min<int64_t>(64, first + n - at), user + at);
}

template <class Filters>
void run(int threads, Filters filters) {
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
    tbb::task_arena arena(threads);
    arena.execute([&] { tbb::parallel_pipeline(static_cast<size_t>(16 * threads), filters()); });
}

tbb::filter<void, Unit*> units(int64_t& at, int64_t n) {
    const auto mode = tbb::filter_mode::serial_in_order;
    return tbb::make_filter<void, Unit*>(mode, [&at, n](tbb::flow_control& fc) -> Unit* {
        if (at >= n) {
            fc.stop();
            return nullptr;
        }
        Unit* unit = new Unit;
        unit->first = at;
        unit->n = std::min(UNIT, n - at);
        at += unit->n;
        return unit;
    });
}

void finish(std::vector<int64_t>& items, Unit* unit) {
    unit->items.insert(unit->items.end(), items.begin(), items.end());
    unit->ends.push_back(static_cast<int64_t>(unit->items.size()));
    items.clear();
}

}  // namespace

extern "C" const char* onetbb_version() { return TBB_VERSION_STRING; }

extern "C" int64_t onetbb_q2(const int64_t* ts, const int64_t* user, const int64_t* item, int64_t n,
                             int64_t timeout, int64_t limit, int64_t* rows, int threads) {
    Users<ItemSession> users;
    PairCounts counts;
    int64_t at = 0;
    bool ended = false;
    run(threads, [&] {
        const auto mode = tbb::filter_mode::serial_in_order;
        return tbb::make_filter<void, Unit*>(mode, [&](tbb::flow_control& fc) -> Unit* {
                   if (at >= n && ended) {
                       fc.stop();
                       return nullptr;
                   }
                   Unit* unit = new Unit;
                   if (at >= n) {
                       ended = true;
                       for (ItemSession& s : users.records) finish(s.items, unit);
                       return unit;
                   }
                   const int64_t m = std::min(UNIT, n - at);
                   for_unit(user, at, m, [&](int64_t first, int64_t k, const int64_t* keys) {
                       size_t places[64];
                       users.find(keys, k, places);
                       for (int64_t i = 0; i < k; i++) {
                           ItemSession& s = users.records[places[i]];
                           if (!s.items.empty() && ts[first + i] - s.last > timeout) finish(s.items, unit);
                           s.items.push_back(item[first + i]);
                           s.last = ts[first + i];
                       }
                   });
                   at += m;
                   return unit;
               }) &
               tbb::make_filter<Unit*, Unit*>(tbb::filter_mode::parallel, [](Unit* unit) -> Unit* {
                   std::vector<int64_t> one;
                   int64_t begin = 0;
                   for (int64_t end : unit->ends) {
                       one.assign(unit->items.begin() + begin, unit->items.begin() + end);
                       close_session(one, unit->made);
                       begin = end;
                   }
                   return unit;
               }) &
               tbb::make_filter<Unit*, void>(tbb::filter_mode::serial_in_order, [&](Unit* unit) {
                   for (const auto& pair : unit->made.pairs) counts.add(pair.first, pair.second);
                   delete unit;
               });
    });
    std::vector<Pair> best;
    counts.collect_best(best, static_cast<size_t>(limit));
    return write_best(best, rows);
}

extern "C" void onetbb_q4(const int64_t* ts, const int64_t* user, const int64_t* page, int64_t n,
                          int64_t timeout, int64_t dynamic, int64_t order, int64_t* result, int threads) {
    Users<PageSession> users;
    Abandoned found{timeout, dynamic, order};
    int64_t at = 0;
    run(threads, [&] {
        const auto mode = tbb::filter_mode::serial_in_order;
        return units(at, n) & tbb::make_filter<Unit*, void>(mode, [&](Unit* unit) {
                   for_unit(user, unit->first, unit->n, [&](int64_t first, int64_t k, const int64_t* keys) {
                       size_t places[64];
                       users.find(keys, k, places);
                       for (int64_t i = 0; i < k; i++)
                           found.add(users.records[places[i]], ts[first + i], page[first + i]);
                   });
                   delete unit;
               });
    });
    for (const PageSession& s : users.records) found.close(s);
    result[0] = found.clicks;
    result[1] = found.sessions;
}

extern "C" void onetbb_speed(const int64_t* ts, const int64_t* user, const int64_t* item, int64_t n,
                             double* speed, int threads) {
    Users<LastClick> users;
    int64_t at = 0;
    run(threads, [&] {
        const auto mode = tbb::filter_mode::serial_in_order;
        return units(at, n) & tbb::make_filter<Unit*, Unit*>(mode, [&](Unit* unit) -> Unit* {
                   unit->steps.resize(static_cast<size_t>(unit->n));
                   unit->gaps.resize(static_cast<size_t>(unit->n));
                   for_unit(user, unit->first, unit->n, [&](int64_t first, int64_t k, const int64_t* keys) {
                       size_t places[64];
                       users.find(keys, k, places);
                       for (int64_t i = 0; i < k; i++) {
                           LastClick& last = users.records[places[i]];
                           const size_t to = static_cast<size_t>(first + i - unit->first);
                           unit->steps[to] = last.any ? static_cast<double>(item[first + i] - last.item)
                                                      : std::numeric_limits<double>::quiet_NaN();
                           unit->gaps[to] = static_cast<double>(ts[first + i] - last.ts);
                           last = {ts[first + i], item[first + i], true};
                       }
                   });
                   return unit;
               }) &
               tbb::make_filter<Unit*, Unit*>(tbb::filter_mode::parallel, [](Unit* unit) -> Unit* {
                   for (size_t i = 0; i < unit->steps.size(); i++) unit->steps[i] /= unit->gaps[i];
                   return unit;
               }) &
               tbb::make_filter<Unit*, void>(tbb::filter_mode::serial_in_order, [&](Unit* unit) {
                   std::copy(unit->steps.begin(), unit->steps.end(), speed + unit->first);
                   delete unit;
               });
    });
}

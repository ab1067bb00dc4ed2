// oneTBB's parallel_pipeline doing the work of bench_stateless: the same values, the same spin, the same
// unit size, in order.
//
//   serial_in_order input  ->  parallel spin  ->  serial_in_order output
//   (takes the next unit)      (into its own      (copies the unit's results
//                               buffer)            to the output array)
//
// A unit's buffer comes from a ring of `tokens` buffers: at most that many units are in flight, and they
// leave in order.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/version.h>

static volatile int64_t opaque_zero = 0;

struct Unit {
    const int64_t* values;
    int64_t* results;
    int64_t n;
    int64_t at;
    int64_t* buffer;
};

static inline int64_t spin(int64_t value, int64_t steps) {
    uint64_t x = static_cast<uint64_t>(value);
    for (int64_t i = 0; i < steps; i++) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>(x + 1);
}

extern "C" const char* onetbb_version() { return TBB_VERSION_STRING; }

// Returns wall nanoseconds. `results` holds the last round's.
extern "C" int64_t onetbb_stateless(const int64_t* values, int64_t n, int64_t rounds, int64_t unit,
                                    int64_t spins, int threads, int tokens, int64_t* results) {
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
    tbb::task_arena arena(threads);
    std::vector<Unit> ring(tokens);
    std::vector<int64_t> buffers(static_cast<size_t>(tokens) * unit);
    for (int k = 0; k < tokens; k++) ring[k].buffer = buffers.data() + static_cast<size_t>(k) * unit;
    int64_t round = 0, at = 0, issued = 0;
    const int64_t zero = opaque_zero;
    const auto start = std::chrono::steady_clock::now();
    arena.execute([&] {
        tbb::parallel_pipeline(
            tokens,
            tbb::make_filter<void, Unit*>(tbb::filter_mode::serial_in_order,
                [&](tbb::flow_control& fc) -> Unit* {
                    if (at >= n) { at = 0; round++; }
                    if (round >= rounds) { fc.stop(); return nullptr; }
                    Unit* u = &ring[issued++ % tokens];
                    u->values = values + at;
                    u->n = unit < n - at ? unit : n - at;
                    u->at = at;
                    at += u->n;
                    return u;
                }) &
            tbb::make_filter<Unit*, Unit*>(tbb::filter_mode::parallel,
                [=](Unit* u) -> Unit* {
                    int64_t last = 0;
                    if (spins == 0) {
                        for (int64_t i = 0; i < u->n; i++) u->buffer[i] = spin(u->values[i], 0);
                    } else {
                        for (int64_t i = 0; i < u->n; i++)
                            u->buffer[i] = last = spin(u->values[i] + (last & zero), spins);
                    }
                    return u;
                }) &
            tbb::make_filter<Unit*, void>(tbb::filter_mode::serial_in_order,
                [&](Unit* u) {
                    std::memcpy(results + u->at, u->buffer, static_cast<size_t>(u->n) * sizeof(int64_t));
                }));
    });
    const auto taken = std::chrono::steady_clock::now() - start;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count();
}

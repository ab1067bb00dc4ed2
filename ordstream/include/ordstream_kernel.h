/* ordstream_kernel.h: what a compiled user function gets, and what it must give back.
 *
 * A compiled kernel is one C function, called without the GIL, on any worker, once per chunk (or per part of
 * a chunk):
 *
 *     int64_t f(int64_t n, void* call, void* user_data);      // call: ordstream_call*
 *
 * (the convention of SciPy's LowLevelCallable). It handles rows k = 0 .. n-1 in order and returns
 *
 *     n         all rows are done;
 *     -1 - k    row k failed: rows 0 .. k-1 are done, row k has emitted nothing that counts.
 *
 * Anything else is taken as a failure of row 0.
 *
 * Rules
 *   Order      Outputs are appended in row order; the outputs of one row in the order in which they were
 *              emitted.
 *   Fan-out    One row emits at most `fan_out` outputs; a row that needs more must fail. `capacity` is n *
 *              fan_out.
 *   Memory     Everything that `call` points to belongs to the runtime and may be used during the call only.
 *              Inputs are read-only. A view that is written as an output may point into the inputs, into
 *              constants that outlive the run, or into memory from `alloc`; the runtime keeps the inputs
 *              alive as long as the outputs.
 *   Threads    Several workers may be in the same function at once, never with the same state record.
 *              `user_data` is shared by all of them.
 *   Repeats    A chunk with a failing row may be handed to the function again (rows 0 .. k-1, from the same
 *              state), so a function must depend on nothing but its rows, its states and constants.
 *   GIL        The function runs without it. A function that takes it (a Python callback) works, but stops
 *              every worker.
 *
 * Values: integers, floats in their own width; bool one byte, 0 or 1; dates, times, timestamps and durations
 * the integer count of their unit (32 or 64 bits); strings, binaries and lists an ordstream_view; decimal128
 * 16 bytes.
 */
#ifndef ORDSTREAM_KERNEL_H
#define ORDSTREAM_KERNEL_H

#include <stdint.h>

#define ORDSTREAM_KERNEL_VERSION 1

typedef struct ordstream_view {
    const char* data;
    int64_t size;                     /* bytes; of a list: elements */
} ordstream_view;

typedef struct ordstream_column {
    char* data;                       /* values, indexed by slot; NULL: an input column that nothing reads */
    uint8_t* valid;                   /* one byte per slot, 0 = null; NULL: no nulls */
} ordstream_column;

typedef struct ordstream_call {
    int32_t version;                  /* ORDSTREAM_KERNEL_VERSION of the runtime; new fields come last */
    int32_t fan_out;                  /* most outputs that one row may emit */
    /* in */
    const ordstream_column* columns;  /* in the order of the operator's input schema */
    const int32_t* rows;              /* slot of row k; never NULL */
    /* state: NULL, 0, NULL for a stateless operator. Row k's state is at states + records[k] * state_stride,
       in the layout of a C struct with the declared fields; all zero when its key is new. 8-byte aligned. */
    char* states;
    int64_t state_stride;
    const int32_t* records;
    /* out: written at indexes 0 .. n_out-1, all columns and the origin */
    const ordstream_column* out;      /* valid: non-NULL for nullable columns, all ones before the call */
    int32_t* origin;                  /* slot of the row that caused the output */
    int64_t capacity;
    int64_t n_out;                    /* 0 before the call; set it before returning,
        also when a row failed */
    char* (*alloc)(struct ordstream_call* call,
                   int64_t size);  /* memory for output views; NULL: none left */
    void* runtime;                    /* the runtime's own */
} ordstream_call;

/* State of row k. */
static inline char* ordstream_state(const ordstream_call* call, int64_t k) {
    return call->states + call->records[k] * call->state_stride;
}

/* 1 when the value of a column at a slot is not null. */
static inline int ordstream_is_valid(const ordstream_column* column, int32_t slot) {
    return column->valid == 0 || column->valid[slot] != 0;
}

#endif

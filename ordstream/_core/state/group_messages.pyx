"""Rows of state as the messages of a state file (docs/checkpoint-format.md), where all columns are of whole
bytes and without nulls: then a message is a head, which depends on the number of rows only, and the columns,
each padded to eight bytes. Who calls has the heads from Arrow.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from ordstream._core.ground.low_priority cimport run_work

cdef enum:
    MOST_COLUMNS = 64
    PAD = 8                    # Arrow's alignment of buffers inside a message

MAX_COLUMNS = MOST_COLUMNS

ctypedef const char* Values

cdef struct Messages:
    const char* heads          # all of them
    const int64_t* head_at     # per group: where its head begins there
    const int64_t* starts      # per group: where its message begins in `out`; one more: the end of all
    const int64_t* ends        # per group: where its rows end
    const int64_t* rows        # row numbers in the order of the file
    int64_t ngroups
    int32_t ncols
    Values* columns
    int32_t* widths
    char* out


cdef void gather(const char* column, int32_t width, const int64_t* rows, int64_t n, char* to) noexcept nogil:
    """Values of some rows, one behind the other. Cost: ~2 ns per value."""
    cdef int64_t i
    if width == 8:
        for i in range(n):
            (<int64_t*> to)[i] = (<const int64_t*> column)[rows[i]]
    elif width == 4:
        for i in range(n):
            (<int32_t*> to)[i] = (<const int32_t*> column)[rows[i]]
    else:
        for i in range(n):
            memcpy(to + i * width, column + rows[i] * width, width)


cdef void write_messages(void* context) noexcept nogil:
    """All messages, into `out`."""
    cdef Messages* m = <Messages*> context
    cdef int64_t first = 0
    cdef int64_t size
    cdef int64_t body
    cdef int64_t n
    cdef int64_t g
    cdef int32_t j
    cdef char* to
    for g in range(m.ngroups):
        n = m.ends[g] - first
        if n:
            body = 0
            for j in range(m.ncols):
                body += (n * m.widths[j] + PAD - 1) // PAD * PAD
            to = m.out + m.starts[g]
            size = m.starts[g + 1] - m.starts[g] - body
            memcpy(to, m.heads + m.head_at[g], size)
            to += size
            for j in range(m.ncols):
                size = n * m.widths[j]
                gather(m.columns[j], m.widths[j], m.rows + first, n, to)
                memset(to + size, 0, -size & (PAD - 1))
                to += (size + PAD - 1) // PAD * PAD
        first = m.ends[g]


def messages(columns, const int64_t[::1] rows, const int64_t[::1] ends, bytes heads,
             const int64_t[::1] head_at, const int64_t[::1] starts, char[::1] out, bint low=False):
    """Write one message per group that has rows.

    Parameters: `columns`: (address, width in bytes) of each, at most MAX_COLUMNS; `rows`: their numbers in
    the order of the file; `ends`: where each group ends among them; `heads`: what messages begin with,
    `head_at` per group where its own does; `starts`: where each group's message begins in `out`, and where
    the last one ends (a group without rows has none); `low`: on a thread of lower priority. Thread safety:
    pure; runs without the GIL. Ownership: the caller's memory. Raises: ValueError where the sizes don't fit.
    Cost: ~5 ns per row and column.
    """
    cdef Values[MOST_COLUMNS] at
    cdef int32_t[MOST_COLUMNS] widths
    cdef Messages m
    cdef int32_t j
    if len(columns) > MOST_COLUMNS or len(starts) != len(ends) + 1 or len(head_at) != len(ends):
        raise ValueError("sizes of columns or groups don't fit")
    if starts[len(ends)] > len(out) or (len(ends) and ends[len(ends) - 1] != len(rows)):
        raise ValueError("messages or rows don't fit")
    if not len(rows):
        return
    m.heads = heads
    m.head_at = &head_at[0]
    m.starts = &starts[0]
    m.ends = &ends[0]
    m.rows = &rows[0]
    m.ngroups = len(ends)
    m.ncols = len(columns)
    m.out = &out[0]
    for j, (address, width) in enumerate(columns):
        at[j] = <const char*> <size_t> address
        widths[j] = width
    m.columns = at
    m.widths = widths
    with nogil:
        run_work(write_messages, &m, low)

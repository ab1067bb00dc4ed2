"""A column that must ascend and does not: how a kernel says so.

One rule holds for all operators that rely on time, for `assert_ordered` and for time punctuations. A row is
compared with the last row that was accepted before it: of its key, or of all rows where there is one state.
Equal values are fine. The message for the user is made in Python (`ordstream/ground/ordercheck.py`), which
can format a timestamp; the core passes numbers.

Inline only: there is no module of this name at run time.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from ordstream._core.ground.chunk cimport FAIL_EARLIER, Failure, failure_set


cdef inline void failure_earlier(Failure* f, int32_t slot, int32_t column, int64_t now,
                                 int64_t before) noexcept nogil:
    """The row in `slot` comes before the row before it: `now` and `before` are its and that row's widened
    value (`load`) in the input column `column`. Thread safety: the failure's owner. Cost: ~300 ns."""
    cdef char[72] text
    snprintf(text, sizeof(text), "%d %lld %lld", <int> column, <long long> now, <long long> before)
    failure_set(f, slot, FAIL_EARLIER, text)

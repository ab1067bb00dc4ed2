"""Space-Saving on key words. See space_saving.pxd for the design."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from ordstream._core.balance.hashing cimport word_of_key
from ordstream._core.ground.mixing cimport mix64

import numpy as np


cdef class StreamSummary:
    """Counters of the most frequent words of a stream.

    Parameters
    ----------
    capacity : int
        Counters, 1 to 2^26.
    """

    def __cinit__(self, int64_t capacity):
        cdef uint64_t size = 4
        if not 1 <= capacity <= 1 << 26:
            raise ValueError(f"the number of counters must be 1 to 2^26, not {capacity}")
        while size < 2 * <uint64_t> capacity:
            size *= 2
        self.capacity = <int32_t> capacity
        self.mask = size - 1
        self.counters = <Counter*> malloc(capacity * sizeof(Counter))
        self.groups = <Group*> malloc((capacity + 1) * sizeof(Group))
        self.table = <int32_t*> calloc(size, sizeof(int32_t))
        self.entered = <int64_t*> malloc(capacity * sizeof(int64_t))
        if self.counters == NULL or self.groups == NULL or self.table == NULL or self.entered == NULL:
            raise MemoryError(f"{capacity} counters")
        self._empty()

    def __dealloc__(self):
        free(self.counters)
        free(self.groups)
        free(self.table)
        free(self.entered)

    cdef void _empty(self) noexcept nogil:
        cdef int32_t i
        for i in range(self.capacity + 1):
            self.groups[i].next = i + 1 if i < self.capacity else -1
        self.free_group = 0
        self.lowest = -1
        self.used = 0
        self.total = 0

    cdef int32_t _find(self, uint64_t word) noexcept nogil:
        cdef uint64_t at = mix64(word) & self.mask
        while self.table[at]:
            if self.counters[self.table[at] - 1].word == word:
                return self.table[at] - 1
            at = (at + 1) & self.mask
        return -1

    cdef void _place(self, uint64_t word, int32_t counter) noexcept nogil:
        cdef uint64_t at = mix64(word) & self.mask
        while self.table[at]:
            at = (at + 1) & self.mask
        self.table[at] = counter + 1

    cdef void _remove(self, uint64_t word) noexcept nogil:
        # Deletion by shifting back: move entries that a search would no longer reach. The entry at `at` may
        # fill the hole if and only if its home position is not in (hole, at].
        cdef uint64_t hole = mix64(word) & self.mask
        cdef uint64_t at
        cdef uint64_t home
        while self.counters[self.table[hole] - 1].word != word:
            hole = (hole + 1) & self.mask
        at = (hole + 1) & self.mask
        while self.table[at]:
            home = mix64(self.counters[self.table[at] - 1].word) & self.mask
            if ((at - home) & self.mask) >= ((at - hole) & self.mask):
                self.table[hole] = self.table[at]
                hole = at
            at = (at + 1) & self.mask
        self.table[hole] = 0

    cdef void _attach(self, int32_t counter, int64_t count, int32_t after) noexcept nogil:
        """Put a counter that is in no group into the group of `count`, which is made if there is none.
        `after`: a group with a smaller count, from which the search starts; -1: from the lowest."""
        cdef Group* g = self.groups
        cdef int32_t next = g[after].next if after >= 0 else self.lowest
        cdef int32_t group
        while next >= 0 and g[next].count < count:
            after = next
            next = g[next].next
        if next >= 0 and g[next].count == count:
            group = next
        else:
            group = self.free_group
            self.free_group = g[group].next
            g[group].count = count
            g[group].first = -1
            g[group].last = -1
            g[group].next = next
            g[group].previous = after
            if next >= 0:
                g[next].previous = group
            if after >= 0:
                g[after].next = group
            else:
                self.lowest = group
        self.counters[counter].group = group
        self.counters[counter].next = -1
        self.counters[counter].previous = g[group].last
        if g[group].last >= 0:
            self.counters[g[group].last].next = counter
        else:
            g[group].first = counter
        g[group].last = counter

    cdef int32_t _detach(self, int32_t counter) noexcept nogil:
        """Take a counter out of its group. Returns the group; if it became empty and was freed, the one
        before it (-1: none)."""
        cdef Counter* c = &self.counters[counter]
        cdef int32_t group = c.group
        cdef Group* g = &self.groups[group]
        cdef int32_t previous
        if c.previous >= 0:
            self.counters[c.previous].next = c.next
        else:
            g.first = c.next
        if c.next >= 0:
            self.counters[c.next].previous = c.previous
        else:
            g.last = c.previous
        if g.first >= 0:
            return group
        previous = g.previous
        if previous >= 0:
            self.groups[previous].next = g.next
        else:
            self.lowest = g.next
        if g.next >= 0:
            self.groups[g.next].previous = previous
        g.next = self.free_group
        self.free_group = group
        return previous

    cdef int32_t _count(self, uint64_t word, int64_t count, int64_t row) noexcept nogil:
        """Count a word `count` (>= 1) times.

        Thread safety: the one writer. Ownership: none. Returns: its counter. Cost: O(1) for count 1, else
        O(groups passed over).
        """
        cdef int32_t counter = self._find(word)
        cdef int64_t old
        cdef int32_t after
        self.total += count
        if counter < 0 and self.used < self.capacity:
            counter = self.used
            self.used += 1
            self.counters[counter].word = word
            self.counters[counter].error = 0
            self.entered[counter] = row
            self._place(word, counter)
            self._attach(counter, count, -1)
            return counter
        if counter < 0:
            counter = self.groups[self.lowest].first
            self._remove(self.counters[counter].word)
            self.counters[counter].word = word
            self.counters[counter].error = self.groups[self.lowest].count
            self.entered[counter] = row
            self._place(word, counter)
        old = self.groups[self.counters[counter].group].count
        after = self._detach(counter)
        self._attach(counter, old + count, after)
        return counter

    def update(self, const uint64_t[::1] words, const int64_t[::1] counts=None):
        """Count every word, in order, once or counts[i] (>= 0) times.

        Thread safety: one writer; runs without the GIL. Ownership: a new array. Returns: int64 array
        (capacity): the row of this batch at which each counter got its present word, -1: before this batch.
        Raises: ValueError for a negative count, OverflowError when the total would pass 2^63 - 1; nothing is
        counted then. Cost: O(1) per word with count 1.
        """
        cdef Py_ssize_t n = words.shape[0]
        cdef Py_ssize_t k
        cdef int32_t i
        cdef int64_t total = self.total
        cdef bint weighted = counts is not None
        if weighted:
            if counts.shape[0] != n:
                raise ValueError(f"{n} keys but {counts.shape[0]} counts")
            for k in range(n):
                if counts[k] < 0:
                    raise ValueError(f"a count is negative: {counts[k]} at row {k}")
                if counts[k] > INT64_MAX - total:
                    raise OverflowError("the sum of counts passes 2^63 - 1")
                total += counts[k]
        elif n > INT64_MAX - total:
            raise OverflowError("the sum of counts passes 2^63 - 1")
        with nogil:
            for i in range(self.capacity):
                self.entered[i] = -1
            for k in range(n):
                if not weighted:
                    self._count(words[k], 1, k)
                elif counts[k] > 0:
                    self._count(words[k], counts[k], k)
        out = np.empty(self.capacity, dtype=np.int64)
        cdef int64_t[::1] to = out
        for i in range(self.capacity):
            to[i] = self.entered[i]
        return out

    def update_key(self, key, int64_t count=1):
        """Count one Python key `count` (>= 0) times.

        Returns: the counter that the key has just got; -1 if it had one already, or if count is 0. Raises:
        as `update`.
        """
        cdef uint64_t word = word_of_key(key)
        cdef int32_t counter
        if count < 0:
            raise ValueError(f"a count is negative: {count}")
        if count > INT64_MAX - self.total:
            raise OverflowError("the sum of counts passes 2^63 - 1")
        if count == 0:
            return -1
        if self._find(word) >= 0:
            self._count(word, count, 0)
            return -1
        counter = self._count(word, count, 0)
        return counter

    def estimate(self, uint64_t word):
        """The count of a word's counter, or `least` if it has none. Cost: O(1)."""
        cdef int32_t counter = self._find(word)
        return self.groups[self.counters[counter].group].count if counter >= 0 else self.least

    def state(self):
        """(words, counts, errors, counters): one array each, an item per counter in use, by ascending count;
        counters of one count from the oldest to the newest.

        This order is part of the state; `load` restores it.
        """
        words = np.empty(self.used, dtype=np.uint64)
        counts = np.empty(self.used, dtype=np.int64)
        errors = np.empty(self.used, dtype=np.int64)
        counters = np.empty(self.used, dtype=np.int32)
        cdef uint64_t[::1] w = words
        cdef int64_t[::1] c = counts
        cdef int64_t[::1] e = errors
        cdef int32_t[::1] at = counters
        cdef int32_t group = self.lowest
        cdef int32_t counter
        cdef int32_t k = 0
        while group >= 0:
            counter = self.groups[group].first
            while counter >= 0:
                w[k] = self.counters[counter].word
                c[k] = self.groups[group].count
                e[k] = self.counters[counter].error
                at[k] = counter
                k += 1
                counter = self.counters[counter].next
            group = self.groups[group].next
        return words, counts, errors, counters

    def load(self, const uint64_t[::1] words, const int64_t[::1] counts, const int64_t[::1] errors,
             int64_t total):
        """Replace the content: counter i gets words[i], ...; counts ascending. `total`: tuples counted, >=
        the sum of counts.

        Raises: ValueError for arrays that can't be a state; the content is then unchanged.
        """
        cdef Py_ssize_t n = words.shape[0]
        cdef Py_ssize_t i
        cdef uint64_t size = self.mask + 1
        if n > self.capacity or counts.shape[0] != n or errors.shape[0] != n:
            raise ValueError(f"{n} words, {counts.shape[0]} counts and {errors.shape[0]} errors do not fit "
                             f"{self.capacity} counters")
        summed = 0
        for i in range(n):
            if counts[i] < 1 or not 0 <= errors[i] <= counts[i] or (i and counts[i] < counts[i - 1]):
                raise ValueError(f"counter {i} has count {counts[i]} and error {errors[i]}")
            summed += counts[i]
        if len(set(np.asarray(words).tolist())) != n:
            raise ValueError("a word has two counters")
        if summed > total:
            raise ValueError(f"the counts sum to {summed}, more than {total} tuples")
        for i in range(<Py_ssize_t> size):
            self.table[i] = 0
        self._empty()
        for i in range(n):
            self.counters[i].word = words[i]
            self.counters[i].error = errors[i]
            self._place(words[i], <int32_t> i)
            # Counts ascend, so the counter belongs to the highest group, that of the counter before, or to a
            # new one behind it.
            self._attach(<int32_t> i, counts[i],
                         self.counters[i - 1].group if i and counts[i] > counts[i - 1] else
                         (self.groups[self.counters[i - 1].group].previous if i else -1))
        self.used = <int32_t> n
        self.total = total

    @property
    def least(self):
        """The least count of all counters, 0 while some are free. A word without a counter occurred at most
        so often."""
        return self.groups[self.lowest].count if self.used == self.capacity else 0

"""From key words to instances. See key_route.pxd for the design."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from ordstream._core.balance.hashing cimport TwoUniversal, universal_cell
from ordstream._core.ground.mixing cimport mix64

import numpy as np

cdef const int32_t[::1] _instances_in_range(object values, int32_t instances, str what):
    """A private int32 copy, checked."""
    made = np.array(values, dtype=np.int32, order="C")
    if made.ndim != 1 or (len(made) and not (0 <= made.min() and made.max() < instances)):
        raise ValueError(f"{what} names an instance outside 0 to {instances - 1}")
    return made


cdef class DeployedMap:
    """Key words to instances: heavy words by table, the others by hash function and bucket table.

    Parameters
    ----------
    instances : int
    hashes : TwoUniversal
        Its first function maps words to buckets.
    buckets : int32 array (hashes.columns)
        Instance of each bucket.
    words : uint64 array
        Heavy words, all different.
    first, second : int32 array
        Instance of each heavy word, and its alternative (the same, but for DKG_PKG).
    """

    def __cinit__(self, int32_t instances, TwoUniversal hashes not None, buckets, words, first, second):
        cdef const uint64_t[::1] w = np.ascontiguousarray(words, dtype=np.uint64)
        cdef const int32_t[::1] a
        cdef const int32_t[::1] b
        cdef uint64_t places = 4
        cdef uint64_t at
        cdef Py_ssize_t i
        if instances < 1:
            raise ValueError(f"the number of instances must be at least 1, not {instances}")
        self.instances = instances
        self.hashes = hashes
        self.buckets = _instances_in_range(buckets, instances, "a bucket")
        a = _instances_in_range(first, instances, "a heavy hitter")
        b = _instances_in_range(second, instances, "a heavy hitter")
        if self.buckets.shape[0] != hashes.columns:
            raise ValueError(f"{self.buckets.shape[0]} buckets do not fit a hash function with "
                             f"{hashes.columns} columns")
        if a.shape[0] != w.shape[0] or b.shape[0] != w.shape[0]:
            raise ValueError(f"{w.shape[0]} heavy hitters but {a.shape[0]} and {b.shape[0]} instances")
        while places < 4 * <uint64_t> w.shape[0]:
            places *= 2
        self.heavy = <Heavy*> malloc(places * sizeof(Heavy))
        if self.heavy == NULL:
            raise MemoryError(f"{w.shape[0]} heavy hitters")
        self.mask = places - 1
        for at in range(places):
            self.heavy[at].first = -1
        for i in range(w.shape[0]):
            if self.find(w[i]) != NULL:
                raise ValueError(f"heavy hitter {i} is named twice")
            at = mix64(w[i]) & self.mask
            while self.heavy[at].first >= 0:
                at = (at + 1) & self.mask
            self.heavy[at].word = w[i]
            self.heavy[at].first = a[i]
            self.heavy[at].second = b[i]
        self.heavy_words = w.shape[0]

    def __dealloc__(self):
        free(self.heavy)

    cdef const Heavy* find(self, uint64_t word) noexcept nogil:
        """Place of a heavy word, or NULL. Cost: O(1)."""
        cdef uint64_t at = mix64(word) & self.mask
        while self.heavy[at].first >= 0:
            if self.heavy[at].word == word:
                return &self.heavy[at]
            at = (at + 1) & self.mask
        return NULL

    def route(self, const uint64_t[::1] words):
        """GETINSTANCE of Listing 3.2 for every word: int32 array.

        Thread safety: any thread; runs without the GIL. Ownership: a new array. Cost: 3-10 ns per word.
        """
        out = np.empty(words.shape[0], dtype=np.int32)
        cdef int32_t[::1] to = out
        cdef const Heavy* place
        cdef Py_ssize_t i
        with nogil:
            for i in range(words.shape[0]):
                place = self.find(words[i])
                if place != NULL:
                    to[i] = place.first
                else:
                    to[i] = self.buckets[universal_cell(self.hashes, 0, words[i])]
        return out

    def route_loaded(self, const uint64_t[::1] words, int64_t[::1] received):
        """As `route`, but a heavy word goes to that of its two instances which has received fewer tuples so
        far; to the first where both have received as many.

        `received` holds how many each instance has received, and is counted up tuple by tuple.

        Thread safety: one caller at a time per `received`; runs without the GIL. Ownership: a new array.
        Cost: 3-10 ns per word.
        """
        if received.shape[0] != self.instances:
            raise ValueError(f"{received.shape[0]} counts but {self.instances} instances")
        out = np.empty(words.shape[0], dtype=np.int32)
        cdef int32_t[::1] to = out
        cdef const Heavy* place
        cdef int32_t instance
        cdef Py_ssize_t i
        with nogil:
            for i in range(words.shape[0]):
                place = self.find(words[i])
                if place == NULL:
                    instance = self.buckets[universal_cell(self.hashes, 0, words[i])]
                else:
                    instance = (place.second if received[place.second] < received[place.first]
                                else place.first)
                received[instance] += 1
                to[i] = instance
        return out


def route_two_choices(const uint64_t[::1] words, int64_t[::1] received, uint64_t seed):
    """PKG: two hash functions name two instances for each word, and the one that has received fewer tuples
    gets the tuple; the first where both have received as many.

    The functions are MurmurHash3's 64-bit finaliser (Stafford's variant 13) of the word with two seeds; they
    may name the same instance.

    Thread safety: one caller at a time per `received`; runs without the GIL. Ownership: a new array. Cost:
    5-10 ns per word.
    """
    cdef uint64_t k = <uint64_t> received.shape[0]
    out = np.empty(words.shape[0], dtype=np.int32)
    cdef int32_t[::1] to = out
    cdef uint64_t seed_1 = mix64(seed)
    cdef uint64_t seed_2 = mix64(seed_1 ^ seed)
    cdef uint64_t first
    cdef uint64_t second
    cdef Py_ssize_t i
    with nogil:
        for i in range(words.shape[0]):
            first = mix64(words[i] ^ seed_1) % k
            second = mix64(words[i] ^ seed_2) % k
            if received[second] < received[first]:
                first = second
            received[first] += 1
            to[i] = <int32_t> first
    return out


def least_loaded(const double[::1] loads, int32_t instances):
    """Graham's greedy scheduling: give each load, in this order, to the instance with the least load so far;
    among equals to the one with the lowest number.

    With loads in descending order this is LPT, called `scheduling` in the papers (DKG, section 3.1).

    Thread safety: pure; runs without the GIL. Ownership: new arrays. Returns: (instance per load int32, load
    per instance float64). Cost: O(n log k).
    """
    placed = np.empty(loads.shape[0], dtype=np.int32)
    total = np.zeros(instances, dtype=np.float64)
    order = np.arange(instances, dtype=np.int32)
    cdef int32_t[::1] to = placed
    cdef double[::1] sums = total
    cdef int32_t[::1] heap = order          # of instances by (load, id)
    cdef int32_t k
    cdef int32_t child
    cdef int32_t moved
    cdef Py_ssize_t i
    with nogil:
        for i in range(loads.shape[0]):
            moved = heap[0]
            to[i] = moved
            sums[moved] += loads[i]
            k = 0
            while True:
                child = 2 * k + 1
                if child >= instances:
                    break
                if child + 1 < instances and lighter(sums, heap[child + 1], heap[child]):
                    child += 1
                if not lighter(sums, heap[child], moved):
                    break
                heap[k] = heap[child]
                k = child
            heap[k] = moved
    return placed, total


cdef inline bint lighter(const double[::1] sums, int32_t a, int32_t b) noexcept nogil:
    return sums[a] < sums[b] or (sums[a] == sums[b] and a < b)

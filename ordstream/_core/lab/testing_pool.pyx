"""Test door: the pool of chunks (ground/chunk.pxd), with workers that one thread drives, or several that run
free. Used for testing only.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from ordstream._core.ground.atomics cimport as_int, as_pointer, load_relaxed
from ordstream._core.ground.chunk cimport (
    Block, Chunk, ChunkPool, Worker, chunk_alloc, chunk_free, chunk_new, pool_free, pool_init, worker_free,
    worker_init,
)

CHUNK_BYTES = sizeof(Chunk)


cdef inline int64_t blocks_of(const Chunk* c) noexcept nogil:
    cdef const Block* b = c.arena.first
    cdef int64_t bytes = 0
    while b != NULL:
        bytes += <int64_t> sizeof(Block) + b.size
        b = b.next
    return bytes


cdef class PyPool:
    """A pool and `workers` workers. Chunks are addresses.

    Thread safety: a worker is one thread's. Memory ownership: the object; chunks that were taken and not
    given back are the caller's to give back before it dies.
    """
    cdef ChunkPool pool
    cdef Worker* workers
    cdef int32_t n

    def __cinit__(self, int32_t workers, int64_t max_idle):
        cdef int32_t k
        pool_init(&self.pool, 4, max_idle)
        self.n = workers
        self.workers = <Worker*> calloc(workers, sizeof(Worker))
        if self.workers == NULL:
            raise MemoryError
        for k in range(workers):
            worker_init(&self.workers[k], &self.pool, k)

    def __dealloc__(self):
        self.end()

    def take(self, int32_t worker, int64_t size):
        """A chunk, with `size` bytes taken from its memory; and the bytes of its blocks."""
        cdef Chunk* c = chunk_new(&self.workers[worker])
        if c == NULL or (size and chunk_alloc(&self.workers[worker], c, size) == NULL):
            raise MemoryError
        return as_int(c), blocks_of(c)

    def give(self, int32_t worker, int64_t chunk):
        """Give a chunk back, to any worker."""
        chunk_free(&self.workers[worker], <Chunk*> as_pointer(chunk))

    def pass_on(self, int32_t worker, int64_t rounds, int64_t size):
        """Without the GIL, `rounds` times: take eleven chunks, write into each, give them back. Whether
        every one was this worker's alone meanwhile."""
        cdef Worker* w = &self.workers[worker]
        cdef Chunk* held[11]
        cdef char* memory[11]
        cdef int64_t round
        cdef int32_t k
        cdef bint good = True
        with nogil:
            for round in range(rounds):
                for k in range(11):
                    held[k] = chunk_new(w)
                    if held[k] == NULL:
                        good = False
                        break
                    memory[k] = chunk_alloc(w, held[k], size + 1)
                    if memory[k] == NULL:
                        good = False
                        break
                    held[k].ticket = round * 64 + worker
                    memory[k][size] = <char> (worker + 1)
                if not good:
                    break
                for k in range(11):
                    if held[k].ticket != round * 64 + worker or memory[k][size] != <char> (worker + 1):
                        good = False
                    chunk_free(w, held[k])
        return bool(good)

    def figures(self):
        """The pool's counters, every idle group as it is found, and what each worker has cached."""
        cdef Chunk* first = self.pool.free
        cdef Chunk* c
        cdef int64_t chunks
        cdef int64_t bytes
        cdef int32_t k
        groups, cached, idle = [], [], []
        while first != NULL:
            chunks, bytes, c = 0, 0, first
            while c != NULL:
                chunks += 1
                bytes += blocks_of(c)
                idle.append(as_int(c))
                c = c.link
            groups.append((first.n, first.first_serial, chunks, bytes))
            first = first.held_next
        for k in range(self.n):
            chunks, bytes, c = 0, 0, self.workers[k].cached
            while c != NULL:
                chunks += 1
                bytes += blocks_of(c)
                idle.append(as_int(c))
                c = c.link
            cached.append((self.workers[k].ncached, chunks, bytes))
        return {"bytes": load_relaxed(&self.pool.bytes), "idle": self.pool.idle, "groups": groups,
                "cached": cached, "chunks": idle}

    def end(self):
        """Free all; returns the bytes that are still counted: 0."""
        cdef int32_t k
        if self.workers == NULL:
            return 0
        for k in range(self.n):
            worker_free(&self.workers[k])
        free(self.workers)
        self.workers = NULL
        pool_free(&self.pool)
        return load_relaxed(&self.pool.bytes)

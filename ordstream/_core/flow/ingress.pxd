"""Ingress: where serials are assigned and chunks formed. The worklist of the first operator.

a) The feeding thread pushes imported batches into `arriving` (SPSC); any worker takes the next chunk under
   `flag`, one at a time.
b) Chunks form by taking what is there: at most `target_rows`, at most what is due (an open-loop schedule),
   never past a punctuation.
c) The ticket of a chunk is given here, and only if it is below the reorder buffer's limit (gate at
   dispatch).
d) In flight = issued - retired. At max_chunks or max_bytes the ingress stops until both are below 70 %
   (hysteresis). With nothing in flight it always admits one chunk. The bytes are those of everything between
   source and reader, from the first input batch to the last output batch that was not taken (pool.bytes).
   Input is fed ahead up to half of max_bytes, so that input alone cannot stop the ingress; and always when
   there is nothing to do.
e) Time punctuations are a pure function of the tuple sequence: before the first tuple whose column // every
   exceeds the largest seen. The column must ascend: a tuple earlier than the one before it ends the stream
   there. Snapshot markers follow every `snapshot_every` tuples, and a request (`requested`). A marker
   comes in front of a time punctuation at the same place: what that makes operators emit belongs to the
   next tuple.
f) Serials begin behind `base`: a run may be the continuation of another one.
g) A node of several does not look at times: its marks come with its rows, as batches of kind TIME. Such a
   mark has `mark_serials` of its own, so that each key that it makes an operator emit for can get one
   (steps.pxd), and counts as emitted like a row.
Memory ownership: batches belong to the feeding thread's list (runtime.pyx); chunks to the worker that took
them.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.ground.imported_batch cimport Batch
from ordstream._core.ground.atomics cimport a64, load_acquire, load_relaxed, load_seq
from ordstream._core.ground.chunk cimport TIME, Chunk, Worker
from ordstream._core.ground.spsc cimport Spsc
from ordstream._core.ground.threads cimport EventCount
from ordstream._core.flow.exports cimport Exports

cdef enum:
    INGRESS_LOW = 2

cdef struct Ingress:
    Spsc arriving          # Batch*; producer: feeding thread; consumer: flag holder
    a64 flag               # 1 while a worker forms a chunk
    char[120] pad1
    a64 issued_chunks      # chunks and punctuations issued = last ticket; written under flag
    a64 ended              # 1: the end of the stream was issued; written under flag
    a64 throttled          # 1: at the cap, until below 70 %; written under flag
    a64 issued_serial      # last serial issued; written under flag
    char[96] pad2
    a64 retired_chunks     # written by the egress
    a64 emitted_serial     # last serial all of whose outputs are in the egress; written by the egress
    char[112] pad3
    a64 queued_tuples      # rows pushed by the feeding thread (total)
    a64 stop               # 1: form no more chunks (an operator failed)
    a64 requested          # snapshots that were asked for; any thread adds
    a64 served             # of these, how many a marker answers; written under flag
    Exports* exports       # what takes the clock at a marker
    # under flag:
    Batch* current
    int64_t offset         # next row of current
    int32_t ncols
    int32_t time_type      # PhysicalType of the time column
    int32_t time_column    # -1: no time punctuations
    int64_t time_every
    int64_t time_rows      # rows from one time punctuation to the next, at least
    int64_t time_free      # serial from which on there may be one
    int64_t time_now       # time // every of the last time punctuation, or of the first tuple
    int64_t time_last      # latest time seen
    int32_t time_started
    int64_t pending_time   # a punctuation due before the next row: its time
    int32_t time_due
    int32_t time_back      # 1: the next row is earlier than time_last
    int64_t snapshot_every
    int64_t snapshot_next
    int64_t markers        # snapshot markers so far: the number of the last one
    int64_t base           # the serial in front of the run's first one
    int64_t marks          # that came with the rows, issued so far
    int64_t marker_every   # tuples between latency markers
    int64_t marker_next    # serial of the next marker
    # open loop: intended send time of each serial - 1, ns after start; NULL: all are there
    const int64_t* schedule
    int64_t schedule_start
    int64_t throttle_count
    uint64_t shake         # debug: state of the generator that cuts chunks at random; 0: off
    int64_t alone          # 1: one worker in the whole run: no flag
    # notified when fewer than INGRESS_LOW batches wait: the reading thread may also feed. NULL: nobody
    EventCount* reader
    # set before the run, or by the controller:
    a64 target_rows
    a64 target_chunks      # as max_chunks, which it doesn't raise
    int64_t max_chunks
    int64_t max_bytes
    a64* bytes             # in flight bytes counter (ChunkPool.bytes)
    a64 feeder_waits       # 1: the feeding thread has input, but there is no room for it
    a64 retires_at         # once this serial is emitted the feeding thread can release input; written by it
    # with a shed stage (shedding.pxd, b and d); under flag:
    # 1: every chunk carries the arrival of its first tuple, 2: its dispatch; 0: markers only
    int32_t stamp
    int32_t single_every   # one of so many chunks has one row, whose cost can then be measured; 0: none
    int64_t single_clock


cdef inline bint ingress_may_feed(Ingress* g) noexcept nogil:
    """Whether another input batch may be pushed: half of the cap is free, or the core has nothing to do. Any
    thread; may be stale."""
    if load_relaxed(g.bytes) < g.max_bytes // 2:
        return True
    return (load_relaxed(&g.issued_serial) >= load_relaxed(&g.queued_tuples)
            # pairs with store_release in the egress
            and load_relaxed(&g.issued_chunks) <= load_acquire(&g.retired_chunks))


cdef inline bint ingress_wakes_feeder(Ingress* g) noexcept nogil:
    """Whether the feeding thread should be woken: it waits, and there is room, or input that it can release.

    Called by workers after they freed something and cleared a release flag, and before they park. Totally
    ordered with the feeding thread's store_seq and the look that follows (Run.may_feed).
    """
    return load_seq(&g.feeder_waits) != 0 and (
        ingress_may_feed(g) or load_relaxed(&g.emitted_serial) >= load_relaxed(&g.retires_at))


cdef inline int64_t mark_serials() noexcept nogil:
    """Serials of a mark that came with the rows: one for each key that it makes operators emit for. Of the
    2**63 that there are, two thousand million marks may use as many."""
    return <int64_t> 1 << 32


cdef inline bint came_with_rows(const Chunk* c) noexcept nogil:
    """Whether a chunk is such a mark, and has serials left."""
    return c.kind == TIME and c.first_serial < c.last_serial


cdef int ingress_init(Ingress* g, int32_t ncols) noexcept nogil
cdef void ingress_free(Ingress* g) noexcept nogil
cdef Chunk* ingress_take(Ingress* g, Worker* w, int64_t limit) noexcept nogil
cdef int32_t ingress_take_run(Ingress* g, Worker* w, int64_t limit, int32_t most, Chunk** out) noexcept nogil
cdef bint ingress_has_work(Ingress* g, int64_t limit) noexcept nogil

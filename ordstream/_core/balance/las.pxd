"""Load-aware shedding (LAS): the shedder's arithmetic, shared by the objects of ordstream/balance/las.py,
virtual time and the node.

Vocabulary and steps are the paper's (Rivetti, Busnel, Querzoni, section 3): C-hat, the estimated execution
time of all admitted tuples; elapsed, the clock it is compared with (time since the first emission, or in the
node the worker time that the operator received); q-hat = C-hat - elapsed, a tuple's estimated queueing
latency; CHECK, whether admitting it would break the goal.

a) C-hat never lags behind the clock: it is raised to `elapsed` before a tuple is added. Without that an idle
   operator would run up a credit, and the next burst would be admitted against it.
b) A dropped tuple changes nothing but its counter.
c) An admitted tuple now and then *carries* C-hat (its own time included). When it is completed the operator
   answers with delta = elapsed - carried, which is added to C-hat. One is under way at a time; new matrices
   make an older answer void.
d) Without a cost model nothing is estimated and everything is admitted; those tuples are not in the average.
Times are float64 in one unit of the caller's.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

cdef enum CheckKind:
    CHECK_AVERAGE = 0          # mean estimated latency of the admitted tuples <= limit (the paper's)
    CHECK_MAXIMUM = 1          # every estimated latency <= limit

cdef struct CheckState:
    int32_t kind               # CheckKind
    double limit               # tau
    double most_dropped        # largest share of the tuples that may be dropped; 1: no cap
    double latency_sum         # Q: of the admitted tuples' estimated latencies
    int64_t admitted
    int64_t dropped

cdef struct ShedState:
    CheckState* check          # borrowed
    double cumulated           # C-hat
    double carried             # C-hat that the marked tuple carries
    # admitted tuples from one synchronisation to the next; 0: only after new matrices
    int64_t sync_every
    int64_t since_sync
    int64_t blind              # tuples admitted without a cost model
    int32_t informed           # there is a cost model
    int32_t due                # the next admitted tuple is to carry C-hat
    int32_t awaiting           # a tuple that carries it is under way


cdef inline bint check_drops(const CheckState* c, double latency) noexcept nogil:
    """CHECK: whether a tuple with this estimated latency must be dropped. Pure. Cost: one division."""
    if (c.most_dropped < 1.0
            and <double> (c.dropped + 1) > c.most_dropped * <double> (c.admitted + c.dropped + 1)):
        return False
    if c.kind == CHECK_AVERAGE:
        # The second half matters where true latencies have replaced estimates and put the average above the
        # limit (the node): a tuple that would hardly wait is then admitted, or nothing would ever bring the
        # average down again. As long as the average keeps to the limit such a tuple passes the first half.
        return (c.latency_sum + latency) / <double> (c.admitted + 1) > c.limit and latency > 0.5 * c.limit
    return latency > c.limit


cdef inline double shed_backlog(const ShedState* s, double elapsed) noexcept nogil:
    """q-hat of a tuple that arrives now, its own time not included. Pure."""
    return s.cumulated - elapsed if s.cumulated > elapsed else 0.0


cdef inline bint shed_drops(const ShedState* s, double latency) noexcept nogil:
    """Whether a tuple with this q-hat is to be dropped; never without a cost model. Pure."""
    return s.informed and check_drops(s.check, latency)


cdef inline bint shed_admit(ShedState* s, double latency, double elapsed, double time) noexcept nogil:
    """Account for an admitted tuple with estimated latency and execution time. True: it carries C-hat
    (`s.carried`).

    Thread safety: one user at a time. Ownership: none. Cost: a few instructions.
    """
    if not s.informed:
        s.blind += 1
        return False
    if s.cumulated < elapsed:
        s.cumulated = elapsed
    s.cumulated += time
    s.check.latency_sum += latency
    s.check.admitted += 1
    s.since_sync += 1
    if s.awaiting or not (s.due or 0 < s.sync_every <= s.since_sync):
        return False
    s.carried = s.cumulated
    s.since_sync = 0
    s.awaiting = 1
    s.due = 0
    return True


cdef inline void shed_answer(ShedState* s, double elapsed) noexcept nogil:
    """The tuple that carried C-hat was completed at `elapsed`: C-hat += delta."""
    s.cumulated += elapsed - s.carried
    s.awaiting = 0


cdef inline void shed_renewed(ShedState* s) noexcept nogil:
    """New matrices arrived: the next admitted tuple carries C-hat; an answer that is under way is void."""
    s.informed = 1
    s.due = 1
    s.awaiting = 0


cdef class Check:
    # Memory ownership: inline. Thread safety: one user at a time.
    cdef CheckState state

"""Load-aware shedding. See las.pxd for the design."""
from libc.stdint cimport int64_t

KINDS = {"average": CHECK_AVERAGE, "maximum": CHECK_MAXIMUM}


cdef class Check:
    """CHECK of LAS with its running figures.

    Parameters
    ----------
    kind : "average" or "maximum"
    limit : float
        tau, at least 0; infinite: nothing is ever dropped.
    most_dropped : float
        Largest share of the tuples that may be dropped, 0..1.
    """

    def __init__(self, str kind, double limit, double most_dropped=1.0):
        if kind not in KINDS:
            raise ValueError(f"the kind of a check is one of {', '.join(KINDS)}, not {kind!r}")
        if not limit >= 0:
            raise ValueError(f"the limit must be at least 0, not {limit}")
        if not 0 <= most_dropped <= 1:
            raise ValueError(f"the largest share of dropped tuples must lie in 0..1, not {most_dropped}")
        self.state.kind = KINDS[kind]
        self.state.limit = limit
        self.state.most_dropped = most_dropped

    def drops(self, double latency):
        return check_drops(&self.state, latency)

    def admit(self, double latency):
        self.state.latency_sum += latency
        self.state.admitted += 1

    def drop(self):
        self.state.dropped += 1

    @property
    def limit(self):
        return self.state.limit

    @property
    def latency_sum(self):
        return self.state.latency_sum

    @property
    def admitted(self):
        return self.state.admitted

    @property
    def dropped(self):
        return self.state.dropped


cdef class Balance:
    """C-hat and its synchronisation, for a shedder that runs its own CHECK (a Python policy).

    Parameters
    ----------
    sync_every : int
        Admitted tuples from one synchronisation to the next; 0: only after new matrices.
    """

    cdef ShedState state
    cdef CheckState unused

    def __init__(self, int64_t sync_every=1024):
        if sync_every < 0:
            raise ValueError(f"sync_every must be at least 0, not {sync_every}")
        self.state.check = &self.unused
        self.state.sync_every = sync_every

    def backlog(self, double elapsed):
        return shed_backlog(&self.state, elapsed)

    def admit(self, double latency, double elapsed, double time):
        """C-hat if the tuple carries it, else None."""
        return self.state.carried if shed_admit(&self.state, latency, elapsed, time) else None

    def answer(self, double carried, double elapsed):
        """False: the answer belongs to older matrices and was ignored."""
        if not self.state.awaiting or carried != self.state.carried:
            return False
        shed_answer(&self.state, elapsed)
        return True

    def renewed(self):
        shed_renewed(&self.state)

    @property
    def informed(self):
        return bool(self.state.informed)

    @property
    def cumulated(self):
        return self.state.cumulated

    @property
    def blind(self):
        return self.state.blind

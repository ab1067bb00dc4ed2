"""Load-aware shedding as a policy of the simulator: las.pxd's arithmetic in front of one operator instance,
in virtual time."""
from libc.math cimport INFINITY, NAN
from libc.stdint cimport int32_t, int64_t, uint64_t
from ordstream._core.balance.cost_learner cimport CostLearner, learner_reset, learner_update, time_copy
from ordstream._core.balance.count_min cimport TimeMatrices, time_estimate
from ordstream._core.balance.las cimport (
    Check, ShedState, shed_admit, shed_answer, shed_backlog, shed_drops, shed_renewed,
)
from ordstream._core.lab.simulator cimport Policy

cdef enum:
    BY_KEY = 0                 # W/F of the tuple's key (LAS)
    BY_MEAN = 1                # mean of all tuples (Straw-Man)
    KNOWN = 2                  # the tuple's true time (Full Knowledge)
    ALL = 3                    # admit everything

ESTIMATORS = {"las": BY_KEY, "straw-man": BY_MEAN, "full-knowledge": KNOWN, "none": ALL}


cdef class Shedding(Policy):
    """A load shedder in front of one operator instance, in virtual time.

    Parameters
    ----------
    estimator : "las", "straw-man", "full-knowledge" or "none"
    check : Check
    learner : CostLearner, optional
        The operator's side; not for the last two.
    model : TimeMatrices, optional
        To start from (changed by the run); None: the transient until the first matrices.
    known : array of float64 (m), optional
        Execution time of each tuple, for "full-knowledge".
    sync_every : int
        Admitted tuples from one synchronisation to the next; 0: only after new matrices.
    delay : float
        Time that a message of the operator takes.
    estimates : array of float64 (m), optional
        Written: estimated latency of every tuple, dropped ones included; NaN without a cost model.
    """

    cdef ShedState state
    cdef readonly Check check
    cdef readonly CostLearner learner
    cdef TimeMatrices model
    cdef TimeMatrices outbox   # matrices under way
    cdef const double[::1] known
    cdef double[::1] estimates
    cdef int32_t estimator
    cdef bint learns
    cdef bint writes
    cdef double delay
    cdef double first          # first emission; infinite before
    cdef double completed      # elapsed time at which the marked tuple was completed
    cdef int64_t marked        # position of the tuple that carries C-hat, -1: none
    cdef int64_t epoch         # matrices received
    cdef readonly int64_t synchronised
    cdef readonly int64_t informed_from  # position of the first tuple that a cost model judged; -1: none

    def __init__(self, str estimator, Check check not None, *, CostLearner learner=None,
                 TimeMatrices model=None,
                 const double[::1] known=None, int64_t sync_every=1024, double delay=0.0,
                 double[::1] estimates=None):
        if estimator not in ESTIMATORS:
            raise ValueError(f"the estimator is one of {', '.join(ESTIMATORS)}, not {estimator!r}")
        self.estimator = ESTIMATORS[estimator]
        if self.estimator == KNOWN and known is None:
            raise ValueError("full knowledge needs the execution time of each tuple")
        if sync_every < 0:
            raise ValueError(f"sync_every must be at least 0, not {sync_every}")
        if not 0 <= delay < INFINITY:
            raise ValueError(f"the delay of messages must be finite and at least 0, not {delay}")
        if self.estimator in (BY_KEY, BY_MEAN):
            if learner is None and model is None:
                raise ValueError("without a learner and without a model nothing can be estimated")
            if model is None:
                model = TimeMatrices(learner.matrices.hashes)
            if learner is not None:
                if not model.hashes.same_as(learner.matrices.hashes):
                    raise ValueError("the model and the learner need the same rows, columns and hash "
                                     "functions (seed)")
                self.learns = True
                self.outbox = TimeMatrices(model.hashes)
            if model.tuples > 0:
                shed_renewed(&self.state)
        elif self.estimator == KNOWN:
            self.state.informed = 1
            sync_every = 0
        self.check = check
        self.state.check = &check.state
        self.state.sync_every = sync_every
        self.learner = learner
        self.model = model
        self.known = known
        self.delay = delay
        self.writes = estimates is not None
        self.estimates = estimates
        self.first = INFINITY
        self.marked = -1
        self.informed_from = -1

    @property
    def cumulated(self):
        """C-hat."""
        return self.state.cumulated

    @property
    def blind(self):
        """Tuples admitted without a cost model."""
        return self.state.blind

    @property
    def updates(self):
        """Matrices received."""
        return self.epoch

    cpdef int started(self, int32_t instances) except -1:
        if instances != 1:
            raise ValueError(f"a load shedder stands in front of one instance, not {instances}")
        return Policy.started(self, instances)

    cpdef int32_t submit(self, int64_t i, uint64_t word, double now) except? -2:
        cdef double elapsed
        cdef double latency
        cdef double time = 0.0
        if self.first == INFINITY:
            self.first = now
        elapsed = now - self.first
        latency = shed_backlog(&self.state, elapsed)
        if self.writes:
            self.estimates[i] = latency if self.state.informed else NAN
        if self.state.informed and self.informed_from < 0:
            self.informed_from = i
        if shed_drops(&self.state, latency):
            self.check.state.dropped += 1
            return -1
        if self.estimator == KNOWN:
            time = self.known[i]
        elif self.state.informed:
            if self.estimator == BY_KEY:
                time = time_estimate(self.model, word)
            else:
                time = self.model.total_time / <double> self.model.tuples
        if shed_admit(&self.state, latency, elapsed, time):
            self.marked = i
        return 0

    cpdef int executed(self, int64_t i, uint64_t word, int32_t instance, double start, double end) except -1:
        if i == self.marked:
            self.marked = -1
            self.completed = end - self.first
            self.send(end + self.delay, 2 * self.epoch + 1)
        if self.learns and learner_update(self.learner, word, end - start):
            time_copy(self.learner.matrices, self.outbox)
            learner_reset(self.learner)
            self.send(end + self.delay, 0)
        return 0

    cpdef int received(self, int64_t tag, double now) except -1:
        if tag == 0:
            time_copy(self.outbox, self.model)
            shed_renewed(&self.state)
            self.epoch += 1
            self.marked = -1
        elif tag == 2 * self.epoch + 1:
            self.synchronised += 1
            shed_answer(&self.state, self.completed)
        return 0

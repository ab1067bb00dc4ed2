"""Elastic workers (elastic.pxd): slow start, then trusted comparisons around the best number so far.

a) Time is cut into slots in which the number is constant; the first part after a change is not measured. A
   slot gives a rate (work per time), the busy workers (worker time per time) and whether input waited for
   most of it.
b) GROW: at the start (with two workers if enough work is known to wait), and when load returns after idling,
   the number doubles as long as workers are busy and the rate rises. If the rate rises well up to the
   largest number, the controller keeps that number, without a comparison, until the first check.
c) SEARCH: a number is compared with the base in slots that alternate, base, trial, base, ...: a drift of the
   load (state that grows, caches that fill) hits both. Pairs are taken until the mean gain differs from its
   threshold by two standard errors. Losers bound the search; gaps are halved on a logarithmic scale until
   they are a worker or a few per cent wide.
d) HOLD: the base stands. A check, one step to each side, comes after `hold` slots, which double while checks
   change nothing. A rate that is unusual for some slots starts a search at once.
e) When input does not wait, the workers need only keep up, with some room: their number is busy / ROOMY.
   Growing is quick (short slots, doubling), but begins only when input has waited for a whole interval:
   input that comes in pieces waits for a moment each time, and more workers would only share work that one
   does in time. Shrinking takes SPARE_SLOTS. If input waits although workers idle (an operator with one
   worker is the bottleneck), the search restarts from the number that was busy. If less than one worker is
   busy, no operator is the bottleneck: the input or the reader is slow.

Published controllers of this kind compare a level with stored values of its neighbours. Here no value is
older than a slot: while a run's state grows, its rate changes by more than one step of workers would.
"""
from libc.math cimport ceil, fabs, log, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cdef enum:
    MIN_SLICES = 32                # slices in a slot, and four for each worker; a quarter in a short slot
    MOST_SLOTS = 8                 # a slot ends after so many intervals in any case
    MOST_PAIRS = 6
    HOLD_FIRST = 40                # slots
    HOLD_LAST = 640
    STRANGE_SLOTS = 8
    SPARE_SLOTS = 12               # short ones in which fewer workers would do, before there are fewer

cdef double HURRY_NS = 5e5         # work known to wait from which on a run begins with two workers
# part of its fair share that a worker must bring: 5 % more for twice as many
cdef double KAPPA = 0.07
cdef double SURE = 2.0             # standard errors
cdef double FIRST_MARGIN = 0.05    # added to them after one pair, whose own spread is not known
cdef double NOISE_FIRST = 0.04     # standard deviation of one slot before it was measured
cdef double NOISE_LEAST = 0.005
cdef double BUSY = 0.8             # part of the active workers' time from which on all are busy
cdef double IDLE = 0.75            # below: some are not needed
cdef double ROOMY = 0.6            # input does not wait: as busy as workers should be
cdef double FULL = 0.75            # input does not wait: from here on there should be more
cdef double SHIFT = 0.3            # logarithm of two rates at the base whose difference is not noise
cdef double STRANGE = 0.2          # logarithm of a rate that is not the usual one
cdef double NARROW = 1.15          # ratio of neighbours that are not told apart


cdef void elastic_init(Elastic* e, int32_t most, int32_t start, int64_t interval_ns) noexcept nogil:
    """A controller for 1 to `most` workers that begins with `start`. Slots take interval_ns or more."""
    memset(e, 0, sizeof(Elastic))
    e.most = most
    e.target = start if start < most else most
    e.base = e.target
    e.high = most + 1
    e.hold = HOLD_FIRST
    e.interval_ns = interval_ns
    e.settling = 1
    e.noise = NOISE_FIRST * NOISE_FIRST
    e.least = e.target
    e.largest = e.target


cdef void begin_slot(Elastic* e, int64_t now, double work, double busy_ns, int64_t slices) noexcept nogil:
    e.settling = 0
    e.looks = 0
    e.waits = 0
    e.previous_start = e.slot_start
    e.slot_start = now
    e.slot_work = work
    e.slot_busy = busy_ns
    e.slot_slices = slices


cdef void elastic_restart(Elastic* e, int64_t now) noexcept nogil:
    """Drop the slot being measured: the wanted workers are not there yet, or the unit of work has
    changed."""
    e.settling = 1
    e.settled_at = now + e.interval_ns // 4


cdef void pass_time(Elastic* e, int64_t now) noexcept nogil:
    if e.began == 0:
        e.began = now
        e.seen = now
    e.worker_time += <double> e.target * (now - e.seen)
    e.seen = now


cdef void go(Elastic* e, int64_t now, int32_t n) noexcept nogil:
    """Another number of workers (or the same, measured anew)."""
    if n != e.target:
        e.target = n
        e.changes += 1
        if n < e.least:
            e.least = n
        if n > e.largest:
            e.largest = n
    elastic_restart(e, now)


cdef void start_search(Elastic* e, int64_t now, int32_t base, bint deep) noexcept nogil:
    e.state = SEARCH
    e.base = base
    e.trial = 0
    e.low = 0
    e.high = e.most + 1
    e.deep = deep
    e.limited = 0
    e.grown_from = 0
    e.searches += 1
    go(e, now, base)


cdef void start_hold(Elastic* e, bint limited) noexcept nogil:
    e.state = HOLD
    e.trial = 0
    e.grown_from = 0
    e.limited = limited
    e.held = 0
    e.strange = 0
    e.rush = 0


cdef int32_t next_trial(const Elastic* e) noexcept nogil:
    """The next number to compare with the base, or 0: the search is over."""
    cdef double below = 1.0
    cdef double above = 1.0
    cdef int32_t step
    if e.low == 0 and e.base > 1:
        # A check of a number that stood for long takes smaller steps every second time.
        step = e.base // 2 if e.deep or e.wide else e.base - (e.base + 7) // 8
        return step if step > 0 else 1
    if e.high > e.most and e.base < e.most:
        step = 2 * e.base if e.deep or e.wide else e.base + (e.base + 7) // 8
        return step if step < e.most else e.most
    if not e.deep:
        return 0
    if e.low > 0 and e.base - e.low > 1:
        below = <double> e.base / e.low
    if e.high <= e.most and e.high - e.base > 1:
        above = <double> e.high / e.base
    if below <= NARROW and above <= NARROW:
        return 0
    if below >= above:
        step = <int32_t> (sqrt(<double> e.base * e.low) + 0.5)
        return e.low + 1 if step <= e.low else e.base - 1 if step >= e.base else step
    step = <int32_t> (sqrt(<double> e.base * e.high) + 0.5)
    return e.base + 1 if step <= e.base else e.high - 1 if step >= e.high else step


cdef int judge(const Elastic* e) noexcept nogil:
    """1: the trial is better than the base, -1: it is not, 0: not known yet."""
    cdef double margin = e.gain / e.pairs - KAPPA * log(<double> e.trial / e.base)
    cdef double error = sqrt(1.5 * e.noise / e.pairs)
    if fabs(margin) > SURE * error + (FIRST_MARGIN if e.pairs == 1 else 0.0):
        return 1 if margin > 0 else -1
    if e.pairs >= MOST_PAIRS:
        return 1 if margin > 0.5 * error else -1
    return 0


cdef void search_on(Elastic* e, int64_t now, double rate) noexcept nogil:
    """A slot of a search has ended."""
    cdef int verdict
    cdef double change
    if e.target != e.base:
        e.trial_rate = rate
        go(e, now, e.base)
        return
    if e.trial != 0:
        change = rate - e.base_rate
        if fabs(change) > SHIFT:                   # the load has changed: this pair says nothing
            e.base_rate = rate
            go(e, now, e.trial)
            return
        e.noise += 0.1 * (0.5 * change * change - e.noise)
        if e.noise < NOISE_LEAST * NOISE_LEAST:
            e.noise = NOISE_LEAST * NOISE_LEAST
        e.gain += e.trial_rate - 0.5 * (e.base_rate + rate)
        e.pairs += 1
        verdict = judge(e)
        if verdict == 0:
            e.base_rate = rate
            go(e, now, e.trial)
            return
        if verdict > 0:
            if e.trial < e.base:
                e.high = e.base
            else:
                e.low = e.base
            e.base = e.trial
            e.deep = 1
            e.hold = HOLD_FIRST
            e.trial = 0
            e.base_rate = e.trial_rate
            if next_trial(e) == 0:
                start_hold(e, False)
            go(e, now, e.base)
            return
        if e.trial < e.base:
            e.low = e.trial
        else:
            e.high = e.trial
    e.base_rate = rate
    e.trial = next_trial(e)
    e.gain = 0.0
    e.pairs = 0
    if e.trial == 0:
        start_hold(e, False)
    else:
        go(e, now, e.trial)


cdef void keep_up(Elastic* e, int64_t now, double busy) noexcept nogil:
    """Input does not wait: as many workers as it keeps busy, and some room."""
    cdef int32_t n = e.target
    cdef int32_t spare = e.strange if e.state == HOLD and e.limited else 0
    cdef int32_t needed = <int32_t> ceil(busy / ROOMY)
    cdef int64_t slots
    start_hold(e, True)
    e.base = n
    if needed < 1:
        needed = 1
    if needed < n:
        slots = (4 * (now - e.previous_start) + e.interval_ns - 1) // e.interval_ns
        # nothing is observed while nothing happens
        spare += <int32_t> slots if slots < SPARE_SLOTS else SPARE_SLOTS
        if spare >= SPARE_SLOTS:
            e.base = needed
            go(e, now, needed)
        else:
            e.strange = spare
    elif busy > FULL * n and n < e.most:
        e.base = 2 * n if 2 * n < e.most else e.most
        go(e, now, e.base)


cdef void decide(Elastic* e, int64_t now, double work, double busy, bint waiting) noexcept nogil:
    """A slot has ended: work per ns, busy workers, input waited."""
    cdef int32_t n = e.target
    cdef int32_t needed
    cdef double rate
    cdef double gain
    if not waiting or busy < IDLE:
        keep_up(e, now, busy)
        return
    if work <= 0.0:                                # a long flush: nothing can be told
        if e.state == SEARCH:
            start_search(e, now, e.base, e.deep)
        return
    rate = log(work)
    if busy < IDLE * n and e.target == e.base and e.low == 0 and <int32_t> ceil(busy) < n:
        needed = <int32_t> ceil(busy)
        start_search(e, now, needed if needed > 0 else 1, True)
        return
    if e.state == HOLD and e.limited:
        if e.rush == 0:
            e.rush = e.previous_start
        if now - e.rush < e.interval_ns:
            return
    if e.state == GROW or (e.state == HOLD and e.limited):
        e.limited = 0
        gain = rate - e.grown_rate
        if e.grown_from > 0 and n == e.most and gain > 0.5 * log(<double> n / e.grown_from):
            e.searches += 1                        # clearly the best so far: the first check can wait
            start_hold(e, False)
            elastic_restart(e, now)
        elif e.grown_from > 0 and gain <= KAPPA * log(<double> n / e.grown_from):
            start_search(e, now, n if gain > 0 else e.grown_from, True)
        elif busy >= BUSY * n and n < e.most:
            e.state = GROW
            e.grown_rate = rate
            e.grown_from = n
            e.base = 2 * n if 2 * n < e.most else e.most
            go(e, now, e.base)
        else:
            start_search(e, now, n, True)
    elif e.state == SEARCH:
        search_on(e, now, rate)
    else:
        if e.held == 0:
            e.usual_rate = rate
        e.held += 1
        e.strange = e.strange + 1 if fabs(rate - e.usual_rate) > STRANGE else 0
        if e.strange >= STRANGE_SLOTS:
            e.hold = HOLD_FIRST
            start_search(e, now, n, False)
            e.wide = 1
            return
        if e.strange == 0:
            e.usual_rate += 0.1 * (rate - e.usual_rate)
        if e.held >= e.hold:
            e.hold = 2 * e.hold if 2 * e.hold < HOLD_LAST else HOLD_LAST
            start_search(e, now, n, False)
            e.wide = e.searches % 2 == 0


cdef int32_t elastic_observe(
        Elastic* e, int64_t now, double work, double busy_ns, int64_t slices, bint waiting) noexcept nogil:
    """The number of workers that should be active from now on.

    work: done so far in any unit that stays the same during a search; busy_ns: worker time spent so far;
    slices: time slices so far; waiting: input waits to be taken. Call it about four times per interval.
    Thread safety: under the driver's lock. Ownership: none. Cost: ~20 ns, ~200 ns when a slot ends.
    """
    cdef int64_t elapsed
    cdef int64_t length = e.interval_ns
    cdef int64_t least = MIN_SLICES + 4 * e.target
    pass_time(e, now)
    if e.most <= 1:
        return e.target
    if e.settling:
        if now >= e.settled_at:
            begin_slot(e, now, work, busy_ns, slices)
        return e.target
    e.looks += 1
    if waiting:
        e.waits += 1
    if e.state == GROW or e.limited:               # quick rather than exact
        length //= 4
        least //= 4
    elapsed = now - e.slot_start
    if elapsed < length or (slices - e.slot_slices < least and elapsed < MOST_SLOTS * length):
        return e.target
    work = (work - e.slot_work) / elapsed
    busy_ns = (busy_ns - e.slot_busy) / elapsed
    # Busy workers find the input empty now and then; idle ones must have passed by waiting input nearly
    # always.
    waiting = 2 * e.waits >= e.looks and (10 * e.waits >= 9 * e.looks or busy_ns >= IDLE * e.target)
    begin_slot(e, now, e.slot_work + work * (now - e.slot_start),
               e.slot_busy + busy_ns * (now - e.slot_start), slices)
    decide(e, now, work, busy_ns, waiting)
    return e.target


cdef void elastic_set(Elastic* e, int64_t now, int32_t n) noexcept nogil:
    """The driver chooses the number itself: tests that change it at random."""
    pass_time(e, now)
    go(e, now, n)


cdef int32_t elastic_hurry(Elastic* e, int64_t now, double backlog_ns) noexcept nogil:
    """Before the first observation: two workers at once where so much work waits already that a second one
    brings something before a slot has ended. A run of few tuples stays with one."""
    if e.began == 0 and e.target == 1 and e.most > 1 and backlog_ns >= HURRY_NS:
        e.base = 2
        go(e, now, 2)
    return e.target


cdef int32_t elastic_stalled(Elastic* e, int64_t now) noexcept nogil:
    """All active workers have been in one slice for long while other work waits (a function that sleeps):
    one more, if allowed."""
    if e.target < e.most:
        start_search(e, now, e.target + 1, True)
        start_hold(e, True)
    return e.target


cdef class PyElasticDoor:
    """The controller as a Python object: the door for tests and for virtual-time simulation.

    Memory ownership: one Elastic inside the object.
    """
    cdef Elastic elastic

    def __init__(self, int most, int start=1, double interval_us=4000.0):
        """1 to `most` workers, beginning with `start`; a measured slot takes at least interval_us."""
        if not 1 <= start <= most:
            raise ValueError(f"start must be from 1 to most, got {start} of {most}")
        if not interval_us >= 0.004:
            raise ValueError(f"interval_us must be at least 0.004, got {interval_us}")
        elastic_init(&self.elastic, most, start, <int64_t> (interval_us * 1e3))

    def observe(self, int64_t now_ns, double work, double busy_ns, int64_t slices, bint waiting):
        """The number of workers to have active from now on; arguments, all cumulative but `waiting`, as of
        elastic_observe."""
        return elastic_observe(&self.elastic, now_ns, work, busy_ns, slices, waiting)

    def hurry(self, int64_t now_ns, double backlog_ns):
        """Before the first observation: so many ns of work are known to wait; the new number."""
        return elastic_hurry(&self.elastic, now_ns, backlog_ns)

    def stalled(self, int64_t now_ns):
        """Workers are stuck in long slices while other work waits; the new number."""
        return elastic_stalled(&self.elastic, now_ns)

    def restart(self, int64_t now_ns):
        """Drop the slot being measured."""
        elastic_restart(&self.elastic, now_ns)

    def state(self):
        """The controller's quantities as a dict."""
        return self.elastic

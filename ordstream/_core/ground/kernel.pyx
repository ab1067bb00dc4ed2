"""Owner of a kernel: keeps layouts, context and Python references alive while runs borrow the C struct."""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strncpy
from ordstream._core.ground.atomics cimport as_int, as_pointer, cas_acq_rel, load_acquire, load_relaxed
from ordstream._core.ground.chunk cimport FAIL_PYTHON

from ordstream.errors import told


MOST_LANES = 64                # at a time: a lane's number is free again when a union has taken its rows


cdef void skip_note(Kernel* k, int64_t serial, bint at_end, int32_t code, const char* text) noexcept nogil:
    """Keep which row was skipped, and why, if it is the first in the order so far.

    Thread safety: any worker. Ownership: `text` is copied. Without memory nothing is noted, but the row is
    still counted. Cost: one allocation, for the few rows that precede all rows noted so far.
    """
    cdef Skip* s = <Skip*> calloc(1, sizeof(Skip))
    if s == NULL:
        return
    s.serial = serial
    s.at_end = at_end
    s.code = code
    strncpy(s.text, text, sizeof(s.text) - 1)                # the last byte stays 0
    while True:
        s.later = <Skip*> as_pointer(load_acquire(&k.first_skip))    # pairs with the exchange below
        if s.later != NULL and s.later.serial <= serial:
            free(s)
            return
        # A linked one is never freed while the run lasts: whoever has read its address may look at its
        # serial.
        # pairs with load_acquire here and in skip_is_first
        if cas_acq_rel(&k.first_skip, as_int(s.later), as_int(s)):
            return


cdef void skip_note_error(Kernel* k, int64_t serial, bint at_end, object error) noexcept:
    """skip_note for an exception: its type and text, never the exception itself. With the GIL."""
    text = None
    try:
        text = told(error).encode("utf-8", "replace")
    # memory, an interrupt: the count tells of the row
    except BaseException:
        pass
    if text is not None:
        skip_note(k, serial, at_end, FAIL_PYTHON, text)


cdef object skip_first(Kernel* k):
    """None, or (serial, whether it is a step of the final flush, FailureCode, text) of the first row that
    was skipped. Any thread."""
    cdef Skip* s = <Skip*> as_pointer(load_acquire(&k.first_skip))   # pairs with cas_acq_rel in skip_note
    if s == NULL:
        return None
    cdef bytes text = <bytes> <char*> s.text
    cut = len(text) == sizeof(s.text) - 1
    return s.serial, bool(s.at_end), s.code, text.decode("utf-8", "ignore") + ("..." if cut else "")


cdef class KernelOwner:
    """Base of every kernel's owner. Subclasses fill `kernel` in __cinit__/__init__ and free `kernel.ctx` in
    __dealloc__.

    Memory ownership: see kernel.pxd. Thread safety: read-only while a run lasts.
    """

    def __cinit__(self, *args, **kwargs):
        memset(<void*> &self.kernel, 0, sizeof(self.kernel))
        self.references = []

    def __dealloc__(self):
        # no run uses the kernel any more
        cdef Skip* s = <Skip*> as_pointer(load_relaxed(&self.kernel.first_skip))
        cdef Skip* later
        while s != NULL:
            later = s.later
            free(s)
            s = later

    def work_on(self, *lanes):
        """Say on which lanes of a unit it works, before the run.

        `lanes`: numbers below MOST_LANES; one, unless the kernel takes whole units. Raises ValueError.
        """
        wrong = [lane for lane in lanes if not 0 <= lane < MOST_LANES]
        if wrong or not lanes or (len(lanes) > 1 and not self.kernel.units):
            raise ValueError(f"lanes {lanes}: a kernel works on one lane, from 0 to {MOST_LANES - 1}, or "
                             f"takes whole units")
        self.kernel.reads = 0
        for lane in lanes:
            self.kernel.reads |= <uint64_t> 1 << <int> lane

    @property
    def kind(self):
        return self.kernel.kind

    @property
    def on_error(self):
        return self.kernel.on_error

    @property
    def max_workers(self):
        """Its own bound on workers; 0: none."""
        return self.kernel.max_workers

    @property
    def skipped(self):
        """Rows and steps dropped by on_error="skip" in the run that uses this kernel."""
        return load_relaxed(&self.kernel.skipped)

    @property
    def first_skip(self):
        """Of the first one: None, or (serial, whether it is a step of the final flush, FailureCode,
        text)."""
        return skip_first(&self.kernel)

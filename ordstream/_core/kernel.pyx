"""Owner of a kernel: keeps layouts, context and Python references alive while runs borrow the C struct."""
from libc.string cimport memset
from ordstream._core.atomics cimport load_relaxed


cdef class KernelOwner:
    """Base of every kernel's owner. Subclasses fill `kernel` in __cinit__/__init__ and free `kernel.ctx` in __dealloc__.

    Memory ownership: see kernel.pxd. Thread safety: read-only while a run lasts.
    """

    def __cinit__(self, *args, **kwargs):
        memset(<void*> &self.kernel, 0, sizeof(self.kernel))
        self.references = []

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
        """Rows dropped by on_error="skip" in the run that uses this kernel."""
        return load_relaxed(&self.kernel.skipped)

"""Keys as Python values. Everything here needs the GIL."""
from ordstream._core.state.keyed_state cimport KeySpec

cdef class KeyReader:
    # Key record -> what a user calls the key: the value of a single key column, a tuple of several.
    cdef list types
    cdef object key(self, const KeySpec* spec, const char* record)

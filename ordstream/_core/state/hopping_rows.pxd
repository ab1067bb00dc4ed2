"""The open windows of a key that overlap (hops.pxd) as rows of state: contract kernel.pxd (f).

A row has the key, the start of the oldest window, the time of the latest tuple, then lists: flags and words
of each window; then for each object (gathered.pxd) of each window how many bytes its values are, and these.
"""
from ordstream._core.state.keyed_bucket cimport StateCalls

cdef StateCalls HOPPING    # rows (key..., start, last, lists..., values...)

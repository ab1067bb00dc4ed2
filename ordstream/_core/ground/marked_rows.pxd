"""Rows with time punctuations among them: what a stateful operator gives that moves a clock.

a) The kernel puts a TIME chunk and another data chunk behind the one that it writes to (`marked_row`),
   linked by `link`, and goes on in the new one. Each has its own memory. An operator with one bucket. Who
   looks at the marks is behind it, or in other nodes.
b) When the input chunk is done, they get serials (`marked_date`) and become one unit (`marked_unit`). All
   outputs of a serial may be in several of its chunks, so a chunk in front of a mark ends in front of the
   mark's serial; the last one has what is said of the whole unit.
c) Such a unit may have more chunks than the operator behind has room for. So it is delivered piece by piece
   (delivery.pyx, egress.pyx), and its first chunk, by whose address a parked unit is known, is the one that
   comes last: `marked_whole` tells.
d) In a run with several lanes each chunk of rows takes along what the other lanes have at its place
   (flow/lanes.pyx, inherit_pieces).
"""
from libc.stdint cimport int32_t, int64_t
from ordstream._core.ground.chunk cimport TIME, Chunk, Layout, Worker

cdef enum:
    LAST_IN_FRONT = -1         # `time` of the first chunk of such a unit


cdef inline bint marked_whole(const Chunk* unit) noexcept nogil:
    """Whether the first chunk of a unit comes behind those that it links."""
    return unit.link != NULL and unit.time == LAST_IN_FRONT and unit.kind != TIME

cdef Chunk* marked_row(Worker* w, Chunk* out, const Layout* layout, int64_t time,
                       int32_t origin) noexcept nogil
cdef Chunk* marked_rest(Chunk* c) noexcept nogil
cdef int64_t marked_date(Worker* w, Chunk* rest, const Chunk* source, const Layout* layout,
                         int32_t maker) noexcept nogil
cdef Chunk* marked_unit(Chunk* out, Chunk* rest) noexcept nogil
cdef void marked_drop(Worker* w, Chunk* rest) noexcept nogil

"""Bytes per value of each PhysicalType (chunk.pxd). Inline only: there is no module of this name at run
time."""

cdef extern from *:
    """
    /* signed and unsigned integers of 8 to 64 bits, two floats, bool, two views, decimal128 */
    static const int ORD_WIDTHS[14] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1, 16, 16, 16};
    """
    const int WIDTHS "ORD_WIDTHS"[14]

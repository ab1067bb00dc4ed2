"""A door to memory_reserve.pxd: what is left of the reserve. For tests only."""
from ordstream._core.ground.memory_reserve cimport reserve_slices


def slices():
    """How many slices there are to be given."""
    return reserve_slices()

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.ground.chunk import LayoutOwner
from ordstream._core.ground.imported_batch import BatchFormats
from ordstream.operators.clocks import ComputedClock

class ComputedColumn:
    time_type: int
    def __init__(self, clock: ComputedClock) -> None: ...
    def times(
        self, batch: pa.RecordBatch, source: LayoutOwner, formats: BatchFormats
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]: ...

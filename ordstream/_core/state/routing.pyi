from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.ground.chunk import LayoutOwner
from ordstream._core.ground.imported_batch import BatchFormats

def key_hashes(
    batch: pa.RecordBatch, key: Sequence[int], layout: LayoutOwner, formats: BatchFormats
) -> npt.NDArray[np.uint64]: ...

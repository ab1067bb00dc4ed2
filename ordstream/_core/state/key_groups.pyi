import numpy as np
import numpy.typing as npt
import pyarrow as pa

GROUPS: int
KEY_HASH_VERSION: int

def order(batch: pa.RecordBatch, keys: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...

import numpy as np
import numpy.typing as npt
import pyarrow as pa

GROUPS: int
KEY_HASH_VERSION: int

def groups(batch: pa.RecordBatch) -> npt.NDArray[np.int32]: ...
def order(
    batch: pa.RecordBatch, keys: int, told_apart: int = -1, low: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...

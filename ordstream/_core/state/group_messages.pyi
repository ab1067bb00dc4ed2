from collections.abc import Sequence
from typing import Any

MAX_COLUMNS: int

def messages(
    columns: Sequence[tuple[int, int]],
    rows: Any,
    ends: Any,
    heads: bytes,
    head_at: Any,
    starts: Any,
    out: Any,
    low: bool = False,
) -> None: ...

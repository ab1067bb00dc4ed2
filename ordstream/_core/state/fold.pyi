from collections.abc import Sequence
from typing import Any

from ordstream.operators.aggregation import BoundAggregation

class FoldOwner:
    def __init__(
        self, aggregates: Sequence[BoundAggregation], layout: Any, results: Sequence[int]
    ) -> None: ...

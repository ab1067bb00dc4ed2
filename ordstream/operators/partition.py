"""Partition schemes of `key_by`: how keys are spread over buckets, where not by hash. The output does
not depend on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.ground.types import is_fixed_number, is_temporal, key_type, to_storage
from ordstream.operators.arguments import elements


@dataclass(frozen=True)
class Ranges:
    """Buckets by key range: bucket i holds keys below `bounds[i]` and not below `bounds[i - 1]`. See
    `ranges`.
    """

    bounds: tuple[Any, ...]

    def bind(self, schema: pa.Schema, key: tuple[int, ...], where: str) -> Ranges:
        """The same with storage values of the key's type as bounds."""
        field = _range_key(schema, key, where)
        if not (is_fixed_number(field.type) or is_temporal(field.type)):
            raise PlanError(
                f"{where}: ranges needs a numeric or temporal key, {field.name!r} is {field.type}; leave "
                "partition='hash'"
            )
        try:
            bounds = [to_storage(bound, field.type, field.name) for bound in self.bounds]
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"{where}: ranges: {error}") from error
        if not bounds or any(bound is None or bound != bound for bound in bounds):
            raise PlanError(f"{where}: ranges needs at least one bound, and no null or NaN")
        if any(not a < b for a, b in itertools.pairwise(bounds)):
            raise PlanError(f"{where}: the bounds of ranges must ascend, got {list(self.bounds)}")
        return Ranges(tuple(bounds))

    def bounds_for(self, buckets: int) -> Sequence[Any]:
        """Its bounds, whatever number of buckets is wanted."""
        return self.bounds


@dataclass(frozen=True)
class EqualRanges:
    """Buckets by key range, of equal width between `low` and `high`. See `equal_ranges`."""

    low: Any
    high: Any

    def bind(self, schema: pa.Schema, key: tuple[int, ...], where: str) -> EqualRanges:
        """The same with storage values of the key's type as ends."""
        field = _range_key(schema, key, where)
        if not is_fixed_number(field.type):
            raise PlanError(f"{where}: equal_ranges needs a numeric key, {field.name!r} is {field.type}")
        try:
            low, high = (to_storage(end, field.type, field.name) for end in (self.low, self.high))
        except (TypeError, ValueError, OverflowError) as error:
            raise PlanError(f"{where}: equal_ranges: {error}") from error
        if low is None or high is None or not low < high:
            raise PlanError(f"{where}: equal_ranges needs low < high, got {self.low!r}, {self.high!r}")
        return EqualRanges(low, high)

    def bounds_for(self, buckets: int) -> Sequence[Any]:
        """The bounds of so many buckets; fewer where integers leave no room."""
        steps = [self.low + (self.high - self.low) * k / buckets for k in range(1, buckets)]
        return steps if isinstance(self.low, float) else sorted({int(step) for step in steps})


def ranges(bounds: Sequence[Any]) -> Ranges:
    """Partition scheme for `key_by`: ascending `bounds`; a key equal to a bound lies above it. Nulls are
    lowest.
    """
    return Ranges(elements(bounds, "ranges: the bounds must be a sequence, such as [10, 20]", PlanError))


def equal_ranges(low: Any, high: Any) -> EqualRanges:
    """Partition scheme for `key_by`: as many ranges of equal width in `[low, high)` as there are buckets.

    Keys outside lie in the first or last.
    """
    return EqualRanges(low, high)


def _range_key(schema: pa.Schema, key: tuple[int, ...], where: str) -> pa.Field:
    if len(key) != 1:
        raise PlanError(f"{where}: partitioning by ranges needs exactly one key column, got {len(key)}")
    field = schema.field(key[0])
    key_type(field.type, field.name)
    if pat.is_boolean(field.type):
        raise PlanError(f"{where}: a bool key ({field.name!r}) can't be partitioned by ranges")
    return field

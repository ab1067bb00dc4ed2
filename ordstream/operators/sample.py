"""sample: a share of the tuples, chosen by their serials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ordstream.errors import PlanError
from ordstream.ground.numbers import as_int, is_number
from ordstream.operators.operator import Operator, Site
from ordstream.reference.base import Row, SerialOperator

_MASK = 2**64 - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample(Operator):
    """Output: input columns.

    Attributes
    ----------
    fraction : float
        0 to 1.
    seed : int
    """

    op: ClassVar[str] = "sample"
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True
    reads_serial: ClassVar[bool] = True

    fraction: float
    seed: int = 0

    @classmethod
    def bind(cls, site: Site, fraction: float, seed: int) -> Self:
        """Raises PlanError where the share is none, or the seed no number of 64 bits."""
        given: Any = fraction
        if not is_number(given) or not 0 <= given <= 1:
            raise PlanError(f"{site.name}: fraction must be a number from 0 to 1, got {fraction!r}")
        number: Any = as_int(seed)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MASK:
            raise PlanError(f"{site.name}: seed must be an int from 0 to 2**64 - 1, got {seed!r}")
        return cls(**site.fields(site.schema), fraction=float(fraction), seed=number)

    def kernel(self) -> Any:
        from ordstream._core.kernels.sample import SampleKernel

        return SampleKernel(self)

    def reference(self) -> SerialOperator:
        return SampleReference(self)

    def columns_read(self) -> set[int]:
        return set()

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"sample {self.fraction}, seed {self.seed}"


class SampleReference(SerialOperator):
    """The row, where the hash of serial and seed lies in the share."""

    serial = 0

    def begin(self, serial: int) -> None:
        self.serial = serial

    def process(self, row: Row) -> list[Row]:
        word = mixed(self.serial ^ mixed(self.operator.seed))
        return [row] if (word >> 11) / 2**53 < self.operator.fraction else []


def mixed(x: int) -> int:
    """SplitMix64's output function, as in the core (`_core/ground/mixing.pxd`)."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)

"""Benchmark operators: known work per tuple, stateless (`Spin`) or with a count per key (`SpinCount`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ordstream.operators.operator import Operator


@dataclass(frozen=True, eq=False, kw_only=True)
class Spin(Operator):
    """Replaces an int64 column by so many steps of a generator of it.

    Attributes
    ----------
    spins : int
        Steps per tuple.
    column : int
    """

    op: ClassVar[str] = "bench_spin"
    one_to_one: ClassVar[bool] = True

    spins: int
    column: int

    def kernel(self) -> Any:
        from ordstream._core.lab.bench_kernels import SpinKernel

        return SpinKernel(self)

    def describe(self) -> str:
        return f"spin {self.spins}"


@dataclass(frozen=True, eq=False, kw_only=True)
class SpinCount(Spin):
    """The same, plus the running count of the key; output: key, result."""

    op: ClassVar[str] = "bench_count"
    stateful: ClassVar[bool] = True

    def kernel(self) -> Any:
        from ordstream._core.lab.bench_kernels import CountsKernel

        return CountsKernel(self)

"""Parametric operators (ordered paper, section 7): matrix work whose cost, tuple size, state size and
selectivity are parameters.

The kernels are `ordstream/_core/lab/parametric.pyx`; `SerialParametric` is what they mean, one tuple at a
time, computed another way: the power of the matrix first, in whole numbers. Chains of these operators run
wherever pipelines do, `run_serial` included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.lab import parametric as core
from ordstream.errors import PlanError
from ordstream.operators.operator import Operator
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.plan import Plan
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey

ORDER = 8
CELLS = ORDER * ORDER
PRIME = 8191
"""Values are whole numbers from 0 to PRIME - 1, held as float64."""

WORD = 8  # bytes of a value
_MASK = (1 << 64) - 1


@dataclass(frozen=True, eq=False, kw_only=True)
class ParametricOperator(Operator):
    """The operator that the core runs.

    Attributes
    ----------
    first : int
        Column of the first value.
    cost_column : int
        Says how many products a tuple takes; -1: none does.
    multiplications : int
        Of every tuple.
    whole, part : int
        Outputs per tuple: `whole`, and one more with probability part / 2^32.
    state_values : int
    matrix : array of float64
    log : array of int64 or None
        Gets the time (ns, monotonic clock) at which the work on each source tuple began, by serial - 1.
    wait_ns : int
    """

    op: ClassVar[str] = "parametric"

    first: int
    cost_column: int
    multiplications: int
    whole: int
    part: int
    state_values: int
    matrix: Any
    log: Any
    wait_ns: int

    def kernel(self) -> Any:
        return core.ParametricKernel(self)

    def reference(self) -> SerialOperator:
        return SerialParametric(self)

    def describe(self) -> str:
        return f"parametric, {self.multiplications} products"


class StatefulParametric(ParametricOperator):
    """The same with a state per key."""

    stateful: ClassVar[bool] = True


def chain(*operators: Operator) -> Pipeline:
    """A pipeline of operators that no public method makes."""
    return Pipeline.of(Plan.line(operators[0].input, operators))


@dataclass(frozen=True)
class Parametric:
    """Parameters of one operator.

    Attributes
    ----------
    cost_us : float
        Work per input tuple in microseconds of this machine: so many matrix products as `products` says.
        None: each tuple says, in its column `work`, how many products it takes.
    tuple_bytes : int
        Bytes of values per tuple (the key not counted), a multiple of 8. Operators of one chain have the
        same.
    selectivity : float
        Outputs per input: 50, or 0.1; of a fraction the tuple's values decide.
    state_bytes : int
        State per key, all of it changed by every tuple, a multiple of 8; None: stateless.
    partition : "hash" or EqualRanges
        How keys are spread over buckets.
    wait_us : float
        Waited per tuple on top of the products, without using a core: stands for work where workers
        outnumber the cores.

    Raises
    ------
    PlanError
        Naming the parameter.
    """

    cost_us: float | None = 1.0
    tuple_bytes: int = 64
    selectivity: float = 1.0
    state_bytes: int | None = None
    partition: Any = "hash"
    wait_us: float = 0.0

    def __post_init__(self) -> None:
        if self.cost_us is not None and not 0 <= self.cost_us < math.inf:
            raise PlanError(f"cost_us must not be negative, got {self.cost_us!r}")
        if not 0 <= self.wait_us < 1e9:
            raise PlanError(f"wait_us must not be negative, got {self.wait_us!r}")
        if not 0 <= self.selectivity < 1 << 20:
            raise PlanError(f"selectivity must be from 0 to 1,048,575, got {self.selectivity!r}")
        for name, size, most in (
            ("tuple_bytes", self.tuple_bytes, 8 * 4000),
            ("state_bytes", self.state_bytes, 1 << 24),
        ):
            if size is not None and (size < WORD or size % WORD or size > most):
                raise PlanError(f"{name} must be a multiple of 8 from 8 to {most:,}, got {size!r}")

    def operator(
        self, name: str, products: int | None = None, log: npt.NDArray[np.int64] | None = None
    ) -> Operator:
        """The operator.

        Parameters
        ----------
        name : str
        products : int, optional
            In place of what `cost_us` comes to on this machine.
        log : array of int64, zeroed, optional
            Gets the time (ns, monotonic clock) at which the work on each source tuple began, by serial - 1.
        """
        schema = tuple_schema(self.tuple_bytes, own_cost=self.cost_us is None)
        if products is None:
            products = 0 if self.cost_us is None else products_for(self.cost_us)
        whole = math.floor(self.selectivity)
        part = min(round((self.selectivity - whole) * 2**32), 2**32 - 1)
        params: dict[str, Any] = {
            "first": len(schema) - self.tuple_bytes // WORD,
            "cost_column": 1 if self.cost_us is None else -1,
            "multiplications": products,
            "whole": whole,
            "part": part,
            "state_values": 1 if self.state_bytes is None else self.state_bytes // WORD,
            "matrix": constant_matrix().astype(np.float64).ravel(),
            "log": log,
            "wait_ns": round(self.wait_us * 1e3),
        }
        if self.state_bytes is None:
            return ParametricOperator(name=name, input=schema, output=schema, **params)
        return StatefulParametric(
            name=name, input=schema, output=schema, key=(0,), partition=self.partition, **params
        )


def tuple_schema(tuple_bytes: int = 64, own_cost: bool = False) -> pa.Schema:
    """Columns of a tuple: key, with `own_cost` the number of its matrix products, and the values."""
    values = [pa.field(f"v{k}", pa.float64(), nullable=False) for k in range(tuple_bytes // WORD)]
    work = [pa.field("work", pa.int64(), nullable=False)] if own_cost else []
    return pa.schema([pa.field("key", pa.int64(), nullable=False), *work, *values])


# ----------------------------------------------------------------------------------- what they mean


@cache
def constant_matrix() -> npt.NDArray[np.int64]:
    """The matrix C of all products, whole numbers below PRIME."""
    return np.random.default_rng(8191).integers(0, PRIME, (ORDER, ORDER), dtype=np.int64)


@cache
def matrix_power(n: int) -> npt.NDArray[np.int64]:
    """C^n mod PRIME by repeated squaring."""
    power, base = np.eye(ORDER, dtype=np.int64), constant_matrix()
    while n:
        if n & 1:
            power = power @ base % PRIME
        base = base @ base % PRIME
        n >>= 1
    return power


def outputs_of(first: int, last: int, whole: int, part: int) -> int:
    """How many outputs a tuple has: `whole`, and one more with probability part / 2^32 (SplitMix64's
    finaliser decides).
    """
    h = (first * PRIME + last + 0x9E3779B97F4A7C15) & _MASK
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & _MASK
    return whole + ((h ^ (h >> 31)) >> 32 < part)


class SerialParametric(Keyed):
    """T, of the tuple's values, times a power of C; state and outputs from it (parametric.pyx, a to d)."""

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        first: int = operator.first
        values = self._values(row[first:])
        products = operator.multiplications
        if operator.cost_column >= 0:
            products = row[operator.cost_column]
            if products < 0:
                raise ValueError("a negative number of multiplications")
        cells = np.arange(CELLS, dtype=np.int64)
        j = np.arange(max(len(values), CELLS))
        np.add.at(cells, j % CELLS, values[j % len(values)])
        t = (cells.reshape(ORDER, ORDER) % PRIME @ matrix_power(int(products)) % PRIME).ravel()
        j = np.arange(len(values))
        if operator.kind == "PS":
            key: SortKey = self.key_of(row)
            size = operator.state_values
            i = np.arange(size)
            state = self.states[key] = (
                3 * self.states.get(key, np.zeros(size, np.int64)) + t[i % CELLS] + i % PRIME
            ) % PRIME
            shown = t[j % CELLS] + state[j % size]
        else:
            shown = t[j % CELLS] + values
        count = outputs_of(int(values[0]), int(values[-1]), operator.whole, operator.part)
        return [
            (*row[:first], *((shown + copy % PRIME) % PRIME).astype(np.float64).tolist())
            for copy in range(count)
        ]

    @staticmethod
    def _values(given: Sequence[Any]) -> npt.NDArray[np.int64]:
        if any(value is None for value in given):
            raise ValueError("a null where a value is needed")
        values = np.array(given, np.float64)
        within = (values >= 0) & (values < PRIME)
        whole = np.where(within, values, 0).astype(np.int64)
        if not (within & (whole == values)).all():
            raise ValueError("a value is no whole number from 0 to 8190")
        return whole


# ------------------------------------------------------------------------------- cost, keys, tuples


@cache
def product_ns() -> float:
    """Nanoseconds of one matrix product here: the fastest of many short runs."""
    matrix = constant_matrix().astype(np.float64).ravel()
    return min(core.work_ns(200, matrix) for _ in range(300)) / 200


def products_for(cost_us: float) -> int:
    """Matrix products that take `cost_us` microseconds: at least one, unless no work is asked for."""
    return 0 if cost_us == 0 else max(1, round(cost_us * 1e3 / product_ns()))


def tuples(
    keys: npt.NDArray[np.int64],
    tuple_bytes: int = 64,
    seed: int = 1,
    work: npt.NDArray[np.int64] | None = None,
) -> pa.RecordBatch:
    """A batch of random tuples with these keys, and with these numbers of products if given."""
    rng = np.random.default_rng([seed, 2])
    schema = tuple_schema(tuple_bytes, own_cost=work is not None)
    columns: list[Any] = [pa.array(np.asarray(keys, np.int64))]
    if work is not None:
        columns.append(pa.array(np.asarray(work, np.int64)))
    columns += [
        pa.array(rng.integers(0, PRIME, len(keys)).astype(np.float64)) for _ in range(tuple_bytes // WORD)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def uniform_keys(n: int, keys: int, seed: int = 1) -> npt.NDArray[np.int64]:
    """`n` keys from 0 to keys - 1, all equally likely."""
    return np.random.default_rng([seed, 1]).integers(0, keys, n)


def zipf_keys(n: int, keys: int, alpha: float, seed: int = 1) -> npt.NDArray[np.int64]:
    """`n` keys from 0 to keys - 1 whose frequencies fall as rank^-alpha; the ranks are spread over the
    key space.
    """
    rng = np.random.default_rng([seed, 1])
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -alpha
    return np.asarray(rng.permutation(keys)[rng.choice(keys, n, p=weights / weights.sum())], np.int64)


def gaussian_keys(n: int, keys: int, sigma: float, seed: int = 1) -> npt.NDArray[np.int64]:
    """`n` keys from 0 to keys - 1: N(0, sigma), drawn again outside [-1, 1], scaled to the key space
    (ordered paper, 7.2.1).

    The larger sigma, the closer to uniform.
    """
    rng = np.random.default_rng([seed, 1])
    kept = np.empty(0)
    while len(kept) < n:
        drawn = rng.normal(0.0, sigma, max(1024, n))
        kept = np.concatenate([kept, drawn[np.abs(drawn) <= 1.0]])
    return np.minimum(((kept[:n] + 1.0) / 2.0 * keys).astype(np.int64), keys - 1)

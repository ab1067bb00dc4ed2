"""Sketches of a stream in bounded memory: Count-Min and POSG's F/W pair.

All are mergeable (the sketch of two streams from the sketches of each), serialisable, and take keys of every
kind that `ordstream.balance.keys.key_words` names, one or a column at a time. A sketch has one writer;
nothing here takes locks.

Sources: POSG, sections III and IV-B and Listings III.1, III.2; Cormode and Muthukrishnan 2005 (Count-Min).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import count_min, hashing
from ordstream.balance.keys import Key, key_word, key_words, no_text
from ordstream.balance.parameters import whole_count, whole_counts, whole_from
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.errors import PlanError


def count_min_size(epsilon: float, delta: float, where: str = "") -> tuple[int, int]:
    """Rows and columns of a Count-Min matrix: r = ceil(log2(1/delta)), c = ceil(e/epsilon).

    Parameters
    ----------
    epsilon : float
        Error bound as a share of the stream, > 0.
    delta : float
        Probability of exceeding it, 0 < delta < 1.
    where : str
        Whose they are, for errors.

    Returns
    -------
    (int, int)
        (4, 55) at POSG's epsilon = 0.05, delta = 0.1 (POSG, section V-A; its "54" is a slip).

    Raises
    ------
    PlanError
        An argument is out of range, or the matrix would have more than 64 rows or 2^31 - 1 columns.
    """
    if not (0 < delta < 1):
        raise PlanError(f"{where and f'{where}: '}delta must lie between 0 and 1, not {delta}")
    if not (0 < epsilon < math.inf):
        raise PlanError(f"{where and f'{where}: '}epsilon must be positive, not {epsilon}")
    # At least one row and column; the small allowance keeps delta = 2^-r at r rows whatever the logarithm's
    # last bit says.
    rows = max(1, math.ceil(math.log2(1 / delta) - 1e-12))
    columns = max(1, math.ceil(math.e / epsilon))
    if rows > 64 or columns > 2**31 - 1:
        raise PlanError(
            f"{where and f'{where}: '}delta={delta} and epsilon={epsilon} ask for {rows} rows and {columns} "
            "columns; at most 64 and 2^31 - 1"
        )
    return rows, columns


def _sized(
    epsilon: float | None, delta: float | None, rows: int | None, columns: int | None, seed: int
) -> hashing.TwoUniversal:
    if rows is None and columns is None:
        rows, columns = count_min_size(0.05 if epsilon is None else epsilon, 0.1 if delta is None else delta)
    elif rows is None or columns is None or epsilon is not None or delta is not None:
        raise PlanError("give either epsilon and delta, or rows and columns")
    rows, columns = whole_from(rows, 1, 64, "rows"), whole_from(columns, 1, 2**31 - 1, "columns")
    try:
        return hashing.TwoUniversal(rows, columns, seed)
    except (ValueError, OverflowError) as error:
        raise PlanError(str(error)) from None


def _one(word: int) -> npt.NDArray[np.uint64]:
    return np.array([word], dtype=np.uint64)


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def scaled(counts: npt.NDArray[np.int64], factor: float, to: int | None = None) -> npt.NDArray[np.int64]:
    """Counts times a factor (0 to 1) as whole numbers: each rounded down or up, so that the sum is `to`,
    by default the sum times the factor, rounded down.
    """
    exact = counts * factor
    found: npt.NDArray[np.int64] = np.floor(exact).astype(np.int64)
    short = (int(int(counts.sum()) * factor) if to is None else to) - int(found.sum())
    order = np.argsort(found - exact, kind="stable")  # what was lost most, first
    if short < 0:  # rounding of large sums
        order, short = order[found[order] > 0][::-1], -short
        found[order[:short]] -= 1
    else:
        found[order[:short]] += 1
    return found


#: Times up to it have no sum that is infinite, however many; `update`, called per key, looks no further.
LARGE = 1e200
#: A sum of times in one order is at most so many times that in another.
SUMMED = 1 + 1e-9


class CountMin:
    """How often each key occurred, from above: f <= f^ always, and f^ - f <= epsilon m with probability >= 1
    - delta for each key.

    (m: tuples counted. The bound is Markov's on each row, E[f^_row - f] <= m/c, over the choice of the hash
    functions.)

    Parameters
    ----------
    epsilon, delta : float, optional
        Size by error (`count_min_size`). Default 0.05 and 0.1.
    rows, columns : int, optional
        Size itself, in place of the two.
    seed : int
        Of the hash functions; sketches to be merged need the same.

    Raises
    ------
    PlanError
        An argument is out of range.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        rows: int | None = None,
        columns: int | None = None,
        seed: int = 0,
    ) -> None:
        self._matrix = count_min.CountMatrix(_sized(epsilon, delta, rows, columns, seed))

    @property
    def rows(self) -> int:
        return int(self._matrix.hashes.rows)

    @property
    def columns(self) -> int:
        return int(self._matrix.hashes.columns)

    @property
    def hashes(self) -> hashing.TwoUniversal:
        """The hash functions, key words to columns."""
        return self._matrix.hashes

    @property
    def total(self) -> int:
        """Tuples counted (m)."""
        return int(self._matrix.total)

    @property
    def matrix(self) -> npt.NDArray[np.int64]:
        """The cells, (r, c): a read-only view that later updates change."""
        return _read_only(self._matrix.array)

    def update(self, key: Key, count: int = 1) -> None:
        """Count one key `count` >= 0 times. Cost: r hashes.

        Raises
        ------
        TypeError
            The count is no whole number.
        ValueError
            It is negative.
        """
        known = type(count) is int and count < 1 << 63
        try:
            self._matrix.update_key(key, count if known else whole_count(count))
        except UnicodeEncodeError as error:
            raise no_text(error) from None

    def update_many(self, keys: Any, counts: npt.NDArray[np.int64] | None = None) -> None:
        """Count a column of keys, each once or `counts[i]` >= 0 times.

        Raises
        ------
        ValueError
            A count is negative. Nothing is counted then.
        OverflowError
            The total would pass 2^63 - 1. Nothing is counted then.
        TypeError
            A count is no whole number. Nothing is counted then.
        """
        self._matrix.update(key_words(keys), None if counts is None else whole_counts(counts))

    def estimate(self, key: Key) -> int:
        """Estimated count of one key, at least the true one."""
        return int(self._matrix.estimate(_one(key_word(key)))[0])

    def estimate_many(self, keys: Any) -> npt.NDArray[np.int64]:
        """Estimated count of each key of a column."""
        return np.asarray(self._matrix.estimate(key_words(keys)))

    def merge(self, other: CountMin) -> None:
        """Add the counts of another sketch with the same size and seed: exactly the sketch of both streams.

        Raises
        ------
        ValueError
            Size or hash functions differ.
        """
        self._matrix.merge(other._matrix)

    def reset(self) -> None:
        """All counts to zero."""
        self._matrix.reset()

    def copy(self) -> CountMin:
        """An independent copy."""
        return CountMin._made(count_min.CountMatrix(self._matrix.hashes, self._matrix.array))

    def to_bytes(self) -> bytes:
        """The sketch as bytes (`ordstream.balance.serial_form`)."""
        hashes = self._matrix.hashes
        return packed(
            "CountMin",
            {"columns": hashes.columns, "hashes": hashes.coefficients},
            {"cells": self._matrix.array},
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> CountMin:
        """The sketch that `to_bytes` was called on.

        Raises
        ------
        SketchBytesError
            These are not the bytes of a CountMin.
        """
        values, arrays = unpacked("CountMin", data)
        try:
            hashes = hashing.TwoUniversal.from_coefficients(values["columns"], values["hashes"])
            return cls._made(count_min.CountMatrix(hashes, arrays["cells"]))
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this CountMin cannot be read: {error}") from error

    @classmethod
    def _made(cls, matrix: count_min.CountMatrix) -> CountMin:
        made = cls.__new__(cls)
        made._matrix = matrix
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (CountMin.from_bytes, (self.to_bytes(),))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CountMin):
            return NotImplemented
        return self._matrix.hashes == other._matrix.hashes and np.array_equal(self.matrix, other.matrix)

    __hash__ = None  # type: ignore[assignment]


class ExecutionTimes:
    """The matrices F and W of POSG: an estimate of a tuple's execution time from those of tuples with the
    same cells.

    F counts tuples, W adds their execution times (Listing III.1). The estimate of a key's time is W/F at the
    row where its F is smallest, the first row of equals (Listing III.2). Where that F is 0, the mean time of
    all tuples (0/0 in the text).

    Exact when all execution times are equal, up to rounding of W. Always between the least and the largest
    time seen (again up to rounding). For the expectation under a uniform choice of hash functions see POSG,
    Theorem 4.3.

    Parameters
    ----------
    epsilon, delta : float, optional
        Size (`count_min_size`). Default 0.05 and 0.1: 4 rows, 55 columns.
    rows, columns : int, optional
        Size itself, in place of the two.
    seed : int
        Of the hash functions; all instances of an operator and their scheduler need the same.

    Raises
    ------
    PlanError
        An argument is out of range.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        rows: int | None = None,
        columns: int | None = None,
        seed: int = 0,
    ) -> None:
        self._matrices = count_min.TimeMatrices(_sized(epsilon, delta, rows, columns, seed))

    @property
    def matrices(self) -> count_min.TimeMatrices:
        """The core's object, for schedulers in the core."""
        return self._matrices

    @property
    def rows(self) -> int:
        return int(self._matrices.hashes.rows)

    @property
    def columns(self) -> int:
        return int(self._matrices.hashes.columns)

    @property
    def hashes(self) -> hashing.TwoUniversal:
        """The hash functions, key words to columns."""
        return self._matrices.hashes

    @property
    def tuples(self) -> int:
        """Tuples counted since the last reset."""
        return int(self._matrices.tuples)

    @property
    def total_time(self) -> float:
        """Sum of their execution times, in the caller's unit."""
        return float(self._matrices.total_time)

    @property
    def mean_time(self) -> float:
        """total_time / tuples; 0.0 before the first tuple."""
        return self.total_time / self.tuples if self.tuples else 0.0

    @property
    def frequency(self) -> npt.NDArray[np.int64]:
        """F, (r, c): a read-only view that later updates change."""
        return _read_only(self._matrices.frequency)

    @property
    def work(self) -> npt.NDArray[np.float64]:
        """W, (r, c): a read-only view that later updates change."""
        return _read_only(self._matrices.work)

    def ratios(self) -> npt.NDArray[np.float64]:
        """W/F per cell, 0 where F is 0: a snapshot S of POSG (section III-B). A new array."""
        frequency = self._matrices.frequency
        return np.divide(self._matrices.work, frequency, out=np.zeros(frequency.shape), where=frequency > 0)

    def update(self, key: Key, time: float) -> None:
        """Count one tuple and its execution time >= 0, in any unit. Cost: r hashes.

        Raises
        ------
        ValueError
            The time is negative or not finite, or the sum of all would not be finite.
        SchemaError
            The key has half of a surrogate pair, which is no text.
        """
        if type(time) is not float or time > LARGE:
            more = math.fabs(time)
            if LARGE < more < math.inf and time > 0:
                self._check_sum(more)
        try:
            self._matrices.update_key(key, time)
        except UnicodeEncodeError as error:
            raise no_text(error) from None

    def update_many(self, keys: Any, times: npt.ArrayLike) -> None:
        """Count a column of tuples with their execution times, in order.

        Raises
        ------
        ValueError
            A time is negative or not finite, the sum of all would not be finite, or the lengths differ.
            Nothing is counted then.
        """
        given = np.ascontiguousarray(times, dtype=np.float64)
        if given.size and given.max() > LARGE and np.isfinite(given).all():
            with np.errstate(over="ignore"):
                self._check_sum(float(given.sum()) * SUMMED)
        self._matrices.update(key_words(keys), given)

    def estimate(self, key: Key) -> float:
        """Estimated execution time of a tuple with this key, in the unit of the updates."""
        try:
            return self._matrices.estimate_key(key)
        except UnicodeEncodeError as error:
            raise no_text(error) from None

    def estimate_many(self, keys: Any) -> npt.NDArray[np.float64]:
        """Estimated execution time for each key of a column."""
        return np.asarray(self._matrices.estimate(key_words(keys)))

    def merge(self, other: ExecutionTimes) -> None:
        """Add tuples and times of another pair with the same size and seed: the pair of both streams (W up
        to rounding).

        Raises
        ------
        ValueError
            Size or hash functions differ, or the sum of the times would not be finite.
        """
        self._check_sum(max(other.total_time, float(other._matrices.work.max())))
        self._matrices.merge(other._matrices)

    def _check_sum(self, more: float) -> None:
        """ValueError where so much more time could make a cell or the total infinite."""
        # a faded cell may be above the total
        so_far = max(self.total_time, float(self._matrices.work.max()))
        if not math.isfinite(so_far + more):
            raise ValueError(
                f"the sum of the execution times would not be finite: {so_far} so far and {more}; give them "
                "in a larger unit"
            )

    def fade(self, factor: float) -> None:
        """Let what was counted count less: F times `factor`, in whole tuples, every row with the same sum; a
        cell's W/F stays (up to rounding) while its F is not 0.

        Parameters
        ----------
        factor : float
            0 to 1.
        """
        if factor == 1:
            return
        m = self._matrices
        frequency = np.stack([scaled(row, factor) for row in m.frequency])
        kept = np.divide(frequency, m.frequency, out=np.zeros(frequency.shape), where=m.frequency > 0)
        tuples = int(frequency[0].sum())
        total = m.total_time * tuples / m.tuples if m.tuples else 0.0
        self._matrices = count_min.TimeMatrices(m.hashes, frequency, m.work * kept, total)

    def reset(self) -> None:
        """All cells to zero, as after the matrices were sent (POSG, Fig. 2.C)."""
        self._matrices.reset()

    def copy(self) -> ExecutionTimes:
        """An independent copy: what an instance sends to its scheduler."""
        m = self._matrices
        return ExecutionTimes.of_matrices(
            count_min.TimeMatrices(m.hashes, m.frequency, m.work, m.total_time)
        )

    def to_bytes(self) -> bytes:
        """The pair as bytes (`ordstream.balance.serial_form`)."""
        m = self._matrices
        values = {
            "columns": m.hashes.columns,
            "hashes": m.hashes.coefficients,
            "total_time": m.total_time.hex(),
        }
        return packed("ExecutionTimes", values, {"frequency": m.frequency, "work": m.work})

    @classmethod
    def from_bytes(cls, data: bytes) -> ExecutionTimes:
        """The pair that `to_bytes` was called on.

        Raises
        ------
        SketchBytesError
            These are not the bytes of an ExecutionTimes.
        """
        values, arrays = unpacked("ExecutionTimes", data)
        try:
            hashes = hashing.TwoUniversal.from_coefficients(values["columns"], values["hashes"])
            total = float.fromhex(values["total_time"])
            return cls.of_matrices(
                count_min.TimeMatrices(hashes, arrays["frequency"], arrays["work"], total)
            )
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this ExecutionTimes cannot be read: {error}") from error

    @classmethod
    def of_matrices(cls, matrices: count_min.TimeMatrices) -> ExecutionTimes:
        """The pair around a core object, which it shares."""
        made = cls.__new__(cls)
        made._matrices = matrices
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (ExecutionTimes.from_bytes, (self.to_bytes(),))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExecutionTimes):
            return NotImplemented
        return (
            self._matrices.hashes == other._matrices.hashes
            and np.array_equal(self.frequency, other.frequency)
            and np.array_equal(self.work, other.work)
            and self.total_time == other.total_time
        )

    __hash__ = None  # type: ignore[assignment]

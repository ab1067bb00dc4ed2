"""Space-Saving: the most frequent keys of a stream in bounded memory.

Mergeable (the summary of two streams from the summaries of each), serialisable, for keys of every kind that
`ordstream.balance.keys.key_words` names, one or a column at a time. A summary has one writer; nothing here
takes locks.

Sources: DKG, section 3.1; Metwally et al. 2005; Cafaro, Pulimeno and Tempesta 2016 (merging).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import space_saving
from ordstream.balance.keys import Key, key_at, key_word, key_words, no_text, plain_key, stored_keys
from ordstream.balance.parameters import whole_count, whole_counts
from ordstream.balance.serial_form import SketchBytesError, key_from_json, key_to_json, packed, unpacked
from ordstream.errors import PlanError
from ordstream.ground.numbers import is_whole

#: Of a summary.
MOST_COUNTERS = 1 << 26


def least_count(threshold: float, total: int) -> int:
    """The least count >= threshold * total (DKG, section 3.1).

    Parameters
    ----------
    threshold : float
        Theta, a share of the stream, > 0.
    total : int
        m, tuples of the stream.
    """
    # The small allowance: 0.07 of 100 tuples are 7, though the product of the floats is above it.
    return math.ceil(threshold * total * (1 - 1e-12))


class SpaceSaving:
    """The most frequent keys of a stream, with counts from above, in `capacity` counters and O(1) per tuple.

    For every key with a counter: count - error <= f <= count and error <= `least` <= m/capacity (m: tuples
    counted). Every key with f > m/capacity has a counter. The counts sum to m; after a merge that had to
    drop counters, to at most m. A key without a counter occurred at most `least` times.

    Parameters
    ----------
    epsilon : float, optional
        Error as a share of the stream: ceil(1/epsilon) counters (DKG, section 3.1).
    capacity : int, optional
        Counters, in place of epsilon; 1 to 2^26.

    Raises
    ------
    PlanError
        An argument is out of range, or not exactly one is given.
    """

    def __init__(self, epsilon: float | None = None, *, capacity: int | None = None) -> None:
        if (epsilon is None) == (capacity is None):
            raise PlanError("give either epsilon or capacity")
        if capacity is None:
            if epsilon is None or not 0 < epsilon <= 1:
                raise PlanError(f"epsilon must lie in (0, 1], not {epsilon}")
            # The small allowance: 1/0.05 must be 20 counters, whatever the quotient's last bit says.
            capacity = math.ceil(min(1 / epsilon - 1e-9, 2 * MOST_COUNTERS))
        if not is_whole(capacity) or not 1 <= capacity <= MOST_COUNTERS:
            raise PlanError(f"the number of counters must be 1 to 2^26, not {capacity!r:.80}")
        self._summary = space_saving.StreamSummary(capacity)
        self._keys: list[Key] = [None] * int(capacity)
        self._update_key = self._summary.update_key  # `update` is called per key: two look-ups less

    @property
    def capacity(self) -> int:
        """Counters there are."""
        return int(self._summary.capacity)

    @property
    def total(self) -> int:
        """Tuples counted (m)."""
        return int(self._summary.total)

    @property
    def least(self) -> int:
        """Least count of a counter, 0 while some are free: an upper bound of every error and of every
        key without a counter.
        """
        return int(self._summary.least)

    def __len__(self) -> int:
        return int(self._summary.used)

    def update(self, key: Key, count: int = 1) -> None:
        """Count one key `count` >= 0 times. Cost: O(1) for count 1, at most O(capacity) else.

        Raises
        ------
        TypeError
            The count is no whole number.
        ValueError
            It is negative.
        """
        known = type(count) is int and count < 1 << 63
        try:
            counter = self._update_key(key, count if known else whole_count(count))
        except UnicodeEncodeError as error:
            raise no_text(error) from None
        if counter >= 0:
            self._keys[counter] = key if type(key) is int else plain_key(key)

    def update_many(self, keys: Any, counts: npt.NDArray[np.int64] | None = None) -> None:
        """Count a column of keys in order, each once or `counts[i]` >= 0 times.

        Raises
        ------
        ValueError
            A count is negative. Nothing is counted then.
        OverflowError
            The total would pass 2^63 - 1. Nothing is counted then.
        TypeError
            A count is no whole number. Nothing is counted then.
        """
        keys = stored_keys(keys)
        self.update_words(key_words(keys), keys, counts)

    def update_words(
        self, words: npt.NDArray[np.uint64], keys: Any, counts: npt.NDArray[np.int64] | None = None
    ) -> None:
        """`update_many` for a caller that has the words of the keys already; `keys` as `stored_keys`
        gives them.
        """
        entered = self._summary.update(words, None if counts is None else whole_counts(counts))
        # Only keys whose words took a counter in this batch are looked at.
        counters = np.flatnonzero(entered >= 0)
        if len(counters):
            for counter, key in zip(counters.tolist(), key_at(keys, entered[counters]), strict=True):
                self._keys[counter] = key

    def estimate(self, key: Key) -> int:
        """Estimated count of a key, at least the true one: its counter, or `least` if it has none."""
        return int(self._summary.estimate(key_word(key)))

    def counters(self) -> list[tuple[Key, int, int]]:
        """(key, count, error) of every counter, by descending count; among equal counts the smallest
        error, then the word.
        """
        return [(key, count, error) for key, _, count, error in self._entries()]

    def heavy_hitters(self, threshold: float, *, guaranteed: bool = False) -> list[tuple[Key, int, int]]:
        """The counters with count >= threshold * m (DKG, section 3.1), or with `guaranteed` count - error >=
        threshold * m.

        Parameters
        ----------
        threshold : float
            Theta, a share of the stream, 0 < Theta <= 1.
        guaranteed : bool
            True: none of them is below the threshold in truth, but one that is above may be missing; False:
            the other way.
        """
        return [
            (key, count, error) for key, _, count, error in self.frequent(threshold, guaranteed=guaranteed)
        ]

    def frequent(self, threshold: float, *, guaranteed: bool = False) -> list[tuple[Key, int, int, int]]:
        """`heavy_hitters` with the key's word: (key, word, count, error)."""
        if not 0 < threshold <= 1:
            raise PlanError(f"the threshold (Theta) must lie in (0, 1], not {threshold}")
        least = least_count(threshold, self.total)
        return [e for e in self._entries() if e[2] - (e[3] if guaranteed else 0) >= least]

    def _entries(self) -> list[tuple[Key, int, int, int]]:
        words, counts, errors, counters = self._summary.state()
        entries = [
            (self._keys[counter], word, count, error)
            for counter, word, count, error in zip(
                counters.tolist(), words.tolist(), counts.tolist(), errors.tolist(), strict=True
            )
        ]
        return sorted(entries, key=lambda e: (-e[2], e[3], e[1]))

    def merge(self, other: SpaceSaving) -> None:
        """Take in another summary of the same capacity: the bounds above then hold for both streams
        together.

        A key without a counter on one side counts there with that side's `least`, as count and as error; the
        `capacity` largest counts stay (Cafaro et al. 2016). The result need not be the summary that one pass
        over both streams would give.

        Raises
        ------
        ValueError
            The capacities differ.
        """
        if other.capacity != self.capacity:
            raise ValueError(
                f"only summaries of one capacity can be merged, not {self.capacity} and {other.capacity} "
                "counters"
            )
        mine = {word: (key, count, error) for key, word, count, error in self._entries()}
        theirs = {word: (key, count, error) for key, word, count, error in other._entries()}
        merged = []
        for word in mine.keys() | theirs.keys():
            key, count, error = mine.get(word, (None, self.least, self.least))
            their_key, their_count, their_error = theirs.get(word, (key, other.least, other.least))
            merged.append(
                (count + their_count, error + their_error, word, key if word in mine else their_key)
            )
        merged.sort(key=lambda m: (-m[0], m[1], m[2]))
        kept = merged[: self.capacity][::-1]
        self._load(
            np.array([m[2] for m in kept], dtype=np.uint64),
            np.array([m[0] for m in kept], dtype=np.int64),
            np.array([m[1] for m in kept], dtype=np.int64),
            self.total + other.total,
            [m[3] for m in kept],
        )

    def fade(self, factor: float) -> None:
        """Let what was counted count less: every count, and the total, times `factor` (0 to 1), rounded
        down.

        The bounds above then hold within one tuple for the frequencies times `factor`.
        """
        total = int(self.total * factor)
        kept = [
            (key, word, int(count * factor), min(int(count * factor), math.ceil(error * factor)))
            for key, word, count, error in reversed(self._entries())
            if count * factor >= 1
        ]
        counts = np.array([one[2] for one in kept], dtype=np.int64)
        self._load(
            np.array([one[1] for one in kept], dtype=np.uint64),
            counts,
            np.array([one[3] for one in kept], dtype=np.int64),
            max(total, int(counts.sum())),
            [one[0] for one in kept],
        )

    def _load(
        self,
        words: npt.NDArray[np.uint64],
        counts: npt.NDArray[np.int64],
        errors: npt.NDArray[np.int64],
        total: int,
        keys: list[Key],
    ) -> None:
        self._summary.load(words, counts, errors, total)
        self._keys[: len(keys)] = keys

    def copy(self) -> SpaceSaving:
        """An independent copy."""
        return SpaceSaving.from_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The summary as bytes (`ordstream.balance.serial_form`)."""
        words, counts, errors, counters = self._summary.state()
        keys = [key_to_json(self._keys[counter]) for counter in counters.tolist()]
        values = {"capacity": self.capacity, "total": self.total, "keys": keys}
        return packed("SpaceSaving", values, {"words": words, "counts": counts, "errors": errors})

    @classmethod
    def from_bytes(cls, data: bytes) -> SpaceSaving:
        """The summary that `to_bytes` was called on; it goes on exactly as that one would.

        Raises
        ------
        SketchBytesError
            These are not the bytes of a SpaceSaving.
        """
        values, arrays = unpacked("SpaceSaving", data)
        try:
            made = cls(capacity=values["capacity"])
            keys = [key_from_json(key) for key in values["keys"]]
            if [key_word(key) for key in keys] != arrays["words"].tolist():
                raise ValueError("keys and words differ")
            made._load(arrays["words"], arrays["counts"], arrays["errors"], values["total"], keys)
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise SketchBytesError(f"the bytes of this SpaceSaving cannot be read: {error}") from error
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (SpaceSaving.from_bytes, (self.to_bytes(),))

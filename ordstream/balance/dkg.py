"""DKG, distribution-aware key grouping: learn the heavy hitters, schedule them and buckets of sparse keys,
deploy the map.

Rivetti, Querzoni, Anceaume, Busnel, Sericola, "Efficient Key Grouping for Near-Optimal Load Balancing in
Stream Processing Systems", DEBS 2015: Listings 3.1 (learning) and 3.2 (build, deployment).

    parameters = DKG()
    learner = parameters.learner(instances=4)
    learner.learn(first_keys)          # any number of times, on any number of learners that are merged
    key_map = learner.build()
    nodes = key_map.route(keys)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import hashing, key_route
from ordstream.balance.grouping import Instances, KeyMap, SplitKeyMap
from ordstream.balance.keys import Key, key_words, stored_keys
from ordstream.balance.parameters import MOST_INSTANCES, check_numbers, whole_counts, whole_from
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.balance.sketches import scaled
from ordstream.balance.space_saving import MOST_COUNTERS, SpaceSaving
from ordstream.errors import PlanError
from ordstream.ground.choices import flag, is_one_of

Cost = Literal["linear", "quadratic"] | Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
Variant = Literal["dkg", "wosim", "pkg"]

VARIANTS = ("dkg", "wosim", "pkg")
#: Of a learner: each has a count, and each of a map an instance.
MOST_BUCKETS = 1 << 26


def cost_function(cost: Cost) -> Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]:
    """Frequencies to loads. PlanError for an unknown name."""
    if is_one_of(cost, ("linear",)):
        return lambda frequency: frequency
    if is_one_of(cost, ("quadratic",)):
        return np.square
    if callable(cost):
        return lambda frequency: _loads(cost, frequency)
    raise PlanError(f"DKG: the cost is 'linear', 'quadratic' or a function of frequencies, not {cost!r}")


def _loads(
    cost: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]], frequency: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """What a user's function gives. PlanError where these are not as many finite numbers from 0."""
    found = np.asarray(cost(frequency.copy()))
    if found.shape == frequency.shape and found.dtype.kind in "iufb":
        loads: npt.NDArray[np.float64] = found.astype(np.float64)
        if np.isfinite(loads).all() and (loads >= 0).all():
            return loads
    raise PlanError(
        "DKG: cost takes an array of frequencies and gives as many finite numbers that are not negative; "
        f"for {len(frequency)} frequencies it gave {found!r:.80}"
    )


def schedule(loads: npt.ArrayLike, instances: int) -> tuple[Instances, npt.NDArray[np.float64]]:
    """LPT (the `scheduling` of DKG, section 3.1): loads in descending order, each to the least loaded
    instance.

    Ties: the lower position first, then the lowest instance. The largest sum is at most (4/3 - 1/(3k)) times
    the optimum, and no two sums differ by more than the largest load.

    Parameters
    ----------
    loads : float array
        >= 0 each.
    instances : int
        k >= 1.

    Returns
    -------
    (int32 array, float64 array)
        Instance of each load, and the sum on each instance.
    """
    given = np.asarray(loads, dtype=np.float64)
    if instances < 1:
        raise PlanError(f"the number of instances must be at least 1, not {instances}")
    if given.ndim != 1 or not (np.isfinite(given).all() and (given >= 0).all()):
        raise PlanError("loads must be a column of finite numbers that are not negative")
    order = np.argsort(-given, kind="stable")
    placed, sums = key_route.least_loaded(given[order], instances)
    result = np.empty(len(given), dtype=np.int32)
    result[order] = placed
    return result, sums


@dataclass(frozen=True)
class DKG:
    """Parameters of DKG; the defaults are the paper's (section 5.3; m: section 5.1).

    Parameters
    ----------
    theta : float
        Θ, 0 < Θ <= 1: a key with at least this share of the learning set is a heavy hitter.
    epsilon : float, optional
        ε, 0 < ε < Θ: error of the shares; ceil(1/ε) counters. Default Θ/2.
    mu : int
        µ >= 1: buckets per instance for the sparse keys.
    m : int
        Tuples to learn from; a learner takes no more.
    cost : "linear", "quadratic" or a function
        Load of a key that occurs f times: f, f squared, or function(array of frequencies). Buckets are
        treated as one key, which over-estimates them under a quadratic cost (section 5.2).
    variant : "dkg", "wosim" or "pkg"
        "wosim": sparse keys go straight to instances by the hash function, only heavy hitters are scheduled
        (DKG_WOSIM). "pkg": each heavy hitter is scheduled as two halves (DKG_PKG).
    guaranteed : bool
        True: a heavy hitter's guaranteed count (estimate - error) must reach Θm; False, as in the text: its
        estimate.
    seed : int
        Of the hash function.

    Raises
    ------
    PlanError
        A parameter is out of range.
    """

    theta: float = 0.1
    epsilon: float | None = None
    mu: int = 2
    m: int = 80_000
    cost: Cost = "linear"
    variant: Variant = "dkg"
    guaranteed: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_numbers(self, ("theta", "epsilon", "mu"), ("m", "seed"), "epsilon")
        if not 0 < self.theta <= 1:
            raise PlanError(f"DKG: theta must lie in (0, 1], not {self.theta}")
        if not 0 < self.counter_error < self.theta:
            raise PlanError(f"DKG: epsilon must lie between 0 and theta={self.theta}, not {self.epsilon}")
        if 1 / self.counter_error > MOST_COUNTERS:
            raise PlanError(f"DKG: epsilon={self.counter_error:g} asks for more than 2^26 counters")
        if not 1 <= self.mu <= MOST_BUCKETS or self.mu % 1:
            raise PlanError(f"DKG: mu must be a whole number from 1 to 2^26, not {self.mu}")
        object.__setattr__(self, "mu", int(self.mu))  # 2.0 is 2
        if self.m < 0:
            raise PlanError(f"DKG: m, the tuples to learn from, cannot be {self.m}")
        if not is_one_of(self.variant, VARIANTS):
            raise PlanError(f"DKG: the variant is one of {', '.join(VARIANTS)}, not {self.variant!r}")
        flag(self.guaranteed, "DKG: guaranteed")
        cost_function(self.cost)

    @property
    def counter_error(self) -> float:
        """ε in force."""
        return self.theta / 2 if self.epsilon is None else self.epsilon

    def learner(self, instances: int) -> DKGLearner:
        """Begin to learn for k instances."""
        return DKGLearner(self, instances)

    def fit(self, keys: Any, instances: int) -> KeyMap:
        """Learn from a column of keys (its first m) and build."""
        learner = self.learner(instances)
        learner.learn(keys)
        return learner.build()


class DKGLearner:
    """The learning phase: an array of bucket counts and a Space-Saving summary (Listing 3.1). One writer.

    Learners with the same parameters and k on several parts of a stream are merged into one that stands for
    all of it.

    Parameters
    ----------
    parameters : DKG
    instances : int
        k >= 1.
    """

    def __init__(self, parameters: DKG, instances: int) -> None:
        instances = whole_from(instances, 1, MOST_INSTANCES, "the number of instances")
        self.parameters = parameters
        self.instances = instances
        # Under WOSIM the sparse keys' buckets are the instances themselves.
        buckets = instances if parameters.variant == "wosim" else instances * int(parameters.mu)
        if buckets > MOST_BUCKETS:
            raise PlanError(
                f"mu={parameters.mu:g} buckets for each of {instances} instances are more than 2^26"
            )
        self.hashes = hashing.TwoUniversal(1, buckets, parameters.seed)
        self.bucket_counts = np.zeros(buckets, dtype=np.int64)
        self.summary = SpaceSaving(parameters.counter_error)

    @property
    def learnt(self) -> int:
        """Tuples learnt from so far (their weights, where weights were given)."""
        return self.summary.total

    @property
    def full(self) -> bool:
        """True: m tuples have been learnt from; `learn` takes no more."""
        return self.learnt >= self.parameters.m

    def learn(self, keys: Any, counts: npt.NDArray[np.int64] | None = None) -> int:
        """LEARN for a column of keys, in order, until m tuples have been learnt from.

        Parameters
        ----------
        keys : column of keys
        counts : int64 array, optional
            Weight of each tuple in place of 1, such as its measured cost in ns. m then counts weight.

        Returns
        -------
        int
            How many tuples were taken; fewer than given once m is reached.

        Raises
        ------
        ValueError
            A weight is negative.
        OverflowError
            The weights sum to 2^63 or more.
        TypeError
            A weight is no whole number.
        """
        keys = stored_keys(keys)
        words = key_words(keys)
        room = max(0, self.parameters.m - self.learnt)
        if counts is None:
            taken = min(len(words), room)
        else:
            counts = whole_counts(counts)
            if len(counts) != len(words):
                raise ValueError(f"{len(words)} keys but {len(counts)} weights")
            if len(counts) and counts.min() < 0:
                raise ValueError(f"a weight is negative: {counts.min()}")
            if counts.sum(dtype=np.float64) >= 2.0**63:
                raise OverflowError("the sum of weights passes 2^63 - 1")
            # A tuple is taken while the sum before it is below m: the last one may pass it.
            before = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
            taken = int(np.searchsorted(before, room, side="left"))
            counts = counts[:taken]
        if taken < len(words):
            keys, words = _first(keys, taken), words[:taken]
        self.summary.update_words(words, keys, counts)
        cells = self.hashes.cells(words)
        if counts is None:
            self.bucket_counts += np.bincount(cells, minlength=len(self.bucket_counts))
        else:
            np.add.at(self.bucket_counts, cells, counts)
        return taken

    def merge(self, other: DKGLearner) -> None:
        """Take in what another learner learnt from another part of the stream.

        With m tuples in all, in whatever parts and order: bucket counts are those of one learner, exactly.
        So is the whole learner where all keys have a counter each; else the summary may differ from one
        learner's, within the same bounds (`SpaceSaving.merge`). So a map that is built has every key with f
        >= Θm among its heavy hitters, none with f < (Θ - ε)m, and on the tuples learnt from no two instances
        differ by more than the largest load scheduled plus twice the heavy hitters' errors, of which each is
        at most εm (linear cost).

        Raises
        ------
        ValueError
            Parameters or k differ.
        """
        if other.parameters != self.parameters or other.instances != self.instances:
            raise ValueError("only learners with the same parameters and number of instances can be merged")
        self.summary.merge(other.summary)
        self.bucket_counts += other.bucket_counts

    def fade(self, factor: float) -> None:
        """Let what was learnt count less: every count times `factor` (0 to 1), in whole tuples."""
        if factor == 1:
            return
        self.summary.fade(factor)
        self.bucket_counts[:] = scaled(self.bucket_counts, factor, self.summary.total)

    def copy(self) -> DKGLearner:
        """An independent copy."""
        made = DKGLearner(self.parameters, self.instances)
        made.bucket_counts[:] = self.bucket_counts
        made.summary = self.summary.copy()
        return made

    def build(self) -> KeyMap:
        """BUILD of Listing 3.2: take the heavy hitters out of their buckets, schedule both, give the map.

        Bucket counts are clamped at 0 (Space-Saving over-estimates). Empty buckets, of which nothing is
        known, go to instances in turn, the least loaded one first; so before anything was learnt all do.
        Ties in the schedule: heavy hitters before buckets, each in their order.

        Returns
        -------
        KeyMap
            A SplitKeyMap under the variant "pkg".
        """
        found = (
            self.summary.frequent(self.parameters.theta, guaranteed=self.parameters.guaranteed)
            if self.learnt
            else []
        )
        keys: list[Key] = [key for key, _, _, _ in found]
        estimates = np.array([count for _, _, count, _ in found], dtype=np.int64)
        sparse = self.bucket_counts.copy()
        if found:
            words = np.array([word for _, word, _, _ in found], dtype=np.uint64)
            np.subtract.at(sparse, self.hashes.cells(words), estimates)
        sparse = np.maximum(sparse, 0)
        load = cost_function(self.parameters.cost)
        k, variant, frequency = self.instances, self.parameters.variant, estimates.astype(np.float64)
        if not self.learnt:
            return self._map(
                keys,
                np.zeros(0, np.int32),
                np.zeros(0, np.int32),
                np.arange(len(sparse), dtype=np.int32) % k,
            )
        if variant == "wosim":
            placed, _ = schedule(load(frequency), k)
            return self._map(keys, placed, placed, np.arange(k, dtype=np.int32))
        if variant == "pkg":
            halves = np.repeat(load(frequency / 2), 2)
            placed, sums = schedule(np.concatenate([halves, load(sparse.astype(np.float64))]), k)
            buckets = dealt_out(placed[len(halves) :], sparse == 0, sums)
            return self._map(keys, placed[0 : len(halves) : 2], placed[1 : len(halves) : 2], buckets)
        placed, sums = schedule(np.concatenate([load(frequency), load(sparse.astype(np.float64))]), k)
        buckets = dealt_out(placed[len(keys) :], sparse == 0, sums)
        return self._map(keys, placed[: len(keys)], placed[: len(keys)], buckets)

    def loads(self) -> npt.NDArray[np.float64]:
        """What of the tuples learnt from each instance would get by `build`, as far as is known: float64
        array (k), linear cost. No variant "pkg": PlanError.
        """
        if self.parameters.variant == "pkg":
            raise PlanError("split keys go where fewer tuples went: their loads are not known before")
        key_map = self.build()
        found = self.summary.frequent(self.parameters.theta, guaranteed=self.parameters.guaranteed)
        words = np.array([word for _, word, _, _ in found], dtype=np.uint64)
        counts = np.array([count for _, _, count, _ in found], dtype=np.int64)
        sparse = self.bucket_counts.copy()
        np.subtract.at(sparse, self.hashes.cells(words), counts)
        chosen = np.array([instance for _, instance in key_map.heavy], dtype=np.int64)
        where = np.concatenate([key_map.buckets, chosen])
        weights = np.concatenate([np.maximum(sparse, 0), counts]).astype(np.float64)
        return np.bincount(where, weights=weights, minlength=self.instances).astype(np.float64)

    def _map(self, keys: list[Key], first: Instances, second: Instances, buckets: Instances) -> KeyMap:
        if self.parameters.variant == "pkg":
            pairs = list(zip(keys, first.tolist(), second.tolist(), strict=True))
            return SplitKeyMap(self.instances, self.hashes, buckets, pairs)
        return KeyMap(self.instances, self.hashes, buckets, list(zip(keys, first.tolist(), strict=True)))

    def to_bytes(self) -> bytes:
        """What was learnt, as bytes; the parameters are not in it."""
        values = {
            "instances": self.instances,
            "hashes": self.hashes.coefficients,
            "summary": self.summary.to_bytes().hex(),
        }
        return packed("DKGLearner", values, {"bucket_counts": self.bucket_counts})

    @classmethod
    def from_bytes(cls, data: bytes, parameters: DKG) -> DKGLearner:
        """The learner that `to_bytes` was called on, under the same parameters.

        Raises
        ------
        SketchBytesError
            These are not the bytes of a DKGLearner, or it learnt under other parameters.
        """
        values, arrays = unpacked("DKGLearner", data)
        try:
            made = cls(parameters, values["instances"])
            counts = arrays["bucket_counts"]
            summary = SpaceSaving.from_bytes(bytes.fromhex(values["summary"]))
            coefficients = [tuple(row) for row in values["hashes"]]
            if (
                counts.shape != made.bucket_counts.shape
                or summary.capacity != made.summary.capacity
                or coefficients != made.hashes.coefficients
            ):
                raise ValueError("it learnt under other parameters")
            if counts.min() < 0 or sum(counts.tolist()) != summary.total:
                raise ValueError("bucket counts and summary do not fit")
            made.bucket_counts[:] = counts
            made.summary = summary
        except (KeyError, ValueError, TypeError, OverflowError, PlanError) as error:
            raise SketchBytesError(f"the bytes of this DKGLearner cannot be read: {error}") from error
        return made


def dealt_out(placed: Instances, empty: npt.NDArray[np.bool_], sums: npt.NDArray[np.float64]) -> Instances:
    """Buckets with the empty ones dealt out: LPT would send all of them to one instance."""
    turn = np.argsort(sums, kind="stable").astype(np.int32)
    found = placed.copy()
    found[empty] = turn[np.arange(int(empty.sum())) % len(turn)]
    return found


def _first(keys: Any, n: int) -> Any:
    """The first n keys of what `stored_keys` gives."""
    if isinstance(keys, tuple):
        return tuple(_first(column, n) for column in keys)
    return keys[:n]

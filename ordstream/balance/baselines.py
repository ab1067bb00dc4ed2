"""The groupings that DKG is compared with (DKG, sections 5.1 and 6): Modulo, Universal, O-apx, SIA, PKG.

All have the interface of `ordstream.balance.grouping.Grouping`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream._core.balance import hashing, key_route
from ordstream.balance.dkg import Cost, cost_function, schedule
from ordstream.balance.grouping import Instances, KeyMap
from ordstream.balance.keys import key_words
from ordstream.errors import PlanError


def _checked(instances: int) -> int:
    if not 1 <= instances <= 2**31 - 1:
        raise PlanError(f"the number of instances must be at least 1, not {instances}")
    return instances


class Modulo:
    """key mod k: what many systems do. An integer key as it is (negative ones as unsigned 64-bit), others by their word.

    Parameters
    ----------
    instances : int
        k.
    """

    splits_keys = False

    def __init__(self, instances: int) -> None:
        self.instances = _checked(instances)

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple."""
        return (key_words(keys) % np.uint64(self.instances)).astype(np.int32)


def universal(instances: int, seed: int = 0) -> KeyMap:
    """Universal: a hash function from keys to the k instances, drawn from a 2-universal family by `seed`."""
    return KeyMap(instances, hashing.TwoUniversal(1, _checked(instances), seed), np.arange(instances))


def single_instance(instances: int) -> KeyMap:
    """SIA: every tuple to instance 0. λ is 100 (k - 1): the worst there is."""
    return KeyMap(_checked(instances), hashing.TwoUniversal(1, 1), [0])


def optimal_approximation(keys: Any, instances: int, cost: Cost = "linear", seed: int = 0) -> KeyMap:
    """O-apx: LPT over the exact frequencies of every key of the very tuples to be routed.

    Its largest load is at most (4/3 - 1/(3k)) times that of the best assignment of whole keys. Ties: by key word, then the lowest
    instance. A key that is not in `keys` goes where `universal` with the seed would send it.

    Parameters
    ----------
    keys : column of keys
        The tuples to be routed.
    instances : int
        k.
    cost : "linear", "quadratic" or a function
        As for `DKG`.
    """
    words, counts = np.unique(key_words(keys), return_counts=True)
    placed, _ = schedule(cost_function(cost)(counts.astype(np.float64)), _checked(instances))
    return KeyMap.of_words(instances, hashing.TwoUniversal(1, instances, seed), np.arange(instances), words, placed)


class PKG:
    """Partial key grouping (Nasir et al., ICDE 2015): the less loaded of the two instances that two hash functions give a key.

    One object per source: load is what this source has sent. Ties go to the first choice; the two may coincide. A key is split
    over at most two instances, so the operator's partial results must be merged.

    Parameters
    ----------
    instances : int
        k.
    seed : int
        Of the two functions (MurmurHash3's finaliser with two seeds).
    """

    splits_keys = True

    def __init__(self, instances: int, seed: int = 0) -> None:
        self.instances = _checked(instances)
        self._seed = seed & 0xFFFFFFFFFFFFFFFF
        self._received = np.zeros(instances, dtype=np.int64)

    @property
    def received(self) -> npt.NDArray[np.int64]:
        """Tuples sent to each instance so far."""
        return self._received.copy()

    def route(self, keys: Any) -> Instances:
        """Instance of each tuple, in order; counts them."""
        return key_route.route_two_choices(key_words(keys), self._received, self._seed)

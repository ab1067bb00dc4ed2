"""The stream of POSG's prototype: mentions of entities in three classes of execution times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ordstream.lab.simulation import streams

ENTITIES, TOP_SHARE = 35_000, 0.065
#: Seconds per class at time scale 1: media, politicians, others.
CLASSES = (0.025, 0.005, 0.001)
#: Accounts that are known to be one or the other are among those mentioned most; the shares of the classes
#: among them.
KNOWN = 300
SHARES = (0.15, 0.45, 0.4)
#: Shares of the classes where they are given to all entities at random.
ANY_SHARES = (0.05, 0.15, 0.8)


def mentions(
    seed: int, m: int, at_random: bool = False
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Entity of each tuple, and class of each entity. The most frequent entity is mentioned with probability
    0.065, as in the paper.

    `at_random`: any entity may be dear, not only the known ones.
    """
    rng = np.random.default_rng([seed, 1])
    low, high = 0.5, 1.5
    for _ in range(40):  # bisection for Zipf's exponent
        alpha = (low + high) / 2
        low, high = (
            (alpha, high) if streams.zipf_probabilities(ENTITIES, alpha)[0] < TOP_SHARE else (low, alpha)
        )
    if at_random:
        classes = rng.choice(len(CLASSES), size=ENTITIES, p=ANY_SHARES)
    else:
        classes = np.full(ENTITIES, len(CLASSES) - 1)
        classes[:KNOWN] = rng.choice(len(CLASSES), size=KNOWN, p=SHARES)
    return streams.zipf(m, ENTITIES, alpha, rng), classes

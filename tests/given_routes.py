"""Groupings of the caller's own, where a process that is spawned finds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def too_high(n: int) -> Any:
    return np.full(n, 7)


def negative(n: int) -> Any:
    return np.full(n, -1)


def far_too_high(n: int) -> Any:
    return np.append(np.zeros(n - 1, int), 2**32)


def above_int64(n: int) -> Any:
    return np.full(n, 2**63, np.uint64)


def reals(n: int) -> Any:
    return np.zeros(n)


def flags(n: int) -> Any:
    return np.zeros(n, bool)


def too_few(n: int) -> Any:
    return np.zeros(n - 1, int)


def table(n: int) -> Any:
    return np.zeros((n, 1), int)


def nothing(n: int) -> Any:
    return None


def ragged(n: int) -> Any:
    return [[1], [2, 3]]


def in_turn(n: int) -> Any:
    return pa.array(np.arange(n) % 2)


class Route:
    """Sends rows where a function of how many there are says."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes

    def route(self, keys: Any) -> Any:
        return self.nodes(len(keys))

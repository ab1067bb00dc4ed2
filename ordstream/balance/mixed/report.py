"""What a node tells the controller of its keys after an interval (section 2.1's statistics, as they are
measured).

Nodes need not look at every tuple: those of one chunk in sixteen tell as much. So a report says how many
tuples were looked at (`tuples`, the evidence), what these cost, and what share of all they are (`sampled`).
Nor need it name every key: `heaviest` names those that cost most and gives the rest as one sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ordstream.balance.keys import Words
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.errors import PlanError

#: A row of a report: key word, tuples looked at, seconds that they took, bytes of the key's state.
ROW = np.dtype([("key", "<u8"), ("tuples", "<i8"), ("seconds", "<f8"), ("state", "<i8")])


@dataclass(frozen=True, eq=False)
class Report:
    """One node's report of one interval. Immutable.

    Parameters
    ----------
    node : int
        Its number on the ring.
    interval : int
        >= 0. A second report of a node for an interval, or one for an earlier interval, changes nothing.
    keys : uint64 array (n)
        Words (`ordstream.balance.keys`), each once: keys that had tuples, and keys whose state changed its
        size.
    tuples : int array (n)
        >= 0, looked at in the interval.
    seconds : float array (n)
        >= 0, the node's time for these.
    state : int array (n)
        >= 0, bytes at the end of the interval; 0: the key has none any more.
    sampled : float
        In (0, 1], the share of the tuples that was looked at.
    rest : (int, float, int)
        Tuples, seconds and bytes of the node's other keys, which are not named.

    Raises
    ------
    PlanError
        Lengths differ, a key is there twice, or a value is out of range.
    """

    node: int
    interval: int
    keys: Words
    tuples: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    state: npt.NDArray[np.int64]
    sampled: float = 1.0
    rest: tuple[int, float, int] = (0, 0.0, 0)

    def __post_init__(self) -> None:
        where = f"the report of node {self.node} for interval {self.interval}"
        if self.node < 0 or self.interval < 0:
            raise PlanError(f"{where}: nodes and intervals are counted from 0")
        if not 0 < self.sampled <= 1:
            raise PlanError(f"{where}: the share of sampled tuples lies in (0, 1], not {self.sampled}")
        for name, field in zip(("keys", "tuples", "seconds", "state"), ROW.names or (), strict=True):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=ROW[field]))
        columns = (self.keys, self.tuples, self.seconds, self.state)
        if any(one.shape != (len(self.keys),) for one in columns):
            raise PlanError(f"{where} has columns of different lengths: {[one.shape for one in columns]}")
        if len(np.unique(self.keys)) < len(self.keys):
            raise PlanError(f"{where} has a key twice; add its figures up first")
        for name, column in (("tuples", self.tuples), ("seconds", self.seconds), ("state", self.state)):
            wrong = np.flatnonzero(~(np.isfinite(column) & (column >= 0)))
            if len(wrong):
                raise PlanError(f"{where}: {name} of its row {wrong[0]} is {column[wrong[0]]}")
        if not (np.isfinite(self.rest) & (np.array(self.rest) >= 0)).all():
            raise PlanError(f"{where}: tuples, seconds and bytes of the rest are {self.rest}")

    @property
    def load(self) -> float:
        """Seconds of all the node's tuples, those that were not looked at included."""
        return (float(self.seconds.sum()) + self.rest[1]) / self.sampled

    def heaviest(self, most: int, kept: Words) -> Report:
        """The report with at most so many keys named, those that cost most, and those of `kept` beside."""
        if len(self.keys) <= most:
            return self
        named = np.isin(self.keys, kept)
        named[np.lexsort((self.keys, -self.state, -self.seconds))[:most]] = True
        left = ~named
        rest = (
            self.rest[0] + int(self.tuples[left].sum()),
            self.rest[1] + float(self.seconds[left].sum()),
            self.rest[2] + int(self.state[left].sum()),
        )
        return replace(
            self,
            keys=self.keys[named],
            tuples=self.tuples[named],
            seconds=self.seconds[named],
            state=self.state[named],
            rest=rest,
        )

    def to_bytes(self) -> bytes:
        """The report as bytes (`ordstream.balance.serial_form`): 32 a key."""
        values = {
            "node": self.node,
            "interval": self.interval,
            "sampled": self.sampled,
            "rest": list(self.rest),
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            name: getattr(self, name) for name in ("keys", "tuples", "seconds", "state")
        }
        return packed("Report", values, arrays)

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """The report that `to_bytes` was called on. SketchBytesError for other bytes."""
        values, arrays = unpacked("Report", data)
        try:
            keys, tuples, seconds, state = (arrays[name] for name in ("keys", "tuples", "seconds", "state"))
            at, rest = (values["node"], values["interval"]), tuple(values["rest"])
            return cls(*at, keys, tuples, seconds, state, values["sampled"], rest)
        except (KeyError, TypeError, ValueError, PlanError) as error:
            raise SketchBytesError(f"the bytes of this Report cannot be read: {error}") from error

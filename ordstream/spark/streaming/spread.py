"""POSG in a stream: the stateless operators in front run in nodes, and execution times choose a row's node.

Until its first slice of rows was measured it is Round-Robin; then it stays as it is. No state is in these
nodes, so nothing has to move when it is learnt. What was measured so far is part of every manifest.
"""

from __future__ import annotations

from typing import Any

from ordstream.balance.posg import FrozenPosg, FrozenRouter
from ordstream.balance.serial_form import SketchBytesError, packed, unpacked
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError


class Spread:
    """A POSG that learns once.

    Parameters
    ----------
    instances : int
    seed : int
        Of the scheduler.
    wanted : int
        Rows that it learns from.
    times : ExecutionTimes or None
        In ns, of those of the rows that were measured: a sample.
    rows : int
        That it has learnt from so far.
    """

    splits_keys = True

    def __init__(
        self, instances: int, seed: int, wanted: int, times: ExecutionTimes | None = None, rows: int = 0
    ) -> None:
        self.instances, self.seed, self.wanted, self.rows = instances, seed, wanted, rows
        self.times = times if times is not None and times.tuples else None

    @property
    def learnt(self) -> bool:
        """It has measured enough, and stays as it is."""
        return self.times is not None and self.rows >= self.wanted

    def router(self) -> FrozenRouter:
        """A router from an epoch's first row on."""
        times = self.times if self.learnt else None
        return FrozenPosg(self.instances, times, seed=self.seed).router()

    def taught(self, measured: ExecutionTimes, rows: int) -> Spread:
        """With what a node has measured of so many rows."""
        if self.times is not None:
            measured.merge(self.times)
        return Spread(self.instances, self.seed, self.wanted, measured, self.rows + rows)

    def to_bytes(self) -> bytes:
        """As bytes (`ordstream.balance.serial_form`)."""
        values = {
            "instances": self.instances,
            "seed": self.seed,
            "wanted": self.wanted,
            "rows": self.rows,
            "times": None if self.times is None else self.times.to_bytes().hex(),
        }
        return packed("Spread", values, {})

    @classmethod
    def from_bytes(cls, data: bytes) -> Spread:
        """What `to_bytes` was called on. SketchBytesError for other bytes."""
        values, _ = unpacked("Spread", data)
        try:
            times = values["times"]
            known = None if times is None else ExecutionTimes.from_bytes(bytes.fromhex(times))
            return cls(values["instances"], values["seed"], values["wanted"], known, values["rows"])
        except (KeyError, ValueError, TypeError, AttributeError, PlanError) as error:
            raise SketchBytesError(f"the bytes of this Spread cannot be read: {error}") from error

    def __reduce__(self) -> tuple[Any, ...]:
        return (Spread.from_bytes, (self.to_bytes(),))

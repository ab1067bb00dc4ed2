"""What `balance=` asks of a stream that runs in one node, where no key can move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Unmoved:
    """A stream whose keys stay: `processes=1`, "auto" on one processor, a graph that is not cut. What reads
    the moves of a stream need not know where it runs.
    """

    @property
    def moves(self) -> Sequence[Any]:
        """Moves of keys that were carried out (`balance=`), in order: none in one node. Over processes each
        is an `ordstream.fragments.balancing.MoveFigures`.
        """
        return []

    def cancel_move(self) -> bool:
        """Give up the move of keys that is under way (`balance=`). Whether there was one."""
        return False

"""Time punctuations that come with a source's rows: what a node of several takes in place of a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class SourceMark:
    """A time punctuation between two batches.

    Attributes
    ----------
    time : int
        In the clock's storage units.
    """

    time: int
    num_rows: ClassVar[int] = 0

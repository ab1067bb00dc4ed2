"""Time punctuations that come with a source's rows: what a node of several takes in place of a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ordstream.plan.clock import SOURCE_MARKS


@dataclass(frozen=True)
class SourceMark:
    """A time punctuation between two batches.

    Attributes
    ----------
    time : int
        In the clock's storage units.
    clock : int
        Whose it is, as of `ordstream.plan.clock.marks_of`.
    """

    time: int
    clock: int = field(default=SOURCE_MARKS, kw_only=True)
    num_rows: ClassVar[int] = 0

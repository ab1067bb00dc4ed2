"""Lowered: code of an expression on its way to a `BoundExpr`, with the class and the type of its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ordstream.ground.types import is_temporal

Code = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Lowered:
    """Code, with the class and the Arrow type of its result.

    Attributes
    ----------
    code : tuple of instructions
    vm : str or None
        "i64", "f64", "bool", "view", "i128"; None for a null constant that has no type yet.
    arrow : pyarrow.DataType or None
    narrow : bool
        A cast to a type narrower than its class. The machine narrows only when it writes the result column,
        so such a cast must be the outermost operation.
    single : bool
        A float32 as it was read, which is written as text in fewer digits than a float64.
    """

    code: Code
    vm: str | None
    arrow: Any
    narrow: bool = False
    single: bool = False

    @property
    def is_number(self) -> bool:
        """An integer, a float or a decimal, not a date or time."""
        return self.vm in ("i64", "f64", "i128") and not is_temporal(self.arrow)

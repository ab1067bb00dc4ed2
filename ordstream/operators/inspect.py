"""inspect: tuples as they are, shown to a function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ordstream.operators.error_policy import tried_again
from ordstream.operators.filter import FilterFunction
from ordstream.operators.functions import python_only
from ordstream.operators.operator import Site


@dataclass(frozen=True)
class Shown:
    """A function, as a filter's that drops nothing."""

    fn: Callable[..., Any]

    @property
    def hands_row_to(self) -> Callable[..., Any]:
        """What alone looks at the row (`ordstream.ground.columns_read`)."""
        return self.fn

    def __call__(self, row: Any) -> bool:
        self.fn(row)
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Inspect(FilterFunction):
    """Output: input columns.

    Attributes
    ----------
    fn : Shown
    """

    op: ClassVar[str] = "inspect"

    @classmethod
    def bind(cls, site: Site, predicate: Any) -> Self:
        """Raises PlanError where the function is not callable, or compiled."""
        python_only(predicate, site.name, "")
        return cls(**site.fields(site.schema), fn=Shown(tried_again(predicate, site.retries, site.schema)))

    def describe(self) -> str:
        fn = getattr(self.fn, "fn", self.fn)
        return f"inspect {getattr(fn, '__qualname__', repr(fn))}"

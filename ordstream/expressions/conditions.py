"""Values by cases: `od.when(condition).then(value).otherwise(other)`."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, overload

from ordstream.errors import SchemaError
from ordstream.expressions.expr import Apply, Expr, as_expression, if_else


class _Open:
    """Stands for a value that is given later, by `then`."""

    def __repr__(self) -> str:
        return "<by then(value)>"


_OPEN = _Open()


class When(Apply):
    """`when(...)` with its cases so far; null where none is true, unless `otherwise` says what."""

    def __init__(self, cases: tuple[tuple[Any, Any], ...]) -> None:
        self.cases = cases
        self.function, self.option = "if", None

    @functools.cached_property
    def arguments(self) -> tuple[Expr, ...]:  # type: ignore[override]
        """Made when they are looked at: each further case would make all of them again."""
        closed: Any = self.otherwise(None)
        made: tuple[Expr, ...] = closed.arguments
        return made

    @overload
    def when(self, condition: Any) -> Then: ...
    @overload
    def when(self, condition: Any, value: Any) -> When: ...
    def when(self, condition: Any, value: Any = _OPEN) -> When | Then:
        """One more case, looked at when none before is true."""
        return _case(self.cases, condition, value)

    def otherwise(self, value: Any) -> Expr:
        """The value when no case is true."""
        result = as_expression(value)
        for condition, chosen in reversed(self.cases):
            result = if_else(condition, chosen, result)
        return result


@dataclass(frozen=True)
class Then:
    """A condition of `when(...)` that waits for its value."""

    cases: tuple[tuple[Any, Any], ...]
    condition: Any

    def __repr__(self) -> str:
        return f"when({self.condition!r})"

    def then(self, value: Any) -> When:
        """The value where the condition is the first that is true."""
        return When((*self.cases, (self.condition, value)))

    if not TYPE_CHECKING:  # for a type checker an unknown attribute is a mistake

        def __getattr__(self, name: str) -> NoReturn:
            first = "" if name[0] == "_" else ": add .then(value) first"
            raise AttributeError(f"when(condition) has no {name!r}{first}", name=name, obj=self)


@overload
def when(condition: Any) -> Then: ...
@overload
def when(condition: Any, value: Any) -> When: ...
def when(condition: Any, value: Any = _OPEN) -> When | Then:
    """`when(c1, a).when(c2, b).otherwise(c)`: the `value` of the first case whose `condition` is true.

    `when(c1).then(a).when(c2).then(b).otherwise(c)`, as in Polars, is the same. Without `otherwise` it is
    null where no case is true. A text is a text here, as in PySpark; a column is `col(name)`.
    """
    return _case((), condition, value)


def _case(cases: tuple[tuple[Any, Any], ...], condition: Any, value: Any) -> When | Then:
    if condition is None:
        raise SchemaError("when: a condition is needed, such as od.col('x') > 1, got None")
    return Then(cases, condition) if value is _OPEN else When((*cases, (condition, value)))

"""Results that are remembered by the identity of what they were made of: schemas, which a pipeline has for
all of its runs, and which are slow to look through or to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

# So many results of one function are kept; with the next one all are forgotten.
MOST = 64

Result = TypeVar("Result")


def by_identity(function: Callable[[Any], Result]) -> Callable[[Any], Result]:
    """The function, of an immutable value that it is often called with again, remembering its results.

    Parameters
    ----------
    function : callable
        Of one argument. Its results are shared, so nobody may change them.
    """
    known: dict[int, tuple[Any, Result]] = {}

    @wraps(function)
    def remembering(value: Any) -> Result:
        found = known.get(id(value))
        if found is not None and found[0] is value:  # kept, so no other value has this id
            return found[1]
        result = function(value)
        if len(known) >= MOST:
            known.clear()
        known[id(value)] = value, result
        return result

    return remembering

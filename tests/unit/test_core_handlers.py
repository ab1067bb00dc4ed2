"""Handlers of exceptions in the core count on no traceback (docs/core-rules.md): where memory is short there
is none, and Cython gives back, or hands to `__exit__`, what it does not have.
"""

from __future__ import annotations

import re
from pathlib import Path

CORE = Path(__file__).parents[2] / "ordstream" / "_core"


def places(text: str) -> list[int]:
    """Lines with a `return` inside of `except`, or a `with` of an object."""
    found, handlers = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        code = line.strip()
        if not code or code.startswith("#"):
            continue
        deep = len(line) - len(line.lstrip())
        while handlers and deep <= handlers[-1]:
            handlers.pop()
        if re.match(r"except\b[^:]*:", code):
            handlers.append(deep)
        returns = handlers and re.search(r"(^|:\s*)return\b", code)
        if returns or re.match(r"with (?!(gil|nogil)\b).*:$", code):
            found.append(number)
    return found


def test_no_handler_of_the_core_counts_on_a_traceback():
    files = [path for kind in ("*.pyx", "*.pxd") for path in CORE.rglob(kind)]
    assert len(files) > 100
    assert {path.name: where for path in files if (where := places(path.read_text()))} == {}


def test_what_is_found():
    text = (
        "try:\n    return 1\nexcept A as error:\n    if x:\n        return 2\n    else: return 3\n"
        "except B: return 4\nfinally:\n    pass\nreturn 5\nwith gil:\n    pass\nwith nogil:\n    pass\n"
        "with lock:\n    pass\n"
    )
    assert places(text) == [5, 6, 7, 15]

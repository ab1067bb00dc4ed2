"""The text that whatever a regular expression matches has in it.

RE2 looks at every byte of a text, some ten times as slowly as the C library looks for a literal. Most
patterns that are searched for have one ("status=(\\d+)"), and most texts do not have that. What is not
understood here for certain has no literal, which is always right.
"""

from __future__ import annotations

import functools
import re

#: The parts of a pattern that are taken apart; anything else makes it one without a literal.
_PARTS = re.compile(
    r"(?P<group>\((?:\?:|\?P?<\w+>|(?!\?)))|(?P<close>\))"
    r"|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\\[])*\])"
    r"|\\(?P<class>[dDsSwWbBAz])|\\(?P<sign>[^\w\s])"
    r"|(?P<counted>(?:[*?+]|\{\d+(?:,\d*)?\})\??)"
    r"|(?P<any>[.^$])|(?P<sure>[^\\.^$*+?{}\[\]|()])",
    re.DOTALL,
)


@functools.lru_cache(maxsize=256)
def needed_text(pattern: str) -> str:
    """The longest literal of a regular expression (RE2) that every match contains; "": none is certain.

    What stands in a group that may be there no times does not count; a pattern with alternatives or flags
    has none.
    """
    groups: list[list[str]] = [[]]  # the literals of each group that is open, from the outermost on
    run, place = "", 0
    while place < len(pattern):
        part = _PARTS.match(pattern, place)
        if part is None:
            return ""
        place = part.end()
        sign = part["sign"] or part["sure"]
        if sign is not None:
            run += sign
            continue
        if part["counted"] is not None and part["counted"][0] != "+":
            run = run[:-1]  # perhaps no times
        groups[-1].append(run)
        run = ""
        if part["group"] is not None:
            groups.append([])
        elif part["close"] is not None:
            found = groups.pop()
            if not groups:
                return ""
            if pattern[place : place + 1] not in ("*", "?", "{"):
                groups[-1] += found
    return max([*groups[0], run], key=len) if len(groups) == 1 else ""

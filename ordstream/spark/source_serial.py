"""The serial in the source of a row that failed in a node whose rows have none.

Nothing of a run needs serials where rows go to the nodes of their key at once, but a user who reads of an
error does: they say where in the source to look. So serials are given then, by a query of its own over the
columns that rows are sorted by, for the one row. Only the driver can ask for it: the error of an action of
the frame that `apply` returned has the serial, that of a frame derived from it says what it counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pyspark.errors.exceptions.captured import PythonException

from ordstream.spark.executor import OWN_SERIAL

#: Node and position in it (from 1) of a row -> its serial in the source.
SerialOf = Callable[[int, int], int]

# what the user's own exception says stands behind it
_TOLD = re.compile(
    r"(OperatorError: operator .*? failed at serial )(\d+)(: .*) "
    + re.escape(OWN_SERIAL).replace(re.escape("{}"), r"(\d+)"),
    re.DOTALL,
)


class RowFailure(PythonException):
    """PySpark's exception for what a task raised, with the serial in the source in its text."""

    def __init__(self, given: PythonException, text: str) -> None:
        super().__init__(origin=given._origin)
        self._text = text

    def __str__(self) -> str:
        return self._text


def with_source_serial(error: BaseException, serial_of: SerialOf | None) -> BaseException:
    """The error with the serial in the source in place of the position in a node, where it tells of a row
    that has none; else as it is, as where the query for it fails.
    """
    if serial_of is None or not isinstance(error, PythonException):
        return error
    text = str(error)
    told = _TOLD.search(text)
    if told is None:
        return error
    try:
        serial = serial_of(int(told[4]), int(told[2]))
    except Exception:  # of many kinds; what the user must see is the error of the row
        return error
    return RowFailure(error, f"{text[: told.start()]}{told[1]}{serial}{told[3]}{text[told.end() :]}")

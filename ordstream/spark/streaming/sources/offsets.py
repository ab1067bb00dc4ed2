"""What the sources share: options, the column `_offset`, and the limits that Spark sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from ordstream.errors import PlanError
from ordstream.spark.streaming.offset_column import OFFSET

MAX_ROWS = "maxRows"
#: Rows that one task reads, about.
TASK_ROWS = 1 << 18


def with_offset(columns: StructType) -> StructType:
    """The user's columns, then `_offset`.

    Raises
    ------
    PlanError
        A column has that name.
    """
    if OFFSET in columns.names:
        raise PlanError(
            f"a column of the source is named {OFFSET!r}, which is the name of the row's position"
        )
    return StructType([*columns.fields, StructField(OFFSET, LongType(), False)])


def required(options: Mapping[str, str], name: str, source: str) -> str:
    """The value of an option that must be given."""
    value = options.get(name)
    if not value:
        raise PlanError(f"{source}: .option({name!r}, ...) is missing")
    return value


def check_options(options: Mapping[str, str], known: tuple[str, ...], source: str) -> None:
    """A misspelt option would be a limit, or a promise, that silently is not there.

    Parameters
    ----------
    options : mapping of str to str
        As Spark hands them over: names in lower case, whatever the user wrote.
    known : tuple of str
        Names, as the documentation spells them; ``"field."`` stands for all that begin with it.
    source : str
        The name of the format.

    Raises
    ------
    PlanError
        An option has none of these names.
    """
    ends = tuple(name.lower() for name in known if name.endswith("."))
    names = {name.lower() for name in known}
    for name in options:
        if name.lower() not in names and not (ends and name.lower().startswith(ends)):
            there = ", ".join(f"{name}<column>" if name.endswith(".") else name for name in known)
            raise PlanError(f"{source}: there is no option {name!r}; there are: {there}")


def max_rows(options: Mapping[str, str], source: str) -> int | None:
    """Most rows of a micro-batch; None: as many as there are."""
    text = options.get(MAX_ROWS)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise PlanError(f"{source}: .option({MAX_ROWS!r}, ...) must be a number from 1, not {text!r}")
    return int(text)


def yes_or_no(options: Mapping[str, str], name: str, source: str) -> bool:
    """An option that is "true" or "false"; false where it is not given."""
    text = options.get(name, "false")
    if text.lower() not in ("true", "false"):
        raise PlanError(f"{source}: .option({name!r}, ...) must be 'true' or 'false', not {text!r}")
    return text.lower() == "true"


def default_limit(rows: int | None) -> ReadLimit:
    """The limit that Spark hands to `latestOffset` in the ordinary case."""
    return ReadAllAvailable() if rows is None else ReadMaxRows(rows)


def room(limit: ReadLimit) -> int | None:
    """Most rows that may be planned now; None: all that are there."""
    return int(limit.max_rows) if isinstance(limit, ReadMaxRows) else None


def arrow_schema(schema: StructType) -> pa.Schema:
    """What a reader must yield, exactly."""
    return to_arrow_schema(schema, timezone="UTC")


def numbered(first: int, count: int) -> pa.Array:
    """Values of `_offset`."""
    import numpy as np

    return pa.array(np.arange(first, first + count, dtype=np.int64))


Offset = dict[str, Any]

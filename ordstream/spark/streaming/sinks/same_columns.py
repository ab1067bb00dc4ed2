"""A stream's columns, as a sink remembers them, and what has changed."""

from __future__ import annotations

import pyarrow as pa

Columns = list[list[str]]


def columns_of(schema: pa.Schema) -> Columns:
    """[name, type] of every column: what JSON can keep."""
    return [[field.name, str(field.type)] for field in schema]


def difference(before: Columns, now: Columns) -> str:
    """What is different between two lists of columns, in words; empty where nothing is."""
    before, now = _with_nulls(before), _with_nulls(now)
    old: dict[str, str] = {name: type_ for name, type_ in before}
    new: dict[str, str] = {name: type_ for name, type_ in now}
    said = [f"{name!r} is gone" for name in old if name not in new]
    said += [f"{name!r} is new" for name in new if name not in old]
    said += [
        f"{name!r} was {old[name]} and is {new[name]}"
        for name in old
        if name in new and old[name] != new[name]
    ]
    if not said and before != now:
        said = [f"their order was {', '.join(old)} and is {', '.join(new)}"]
    return ", ".join(said)


def _with_nulls(columns: Columns) -> Columns:
    """An older release wrote down which parts of a type have no nulls."""
    return [[name, type_.replace(" not null", "")] for name, type_ in columns]

"""Fields of Redis entries, which are bytes, as columns of a declared type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SourceError
from ordstream.ground.types import is_binary, is_string
from ordstream.spark.streaming.offset_column import OFFSET
from ordstream.spark.streaming.sources.offsets import numbered

ID = "_id"
Entry = tuple[bytes, Mapping[bytes, bytes]]


def check_types(schema: pa.Schema) -> None:
    """Raise PlanError for a column that no text can fill."""
    for field in schema:
        type_ = field.type
        plain = pat.is_primitive(type_) and not pat.is_duration(type_) and not pat.is_interval(type_)
        if field.name == ID and not is_string(type_):
            raise PlanError(f"column {ID!r} is the entry's id, a STRING, not {type_}")
        if not (plain or is_string(type_) or is_binary(type_) or pat.is_decimal(type_)):
            raise PlanError(
                f"column {field.name!r}: a field of an entry is a text, which can't become {type_}; "
                "take a STRING"
            )


def to_batch(
    entries: Sequence[Entry], schema: pa.Schema, fields: Mapping[str, bytes], offset: int
) -> pa.RecordBatch:
    """Entries as rows of exactly `schema`, numbered from `offset`.

    Raises
    ------
    SourceError
        A value does not fit its column; names entry and field.
    """
    columns = []
    for column in schema:
        if column.name == OFFSET:
            columns.append(numbered(offset, len(entries)))
            continue
        values = [entry if column.name == ID else said.get(fields[column.name]) for entry, said in entries]
        try:
            made = parsed(values, column.type)
        except (pa.ArrowException, ValueError) as error:
            raise _bad(entries, values, column, fields, error) from error
        if made.null_count and not column.nullable:
            raise _bad(entries, values, column, fields, ValueError("it is not there"))
        columns.append(made)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def parsed(values: Sequence[bytes | None], type_: pa.DataType) -> pa.Array:
    """Texts as values of a type: what Arrow's cast reads, and nothing else.

    Raises
    ------
    pyarrow.ArrowException, ValueError
    """
    if is_binary(type_):
        return pa.array(values, type_)
    texts = pa.array([None if value is None else value.decode() for value in values], pa.string())
    return texts if is_string(type_) else texts.cast(type_)


def _bad(
    entries: Sequence[Entry],
    values: Sequence[bytes | None],
    column: pa.Field,
    fields: Mapping[str, bytes],
    error: Exception,
) -> SourceError:
    """The error for the first value that does not fit."""
    name = fields[column.name].decode(errors="replace")
    for (entry, _), value in zip(entries, values, strict=True):
        why: Exception | None = None
        if value is None and not column.nullable:
            why = error
        elif value is not None:
            try:
                parsed([value], column.type)
            except (pa.ArrowException, ValueError) as met:
                why = met
        if why is not None:
            said = "is missing" if value is None else f"is {value[:80]!r}"
            return SourceError(
                f"entry {entry.decode()}: field {name!r} {said}, which is no {column.type} (column "
                f"{column.name!r}): {why}. {_instead(column, value)}"
            )
    return SourceError(f"field {name!r}, column {column.name!r}: {error}")


def _instead(column: pa.Field, value: bytes | None) -> str:
    """How to declare a column that a value does not fit."""
    if value is None:
        return "Declare the column without NOT NULL"
    if is_string(column.type):
        return "Declare the column as BINARY, which takes any bytes"
    return "Declare the column as STRING, and make values of it in the frame (try_cast)"

"""Arrow columns as PostgreSQL's: which type each one becomes, and its values in COPY's text format.

The text is made column by column with Arrow's own functions. COPY's text format is taken, not CSV, because a
line of a CSV that is ``\\.`` ends the copy in servers before version 18, also inside a quoted value.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import PlanError, SinkError
from ordstream.ground.types import is_binary, is_list, is_string

NULL = "\\N"
NAME_BYTES = 63  # PostgreSQL cuts longer names off without an error
COLUMNS = 1600
#: Days from 1970: of the first that PostgreSQL has, and of the first in the year 1. Microseconds of a day.
JULIAN_0, YEAR_1, DAY = -2_440_588, -719_162, 86_400_000_000

_PLAIN: dict[pa.DataType, str] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.uint8(): "smallint",
    pa.uint16(): "integer",
    pa.uint32(): "bigint",
    pa.uint64(): "numeric(20,0)",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.date64(): "date",
}


def column_types(schema: pa.Schema) -> list[str]:
    """The PostgreSQL type of each column, as `format_type` writes it.

    Raises
    ------
    PlanError
        A column's type or name has no counterpart.
    """
    if len(schema) > COLUMNS:
        raise PlanError(f"the output has {len(schema)} columns; a table of PostgreSQL has {COLUMNS} at most")
    for name in schema.names:
        check_name(name, f"column {name!r}")
    return [_type(field.type, field.name) for field in schema]


def check_name(name: str, what: str) -> None:
    """Raise PlanError for a name that PostgreSQL would cut off or can't have."""
    if not name or "\0" in name:
        raise PlanError(f"{what}: a name in PostgreSQL has a character at least, and no NUL")
    if len(name.encode()) > NAME_BYTES:
        raise PlanError(
            f"{what}: PostgreSQL cuts names off after {NAME_BYTES} bytes, this one has "
            f"{len(name.encode())}; rename it (with_columns, select)"
        )


def _type(type_: pa.DataType, column: str) -> str:
    if is_list(type_) and not pat.is_nested(type_.value_type):
        return f"{_type(type_.value_type, column)}[]"
    if pat.is_nested(type_):
        raise PlanError(
            f"column {column!r}: type {type_!s:.200} has no counterpart in PostgreSQL here: make columns of "
            "a struct's fields (select(a=od.col('s').struct.field('a'))), a row of each element of a list "
            "(flat_map(od.explode(...))), or leave it out"
        )
    if type_ in _PLAIN:
        return _PLAIN[type_]
    if is_string(type_):
        return "text"
    if is_binary(type_):
        return "bytea"
    if pat.is_timestamp(type_):
        return "timestamp with time zone" if type_.tz else "timestamp without time zone"
    if pat.is_time(type_):
        return "time without time zone"
    if pat.is_duration(type_):
        return "interval"
    if pat.is_decimal(type_) and type_.scale >= 0:
        return f"numeric({type_.precision},{type_.scale})"
    raise PlanError(
        f"column {column!r}: type {type_} has no counterpart in PostgreSQL here; cast it, or leave it out"
    )


def lines(batch: pa.RecordBatch) -> memoryview:
    """The rows of a batch as COPY takes them: a line each, tabs between, ``\\N`` for null.

    Raises
    ------
    SinkError
        A value has no counterpart: a NUL in a text, nanoseconds, a day out of range. Names column and tag.
    """
    if not batch.num_rows:
        return memoryview(b"")
    cells = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            text = _text(column)
        except _NoCounterpart as error:
            raise _refused(batch, field, error) from error
        except pa.ArrowInvalid as error:
            raise SinkError(
                f"column {field.name!r} ({field.type}): PostgreSQL can't keep it: {error}"
            ) from error
        cells.append(pc.fill_null(text, _constant(NULL)))
    cells[-1] = pc.binary_join_element_wise(cells[-1], _constant(""), _constant("\n"))
    joined = pc.binary_join_element_wise(*cells, _constant("\t"))
    offsets = joined.buffers()[1]
    ends = memoryview(offsets).cast("B").cast("q")
    first, last = ends[joined.offset], ends[joined.offset + len(joined)]
    return memoryview(joined.buffers()[2])[first:last]


class _NoCounterpart(ValueError):
    """A value that PostgreSQL's type has not; `row` of the column."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def _refused(batch: pa.RecordBatch, field: pa.Field, error: _NoCounterpart) -> SinkError:
    tag = [batch.column(name)[error.row].as_py() for name in batch.schema.names[-2:]]
    return SinkError(f"column {field.name!r}, serial {tag[0]}, output {tag[1]}: {error}")


def _text(column: pa.Array) -> pa.Array:
    """Large strings in COPY's text format, null for null."""
    type_ = column.type
    if is_list(type_):
        return _arrays(column)
    if is_string(type_):
        return _escaped(column.cast(pa.large_string()))
    if is_binary(type_):
        hexed = [None if value is None else f"\\\\x{value.hex()}" for value in column.to_pylist()]
        return pa.array(hexed, pa.large_string())
    return _plain(column)


def _plain(column: pa.Array) -> pa.Array:
    """Numbers and times: no character of their text has a meaning to COPY."""
    type_ = column.type
    if pat.is_date64(type_):
        column = column.cast(pa.date32())
    elif pat.is_duration(type_):
        micro = pc.cast(_micro(column, pa.duration("us")), pa.int64())
        text = pc.cast(micro, pa.large_string())
        return pc.binary_join_element_wise(text, _constant("microseconds"), _constant(" "))
    elif pat.is_timestamp(type_):
        # the instant, whatever the zone that the type names
        column = _micro(column, pa.timestamp("us", "UTC" if type_.tz else None))
    if pat.is_date32(column.type) or pat.is_timestamp(column.type):
        return _dated(column)
    if pat.is_time(type_):
        column = _micro(column, pa.time64("us"))
    return column.cast(pa.large_string())


def _dated(column: pa.Array) -> pa.Array:
    """Days and instants. PostgreSQL has no year 0 and no sign, but years before Christ."""
    is_day = pat.is_date32(column.type)
    counts = column.cast(pa.int32()).cast(pa.int64()) if is_day else column.cast(pa.int64())
    unit = 1 if is_day else DAY
    text = column.cast(pa.large_string())
    # Arrow writes "<value out of range: ...>"
    outside = pc.or_(pc.less(counts, JULIAN_0 * unit), pc.starts_with(text, "<"))
    if (row := pc.index(outside, True).as_py()) >= 0:
        raise _NoCounterpart(
            row, "PostgreSQL's days begin in November 4714 BC, and no year behind 32767 is written here"
        )
    early = pc.fill_null(pc.less(counts, YEAR_1 * unit), False)
    if not pc.any(early).as_py():
        return text
    counted_back = map(_before_christ, text.filter(early).to_pylist())
    return pc.replace_with_mask(text, early, pa.array(counted_back, pa.large_string()))


def _before_christ(text: str) -> str:
    """ "-0043-03-15" -> "0044-03-15 BC"."""
    at = text.index("-", 1)
    return f"{1 - int(text[:at]):04d}{text[at:]} BC"


def _constant(text: str | None) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _micro(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Times in microseconds, PostgreSQL's own unit."""
    if getattr(column.type, "unit", None) == "ns":
        for row, value in enumerate(column.cast(pa.int64()).to_pylist()):
            if value is not None and value % 1000:
                raise _NoCounterpart(
                    row, "PostgreSQL keeps microseconds, this time has nanoseconds; round it first"
                )
    return column.cast(type_)


def _escaped(text: pa.Array) -> pa.Array:
    """A text with what COPY takes for a mark written out."""
    nul = pc.fill_null(pc.match_substring(text, "\0"), False)
    if pc.any(nul).as_py():
        raise _NoCounterpart(pc.index(nul, True).as_py(), "PostgreSQL's text can't hold the character NUL")
    for plain, written in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = pc.replace_substring(text, plain, written)
    return text


def _quoted(values: pa.Array) -> pa.Array:
    """Texts and bytes in quotes: marks are written out for the array first, then for COPY."""
    if is_binary(values.type):
        text = pa.array(
            [None if one is None else f"\\x{one.hex()}" for one in values.to_pylist()], pa.large_string()
        )
    else:
        text = values.cast(pa.large_string())
    for plain, written in (("\\", "\\\\"), ('"', '\\"')):
        text = pc.replace_substring(text, plain, written)
    quote = _constant('"')
    return _escaped(pc.binary_join_element_wise(quote, text, quote, _constant("")))


def _arrays(column: pa.Array) -> pa.Array:
    """Lists as ``{1,2,NULL}``, of texts and bytes as ``{"a","b",NULL}``."""
    values = column.flatten()
    try:
        quoted = is_string(values.type) or is_binary(values.type)
        inner = pc.fill_null(_quoted(values) if quoted else _plain(values), _constant("NULL"))
    except _NoCounterpart as error:
        raise _NoCounterpart(pc.list_parent_indices(column)[error.row].as_py(), str(error)) from error
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    joined = pc.binary_join(pa.LargeListArray.from_arrays(offsets, inner), _constant(","))
    text = pc.binary_join_element_wise(_constant("{"), joined, _constant("}"), _constant(""))
    return pc.if_else(column.is_null(), _constant(None), text)

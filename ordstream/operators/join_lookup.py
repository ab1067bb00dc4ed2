"""join_lookup: each tuple with the rows of a static table that have its key; or only the tuples whose key
is in the table, or is not, as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.choices import is_one_of, is_text
from ordstream.ground.imported import COLLECT, imported, is_lazy
from ordstream.ground.packed_types import as_plain, carried, decoded, is_packed, plain
from ordstream.ground.slices import joinable
from ordstream.ground.types import (
    column_index,
    integer_range,
    is_binary,
    is_list,
    is_string,
    physical_type,
    storage_values,
)
from ordstream.operators.arguments import column_name, column_names, key_columns
from ordstream.operators.operator import Operator, Site, named_once
from ordstream.reference.base import Row, SerialOperator, SortKey, normal, sort_key

HowShown = Literal["inner", "left"]
HowKept = Literal["semi", "anti"]
How = Literal["inner", "left", "semi", "anti"]
Validate = Literal["m:m", "m:1"]
On = str | Sequence[str] | Mapping[str, str]

#: Spark's names of joins that others have under another one.
_ELSEWHERE = {f"left{_}{how}": f"; write how={how!r}" for how in get_args(HowKept) for _ in ("", "_")}

#: Bytes or elements of a column of strings or lists with offsets of 32 bits.
OFFSETS_END = 2**31 - 1


def bound_lookup(site: Site, data: Any, on: On, how: Any, suffix: Any, validate: Any) -> Lookup:
    """The operator of a `join_lookup`; PlanError and SchemaError where its arguments do not fit."""
    where = site.name
    if not is_one_of(how, get_args(How)):
        raise PlanError(
            f"{where}: how must be 'inner', 'left', 'semi' or 'anti', got {how!r}"
            f"{_ELSEWHERE.get(str(how), '')}"
        )
    if not is_one_of(validate, get_args(Validate)):
        raise PlanError(f"{where}: validate must be 'm:m' or 'm:1', got {validate!r}")
    checked_suffix(suffix, where)
    keyed = KeyedTable.of(site, data, on)
    made: Lookup
    if is_one_of(how, get_args(HowKept)):
        made = FilterLookup.bind(site, keyed, how)
    else:
        made = JoinLookup.bind(site, keyed, how, suffix)
    if validate == "m:1":
        made.refuse_repeated_keys()
    return made


@dataclass(frozen=True, eq=False, kw_only=True)
class Lookup(Operator):
    """What looks for its tuples' keys in a table.

    Attributes
    ----------
    on : tuple of int
        Key columns of the input.
    table : pyarrow.RecordBatch
        The key columns in the order of `on` and in the input's types, then the columns that are shown.
        Nobody writes into it.
    how : "inner", "left", "semi" or "anti"
    """

    op: ClassVar[str] = "join_lookup"
    passes_unread: ClassVar[bool] = True

    on: tuple[int, ...]
    table: pa.RecordBatch
    how: How

    def refuse_repeated_keys(self) -> None:
        """PlanError where a key without null has two rows in the table: names key and rows."""
        found = self.kernel().repeated
        if found is not None:
            row = self.table.slice(found[1], 1).to_pylist()[0]
            key = ", ".join(f"{name} {row[name]!r}" for name in self.table.schema.names[: len(self.on)])
            raise PlanError(
                f"{self.name}: validate='m:1', but the table has the key {key} twice, in the rows "
                f"{found[0]} and {found[1]} (from 0): take one of them out, or leave validate out"
            )

    def kernel(self) -> Any:
        from ordstream._core.kernels.join_lookup import JoinLookupKernel

        return JoinLookupKernel(self)

    def columns_read(self) -> set[int]:
        return set(self.on)

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        keys = zip(self.columns_named(self.on).split(", "), self.table.schema.names, strict=False)
        on = ", ".join(left if left == right else f"{left} = {right}" for left, right in keys)
        return f"join_lookup {self.how} on {on}, a table of {self.table.num_rows} rows"


@dataclass(frozen=True, eq=False, kw_only=True)
class JoinLookup(Lookup):
    """Output: input columns, then those of the table but its key columns."""

    fans_out: ClassVar[bool] = True

    @classmethod
    def bind(cls, site: Site, keyed: KeyedTable, how: HowShown, suffix: str) -> Self:
        """Raises SchemaError where columns of the table do not fit the schema."""
        where, taken = site.name, frozenset(site.schema.names)
        shown = [index for index in range(keyed.table.num_columns) if index not in keyed.at]
        columns = [plain_column(keyed.table, index, where) for index in shown]
        called = keyed.table.schema.names  # made at each call
        names = [shown_name(called[index], taken, suffix, where) for index in shown]
        types = [plain(column.type) for column in columns]
        fields = [pa.field(name, type_) for name, type_ in zip(names, types, strict=True)]
        output = named_once([*site.schema, *fields], where)
        return cls(**site.fields(output), on=keyed.on, table=keyed.batch(columns, names), how=how)

    def reference(self) -> SerialOperator:
        return JoinLookupReference(self)

    def describe(self) -> str:
        shown = ", ".join(self.output.names[len(self.input) :]) or "no columns"
        return f"{super().describe()}: {shown}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterLookup(Lookup):
    """Output: the input's tuples whose key is in the table ("semi"), or the others ("anti")."""

    one_to_one: ClassVar[bool] = True

    @classmethod
    def bind(cls, site: Site, keyed: KeyedTable, how: HowKept) -> Self:
        """The table's other columns are not looked at."""
        return cls(**site.fields(site.schema), on=keyed.on, table=keyed.batch([], []), how=how)

    def reference(self) -> SerialOperator:
        return FilterLookupReference(self)


class LookupReference(SerialOperator):
    """The table's rows by key, in the table's order. Null is in no key."""

    def __init__(self, operator: Lookup) -> None:
        super().__init__(operator)
        self.rows: dict[SortKey, list[Row]] = {}
        n = len(operator.on)
        columns = [storage_values(column) for column in operator.table.columns]
        for row in zip(*columns, strict=True):
            if None not in row[:n]:
                self.rows.setdefault(sort_key(tuple(map(normal, row[:n]))), []).append(row[n:])

    def found(self, row: Row) -> list[Row]:
        """What the rows of the table with a tuple's key show."""
        key = tuple(normal(row[index]) for index in self.operator.on)
        return [] if None in key else self.rows.get(sort_key(key), [])


class JoinLookupReference(LookupReference):
    """One output per row of the table with the tuple's key, in the table's order."""

    def process(self, row: Row) -> list[Row]:
        operator, found = self.operator, self.found(row)
        if not found and operator.how == "left":
            found = [(None,) * (operator.table.num_columns - len(operator.on))]
        return [(*row, *shown) for shown in found]


class FilterLookupReference(LookupReference):
    """Keeps the tuples whose key the table has, or, with "anti", has not."""

    def process(self, row: Row) -> list[Row]:
        return [row] if bool(self.found(row)) == (self.operator.how == "semi") else []


# ---------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True)
class KeyedTable:
    """A table whose key columns fit those of the tuples.

    Attributes
    ----------
    table : pyarrow.Table
    at : tuple of int
        Its key columns.
    on : tuple of int
        Those of the tuples.
    keys : tuple of pyarrow.Array
        The table's key columns, in the types of the tuples.
    """

    table: pa.Table
    at: tuple[int, ...]
    on: tuple[int, ...]
    keys: tuple[pa.Array, ...]

    @classmethod
    def of(cls, site: Site, data: Any, on: On) -> Self:
        """Raises PlanError and SchemaError where table and key do not fit the schema."""
        where, schema = site.name, site.schema
        named = named_pairs(on, where)
        table = arrow_table(data, where)
        lefts = key_columns(schema, [left for left, _ in named], where)
        at = tuple(column_index(table.schema, right, f"{where}, the table") for _, right in named)
        if len(set(at)) < len(at):
            raise PlanError(f"{where}: a column of the table is named twice in on={on!r}")
        names = table.schema.names
        keys = tuple(key_as(plain_column(table, right, where), schema.field(left), names[right], where)
                     for left, right in zip(lefts, at, strict=True))  # fmt: skip
        return cls(table, at, lefts, keys)

    def batch(self, columns: Sequence[pa.Array], names: Sequence[str]) -> pa.RecordBatch:
        """The key columns, then others of the table, under names."""
        called = [self.table.schema.names[index] for index in self.at]
        return pa.RecordBatch.from_arrays([*self.keys, *columns], names=[*called, *names])


def named_pairs(on: On, where: str) -> list[tuple[str, str]]:
    """(column of the tuples, column of the table) of each key column."""
    if isinstance(on, Mapping):
        return [(column_name(left, where), column_name(right, where)) for left, right in on.items()]
    return [(name, name) for name in column_names(on, where)]


def arrow_table(data: Any, where: str) -> pa.Table:
    """The data as a table of pyarrow.

    Raises
    ------
    PlanError
        It is no Arrow data, or has more rows than a row number has room for.
    SchemaError
        Two columns have one name.
    """
    needed = (
        f"{where}: an Arrow table is needed (pyarrow, Polars, DuckDB and others have them; of a file: "
        f"pyarrow.parquet.read_table(path)), got {type(data).__name__}"
    )
    if isinstance(data, Mapping):
        raise PlanError(f"{needed}: of columns in a dict pyarrow.table(data) makes one")
    if hasattr(data, "join_lookup"):
        raise PlanError(f"{needed}: rows of another pipeline are joined by join_interval and join_asof")
    if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
        raise PlanError(f"{needed}: {COLLECT}" if is_lazy(data) else needed)
    if isinstance(data, pa.Array | pa.ChunkedArray) and not pat.is_struct(data.type):
        raise PlanError(f"{needed}, one column without a name")
    if hasattr(data, "__arrow_c_stream__"):
        table = imported(data, f"{where}: got ", PlanError).read_all()
    else:
        table = pa.Table.from_batches([pa.record_batch(data)])
    if table.num_rows > OFFSETS_END:
        raise PlanError(f"{where}: a table has at most {OFFSETS_END} rows, got {table.num_rows}")
    named_once(list(table.schema), f"{where}, the table")
    return table


def plain_column(table: pa.Table, index: int, where: str) -> pa.Array:
    """A column as one array in a layout that the core reads.

    Raises
    ------
    SchemaError
        A type that a pipeline does not carry.
    """
    column, name = table.column(index), table.schema.field(index).name
    type_ = column.type
    # an empty slice keeps its offset, and may have lost its buffers: Arrow joins it with nothing
    arrays = [joinable(readable(chunk)) for chunk in column.chunks if len(chunk)]
    column = pa.chunked_array(arrays, arrays[0].type if arrays else plain(type_))
    if is_string(column.type) and column.nbytes > OFFSETS_END:
        column = column.cast(pa.large_string())
    elif is_binary(column.type) and column.nbytes > OFFSETS_END:
        column = column.cast(pa.large_binary())
    elif is_list(column.type) and column.nbytes > OFFSETS_END:
        column = column.cast(pa.large_list(column.type.value_type))
    try:
        physical_type(column.type, name)
    except SchemaError as error:
        raise SchemaError(
            f"{where}, the table: column {name!r}: type {type_} is not supported; cast it, or leave it out: "
            f"table.drop_columns([{name!r}])"
        ) from error
    return column.combine_chunks()


def readable(array: pa.Array) -> pa.Array:
    """An array in a layout that the core reads; all its chunks may need offsets of 64 bits."""
    type_ = array.type
    if pat.is_dictionary(type_) or pat.is_run_end_encoded(type_):
        return readable(decoded(array))
    if pat.is_string_view(type_) or pat.is_binary_view(type_):
        return array.cast(pa.large_string() if pat.is_string_view(type_) else pa.large_binary())
    wanted = carried(type_)
    return as_plain(array) if is_packed(wanted) or not wanted.equals(type_) else array


def key_as(array: pa.Array, left: pa.Field, name: str, where: str) -> pa.Array:
    """A key column of the table in the type of the tuples' column.

    Raises
    ------
    SchemaError
        Values of the two types are not compared; or decimals that the tuples' type does not hold.
    """
    texts = is_string(left.type) and is_string(array.type)
    if array.type == left.type or texts or (is_binary(left.type) and is_binary(array.type)):
        return array
    both = (left.type, array.type)
    if all(map(pat.is_timestamp, both)) and left.type.unit == array.type.unit:
        if (left.type.tz is None) == (array.type.tz is None):  # instants, or readings, in one unit
            return array.cast(left.type)
    elif all(map(pat.is_integer, both)):
        return _those_held(array, left.type).cast(left.type)
    elif all(map(pat.is_decimal128, both)):
        try:
            return array.cast(left.type)
        except pa.ArrowInvalid:
            _refuse_types(array, left, name, where, "and has values beyond it")
    elif pat.is_null(array.type):
        return readable(array.cast(left.type))  # of the tuples' views, too
    _refuse_types(array, left, name, where, "which is not compared with it")


def _those_held(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Integers, with null in place of those that a type of integers does not hold: no tuple has them."""
    both = integer_range(type_), integer_range(array.type)
    least, most = max(low for low, _ in both), min(high for _, high in both)
    low, high = pa.scalar(least, array.type), pa.scalar(most, array.type)
    held = pc.and_(pc.greater_equal(array, low), pc.less_equal(array, high))
    return pc.if_else(held, array, pa.scalar(None, array.type))


def _refuse_types(array: pa.Array, left: pa.Field, name: str, where: str, why: str) -> NoReturn:
    raise SchemaError(
        f"{where}: the key column {left.name!r} is {left.type}, {name!r} of the table is {array.type}, {why}"
        f"; cast one of them, such as with_columns({left.name}=od.col({left.name!r}).cast(...))"
    )


def checked_suffix(suffix: Any, where: str) -> None:
    """PlanError unless it can stand behind a column's name."""
    if not is_text(suffix) or not suffix:
        raise PlanError(f"{where}: suffix must be a non-empty str, got {suffix!r:.200}")


def shown_name(name: str, taken: Set[str], suffix: str, where: str) -> str:
    """What a column of the table is called in the output: with the suffix where the input has the name."""
    if name not in taken:
        return name
    if name + suffix in taken:
        raise SchemaError(
            f"{where}: the other side's column {name!r} would be called {name + suffix!r}, and there is one "
            "of that name: rename it there, or give another suffix="
        )
    return name + suffix

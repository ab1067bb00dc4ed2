"""Random joins for the property tests."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from hypothesis import strategies as st
from property.drawn_expressions import Expressions, named
from property.drawn_options import can_be_time
from property.drawn_values import DAY, FLOATS, STRINGS, comparable

from ordstream.ground.types import (
    from_storage,
    integer_range,
    is_binary,
    is_list,
    is_string,
    is_temporal,
    round_float32,
)


def small_values(type_: pa.DataType) -> list[Any]:
    """Storage values of a type that the sources often have."""
    if pat.is_integer(type_):
        low, high = integer_range(type_)
        return [*range(max(low, -4), 10), low, high]
    if pat.is_floating(type_):
        return [round_float32(x) for x in FLOATS] if pat.is_float32(type_) else list(FLOATS)
    if pat.is_boolean(type_):
        return [False, True]
    if is_string(type_):
        return list(STRINGS)
    if is_binary(type_):
        return [b"", b"\x00", b"\xff\xfe", b"b" * 12]
    if pat.is_date64(type_):
        return [day * DAY * 1000 for day in range(-3, 7)]
    if is_temporal(type_):
        return list(range(41)) if pat.is_time(type_) else list(range(-5, 42))
    if pat.is_decimal(type_):
        return list(range(-3, 4))
    raise AssertionError(type_)


def table_for(schema: pa.Schema, key: list[str], seed: int, rows: int) -> pa.Table:
    """A side table with key columns of the types of a schema, and columns of its own; nulls among all."""
    chance = random.Random(seed)
    columns = {name: schema.field(name).type for name in key}
    columns |= {"side_s": pa.string(), schema.names[0] + "_": pa.int16(), "side_l": pa.list_(pa.int32())}
    if schema.names[-1] not in key:
        columns[schema.names[-1]] = pa.float64()  # its name is taken: it gets a suffix
    arrays = []
    for name, type_ in columns.items():
        pool = [[], [1], [2, 3]] if is_list(type_) else small_values(type_)
        some = chance.sample(pool, min(len(pool), chance.choice((1, 3, 9)))) if name in key else pool
        values = [None if chance.random() < 0.1 else chance.choice(some) for _ in range(rows)]
        arrays.append(in_some_layout(from_storage(values, type_), chance))
    return pa.Table.from_arrays(arrays, names=list(columns))


def in_some_layout(array: pa.Array, chance: random.Random) -> pa.Array:
    """The same values as other libraries have them: views (Polars), dictionaries, runs."""
    type_ = array.type
    if is_string(type_) or is_binary(type_):
        view = pa.string_view() if is_string(type_) else pa.binary_view()
        coded = array.dictionary_encode()
        of_views = pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(view))
        return chance.choice((array, array.cast(view), coded, of_views))
    if pat.is_list(type_):
        view = chance.choice((pa.list_view, pa.large_list_view))(type_.value_field)
        return chance.choice((array, pa.array(array.to_pylist(), view)))
    if pat.is_integer(type_):
        return chance.choice((array, array, array.dictionary_encode(), pc.run_end_encode(array)))
    return array


#: Least and most of the right time less the left one.
SPANS = ((0, 0), (0, 3), (-2, 2), (-40, 0), (-3, -1), (2, 40), (0, 2**40))


class Joins:
    """Part of `property.strategies.Chain`."""

    draw: Any
    schema: pa.Schema
    pick: Any
    add: Any
    key: Any
    time: Any
    fresh: Any
    policy: Any

    def join_interval(self) -> None:
        how = self.pick(("'inner'", "'left'", "'right'", "'full'"))
        self.time_join("_join_interval", f"{self.pick(SPANS)!r}, {how}")

    def join_asof(self) -> None:
        self.time_join("_join_asof", self.pick(("None", "0", "2", "40")))

    def time_join(self, method: str, arguments: str) -> None:
        """A join of a lane in which some condition tells the sides apart."""
        key, times, side = self.key(), named(self.schema, can_be_time), self.fresh("side")
        if not key or not times:
            return
        shown = [self.draw(st.lists(st.sampled_from(self.schema.names), max_size=3)) for _ in range(2)]
        taken = set(self.schema.names)
        given = [
            {next(n for i in range(99) if (n := f"{prefix}{place}_{i}") not in taken): name
             for place, name in enumerate(names)}
            for prefix, names in zip("lr", shown, strict=True)
        ]  # fmt: skip
        time = self.time(times)
        condition = Expressions(self.draw, self.schema).boolean(1)
        self.add(f".with_columns({condition}.alias({side!r}), on_error='skip')")
        sides = f"Sides({side!r}, ({time!r}, {time!r}), {given[0]!r}, {given[1]!r})"
        self.add(f"{key}.{method}({sides}, {arguments}{self.policy()})")

    def join_lookup(self) -> None:
        able = named(self.schema, comparable)
        names = self.schema.names
        if able and not {"side_s", names[0] + "_", "side_l", names[-1] + "_right"} & set(names):
            key = self.draw(st.lists(st.sampled_from(able), min_size=1, max_size=2, unique=True))
            seed, rows = self.draw(st.integers(0, 99)), self.pick((0, 1, 4, 12, 12))
            how = self.pick(("", ", how='left'", ", how='semi'", ", how='anti'"))
            self.add(f".join_lookup(table_for(pipeline.schema, {key!r}, {seed}, {rows}), {key!r}{how})")

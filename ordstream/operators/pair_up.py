"""pair_up: each new value of a key with every value that the key had before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.errors import SchemaError
from ordstream.ground.packed_types import kept_list
from ordstream.ground.types import column_index, is_counted, is_fixed_number
from ordstream.operators.arguments import column_names, nonempty
from ordstream.operators.operator import Operator, Site, named_once
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, normal, sort_key


@dataclass(frozen=True, eq=False, kw_only=True)
class PairUp(Operator):
    """Output: carried columns, the smaller and the larger value.

    Attributes
    ----------
    column : int
    carry : tuple of int
    """

    op: ClassVar[str] = "pair_up"
    stateful: ClassVar[bool] = True

    column: int
    carry: tuple[int, ...] = ()

    @classmethod
    def bind(cls, site: Site, column: str, carry: str | Sequence[str], left: str, right: str) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        where, schema = site.name, site.schema
        index = column_index(schema, column, where)
        type_ = schema.field(index).type
        if not is_fixed_number(type_) or is_counted(type_):  # its state is a list of them
            raise SchemaError(f"{where}: {column!r} must be a number, date or time, it is {type_}")
        carried = tuple(column_index(schema, name, where) for name in column_names(carry, f"{where}: carry"))
        fields = [schema.field(i) for i in carried]
        fields += [pa.field(nonempty(left, where), type_), pa.field(nonempty(right, where), type_)]
        return cls(**site.fields(named_once(fields, where)), column=index, carry=carried)

    def kernel(self) -> Any:
        from ordstream._core.kernels.pair_up import PairUpKernel

        return PairUpKernel(self)

    def reference(self) -> SerialOperator:
        return PairUpReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The list of the distinct values, in order of arrival, floats in their normal form."""
        field = self.input.field(self.column)
        return state_rows(self, [pa.field(field.name, kept_list(field.type))])

    def columns_read(self) -> set[int]:
        return {*self.key, self.column}

    def columns_passed(self) -> dict[int, int]:
        return dict(enumerate(self.carry))

    def describe(self) -> str:
        return f"pair_up{self.by_key} of {self.input.names[self.column]}"


class PairUpReference(Keyed):
    """Each value that is new for its key with the values before it. A state is the list of them."""

    def process(self, row: Row) -> list[Row]:
        value = normal(self.not_null(row, self.operator.column))
        earlier = self.states.setdefault(self.key_of(row), [])
        if any(sort_key([x]) == sort_key([value]) for x in earlier):
            return []
        carried = tuple(row[index] for index in self.operator.carry)
        pairs = [sorted((x, value), key=lambda v: sort_key([v])) for x in earlier]
        earlier.append(value)
        return [(*carried, *pair) for pair in pairs]

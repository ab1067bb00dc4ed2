"""forward_fill: each tuple with the last value of its key in the place of a null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.packed_types import is_packed
from ordstream.ground.types import (
    column_index,
    is_binary,
    is_fixed_number,
    is_list,
    is_string,
    is_wide,
    unique_names,
)
from ordstream.operators.arguments import column_names, flat
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class ForwardFill(Operator):
    """Output: input columns.

    Attributes
    ----------
    columns : tuple of int
        Those that are filled.
    """

    op: ClassVar[str] = "forward_fill"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    columns: tuple[int, ...]

    @classmethod
    def bind(cls, site: Site, columns: Sequence[Any]) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        names = column_names(flat(columns), site.name)
        if not names:
            raise PlanError(f"{site.name}: at least one column is needed, such as forward_fill('price')")
        unique_names(names, site.name)
        indexes = tuple(column_index(site.schema, name, site.name) for name in names)
        for index in indexes:
            field = site.schema.field(index)
            if not (
                is_fixed_number(field.type)
                or is_wide(field.type)
                or pat.is_boolean(field.type)
                or is_string(field.type)
                or is_binary(field.type)
                or is_list(field.type)
                or is_packed(field.type)
            ):
                raise SchemaError(f"{site.name}: {field.name!r} can't be filled, it is {field.type}")
        return cls(**site.fields(site.schema), columns=indexes)

    def kernel(self) -> Any:
        from ordstream._core.kernels.forward_fill import ForwardFillKernel

        return ForwardFillKernel(self)

    def reference(self) -> SerialOperator:
        return ForwardFillReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The last value of each column, null where there was none."""
        return state_rows(self, [self.input.field(index).with_nullable(True) for index in self.columns])

    def columns_read(self) -> set[int]:
        return {*self.key, *self.columns}

    def columns_passed(self) -> dict[int, int]:
        return {index: index for index in range(len(self.input)) if index not in self.columns}

    def describe(self) -> str:
        return f"forward_fill{self.by_key}: {self.columns_named(self.columns)}"


class ForwardFillReference(Keyed):
    """The input row, with the last value of its key in the place of a null. A state is these values."""

    def process(self, row: Row) -> list[Row]:
        key, columns = self.key_of(row), self.operator.columns
        before = self.states.get(key, (None,) * len(columns))
        now = {
            index: last if row[index] is None else row[index]
            for index, last in zip(columns, before, strict=True)
        }
        self.states[key] = tuple(now.values())
        return [tuple(now.get(index, value) for index, value in enumerate(row))]

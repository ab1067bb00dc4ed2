"""lag: each tuple with values of the tuple before it of the same key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import column_index, is_fixed_number
from ordstream.operators.arguments import nonempty
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class Lag(Operator):
    """Output: input columns, then their values in the tuple before.

    Attributes
    ----------
    columns : tuple of int
    """

    op: ClassVar[str] = "lag"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    columns: tuple[int, ...]

    @classmethod
    def bind(cls, site: Site, columns: Mapping[str, str]) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        where = site.name
        given: Any = columns
        if not isinstance(given, Mapping) or not given:
            raise PlanError(
                f"{where}: columns must be a mapping such as {{'previous_ts': 'ts'}}, got {columns!r}"
            )
        indexes, fields = [], []
        for output, column in columns.items():
            index = column_index(site.schema, column, where)
            type_ = site.schema.field(index).type
            if not (is_fixed_number(type_) or pat.is_boolean(type_)):
                raise SchemaError(
                    f"{where}: {column!r} must be a number, bool, date or time to be kept, it is {type_}"
                )
            indexes.append(index)
            fields.append(pa.field(nonempty(output, where), type_))
        return cls(**site.fields(site.behind_input(fields)), columns=tuple(indexes))

    def kernel(self) -> Any:
        from ordstream._core.kernels.lag import LagKernel

        return LagKernel(self)

    def reference(self) -> SerialOperator:
        return LagReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The columns' values in the last tuple, under their names in the input."""
        return state_rows(self, [self.input.field(index).with_nullable(True) for index in self.columns])

    def columns_read(self) -> set[int]:
        return {*self.key, *self.columns}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"lag{self.by_key}: {self.columns_named(self.columns)}"


class LagReference(Keyed):
    """The input row, then values of the row before it. A state is these values."""

    def process(self, row: Row) -> list[Row]:
        key, columns = self.key_of(row), self.operator.columns
        before = self.states.get(key, (None,) * len(columns))
        self.states[key] = tuple(row[index] for index in columns)
        return [(*row, *before)]

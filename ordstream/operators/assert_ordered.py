"""assert_ordered: tuples as they are, and an error at one that comes before the tuple before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import is_fixed_number, with_fewer_digits
from ordstream.operators.arguments import MOST_KEY_COLUMNS, distinct_columns, flat
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, sort_key


@dataclass(frozen=True, eq=False, kw_only=True)
class AssertOrdered(Operator):
    """Output: input columns.

    Attributes
    ----------
    columns : tuple of int
        Tuples ascend by the first, those equal in it by the second, and so on.
    """

    op: ClassVar[str] = "assert_ordered"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    columns: tuple[int, ...]

    @classmethod
    def bind(cls, site: Site, columns: Sequence[Any]) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        where = site.name
        indexes = distinct_columns(site.schema, flat(columns), where)
        if not 1 <= len(indexes) <= MOST_KEY_COLUMNS:
            raise PlanError(
                f"{where}: 1 to {MOST_KEY_COLUMNS} columns are needed, such as assert_ordered('ts'), got "
                f"{len(indexes)}"
            )
        for index in indexes:
            field = site.schema.field(index)
            if not is_fixed_number(field.type):
                raise SchemaError(
                    f"{where}: {field.name!r} must be a number, date or time, it is {field.type}"
                    + with_fewer_digits(field.type, field.name)
                )
        return cls(**site.fields(site.schema), columns=indexes)

    def kernel(self) -> Any:
        from ordstream._core.kernels.assert_ordered import OrderedKernel

        return OrderedKernel(self)

    def reference(self) -> SerialOperator:
        return AssertOrderedReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The columns of the last tuple, as they compare: -0.0 is 0.0."""
        return state_rows(self, [self.input.field(index).with_nullable(True) for index in self.columns])

    def columns_read(self) -> set[int]:
        return {*self.key, *self.columns}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"assert_ordered{self.by_key}: {self.columns_named(self.columns)}"


class AssertOrderedReference(Keyed):
    """The input row, unless it sorts before the row before it. A state is that row."""

    def process(self, row: Row) -> list[Row]:
        key, columns = self.key_of(row), self.operator.columns
        before = self.states.get(key)
        if before is not None:
            pairs = ((index, sort_key([row[index]]), sort_key([before[index]])) for index in columns)
            index, now, then = next((pair for pair in pairs if pair[1] != pair[2]), (0, (), ()))
            if now < then:
                self.refuse(row[index], before[index], index)
        self.states[key] = row
        return [row]

"""lag: each tuple with values of a tuple before it of the same key."""

from __future__ import annotations

import collections
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.ground.types import is_fixed_number
from ordstream.operators.arguments import distance
from ordstream.operators.kept_rows import MOST_ROWS, KeptRows, ShownColumns, shown_columns
from ordstream.operators.operator import Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator


@dataclass(frozen=True, eq=False, kw_only=True)
class Lag(KeptRows):
    """Output: input columns, then values of the tuple n before.

    Attributes
    ----------
    columns : tuple of int
    """

    op: ClassVar[str] = "lag"
    mode: ClassVar[str] = "lag"
    passes_unread: ClassVar[bool] = True

    columns: tuple[int, ...]

    @classmethod
    def bind(cls, site: Site, columns: ShownColumns, n: int = 1) -> Self:
        """Raises PlanError and SchemaError where the columns do not fit the schema."""
        indexes, fields = shown_columns(site, columns, "_lag", "previous_ts")
        n = distance(n, site.name, MOST_ROWS)
        return cls(**site.fields(site.behind_input(fields)), columns=indexes, n=n)

    @property
    def is_plain(self) -> bool:
        """One row before, in columns of fixed width: a state of fixed size, in a kernel of its own."""
        types = [self.input.field(index).type for index in self.columns]
        return self.n == 1 and all(is_fixed_number(type_) or pat.is_boolean(type_) for type_ in types)

    def kernel(self) -> Any:
        if not self.is_plain:
            return super().kernel()
        from ordstream._core.kernels.lag import LagKernel

        return LagKernel(self)

    def kept(self) -> tuple[int, ...]:
        return self.columns

    def reference(self) -> SerialOperator:
        return LagReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The columns' values in the last tuple, under their names in the input; where that is not all,
        the rows that are kept.
        """
        if not self.is_plain:
            return super().state_schema()
        return state_rows(self, [self.input.field(index).with_nullable(True) for index in self.columns])

    def state_identity(self) -> dict[str, str]:
        if not self.is_plain:
            return super().state_identity()
        return {**self.operator_and_key(), "parameters": self.describe()}

    def columns_read(self) -> set[int]:
        return {*self.key, *self.columns}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"lag{'' if self.n == 1 else f' {self.n}'}{self.by_key}: {self.columns_named(self.columns)}"


class LagReference(Keyed):
    """The input row, then values of the row n before it. A state is these values of the last n rows."""

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        kept = self.states.setdefault(self.key_of(row), collections.deque(maxlen=operator.n))
        before = kept[0] if len(kept) == operator.n else (None,) * len(operator.columns)
        kept.append(tuple(row[index] for index in operator.columns))
        return [(*row, *before)]

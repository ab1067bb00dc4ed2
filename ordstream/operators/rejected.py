"""rejected: the second output of an operator: dead letters, or rows that came too late.

It takes the same rows as that operator, on a lane of their own, and keeps those that the operator told it.
So the operator's own output has no column for them, and the rows keep their place in the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa

from ordstream.ground.types import names_beside
from ordstream.operators.operator import Operator
from ordstream.reference.base import Rejection, Row, SerialOperator

#: Columns of a dead letter behind those of its row.
ERROR_FIELDS = (
    pa.field("error_operator", pa.string(), nullable=False),
    pa.field("error_serial", pa.int64(), nullable=False),
    pa.field("error_type", pa.string(), nullable=False),
    pa.field("error_text", pa.string(), nullable=False),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rejected(Operator):
    """Output: the input columns of the operator, then, for dead letters, `ERROR_FIELDS`.

    Attributes
    ----------
    of : str
        The operator.
    told : bool
        With the columns that tell the error.
    """

    op: ClassVar[str] = "rejected"
    one_to_one: ClassVar[bool] = True
    takes_rejections: ClassVar[bool] = True

    of: str
    told: bool

    @classmethod
    def by(cls, operator: Operator) -> Self:
        """Of an operator. Raises SchemaError where its rows have a column of `ERROR_FIELDS`."""
        told = operator.tells_errors
        name = f"rejected by {operator.name}"
        errors = ERROR_FIELDS if told else ()
        names_beside(
            operator.input.names, [field.name for field in errors], f"{operator.name}: a dead letter"
        )
        output = pa.schema([*operator.input, *errors])
        return cls(name=name, input=operator.input, output=output, of=operator.name, told=told)

    @property
    def rejections_of(self) -> str:
        return self.of

    def kernel(self) -> Any:
        from ordstream._core.kernels.rejected import RejectedKernel

        return RejectedKernel(self)

    def reference(self) -> SerialOperator:
        return RejectedReference(self)

    def columns_read(self) -> set[int]:
        return set()

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"rows that {self.of!r} could not process" if self.told else f"late rows of {self.of!r}"


class RejectedReference(SerialOperator):
    """A row that was rejected, with its error."""

    def begin(self, serial: int) -> None:
        self.serial = serial

    def rejected(self, row: Row, why: Rejection) -> Row:
        operator = self.operator
        return (*row, operator.of, self.serial, *why) if operator.told else row

"""regression: least squares line of the total of y at each x, per key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import SchemaError
from ordstream.ground.types import INT64_MAX, INT64_MIN, column_index, is_temporal
from ordstream.operators.arguments import emission
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, SortKey, Step


@dataclass(frozen=True, eq=False, kw_only=True)
class Regression(Operator):
    """Output: key columns, x, n, slope, intercept, flat_or_declining.

    Attributes
    ----------
    x, y : int
    emit : "updates", "every_tuple" or "final"
    """

    op: ClassVar[str] = "regression"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    x: int
    y: int
    emit: Literal["updates", "every_tuple", "final"] = "updates"

    @classmethod
    def bind(cls, site: Site, x: str, y: str, emit: Any) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        emission(emit, ("updates", "every_tuple", "final"), where)
        indexes = {}
        for what, column in (("x", x), ("y", y)):
            indexes[what] = column_index(schema, column, where)
            type_ = schema.field(indexes[what]).type
            if not (pat.is_integer(type_) or (what == "x" and is_temporal(type_))):
                kinds = "an integer, date or time" if what == "x" else "an integer"
                raise SchemaError(f"{where}: {what} must be {kinds}, {column!r} is {type_}")
        fields = [schema.field(indexes["x"]), pa.field("n", pa.int64())]
        fields += [pa.field("slope", pa.float64()), pa.field("intercept", pa.float64())]
        fields.append(pa.field("flat_or_declining", pa.bool_()))
        return cls(**site.fields(site.behind_key(fields)), x=indexes["x"], y=indexes["y"], emit=emit)

    def kernel(self) -> Any:
        from ordstream._core.kernels.regression import RegressionKernel

        return RegressionKernel(self)

    def reference(self) -> SerialOperator:
        return RegressionReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The points, their sums, and x of the latest tuple."""
        sums = [pa.field(name, pa.int64()) for name in ("n", "sum_x", "sum_xx", "sum_y", "sum_xy")]
        return state_rows(self, [*sums, self.input.field(self.x)])

    def state_identity(self) -> dict[str, str]:
        # when a line is shown is nothing that it depends on
        return {**super().state_identity(), "parameters": f"regression{self.by_key}{self._axes()}"}

    def columns_read(self) -> set[int]:
        return {*self.key, self.x, self.y}

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return f"regression{self.by_key}{self._axes()}, {self.emit}"

    def _axes(self) -> str:
        return f" of {self.input.names[self.y]} on {self.input.names[self.x]}"

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final"

    def final(self) -> Operator:
        return self if self.emit == "final" else self.changed(emit="final")


class RegressionReference(Keyed):
    """Least squares line of the totals of y at each x. A state is (n, Sx, Sxx, Sy, Sxy, last x)."""

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        x, y = (self.not_null(row, index) for index in (operator.x, operator.y))
        key = self.key_of(row)
        n, sx, sxx, sy, sxy, last = self.states.get(key, (0, 0, 0, 0, 0, None))
        self.not_earlier(x, last, operator.x)
        completed = self.output(key) if n > 1 and x != last and operator.emit == "updates" else []
        if x != last:
            n, sx, sxx = n + 1, sx + x, sxx + x * x
        after = (n, sx, sxx, sy + y, sxy + x * y, x)
        if not all(INT64_MIN <= total <= INT64_MAX for total in (x, y, *after)):
            raise OverflowError(
                "a sum of the regression is outside int64; x is squared: count it from a start near by, in "
                "a coarse unit"
            )
        self.states[key] = after
        return self.output(key) if operator.emit == "every_tuple" else completed

    def flush(self) -> list[Step]:
        return [
            lambda key=key: self.output(key)  # type: ignore[misc]
            for key in self.ascending()
            if self.states[key][0] > 1
        ]

    def output(self, key: SortKey) -> list[Row]:
        n, sx, sxx, sy, sxy, last = self.states[key]
        rise, run, height = n * sxy - sx * sy, n * sxx - sx * sx, sy * sxx - sx * sxy
        line = (None,) * 3 if n < 2 else (float(rise) / float(run), float(height) / float(run), rise <= 0)
        return [(*self.key_values[key], last, n, *line)]

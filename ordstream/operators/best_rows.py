"""top_k of a key, or of all rows: the k with the largest or smallest values of a column."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.choices import flag
from ordstream.ground.types import column_index, is_fixed_number, with_fewer_digits
from ordstream.operators.arguments import emission, nonempty, positive_int
from ordstream.operators.kept_rows import MOST_ROWS
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, Step


@dataclass(frozen=True, eq=False, kw_only=True)
class BestRows(Operator):
    """Output: input columns, then the rank where it is asked for.

    Attributes
    ----------
    k : int
    by : int
    descending : bool
        The largest are the best.
    emit : "updates" or "final"
    rank : bool
        A last column has the rank.
    """

    op: ClassVar[str] = "top_k"
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    #: At the end rows come by key, behind marks that are later than they are.
    keeps_time: ClassVar[bool] = False

    k: int
    by: int
    descending: bool = True
    emit: Literal["updates", "final"] = "final"
    rank: bool = False

    @classmethod
    def bind(cls, site: Site, k: int, by: str, *, descending: bool, emit: Any, rank: str | None) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        k = positive_int(k, f"{where}: k", MOST_ROWS)
        emission(emit, ("updates", "final"), where)
        descending = flag(descending, f"{where}: descending")
        index = column_index(schema, by, where)
        type_ = schema.field(index).type
        if not is_fixed_number(type_):
            advice = with_fewer_digits(type_, by)
            raise SchemaError(f"{where}: {by!r} must be a number, date or time, it is {type_}{advice}")
        if index in site.key:
            raise PlanError(f"{where}: {by!r} is a key column: it has one value per key")
        rank = "rank" if rank is None and emit == "updates" else rank
        output = schema if rank is None else site.behind_input([pa.field(nonempty(rank, where), pa.int64())])
        return cls(
            **site.fields(output), k=k, by=index, descending=descending, emit=emit, rank=rank is not None
        )

    def kernel(self) -> Any:
        from ordstream._core.kernels.best_rows import BestRowsKernel

        return BestRowsKernel(self)

    def reference(self) -> SerialOperator:
        return BestRowsReference(self)

    def state_schema(self) -> pa.Schema | None:
        """How many rows are kept; they themselves, best first, as bytes (`KeptRows.state_schema`)."""
        return state_rows(self, [pa.field("rows", pa.int64()), pa.field("values", pa.binary())])

    def state_identity(self) -> dict[str, str]:
        # with the types of what is kept, which the bytes do not tell; what is shown, and when, is nothing
        # that the rows depend on
        kept = ", ".join(f"{field.name}: {field.type}" for field in self.input)
        return {**super().state_identity(), "parameters": self._ranking(), "kept": kept}

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        return f"{self._ranking()}, {self.emit}"

    def _ranking(self) -> str:
        direction = "descending" if self.descending else "ascending"
        return f"top_k {self.k}{self.by_key}: {self.input.names[self.by]} {direction}, then as they came"

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final"

    def final(self) -> Operator:
        return self if self.emit == "final" else self.changed(emit="final")


class BestRowsReference(Keyed):
    """The k rows of a key, or of all, with the largest or smallest `by`: at the end, and each that is among
    them as it comes. A state is a list of (what rows are ordered by, row), best first.
    """

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        by = self.not_null(row, operator.by)
        order = (1, 0) if math.isnan(by) else (0, -by if operator.descending else by)
        best = self.states.setdefault(self.key_of(row), [])
        place = bisect.bisect_right(best, order, key=lambda one: one[0])
        best.insert(place, (order, row))
        del best[operator.k :]
        if operator.emit == "final" or place == operator.k:
            return []
        return [self.ranked(row, place + 1)]

    def flush(self) -> list[Step]:
        return [partial(self.best, key) for key in self.ascending()]

    def best(self, key: Any) -> list[Row]:
        return [self.ranked(row, rank) for rank, (_, row) in enumerate(self.states[key], 1)]

    def ranked(self, row: Row, rank: int) -> Row:
        return (*row, rank) if self.operator.rank else row

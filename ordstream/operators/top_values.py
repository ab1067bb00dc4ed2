"""top_values: the most frequent values of a column, per key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.types import column_index, key_type
from ordstream.operators.arguments import emission, nonempty, positive_int
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Ranking, Row, SerialOperator, SortKey, Step, normal, sort_key


@dataclass(frozen=True, eq=False, kw_only=True)
class TopValues(Operator):
    """Output: key columns, value, count, rank.

    Attributes
    ----------
    column : int
    k : int
    emit : "updates" or "final"
    """

    op: ClassVar[str] = "top_values"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True

    column: int
    k: int
    emit: Literal["updates", "final"] = "updates"

    @classmethod
    def bind(cls, site: Site, column: str, k: int, count: str, rank: str, emit: Any) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        emission(emit, ("updates", "final"), where)
        k = positive_int(k, f"{where}: k")
        index = column_index(schema, column, where)
        if index in site.key:
            raise PlanError(f"{where}: {column!r} is a key column: it has one value per key")
        key_type(schema.field(index).type, column, where)
        fields = [schema.field(index), pa.field(nonempty(count, where), pa.int64())]
        fields.append(pa.field(nonempty(rank, where), pa.int64()))
        return cls(**site.fields(site.behind_key(fields)), column=index, k=k, emit=emit)

    def kernel(self) -> Any:
        from ordstream._core.kernels.top_values import TopValuesKernel

        return TopValuesKernel(self)

    def reference(self) -> SerialOperator:
        return TopValuesReference(self)

    def state_schema(self) -> pa.Schema | None:
        """How often each value came: a row per key and value."""
        return state_rows(self, [self.input.field(self.column), pa.field("count", pa.int64())])

    def state_order(self) -> int:
        return len(self.key) + 1

    def state_identity(self) -> dict[str, str]:
        # how many are shown, and when, is nothing that the counts depend on
        parameters = f"values of {self.input.names[self.column]}{self.by_key}"
        return {**super().state_identity(), "parameters": parameters}

    def columns_read(self) -> set[int]:
        return {*self.key, self.column}

    def columns_passed(self) -> dict[int, int]:
        return self.key_passed()

    def describe(self) -> str:
        return f"top {self.k} values of {self.input.names[self.column]}{self.by_key}, {self.emit}"

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final"

    def final(self) -> Operator:
        return self if self.emit == "final" else self.changed(emit="final")


class TopValuesReference(Keyed):
    """(key columns, value, count, rank): the most frequent values of a key. A state is (counts, ranking)."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        counts, ranking = self.states.setdefault(key, ({}, Ranking()))
        value = normal(row[self.operator.column])
        which = sort_key([value])
        counts[which] = counts.get(which, 0) + 1
        output = (*self.key_values[key], value, counts[which])
        rank = ranking.put(which, counts[which], output)
        if self.operator.emit == "final" or rank > self.operator.k:
            return []
        return [(*output, rank)]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.best(key) for key in self.ascending()]  # type: ignore[misc]

    def best(self, key: SortKey) -> list[Row]:
        rows = self.states[key][1].best(self.operator.k)
        return [(*row, rank) for rank, row in enumerate(rows, 1)]

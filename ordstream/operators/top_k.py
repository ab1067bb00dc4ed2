"""top_k: of the latest row of each key, the k largest by a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import column_index, is_fixed_number, is_temporal, with_fewer_digits
from ordstream.operators.arguments import column_names, emission, key_columns, nonempty, positive_int
from ordstream.operators.operator import Operator, Site
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Ranking, Row, SerialOperator, Step, sort_key


@dataclass(frozen=True, eq=False, kw_only=True)
class TopK(Operator):
    """Output: input columns, then the rank where it is asked for. One state in all: `key` is empty, rows are
    ranked by `ranked_key`.

    Attributes
    ----------
    k : int
    by : int
    ranked_key : tuple of int
        Columns whose latest row counts; ties ascend by them.
    window : int or None
    emit : "updates" or "final"
    rank : bool
        A last column has the rank.
    by_grows : bool
        `by` never falls for a key, so a row below the k best never has to come back.
    once : bool
        No two rows of a window are of one key: there is no earlier row to look up.
    """

    op: ClassVar[str] = "top_k"
    keeps_time: ClassVar[bool] = False
    stateful: ClassVar[bool] = True

    k: int
    by: int
    ranked_key: tuple[int, ...]
    window: int | None = None
    emit: Literal["updates", "final"] = "final"
    rank: bool = False
    by_grows: bool = False
    once: bool = False

    @classmethod
    def bind(
        cls,
        site: Site,
        k: int,
        by: str,
        key: Sequence[str] | str | None,
        *,
        window: str | None,
        emit: Any,
        rank: str | None,
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        where, schema = site.name, site.schema
        k = positive_int(k, f"{where}: k")
        emission(emit, ("updates", "final"), where)
        by_index = column_index(schema, by, where)
        type_ = schema.field(by_index).type
        if not is_fixed_number(type_):
            advice = with_fewer_digits(type_, by)
            raise SchemaError(f"{where}: {by!r} must be a number, date or time, it is {type_}{advice}")
        window_index = None if window is None else column_index(schema, window, where)
        if window_index is not None:
            type_ = schema.field(window_index).type
            if not (pat.is_integer(type_) or is_temporal(type_)):
                raise SchemaError(f"{where}: {window!r} must be an integer, date or time, it is {type_}")
        others = [n for i, n in enumerate(schema.names) if i not in (by_index, window_index)]
        all_others = f"{where}, without key= all other columns are the key"
        indexes = (
            key_columns(schema, others, all_others) if key is None
            else key_columns(schema, column_names(key, where), where)
        )  # fmt: skip
        if by_index in indexes or by_index == window_index:
            raise PlanError(f"{where}: {by!r} can't be part of the key, nor the window")
        rank = "rank" if rank is None and emit == "updates" else rank
        output = schema if rank is None else site.behind_input([pa.field(nonempty(rank, where), pa.int64())])
        return cls(
            **site.fields(output),
            k=k,
            by=by_index,
            ranked_key=indexes,
            window=window_index,
            emit=emit,
            rank=rank is not None,
        )

    def kernel(self) -> Any:
        from ordstream._core.kernels.top_k import TopKernel

        return TopKernel(self)

    def reference(self) -> SerialOperator:
        return TopKReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The latest row of each ranked key. All rows are one state; order and window follow from them."""
        return state_rows(self, [self.input.field(index) for index in self.state_columns()])

    def state_columns(self) -> list[int]:
        """Input columns in the order of `state_schema`: the ranked key's first."""
        return [*self.ranked_key, *(i for i in range(len(self.input)) if i not in self.ranked_key)]

    def state_order(self) -> int:
        return len(self.ranked_key)

    def state_identity(self) -> dict[str, str]:
        # how many are shown, and when, is nothing that the latest rows depend on; k says which are kept
        # where `by` grows
        window = "" if self.window is None else f" per {self.input.names[self.window]}"
        kept = f"the {self.k} best" if self.by_grows else "all"
        ranks = f"by {self.input.names[self.by]}, keys {self.columns_named(self.ranked_key)}"
        return {**super().state_identity(), "parameters": f"top_k{window} {ranks}, rows of {kept}"}

    def columns_read(self) -> set[int]:
        return set(range(len(self.input)))  # its state is whole rows, whatever is read of them later

    def columns_passed(self) -> dict[int, int]:
        return self.input_passed()

    def describe(self) -> str:
        window = "" if self.window is None else f" per {self.input.names[self.window]}"
        key = self.columns_named(self.ranked_key)
        return f"top_k {self.k}{window} by {self.input.names[self.by]} descending, then {key}, {self.emit}"

    def own_notes(self) -> list[str]:
        return [] if self.by_grows else ["keeps the latest row of every key"]

    @property
    def only_at_end(self) -> bool:
        return self.emit == "final" and self.window is None  # else a list when a window is over

    def final(self) -> Operator:
        return self if self.emit == "final" else self.changed(emit="final")

    def given_growing(self, growing: tuple[int | None, frozenset[int]]) -> Self:
        column, among = growing
        # what is kept is of one window
        own = {*self.ranked_key} if self.window is None else {*self.ranked_key, self.window}
        if column not in (None, self.by) or not among <= own:
            return self
        return self.changed(by_grows=True, once=column is None)

    def best_wanted(self) -> tuple[int, int] | None:
        # Another order of the key's columns would break ties otherwise.
        in_order = self.window is None and self.ranked_key == tuple(range(self.by))
        return (self.by, self.k) if in_order else None


class TopKReference(Keyed):
    """The latest rows of the k keys with the largest `by`: after each row, and as a list at the end of a
    window and of the stream.
    """

    def __init__(self, operator: TopK) -> None:
        super().__init__(operator)
        self.ranking = Ranking()
        self.window: Any = None

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        by = self.not_null(row, operator.by)
        rows: list[Row] = []
        if operator.window is not None:
            window = self.not_null(row, operator.window)
            self.not_earlier(window, self.window, operator.window)
            if self.window is not None and window > self.window:
                rows = self.best()
                self.ranking = Ranking()
            self.window = window
        rank = self.ranking.put(sort_key(row[index] for index in operator.ranked_key), by, row)
        if operator.emit == "updates" and rank <= operator.k:
            rows.append(self.ranked(row, rank))
        return rows

    def flush(self) -> list[Step]:
        return [self.best] if self.ranking.rows else []

    def best(self) -> list[Row]:
        return [self.ranked(row, i) for i, row in enumerate(self.ranking.best(self.operator.k), 1)]

    def ranked(self, row: Row, rank: int) -> Row:
        return (*row, rank) if self.operator.rank else row

"""union: the rows of several streams of one graph, in one order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.operators.operator import Operator, Site
from ordstream.reference.base import Row, SerialOperator

#: What an output column of an input is: one of its columns, null, or what tells the input.
From = int | None | Literal["told"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Operator):
    """Rows of all inputs, by order tag, then by the place of what caused them at the branch point that all
    inputs have passed, then in the order of the inputs.

    Attributes
    ----------
    inputs : tuple of pyarrow.Schema
    columns : tuple of tuple
        Per input, for each output column: its column, None (null), or "told".
    told : tuple of int
        Per input: the value of the columns that are "told".
    needed : frozenset of int or None
        Output columns that somebody sees; None: all.
    lane, lanes, number, keep : see `Operator.laid`
    """

    op: ClassVar[str] = "union"
    takes_units: ClassVar[bool] = True
    one_to_one: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    inputs: tuple[pa.Schema, ...]
    columns: tuple[tuple[From, ...], ...]
    told: tuple[int, ...] = ()
    needed: frozenset[int] | None = None
    lane: int = 0
    lanes: tuple[int, ...] = ()
    number: int = -1
    keep: int = -1

    @classmethod
    def bind(cls, site: Site, inputs: Sequence[pa.Schema]) -> Self:
        """Of inputs with the same columns. Raises SchemaError where they have not."""
        first = inputs[0]
        for number, other in enumerate(inputs[1:], 2):
            if [(f.name, f.type) for f in other] != [(f.name, f.type) for f in first]:
                todo = _same_columns(first, other)
                raise SchemaError(
                    f"{site.name}: input {number} has other columns than the first; the first: "
                    f"{_columns(first)}; this one: {_columns(other)}. {todo}"
                )
        nullable = [any(schema.field(i).nullable for schema in inputs) for i in range(len(first))]
        output = pa.schema([f.with_nullable(n) for f, n in zip(first, nullable, strict=True)])
        own = tuple(range(len(first)))
        return cls.of(site, inputs, output, [own] * len(inputs))

    @classmethod
    def of(
        cls,
        site: Site,
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
        columns: Sequence[Sequence[From]],
        told: Sequence[int] | None = None,
    ) -> Self:
        """Of inputs with columns of their own. `told`: bool columns take 0 and 1, int64 columns any
        value.
        """
        for field, *sources in zip(output, *columns, strict=True):
            if "told" in sources and not (pat.is_boolean(field.type) or pat.is_int64(field.type)):
                raise TypeError(f"{field.name!r} tells the input: bool or int64, not {field.type}")
        return cls(
            **site.fields(output),
            inputs=tuple(inputs),
            columns=tuple(tuple(one) for one in columns),
            told=tuple(range(len(inputs)) if told is None else told),
        )

    @property
    def places(self) -> int:
        return len(self.inputs)

    def laid(self, lane: int, lanes: Sequence[int], point: int, keep: int) -> Self:
        return self.changed(lane=lane, lanes=tuple(lanes), number=point, keep=keep)

    def lanes_taken(self) -> tuple[int, ...]:
        return self.lanes

    def lanes_made(self) -> tuple[int, ...]:
        return (self.lane,)

    def final(self) -> Operator:
        if any("told" in columns for columns in self.columns):  # the last one of several outputs alone is so
            raise PlanError(
                "emit='final': a run with several outputs takes it from none; give emit='final' to the "
                "operators that are to emit at the end, and leave it out of the run"
            )
        return super().final()

    def kernel(self) -> Any:
        from ordstream._core.kernels.union import UnionKernel

        return UnionKernel(self)

    def reference(self) -> SerialOperator:
        return UnionReference(self)

    def columns_read(self) -> set[int]:
        return set()

    def columns_passed_from(self, place: int) -> dict[int, int]:
        return {out: column for out, column in enumerate(self.columns[place]) if isinstance(column, int)}

    def columns_absent_from(self, place: int) -> set[int]:
        return {out for out, column in enumerate(self.columns[place]) if column is None}

    def columns_passed(self) -> dict[int, int]:
        """Where all inputs agree."""
        ways = [self.columns_passed_from(place) for place in range(self.places)]
        return {out: column for out, column in ways[0].items() if all(w.get(out) == column for w in ways)}

    def given_needed(self, values: frozenset[int], nulls: frozenset[int]) -> Self:
        return self.changed(needed=values | nulls)

    def own_notes(self) -> list[str]:
        return ["keeps nothing: no input waits for another"]

    def describe(self) -> str:
        return f"union of {self.places}"


def _same_columns(first: pa.Schema, other: pa.Schema) -> str:
    """What brings two inputs to the same columns."""
    same = sorted(first.names) == sorted(other.names)
    types = [name for name in first.names if same and other.field(name).type != first.field(name).type]
    if types:
        cast = f"with_columns({types[0]}=od.col({types[0]!r}).cast(...))"
        return f"Cast {', '.join(map(repr, types))} of one of them, {cast}"
    return (
        "Bring them to the same columns with select(...), or with od.union(..., how='diagonal') have null "
        "where a column is missing"
    )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


class UnionReference(SerialOperator):
    """A row of an input as one of the output."""

    def united(self, place: int, row: Row) -> Row:
        operator = self.operator
        told = operator.told[place]
        values = []
        for field, column in zip(operator.output, operator.columns[place], strict=True):
            if column == "told":
                values.append(bool(told) if pat.is_boolean(field.type) else told)
            else:
                values.append(None if column is None else row[column])
        return tuple(values)

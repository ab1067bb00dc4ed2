"""preceding: the last tuples of a key, seen from some of its tuples."""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.expressions.bound import BoundExpr
from ordstream.expressions.expr import Expr
from ordstream.ground.duration import Duration, time_span
from ordstream.ground.packed_types import kept_list
from ordstream.ground.types import column_index, is_fixed_number, with_fewer_digits
from ordstream.operators.arguments import (
    Columns,
    columns_of,
    condition,
    given,
    named_columns,
    nonempty,
    positive_int,
    where_text,
)
from ordstream.operators.operator import Operator, Site, named_once
from ordstream.operators.state import state_rows
from ordstream.reference.base import Keyed, Row, SerialOperator, true_of

#: Most tuples that `preceding` keeps per key: each key has room for all of them.
MOST_PRECEDING = 1024


@dataclass(frozen=True, eq=False, kw_only=True)
class Preceding(Operator):
    """Output: carried columns, columns of a tuple before.

    Attributes
    ----------
    n : int
        Length of the ring.
    columns, carry : tuple of int
    time : int or None
    within : int or None
        In the unit of the time column.
    when, where : BoundExpr or None
    """

    op: ClassVar[str] = "preceding"
    stateful: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    n: int
    columns: tuple[int, ...]
    carry: tuple[int, ...] = ()
    time: int | None = None
    within: int | None = None
    when: BoundExpr | None = None
    where: BoundExpr | None = None

    @classmethod
    def bind(
        cls,
        site: Site,
        n: int,
        columns: Columns,
        *,
        carry: Columns,
        time: str | None,
        within: Duration | None,
        when: Expr | None,
        where: Expr | None,
    ) -> Self:
        """Raises PlanError and SchemaError where the arguments do not fit the schema."""
        name, schema = site.name, site.schema
        n = positive_int(n, f"{name}: n", MOST_PRECEDING)
        time_index = span = None
        if (time is None) != (within is None):
            raise PlanError(f"{name}: time and within go together, got time={time!r}, within={within!r}")
        if within is not None:
            time_index = column_index(schema, time, name)
            span = time_span(within, schema.field(time_index), f"{name}: within")
            if span < 0:
                raise PlanError(f"{name}: within must be at least 0, got {within!r}")
        looks = None if when is None else condition(when, schema, f"{name}: when")
        counts = None if where is None else condition(where, schema, f"{name}: where")
        carried, repeated = _chosen(site, carry)
        kept, shown = _chosen(site, columns)
        for index, field in zip(kept, shown, strict=True):
            if not (is_fixed_number(field.type) or pat.is_boolean(field.type)):
                column = schema.names[index]
                raise SchemaError(
                    f"{name}: {column!r} must be a number, bool, date or time to be kept, it is {field.type}"
                    + with_fewer_digits(field.type, column)
                )
        if not kept:
            raise PlanError(f"{name}: at least one column of the preceding tuples is needed")
        return cls(
            **site.fields(named_once([*repeated, *shown], name)),
            n=n,
            columns=kept,
            carry=carried,
            time=time_index,
            within=span,
            when=looks,
            where=counts,
        )

    def kernel(self) -> Any:
        from ordstream._core.kernels.preceding import PrecedingKernel

        return PrecedingKernel(self)

    def reference(self) -> SerialOperator:
        return PrecedingReference(self)

    def state_schema(self) -> pa.Schema | None:
        """The entries of the ring as lists side by side, oldest first: with `within` their times; with
        `where` whether they count; the values of each column, and which of them are there (null: all; in
        the place of the others lies 0).
        """
        own = []
        if self.time is not None:
            field = self.input.field(self.time)
            own.append(pa.field("time", kept_list(field.type)))
        if self.where is not None:
            own.append(pa.field("counts", pa.list_(pa.bool_())))
        for index in self.columns:
            field = self.input.field(index)
            own.append(pa.field(field.name, kept_list(field.type)))
            own.append(pa.field(f"{field.name}.there", pa.list_(pa.bool_())))
        return state_rows(self, own)

    def state_identity(self) -> dict[str, str]:
        """Without `when`: which rows look says nothing of what lies in a ring."""
        return {**super().state_identity(), "parameters": self.changed(when=None).describe()}

    def columns_read(self) -> set[int]:
        return {*self.key, *given(self.time), *self.columns} | columns_of(self.when, self.where)

    def columns_passed(self) -> dict[int, int]:
        return dict(enumerate(self.carry))

    def describe(self) -> str:
        return self._text(str)

    def shown(self) -> str:
        return self._text(str if self.time is None else self.spans_of(self.time))

    def _text(self, span: Callable[[int], str]) -> str:
        within = ""
        if self.within is not None:
            within = f" within {span(self.within)} of {self.columns_named(given(self.time))}"
        when = "" if self.when is None else f" when {self.when.text}"
        columns = self.columns_named(self.columns)
        return f"preceding {self.n}{self.by_key}: {columns}{within}{when}{where_text(self.where)}"


def _chosen(site: Site, columns: Columns) -> tuple[tuple[int, ...], list[pa.Field]]:
    """Indexes of columns, and the output fields that they make."""
    indexes, fields = [], []
    for output, column in named_columns(columns, site.name).items():
        index = column_index(site.schema, column, site.name)
        indexes.append(index)
        fields.append(site.schema.field(index).with_name(nonempty(output, site.name)))
    return tuple(indexes), fields


class PrecedingReference(Keyed):
    """What a row sees of the last n rows of its key. A state is a ring of (time, where was true,
    columns).
    """

    def process(self, row: Row) -> list[Row]:
        operator = self.operator
        index, within = operator.time, operator.within
        now = None if index is None else self.not_null(row, index)
        looks, counts = true_of(operator.when, row), true_of(operator.where, row)
        ring = self.states.setdefault(self.key_of(row), collections.deque(maxlen=operator.n))
        if ring and index is not None:
            self.not_earlier(now, ring[-1][0], index)
        carried = tuple(row[index] for index in operator.carry)
        seen = [
            (*carried, *values)
            for time, counted, values in ring
            if looks and counted and (now is None or time >= now - within)
        ]
        ring.append((now, counts, tuple(row[index] for index in operator.columns)))
        return seen

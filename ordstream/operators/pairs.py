"""pairs and explode: for `flat_map`, the outputs of a list column."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from ordstream.errors import SchemaError
from ordstream.ground.datetimes import scalar_value
from ordstream.ground.packed_types import is_packed
from ordstream.ground.types import column_index, to_storage
from ordstream.operators.arguments import column_name, column_names, list_column, nonempty
from ordstream.operators.operator import Operator, Site, named_once
from ordstream.reference.base import Row, SerialOperator, normal, sort_key


class ListFunction(ABC):
    """What `od.pairs` and `od.explode` give to `flat_map` in place of a function."""

    @abstractmethod
    def bind(self, site: Site) -> Operator:
        """The operator on a schema. Raises SchemaError where the columns do not fit."""


@dataclass(frozen=True)
class Pairs(ListFunction):
    """See `pairs`."""

    column: str
    left: str
    right: str
    carry: tuple[str, ...]
    anchor: Any = None

    def bind(self, site: Site) -> Operator:
        index, item = list_column(site.schema, self.column, site.name)
        if is_packed(site.schema.field(index).type):
            raise SchemaError(
                f"{site.name}: there are pairs of lists of any length, of numbers, booleans, dates and "
                f"times, and column {self.column!r} is {site.schema.field(index).type}"
            )
        fields, carry = _carried(site, self.carry)
        output = named_once([*fields, pa.field(self.left, item), pa.field(self.right, item)], site.name)
        try:
            given = self.anchor
            if isinstance(given, pa.Scalar):
                given = scalar_value(given, item)
            anchor = to_storage(given, item, f"{self.column} (anchor)")
        except (TypeError, ValueError, OverflowError) as error:
            raise SchemaError(f"{site.name}: {error}") from error
        return ListPairs(**site.fields(output), column=index, carry=carry, anchor=anchor)


@dataclass(frozen=True)
class Explode(ListFunction):
    """See `explode`."""

    column: str
    name: str
    carry: tuple[str, ...]

    def bind(self, site: Site) -> Operator:
        index, item = list_column(site.schema, self.column, site.name)
        fields, carry = _carried(site, self.carry)
        output = named_once([*fields, pa.field(self.name, item)], site.name)
        return ListExplode(**site.fields(output), column=index, carry=carry)


def _carried(site: Site, names: Sequence[str]) -> tuple[list[pa.Field], tuple[int, ...]]:
    carry = tuple(column_index(site.schema, name, site.name) for name in names)
    return [site.schema.field(index) for index in carry], carry


def pairs(
    column: str, left: str = "left", right: str = "right", carry: Sequence[str] = (), anchor: Any = None
) -> Pairs:
    """For `flat_map`: all pairs of the distinct elements of a list column.

    With D the sorted distinct non-null elements, one output (*carry, D[i], D[j]) for each i < j, in
    lexicographic order. A null list, and one with fewer than two distinct elements, gives nothing. With an
    `anchor`: nothing unless D holds it, else (*carry, x, anchor) for each other x of D, ascending.

    Parameters
    ----------
    column : str
        A list column: lists of any length (not of a fixed one) of numbers, booleans, dates or times.
    left, right : str
        Names of the two output columns.
    carry : sequence of str
        Input columns to repeat in front of each pair.
    anchor : value of the list's element type, optional
        Only the pairs with this element.
    """
    left, right = nonempty(left, "pairs: left"), nonempty(right, "pairs: right")
    column, carry = column_name(column, "pairs"), column_names(carry, "pairs: carry")
    return Pairs(column, left, right, carry, anchor)


def explode(column: str, name: str | None = None, carry: Sequence[str] = ()) -> Explode:
    """For `flat_map`: one output (*carry, element) per element of a list column, in order. A null list gives
    nothing.

    Parameters
    ----------
    column : str
        A list column.
    name : str, optional
        Name of the output column; default: that of the list column.
    carry : sequence of str
        Input columns to repeat in front of each element.
    """
    column = column_name(column, "explode")
    name = column if name is None else nonempty(name, "explode")
    return Explode(column, name, column_names(carry, "explode: carry"))


@dataclass(frozen=True, eq=False, kw_only=True)
class ListPairs(Operator):
    """All pairs of the distinct elements of a list.

    Attributes
    ----------
    column : int
        A list.
    carry : tuple of int
    anchor : value or None
        A storage value of the element type.
    """

    op: ClassVar[str] = "pairs"
    fans_out: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    column: int
    carry: tuple[int, ...] = ()
    anchor: Any = None

    def kernel(self) -> Any:
        from ordstream._core.kernels.pair_up import AnchoredPairsKernel
        from ordstream._core.kernels.pairs import FlatKernel

        return FlatKernel(self, True) if self.anchor is None else AnchoredPairsKernel(self)

    def reference(self) -> SerialOperator:
        return ListPairsReference(self)

    def columns_read(self) -> set[int]:
        return {self.column}

    def columns_passed(self) -> dict[int, int]:
        return dict(enumerate(self.carry))

    def describe(self) -> str:
        anchor = "" if self.anchor is None else f" with {self.anchor!r}"
        return f"pairs of {self.input.names[self.column]}{anchor}"


class ListPairsReference(SerialOperator):
    """(D[i], D[j]) for i < j, where D holds the sorted distinct non-null elements of a list; or, where D
    holds the anchor, (x, anchor) for its other elements.
    """

    def process(self, row: Row) -> list[Row]:
        elements = {sort_key([e]): normal(e) for e in row[self.operator.column] or () if e is not None}
        distinct = [elements[key] for key in sorted(elements)]
        carried = tuple(row[index] for index in self.operator.carry)
        anchor = normal(self.operator.anchor)
        if anchor is None:
            return [(*carried, a, b) for i, a in enumerate(distinct) for b in distinct[i + 1 :]]
        if sort_key([anchor]) not in elements:
            return []
        return [(*carried, x, anchor) for x in distinct if sort_key([x]) != sort_key([anchor])]


@dataclass(frozen=True, eq=False, kw_only=True)
class ListExplode(Operator):
    """One output per element of a list.

    Attributes
    ----------
    column : int
        A list.
    carry : tuple of int
    """

    op: ClassVar[str] = "explode"
    fans_out: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    column: int
    carry: tuple[int, ...] = ()

    def kernel(self) -> Any:
        from ordstream._core.kernels.explode_packed import ExplodePackedKernel
        from ordstream._core.kernels.pairs import FlatKernel

        packed = is_packed(self.input.field(self.column).type)
        return ExplodePackedKernel(self) if packed else FlatKernel(self, False)

    def reference(self) -> SerialOperator:
        return ListExplodeReference(self)

    def columns_read(self) -> set[int]:
        return {self.column}

    def columns_passed(self) -> dict[int, int]:
        return dict(enumerate(self.carry))

    def describe(self) -> str:
        return f"explode of {self.input.names[self.column]}"


class ListExplodeReference(SerialOperator):
    """One row per element of a list, in order; nulls among them stay."""

    def process(self, row: Row) -> list[Row]:
        carried = tuple(row[index] for index in self.operator.carry)
        items = row[self.operator.column] or ()
        if is_packed(self.operator.input.field(self.operator.column).type):  # it has Python values
            field = self.operator.output.field(len(carried))
            items = [to_storage(item, field.type, field.name) for item in items]
        return [(*carried, element) for element in items]

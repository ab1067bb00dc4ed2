"""What the references of all operators share: rows, steps, keys, and the class with a state per key.

An operator's reference is its meaning: a function (tuple, state) -> list of tuples, in plain Python, in the
operator's file. The core is tested against it, value for value, so it is written to be read; speed is not
looked for. A row is a tuple of storage values (`ordstream/ground/types.py`) in the order of the schema.
`process` takes one row and returns the rows that it causes. `on_time` and `flush` return *steps*, functions
without arguments that return rows: one step per key or group that is emitted, in the defined order. Each is
asked for when the one before has run. An operator that moves a clock gives a `Mark` among its rows where the
clock shows.

A state exists from the first tuple of its key on. Keys ascend: nulls first, NaN last and equal to itself,
-0.0 equal to 0.0, strings by their UTF-8 bytes (which is the order of Python's `str`).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NoReturn

from ordstream.expressions.bound import BoundExpr, evaluate_row
from ordstream.ground.ordercheck import runs_backwards

Row = tuple[Any, ...]
#: Type and text of the exception.
Rejection = tuple[str, str]


class Mark(NamedTuple):
    """Among the rows that `process` gives: a time punctuation for the operators behind."""

    time: int


Step = Callable[[], list[Row]]
SortKey = tuple[tuple[Any, ...], ...]


def normal(value: Any) -> Any:
    """The normal form of a key value: -0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def sort_key(values: Iterable[Any]) -> SortKey:
    """What stands for key values in comparisons and dicts: equal keys have equal sort keys, and they
    order as keys ascend: see the module.
    """
    return tuple((0,) if v is None else (2,) if v != v else (1, normal(v)) for v in values)


def true_of(condition: BoundExpr | None, row: Row) -> bool:
    """Whether a condition is True (not False, not null) for a row; no condition is true of every row."""
    return condition is None or evaluate_row(condition, row) is True


class SerialOperator:
    """One operator, one tuple at a time; the base class passes every row on.

    Parameters
    ----------
    operator : ordstream.operators.operator.Operator
    """

    #: (serial, index) of every tuple that it shed.
    shed: Sequence[tuple[int, int]] = ()

    #: Tuples that came too late and got a later time.
    adjusted = 0
    #: Why the last row given to `process` goes into the operator's second output; None: it does not.
    rejection: Rejection | None = None

    def __init__(self, operator: Any) -> None:
        self.operator = operator

    def process(self, row: Row) -> list[Row]:
        """The rows that one input row causes. If it raises, the state is as before."""
        return [row]

    def ports_of(self, row: Row) -> Sequence[int]:
        """Of an operator with several outputs: which of them a row leaves by."""
        return [0]

    def united(self, place: int, row: Row) -> Row:
        """Of an operator with several inputs: what a row of one of them becomes."""
        return row

    def rejected(self, row: Row, why: Rejection) -> Row:
        """Of an operator that takes what another one rejected: what the row becomes."""
        return row

    def on_time(self, time: int) -> Iterable[Step]:
        """What a time punctuation causes."""
        return []

    def flush(self) -> list[Step]:
        """What the end of the stream causes."""
        return []

    def begin(self, serial: int) -> None:
        """From now on everything is caused by the source tuple with this serial."""

    def shed_by(self, log: Any, partition: int) -> None:
        """What decides where tuples are shed: a log (None: no log), and the partition of the data."""


class Keyed(SerialOperator):
    """An operator with a state per key; without key columns everything has the key ().

    Attributes
    ----------
    states : dict of SortKey to state
    key_values : dict of SortKey to key values in normal form
    """

    def __init__(self, operator: Any) -> None:
        super().__init__(operator)
        self.states: dict[SortKey, Any] = {}
        self.key_values: dict[SortKey, Row] = {}

    def key_of(self, row: Row) -> SortKey:
        values = tuple(normal(row[index]) for index in self.operator.key)
        key = sort_key(values)
        self.key_values.setdefault(key, values)
        return key

    def not_null(self, row: Row, index: int) -> Any:
        """The value of a column; ValueError where it is null."""
        if row[index] is None:
            name = self.operator.input.names[index]
            raise ValueError(f"column {name!r} is null; filter such tuples out before {self.operator.op}")
        return row[index]

    def not_earlier(self, now: Any, before: Any, index: int) -> None:
        """ValueError where a row's value of a column is smaller than that of the row before it (None:
        there is none).
        """
        if before is not None and now < before:
            self.refuse(now, before, index)

    def refuse(self, now: Any, before: Any, index: int) -> NoReturn:
        """The ValueError for a row that is earlier than the row before it."""
        operator = self.operator
        raise ValueError(
            runs_backwards(operator.input.field(index), now, before, operator.op, keyed=bool(operator.key))
        )

    def ascending(self) -> list[SortKey]:
        """The keys that have a state, in ascending order."""
        return sorted(self.states)


class Ranking:
    """Rows by key, best first: the largest `by`, ties by ascending key. NaN is lowest."""

    def __init__(self) -> None:
        self.order: list[tuple[Any, ...]] = []
        self.rows: dict[SortKey, tuple[tuple[Any, ...], Row]] = {}

    def put(self, key: SortKey, by: Any, row: Row) -> int:
        """The row becomes the key's; its rank, from 1."""
        if key in self.rows:
            del self.order[bisect.bisect_left(self.order, self.rows[key][0])]
        place = (1, 0, key) if math.isnan(by) else (0, -by, key)
        self.rows[key] = place, row
        bisect.insort(self.order, place)
        return bisect.bisect_left(self.order, place) + 1

    def best(self, k: int) -> list[Row]:
        """The rows of the k best keys."""
        return [self.rows[place[-1]][1] for place in self.order[:k]]

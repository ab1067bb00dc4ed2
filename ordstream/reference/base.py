"""What all serial operators share: rows, steps, keys and the class with a state per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from ordstream.ground.ordercheck import runs_backwards
from ordstream.plan.stages import Stage

Row = tuple[Any, ...]
Step = Callable[[], list[Row]]
SortKey = tuple[tuple[Any, ...], ...]


def normal(value: Any) -> Any:
    """The normal form of a key value: -0.0 is 0.0."""
    return value + 0.0 if isinstance(value, float) else value


def sort_key(values: Iterable[Any]) -> SortKey:
    """What stands for key values in comparisons and dicts: equal keys have equal sort keys, and they order as
    Arrow sorts.
    """
    return tuple((0,) if v is None else (2,) if v != v else (1, normal(v)) for v in values)


class SerialOperator:
    """One operator; the base class passes every row on."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.params = stage.params

    def process(self, row: Row) -> list[Row]:
        """The rows that one input row causes. If it raises, the state is as before."""
        return [row]

    def on_time(self, time: int) -> list[Step]:
        """What a time punctuation causes."""
        return []

    def flush(self) -> list[Step]:
        """What the end of the stream causes."""
        return []


class Keyed(SerialOperator):
    """An operator with a state per key; without key columns everything has the key ().

    Attributes
    ----------
    states : dict of SortKey to state
    key_values : dict of SortKey to key values in normal form
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.states: dict[SortKey, Any] = {}
        self.key_values: dict[SortKey, Row] = {}

    def key_of(self, row: Row) -> SortKey:
        values = tuple(normal(row[index]) for index in self.stage.key)
        key = sort_key(values)
        self.key_values.setdefault(key, values)
        return key

    def not_null(self, row: Row, index: int) -> Any:
        """The value of a column; ValueError where it is null."""
        if row[index] is None:
            name = self.stage.input.names[index]
            raise ValueError(f"column {name!r} is null; filter such tuples out before {self.stage.op}")
        return row[index]

    def not_earlier(self, now: Any, before: Any, index: int) -> None:
        """ValueError where a row's value of a column is smaller than that of the row before it (None: there is none)."""
        if before is not None and now < before:
            self.refuse(now, before, index)

    def refuse(self, now: Any, before: Any, index: int) -> NoReturn:
        """The ValueError for a row that is earlier than the row before it."""
        stage = self.stage
        raise ValueError(runs_backwards(stage.input.field(index), now, before, stage.op, keyed=bool(stage.key)))

    def ascending(self) -> list[SortKey]:
        """The keys that have a state, in ascending order."""
        return sorted(self.states)

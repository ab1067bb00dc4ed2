"""What the built-in operators with a state mean, one row at a time."""

from __future__ import annotations

import bisect
import collections
import math
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.expressions.bound import maximum, minimum
from ordstream.ground.types import INT64_MAX, INT64_MIN, integer_range
from ordstream.plan.stages import Stage
from ordstream.reference.base import Keyed, Row, SortKey, Step, normal, sort_key
from ordstream.reference.stateless import true_of


class Count(Keyed):
    """(key columns, window, number of tuples so far), per tuple or once per key at the end.

    A state is (time of the latest tuple or None, its window or None, count).
    """

    def process(self, row: Row) -> list[Row]:
        window = self.window_of(row)
        time = None if window is None else row[self.params["time"]]
        key = self.key_of(row)
        last, before, count = self.states.get(key, (None, None, 0))
        if last is not None:
            self.not_earlier(time, last, self.params["time"])
        self.states[key] = (time, window, count + 1 if before == window else 1)
        return self.output(key) if self.params["emit"] == "updates" else []

    def window_of(self, row: Row) -> int | None:
        """Start of the tuple's window."""
        length, index = self.params["window"], self.params["time"]
        if length is None:
            return None
        start: int = self.not_null(row, index) // length * length
        low, high = integer_range(self.stage.output.field(len(self.stage.key)).type)
        if not low <= start <= high:
            raise OverflowError(f"the start of the window, {start}, is out of range")
        return start

    def flush(self) -> list[Step]:
        if self.params["emit"] == "updates":
            return []
        keys = self.ascending()
        if "best" in self.params:
            best = sorted(keys, key=lambda key: (-self.states[key][2], key))[: self.params["best"]]
            keys = sorted(best)
        return [lambda key=key: self.output(key) for key in keys]  # type: ignore[misc]

    def output(self, key: SortKey) -> list[Row]:
        _, window, count = self.states[key]
        above = self.params["above"]
        if above is not None and count <= above:
            return []
        return [(*self.key_values[key], *(() if window is None else (window,)), count)]


class Accumulators:
    """What the aggregations of `params["aggregates"]` do; a state is one accumulator per aggregation."""

    def __init__(self, stage: Stage) -> None:
        self.aggregates = stage.params["aggregates"]
        self.types = [None if a.column is None else stage.input.field(a.column).type for a in self.aggregates]

    def start(self) -> list[Any]:
        """Of no tuple."""
        return [_start(a.function, type_) for a, type_ in zip(self.aggregates, self.types, strict=True)]

    def chosen(self, row: Row) -> list[bool]:
        """For each aggregation whether it looks at the row. Raises what its condition raises."""
        return [true_of(a.where, row) for a in self.aggregates]

    def advance(self, before: list[Any], row: Row, chosen: list[bool]) -> list[Any]:
        """The state after one more row. Raises OverflowError."""
        after = []
        for aggregate, accumulator, looks in zip(self.aggregates, before, chosen, strict=True):
            value = True if aggregate.column is None else row[aggregate.column]
            skips = value is None or not looks
            after.append(accumulator if skips else advance(aggregate.function, accumulator, value))
        return after

    def values(self, state: list[Any]) -> list[Any]:
        """What a state shows in the output."""
        return [running_value(a.function, x) for a, x in zip(self.aggregates, state, strict=True)]


def _start(function: str, type_: pa.DataType | None) -> Any:
    if type_ is not None and function in ("sum", "mean"):
        zero = 0 if pat.is_integer(type_) else 0.0
        return zero if function == "sum" else (zero, 0)
    return 0 if function == "count" else None


class Scan(Keyed):
    """The input row, then the running values that include it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.accumulators = Accumulators(stage)

    def process(self, row: Row) -> list[Row]:
        return [(*row, *self.accumulators.values(self.include(row)))]

    def include(self, row: Row) -> list[Any]:
        """The state of the row's key after the row; an error leaves it as it was."""
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        state = self.states.get(key) or self.accumulators.start()
        self.states[key] = self.accumulators.advance(state, row, chosen)
        return self.states[key]  # type: ignore[no-any-return]


class Aggregate(Scan):
    """(key columns, values), per tuple that they include, and per key at the end."""

    def process(self, row: Row) -> list[Row]:
        self.include(row)
        return [self.output(self.key_of(row))] if self.params["emit"] == "updates" else []

    def flush(self) -> list[Step]:
        return [lambda key=key: [self.output(key)] for key in self.ascending()]  # type: ignore[misc]

    def output(self, key: SortKey) -> Row:
        return (*self.key_values[key], *self.accumulators.values(self.states[key]))


def advance(function: str, accumulator: Any, value: Any) -> Any:
    """The accumulator after one more non-null value."""
    if function == "sum":
        return checked_sum(accumulator, value)
    if function == "mean":
        return checked_sum(accumulator[0], value), accumulator[1] + 1
    if function == "count":
        return accumulator + 1
    if accumulator is None or function == "last":
        return value
    if function == "first":
        return accumulator
    return minimum(accumulator, value) if function == "min" else maximum(accumulator, value)


def running_value(function: str, accumulator: Any) -> Any:
    """What an accumulator shows in the output."""
    if function == "mean":
        total, n = accumulator
        return float(total) / float(n) if n else None
    return accumulator


def checked_sum(a: Any, b: Any) -> Any:
    """a + b; an int result outside int64 is an OverflowError."""
    total = a + b
    if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
        raise OverflowError(f"int64 overflow in sum: {a} + {b}")
    return total


class Session:
    """An open session of one key."""

    def __init__(self, time: int, collected: list[Any], accumulators: list[Any]) -> None:
        self.start = self.last = time
        self.count = 1
        self.lists = [[value] for value in collected]
        self.accumulators = accumulators

    def add(self, time: int, collected: list[Any], accumulators: list[Any]) -> None:
        self.last = time
        self.count += 1
        self.accumulators = accumulators
        for values, value in zip(self.lists, collected, strict=True):
            values.append(value)


class Sessionize(Keyed):
    """Closes a key's session when its next tuple comes more than `timeout` after its last one."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.accumulators = Accumulators(stage)
        self.last: dict[SortKey, int] = {}  # time of each key's latest tuple, also where a time punctuation closed its session

    def process(self, row: Row) -> list[Row]:
        time = self.not_null(row, self.params["time"])
        collected = [self.not_null(row, index) for index in self.params["collect"]]
        chosen = self.accumulators.chosen(row)
        key = self.key_of(row)
        self.not_earlier(time, self.last.get(key), self.params["time"])
        session = self.states.get(key)
        if session is not None and time - session.last <= self.params["timeout"]:
            session.add(time, collected, self.accumulators.advance(session.accumulators, row, chosen))
            self.last[key] = time
            return []
        first = self.accumulators.advance(self.accumulators.start(), row, chosen)
        closed = self.close(key) if session is not None else []
        self.states[key] = Session(time, collected, first)
        self.last[key] = time
        return closed

    def on_time(self, time: int) -> list[Step]:
        due = [key for key, session in self.states.items() if time - session.last > self.params["timeout"]]
        due.sort(key=lambda key: (self.states[key].last, key))
        return [lambda key=key: self.close(key) for key in due]  # type: ignore[misc]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.close(key) for key in self.ascending()]  # type: ignore[misc]

    def close(self, key: SortKey) -> list[Row]:
        session = self.states.pop(key)
        values = self.accumulators.values(session.accumulators)
        return [(*self.key_values[key], session.start, session.last, session.count, *session.lists, *values)]


class PairUp(Keyed):
    """Each value that is new for its key with the values before it. A state is the list of them."""

    def process(self, row: Row) -> list[Row]:
        value = normal(self.not_null(row, self.params["column"]))
        earlier = self.states.setdefault(self.key_of(row), [])
        if any(sort_key([x]) == sort_key([value]) for x in earlier):
            return []
        carried = tuple(row[index] for index in self.params["carry"])
        pairs = [sorted((x, value), key=lambda v: sort_key([v])) for x in earlier]
        earlier.append(value)
        return [(*carried, *pair) for pair in pairs]


class Lag(Keyed):
    """The input row, then values of the row before it. A state is these values."""

    def process(self, row: Row) -> list[Row]:
        key, columns = self.key_of(row), self.params["columns"]
        before = self.states.get(key, (None,) * len(columns))
        self.states[key] = tuple(row[index] for index in columns)
        return [(*row, *before)]


class AssertOrdered(Keyed):
    """The input row, unless it sorts before the row before it. A state is that row."""

    def process(self, row: Row) -> list[Row]:
        key, columns = self.key_of(row), self.params["columns"]
        before = self.states.get(key)
        if before is not None:
            pairs = ((index, sort_key([row[index]]), sort_key([before[index]])) for index in columns)
            index, now, then = next((pair for pair in pairs if pair[1] != pair[2]), (0, (), ()))
            if now < then:
                self.refuse(row[index], before[index], index)
        self.states[key] = row
        return [row]


class Preceding(Keyed):
    """What a row sees of the last n rows of its key. A state is a ring of (time, where was true, columns)."""

    def process(self, row: Row) -> list[Row]:
        index, within = self.params["time"], self.params["within"]
        now = None if index is None else self.not_null(row, index)
        looks, counts = true_of(self.params["when"], row), true_of(self.params["where"], row)
        ring = self.states.setdefault(self.key_of(row), collections.deque(maxlen=self.params["n"]))
        if ring and index is not None:
            self.not_earlier(now, ring[-1][0], index)
        carried = tuple(row[index] for index in self.params["carry"])
        seen = [(*carried, *values) for time, counted, values in ring if looks and counted and (now is None or time >= now - within)]
        ring.append((now, counts, tuple(row[index] for index in self.params["columns"])))
        return seen


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


class TopK(Keyed):
    """The latest rows of the k keys with the largest `by`: after each row, and as a list at the end of a window
    and of the stream.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.ranking = Ranking()
        self.window: Any = None

    def process(self, row: Row) -> list[Row]:
        by = self.not_null(row, self.params["by"])
        rows: list[Row] = []
        if self.params["window"] is not None:
            window = self.not_null(row, self.params["window"])
            self.not_earlier(window, self.window, self.params["window"])
            if self.window is not None and window > self.window:
                rows = self.best()
                self.ranking = Ranking()
            self.window = window
        rank = self.ranking.put(sort_key(row[index] for index in self.params["key"]), by, row)
        if self.params["emit"] == "updates" and rank <= self.params["k"]:
            rows.append(self.ranked(row, rank))
        return rows

    def flush(self) -> list[Step]:
        return [self.best] if self.ranking.rows else []

    def best(self) -> list[Row]:
        return [self.ranked(row, i) for i, row in enumerate(self.ranking.best(self.params["k"]), 1)]

    def ranked(self, row: Row, rank: int) -> Row:
        return (*row, rank) if self.params["rank"] else row


class TopValues(Keyed):
    """(key columns, value, count, rank): the most frequent values of a key. A state is (counts, ranking)."""

    def process(self, row: Row) -> list[Row]:
        key = self.key_of(row)
        counts, ranking = self.states.setdefault(key, ({}, Ranking()))
        value = normal(row[self.params["column"]])
        which = sort_key([value])
        counts[which] = counts.get(which, 0) + 1
        output = (*self.key_values[key], value, counts[which])
        rank = ranking.put(which, counts[which], output)
        if self.params["emit"] == "final" or rank > self.params["k"]:
            return []
        return [(*output, rank)]

    def flush(self) -> list[Step]:
        return [lambda key=key: self.best(key) for key in self.ascending()]  # type: ignore[misc]

    def best(self, key: SortKey) -> list[Row]:
        rows = self.states[key][1].best(self.params["k"])
        return [(*row, rank) for rank, row in enumerate(rows, 1)]


class Regression(Keyed):
    """Least squares line of the totals of y at each x. A state is (n, Sx, Sxx, Sy, Sxy, last x)."""

    def process(self, row: Row) -> list[Row]:
        x, y = (self.not_null(row, self.params[which]) for which in ("x", "y"))
        key = self.key_of(row)
        n, sx, sxx, sy, sxy, last = self.states.get(key, (0, 0, 0, 0, 0, None))
        self.not_earlier(x, last, self.params["x"])
        completed = self.output(key) if n > 1 and x != last and self.params["emit"] == "updates" else []
        if x != last:
            n, sx, sxx = n + 1, sx + x, sxx + x * x
        after = (n, sx, sxx, sy + y, sxy + x * y, x)
        if not all(INT64_MIN <= total <= INT64_MAX for total in (x, y, *after)):
            raise OverflowError("a sum of the regression is outside int64")
        self.states[key] = after
        return self.output(key) if self.params["emit"] == "every_tuple" else completed

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

"""Random windows for the property tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from property.drawn_expressions import named, plain_number
from property.drawn_options import can_be_time, settled

import ordstream as od
from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import physical_type
from ordstream.operators.gathered import is_apart, list_of
from ordstream.plan.clock import clock_of

KINDS = (
    *("od.tumbling(1)", "od.tumbling(3)", "od.tumbling(40)", "od.session(0)", "od.session(4)"),
    *("od.hopping(3, every=1)", "od.hopping(40, every=20)", "od.hopping(7, every=3)"),
    *("od.tumbling(40, offset=7)", "od.hopping(7, every=3, offset=-1)"),
)
#: Between two of these there may be others in the sources' small times.
SHORT_KINDS = (
    *("od.tumbling(1)", "od.tumbling(3)", "od.hopping(3, every=1)", "od.hopping(7, every=3)"),
    *("od.tumbling(2, offset=1)", "od.hopping(9, every=3, offset=-1)", "od.tumbling(40)"),
)
#: Of dates and timestamps.
CALENDARS = ("od.calendar('1d')", "od.calendar('1w')", "od.tumbling('1mo')", "od.tumbling('1y')")
#: Of a date64, in whole days.
DAY_KINDS = (
    *("od.tumbling('1d')", "od.tumbling('3d')", "od.session(0)", "od.session('4d')"),
    *("od.hopping('3d', every='1d')", "od.hopping('7d', every='3d')", "od.tumbling('3d', offset='1d')"),
)


class Windows:
    """Draws windows and what puts their rows in order; a part of `strategies.Chain`."""

    schema: Any
    draw: Any
    pick: Any
    add: Any
    keyed: Any
    pipeline_key: Any
    rejected: Any
    aggregations: Any
    time: Any
    policy: Any
    fresh: Any
    clocks: frozenset[str]
    latest: str

    def window(self, fills: bool = False) -> None:
        key, times = self.keyed(), named(self.schema, can_be_time)
        names = self.pipeline_key(key) if key else []
        if key is None or not times or {"start", "end", "closed"} & set(names):
            return
        calls = ", ".join(f"{call}.alias({name!r})" for name, call in self.aggregations(set(names)))
        emit = self.pick(("", ", emit='updates'", ", emit='both'"))
        time = self.time(times)
        type_ = self.schema.field(time).type
        kinds = DAY_KINDS if pat.is_date64(type_) else SHORT_KINDS if fills else KINDS
        if pat.is_date(type_) or pat.is_timestamp(type_):
            kinds += CALENDARS
        window = f"{self.pick(kinds)}, time={time!r}"
        behind = ""
        if fills and "session" not in window:
            longest = ("'2d'", "'4d'") if pat.is_date64(type_) else (2, 9, 60)
            window += f", fill_gaps={self.pick((True, True, *longest))}"
            behind = f".pipe(few_gaps, {self.pick((40, 300, 9, 0))})"
        self.add(f"{key}.window({window}).aggregate({calls}{emit}{self.policy()}){behind}")

    def filled(self) -> None:
        """Windows without gaps; of times that lie apart, where there is one to be made."""
        able = [name for name in named(self.schema, pat.is_integer) if name in self.clocks]
        if able and self.pick((True, True, False)):
            name, time = self.fresh("apart"), self.pick(able)
            self.add(f".with_columns((od.col({time!r}) * 7).alias({name!r}), on_error='skip')")
            self.clocks, self.latest = self.clocks | {name}, name
        self.window(fills=True)

    def window_of_count(self, times: list[str]) -> str:
        """Options of `count`."""
        time, length = self.time(times), self.pick((1, 3))
        days = pat.is_date64(self.schema.field(time).type)
        return f", window={repr(f'{length}d') if days else length}, time={time!r}"

    def rolling(self) -> None:
        key, times = self.keyed(), named(self.schema, can_be_time)
        if key is None:
            return
        calls = ", ".join(
            f"{call}.alias({name!r})" for name, call in self.aggregations(set(self.schema.names), wide=False)
        )
        window = f"{key}.window(od.rows({self.pick((1, 2, 7))}))"
        if times and self.pick((0, 1, 1)):
            closed = self.pick(("", *(f", closed={ends!r}" for ends in ("left", "both", "neither"))))
            kind = f"od.rolling({self.pick((1, 3, 40))}{closed})"
            window = f"{key}.window({kind}, time={self.time(times)!r})"
        self.add(f"{window}.aggregate({calls}{self.policy()})")

    def reorder(self) -> None:
        times = named(self.schema, can_be_time)
        if times:
            late = self.pick(("", ", late='drop'", ", late='drop'", ", late='adjust'"))
            if self.rejected is not None and self.pick((True, False)):
                late = f", late='side_output', name='late{len(self.rejected)}'"
            time = self.pick(times)
            days = pat.is_date64(self.schema.field(time).type)
            slack = self.pick(("'0d'", "'1d'", "'3d'") if days else (0, 1, 3, 40))
            self.add(f".reorder({time!r}, slack={slack}{late}{self.policy()})")
            self.clocks, self.latest = self.clocks | {time}, time

    def computed_time(self) -> None:
        """A time that is computed of a column that ascends, and ascends as well."""
        able = [name for name in named(self.schema, can_be_time) if name in self.clocks]
        if able:
            name, time = self.fresh("t"), self.pick(able)
            whole = pat.is_integer(self.schema.field(time).type)
            made = f" // {self.pick((1, 2, 7))}" if whole else ".dt.truncate('2d')"
            self.add(f".with_columns((od.col({time!r}){made}).alias({name!r}){self.policy()})")
            self.clocks, self.latest = self.clocks | {name}, name


def few_gaps(pipeline: od.Pipeline, most: int) -> od.Pipeline:
    """With at most so many empty windows in one gap: times lie as far apart as they can, and what is filled
    is in memory.
    """
    *front, last = pipeline.plan.operators
    return od.Pipeline.of(pipeline.plan.replaced([*front, last.changed(most=most)]))


def can_be_listed(type_: Any) -> bool:
    """Whether a list of values of the type passes."""
    try:
        list_of(pa.field("x", type_), "")
    except SchemaError:
        return False
    return True


def gathered_calls(schema: Any) -> list[tuple[str, str]]:
    """(function, arguments) of aggregations that keep values."""
    numbers = named(schema, plain_number)
    compared = named(schema, lambda t: physical_type(t, "").vm is not None)
    texts = [name for name in named(schema, is_apart) if name in compared]
    packed = [name for name in named(schema, is_apart) if name not in compared]
    calls = [("count_distinct", repr(name)) for name in compared]
    calls += [(end, repr(name)) for name in texts for end in ("first", "last", "min", "max")]
    calls += [(end, repr(name)) for name in packed for end in ("first", "last")]
    calls += [("arg_max", f"{name!r}, {compared[0]!r}") for name in packed if compared]
    calls += [("median", repr(name)) for name in numbers]
    calls += [("quantile", f"{name!r}, {q}") for name in numbers for q in (0.3, 1)]
    calls += [("collect", f"{name!r}, {n}") for name in named(schema, can_be_listed) for n in (1, 3)]
    pairs = zip(compared, [*compared[1:], *compared[:1]], strict=True)
    return calls + [(end, f"{a!r}, {b!r}") for a, b in pairs for end in ("arg_min", "arg_max")]


def agreed(pipeline: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options without a punctuation of another column than the clock that the windows have chosen."""
    try:
        clock_of(pipeline.plan, settled(options).get("punctuate"))
    except PlanError:
        return {name: value for name, value in options.items() if name != "punctuate"}
    return options

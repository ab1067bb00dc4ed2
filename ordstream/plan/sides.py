"""The two sides of a join by time as one lane: a union with a column that tells them apart.

Key and time are one column each, whichever side a row is of; columns of the other side are null.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError, SchemaError
from ordstream.ground.types import column_index, is_string
from ordstream.operators.arguments import column_names, key_columns
from ordstream.operators.clocks import ComputedClock, clock_at
from ordstream.operators.join_lookup import checked_suffix, shown_name
from ordstream.operators.operator import Site
from ordstream.operators.time_joins import Sides
from ordstream.operators.union import From, Union
from ordstream.plan.plan import Plan
from ordstream.plan.sources import CAST_DATA
from ordstream.plan.way import way

#: Of the column that is true for rows of the right side.
SIDE = "side"


def united_sides(
    op: str,
    plans: tuple[Plan, Plan],
    on: Sequence[tuple[str, str]],
    time: str | tuple[str, str] | None,
    suffix: str,
) -> tuple[Plan, list[str], Sides]:
    """A plan that unites a left and a right one; the key columns of its output; how it is read.

    Parameters
    ----------
    op : str
        Of the join, for errors.
    plans : (Plan, Plan)
    on : sequence of (str, str)
        Key columns of both.
    time : str, (str, str) or None
        Time columns; None: the one that both have.
    suffix : str
        Behind names of the right that the left has too.

    Raises
    ------
    PlanError, SchemaError
        The two have different sources, or their columns do not fit each other.
    """
    left, right = (plan.output for plan in plans)
    times = _times(op, left, right, [key for key, _ in on], time)
    keys = [key_columns(schema, [pair[place] for pair in on], f"{op}, {where}")
            for place, (schema, where) in enumerate(((left, "left"), (right, "right")))]  # fmt: skip
    at = column_index(left, times[0], op), column_index(right, times[1], op)
    if at[0] in keys[0] or at[1] in keys[1]:
        raise PlanError(f"{op}: the time can't be a key column too")
    common = dict(zip((*keys[0], at[0]), (*keys[1], at[1]), strict=True))
    sources = len({source.name for plan in plans for source in plan.all_sources})
    for mine, theirs in common.items():
        _same_type(op, left.field(mine), right.field(theirs), sources if mine == at[0] else 1)

    checked_suffix(suffix, op)
    taken = frozenset(left.names)
    shown = {index: shown_name(name, taken, suffix, op)
             for index, name in enumerate(right.names) if index not in keys[1]}  # fmt: skip
    others = [index for index in shown if index != at[1]]
    side = next(name for name in (SIDE, *(f"{SIDE}_{i}" for i in range(len(left) + len(right) + 1)))
                if name not in taken and name not in shown.values())  # fmt: skip
    fields = [pa.field(side, pa.bool_(), nullable=False), *(field.with_nullable(True) for field in left)]
    fields += [pa.field(shown[index], right.field(index).type) for index in others]
    columns: list[list[From]] = [
        ["told", *range(len(left)), *(None for _ in others)],
        ["told", *(common.get(index) for index in range(len(left))), *others],
    ]
    names = {operator.name for plan in plans for operator in plan.operators}
    name = next(n for i in range(len(names) + 1) if (n := f"sides_{len(names) + 1 + i}") not in names)
    lane = Union.of(Site(left, name), (left, right), pa.schema(fields), columns, (0, 1))
    sides = Sides(
        side,
        (times[0], times[0]),
        {name: name for index, name in enumerate(left.names) if index not in keys[0]},
        {name: times[0] if index == at[1] else name for index, name in shown.items()},
        _clock(plans, at),
    )
    return Plan.together(plans, lane), [left.names[index] for index in keys[0]], sides


def _times(
    op: str, left: pa.Schema, right: pa.Schema, key: Sequence[str], time: str | tuple[str, str] | None
) -> tuple[str, str]:
    """The time columns of both sides."""
    if time is not None:
        names = column_names(time, op)
        if not names or len(names) > 2:
            raise PlanError(f"{op}: time must be a column, or that of the left and of the right: {time!r}")
        return names[0], names[-1]
    there = frozenset(right.names)
    both = [
        field.name for field in left
        if field.name not in key and field.name in there
        and (pat.is_timestamp(field.type) or pat.is_date(field.type))
    ]  # fmt: skip
    if len(both) != 1:
        found = f"they are {', '.join(both)}" if both else "there is none"
        raise PlanError(
            f"{op}: say which column is the time, such as time='ts' or time=('ts', 'at'): without it there "
            f"must be one timestamp or date that both sides have, and {found}{_equal_times(left, key)}"
        )
    return both[0], both[0]


def _equal_times(left: pa.Schema, key: Sequence[str]) -> str:
    """What `on=` asks of a time among its columns: elsewhere it names the time, and `by=` the key."""
    equal = [name for name in key if pat.is_timestamp(left.field(name).type)]
    if not equal:
        return ""
    return (
        f"; {equal[0]!r} is in on=, whose columns must be equal: write on='key', time={equal[0]!r} (without "
        "a key, a column with the same value in all rows of both)"
    )


def _same_type(op: str, left: pa.Field, right: pa.Field, sources: int = 1) -> None:
    """`sources`: of a time: how many there are."""
    if left.type != right.type and not (is_string(left.type) and is_string(right.type)):
        cast = f"cast one of them, such as with_columns({left.name}=od.col({left.name!r}).cast(...))"
        raise SchemaError(
            f"{op}: {left.name!r} is {left.type}, {right.name!r} of the other side is {right.type}; "
            f"{cast if sources == 1 else CAST_DATA}"
        )


def _clock(plans: tuple[Plan, Plan], at: tuple[int, int]) -> int | ComputedClock | None:
    """The clock of a run as the lane sees it: what the time of both sides is, if no other operator wants
    another.
    """
    left, right = (clock_at(way(plan), index) for plan, index in zip(plans, at, strict=True))
    sources = [plan.all_sources for plan in plans]
    if any(len(one) > 1 for one in sources):
        return None
    wanted = [
        (source, one[0])
        for plan, (source,) in zip(plans, sources, strict=True)
        for operator in plan.operators
        if not operator.yields_clock and (one := operator.clock_wanted()) is not None
    ]  # fmt: skip
    if isinstance(left, int) and isinstance(right, int):
        own = [(source, clock) for (source,), clock in zip(sources, (left, right), strict=True)]
        same = own[0][0] != own[1][0] or left == right  # of two sources each has a column of its own
        return left if same and all(one in own for one in wanted) else None
    if isinstance(left, ComputedClock) and left == right and sources[0] == sources[1]:
        return left if all(clock == left for _, clock in wanted) else None
    return None

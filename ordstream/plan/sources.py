"""Several sources of one plan: one wide source whose rows go to the operators of their own.

`ordstream.node.merging` makes its rows of those of the sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.expressions.expr import Column
from ordstream.ground.choices import is_text
from ordstream.ground.types import is_temporal
from ordstream.operators.branch import Branch
from ordstream.operators.clocks import ReorderedClock
from ordstream.operators.operator import Operator, Site
from ordstream.operators.project import Project
from ordstream.plan.outputs import Output, widened
from ordstream.plan.plan import SOURCE, Edge, Plan

#: Of the table that says which source each row of a merge came from.
MERGE_LOG = pa.schema([("source", pa.string()), ("rows", pa.int64())])


def wide_source(plan: Plan) -> tuple[tuple[Output, ...], pa.Schema]:
    """Where the sources' columns are in the wide one, and its schema."""
    return widened([(str(source.name), source.schema) for source in plan.sources])


def with_one_source(plan: Plan, merge_by: str | None = None) -> Plan:
    """The plan with one wide source: a branch by its column 0, and each source's own columns behind.

    Parameters
    ----------
    plan : Plan
    merge_by : str, optional
        The column that all sources have in common, by which they are merged: it is the clock of the run.
        Without it, and on other columns, windows close at their key's next row.

    Raises
    ------
    PlanError
        It is no name, or a source has no such column, or of another type.
    """
    if not plan.sources:
        return plan
    ways, wide = wide_source(plan)
    clock = None if merge_by is None else _merge_column(plan, merge_by, wide)
    branch = Branch.numbered(Site(wide, plan.free_name("sources")), 0, len(ways))
    front: list[Operator] = [branch]
    edges = [Edge(SOURCE, 0)]
    for number, way in enumerate(ways):
        chosen = [(f.name, Column(wide.names[at])) for f, at in zip(way.schema, way.columns, strict=True)]
        edges.append(Edge(0, len(front), number))
        front.append(Project.bind(Site(wide, plan.free_name(f"source {way.name}")), chosen))
    shift = len(front)
    for edge in plan.edges:
        moved = Edge(edge.producer + shift, edge.consumer + shift, edge.port, edge.place)
        edges.append(replace(moved, producer=1 + edge.port, port=0) if edge.producer == SOURCE else moved)
    if not plan.operators:
        raise PlanError("a plan of several sources has an operator that takes them")
    behind = [_by_clock(plan, position, clock, merge_by) for position in range(len(plan.operators))]
    return Plan(wide, (*front, *behind), tuple(edges), plan.port)


def _merge_column(plan: Plan, merge_by: str, wide: pa.Schema) -> int:
    if not is_text(merge_by):
        raise PlanError(
            f"merge_by is the name of one column, which all sources have, such as 'ts'; got {merge_by!r:.80}"
        )
    types = {}
    for source in plan.sources:
        at = source.schema.get_field_index(merge_by)
        if at < 0:
            raise PlanError(
                f"merge_by={merge_by!r}: source {source.name!r} has no such column; it has: "
                f"{', '.join(source.schema.names)}"
            )
        types[source.name] = source.schema.field(at).type
    first = next(iter(types.values()))
    if any(not type_.equals(first) for type_ in types.values()):
        shown = ", ".join(f"{name}: {type_}" for name, type_ in types.items())
        raise PlanError(f"merge_by={merge_by!r} must have one type in all sources: {shown}")
    if not (pat.is_integer(first) or is_temporal(first)):
        raise PlanError(f"merge_by={merge_by!r} must be an integer, a timestamp or a date, it is {first}")
    return int(wide.get_field_index(merge_by))


def _by_clock(plan: Plan, position: int, clock: int | None, merge_by: str | None) -> Operator:
    """The operator with the clock of the run, if it wants that of its source's merged column."""
    operator = plan.operators[position]
    wanted = operator.clock_wanted()
    if wanted is None or isinstance(wanted[0], ReorderedClock):
        return operator
    producer, port = position, 0
    while producer != SOURCE:
        first = plan.inputs(producer)[0]
        producer, port = first.producer, first.port
    at = wanted[0]
    same = isinstance(at, int) and plan.sources[port].schema.names[at] == merge_by
    return operator.with_clock(clock if same else None)


def check_merge(plan: Plan, merge_by: str | None, **others: Any) -> None:
    """PlanError where what is said of a merge of sources is for several, and the plan has one, or the other
    way round. `others`: further options of a merge.
    """
    if not plan.sources:
        for name, option in {"merge_by": merge_by, **others}.items():
            if option is not None:
                raise PlanError(f"{name} is for a pipeline of several sources; this one has one")
    elif merge_by is None:
        names = ", ".join(repr(source.name) for source in plan.sources)
        raise PlanError(f"the pipeline has the sources {names}: say which column merges them, merge_by='ts'")


def merge_choices(log: Any, names: Sequence[str | None]) -> Iterator[tuple[int, int]]:
    """(number of the source, rows) of the table of a merge's log.

    Raises
    ------
    PlanError
        It is no log of these sources.
    """
    if not isinstance(log, pa.Table) or not log.schema.equals(MERGE_LOG):
        raise PlanError(f"merge_log must be the table of a run's merge_log, got {type(log).__name__}")
    strange = sorted(set(log["source"].unique().to_pylist()) - set(names), key=str)
    if strange:
        raise PlanError(f"merge_log is of other sources: it has {strange[0]!r}")
    for place, rows in enumerate(log["rows"].to_pylist()):
        if rows is None or rows < 0:
            raise PlanError(f"merge_log has {rows} rows in its row {place + 1}")
    for source, rows in zip(log["source"].to_pylist(), log["rows"].to_pylist(), strict=True):
        yield names.index(source), rows


def data_of_each(names: Sequence[str | None], data: Any) -> dict[str, Any]:
    """What a pipeline of several sources is run on, by source.

    Raises
    ------
    PlanError
        It is no mapping of these names.
    """
    if isinstance(data, Mapping) and set(data) == set(names):
        return dict(data)
    got = f"sources {', '.join(map(repr, data))}" if isinstance(data, Mapping) else type(data).__name__
    raise PlanError(
        f"the pipeline has the sources {', '.join(map(repr, names))}: run it on a mapping of each to its "
        f"data; got {got}"
    )


def data_of_the_one(name: str | None, data: Any) -> Any:
    """What a pipeline of one source is run on: data, or a mapping of the source's name to them.

    Raises
    ------
    PlanError
        A mapping of other names.
    """
    if name is None or not isinstance(data, Mapping):
        return data
    if set(data) != {name}:
        raise PlanError(f"the pipeline has the source {name!r}; got {', '.join(map(repr, data)) or 'none'}")
    return data[name]

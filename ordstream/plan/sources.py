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
from ordstream.plan.outputs import STREAM, Output, shared_name, widened
from ordstream.plan.plan import SOURCE, Edge, Plan
from ordstream.plan.way import traced

#: Of the table that says which source each row of a merge came from.
MERGE_LOG = pa.schema([("source", pa.string()), ("rows", pa.int64())])


#: What to do where times differ in unit or zone: what an expression made merges no sources.
CAST_DATA = "cast the data of one, table.cast(schema), and write that schema in its Pipeline"
#: The column by which sources are merged: one name, or that of each source.
MergeBy = str | Mapping[str, str]


def wide_source(plan: Plan, merge_by: MergeBy | None = None) -> tuple[tuple[Output, ...], pa.Schema]:
    """Where the sources' columns are in the wide one, and its schema.

    Raises
    ------
    PlanError
        As `merge_columns`.
    """
    names = () if merge_by is None else merge_columns(plan, merge_by)
    shared = names if len(set(names)) > 1 or STREAM.name in names else ()
    return widened([(str(source.name), source.schema) for source in plan.sources], shared)


def with_one_source(plan: Plan, merge_by: MergeBy | None = None) -> Plan:
    """The plan with one wide source: a branch by its column 0, and each source's own columns behind.

    Parameters
    ----------
    plan : Plan
    merge_by : str or mapping of str to str, optional
        The column by which the sources are merged: it is the clock of the run. Without it, and on other
        columns, windows close at their key's next row.

    Raises
    ------
    PlanError
        As `merge_columns`.
    """
    if not plan.sources:
        return plan
    merged = () if merge_by is None else merge_columns(plan, merge_by)
    ways, wide = wide_source(plan, merge_by)
    clock = ways[0].columns[ways[0].schema.get_field_index(merged[0])] if merged else None
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
    behind = list[Operator]()
    for position in range(len(plan.operators)):
        behind.append(_by_clock(plan, position, behind, clock, merged))
    return Plan(wide, (*front, *behind), tuple(edges), plan.port)


def merge_columns(plan: Plan, merge_by: MergeBy) -> tuple[str, ...]:
    """The column by which each source is merged, in the order of the plan.

    Parameters
    ----------
    plan : Plan
        Of several sources.
    merge_by : str or mapping of str to str
        A column that all have, or that of each source by its name.

    Raises
    ------
    PlanError
        It is neither; a source is missing, strange, or has no such column, or of another type; or that type
        has no order.
    """
    names = [str(source.name) for source in plan.sources]
    columns = dict(merge_by) if isinstance(merge_by, Mapping) else dict.fromkeys(names, merge_by)
    if not all(map(is_text, columns.values())):
        raise PlanError(
            "merge_by is the name of a column that all sources have, such as 'ts', or a mapping of each "
            f"source to its own, such as {dict.fromkeys(names, 'ts')}; got {merge_by!r:.80}"
        )
    if set(columns) != set(names):
        raise PlanError(
            f"merge_by names a column of each source, which are {', '.join(map(repr, names))}; got one of "
            f"{', '.join(map(repr, columns)) or 'none'}"
        )
    types = {}
    for source in plan.sources:
        name = str(source.name)
        at = source.schema.get_field_index(columns[name])
        if at < 0:
            raise PlanError(
                f"merge_by={merge_by!r}: source {name!r} has no such column; it has: "
                f"{', '.join(source.schema.names)}{_of_each(names, merge_by)}"
            )
        types[name] = source.schema.field(at).type
    first = next(iter(types.values()))
    if any(not type_.equals(first) for type_ in types.values()):
        shown = ", ".join(f"{name}: {type_}" for name, type_ in types.items())
        raise PlanError(f"merge_by={merge_by!r} must have one type in all sources: {shown}; {CAST_DATA}")
    if not (pat.is_integer(first) or is_temporal(first)):
        raise PlanError(f"merge_by={merge_by!r} must be an integer, a timestamp or a date, it is {first}")
    return tuple(columns[name] for name in names)


def merge_text(merge_by: MergeBy) -> str:
    """The column that merges sources, as the wide source names it."""
    return shared_name([*merge_by.values()] if isinstance(merge_by, Mapping) else [merge_by])


def _of_each(names: Sequence[str], merge_by: Any) -> str:
    """What to do where the column has another name in one of the sources."""
    if isinstance(merge_by, Mapping):
        return ""
    return f". Where names differ, say that of each: merge_by={dict.fromkeys(names, merge_by)}"


def _by_clock(
    plan: Plan, position: int, behind: Sequence[Operator], clock: int | None, merged: Sequence[str]
) -> Operator:
    """The operator with the clock of the run, if its time is the merged column of each source that it comes
    from. `behind`: what this gave for those in front.
    """
    operator = plan.operators[position]
    wanted = operator.clock_wanted()
    if wanted is None or isinstance(wanted[0], ReorderedClock):
        return operator
    (edge, *_), column = plan.inputs(position), operator.clock_input()
    if column is None:  # it goes by the clock of the operator in front
        same = behind[edge.producer].clock_wanted() is not None
    else:
        found = traced(plan, edge.producer, edge.port, column) if isinstance(wanted[0], int) else {}
        same = bool(merged and found) and all(
            plan.sources[port].schema.names[at] == merged[port] for port, at in found.items()
        )
    return operator.with_clock(clock if same else None)


def check_merge(plan: Plan, merge_by: MergeBy | None, **others: Any) -> None:
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

"""Which part of a graph runs in several nodes: one where rows that share a state have equal values in
columns of the source that all of them have.

Rows go to nodes by these columns, and each node runs the whole part on its rows: branches, unions and
joins meet only rows of one source tuple, or of one key. The stateless operators in front of the first branch
are no part of it; behind the last union a chain may go on, which is cut as any chain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ordstream.errors import PlanError
from ordstream.plan.lanes import laid_out
from ordstream.plan.plan import SOURCE, Edge, Plan

Places = dict[tuple[int, int], set[int]]
"""Of each stream of rows (producer, port): the columns in which a value of the source is."""


class GraphPart(NamedTuple):
    """What of a graph runs on its keys.

    Attributes
    ----------
    front : Plan
        The stateless operators in front, a line; of a part without state they belong to it.
    plan : Plan
        The part, laid out; its source is the front's output.
    key : tuple of int
        Columns of its source by which rows go to nodes; (): it has no state, so they may go anywhere.
    stop : int
        Position in the graph of the first operator behind it.
    spread : list of set of int
        For each column of the key: where its value is in the part's output.
    """

    front: Plan
    plan: Plan
    key: tuple[int, ...]
    stop: int
    spread: list[set[int]]


def graph_part(plan: Plan) -> GraphPart:
    """The part of a graph of one source that runs on its keys.

    Raises
    ------
    PlanError
        Why there is none.
    """
    for operator in plan.operators:
        if operator.takes_rejections:
            raise _refused(f"{operator.name}: rows of a second output tell serials, which nodes count alone")
    began = _front(plan)
    inner = _behind(plan, began)
    joined = max(at for at, operator in enumerate(inner.operators) if operator.takes_units) + 1
    while joined < len(inner.operators) and not _goes_on(inner, joined):
        joined += 1
    columns = range(len(inner.source))
    places = {column: places_of(inner, column) for column in columns}
    stop = joined
    key = _common(inner, stop, places)
    while key and stop < len(inner.operators):
        more = _common(inner, stop + 1, places)
        if not more:
            break
        key, stop = more, stop + 1
    if not key and any(operator.stateful for operator in inner.operators[:stop]):
        raise _refused(_why(inner, stop, places))
    if not key:
        stop += began
        while stop < len(plan.operators) and not plan.operators[stop].stateful:
            stop += 1
        whole = plan if stop == len(plan.operators) else plan.leading_to(stop - 1)
        return GraphPart(plan.part(0, 0), laid_out(whole), (), stop, [])
    part = laid_out(inner if stop == len(inner.operators) else inner.leading_to(stop - 1))
    port = inner.port if stop == len(inner.operators) else 0
    spread = [places[column].get((stop - 1, port), set()) for column in key]
    return GraphPart(plan.part(0, began), part, key, began + stop, spread)


def places_of(plan: Plan, column: int) -> Places:
    """Where the values of a source column are, unchanged, whatever way a row came."""
    found: Places = {(SOURCE, 0): {column}}
    for position, operator in enumerate(plan.operators):
        ways = []
        for edge in plan.inputs(position):
            here = found[edge.producer, edge.port]
            passed = operator.columns_passed_from(edge.place)
            ways.append({out for out, taken in passed.items() if taken in here})
        for port in range(operator.ports):
            found[position, port] = set.intersection(*ways)
    return found


def key_places(plan: Plan, key: tuple[int, ...], name: str) -> list[set[int]]:
    """Of each column of a fragment's key: where its value is in the rows that an operator takes."""
    position = next(at for at, operator in enumerate(plan.operators) if operator.name == name)
    (edge,) = plan.inputs(position)
    return [places_of(plan, column)[edge.producer, edge.port] for column in key]


def _common(plan: Plan, stop: int, places: dict[int, Places]) -> tuple[int, ...]:
    """The source columns that are in the keys of all states up to a position."""
    found = []
    for column, of in places.items():
        if all(_has(plan, position, of) for position in range(stop)):
            found.append(column)
    keyed = any(plan.operators[position].stateful for position in range(stop))
    return tuple(found) if keyed else ()


def _has(plan: Plan, position: int, places: Places) -> bool:
    """Whether rows that share a state of an operator have one value of a source column."""
    operator = plan.operators[position]
    if not operator.stateful:
        return True
    (edge,) = plan.inputs(position)
    return bool(places[edge.producer, edge.port] & set(operator.key))


def _why(plan: Plan, stop: int, places: dict[int, Places]) -> str:
    """Why rows can't be spread, for a reader."""
    for position, operator in enumerate(plan.operators[:stop]):
        if operator.stateful and not any(_has(plan, position, of) for of in places.values()):
            if operator.kind == "SF":
                return f"{operator.name} has one state for all rows"
            return f"{operator.name} has no column of the source in its key"
    names = [  # with the keys: operators of two pipelines may be called the same
        f"{one.name} ({', '.join(one.input.names[index] for index in one.key)})"
        for one in plan.operators[:stop]
        if one.stateful
    ]
    return f"no column of the source is in the keys of all of {', '.join(names)}"


def _front(plan: Plan) -> int:
    """How many stateless operators stand in front of the first branch or state, in a line."""
    count = 0
    for position, operator in enumerate(plan.operators):
        line = plan.inputs(position) == [Edge(position - 1, position)]
        if (
            operator.stateful
            or operator.takes_units
            or not line
            or plan.consumers(position - 1) != [position]
        ):
            break
        count = position + 1
    return count


def _behind(plan: Plan, count: int) -> Plan:
    """The plan without its first operators, a line."""
    edges = [
        replace(edge, producer=max(edge.producer - count, SOURCE), consumer=edge.consumer - count)
        for edge in plan.edges
        if edge.consumer >= count
    ]
    return replace(plan, source=plan.schema_in_front(count), operators=plan.operators[count:],
                   edges=tuple(edges))  # fmt: skip


def _goes_on(plan: Plan, position: int) -> bool:
    """Whether an operator takes all that the one in front makes, and so on to the end."""
    return all(
        plan.inputs(at) == [Edge(at - 1, at)] and plan.consumers(at - 1) == [at]
        for at in range(position, len(plan.operators))
    )


def _refused(why: str) -> PlanError:
    return PlanError(f"a pipeline with branches, unions or second outputs is not cut here: {why}")

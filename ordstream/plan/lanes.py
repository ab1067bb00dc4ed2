"""A graph as a line with lanes: what every runner of one node takes.

Operators stay in their order, each of them on one lane; a branch moves rows to other lanes, a union brings
them together (docs/architecture.md, "Lanes"). Where several operators take the same rows, a branch that
copies stands in front of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ordstream.errors import PlanError
from ordstream.operators.branch import Branch
from ordstream.operators.clocks import ReorderedClock
from ordstream.operators.operator import Operator, Site
from ordstream.operators.union import Union
from ordstream.plan.clock import with_clocks
from ordstream.plan.plan import SOURCE, Edge, Plan
from ordstream.plan.rejections import check_taken, joined
from ordstream.plan.sources import with_one_source

#: Of a unit, at a time (`ordstream._core.ground.kernel.MOST_LANES`).
MOST_LANES = 64

#: A name that an operator has since it was given none, or one of the parts that such an operator is made of
#: ("diff_1: lag").
_NUMBERED = re.compile(r".+_\d+(: \w+)?")

Wire = tuple[int, int]  # producer and port


def laid_out(plan: Plan) -> Plan:
    """The plan as a line with lanes; a plan that is none, or is laid out, as it is.

    Raises
    ------
    PlanError
        Two operators have one name; too many lanes at a time; a shed operator whose rows do not go straight
        to the next operator.
    """
    known: Plan | None = plan.made_of_it.get("laid out", plan)
    if known is not plan:
        return plan if known is None else known
    found = with_clocks(named(with_one_source(plan)))
    if not found.lanes and found.is_graph:
        found = _on_lanes(_with_copies(joined(found)))
    plan.made_of_it["laid out"] = None if found is plan else found
    return found


def check_line(plan: Plan, where: str) -> None:
    """PlanError for a graph, in what takes lines only; and where rows are rejected that nobody takes."""
    if plan.is_graph:
        raise PlanError(
            f"{where}: a pipeline with branches, unions or second outputs is not cut; run it in one node"
        )
    check_taken(plan)


def check_one_source(plan: Plan, where: str) -> None:
    """PlanError where there are several sources."""
    if plan.sources:
        names = ", ".join(repr(source.name) for source in plan.sources)
        raise PlanError(f"{where}: one source is needed, the pipeline has {names}; merge them before")


def named(plan: Plan) -> Plan:
    """Every operator of a graph with a name of its own. Those that go by the clock of another one know it by
    its name.
    """
    if plan.lanes or not plan.is_graph:
        return plan
    taken = {operator.name for operator in plan.operators}
    seen: set[str] = set()
    operators: list[Operator] = []
    for operator in plan.operators:
        name = operator.name
        if name in seen:
            if not _NUMBERED.fullmatch(name):
                raise PlanError(f"two operators are named {name!r}; names must be unique in a pipeline")
            whole, colon, part = name.partition(": ")
            free = (f"{whole}_{n}{colon}{part}" for n in range(2, len(taken) + 3))
            name = next(one for one in free if one not in taken)
            operator = operator.changed(name=name)
        taken.add(name)
        seen.add(name)
        operators.append(operator)
    for position, operator in enumerate(operators):
        wanted = operator.clock_wanted()
        if wanted is not None and isinstance(wanted[0], ReorderedClock):
            maker = operators[_maker(plan, position, wanted[0].operator)].name
            if maker != wanted[0].operator:
                operators[position] = operator.with_clock(ReorderedClock(maker))
    return plan.replaced(operators)


def _maker(plan: Plan, position: int, name: str) -> int:
    """The operator of a name in front of another one: the last of them."""
    front = set(plan.producers(position))
    while (last := max(front)) != SOURCE and plan.operators[last].name != name:
        front = front - {last} | set(plan.producers(last))
    return last


def _with_copies(plan: Plan) -> Plan:
    """A branch that copies behind every stream of rows that several operators take."""
    takers: dict[int, dict[int, list[Edge]]] = {}  # by producer and port
    for edge in sorted(plan.edges, key=lambda edge: (edge.consumer, edge.place)):
        takers.setdefault(edge.producer, {}).setdefault(edge.port, []).append(edge)
    operators: list[Operator] = []
    edges: list[Edge] = []
    made: dict[tuple[int, int], Wire] = {}  # consumer, place -> what it takes
    at = {SOURCE: SOURCE}
    for position in range(SOURCE, len(plan.operators)):
        if position != SOURCE:
            at[position] = len(operators)
            operators.append(plan.operators[position])
            for edge in plan.inputs(position):
                producer, port = made[position, edge.place]
                edges.append(Edge(producer, at[position], port, edge.place))
        for port, wanted in takers.get(position, {}).items():
            if len(wanted) == 1:
                made[wanted[0].consumer, wanted[0].place] = at[position], port
                continue
            schema = plan.source if position == SOURCE else plan.operators[position].output
            behind = "source" if position == SOURCE else plan.operators[position].name
            site = Site(schema, plan.free_name(f"{behind}: copies" + (f" {port + 1}" if port else "")))
            edges.append(Edge(at[position], len(operators), port))
            for way, edge in enumerate(wanted):
                made[edge.consumer, edge.place] = len(operators), way
            operators.append(Branch.copies(site, len(wanted)))
    return replace(plan, operators=tuple(operators), edges=tuple(edges))


def _on_lanes(plan: Plan) -> Plan:
    """A lane for each stream of rows; numbers are free again when a branch or union has taken the rows."""
    lanes: dict[Wire, int] = {(SOURCE, 0): 0}  # of the streams that nobody has taken yet
    passed: dict[Wire, tuple[int, ...]] = {(SOURCE, 0): ()}  # branch points that the rows still know
    end = len(plan.operators) - 1, plan.port
    taken = {(edge.producer, edge.port) for edge in plan.edges} | {end}
    operators: list[Operator] = []
    works_on: list[int] = []
    for position, operator in enumerate(plan.operators):
        inputs = [(edge.producer, edge.port) for edge in plan.inputs(position)]
        own = [lanes.pop(wire) for wire in inputs]
        points = [passed.pop(wire) for wire in inputs]
        if not operator.takes_units:
            _check_shed(plan, position)
            lanes[position, 0], passed[position, 0] = own[0], points[0]
            works_on.append(own[0])
        elif operator.ports == 1:
            common = _common(points)
            kept = common
            while kept and not any(kept[-1] in others for others in passed.values()):
                kept = kept[:-1]
            lane = _free(lanes.values(), operator.name)
            lanes[position, 0], passed[position, 0] = lane, kept
            operator = operator.laid(lane, own, [-1, *common][-1], [-1, *kept][-1])
            works_on.append(0)
        else:
            ways = []
            for port in range(operator.ports):
                if (position, port) not in taken:
                    ways.append(-1)
                    continue
                ways.append(_free(lanes.values(), operator.name))
                lanes[position, port] = ways[-1]
                passed[position, port] = (*points[0], position)
            operator = operator.laid(own[0], ways, position, -1)
            works_on.append(0)
        operators.append(operator)
    plan = replace(plan, operators=tuple(operators), lanes=tuple(works_on))
    return plan if lanes[end] == 0 else _at_lane_0(plan, lanes[end])


def _at_lane_0(plan: Plan, lane: int) -> Plan:
    """The plan with its output where a run looks for it: rows of other lanes end there."""
    last, schema = len(plan.operators) - 1, plan.output
    site = Site(schema, plan.free_name("output"))
    moves = Union.of(site, (schema,), schema, [range(len(schema))]).laid(0, (lane,), -1, -1)
    edges = (*plan.edges, Edge(last, last + 1, plan.port))
    operators = (*plan.operators, moves)
    return replace(plan, operators=operators, edges=edges, lanes=(*plan.lanes, 0), port=0)


def _common(points: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The branch points that all have passed."""
    same = points[0]
    for other in points[1:]:
        length = 0
        while length < min(len(same), len(other)) and same[length] == other[length]:
            length += 1
        same = same[:length]
    return same


def _free(lanes: Iterable[int], name: str) -> int:
    taken = set(lanes)
    lane = next((lane for lane in range(MOST_LANES) if lane not in taken), None)
    if lane is None:
        raise PlanError(
            f"{name}: more than {MOST_LANES} streams of rows beside each other; unite some of them earlier"
        )
    return lane


def _check_shed(plan: Plan, position: int) -> None:
    operator = plan.operators[position]
    if not operator.sheds or position + 1 == len(plan.operators):
        return
    behind = plan.operators[position + 1]
    edges = [edge for edge in plan.edges if edge.producer == position]
    if [edge.consumer for edge in edges] != [position + 1] or behind.takes_units:
        raise PlanError(
            f"{operator.name}: the operator that it protects must follow it directly, with no branch or "
            "union between them"
        )

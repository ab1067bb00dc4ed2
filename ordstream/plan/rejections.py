"""Second outputs: an operator that rejects rows, and the one that takes them (`operators/rejected.py`).

In a plan an edge leads from the first to the second. It carries no rows: the second takes the rows that the
first takes, and keeps those that the first tells it about.
"""

from __future__ import annotations

from dataclasses import replace

from ordstream.errors import PlanError
from ordstream.ground.choices import is_one_of
from ordstream.operators.branch import Branch
from ordstream.operators.operator import Site
from ordstream.plan.plan import Edge, Plan

#: Port and place of the edge that carries no rows.
REJECTIONS = 1


def side_output(plan: Plan, name: str | None, where: str) -> Plan:
    """The plan of the second output of an operator.

    Parameters
    ----------
    plan : Plan
    name : str or None
        Of the operator; None: the only one that has a second output.
    where : str
        For errors.

    Raises
    ------
    PlanError
        There is no such operator, or it has no second output.
    """
    rejecting = [operator for operator in plan.operators if operator.rejects]
    found = [operator for operator in rejecting if name is None or is_one_of(name, (operator.name,))]
    if len(found) != 1 or found[0].second is None:
        names = ", ".join(repr(operator.name) for operator in rejecting)
        raise PlanError(
            f"{where}: {'which operator?' if found else 'no such operator'}; those with a second output, "
            f"on_error='dead_letter' or late='side_output', are: {names or 'none'}"
        )
    position = plan.operators.index(found[0])
    front = plan.leading_to(position)
    last = len(front.operators) - 1
    taken = front.inputs(last)[0]
    side = last + 1
    edges = (*front.edges, replace(taken, consumer=side), Edge(last, side, REJECTIONS, REJECTIONS))
    return replace(front, operators=(*front.operators, found[0].second), edges=edges, port=0)


def joined(plan: Plan) -> Plan:
    """The plan without edges that carry no rows; rows of an operator that only its second output is asked of
    are dropped.
    """
    operators = list(plan.operators)
    edges = []
    for edge in plan.edges:
        if operators[edge.consumer].takes_rejections and edge.place == REJECTIONS:
            name = operators[edge.producer].name
            operators[edge.consumer] = operators[edge.consumer].changed(of=name)
        else:
            edges.append(edge)
    plan = replace(plan, operators=tuple(operators), edges=tuple(edges))
    for position in reversed(range(len(operators) - 1)):
        if not plan.consumers(position) and operators[position].rejects:
            plan = _dropped(plan, position)
    return plan


def _dropped(plan: Plan, position: int) -> Plan:
    """The plan with a branch behind an operator, none of whose ways anybody takes."""
    operator = plan.operators[position]
    branch = Branch.copies(Site(operator.output, plan.free_name(f"{operator.name}: dropped")), 2)
    operators = (*plan.operators[: position + 1], branch, *plan.operators[position + 1 :])

    def moved(at: int) -> int:
        return at + (at > position)

    edges = [
        replace(edge, producer=moved(edge.producer), consumer=moved(edge.consumer)) for edge in plan.edges
    ]
    return replace(plan, operators=operators, edges=(*edges, Edge(position, position + 1)))


def check_taken(plan: Plan) -> None:
    """PlanError where an operator rejects rows that nobody takes: nothing may be lost."""
    taken = {operator.rejections_of for operator in plan.operators}
    for operator in plan.operators:
        if operator.rejects and operator.name not in taken:
            raise PlanError(
                f"{operator.name}: nobody takes its second output: run several outputs, "
                f"p.run(data, outputs={{'rows': p, 'others': p.side_output({operator.name!r})}}), or unite "
                "it with another; where such rows may be lost, say on_error='skip' or late='drop'"
            )

"""Checks and changes of plans that shed."""

from __future__ import annotations

from typing import Any

from ordstream.errors import PlanError, shown
from ordstream.ground.choices import is_one_of
from ordstream.plan.plan import Plan


def sheds(plan: Plan) -> list[Any]:
    """The shed operators of a plan, in order."""
    return [operator for operator in plan.operators if operator.sheds]


def check_protected(plan: Plan) -> None:
    """PlanError where a shed operator has nothing to protect."""
    if plan.operators and plan.operators[-1].sheds:
        raise PlanError(
            f"{plan.operators[-1].name}: no operator follows; put .shed(...) in front of the one to protect"
        )


def check_no_shed(plan: Plan, where: str) -> None:
    """PlanError for a plan that sheds: its log counts the serials of one source, and its decisions are
    those of one node.
    """
    if found := sheds(plan):
        why = "its log counts the serials of one source"
        raise PlanError(
            f"{found[0].name}: a pipeline that sheds can't be combined with {where}: {why}; run in one node"
        )


def check_repeatable(plan: Plan, log: Any) -> None:
    """PlanError unless a task that runs again sheds the same tuples: every shed operator is frozen, or
    there is a log.
    """
    live = [operator.name for operator in sheds(plan) if operator.frozen is None]
    if live and log is None:
        raise PlanError(
            f"{live[0]}: live shedding decides by clocks, and a Spark task that runs again would shed "
            "other tuples. Take the cost model of "
            "a live run in one node (`result.shed.models`) and give .shed(model=..., "
            "frozen=od.Frozen(rate=...)), or give a shed_log"
        )


def only_shed(plan: Plan, name: str | None = None) -> Plan:
    """The plan through one shed operator (default: the last), without any operator behind it.

    Raises
    ------
    PlanError
        There is no such shed operator.
    """
    found = [
        k
        for k, operator in enumerate(plan.operators)
        if operator.sheds and (name is None or is_one_of(name, (operator.name,)))
    ]
    if not found:
        raise PlanError(
            "the pipeline does not shed" if name is None else f"there is no shed operator {shown(name)}"
        )
    return plan.part(0, found[-1] + 1)


def set_aside(plan: Plan, name: str | None) -> Plan:
    """The plan with a side output at the shed operator of that name and at no other."""
    changed = [o.changed(side_output=o.name == name) if o.sheds else o for o in plan.operators]
    return plan.replaced(changed)

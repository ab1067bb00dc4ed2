"""Checks and changes of plans that shed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ordstream.errors import PlanError, shown
from ordstream.ground.choices import is_one_of
from ordstream.operators.shed import checked_log
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


def check_log(plan: Plan, log: Any) -> None:
    """PlanError for a log that is none (`ordstream.operators.shed.checked_log`), or has tuples of an
    operator that does not shed here: its rows would be passed over in silence. `log`: None is no log.
    """
    if log is None:
        return
    there = [operator.name for operator in sheds(plan)]
    other = [name for name in pc.unique(checked_log(log)["operator"]).to_pylist() if name not in there]
    if not other:
        return
    named = ", ".join(shown(name) for name in other[:5]) + (", ..." if len(other) > 5 else "")
    if not there:
        raise PlanError(
            f"shed_log: it has tuples that {named} shed, and this pipeline has no .shed(...): leave "
            "shed_log out, or give the pipeline that the log is of"
        )
    raise PlanError(
        f"shed_log: it has tuples that {named} shed, but the pipeline's shed operators are "
        f"{', '.join(map(repr, there))}. Give a log of this pipeline, or its operator the name in the log: "
        ".shed(..., name=...)"
    )


def options_of_part(plan: Plan, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for the plan through one shed operator: those of the output left out, and of a log what other
    operators shed.
    """
    kept = {name: value for name, value in options.items() if name not in ("tags", "emit")}
    if kept.get("shed_log") is not None:
        log = kept["shed_log"]
        there = pa.array([operator.name for operator in sheds(plan)], pa.large_string())
        kept["shed_log"] = log.filter(pc.is_in(checked_log(log)["operator"], value_set=there))
    return kept


def check_repeatable(plan: Plan, log: Any) -> None:
    """PlanError unless a task that runs again sheds the same tuples: every shed operator is frozen, or
    there is a log, which must fit (`check_log`).
    """
    check_log(plan, log)
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

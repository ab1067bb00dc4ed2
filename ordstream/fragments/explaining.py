"""`Pipeline.explain` for a run over processes: the cut, and what sends each row where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ordstream.balance.dkg import DKG
from ordstream.balance.posg import POSG
from ordstream.fragments import fragmenting
from ordstream.fragments.balancing import controllers_of
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import groupings_of
from ordstream.fragments.process_stream import check_apart
from ordstream.fragments.shedding import check_sheds
from ordstream.plan.plan import Plan


def explain(plan: Plan, processes: int, options: Mapping[str, Any]) -> str:
    """The fragments of a plan as text, with what sends rows to processes.

    Parameters
    ----------
    plan : Plan
    processes : int
    options : mapping
        `grouping`, `grouping_key`, `balance` and `workers`, as of a run.

    Raises
    ------
    PlanError, SchemaError
        As a run with these options raises them.
    """
    fragments = fragmenting.fragments_of(plan, may_shed=True)
    spread = spread_of(options, fragments, processes)
    return fragmenting.explain(
        plan, processes, how=", processes of this machine", fragments=fragments, spread=spread
    )


def spread_of(options: Mapping[str, Any], fragments: Sequence[Fragment], processes: int) -> dict[int, str]:
    """What `explain` says of how rows go to processes, by number of the fragment from 1."""
    chosen, balance = groupings_of(options, fragments, processes), options.get("balance")
    moving = controllers_of(balance, tuple(fragments), processes) if balance is not None else {}
    check_apart(moving, chosen)
    check_sheds(fragments, {}, chosen, keeps_state=balance is not None)
    found = {}
    if fragments[0].operators:
        found[1] = "in blocks, each to the one with the fewest bytes to do"
    if not chosen and not moving and processes > 1 and fragments[1:] and not fragments[0].operators:
        columns = ", ".join(fragments[1].source.names[index] for index in fragments[1].key or ())
        found[2] = f"by hash of {columns}, of a large table by a map of it where that spreads rows better"
    for k, one in chosen.items():
        columns = ", ".join(fragments[k].source.names[index] for index in one.key)
        found[k + 1] = _described(one.grouping, columns)
    for k, controller in moving.items():
        columns = ", ".join(fragments[k].source.names[index] for index in fragments[k].key or ())
        pays = "" if controller.payback is None else ", where that pays"
        found[k + 1] = (
            f"by a ring and a routing table of {columns}, which changes while rows come (Mixed){pays}"
        )
    return found


def _described(grouping: Any, columns: str) -> str:
    if isinstance(grouping, POSG):
        return f"by POSG, from what tuples of equal {columns} took"
    if isinstance(grouping, DKG):
        return f"by a map of {columns} that DKG learns while rows come"
    if isinstance(grouping, str):
        return {"blocks": "block by block in turn", "round_robin": "row by row in turn"}[grouping]
    return f"by the {type(grouping).__name__} given, of {columns}"

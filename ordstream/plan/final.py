"""The end-of-stream answer of a plan: the same chain, emitting only what is true when the stream has ended.

A pipeline as written emits every update. Where only the answer at the end matters, its last operator need
not emit updates, and what feeds it may be combined before it arrives. Nothing here changes a value:
`final(plan)` is a plan like any other, and its rows are those that the plan as written has to say at the
end.
"""

from __future__ import annotations

from collections.abc import Collection

from ordstream.errors import PlanError
from ordstream.plan.plan import Plan
from ordstream.plan.rewrites import AT_END, rewritten


def final(plan: Plan, without: Collection[str] = ()) -> Plan:
    """The plan whose whole output is the answer at the end of the stream.

    The last operator emits at the end only: a count its last counts by ascending key, a top-k its k rows. A
    count per key directly in front of a top-k that ranks by it hands over, from each bucket, only the k best
    (`ordstream.plan.rewrites.best_of_each_bucket`).

    Parameters
    ----------
    plan : Plan
    without : collection of str
        Rewrites that are switched off.

    Raises
    ------
    PlanError
        The last operator has no answer at the end: it is none of those with `emit="final"`, or counts per
        window, whose earlier windows are gone by then.
    """
    if not plan.operators:
        raise PlanError("emit='final': a pipeline without operators has no answer at the end of the stream")
    *front, last = plan.operators
    return rewritten(plan.replaced([*front, last.final()]), without, AT_END)

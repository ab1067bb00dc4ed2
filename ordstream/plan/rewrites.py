"""What two neighbours in a plan allow: named rewrites, each of which leaves the output as it is.

A rewrite asks operators only what `ordstream.operators.operator.Operator` has; it knows none of them by
name. Each can be switched off by name (`without`), which the tests do to show that the output is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ordstream.plan.columns import needed_outputs
from ordstream.plan.plan import SOURCE, Plan


def growing(plan: Plan) -> Plan:
    """Tell an operator which column of its input never falls: a top-k by counts need not keep the rows
    below its k best.
    """
    operators = list(plan.operators)
    for edge in plan.edges:
        found = operators[edge.producer].grows() if edge.producer != SOURCE else None
        if found is not None:
            operators[edge.consumer] = operators[edge.consumer].given_growing(found)
    return plan.replaced(operators)


def needed_columns(plan: Plan) -> Plan:
    """Tell an operator which of its output columns somebody needs: others need not be made."""
    needed = needed_outputs(plan)
    return plan.replaced(
        [operator.given_needed(*needed[position]) for position, operator in enumerate(plan.operators)]
    )


def dropped_rows(plan: Plan) -> Plan:
    """Tell an operator which filter stands directly behind it: rows that it drops need not be made.

    The filter must not be able to fail (`Operator.null_tests`), so nobody sees the difference.
    """
    operators = list(plan.operators)
    for position, operator in enumerate(operators):
        behind = plan.only_consumer(position)
        if behind is not None:
            operators[position] = operator.given_dropped(behind)
    return plan.replaced(operators)


def best_of_each_bucket(plan: Plan) -> Plan:
    """Let counts directly in front of a last operator that needs only the best rows hand over, from each
    bucket, only these.

    The k best of all are among the k best of each bucket. For a plan whose answer at the end is all that is
    asked for.
    """
    if len(plan.operators) < 2:
        return plan
    *front, counted, last = plan.operators
    if plan.only_consumer(len(front)) is not last or len(plan.inputs(len(front) + 1)) > 1:
        return plan
    wanted = last.best_wanted()
    kept = None if wanted is None else counted.keeping_best(*wanted)
    return plan if kept is None else plan.replaced([*front, kept, last])


#: Of every run, in this order.
ALWAYS: dict[str, Callable[[Plan], Plan]] = {
    "growing": growing,
    "needed_columns": needed_columns,
    "dropped_rows": dropped_rows,
}
#: Of a run with emit="final", in front of the others.
AT_END: dict[str, Callable[[Plan], Plan]] = {"best_of_each_bucket": best_of_each_bucket}

#: Rewrites after which an operator's state depends on what stands beside it: not where state leaves a run.
OF_NEIGHBOURS = ("growing", "needed_columns")

#: The names of all rewrites.
REWRITES = (*AT_END, *ALWAYS)


def rewritten(
    plan: Plan, without: Collection[str] = (), table: dict[str, Callable[[Plan], Plan]] = ALWAYS
) -> Plan:
    """The plan after the rewrites of a table but those named in `without`."""
    for name, rewrite in table.items():
        if name not in without:
            plan = rewrite(plan)
    return plan

"""Whether a pipeline can be snapshotted, and whether a stored state fits it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pyarrow as pa

from ordstream.errors import CheckpointError, PlanError
from ordstream.operators.operator import Operator
from ordstream.plan.plan import Plan
from ordstream.snapshots.snapshot import MemoryRows, Snapshot, StateRows

#: State rows as they were stored -> as the operator takes them in.
Adapt = Callable[[pa.RecordBatch], pa.RecordBatch]


def check_can_snapshot(plan: Plan) -> None:
    """See that every state of a pipeline can be written down, when a checkpoint is opened.

    Raises
    ------
    PlanError
        Names every operator whose state can't be, and why.
    """
    reasons = []
    for operator in plan.operators:
        try:
            if not operator.can_snapshot:
                raise PlanError(
                    f"operator {operator.name!r} ({operator.op}): its state is not declared; declare its "
                    "fields, or give it a codec (od.codec)"
                )
            operator.state_schema()
        except PlanError as error:
            reasons.append(str(error))
    if reasons:
        raise PlanError("this pipeline can't be snapshotted:\n  " + "\n  ".join(reasons))


def fit(plan: Plan, snapshot: Snapshot) -> dict[str, tuple[StateRows, Adapt]]:
    """Match stored states with a pipeline's operators, by name.

    A stateful operator without a stored state is new: it begins empty, and `begins_empty` lists it. Where
    its name and that of an operator that would go on are only positions, and the stored state fits both,
    nobody knows which of the two is new.

    Returns
    -------
    dict
        Operator name -> its state as it was stored, and what makes the operator's rows of it.

    Raises
    ------
    CheckpointError
        A state is stored that no operator of the pipeline has, or one that does not fit, or one that fits
        a new operator as well: all of them are named, with what differs.
    PlanError
        The state of an operator can't be written down.
    """
    stateful = _stateful(plan)
    fitting: dict[str, tuple[StateRows, Adapt]] = {}
    reasons = []
    for name, rows in snapshot.states.items():
        if name not in stateful:
            reasons.append(_lost(name, rows, stateful, snapshot))
            continue
        try:
            fitting[name] = (rows, _adapting(stateful[name], rows))
        except CheckpointError as error:
            reasons.append(str(error))
    reasons += _either(stateful, snapshot)
    if reasons:
        raise CheckpointError(
            f"the snapshot behind serial {snapshot.serial} does not fit this pipeline:\n  "
            + "\n  ".join(reasons)
        )
    return fitting


def check_clock(clock: str, snapshot: Snapshot) -> None:
    """See that the clock goes on from its own time.

    Parameters
    ----------
    clock : str
        Of the run (`ordstream.plan.clock.clock_said`).
    snapshot : Snapshot

    Raises
    ------
    CheckpointError
        The snapshot has the time of another column.
    """
    if snapshot.latest_time is not None and snapshot.clock and clock and clock != snapshot.clock:
        raise CheckpointError(
            f"the snapshot behind serial {snapshot.serial} does not fit this run: its clock is the column "
            f"{snapshot.clock}, and the run's is {clock}. Times of one mean nothing to the other: let the "
            "clock have the column that it had (punctuate=, or the time of windows), or begin anew with "
            "another folder"
        )


def _adapting(operator: Operator, rows: StateRows) -> Adapt:
    """What makes the operator's rows of stored ones. A node without rows keeps its file, so files of one
    state may be of several runs: each batch is told by its columns.
    """
    # Every operator has `adapt_state`; what fits is the operator's own business.
    found: list[tuple[pa.Schema, Adapt]] = [
        (schema, cast(Any, operator).adapt_state(identity, schema)) for identity, schema in rows.kinds
    ]
    if len(found) == 1:
        return found[0][1]
    return lambda batch: next(adapt for schema, adapt in found if schema.equals(batch.schema))(batch)


def complete(operators: Iterable[Operator], states: Mapping[str, StateRows]) -> dict[str, StateRows]:
    """States of one node, with no rows for those of its operators to which no row came there: they are not
    new, wherever the node's part of the state is told from none.
    """
    found = dict(states)
    for one in operators:
        schema = None if one.name in found else one.state_schema()
        if schema is not None:
            found[one.name] = MemoryRows(one.state_identity(), schema, (), len(one.key), one.state_order())
    return found


def begins_empty(plan: Plan, snapshot: Snapshot) -> list[str]:
    """Names of the stateful operators of a pipeline that have no stored state, in order."""
    return [name for name in _stateful(plan) if name not in snapshot.states]


def _stateful(plan: Plan) -> dict[str, Operator]:
    return {operator.name: operator for operator in plan.operators if operator.state_schema() is not None}


def _either(stateful: dict[str, Operator], snapshot: Snapshot) -> list[str]:
    """What is to be said of stored states that fit a new operator as well as the one of their name, where
    both names say no more than a position. An operator that was put in front has shifted those behind it.
    """
    new = [one for name, one in stateful.items() if name not in snapshot.states and one.unnamed]
    told = []
    for name, rows in snapshot.states.items():
        if name in stateful and stateful[name].unnamed:
            fits = [repr(one.name) for one in new if _takes(one, rows)]
            if fits:
                whole = name.partition(":")[0]  # of an operator that is made of several
                told.append(
                    f"operator {name!r} has a stored state that fits {', '.join(fits)} as well, and these "
                    "names are only positions, which shift with what is put in front: name= says which is "
                    f"which. Call the operator that goes on {whole!r}, and a new one otherwise"
                )
    return told


def _takes(operator: Operator, rows: StateRows) -> bool:
    try:
        _adapting(operator, rows)
    except CheckpointError:
        return False
    return True


def _lost(name: str, rows: StateRows, stateful: dict[str, Operator], snapshot: Snapshot) -> str:
    op = rows.identity.get("operator", "")
    new = [
        repr(other)
        for other, operator in stateful.items()
        if other not in snapshot.states and operator.state_identity().get("operator") == op
    ]
    renamed = f" (was it renamed? {', '.join(new)} has no stored state)" if new else ""
    return (
        f"operator {name!r} ({op}) has a stored state of {rows.num_rows:,} rows, and the pipeline has no "
        f"stateful operator of that name{renamed}: give the operator this name, or begin anew with another "
        "folder"
    )

"""A plan as text: kind, name, what each operator does, its output columns, and what limits it."""

from __future__ import annotations

import pyarrow as pa

from ordstream.plan.physical import physical
from ordstream.plan.plan import Plan


def explain(plan: Plan) -> str:
    """A readable table of the operators, as a runner takes them: after the plan's rewrites."""
    taken = physical(plan, workers=1, unfinished=True)
    plan, used = taken.plan, taken.used
    lines = [f"source  {_columns(plan.source)}"]
    unused = [name for name, is_used in zip(plan.source.names, used, strict=True) if not is_used]
    if unused:
        lines.append(f"        never read: {', '.join(unused)}")
    for position, operator in enumerate(plan.operators, 1):
        lines.append(f"{position:>2}  {operator.kind}  {operator.name}: {operator.describe()}")
        lines += [f"        {note}" for note in operator.notes(plan.operators[position:])]
        lines.append(f"        -> {_columns(operator.output)}")
    return "\n".join(lines)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in schema)

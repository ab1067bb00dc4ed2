"""Several outputs of one plan: one wide stream of rows with a column that says which output a row is for.

A wide column serves outputs that have a column of its type, each at most once: outputs with the same columns
make nothing wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.operators.operator import Site
from ordstream.operators.union import From, Union
from ordstream.plan.plan import Plan

#: Name of the operator that puts the outputs into one stream.
OUTPUTS = "outputs"


@dataclass(frozen=True)
class Output:
    """One of several outputs.

    Attributes
    ----------
    name : str
    schema : pyarrow.Schema
    columns : tuple of int
        Of the wide stream.
    """

    name: str
    schema: pa.Schema
    columns: tuple[int, ...]


def plans_of(outputs: Any) -> dict[str, Plan]:
    """The plans of several outputs, by name; PlanError where these are no mapping of names to pipelines."""
    if not isinstance(outputs, Mapping) or not outputs:
        raise PlanError(f"outputs must be a mapping of names to pipelines, got {outputs!r:.80}")
    found = {}
    for name, pipeline in outputs.items():
        plan = getattr(pipeline, "plan", None)
        if not isinstance(name, str) or not name or not isinstance(plan, Plan):
            raise PlanError(
                f"outputs must be a mapping of names to pipelines; got {name!r}: {pipeline!r:.80}"
            )
        found[name] = plan
    return found


def with_outputs(plans: Mapping[str, Plan]) -> tuple[Plan, tuple[Output, ...]]:
    """The plan of several outputs. Its column 0 is the number of the output that a row is for.

    Raises
    ------
    PlanError
        They do not go on from one source.
    """
    outputs, wide = widened([(name, plan.output) for name, plan in plans.items()])
    columns: list[list[From]] = []
    for output in outputs:
        own: list[From] = ["told", *(None for _ in list(wide)[1:])]
        for column, at in enumerate(output.columns):
            own[at] = column
        columns.append(own)
    shared = {operator.name for plan in plans.values() for operator in plan.operators}
    name = next(
        n for n in (OUTPUTS, *(f"{OUTPUTS}_{i}" for i in range(2, len(shared) + 3))) if n not in shared
    )
    schemas = [output.schema for output in outputs]
    operator = Union.of(Site(schemas[0], name), schemas, wide, columns)
    return Plan.together(list(plans.values()), operator), outputs


#: Column 0 of a wide stream: which one a row is of.
STREAM = pa.field("stream", pa.int64(), nullable=False)


def shared_name(columns: Sequence[str]) -> str:
    """Of the wide column that is one of each stream."""
    name = "/".join(dict.fromkeys(columns))
    return name if name != STREAM.name else f"{name}/"


def widened(
    streams: Sequence[tuple[str, pa.Schema]], shared: Sequence[str] = ()
) -> tuple[tuple[Output, ...], pa.Schema]:
    """Where each stream's columns are in a wide one, and its schema. Column 0 tells the stream; column 1 is
    what `shared` names of each stream, of one type, if that is given.

    Columns of one name and type share a wide column, which has their name; so may those of one plain type.
    Nested ones don't: Spark knows more of one than its type (a vector of Spark ML is a struct), and of each
    wide column it knows one thing.
    """
    fields = [STREAM]
    if shared:
        fields.append(pa.field(shared_name(shared), streams[0][1].field(shared[0]).type))
    found = []
    for number, (name, schema) in enumerate(streams):
        known = {(field.name, str(field.type)): at for at, field in enumerate(fields) if at}
        same = {field.name: known.get((field.name, str(field.type))) for field in schema}
        if shared:
            same = {field: None if at == 1 else at for field, at in same.items()} | {shared[number]: 1}
        free = [at for at in range(1, len(fields)) if at not in same.values()]
        columns = []
        for field in schema:
            at = same[field.name]
            if at is None:
                same_type = (at for at in free if fields[at].type.equals(field.type))
                at = None if pa.types.is_nested(field.type) else next(same_type, None)
            if at is None:
                at = len(fields)
                own, taken = field.name, {other.name for other in fields}
                while own in taken:
                    own += f" ({name})"
                fields.append(pa.field(own, field.type))
            elif at in free:
                free.remove(at)
            columns.append(at)
        found.append(Output(name, schema, tuple(columns)))
    return tuple(found), pa.schema(fields)

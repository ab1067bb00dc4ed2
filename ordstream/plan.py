"""The stage table: what a pipeline lowers to, what the core and `run_serial` execute, what `explain` shows.

A pipeline is a chain of stages. `Stage.kind` is "SL" (stateless), "PS" (partitioned stateful: one state per
key) or "SF" (stateful: one state, under the empty key). Column indexes are indexes into `Stage.input`. `fn?`
means a callable or None. Output columns that are not said are those of the input.

===============  ======  =====================================================================================
op               kind    params
===============  ======  =====================================================================================
filter           SL      program: Program (bool); rows where it is True pass
project          SL      columns: list, one int (input column passed through) or Program per output column
pairs            SL      column: int (a list), carry: list[int]; output: carry..., left, right
explode          SL      column: int (a list), carry: list[int]; output: carry..., element
python_rows      SL      fn(row) -> tuple, list or dict: exactly one output per row
python_filter    SL      fn(row) -> bool, or None for False
python_flat      SL      fn(row) -> iterable of tuples, lists or dicts
python_batch     SL      fn, format: "numpy" | "arrow", releases_gil: bool; as many rows out as in
compiled         SL      fn(row, emit), fan_out: int (most emits per row), exact: bool (map: exactly one emit)
compiled         PS, SF  fn(row, state, emit), state: pa.Schema, fan_out: int, on_flush: fn?, on_time: fn?
python_process   PS, SF  fn(row, state, emit), state: pa.Schema | Codec | None, init: fn? (makes a key's state
                         where `state` is None; never None then), fan_out: int (a hint), on_flush: fn?,
                         on_time: fn?
sessionize       PS      time: int, timeout: int (unit of the time column), collect: list[int]; output: key
                         columns, start, end, count, one list per collected column
count            PS, SF  emit: "updates" (an output per row) | "final" (at flush); output: key columns, count
scan             PS, SF  aggregates: list of (function, int | None), function in "sum" "min" "max" "count"
                         "first" "last" "mean"; output: input columns, then one column per aggregate
top_k            SF      k: int, by: int, key: list[int], grows: bool (`by` never falls for a key)
===============  ======  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from ordstream.operators import Codec
from ordstream.program import Program


@dataclass(frozen=True, eq=False)
class Stage:
    """One operator of the chain, checked and typed.

    Attributes
    ----------
    name : str
        Unique in the pipeline; used in errors and reports.
    kind : "SL", "PS" or "SF"
    op : str
        See the table above.
    input, output : pyarrow.Schema
    key : tuple of int
        Key columns (PS), else ().
    params : dict
        See the table above.
    partition : "hash", Ranges or EqualRanges
        How keys are spread over buckets (PS). Bounds are storage values of the key's type.
    buckets : int or None
        Number of buckets asked for; None: the node chooses.
    on_error : "fail" or "skip"
    """

    name: str
    kind: Literal["SL", "PS", "SF"]
    op: str
    input: pa.Schema
    output: pa.Schema
    key: tuple[int, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    partition: Any = "hash"
    buckets: int | None = None
    on_error: Literal["fail", "skip"] = "fail"

    @property
    def is_python(self) -> bool:
        """Runs a Python function (and so takes the GIL once per chunk)."""
        return self.op.startswith("python_")

    @property
    def can_snapshot(self) -> bool:
        """Its state, if any, can be written down: needed for checkpoints, migration and cuts."""
        return self.op != "python_process" or isinstance(self.params["state"], pa.Schema | Codec)


def columns_read(stage: Stage) -> set[int]:
    """Input columns whose values the stage itself looks at (passing one through is not looking)."""
    params = stage.params
    if stage.op == "filter":
        return set(params["program"].columns())
    if stage.op == "project":
        programs = (column for column in params["columns"] if isinstance(column, Program))
        return {index for program in programs for index in program.columns()}
    if stage.op in ("pairs", "explode"):
        return {params["column"]}
    if stage.op == "count":
        return set(stage.key)
    if stage.op == "scan":
        return {*stage.key, *(index for _, index in params["aggregates"] if index is not None)}
    if stage.op == "sessionize":
        return {*stage.key, params["time"], *params["collect"]}
    if stage.op == "top_k":
        return {params["by"], *params["key"]}
    return set(range(len(stage.input)))  # functions may look at every column


def columns_passed(stage: Stage) -> dict[int, int]:
    """Output column -> input column, for output columns that are input columns unchanged."""
    params = stage.params
    if stage.op in ("filter", "python_filter", "top_k", "scan"):
        return {index: index for index in range(len(stage.input))}
    if stage.op == "project":
        return {out: column for out, column in enumerate(params["columns"]) if isinstance(column, int)}
    if stage.op in ("pairs", "explode"):
        return dict(enumerate(params["carry"]))
    if stage.op in ("count", "sessionize"):
        return dict(enumerate(stage.key))
    return {}


def used_source_columns(stages: Sequence[Stage], source: pa.Schema | None = None) -> tuple[bool, ...]:
    """For each source column: does a stage read it, or does it reach the output? Others are never touched.

    A computed column is always computed, even where nothing reads it: it could fail.

    Parameters
    ----------
    stages : sequence of Stage
    source : pyarrow.Schema, optional
        Needed only when there are no stages.
    """
    if not stages:
        return (True,) * (0 if source is None else len(source))
    needed = set(range(len(stages[-1].output)))
    for stage in reversed(stages):
        passed = columns_passed(stage)
        needed = columns_read(stage) | {passed[out] for out in needed if out in passed}
    return tuple(index in needed for index in range(len(stages[0].input)))


def explain(source: pa.Schema, stages: Sequence[Stage]) -> str:
    """A readable stage table: kind, name, what it does, output columns, and what limits it."""
    used = used_source_columns(stages, source)
    lines = [f"source  {_columns(source)}"]
    unused = [name for name, is_used in zip(source.names, used, strict=True) if not is_used]
    if unused:
        lines.append(f"        never read: {', '.join(unused)}")
    for position, stage in enumerate(stages, 1):
        lines.append(f"{position:>2}  {stage.kind}  {stage.name}: {_describe(stage)}")
        lines += [f"        {note}" for note in _notes(stage)]
        lines.append(f"        -> {_columns(stage.output)}")
    return "\n".join(lines)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in schema)


def _describe(stage: Stage) -> str:
    params, names = stage.params, stage.input.names
    key = f" by {', '.join(names[index] for index in stage.key)}" if stage.key else ""
    if stage.op == "filter":
        return f"filter {params['program'].text}"
    if stage.op == "project":
        texts = [names[c] if isinstance(c, int) else c.text for c in params["columns"]]
        pairs = zip(stage.output.names, texts, strict=True)
        return f"project {', '.join(out if out == text else f'{out} = {text}' for out, text in pairs)}"
    if stage.op in ("pairs", "explode"):
        return f"{stage.op} of {names[params['column']]}"
    if stage.op == "sessionize":
        return f"sessionize{key}, time {names[params['time']]}, timeout {params['timeout']}"
    if stage.op == "count":
        return f"count{key}, {params['emit']}"
    if stage.op == "scan":
        calls = [f"{f}({'' if index is None else names[index]})" for f, index in params["aggregates"]]
        return f"scan{key}: {', '.join(calls)}"
    if stage.op == "top_k":
        by_key = ", ".join(names[index] for index in params["key"])
        return f"top_k {params['k']} by {names[params['by']]} descending, then {by_key}"
    function = params["fn"]
    return f"{stage.op}{key} {getattr(function, '__qualname__', repr(function))}"


def _notes(stage: Stage) -> list[str]:
    notes = []
    if stage.kind == "PS":
        buckets = "chosen by the node" if stage.buckets is None else str(stage.buckets)
        notes.append(f"partition {stage.partition}, buckets {buckets}")
    if stage.is_python and not stage.params.get("releases_gil", False):
        notes.append("Python function: takes the GIL, one worker at a time")
    if not stage.can_snapshot:
        notes.append(
            "state not declared: cannot be snapshotted, migrated or cut (declare it, or use od.codec)"
        )
    if stage.op == "top_k" and not stage.params["grows"]:
        notes.append("keeps the latest row of every key")
    if stage.on_error != "fail":
        notes.append(f"on error: {stage.on_error}")
    return notes

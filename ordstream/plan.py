"""The stage table: what a pipeline lowers to, what the core and `run_serial` execute, what `explain` shows.

A pipeline is a chain of stages. `Stage.kind` is "SL" (stateless), "PS" (partitioned stateful: one state per
key) or "SF" (stateful: one state, under the empty key). Column indexes are indexes into `Stage.input`. `fn?`
means a callable or None. Output columns that are not said are those of the input.

===============  ======  =====================================================================================
op               kind    params
===============  ======  =====================================================================================
filter           SL      program: Program (bool); rows where it is True pass
project          SL      columns: list, one int (input column passed through) or Program per output column;
                         where: Program (bool) | None; only rows where it is True pass
pairs            SL      column: int (a list), carry: list[int], anchor: value | None; output: carry..., left,
                         right
explode          SL      column: int (a list), carry: list[int]; output: carry..., element
python_rows      SL      fn(row) -> tuple, list or dict: exactly one output per row
python_filter    SL      fn(row) -> bool, or None for False
python_flat      SL      fn(row) -> iterable of tuples, lists or dicts
python_batch     SL      fn, format: "numpy" | "arrow", releases_gil: bool; as many rows out as in
shed             SL      see `ordstream.shedding.shed_stage`
compiled         SL      fn(row, emit), fan_out: int (most emits per row), exact: bool (map: exactly one emit)
compiled         PS, SF  fn(row, state, emit), state: pa.Schema, fan_out: int, on_flush: fn?, on_time: fn?
python_process   PS, SF  fn(row, state, emit), state: pa.Schema | Codec | None, init: fn? (makes a key's state
                         where `state` is None; never None then), fan_out: int (a hint), on_flush: fn?,
                         on_time: fn?
sessionize       PS      time: int, timeout: int (unit of the time column), collect: list[int], aggregates: list
                         of BoundAggregation; output: key columns, start, end, count, one list per collected
                         column, one column per aggregate
count            PS, SF  emit: "updates" (an output per row) | "final" (at flush), window: int | None (length),
                         time: int | None, above: int | None; output: key columns, window (if any), count;
                         best: int (made by `final`, in front of a top-k): at flush only the keys with the
                         largest counts, ties by ascending key, so many at least per bucket
scan             PS, SF  aggregates: list of BoundAggregation (function, column: int | None, where: Program |
                         None), function in "sum" "min" "max" "count" "first" "last" "mean"; output: input
                         columns, then one column per aggregate
aggregate        PS, SF  aggregates: as scan, emit: "updates" (per row, and per key at flush) | "final"; output:
                         key columns, one column per aggregate; half: "part" or "merge" (made by `combine`)
lag              PS, SF  columns: list[int]; output: input columns, then their values in the row before
assert_ordered   PS, SF  columns: list[int]; output: input columns
pair_up          PS      column: int, carry: list[int]; output: carry..., left, right
preceding        PS      n: int, columns: list[int], carry: list[int], time: int | None, within: int | None (unit
                         of the time column), when: Program | None, where: Program | None; output: carry...,
                         columns... of a row before
top_values       PS      column: int, k: int, emit: "updates" | "final"; output: key columns, value, count, rank
regression       PS      x: int, y: int, emit: "updates" | "every_tuple" | "final"; output: key columns, x, n,
                         slope, intercept, flat_or_declining
top_k            SF      k: int, by: int, key: list[int], window: int | None, emit: "updates" | "final", rank:
                         bool (a last column), grows: bool (`by` never falls for a key)
===============  ======  =====================================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from ordstream.operators import BoundAggregation, Codec
from ordstream.program import Program, run_program


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
    def state_schema(self) -> pa.Schema | None:
        """Schema of a row of its state (`ordstream.state_schema`); None: none that can be exported."""
        from ordstream.state_schema import state_schema

        return state_schema(self)

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
        return _of_programs(params["where"], *params["columns"])
    if stage.op in ("pairs", "explode"):
        return {params["column"]}
    if stage.op == "shed":
        return set(range(len(stage.input))) if params["side_output"] else set(params["key"])
    if stage.op == "count":
        return {*stage.key, *_given(params["time"])}
    if stage.op in ("scan", "aggregate"):
        return set(stage.key) | _of_aggregates(params["aggregates"])
    if stage.op == "sessionize":
        return {*stage.key, params["time"], *params["collect"]} | _of_aggregates(params["aggregates"])
    if stage.op in ("lag", "assert_ordered"):
        return {*stage.key, *params["columns"]}
    if stage.op in ("pair_up", "top_values"):
        return {*stage.key, params["column"]}
    if stage.op == "preceding":
        conditions = _of_programs(params["when"], params["where"])
        return {*stage.key, *_given(params["time"]), *params["columns"]} | conditions
    if stage.op == "regression":
        return {*stage.key, params["x"], params["y"]}
    if stage.op == "top_k":
        return {params["by"], *params["key"], *_given(params["window"])}
    return set(range(len(stage.input)))  # functions may look at every column


def _given(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)


def _of_programs(*programs: Any) -> set[int]:
    return {index for program in programs if isinstance(program, Program) for index in program.columns()}


def _of_aggregates(aggregates: Sequence[BoundAggregation]) -> set[int]:
    columns = {a.column for a in aggregates if a.column is not None}
    return columns | _of_programs(*(a.where for a in aggregates))


def columns_passed(stage: Stage) -> dict[int, int]:
    """Output column -> input column, for output columns that are input columns unchanged."""
    params = stage.params
    if stage.op in ("filter", "python_filter", "top_k", "scan", "lag", "assert_ordered", "shed"):
        return {index: index for index in range(len(stage.input))}
    if stage.op == "project":
        return {out: column for out, column in enumerate(params["columns"]) if isinstance(column, int)}
    if stage.op in ("pairs", "explode", "pair_up", "preceding"):
        return dict(enumerate(params["carry"]))
    if stage.op in ("count", "sessionize", "aggregate", "top_values", "regression"):
        return dict(enumerate(stage.key))
    return {}


def free_name(wanted: str, stages: Sequence[Stage]) -> str:
    """The name, or with a number the first like it, that no operator of the pipeline has."""
    taken = {stage.name for stage in stages}
    names = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


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


def needed_outputs(stages: Sequence[Stage]) -> list[tuple[set[int], set[int]]]:
    """For each stage: output columns whose values a later stage reads or the output shows, and those of which at least that is needed
    which values are null.

    The second set has more than the first only directly in front of a filter that tests nothing but nulls: it cannot fail, so no
    error has to show the values.
    """
    found: list[tuple[set[int], set[int]]] = []
    values = set(range(len(stages[-1].output))) if stages else set()
    nulls = set(values)
    for stage in reversed(stages):
        found.append((values, nulls))
        passed = columns_passed(stage)
        values = {passed[out] for out in nulls if out in passed}  # which are null is told apart in front of one filter, no further
        read = columns_read(stage)
        if stage.op == "filter" and stage.params["program"].tests_nulls_only(stage.input):
            nulls = values | read
        else:
            values = values | read
            nulls = set(values)
    return found[::-1]


def passing_sessions(stage: Stage, behind: Stage | None) -> bytes | None:
    """Which sessions the filter directly behind a `sessionize` lets pass, where that is told by which aggregates are null: for each set
    of aggregates with a value (bit j of the position: the j-th) 1 or 0. None: by more than that, or there is no such filter.

    A session that the filter drops need not be made: such a filter cannot fail, so nobody sees the difference.
    """
    if stage.op != "sessionize" or behind is None or behind.op != "filter":
        return None
    program, aggregates = behind.params["program"], stage.params["aggregates"]
    before = len(stage.output) - len(aggregates)
    if len(aggregates) > 8 or not program.tests_nulls_only(behind.input) or any(index < before for index in program.columns()):
        return None

    def passes(have: int) -> bool:
        """`have`: the set. Counts and sums are never null."""
        row = [0 if a.function in ("count", "sum") or have >> j & 1 else None for j, a in enumerate(aggregates)]
        return run_program(program, [None] * before + row) is True

    return bytes(passes(have) for have in range(1 << len(aggregates)))


def explain(source: pa.Schema, stages: Sequence[Stage]) -> str:
    """A readable stage table: kind, name, what it does, output columns, and what limits it."""
    used = used_source_columns(stages, source)
    lines = [f"source  {_columns(source)}"]
    unused = [name for name, is_used in zip(source.names, used, strict=True) if not is_used]
    if unused:
        lines.append(f"        never read: {', '.join(unused)}")
    for position, stage in enumerate(stages, 1):
        lines.append(f"{position:>2}  {stage.kind}  {stage.name}: {describe(stage)}")
        lines += [f"        {note}" for note in _notes(stage)]
        if stage.op == "shed":
            from ordstream import shedding  # it imports this module

            lines += [f"        {note}" for note in shedding.notes(stages, position - 1)]
        lines.append(f"        -> {_columns(stage.output)}")
    return "\n".join(lines)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in schema)


def describe(stage: Stage) -> str:
    """One line: what an operator does, with its parameters."""
    params, names = stage.params, stage.input.names
    key = f" by {', '.join(names[index] for index in stage.key)}" if stage.key else ""
    if stage.op == "filter":
        return f"filter {params['program'].text}"
    if stage.op == "project":
        texts = [names[c] if isinstance(c, int) else c.text for c in params["columns"]]
        pairs = zip(stage.output.names, texts, strict=True)
        columns = ", ".join(out if out == text else f"{out} = {text}" for out, text in pairs)
        return f"project {columns}{_where(params['where'])}"
    if stage.op in ("pairs", "explode", "pair_up"):
        anchor = params.get("anchor")
        with_anchor = "" if anchor is None else f" with {anchor!r}"
        return f"{stage.op}{key} of {names[params['column']]}{with_anchor}"
    if stage.op == "shed":
        from ordstream import shedding  # it imports this module

        return shedding.describe(stage)
    if stage.op == "sessionize":
        calls = _calls(names, params["aggregates"])
        return f"sessionize{key}, time {names[params['time']]}, timeout {params['timeout']}{': ' * bool(calls)}{calls}"
    if stage.op == "count":
        window = "" if params["window"] is None else f", windows of {params['window']} in {names[params['time']]}"
        above = "" if params["above"] is None else f", above {params['above']}"
        best = f", the {params['best']} best of each bucket" if "best" in params else ""
        return f"count{key}{window}{above}, {params['emit']}{best}"
    if stage.op == "scan":
        return f"scan{key}: {_calls(names, params['aggregates'])}"
    if stage.op == "lag":
        return f"lag{key}: {', '.join(names[c] for c in params['columns'])}"
    if stage.op == "assert_ordered":
        return f"assert_ordered{key}: {', '.join(names[c] for c in params['columns'])}"
    if stage.op == "aggregate":
        return f"aggregate{key}: {_calls(names, params['aggregates'])}, {params['emit']}"
    if stage.op == "preceding":
        within = "" if params["within"] is None else f" within {params['within']} of {names[params['time']]}"
        when = "" if params["when"] is None else f" when {params['when'].text}"
        columns = ", ".join(names[c] for c in params["columns"])
        return f"preceding {params['n']}{key}: {columns}{within}{when}{_where(params['where'])}"
    if stage.op == "top_values":
        return f"top {params['k']} values of {names[params['column']]}{key}, {params['emit']}"
    if stage.op == "regression":
        return f"regression{key} of {names[params['y']]} on {names[params['x']]}, {params['emit']}"
    if stage.op == "top_k":
        by_key = ", ".join(names[index] for index in params["key"])
        window = "" if params["window"] is None else f" per {names[params['window']]}"
        return f"top_k {params['k']}{window} by {names[params['by']]} descending, then {by_key}, {params['emit']}"
    function = params["fn"]
    return f"{stage.op}{key} {getattr(function, '__qualname__', repr(function))}"


def _where(program: Program | None) -> str:
    return "" if program is None else f" where {program.text}"


def _calls(names: Sequence[str], aggregates: Sequence[BoundAggregation]) -> str:
    texts = [f"{a.function}({'' if a.column is None else names[a.column]}{_where(a.where)})" for a in aggregates]
    return ", ".join(texts)


def _notes(stage: Stage) -> list[str]:
    notes = []
    if stage.kind == "PS":
        buckets = "chosen by the node" if stage.buckets is None else str(stage.buckets)
        notes.append(f"partition {stage.partition}, buckets {buckets}")
    if stage.is_python and not stage.params.get("releases_gil", False):
        notes.append("Python function: takes the GIL, one worker at a time")
    if not stage.can_snapshot:
        notes.append("state not declared: cannot be snapshotted, migrated or cut (declare it, or use od.codec)")
    if stage.op == "top_k" and not stage.params["grows"]:
        notes.append("keeps the latest row of every key")
    if stage.on_error != "fail":
        notes.append(f"on error: {stage.on_error}")
    return notes

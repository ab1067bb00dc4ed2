"""Run a pipeline on the core and on `run_serial`, and compare value for value, unsorted."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from property.drawn_options import settled

from ordstream.errors import OperatorError, SourceError
from ordstream.ground.ordertags import OrderTag
from ordstream.ground.types import storage_values
from ordstream.plan import clock
from ordstream.plan.columns import used_source_columns
from ordstream.plan.plan import Plan
from ordstream.reference.run_serial import SerialResult, run_serial


def large(**more: Any) -> settings:
    """Settings of a test that draws whole cases; `more`: further ones."""
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(suppress_health_check=[*slow, HealthCheck.filter_too_much], **more)


@dataclass
class Outcome:
    """What a run of the core gave."""

    schema: pa.Schema
    rows: list[tuple[Any, ...]]
    tags: list[tuple[int, int]]
    error: OperatorError | SourceError | None
    report: Any


def exact(value: Any) -> Any:
    """A value that equals another one only where the outputs are the same: NaN is NaN, -0.0 is not 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, list | tuple):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    return (type(value).__name__, value)


def exact_rows(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[tuple[Any, ...]]:
    """The rows of batches, in order, as exact storage values."""
    table = pa.Table.from_batches(batches, schema=schema)
    columns = [
        [exact(value) for value in storage_values(column.combine_chunks())] for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def run_core(pipeline: Any, data: Any, **options: Any) -> Outcome:
    """All that a run delivers, up to its error if there is one."""
    batches: list[pa.RecordBatch] = []
    points: list[OrderTag] = []
    error = None
    clock.FORGET_ROWS = (1, 3, 4096)[options.get("seed", 0) % 3]  # what it forgets, and when, shows nowhere
    with pipeline.stream(data, tags=True, **options) as out:
        try:
            for batch in out:
                batches.append(batch)
                points.append(out.emitted_through)
        except (OperatorError, SourceError) as failure:
            error = failure
        schema = out.schema
    for batch in batches:
        batch.validate(full=True)
    table = pa.Table.from_batches(batches, schema=schema)
    for batch, point, following in itertools.zip_longest(batches, points, batches[1:]):
        assert order_tag(batch, -1) <= point, "a batch ends behind the commit point that it came with"
        assert following is None or point < order_tag(following, 0), (
            "an output up to the commit point came later"
        )
    tags = list(zip(table["_serial"].to_pylist(), table["_index"].to_pylist(), strict=True))
    rows = exact_rows([batch.select(pipeline.schema.names) for batch in batches], pipeline.schema)
    return Outcome(pa.schema(list(schema)[:-2]), rows, tags, error, out.report)


def order_tag(batch: pa.RecordBatch, row: int) -> OrderTag:
    """Of a row of a batch with tags; the row may be counted from the end."""
    return OrderTag(batch["_serial"][row].as_py(), batch["_index"][row].as_py())


def as_table(case: Any) -> pa.Table:
    """The case's tuples in one table of the source's types."""
    schema = case.pipeline.source_schema
    tables = [pa.table(batch).select(schema.names).cast(schema) for batch in case.batches]
    return pa.concat_tables(tables) if tables else schema.empty_table()


def options_over_nodes(case: Any) -> dict[str, Any]:
    """The case's options, without those that one node alone takes."""
    return settled({name: v for name, v in case.options.items() if name != "snapshot_every"})


def blocks_for(case: Any, block_rows: int) -> int:
    """Rows of a source block that this case is sent to nodes in: so many, or more where the table is long.
    What blocks of one row can show, a short table shows; each costs a message.
    """
    return max(block_rows, sum(map(len, case.batches)) // 100)


def outcome_of(
    pipeline: Any, batches: list[pa.RecordBatch], error: Any = None, report: Any = None
) -> Outcome:
    """Of batches with tags."""
    schema = pipeline.schema
    tags = [
        tag
        for batch in batches
        for tag in zip(batch["_serial"].to_pylist(), batch["_index"].to_pylist(), strict=True)
    ]
    rows = exact_rows([batch.select(schema.names) for batch in batches], schema)
    return Outcome(schema, rows, tags, error, report)


def run_reference(pipeline: Any, data: Any, punctuate: Any = None) -> SerialResult:
    """`run_serial` on the same data."""
    return run_serial(pipeline, data, punctuate=punctuate)


def agree(pipeline: Any, expected: SerialResult, found: Outcome, reports: bool = True) -> None:
    """Assert that a run of the core is what the reference says; `reports`: the report too."""
    assert found.schema.equals(expected.schema)
    wanted = exact_rows(expected.table.to_batches(), expected.schema)
    if found.rows != wanted:
        at = next((i for i, (a, b) in enumerate(zip(found.rows, wanted, strict=False)) if a != b), None)
        if at is None:
            at = min(len(found.rows), len(wanted))
        raise AssertionError(
            f"{len(found.rows)} rows instead of {len(wanted)}; the first difference is in row {at}:\n"
            f"  found    {found.rows[at : at + 3]} at {found.tags[at : at + 3]}\n"
            f"  expected {wanted[at : at + 3]} at {expected.tags[at : at + 3]}\n"
            f"  errors: found {found.error}; expected {expected.error}"
        )
    assert found.tags == expected.tags
    if found.report is not None:  # a cut pipeline that fails has no report
        assert found.report.emitted_through == expected.emitted_through
    same_error(pipeline, expected.error, found.error)
    if expected.error is None and reports:
        skipped = Counter(name for name, _ in expected.skipped)
        assert {o.name: o.skipped for o in found.report.operators if o.skipped} == dict(skipped)
        same_first_skips(expected, found)
        consistent(pipeline, found)


def same_first_skips(expected: SerialResult, found: Outcome) -> None:
    """Assert that the report shows of each operator the first thing that it skipped: serial, and type of
    the exception.
    """
    shown = {
        o.name: (o.first_skipped.serial, o.first_skipped.reason)
        for o in found.report.operators
        if o.first_skipped
    }
    text = str(found.report)
    for name, (serial, reason) in shown.items():
        wanted = [
            (at, why.partition(":")[0])
            for (of, at), why in zip(expected.skipped, expected.reasons, strict=True)
            if of == name
        ]
        assert serial == min(at for at, _ in wanted)
        assert (serial, reason.partition(":")[0]) in wanted
        assert f"in {name!r} (on_error" in text
        assert reason in text
    assert set(shown) == {name for name, _ in expected.skipped}


def same_error(
    pipeline: Any, expected: OperatorError | SourceError | None, found: OperatorError | SourceError | None
) -> None:
    """Assert that operator, serial, row and the type of the cause are the same.

    The row is compared in the columns that the operator or one behind it touches: a column that nothing
    touches is never imported, so an error cannot show it.
    """
    assert (found is None) == (expected is None), f"found {found!r}, expected {expected!r}"
    if expected is None or found is None:
        return
    if isinstance(expected, SourceError) or isinstance(found, SourceError):
        assert (type(found), str(found)) == (type(expected), str(expected))
        return
    assert (found.operator, found.serial) == (expected.operator, expected.serial), (
        f"{found}; expected {expected}"
    )
    if expected.row is None:
        assert found.row is None, found.row
    else:
        position = next(
            i for i, stage in enumerate(pipeline.plan.operators) if stage.name == expected.operator
        )
        behind = pipeline.plan.operators[position:]
        front = pipeline.plan.schema_in_front(position)
        touched = used_source_columns(Plan.line(front, behind))
        if found.row is not None or all(used_source_columns(pipeline.plan)):
            used = {name for name, is_used in zip(front.names, touched, strict=True) if is_used}
            # a join shows its own side's columns only
            names = [name for name in front.names if name in used & {*expected.row, *(found.row or {})}]
            rows = [
                {name: exact((e.row or {}).get(name, "absent")) for name in names} for e in (found, expected)
            ]
            assert rows[0] == rows[1], f"row {found.row}, expected {expected.row}"
    assert type(found.__cause__) is type(expected.__cause__), (
        f"{found.__cause__!r}; expected {expected.__cause__!r}"
    )
    if "runs backwards" in str(expected.__cause__):  # column and both values
        assert str(found.__cause__) == str(expected.__cause__)


def consistent(pipeline: Any, found: Outcome) -> None:
    """Assert that the figures of a complete run add up."""
    report = found.report
    names = [stage.name for stage in pipeline.plan.operators]
    operators = report.operators
    assert [o.name for o in operators if not o.is_split] == names
    assert operators[0].tuples_in == report.tuples
    for before, after in itertools.pairwise(operators):
        assert before.tuples_out == after.tuples_in, f"{before} -> {after}"
    assert operators[-1].tuples_out == report.rows_out == len(found.rows)
    assert report.emitted_through.serial == report.tuples
    assert report.leaked_chunks == 0


def for_several_nodes(plan: Plan) -> bool:
    """Several nodes take the plan: no operator asks for serials."""
    return not any(one.reads_serial for one in plan.operators)

"""Why a run ended, as the exception that its reader gets: which operator, which serial, the whole row,
what the user's code raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream._core.ground import arrow as core_arrow
from ordstream.errors import Cancelled, OperatorError, OrdstreamError, SourceError, told
from ordstream.ground.ordercheck import runs_backwards, stored
from ordstream.ground.types import is_string, storage_type, storage_values
from ordstream.ground.user_code import place_of
from ordstream.node.open_streams import cancelled
from ordstream.operators.operator import Operator
from ordstream.operators.punctuation import Every
from ordstream.plan.clock import clock_needed_by, with_clock_column
from ordstream.plan.plan import SOURCE, Plan

# Built-in kernels fail by code (ordstream/_core/ground/chunk.pxd, FailureCode): the exception that Python
# would raise.
CAUSES: dict[int, type[Exception]] = {
    2: ZeroDivisionError,
    1: OverflowError,
    3: OverflowError,
    4: ValueError,
    8: TypeError,
    10: ValueError,
    12: ValueError,
}
EARLIER = 10

_PLACE = "_ordstream_place"  # attribute of a function's MemoryError


def failure(
    core: Any,
    feeding: BaseException | None,
    operators: Sequence[str],
    plan: Plan,
    source: pa.Schema,
    complete: Callable[[dict[str, Any], int, int], dict[str, Any]],
    punctuate: Every | None,
) -> BaseException | None:
    """What ended a core run before its end; None after a whole one.

    Parameters
    ----------
    core : ordstream._core.flow.run.Run
    feeding : BaseException or None
        What ended the feeding thread.
    operators : sequence of str
        Names, in the core's order.
    plan : Plan
    source : pyarrow.Schema
        Of the source as the core has it.
    complete : callable
        (row, position of the operator, serial) -> the row with the columns that were never imported.
    punctuate : Every or None
        What the run was told.
    """
    found = core.failure()
    if found is None:
        if core.out_of_memory:
            return MemoryError("the node ran out of memory; lower max_bytes or the size of the state")
        if feeding is not None:
            return feeding
        return cancelled() if core.stopped else None
    index, serial, code, message, cause = found
    if index == -2:
        return MemoryError(message)
    error: BaseException
    raised: BaseException | None = cause
    if index == -3:
        batch = core.failing_row(core_arrow.core_schema(plan.output))
        error = OperatorError(operators[-1], serial, None if batch is None else shown_row(batch), message)
        error.__cause__ = OverflowError(message)
        return error
    if index < 0 and code == EARLIER:
        text = backwards(message, with_clock_column(plan, source), clock_needed_by(plan, punctuate))
        error = SourceError(f"tuple {serial} of the source: {text}")
        error.serial = serial
    elif index < 0:
        if isinstance(cause, OrdstreamError) or not isinstance(cause, Exception):
            return raised
        place = place_of(cause)
        text = f"the source failed after {serial - 1} tuples: {told(cause)}"
        error = SourceError(f"{text}\n  at: {place}" if place else text)
    else:
        name = operators[index]
        position = next((k for k, operator in enumerate(plan.operators) if operator.name == name), None)
        failed = None if position is None else plan.operators[position]
        row, kind = None, CAUSES.get(code, RuntimeError)
        if failed is not None and position is not None:
            batch = core.failing_row(core_arrow.core_schema(failed.input))
            if batch is not None:
                row = failed.shown_input(complete(shown_row(batch), position, serial))
                if cause is None and code in CAUSES and code != EARLIER and not failed.is_python:
                    message, kind = in_words(failed, batch, message, kind)
        if isinstance(cause, MemoryError):
            return with_place(cause, OperatorError(name, serial, row, told(cause), place_of(cause)))
        if cause is not None and not isinstance(cause, Exception):
            return raised
        if isinstance(cause, Cancelled) and core.stopped:
            return cancelled()
        if code == EARLIER and failed is not None:
            cause = ValueError(backwards(message, failed.input, failed.op, keyed=bool(failed.key)))
        reason = message if cause is None else told(cause)
        error = OperatorError(name, serial, row, reason, place_of(cause))
        if cause is None:
            cause = kind(message.removeprefix(f"{kind.__name__}: "))  # which shows its name itself
    error.__cause__ = cause
    return error


def with_place(error: MemoryError, of: OperatorError) -> MemoryError:
    """A function's MemoryError, which can't carry our fields, with a note that says where it was."""
    error.add_note(f"in operator {of.operator!r}, serial {of.serial}, row {of.row}")
    error.__dict__[_PLACE] = of
    return error


def place_of_memory(error: MemoryError) -> OperatorError | None:
    """What a run in one node has said of it, whose note is taken off; None: it is no function's."""
    found = error.__dict__.pop(_PLACE, None)
    if not isinstance(found, OperatorError):
        return None
    error.__notes__.pop()
    return found


def in_words(
    operator: Operator, row: pa.RecordBatch, message: str, wanted: type[Exception]
) -> tuple[str, type[Exception]]:
    """What the operator's reference says of a row that the kernel refused with a code, and the kind of its
    error: it names columns and values. Where it takes the row, this fails by the state, of which the
    operator may have more to say.
    """
    try:
        values = tuple(storage_values(column)[0] for column in row.columns)
        operator.reference().process(values)
    except Exception as error:  # of any kind: Python can't show the row, or a reference needs more than it
        # one code stands for a value that is too large and for one that is none
        known = type(error) is wanted or {type(error), wanted} == {ValueError, OverflowError}
        return (told(error), type(error)) if known else (message, wanted)
    return operator.fails_by_state(message, values) or message, wanted


def backwards(message: str, schema: pa.Schema, needs: str, *, keyed: bool = False) -> str:
    """The text for a failure with code EARLIER; `message`: the core's numbers
    (ordstream/_core/ground/earlier.pxd).
    """
    index, now, before = message.split()
    field = schema.field(int(index))
    return runs_backwards(field, stored(now, field.type), stored(before, field.type), needs, keyed=keyed)


@dataclass
class Unread:
    """Which columns of a failing row the core does not have.

    Attributes
    ----------
    plan : Plan
    source : pyarrow.Schema
    used : sequence of bool
        Source columns that an operator reads; the others are never imported.
    unmade : mapping of str to collection of int
        Output columns that an operator did not make, since none behind it reads them.
    absent : collection of int
        Source columns that the caller does not have either.
    """

    plan: Plan
    source: pa.Schema
    used: Any
    unmade: Mapping[str, Any]
    absent: Any

    def completed(
        self, row: dict[str, Any], failed: int, source_row: pa.RecordBatch | None
    ) -> dict[str, Any]:
        """The failing row with unread columns from the source row, or without them where the source does not
        give them; without columns that an operator did not make.
        """
        # per operator: its output's columns that are the source's, and those that were not made
        passed = {SOURCE: ({index: index for index in range(len(self.source))}, set[int]())}
        for place, before in enumerate(self.plan.operators[:failed]):
            passed[place] = self._behind(before, [passed[one] for one in self.plan.producers(place)])
        position, unmade = passed[self.plan.producers(failed)[0]]
        schema = self.plan.operators[failed].input
        row = {name: value for name, value in row.items() if schema.get_field_index(name) not in unmade}
        names = self.source.names
        called = schema.names
        missing = {called[out]: names[column] for out, column in position.items() if not self.used[column]}
        if missing and source_row is not None:
            values = shown_row(source_row)
            row = row | {name: values[source] for name, source in missing.items()}
        absent = [name for name, source in missing.items() if source in self.absent]
        return {name: value for name, value in row.items() if name not in absent}

    def _behind(
        self, operator: Operator, inputs: Sequence[tuple[dict[int, int], set[int]]]
    ) -> tuple[dict[int, int], set[int]]:
        """What `completed` knows of an operator's output, from what it knows of its inputs."""
        position: dict[int, int] = {}
        unread: set[int] = set()  # on some way: a union has nulls there
        unmade: set[int] = set(self.unmade.get(operator.name, ()))
        for place, (columns, absent) in enumerate(inputs):
            passed = operator.columns_passed_from(place)
            here = {out: columns[column] for out, column in passed.items() if column in columns}
            same = {out: column for out, column in here.items() if position.get(out) == column}
            position = same if place else here
            unread |= {out for out, column in here.items() if not self.used[column]}
            unmade |= {out for out, column in passed.items() if column in absent}
        return position, unmade | (unread - position.keys())


def shown_row(batch: pa.RecordBatch) -> dict[str, Any]:
    """A one-row batch as Python values. What Python has no object for is shown as it is stored, also inside
    a list, a struct or a map: a date after year 9999 or a time of an unknown zone as the text of a number,
    text that is not UTF-8 as bytes.
    """
    return {name: _shown(column[0]) for name, column in zip(batch.schema.names, batch.columns, strict=True)}


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except Exception:  # of many kinds: a time zone that is not known is a KeyError
        type_ = value.type
    if isinstance(type_, pa.BaseExtensionType):
        return _shown(value.value)
    if pat.is_struct(type_):
        return {field.name: _shown(value[place]) for place, field in enumerate(type_)}
    if pat.is_map(type_):
        return [tuple(_shown(part) for part in pair.values()) for pair in value.values]
    if pat.is_nested(type_):
        return [_shown(item) for item in value.values]
    if is_string(type_):
        return value.cast(pa.binary()).as_py()
    return str(value.cast(storage_type(type_)).as_py())

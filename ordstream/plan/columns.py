"""Which columns a plan needs: of the source, and of each operator's output."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ordstream.operators.operator import Operator
from ordstream.plan.plan import SOURCE, Plan

Columns = frozenset[int]


def needed_outputs(plan: Plan) -> dict[int, tuple[Columns, Columns]]:
    """For the source and each operator: output columns whose values somebody behind reads or the output
    shows, and those of which at least is needed which values are null.

    The second set has more than the first only directly in front of a filter that tests nothing but nulls:
    it cannot fail, so no error has to show the values.

    Returns
    -------
    dict of position to (columns, columns)
        The source is at SOURCE.
    """
    values: dict[int, set[int]] = {position: set() for position in range(SOURCE, len(plan.operators))}
    nulls: dict[int, set[int]] = {position: set() for position in range(SOURCE, len(plan.operators))}
    for position in reversed(range(SOURCE, len(plan.operators))):
        if not plan.consumers(position):  # it is output
            width = len(plan.source if position == SOURCE else plan.operators[position].output)
            values[position] |= set(range(width))
            nulls[position] |= set(range(width))
        if position == SOURCE:
            break
        for edge in plan.inputs(position):
            seen, tested = _needed_input(plan.operators[position], nulls[position], edge.place)
            values[edge.producer] |= seen
            nulls[edge.producer] |= tested
    return {position: (frozenset(values[position]), frozenset(nulls[position])) for position in values}


def _needed_input(operator: Operator, needed: set[int], place: int) -> tuple[set[int], set[int]]:
    """What an operator needs of an input, as `needed_outputs`, where `needed` is wanted of its output."""
    passed = operator.columns_passed_from(place)
    # A null test in front of this operator is forgotten here: values and nulls are told apart by the next
    # operator only.
    values = {passed[out] for out in needed if out in passed}
    read = operator.columns_read()
    if operator.null_tests() is not None:
        return values, values | read
    return values | read, values | read


def used_source_columns(plan: Plan) -> tuple[bool, ...]:
    """For each source column: does an operator read it, or does it reach the output? Others are never
    touched.

    A computed column is always computed, even where nothing reads it: it could fail.
    """
    _, needed = needed_outputs(plan)[SOURCE]
    return tuple(index in needed for index in range(len(plan.source)))


def without_nulls(source: pa.Schema, used: Sequence[bool]) -> list[int]:
    """Columns of the source in which a null is an error: declared to have none, and looked at."""
    return [place for place, field in enumerate(source) if used[place] and not field.nullable]


def passed_source_columns(plan: Plan) -> dict[int, int]:
    """Output columns that are a column of the source, unchanged: output index -> source index."""
    return _origins(plan)[len(plan.operators) - 1]  # without operators: SOURCE


def told_source_columns(plan: Plan) -> dict[int, int]:
    """As `passed_source_columns`, and columns that some ways of a union lack: their rows have null."""
    return _origins(plan, absent=True)[len(plan.operators) - 1]


def source_columns_by_way(plan: Plan) -> list[dict[int, int]]:
    """Of each input of the last operator, as `passed_source_columns`."""
    last, origins = len(plan.operators) - 1, _origins(plan, absent=True)
    ways = sorted(plan.inputs(last), key=lambda edge: edge.place)
    return [_way(plan.operators[last], edge.place, origins[edge.producer]) for edge in ways]


def unread_source_columns(plan: Plan) -> dict[int, int]:
    """Output columns that pass unread, and the source's that they are: no operator looks at their values,
    and each output row has those of the tuple with its serial. {} where an operator may do otherwise.
    """
    if not all(operator.passes_unread for operator in plan.operators):
        return {}
    last = len(plan.operators) - 1  # without operators: SOURCE
    passed, ways = _origins(plan)[last], _origins_by_way(plan)
    read: set[int] = set()
    for position, operator in enumerate(plan.operators):
        for edge in plan.inputs(position):
            taken = ways[edge.producer]
            read |= {column for index in operator.columns_read() for column in taken.get(index, ())}
    # where a column comes on some ways only, the egress can't take it from the source
    read |= {column for out, some in ways[last].items() if out not in passed for column in some}
    return {out: column for out, column in passed.items() if column not in read}


def compared_source_columns(plan: Plan) -> frozenset[int]:
    """Source columns whose values an operator itself looks at: keys, expressions, aggregations. Not those
    that are only tested for null, passed on, or given to a function of the user's.
    """
    compared: set[int] = set()
    ways = _origins_by_way(plan)
    for position, operator in enumerate(plan.operators):
        looks = set(operator.key)
        if not operator.runs_user_code and operator.null_tests() is None:
            looks |= operator.columns_read()
        for edge in plan.inputs(position):
            compared |= {column for index in looks for column in ways[edge.producer].get(index, ())}
    return frozenset(compared)


def _origins_by_way(plan: Plan) -> dict[int, dict[int, set[int]]]:
    """For the source and each operator: of each output column, the columns of the source that it is on some
    way.
    """
    ways: dict[int, dict[int, set[int]]] = {SOURCE: {index: {index} for index in range(len(plan.source))}}
    for position, operator in enumerate(plan.operators):
        own = ways[position] = {}
        for edge in plan.inputs(position):
            for out, index in operator.columns_passed_from(edge.place).items():
                own.setdefault(out, set()).update(ways[edge.producer].get(index, ()))
    return ways


def _origins(plan: Plan, absent: bool = False) -> dict[int, dict[int, int]]:
    """For the source and each operator: which of its output columns are which column of the source.
    `absent`: one may be null on some ways.
    """
    origins = {SOURCE: {index: index for index in range(len(plan.source))}}
    for position, operator in enumerate(plan.operators):
        if absent and len(plan.inputs(position)) > 1:
            origins[position] = _of_some_ways(plan, position, origins)
            continue
        from_all = [origins[producer] for producer in plan.producers(position)]
        origins[position] = {
            out: from_all[0][column]
            for out, column in operator.columns_passed().items()
            if column in from_all[0] and all(one.get(column) == from_all[0][column] for one in from_all)
        }
    return origins


def _of_some_ways(plan: Plan, position: int, origins: dict[int, dict[int, int]]) -> dict[int, int]:
    """What every way has that does not lack it."""
    operator, edges = plan.operators[position], plan.inputs(position)
    ways = [(edge.place, _way(operator, edge.place, origins[edge.producer])) for edge in edges]
    own: dict[int, int] = {}
    for out in range(len(operator.output)):
        found = {way.get(out) for place, way in ways if out not in operator.columns_absent_from(place)}
        (column,) = found if len(found) == 1 else (None,)
        if column is not None:
            own[out] = column
    return own


def _way(operator: Operator, place: int, taken: dict[int, int]) -> dict[int, int]:
    """Which output columns are which column of the source, in rows that one input makes."""
    passed = operator.columns_passed_from(place)
    return {out: taken[column] for out, column in passed.items() if column in taken}

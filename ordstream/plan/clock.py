"""The clocks of a run: what moves them, and how often they show.

Operators that close windows want time punctuations at the multiples of a length. There is one clock that the
source moves, so that its marks are at the multiples of the greatest common divisor of all lengths; and one
behind each `reorder`, for the operators behind it. Each operator looks at its own multiples only: what it
emits does not depend on which other windows there are.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.ground.ordercheck import PUNCTUATE
from ordstream.operators.clocks import ComputedClock, ReorderedClock, clock_name
from ordstream.operators.operator import Operator
from ordstream.operators.punctuation import Every
from ordstream.plan.outputs import STREAM
from ordstream.plan.plan import Plan

#: Tuples of the source from one mark to the next, where no operator emits at it: a mark cuts a chunk and
#: visits all buckets, which costs more than short windows do.
FORGET_ROWS = 4096

#: Whose marks an operator looks at, where it is no position of an operator that makes them: those of the
#: source, none, or those of the last `reorder` in front, which is in another node.
SOURCE_MARKS = -1
NO_MARKS = -2
REORDERED_MARKS = -3


def clock_of(plan: Plan, punctuate: Every | None) -> tuple[int | ComputedClock, int] | None:
    """The clock that the source moves, a column of it or what is computed of some, and the period of its
    time punctuations; None: there are none.

    Parameters
    ----------
    plan : Plan
    punctuate : Every or None
        What the run was told.

    Raises
    ------
    PlanError
        The run was told another column than that of the windows, or windows of several branches want
        several.
    SchemaError
        As `Every.bind`.
    """
    given = None if punctuate is None else punctuate.bind(plan.source)
    wanted = _wanted(with_clocks(plan), yielding=given is None)
    names = plan.source.names
    if given is not None and wanted and given[0] != wanted[0][0]:
        raise PlanError(
            f"punctuate= names the column {names[given[0]]!r}, but the clock of the windows is "
            f"{clock_name(wanted[0][0], plan.source)!r}: there is one clock; leave punctuate out"
        )
    if any(clock != wanted[0][0] for clock, _ in wanted):
        shown = sorted({clock_name(clock, plan.source) for clock, _ in wanted})
        raise PlanError(
            f"windows of several branches take their time from the columns {', '.join(shown)}: there is one "
            "clock. What a function made is none: its windows close at their key's next row"
        )
    told = [*wanted, *([] if given is None else [given])]
    return (told[0][0], math.gcd(*(period for _, period in told))) if told else None


def rows_between_marks(plan: Plan, punctuate: Every | None) -> int:
    """How many tuples of the source are between two marks of its clock at least; 0: as few as there are.

    An operator with a state of another kind may give rows late that still have the clock's column (`top_k`,
    final counts): what stands behind it, and has forgotten by then or not, would show when marks came.
    """
    operators = [in_run(operator, punctuate) for operator in with_clocks(plan).operators]
    states = [one for one in operators if one.stateful or one.clock_wanted() is not None]
    forgets = all(one.clock_wanted() is not None and one.only_forgets() for one in states)
    return FORGET_ROWS if punctuate is None and forgets else 0


def _wanted(plan: Plan, yielding: bool) -> list[tuple[int | ComputedClock, int]]:
    """(clock, period) of all operators that want a clock that the source moves; of those that yield it only
    where `yielding`.
    """
    operators = [one for one in plan.operators if yielding or not one.yields_clock]
    found = [one for operator in operators if (one := operator.clock_wanted()) is not None]
    return [(clock, period) for clock, period in found if not isinstance(clock, ReorderedClock)]


def clock_said(plan: Plan, punctuate: Every | None) -> str:
    """The column that moves the clock, with its type, as a snapshot says it; "": there is none.

    Raises
    ------
    PlanError, SchemaError
        As `clock_of`.
    """
    found = clock_of(plan, punctuate)
    if found is None:
        return ""
    clock, _ = found
    field = clock.field if isinstance(clock, ComputedClock) else plan.source.field(clock)
    return f"{field.name!r} ({field.type})"


def clock_columns(clock: tuple[int | ComputedClock, int] | None) -> tuple[int, ...]:
    """The columns of the source that a clock is made of."""
    if clock is None:
        return ()
    return (clock[0],) if isinstance(clock[0], int) else clock[0].columns


def with_clock_column(plan: Plan, source: pa.Schema) -> pa.Schema:
    """A schema of the source, and behind it the clock if that is computed."""
    computed = next(
        (clock for clock, _ in _wanted(with_clocks(plan), True) if isinstance(clock, ComputedClock)), None
    )
    return source if computed is None else source.append(computed.field)


def reordered_elsewhere(plan: Plan) -> dict[str, int]:
    """Of each `reorder` that is not in the plan: the period of the marks that operators of the plan want of
    its clock.
    """
    names = {operator.name for operator in plan.operators}
    periods: dict[str, int] = {}
    for operator in plan.operators:
        one = operator.clock_wanted()
        if one is not None and isinstance(one[0], ReorderedClock) and one[0].operator not in names:
            periods[one[0].operator] = math.gcd(periods.get(one[0].operator, 0), one[1])
    return periods


def with_clocks(plan: Plan) -> Plan:
    """The plan whose operators know of the clocks of one run: those that move one make the marks that are
    wanted of it, and where several want different clocks of the source, those that yield theirs go without,
    then those whose clock is computed.
    """
    wanted = [clock for clock, _ in _wanted(plan, yielding=False) or _wanted(plan, yielding=True)]
    chosen = next((clock for clock in wanted if isinstance(clock, int)), wanted[0] if wanted else None)
    operators = [_with_clock(operator, chosen) for operator in plan.operators]
    periods: dict[str, list[int]] = {}
    for operator in operators:
        one = operator.clock_wanted()
        if one is not None and isinstance(one[0], ReorderedClock):
            periods.setdefault(one[0].operator, []).append(one[1])
    for position, operator in enumerate(operators):
        if operator.clock_made() is not None:
            every = periods.get(operator.name)
            operators[position] = operator.with_marks(None if every is None else math.gcd(*every))
    same = all(one is other for one, other in zip(operators, plan.operators, strict=True))
    return plan if same else replace(plan, operators=tuple(operators))


def _with_clock(operator: Operator, chosen: int | ComputedClock | None) -> Operator:
    one = operator.clock_wanted()
    if one is None or isinstance(one[0], ReorderedClock) or one[0] == chosen:
        return operator
    goes_without = operator.yields_clock or isinstance(one[0], ComputedClock)
    return operator.with_clock(None) if goes_without else operator


def in_run(operator: Operator, punctuate: Every | None) -> Operator:
    """The operator as one run has it: time punctuations that the run was told to make replace those that it
    wants of the source's clock, if it yields that.
    """
    one = operator.clock_wanted() if operator.yields_clock and punctuate is not None else None
    return operator if one is None or isinstance(one[0], ReorderedClock) else operator.with_clock(None)


def clock_needed_by(plan: Plan, punctuate: Every | None) -> str:
    """Who needs the clock, for the error where the source runs backwards."""
    operators = [in_run(operator, punctuate) for operator in with_clocks(plan).operators]
    windows = [
        operator.name
        for operator in operators
        if (one := operator.clock_wanted()) is not None and not isinstance(one[0], ReorderedClock)
    ]
    several = " over several sources" if merges(plan) else ""
    return f"the clock of {', '.join(map(repr, windows))}{several}" if windows else PUNCTUATE


def merges(plan: Plan) -> bool:
    """Whether its source is several that are merged (`ordstream.plan.sources.with_one_source`)."""
    first = plan.operators[:1]
    return any(one.ports > 1 for one in first) and plan.source.field(0).equals(STREAM)


def marks_of(plan: Plan, position: int, punctuate: Every | None) -> int:
    """Whose time punctuations reach an operator: SOURCE_MARKS, NO_MARKS, REORDERED_MARKS, or the position of
    the operator that makes them.
    """
    operator = plan.operators[position]
    one = operator.clock_wanted()
    if one is not None and isinstance(one[0], ReorderedClock):
        places = {other.name: place for place, other in enumerate(plan.operators)}
        return places.get(one[0].operator, REORDERED_MARKS)
    return SOURCE_MARKS if takes_marks(operator, punctuate) else NO_MARKS


def takes_marks(operator: Operator, punctuate: Every | None) -> bool:
    """Whether time punctuations of the source reach an operator. Those of a clock are for the windows that
    want it: a window changes nothing for the operators beside it, whose times may be in another column.
    Those that a run was told to make are for all others.
    """
    one = operator.clock_wanted()
    if one is not None and isinstance(one[0], ReorderedClock):
        return False
    return punctuate is not None or one is not None

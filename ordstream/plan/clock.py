"""The clock of a run: which column of the source moves it, and how often it shows.

Operators that close windows want time punctuations at the multiples of a length. There is one clock, so that
its marks are at the multiples of the greatest common divisor of all lengths. Each operator looks at its own
multiples only: what it emits does not depend on which other windows there are.
"""

from __future__ import annotations

import math

from ordstream.errors import PlanError
from ordstream.ground.ordercheck import PUNCTUATE
from ordstream.operators.operator import Operator
from ordstream.operators.punctuation import Every
from ordstream.plan.plan import Plan


def clock_of(plan: Plan, punctuate: Every | None) -> tuple[int, int] | None:
    """Column of the source and period of the time punctuations of a run; None: there are none.

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
    wanted = [one for operator in plan.operators if (one := operator.clock_wanted()) is not None]
    if given is not None and wanted and given[0] != wanted[0][0]:
        names = plan.source.names
        raise PlanError(
            f"punctuate= names the column {names[given[0]]!r}, but the clock of the windows is "
            f"{names[wanted[0][0]]!r}: there is one clock; leave punctuate out"
        )
    if any(column != wanted[0][0] for column, _ in wanted):
        names = sorted({plan.source.names[column] for column, _ in wanted})
        raise PlanError(
            f"windows of several branches take their time from the columns {', '.join(names)}: there is one "
            "clock. A column that is computed is none: its windows close at their key's next row"
        )
    told = [*wanted, *([] if given is None else [given])]
    return (told[0][0], math.gcd(*(period for _, period in told))) if told else None


def clock_needed_by(plan: Plan) -> str:
    """Who needs the clock, for the error where the source runs backwards."""
    windows = [operator.name for operator in plan.operators if operator.clock_wanted() is not None]
    return f"the clock of {', '.join(map(repr, windows))}" if windows else PUNCTUATE


def takes_marks(operator: Operator, punctuate: Every | None) -> bool:
    """Whether time punctuations reach an operator. Those of the windows' clock are for windows: a window
    changes nothing for the operators beside it, whose times may be in another column. Those that a run was
    told to make are for all.
    """
    return punctuate is not None or operator.clock_wanted() is not None

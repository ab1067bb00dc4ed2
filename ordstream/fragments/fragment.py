"""Fragment: consecutive operators of a plan that run in the same nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa

from ordstream.fragments.call_pace import CallPace
from ordstream.operators.operator import Operator
from ordstream.operators.row_clock import RowClock
from ordstream.plan.columns import used_source_columns
from ordstream.plan.plan import SOURCE, Plan


@dataclass(frozen=True, eq=False)
class Fragment:
    """Consecutive operators that run in the same nodes.

    Attributes
    ----------
    plan : Plan
        Of these operators alone; its source are the rows that arrive.
    first : int
        Position in the whole plan of the first of them, from 0.
    key : tuple of int, or None
        Columns of the rows that choose a row's node; (): all rows in one node; None: the rows of the whole
        plan's source, wherever they are.
    ordered : bool
        Rows arrive in the order of their tags. False: in any order, which changes nothing
        (`ordstream.operators.halves`).
    """

    plan: Plan
    first: int
    key: tuple[int, ...] | None
    ordered: bool = True

    @property
    def source(self) -> pa.Schema:
        """Schema of the rows that arrive."""
        return self.plan.source

    @property
    def operators(self) -> tuple[Operator, ...]:
        """Its operators, in order."""
        return self.plan.operators

    @property
    def output(self) -> pa.Schema:
        """Schema of the rows that leave."""
        return self.plan.output

    @property
    def widens(self) -> bool:
        """One arriving row may cause several: their order tags need an index."""
        return self.plan.is_graph or not all(operator.one_to_one for operator in self.operators)

    @property
    def sheds(self) -> bool:
        """It has a shed operator."""
        return any(operator.sheds for operator in self.operators)

    @property
    def only_at_end(self) -> bool:
        """All its rows are of the end of the stream, whichever way they came."""
        found = {SOURCE: False}
        for position, operator in enumerate(self.operators):
            found[position] = operator.only_at_end or all(map(found.get, self.plan.producers(position)))
        return found[len(self.operators) - 1]

    def nodes(self, nodes: int) -> int:
        """In how many of `nodes` nodes it runs."""
        return 1 if self.key == () else nodes

    def timing_rows(self, clock: RowClock) -> Fragment | None:
        """The fragment with the calls of its function timed; None: it has not just one function of the
        user's, which its first operator calls once per row.
        """
        first, *others = self.operators
        if (
            any(operator.runs_user_code for operator in others)
            or (timed := first.timing_rows(clock)) is None
        ):
            return None
        return replace(self, plan=self.plan.replaced((timed, *others)))

    def timing_calls(self) -> tuple[Fragment, list[CallPace]]:
        """The fragment with the calls of functions that get many rows timed, and what hears of them."""
        timed, paces = [], list[CallPace]()
        for operator in self.operators:
            pace = CallPace()
            made = operator.timing_calls(pace.took)
            timed.append(operator if made is None else made)
            paces += [pace] if made is not None else []
        return (replace(self, plan=self.plan.replaced(timed)) if paces else self), paces

    def with_operators(self, *operators: Operator) -> Fragment:
        """The fragment with more operators at its end."""
        return Fragment(
            Plan.line(self.source, (*self.operators, *operators)), self.first, self.key, self.ordered
        )


def used_columns(fragments: Sequence[Fragment]) -> tuple[bool, ...]:
    """For each column of the rows that the first of consecutive fragments takes: does an operator read it,
    or does it reach the output of the last one?
    """
    return used_source_columns(reduce(Plan.through, (fragment.plan for fragment in fragments)))

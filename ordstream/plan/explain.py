"""A plan as text: kind, name, what each operator does, its output columns, and what limits it.

In front of a graph's operators stands its drawing: a column per lane, where `*` is the operator and `|` are
rows that pass it by; a line of `+` shows where a branch or union moves rows between lanes.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ordstream.plan.physical import physical
from ordstream.plan.plan import Plan


def explain(plan: Plan) -> str:
    """A readable table of the operators, as a runner takes them: after the plan's rewrites."""
    taken = physical(plan, workers=1, unfinished=True)
    plan, used = taken.plan, taken.used
    drawing = Drawing(plan)
    lines = [drawing.beside(f"source  {_columns(plan.source)}")]
    unused = [name for name, is_used in zip(plan.source.names, used, strict=True) if not is_used]
    if unused:
        lines.append(drawing.beside(f"        never read: {', '.join(unused)}"))
    for position, operator in enumerate(plan.operators):
        lines += drawing.before(position)
        lines.append(drawing.at(f"{position + 1:>2}  {operator.kind}  {operator.name}: {operator.shown()}"))
        notes = operator.notes(plan.operators[position + 1 :])
        lines += [drawing.beside(f"        {note}") for note in notes]
        lines.append(drawing.beside(f"        -> {_columns(operator.output)}"))
        lines += drawing.behind(position)
    return "\n".join(lines)


class Drawing:
    """The lanes of a graph beside its operators; of a line nothing.

    Parameters
    ----------
    plan : Plan
        Laid out.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open = {0}  # lanes with rows
        self._here = 0  # the operator's
        lanes = [lane for one in plan.operators if one.takes_units for lane in one.lanes_made()]
        self._width = 2 * max([*lanes, 0]) + 3 if plan.lanes else 0

    def _line(self, text: str, marks: Iterable[int] = (), mark: str = "*") -> str:
        """The text behind the lanes."""
        if not self._width:
            return text
        signs = [" "] * self._width
        for lane in self._open:
            signs[2 * lane] = "|"
        for lane in marks:
            signs[2 * lane] = mark
        return f"{''.join(signs)}{text}".rstrip()

    def _across(self, lanes: Iterable[int]) -> list[str]:
        """A line from the first to the last of some lanes."""
        places = sorted(2 * lane for lane in lanes)
        signs = list(self._line("").ljust(self._width))
        for place in range(places[0], places[-1] + 1):
            signs[place] = "+" if place in places else "-" if signs[place] == " " else signs[place]
        return ["".join(signs).rstrip()]

    def beside(self, text: str) -> str:
        """A line beside which rows only pass."""
        return self._line(text)

    def before(self, position: int) -> list[str]:
        """What stands in front of an operator."""
        operator = self._plan.operators[position]
        if not operator.takes_units:
            self._here = self._plan.lanes[position] if self._plan.lanes else 0
            return []
        self._here = operator.lanes_made()[0] if operator.ports == 1 else operator.lanes_taken()[0]
        if operator.ports > 1 or operator.places == 1:
            return []
        across = self._across({*operator.lanes_taken(), self._here})
        self._open -= set(operator.lanes_taken())
        self._open.add(self._here)
        return across

    def at(self, text: str) -> str:
        """The operator's own line."""
        return self._line(text, [self._here])

    def behind(self, position: int) -> list[str]:
        """What stands behind an operator."""
        operator = self._plan.operators[position]
        if not operator.takes_units or operator.ports == 1:
            return []
        across = self._across({*operator.lanes_taken(), *operator.lanes_made()})
        self._open -= set(operator.lanes_taken())
        self._open |= set(operator.lanes_made())
        return across


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name}: {column.type}" for column in schema)

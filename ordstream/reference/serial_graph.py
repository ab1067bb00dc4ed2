"""What a graph means: one cause at a time goes through all of its operators before the next one.

A cause is a tuple of the source, or one step of a punctuation or flush. At a branch point the rows that it
has caused so far have *places*, in their order. A union orders the rows of its inputs by their places at the
branch point that all of its inputs have passed, then by the order of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ordstream.reference.base import Rejection, Row, SerialOperator

#: The branch point that the rows of one step of a flush have in common.
STEP = -1

Places = dict[int, int]  # branch point -> place there
Item = tuple[Places, Row]
Wire = tuple[int, int]  # producer and port
Attempt = Callable[[SerialOperator, Callable[[], list[Row]], Row | None], list[Row]]


class SerialGraph:
    """The operators of a plan that is laid out.

    Parameters
    ----------
    plan : ordstream.plan.plan.Plan
    operators : sequence of SerialOperator
        In the plan's order.
    attempt : callable
        (operator, step, row) -> rows; raises `failed` where the step fails and ends the run.
    failed : type of exception
    """

    def __init__(self, plan: Any, operators: list[SerialOperator], attempt: Attempt, failed: Any) -> None:
        self.plan, self.operators, self.attempt, self.failed = plan, operators, attempt, failed
        self.inputs = [
            [(edge.producer, edge.port) for edge in plan.inputs(position)]
            for position in range(len(operators))
        ]
        self.output: Wire = (len(operators) - 1, plan.port)
        #: (operator, place at the branch point in front of it) -> why the row was rejected
        self.rejections: dict[tuple[str, int], Rejection] = {}

    def spread(self, producer: int, rows: Iterable[Row]) -> tuple[list[Row], BaseException | None]:
        """The output that the rows of one cause, made by an operator or the source (-1), lead to; and what
        ended the run, if something did: the output is then what comes before it.
        """
        wires: dict[Wire, list[Item]] = {(producer, 0): [({STEP: i}, row) for i, row in enumerate(rows)]}
        error = None
        self.rejections = {}
        for position in range(producer + 1, len(self.operators)):
            inputs = [wires.pop(wire, []) for wire in self.inputs[position]]
            made, failure = self.through(position, inputs)
            for port, items in made.items():
                wires[position, port] = items
            if failure is not None:
                error, places = failure
                wires = {
                    wire: self.before(items, places, wire[0] == position) for wire, items in wires.items()
                }
        return [row for _, row in wires.get(self.output, [])], error

    def through(
        self, position: int, inputs: list[list[Item]]
    ) -> tuple[dict[int, list[Item]], tuple[BaseException, Places] | None]:
        """What an operator makes of its inputs, by port; the error and the places of the row that failed."""
        operator = self.plan.operators[position]
        out: dict[int, list[Item]] = {port: [] for port in range(operator.ports)}
        if operator.takes_units and operator.ports == 1:
            out[0] = self.united(position, inputs)
            return out, None
        for number, (places, row) in enumerate(inputs[0]):
            try:
                for port, item in self.of_row(position, number, places, row):
                    out[port].append(item)
            except self.failed as error:
                return out, (error, places)
        return out, None

    def of_row(self, position: int, number: int, places: Places, row: Row) -> list[tuple[int, Item]]:
        """What an operator with one input makes of its row `number`: port and row."""
        serial = self.operators[position]
        if serial.operator.takes_rejections:
            why = self.rejections.get((serial.operator.rejections_of, places[max(places)]))
            return [] if why is None else [(0, (places, serial.rejected(row, why)))]
        if serial.operator.ports == 1:
            rows = self.attempt(serial, lambda: serial.process(row), row)
            if serial.rejection is not None:
                self.rejections[serial.operator.name, places[max(places)]] = serial.rejection
                serial.rejection = None
            return [(0, (places, one)) for one in rows]
        ports = self.attempt(serial, lambda: [(port,) for port in serial.ports_of(row)], row)
        return [(port, (places | {position: number}, row)) for (port,) in ports]

    def united(self, position: int, inputs: list[list[Item]]) -> list[Item]:
        """The rows of several inputs, in order."""
        point = self.plan.operators[position].number
        found = [
            (items[0].get(point, items[0][STEP]), place, number, items[0], items[1])
            for place, one in enumerate(inputs)
            for number, items in enumerate(one)
        ]
        found.sort(key=lambda item: item[:3])
        return [(places, self.operators[position].united(place, row)) for _, place, _, places, row in found]

    def before(self, items: list[Item], failed: Places, own: bool) -> list[Item]:
        """Those rows of another stream that come before a row that failed."""
        if own:
            return items
        kept = []
        for places, row in items:
            point = max(set(places) & set(failed))  # the innermost: operators are in order
            if places[point] < failed[point]:
                kept.append((places, row))
        return kept

"""What a graph means: one cause at a time goes through all of its operators before the next one.

A cause is a tuple of the source, or one step of a punctuation or flush. At a branch point the rows that it
has caused so far have *places*, in their order. A union orders the rows of its inputs by their places at the
branch point that all of its inputs have passed, then by the order of its inputs.

Where an operator moves a clock (`reorder`), a mark among its rows cuts the cause: the rows in front of it go
through all operators first, with those beside that rows up to the one that shows the mark have caused; then
the mark makes operators emit; then comes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ordstream.reference.base import Mark, Rejection, Row, SerialOperator

#: The branch point that the rows of one step of a flush have in common.
STEP = -1

Places = dict[int, int]  # branch point -> place there
Item = tuple[Places, Row]
Wire = tuple[int, int]  # producer and port
Attempt = Callable[[SerialOperator, Callable[[], list[Row]], Row | None], list[Row]]
Wires = dict[Wire, list[Item]]


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
    emit : callable
        Takes each row of the output.
    punctuate : callable
        (time, position): a mark that the operator at the position made, for those that look at it.
    """

    def __init__(
        self,
        plan: Any,
        operators: list[SerialOperator],
        attempt: Attempt,
        failed: Any,
        emit: Callable[[Row], None],
        punctuate: Callable[[int, int], None],
    ) -> None:
        self.plan, self.operators, self.attempt, self.failed = plan, operators, attempt, failed
        self.emit, self.punctuate = emit, punctuate
        self.inputs = [
            [(edge.producer, edge.port) for edge in plan.inputs(position)]
            for position in range(len(operators))
        ]
        self.output: Wire = (len(operators) - 1, plan.port)
        #: (operator, place at the branch point in front of it) -> why the row was rejected
        self.rejections: dict[tuple[str, int], Rejection] = {}

    def spread(self, producer: int, rows: Iterable[Row]) -> None:
        """Emit what the rows of one cause, made by an operator or the source (-1), lead to. Raises what
        ended the run, if something did, behind the output that comes before it.
        """
        before, self.rejections = self.rejections, {}
        self.onward(producer + 1, {(producer, 0): [({STEP: i}, row) for i, row in enumerate(rows)]})
        self.rejections = before

    def onward(self, first: int, wires: Wires) -> None:
        """Lead rows through the operators from the one at `first` on."""
        error = None
        for position in range(first, len(self.operators)):
            inputs = [wires.pop(wire, []) for wire in self.inputs[position]]
            made, failure = self.through(position, inputs, wires)
            for port, items in made.items():
                wires[position, port] = items
            if failure is not None:
                error, places = failure
                wires = {
                    wire: self.before(items, places, wire[0] == position) for wire, items in wires.items()
                }
        for _, row in wires.get(self.output, []):
            self.emit(row)
        if error is not None:
            raise error

    def through(
        self, position: int, inputs: list[list[Item]], beside: Wires
    ) -> tuple[dict[int, list[Item]], tuple[BaseException, Places] | None]:
        """What an operator makes of its inputs, by port; the error and the places of the row that failed.
        What comes in front of a mark that it makes is gone then, from the rows beside too.
        """
        operator = self.plan.operators[position]
        out: dict[int, list[Item]] = {port: [] for port in range(operator.ports)}
        if operator.takes_units and operator.ports == 1:
            out[0] = self.united(position, inputs)
            return out, None
        for number, (places, row) in enumerate(inputs[0]):
            try:
                for port, item in self.of_row(position, number, places, row):
                    if isinstance(item[1], Mark):
                        self.cut(position, item[1].time, places, out, beside)
                    else:
                        out[port].append(item)
            except self.failed as error:
                return out, (error, places)
        return out, None

    def cut(
        self, position: int, time: int, places: Places, out: dict[int, list[Item]], beside: Wires
    ) -> None:
        """A mark that a row with these places shows: what is in front of it goes on, then the mark."""
        front: Wires = {(position, 0): out[0]}
        out[0] = []
        for wire, items in beside.items():
            front[wire] = [item for item in items if not is_behind(item[0], places)]
            beside[wire] = [item for item in items if is_behind(item[0], places)]
        self.onward(position + 1, front)
        self.punctuate(time, position)

    def of_row(self, position: int, number: int, places: Places, row: Row) -> list[tuple[int, Item]]:
        """What an operator with one input makes of its row `number`: port and row."""
        serial = self.operators[position]
        if serial.operator.takes_rejections:
            # taken once: a branch point behind a cut gives its places anew
            why = self.rejections.pop((serial.operator.rejections_of, places[max(places)]), None)
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
        keep = self.plan.operators[position].keep  # the last point that somebody behind may ask for
        return [
            (
                {at: there for at, there in places.items() if at <= keep},
                self.operators[position].united(place, row),
            )
            for _, place, _, places, row in found
        ]

    def before(self, items: list[Item], failed: Places, own: bool) -> list[Item]:
        """Those rows of another stream that come before a row that failed."""
        if own:
            return items
        kept = []
        for places, row in items:
            point = innermost(places, failed)
            if places[point] < failed[point]:
                kept.append((places, row))
        return kept


def innermost(one: Places, other: Places) -> int:
    """The last branch point that two rows have passed: operators are in order."""
    return max(set(one) & set(other))


def is_behind(one: Places, other: Places) -> bool:
    """Whether a row comes behind what another one causes, on another lane."""
    point = innermost(one, other)
    return one[point] > other[point]

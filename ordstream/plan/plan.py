"""Plan: what a pipeline lowers to, as a value: a source, operators, and the edges between them.

A plan is a line today: each operator has one input and one output. It is addressed by edges all the same, so
that a second input or output of an operator needs no other data structure.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ordstream.operators.operator import Operator

#: The producer of the source's tuples in an `Edge`.
SOURCE = -1


@dataclass(frozen=True)
class Edge:
    """Tuples go from one operator to another.

    Attributes
    ----------
    producer : int
        Position of the operator that makes them; SOURCE: they are the source's.
    consumer : int
        Position of the operator that takes them, behind the producer's.
    """

    producer: int
    consumer: int


@dataclass(frozen=True, eq=False)
class Plan:
    """A source, operators and edges. Immutable; two plans are the same only where they are one object.

    Attributes
    ----------
    source : pyarrow.Schema
    operators : tuple of Operator
        Each behind all that it takes tuples of; names are unique.
    edges : tuple of Edge
    """

    source: pa.Schema
    operators: tuple[Operator, ...] = ()
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        for edge in self.edges:
            if not SOURCE <= edge.producer < edge.consumer < len(self.operators):
                raise ValueError(
                    f"{edge} does not lead forward in a plan of {len(self.operators)} operators"
                )

    @classmethod
    def line(cls, source: pa.Schema, operators: Iterable[Operator]) -> Plan:
        """Operators one behind the other."""
        chain = tuple(operators)
        return cls(source, chain, tuple(Edge(position - 1, position) for position in range(len(chain))))

    def then(self, operator: Operator) -> Plan:
        """The plan with one more operator behind the last."""
        position = len(self.operators)
        return Plan(self.source, (*self.operators, operator), (*self.edges, Edge(position - 1, position)))

    def replaced(self, operators: Sequence[Operator]) -> Plan:
        """The same edges between other operators, as many."""
        if len(operators) != len(self.operators):
            raise ValueError(f"{len(operators)} operators in the place of {len(self.operators)}")
        return Plan(self.source, tuple(operators), self.edges)

    def part(self, first: int, stop: int) -> Plan:
        """The operators from `first` to `stop` as a plan of its own, a line."""
        return Plan.line(self.schema_in_front(first), self.operators[first:stop])

    @property
    def output(self) -> pa.Schema:
        """Schema of the output: the last operator's."""
        return self.operators[-1].output if self.operators else self.source

    def schema_in_front(self, position: int) -> pa.Schema:
        """Schema of the tuples that the operator at `position` takes; behind the last one: of the output."""
        return self.operators[position].input if position < len(self.operators) else self.output

    def producers(self, position: int) -> list[int]:
        """Where the tuples of an operator come from: positions, or SOURCE."""
        return [edge.producer for edge in self.edges if edge.consumer == position]

    def consumers(self, position: int) -> list[int]:
        """Where the tuples of an operator (or SOURCE) go; nowhere: they are output."""
        return [edge.consumer for edge in self.edges if edge.producer == position]

    def only_consumer(self, position: int) -> Operator | None:
        """The operator behind, where it is one and nobody else sees these tuples."""
        found = self.consumers(position)
        return self.operators[found[0]] if len(found) == 1 else None

    def free_name(self, wanted: str) -> str:
        """The name, or with a number the first like it, that no operator of the plan has."""
        taken = {operator.name for operator in self.operators}
        names = itertools.chain([wanted], (f"{wanted}_{number}" for number in itertools.count(2)))
        return next(name for name in names if name not in taken)

    def __repr__(self) -> str:
        return f"<Plan {' -> '.join(operator.name for operator in self.operators) or 'without operators'}>"

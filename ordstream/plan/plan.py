"""Plan: what a pipeline lowers to, as a value: a source, operators, and the edges between them.

Most plans are a line: each operator has one input and one output. A branch has several outputs (*ports*), a
union several inputs (*places*): such a plan is a graph, which `ordstream.plan.lanes` makes a line again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ordstream.errors import PlanError
from ordstream.operators.operator import Operator
from ordstream.operators.rejected import Rejected

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
    port : int
        By which of its outputs they leave the producer; of SOURCE: which source.
    place : int
        Which of its inputs they are to the consumer.
    """

    producer: int
    consumer: int
    port: int = 0
    place: int = 0


@dataclass(frozen=True)
class Source:
    """A source of a plan.

    Attributes
    ----------
    name : str or None
        None: it is the only one.
    schema : pyarrow.Schema
    """

    name: str | None
    schema: pa.Schema


@dataclass(frozen=True, eq=False)
class Plan:
    """A source, operators and edges. Immutable; two plans are the same only where they are one object.

    Plans that go on from one share its operators: that is how `together` knows what they have in common.

    Attributes
    ----------
    source : pyarrow.Schema
    operators : tuple of Operator
        Each behind all that it takes tuples of. The last one makes the output, and all others lead to it.
        Names are unique in a line.
    edges : tuple of Edge
    port : int
        By which of the last operator's outputs the output leaves; without operators: which source it is.
    name : str or None
        Of the source.
    sources : tuple of Source
        Where there are several, merged by `ordstream.plan.sources`; `source` has no meaning then.
    lanes : tuple of int
        Per operator the lane that it works on (`ordstream.plan.lanes`); (): a line, or not laid out.
    """

    source: pa.Schema
    operators: tuple[Operator, ...] = ()
    edges: tuple[Edge, ...] = ()
    port: int = 0
    name: str | None = None
    sources: tuple[Source, ...] = ()
    lanes: tuple[int, ...] = ()

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
        """The plan with one more operator behind the last. What it rejects has its own operator from here
        on, so that all plans with this one have the same.
        """
        if operator.rejects:
            operator = operator.changed(second=Rejected.by(operator))
        position = len(self.operators)
        edge = Edge(position - 1, position, self.port)
        return replace(self, operators=(*self.operators, operator), edges=(*self.edges, edge), port=0)

    def at_port(self, port: int) -> Plan:
        """The plan whose output is another of the last operator's outputs."""
        return replace(self, port=port)

    @classmethod
    def together(cls, plans: Sequence[Plan], operator: Operator) -> Plan:
        """The plan in which an operator of several inputs takes the outputs of plans, in their order.

        What they share is there once. Operators come in the order of the first plan, then those of the
        second that it has not, and so on.

        Raises
        ------
        PlanError
            They have different sources without names, or of one name.
        """
        sources: dict[str | None, Source] = {}
        for plan in plans:
            for source in plan.all_sources:
                known = sources.setdefault(source.name, source)
                if not known.schema.equals(source.schema) or (None in sources and len(sources) > 1):
                    raise PlanError(_sources_differ(known, source, operator.name))
        names = list(sources)
        operators: list[Operator] = []
        edges: list[Edge] = []
        at: dict[int, int] = {}  # of an operator, by identity: its position
        ends = []
        for plan in plans:
            port = [names.index(source.name) for source in plan.all_sources]
            position = {SOURCE: SOURCE}
            for old, one in enumerate(plan.operators):
                if id(one) not in at:
                    at[id(one)] = len(operators)
                    operators.append(one)
                    for edge in plan._by_consumer.get(old, ()):
                        way = port[edge.port] if edge.producer == SOURCE else edge.port
                        edges.append(Edge(position[edge.producer], at[id(one)], way, edge.place))
                position[old] = at[id(one)]
            ends.append(
                (position[len(plan.operators) - 1], plan.port if plan.operators else port[plan.port])
            )
        consumer = len(operators)
        edges += [Edge(end, consumer, port, place) for place, (end, port) in enumerate(ends)]
        source = sources[names[0]]
        several = tuple(sources.values()) if len(sources) > 1 else ()
        return cls(source.schema, (*operators, operator), tuple(edges), 0, names[0], several)

    @property
    def all_sources(self) -> tuple[Source, ...]:
        """The source, or the sources."""
        return self.sources or (Source(self.name, self.source),)

    @property
    def is_graph(self) -> bool:
        """Whether an operator has several inputs or outputs."""
        return any(operator.takes_units or operator.takes_rejections for operator in self.operators)

    def leading_to(self, position: int) -> Plan:
        """The plan of what an operator makes, by its first output."""
        kept = {position}
        for one in reversed(range(position + 1)):
            if one in kept:
                kept |= {producer for producer in self.producers(one) if producer != SOURCE}
        at = {SOURCE: SOURCE} | {old: new for new, old in enumerate(sorted(kept))}
        edges = [
            replace(edge, producer=at[edge.producer], consumer=at[edge.consumer])
            for edge in self.edges if edge.consumer in kept
        ]  # fmt: skip
        operators = tuple(self.operators[old] for old in sorted(kept))
        return replace(self, operators=operators, edges=tuple(edges), port=0)

    def replaced(self, operators: Sequence[Operator]) -> Plan:
        """The same edges between other operators, as many."""
        if len(operators) != len(self.operators):
            raise ValueError(f"{len(operators)} operators in the place of {len(self.operators)}")
        return replace(self, operators=tuple(operators))

    def through(self, behind: Plan) -> Plan:
        """The plan whose output is the source of another one; each is a line, or laid out."""
        shift = len(self.operators)
        edges = [
            Edge(edge.producer + shift, edge.consumer + shift,
                 self.port if edge.producer == SOURCE else edge.port, edge.place)
            for edge in behind.edges
        ]  # fmt: skip
        lanes = (
            (*(self.lanes or (0,) * shift), *(behind.lanes or (0,) * len(behind.operators)))
            if self.lanes or behind.lanes
            else ()
        )
        return replace(self, operators=(*self.operators, *behind.operators), edges=(*self.edges, *edges),
                       port=behind.port if behind.operators else self.port, lanes=lanes)  # fmt: skip

    def part(self, first: int, stop: int) -> Plan:
        """The operators from `first` to `stop` of a line as a plan of its own."""
        return Plan.line(self.schema_in_front(first), self.operators[first:stop])

    @property
    def output(self) -> pa.Schema:
        """Schema of the output: the last operator's."""
        return self.operators[-1].output if self.operators else self.source

    def schema_in_front(self, position: int) -> pa.Schema:
        """Schema of the tuples that the operator at `position` takes; behind the last one: of the output."""
        return self.operators[position].input if position < len(self.operators) else self.output

    def producers(self, position: int) -> list[int]:
        """Where the tuples of an operator come from: positions, or SOURCE; by place."""
        return [edge.producer for edge in self.inputs(position)]

    def inputs(self, position: int) -> list[Edge]:
        """The edges that lead to an operator, by place."""
        return sorted(self._by_consumer.get(position, ()), key=lambda edge: edge.place)

    def consumers(self, position: int) -> list[int]:
        """Where the tuples of an operator (or SOURCE) go; nowhere: they are output."""
        return [edge.consumer for edge in self._by_producer.get(position, ())]

    @cached_property
    def _by_consumer(self) -> dict[int, list[Edge]]:
        """The edges by where they lead to, which is asked of every operator, several times."""
        return _grouped(self.edges, lambda edge: edge.consumer)

    @cached_property
    def _by_producer(self) -> dict[int, list[Edge]]:
        """The edges by where they come from."""
        return _grouped(self.edges, lambda edge: edge.producer)

    @cached_property
    def made_of_it(self) -> dict[Any, Any]:
        """What was made of the plan, for its next run: who made it puts it here under a key of its own.
        Nothing in it may refer to this plan, which would then outlive its last reference.
        """
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """What is sent: the attributes, without what was found of them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

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


def _grouped(edges: Iterable[Edge], end: Callable[[Edge], int]) -> dict[int, list[Edge]]:
    found: dict[int, list[Edge]] = {}
    for edge in edges:
        found.setdefault(end(edge), []).append(edge)
    return found


def _sources_differ(one: Source, other: Source, where: str) -> str:
    if one.name is not None and one.name == other.name:
        return f"{where}: two sources are named {one.name!r} and have different columns"
    return (
        f"{where}: its inputs have different sources: derive them from one Pipeline, or name the sources, "
        "od.Pipeline(schema, source='clicks')"
    )

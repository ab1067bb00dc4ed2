"""All nodes of a run in this process, taking turns: what a cut means, without any parallelism."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordstream.errors import OperatorError
from ordstream.fragments.driver import Driver, combines, reads_twice, with_tags
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import groupings_of
from ordstream.fragments.learnt_map import with_learnt
from ordstream.fragments.live_node import DirectLink, LiveNode
from ordstream.fragments.moving import Shift
from ordstream.fragments.node_state import NodeState, placed
from ordstream.fragments.process_stream import balancing_of, blocks_of, check_apart, marking_of, with_routes
from ordstream.fragments.processes import prepare
from ordstream.fragments.shedding import check_sheds
from ordstream.fragments.source_blocks import SourceBlocks
from ordstream.fragments.topology import Topology
from ordstream.ground.ordertags import OrderTag
from ordstream.node.result import Result
from ordstream.node.source import is_live

if TYPE_CHECKING:
    from ordstream.fragments.balancing import Balancing, MoveFigures
    from ordstream.fragments.marking import Marking

#: A pause for worker threads, where nothing else can go on.
PAUSE_S = 0.0002


class SameProcess:
    """A run whose nodes are in this process.

    Parameters
    ----------
    seed : int, optional
        Nodes take turns in a random order, and some of them are slow; what they say is under way for some
        turns. None: in their order, and at once.

    Attributes
    ----------
    driver : Driver
        Of the run.
    nodes : list of LiveNode
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = None if seed is None else random.Random(seed)
        self.nodes: list[LiveNode] = []
        self._notes: list[tuple[int, bytes]] = []
        self._moved: deque[tuple[LiveNode, NodeState]] = deque()  # state on its way to a node
        self.driver: Driver

    def run(
        self,
        topology: Topology,
        blocks: SourceBlocks,
        schema: pa.Schema,
        tags: bool,
        marking: Marking | None = None,
        emitted_through: OrderTag | None = None,
        balancing: Balancing | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The output, batch by batch; then `driver` knows how it ended."""
        found: dict[tuple[int, int], Any] = {}
        last = topology.last_edge

        def links(edge: int, sender: int) -> list[DirectLink]:
            def to(receiver: int) -> DirectLink:
                return DirectLink(lambda: found[edge, receiver].merge, sender)

            return [to(receiver) for receiver in range(topology.receivers(edge))]

        def consumed(edge: int, receiver: int) -> Callable[[int, int], None]:
            def hear(sender: int, size: int) -> None:
                owner = self.driver if edge == topology.first else found[edge - 1, sender]
                owner.out.acknowledged(receiver, size)

            return hear

        def sends(fragment: int) -> Callable[[int, NodeState], None]:
            def send(to: int, state: NodeState) -> None:
                self._moved.append((found[fragment, to], state))
                if self._random is None:
                    self._hand_over()

            return send

        if balancing is not None:
            balancing.tell = self._tell_shift
        self._balancing = balancing
        self.driver = found[last, 0] = Driver(
            topology, blocks, links(topology.first, 0), consumed(last, 0), schema, tags, marking,
            emitted_through, balancing,
        )  # fmt: skip
        states: dict[tuple[int, int], dict[str, list[pa.RecordBatch]]] = {}
        kept = placed(topology, marking.states(), balancing) if marking is not None else ()
        for k, at, name, rows in kept:
            states.setdefault((k, at), {}).setdefault(name, []).append(rows)
        self.nodes = [
            LiveNode(
                topology, k, node, links(k + 1, node), consumed(k, node), states.get((k, node)), sends(k)
            )
            for k in range(topology.first, last)
            for node in range(topology.fragments[k].nodes(topology.processes))
        ]
        found |= {(node.fragment, node.node): node for node in self.nodes}
        try:
            yield from self._turns(marking)
        finally:
            for node in self.nodes:
                node.close()

    def _tell_shift(self, what: Shift | bytes) -> None:
        for node in self.nodes:
            if isinstance(what, bytes):
                node.abandon(what)
            else:
                node.shifts[what.number] = what

    def _turns(self, marking: Marking | None) -> Iterator[pa.RecordBatch]:
        driver, chance = self.driver, self._random
        told: set[int] = set()
        while not driver.over:
            turn: list[Any] = [*self.nodes, driver]
            if chance is not None:
                chance.shuffle(turn)
                turn = turn[: chance.randint(1, len(turn))]
            progressed = [one.step() for one in turn] + [bool(self._moved)]
            self._hand_over()
            self._tell_caller()
            for k, node in enumerate(self.nodes):
                while node.taken:
                    assert marking is not None
                    marking.told(node.taken.popleft())
                while node.said:
                    assert self._balancing is not None
                    self._balancing.heard(node.said.popleft())
                if node.outcome is not None and k not in told:
                    told.add(k)
                    driver.ended(node.outcome)
            if marking is not None:
                marking.publish()
                marking.snapshots.tick(marking)
            batch = driver.output()
            if batch is not None:
                yield batch
            elif not any(progressed) and len(turn) > len(self.nodes) and not driver.over:
                if any(node.works for node in self.nodes):
                    time.sleep(PAUSE_S)
                else:
                    raise RuntimeError("no node can go on")  # tests/models/exchange.pml: never
        if marking is not None:
            marking.publish()

    def _hand_over(self) -> None:
        """Bring state to its nodes: all of it, or some, in order, as over a socket."""
        chance, there = self._random, len(self._moved)
        for _ in range(there if chance is None else chance.randint(0, there)):
            node, state = self._moved.popleft()
            node.arrive(state.node, state)

    def _tell_caller(self) -> None:
        """Bring the nodes' messages to the caller: at once, or some of them, in any order."""
        chance = self._random
        self._notes += [(node.node, body) for node in self.nodes for body in node.feedback()]
        if chance is not None:
            chance.shuffle(self._notes)
        for _ in range(len(self._notes) if chance is None else chance.randint(0, len(self._notes))):
            self.driver.heard(*self._notes.pop())


def run_here(
    pipeline: Any,
    data: Any,
    n: int,
    options: Mapping[str, Any],
    *,
    seed: int | None = None,
    block_rows: int | None = None,
    channel_bytes: int | None = None,
    fragments: Sequence[Fragment] | None = None,
    balance: Any = None,
    interval: int | None = None,
    moves: list[MoveFigures] | None = None,
    here: SameProcess | None = None,
) -> Result:
    """Run a pipeline over n nodes in this process, and return all output.

    Parameters
    ----------
    pipeline : Pipeline
    data : Arrow data or iterable of record batches
    n : int
    options : mapping
        As of `ordstream.fragments.process_stream`.
    seed : int, optional
        As of `SameProcess`.
    block_rows, channel_bytes : int, optional
        As of `ProcessStream`.
    fragments : sequence of Fragment, optional
        Where not as the pipeline is cut.
    balance : Mixed, optional
        What moves keys.
    interval : int, optional
        Tuples from one report of the nodes to the next.
    moves : list of MoveFigures, optional
        Takes those that were carried out.
    here : SameProcess, optional
        Whose nodes can be looked at afterwards.
    """
    cut, of_nodes, tags = prepare(pipeline, options, "nodes", keeps_state=True)
    balancing, tables = balancing_of(balance, cut, n, interval)
    if tables:
        of_nodes["snapshots"] = True
    groupings = groupings_of(options, cut, n)
    check_apart(tables, groupings)
    check_sheds(cut, of_nodes, groupings, keeps_state="snapshots" in of_nodes)
    chosen = tuple(fragments or cut)
    topology = Topology(chosen, n, of_nodes, channel_bytes, groupings, tables, is_live(data))
    schema = with_tags(topology.fragments[-1].output, tags)
    marking = marking_of(pipeline, options, topology, data)
    if balancing is not None:
        topology = with_routes(topology, balancing, marking)
    elif marking is None:
        topology = with_learnt(topology, data)
    whole = fragments is not None or marking is not None or bool(tables)
    early = combines(topology) if not whole and reads_twice(data) else None
    for one in (early, topology):
        if one is None:
            continue
        here = here or SameProcess(seed)
        blocks = blocks_of(pipeline.plan, one, data, marking, block_rows, lambda: None, own_thread=False)
        batches = list(
            here.run(one, blocks, schema, tags, marking, options.get("emitted_through"), balancing)
        )
        failure = here.driver.failure()
        if balancing is not None and moves is not None:
            moves.extend(balancing.figures)
        if marking is not None:
            marking.snapshots.end()
            failure = failure or marking.snapshots.error
        if failure is None:
            last = marking.snapshots.last if marking is not None else None
            return Result(batches, schema, here.driver.report(0.0), here.driver.shed(), last)
        if one is topology or not isinstance(failure, OperatorError):
            raise failure
    raise AssertionError

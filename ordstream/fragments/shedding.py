"""Shedding between processes: each node of a fragment sheds in front of its own operator, by its own waits
and costs, and what they shed is one log.

A shed operator stands in the fragment of the operator that it protects, so rows meet it in the node that
they were sent to. A row's latency counts from its arrival there. Inside a node a row's serial is its
position in the node; the log has the source's. So the output is that of `run_serial` with that log, and of
a run in one node with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.errors import PlanError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import Chosen
from ordstream.fragments.polled_node import PolledNode
from ordstream.ground.ordertags import Int64s, source_serials
from ordstream.node.shedding import ShedOutcome, ShedReport, outcome

if TYPE_CHECKING:
    from ordstream.balance.sketches import ExecutionTimes


def check_sheds(
    fragments: Sequence[Fragment],
    options: Mapping[str, Any],
    chosen: Mapping[int, Chosen],
    *,
    keeps_state: bool,
) -> None:
    """PlanError where nodes could not shed apart, or not say what they shed.

    Parameters
    ----------
    fragments : sequence of Fragment
    options : mapping
        Of every node.
    chosen : mapping of int to Chosen
        Fragment -> what chooses its rows' node.
    keeps_state : bool
        The run takes snapshots, goes on from one, or moves keys.
    """
    from ordstream.balance.posg import POSG

    for k, fragment in enumerate(fragments):
        operators: Sequence[Any] = fragment.operators
        for place, operator in enumerate(operators):
            if not operator.sheds:
                continue
            earlier = [one for before in fragments[:k] for one in before.operators]
            in_front = [*earlier, *operators[:place]]
            several = [one for one in earlier if not one.one_to_one]
            at_end = [one for one in in_front if one.stateful and (not one.one_to_one or one.emits_at_end)]
            of = chosen.get(k)
            why = ""
            if options.get("workers"):
                why = "nodes with worker threads don't know yet whose rows were shed: workers must be 0"
            elif operator.frozen is not None:
                why = "each frozen decision depends on all before, which no node sees: run in one node"
            elif several or at_end:
                why = (
                    f"{(several or at_end)[0].name}, in front of it, may make several rows of a tuple, or "
                    "some at the end, which the log could not tell apart: run in one node"
                )
            elif keeps_state:
                why = "with snapshots, or keys that move, what was shed can't be told yet: run in one node"
            elif of is not None and isinstance(of.grouping, POSG):
                why = "POSG measures each row, and so does it: take another grouping"
            if why:
                raise PlanError(f"{operator.name}: it can't shed over several processes: {why}")


class SheddingNode(PolledNode):
    """A node that sheds.

    Parameters
    ----------
    given
        As of `PolledNode`.
    live : bool
        The source gives rows when they come. Else they wait only from when the core begins with them: who is
        asked for rows does not overload.
    """

    def __init__(self, *given: Any, live: bool) -> None:
        self._overloads = live
        self._arrived_ns = 0
        self._of_source: dict[str, list[Int64s]] = {}  # operator: the source's serials of what it shed
        self._told: dict[str, int] = {}  # how many those are
        super().__init__(*given)

    def _fit(self, rows: pa.RecordBatch) -> None:
        self._arrived_ns = self._merge.arrived_ns
        super()._fit(rows)

    def _next_rows(self) -> Any:
        self._polled.next_arrived(self._arrived_ns)
        return super()._next_rows()

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        """As `PolledNode.poll`."""
        self._merge.rows_at_once = self._turn_rows()  # rows that wait long, and such that don't, stay apart
        return super().poll()

    def _forget(self, serial: int) -> None:
        if self._tags and self._tags[0].last <= serial:
            self._place_shed()
        super()._forget(serial)

    def _place_shed(self) -> None:
        """Find the source tuples of what was shed, while their tags are here."""
        for operator, _, kernel in self._polled.sheds:
            told = self._told.get(operator.name, 0)
            if kernel.logged > told:
                serials, _ = source_serials(self._tags_at(kernel.log(told)[0]))
                self._of_source.setdefault(operator.name, []).append(serials)
                self._told[operator.name] = told + len(serials)

    def shed(self) -> ShedOutcome | None:
        """As `PolledNode.shed`."""
        self._place_shed()
        found = self._stream.shed
        placed = {
            operator.name: np.concatenate([np.zeros(0, np.int64), *self._of_source.get(operator.name, [])])
            for operator, _, _ in self._polled.sheds
        }
        log = found.log.set_column(2, found.log.schema.field(2), [np.concatenate([*placed.values()])])
        rows = {
            name: table.set_column(table.num_columns - 2, "_serial", [placed[name]])
            for name, table in found.rows.items()
        }
        return ShedOutcome(log, rows, found.models)


def shed_together(found: Sequence[ShedOutcome]) -> ShedOutcome:
    """What the nodes of a run left behind as one: of each operator the log and the rows in order, and a
    model of what all learnt. `found`: fragment after fragment.
    """
    if not found:
        return outcome([])[0]
    names = list(dict.fromkeys(name for one in found for name in one.models))
    log = pa.concat_tables([one.log for one in found])
    parts = [
        log.filter(pc.equal(log["operator"], name)).sort_by(
            [("serial", "ascending"), ("index", "ascending")]
        )
        for name in names
    ]
    rows: dict[str, list[pa.Table]] = {}
    models: dict[str, ExecutionTimes] = {}
    for one in found:
        for name, table in one.rows.items():
            rows.setdefault(name, []).append(table)
        for name, model in one.models.items():
            if name in models:
                models[name].merge(model)
            else:
                models[name] = model.copy()
    tables = {name: _by_place(pa.concat_tables(several)) for name, several in rows.items()}
    return ShedOutcome(pa.concat_tables([log.slice(0, 0), *parts]), tables, models)


def _by_place(rows: pa.Table) -> pa.Table:
    """Rows by their last two columns, serial and index. A user's column may have their names."""
    places = pa.table([rows.column(rows.num_columns - 2), rows.column(rows.num_columns - 1)], ["a", "b"])
    return rows.take(pc.sort_indices(places, [("a", "ascending"), ("b", "ascending")]))


def reports_together(found: Sequence[ShedReport]) -> tuple[ShedReport, ...]:
    """One report per shed operator, of those of the nodes: counts add up, means are over all tuples."""
    order = {one.name: place for place, one in reversed([*enumerate(found)])}
    ordered = sorted(found, key=lambda one: order[one.name])
    return tuple(_as_one([*of]) for _, of in groupby(ordered, key=lambda one: one.name))


def _as_one(found: Sequence[ShedReport]) -> ShedReport:
    if len(found) == 1:
        return found[0]
    shed, tuples = sum(one.shed for one in found), sum(one.tuples for one in found)
    seconds: dict[float, int] = {}
    for one in found:
        for second, count in one.timeline:
            seconds[second] = seconds.get(second, 0) + count
    names = ("admitted", "blind", "learnt", "model_updates", "synchronised")
    return replace(
        found[0],
        tuples=tuples,
        shed=shed,
        share=shed / tuples if tuples else 0.0,
        approximate=shed > 0,
        mean_latency_ms=_mean([(one.mean_latency_ms, one.admitted) for one in found]),
        max_latency_ms=max(
            [one.max_latency_ms for one in found if one.max_latency_ms is not None], default=None
        ),
        shed_latency_ms=_mean([(one.shed_latency_ms, one.shed) for one in found]),
        first_s=min([one.first_s for one in found if one.first_s is not None], default=None),
        last_s=max([one.last_s for one in found if one.last_s is not None], default=None),
        timeline=tuple(sorted(seconds.items())),
        workers=sum(one.workers for one in found),
        **{name: sum(getattr(one, name) for one in found) for name in names},
    )


def _mean(parts: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, count) for value, count in parts if value is not None and count]
    total = sum(count for _, count in known)
    return sum(value * count for value, count in known) / total if total else None

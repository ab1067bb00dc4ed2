"""Cutting a pipeline over nodes: which operators run together, and how rows go from one group to the next.

A keyed operator needs all rows of a key in one node. So a chain is cut in front of every operator whose key is not
the one that rows are already spread by. A *fragment* is what lies between two cuts: it runs in as many nodes as there
are, each with the rows of its keys, in order; between fragments rows change nodes. Stateless operators stay with the
fragment in front of them; those at the very beginning run wherever the rows happen to be. A stateful operator without
key sees all rows, so its fragment runs in one node. What restores the order after a cut is the order tag of each row
(`ordstream.ground.ordertags`).

This module knows the plan only. `ordstream.fragments.fragment_node` runs a fragment in a node; `ordstream.fragments.processes` and
`ordstream.spark` spread the nodes over processes and executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.fragments.partial import halves
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan import stages as plan
from ordstream.plan.stages import Stage

# At most one output per input tuple: the tuple's order tag is the output's.
_ONE_TO_ONE = frozenset(
    ("filter", "project", "python_rows", "python_filter", "python_batch", "scan", "sessionize", "assert_ordered", "shed")
)


@dataclass(frozen=True, eq=False)
class Fragment:
    """Consecutive operators that run in the same nodes.

    Attributes
    ----------
    source : pyarrow.Schema
        Of the rows that arrive.
    stages : tuple of Stage
    first : int
        Position in the pipeline of the first of them, from 0.
    key : tuple of int, or None
        Columns of `source` that choose a row's node; (): all rows in one node; None: the rows of the pipeline's
        source, wherever they are.
    ordered : bool
        Rows arrive in the order of their tags. False: in any order, which changes nothing (`combined`).
    """

    source: pa.Schema
    stages: tuple[Stage, ...]
    first: int
    key: tuple[int, ...] | None
    ordered: bool = True

    @property
    def pipeline(self) -> Pipeline:
        """The fragment as a pipeline of its own."""
        return Pipeline._of(self.source, self.stages)

    @property
    def output(self) -> pa.Schema:
        """Schema of the rows that leave."""
        return self.stages[-1].output if self.stages else self.source

    @property
    def widens(self) -> bool:
        """One arriving row may cause several: their order tags need an index."""
        return not all(map(_one_to_one, self.stages))

    def nodes(self, nodes: int) -> int:
        """In how many of `nodes` nodes it runs."""
        return 1 if self.key == () else nodes


def _one_to_one(stage: Stage) -> bool:
    if stage.op in _ONE_TO_ONE:
        return True
    if stage.op == "compiled" and stage.kind == "SL":
        return bool(stage.params["exact"])
    return stage.op == "count" and stage.params.get("window") is None


def cut(pipeline: Pipeline) -> tuple[Fragment, ...]:
    """The fragments of a pipeline, in order. The first one's `key` is None: it has no keyed operator, and may be empty.

    Parameters
    ----------
    pipeline : Pipeline

    Raises
    ------
    PlanError
        It sheds, and there would be several fragments.
    """
    fragments: list[Fragment] = []
    first, key = 0, None  # of the fragment that is being put together
    spread: list[set[int]] | None = None  # per column that rows are spread by: where its value is now
    stages = pipeline.stages()
    for position, stage in enumerate(stages):
        if stage.kind != "SL" and not _stays(stage, key, spread):
            source = stages[first].input if first < position else stage.input
            fragments.append(Fragment(source, stages[first:position], first, key))
            first, key = position, stage.key
            spread = [{index} for index in stage.key]
        if spread is not None:
            passed = plan.columns_passed(stage)
            spread = [{out for out, column in passed.items() if column in places} for places in spread]
            spread = spread if all(spread) else None
    source = stages[first].input if first < len(stages) else pipeline.source_schema
    fragments.append(Fragment(source, stages[first:], first, key))
    shed = [stage.name for stage in stages if stage.op == "shed"]
    if shed and len(fragments) > 1:
        raise PlanError(f"{shed[0]}: a pipeline that sheds runs on one node; its log counts the serials of one source")
    return tuple(fragments)


def _stays(stage: Stage, key: tuple[int, ...] | None, spread: list[set[int]] | None) -> bool:
    """Whether all rows that share a state of the operator are in one node already.

    Rows spread by some of the operator's key columns are: equal keys are equal in those columns too.
    """
    if stage.kind == "SF":
        return key == ()
    return bool(key) and spread is not None and all(places & set(stage.key) for places in spread)


def halved(fragments: Sequence[Fragment]) -> tuple[Fragment, Fragment] | None:
    """The last fragment as two, where it is one operator that can be combined in each node first (`ordstream.fragments.partial`).

    Returns
    -------
    (Fragment, Fragment) or None
        One that takes the rows of one sender of the last fragment's rows and gives at most one row, and one that takes
        these and gives the last fragment's output, unless one of the two fails with an overflow where it would not.
    """
    last = fragments[-1]
    two = halves(last.stages[0]) if len(fragments) > 1 and last.key == () and len(last.stages) == 1 else None
    if two is None:
        return None
    part = Fragment(last.source, (two.part,), last.first, ())
    return part, Fragment(part.output, two.merge, last.first, (), ordered=False)


def combined(fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """The fragments with the last one's first half, where it has one, in the nodes of the fragment in front."""
    two = halved(fragments)
    if two is None:
        return tuple(fragments)
    part, merge = two
    return (*fragments[:-2], replace(fragments[-2], stages=(*fragments[-2].stages, *part.stages)), merge)


def split(fragment: Fragment) -> tuple[Fragment, ...] | None:
    """A keyed fragment so that several nodes may share the rows of a key: a part in every node, then a merge by key, then the rest.

    Returns
    -------
    tuple of Fragment or None
        None: its first operator has no declared merge (`ordstream.fragments.partial.halves`), or its key has several forms (0.0 and
        -0.0), of which the first in order would have to be shown. The first fragment's rows may go to any node; the others' go by
        their key.
    """
    two = halves(fragment.stages[0]) if fragment.key else None
    if two is None or any(pat.is_floating(fragment.source.field(index).type) for index in fragment.key or ()):
        return None
    first, stages = fragment.first, fragment.stages
    stop = next((k for k, stage in enumerate(stages) if k and stage.kind != "SL"), len(stages))
    part = Fragment(fragment.source, (two.part,), first, fragment.key)
    merge = Fragment(two.part.output, (*two.merge, *stages[1:stop]), first, two.merge[0].key, ordered=False)
    if stop == len(stages):
        return part, merge
    return part, merge, Fragment(stages[stop].input, stages[stop:], first + stop, stages[stop].key)


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for options of a run that a pipeline cut over nodes can't have.

    Time punctuations would have to be made where serials are given and copied to every node; they are not.
    """
    wrong = {
        "punctuate": "time punctuations don't cross nodes",
        "snapshot_every": "snapshots of several nodes are not taken",
        "arrivals": "an open-loop schedule is for one node",
    }
    for name, why in wrong.items():
        if options.get(name) is not None:
            raise PlanError(f"{name} can't be combined with {where}: {why}; run in one node")


def check_sheds(stages: Sequence[Stage], where: str) -> None:
    """Raise PlanError for a pipeline that sheds: its log counts the serials of one source, and its decisions are those of one node."""
    sheds = [stage.name for stage in stages if stage.op == "shed"]
    if sheds:
        why = "its log counts the serials of one source"
        raise PlanError(f"{sheds[0]}: a pipeline that sheds can't be combined with {where}: {why}; run in one node")


def uses_python(stages: Sequence[Stage]) -> bool:
    """Whether plain Python functions take the GIL for every chunk: then threads don't help, processes do."""
    return any(stage.is_python and not stage.params.get("releases_gil", False) for stage in stages)


def explain(
    pipeline: Pipeline, nodes: int, *, how: str = "", fragments: Sequence[Fragment] | None = None, spread: Mapping[int, str] | None = None
) -> str:
    """The fragments as text: where each runs and what chooses a row's node.

    Parameters
    ----------
    pipeline : Pipeline
    nodes : int
    how : str
        One line on what a node is.
    fragments : sequence of Fragment, optional
        Where not as `cut` makes them.
    spread : mapping of fragment (from 1) to text, optional
        What chooses a row's node, where not the hash of its key.
    """
    lines = [f"{nodes} nodes{how}"]
    fragments = cut(pipeline) if fragments is None else fragments
    spread = spread or {}
    early = nodes > 1 and halved(fragments) is not None
    for number, fragment in enumerate(fragments, 1):
        names = fragment.source.names
        if fragment.key is None and number in spread:
            lines.append(f"        rows to nodes {spread[number]}")
            where = f"in {nodes} nodes, by no key"
        elif fragment.key is None:
            where = "where the source's rows are, in parallel, by no key"
        elif not fragment.key:
            rows = "one row of each node" if early and number == len(fragments) else "all rows"
            lines.append(f"        cut: {rows} to one node" + ", in the order of their tags" * (rows == "all rows"))
            where = "in one node"
        else:
            columns = ", ".join(names[index] for index in fragment.key)
            by = spread.get(number, f"by hash of {columns}")
            lines.append(f"        cut: rows to nodes {by}, in the order of their tags")
            shared = fragment.stages[0].params.get("half") == "part"
            where = f"in {nodes} nodes, {'which may share the rows of a key' if shared else 'each with the rows of its keys'}"
        lines.append(f"fragment {number}, {where}")
        lines += [
            f"{position:>2}  {stage.kind}  {stage.name}: {plan.describe(stage)}"
            for position, stage in enumerate(fragment.stages, fragment.first + 1)
        ] or ["        order tags only"]
        lines += [f"        in every node: {note}" for stage in fragment.stages for note in _combined(stage)]
        if early and number == len(fragments) - 1:
            name = fragments[-1].stages[0].name
            lines.append(f"        in every node: {name} is combined first, and only one row goes on (combined early, exactly)")
    lines.append("        order tags restore the order of the output")
    return "\n".join(lines)


def _combined(stage: Stage) -> list[str]:
    if stage.params.get("best") is not None:
        return [f"{stage.name} hands over only the {stage.params['best']} best counts of its keys (combined early, exactly)"]
    return []

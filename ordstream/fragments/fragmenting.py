"""Cutting a plan into fragments: which operators run together, and how rows go from one group to the next.

A keyed operator needs all rows of a key in one node. So a chain is cut in front of every operator whose key
is not the one that rows are already spread by. A *fragment* is what lies between two cuts: it runs in as
many nodes as there are, each with the rows of its keys, in order; between fragments rows change nodes.
Stateless operators stay with the fragment in front of them; those at the very beginning run wherever the
rows happen to be. A stateful operator without key sees all rows, so its fragment runs in one node. What
restores the order after a cut is the order tag of each row (`ordstream.ground.ordertags`).

This module knows the plan only. `ordstream.fragments.fragment_node` runs a fragment in a node;
`ordstream.fragments.processes` and `ordstream.spark` spread the nodes over processes and executors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.graph_cut import graph_part
from ordstream.fragments.time_marks import with_leaving_marks
from ordstream.operators.operator import Operator
from ordstream.plan.clock import with_clocks
from ordstream.plan.lanes import check_line
from ordstream.plan.plan import Plan
from ordstream.plan.rejections import check_taken
from ordstream.plan.shedding import sheds
from ordstream.plan.sources import with_one_source


def fragments_of(plan: Plan, *, may_shed: bool = False, sheds_first: bool = False) -> tuple[Fragment, ...]:
    """The fragments of a plan, in order. The first one's `key` is None: it has no keyed operator, and may be
    empty.

    Parameters
    ----------
    plan : Plan
    may_shed : bool
        A shed operator may run in several nodes: it then stands with the operator that it protects.
    sheds_first : bool
        Frozen shed operators may be in the first fragment, which runs in one node over all rows in order.

    Raises
    ------
    PlanError
        It is a graph that is not cut; it sheds where it may not, and there would be several fragments; or an
        operator reads serials.
    """
    # the clocks of the whole plan: a part of it may want another one
    plan = with_clocks(with_one_source(plan))
    fragments = _of_graph(plan) if plan.is_graph else _of_line(plan, 0, None, None, sheds_first)
    shed = sheds(plan)
    if sheds_first and not plan.is_graph:
        later = [one for fragment in fragments[1:] for one in fragment.operators if one.sheds]
        if later:
            raise PlanError(
                f"{later[0].name}: each frozen decision depends on all before, and behind a keyed operator "
                "no node of several sees all rows: put .shed(...) in front of the first keyed operator, or "
                "run in one node"
            )
    elif shed and len(fragments) > 1 and (plan.is_graph or not may_shed):
        raise PlanError(
            f"{shed[0].name}: a pipeline that sheds runs on one node; its log counts the serials of one "
            "source"
        )
    by_serial = next((operator.name for operator in plan.operators if operator.reads_serial), None)
    if by_serial is not None:
        why = "tuples are chosen by their serials, which several nodes count each for itself"
        raise PlanError(f"{by_serial}: {why}; run in one node")
    return with_leaving_marks(fragments)


def _of_graph(plan: Plan) -> list[Fragment]:
    """The part of a graph that runs on its keys (`ordstream.fragments.graph_cut`), and the chain behind."""
    check_taken(plan)
    part = graph_part(plan)
    graph = Fragment(part.plan, len(part.front.operators), part.key or None)
    fragments = [Fragment(part.front, 0, None), graph] if part.key else [graph]
    chain = plan.part(part.stop, len(plan.operators))
    # operators are more where rows are copied for several
    shift = graph.first + len(graph.operators) - part.stop
    spread = part.spread if part.key and all(part.spread) else None
    nothing, *behind = _of_line(chain, part.stop + shift, part.key or None, spread)
    assert not nothing.operators
    return fragments + behind


def _of_line(
    plan: Plan,
    start: int,
    key: tuple[int, ...] | None,
    spread: list[set[int]] | None,
    sheds_first: bool = False,
) -> list[Fragment]:
    """The fragments of a line.

    Parameters
    ----------
    plan : Plan
    start : int
        Position of its first operator in the whole plan.
    key : tuple of int, or None
        By which its rows are spread when they come; in the first fragment.
    spread : list of set of int, or None
        Per column of that: where its value is.
    sheds_first : bool
        A shed operator stays in front of the cut.
    """
    check_line(plan, "several nodes")
    fragments: list[Fragment] = []
    first = 0  # of the fragment that is being put together
    for position, operator in enumerate(plan.operators):
        if operator.stateful and not _stays(operator, key, spread):
            follows = position > 0 and plan.operators[position - 1].sheds and not sheds_first
            cut = position - follows
            fragments.append(Fragment(plan.part(first, cut), start + first, key))
            first, key = cut, operator.key
            spread = [{index} for index in operator.key]
        if spread is not None:
            passed = operator.columns_passed()
            spread = [{out for out, column in passed.items() if column in places} for places in spread]
            spread = spread if all(spread) else None
    fragments.append(Fragment(plan.part(first, len(plan.operators)), start + first, key))
    return fragments


def _stays(operator: Operator, key: tuple[int, ...] | None, spread: list[set[int]] | None) -> bool:
    """Whether all rows that share a state of the operator are in one node already.

    Rows spread by some of the operator's key columns are: equal keys are equal in those columns too.
    """
    if operator.kind == "SF":
        return key == ()
    return bool(key) and spread is not None and all(places & set(operator.key) for places in spread)


def halved(fragments: Sequence[Fragment]) -> tuple[Fragment, Fragment] | None:
    """The last fragment as two, where it is one operator that can be combined in each node first
    (`ordstream.operators.halves`).

    Returns
    -------
    (Fragment, Fragment) or None
        One that takes the rows of one sender of the last fragment's rows and gives at most one row, and one
        that takes these and gives the last fragment's output, unless one of the two fails with an overflow
        where it would not.
    """
    last = fragments[-1]
    two = (
        last.operators[0].halves()
        if len(fragments) > 1 and last.key == () and len(last.operators) == 1
        else None
    )
    if two is None:
        return None
    part = Fragment(Plan.line(last.source, (two.part,)), last.first, ())
    return part, Fragment(Plan.line(part.output, two.merge), last.first, (), ordered=False)


def combined(fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
    """The fragments with the last one's first half, where it has one, in the nodes of the fragment in
    front.
    """
    two = halved(fragments)
    if two is None or fragments[-2].plan.is_graph:
        return tuple(fragments)
    part, merge = two
    return (*fragments[:-2], fragments[-2].with_operators(*part.operators), merge)


def split(fragment: Fragment) -> tuple[Fragment, ...] | None:
    """A keyed fragment so that several nodes may share the rows of a key: a part in every node, then a merge
    by key, then the rest.

    Returns
    -------
    tuple of Fragment or None
        None: it can't be (`why_whole`). The first fragment's rows may go to any node; the others' go by
        their key.
    """
    two = fragment.operators[0].halves() if fragment.key else None
    if two is None or why_whole(fragment):
        return None
    first, plan = fragment.first, fragment.plan
    stop = next(
        (k for k, operator in enumerate(plan.operators) if k and operator.stateful), len(plan.operators)
    )
    part = Fragment(Plan.line(fragment.source, (two.part,)), first, fragment.key)
    merging = Plan.line(two.part.output, (*two.merge, *plan.operators[1:stop]))
    merge = Fragment(merging, first, two.merge[0].key, ordered=False)
    if stop == len(plan.operators):
        return part, merge
    return (
        part,
        merge,
        Fragment(plan.part(stop, len(plan.operators)), first + stop, plan.operators[stop].key),
    )


def why_whole(fragment: Fragment) -> str:
    """Why the rows of a key of a keyed fragment stay in one node, and what there is instead; "": `split`
    splits them.
    """
    name, source = fragment.operators[0].name, fragment.source
    if fragment.plan.is_graph:
        return f"operator {name!r} runs in the nodes of a graph; PKG is for pipelines of one line"
    if fragment.operators[0].halves() is None:
        return (
            f"operator {name!r} has no declared merge of partial results; count and aggregate (counts, sums "
            "and means of integers, minima, maxima) with emit='final' have one"
        )
    floats = [source.names[k] for k in fragment.key or () if pat.is_floating(source.field(k).type)]
    if floats:  # the first in order has to be shown, and no part knows which that is
        return (
            f"the key of operator {name!r} has a float, {floats[0]!r}: 0.0 and -0.0 are one key with two "
            "forms, which parts can't merge; cast it to an integer or a string in front, or take 'dkg'"
        )
    return ""


def check_options(options: Mapping[str, Any], where: str) -> None:
    """Raise PlanError for options of a run that a pipeline cut over nodes can't have."""
    wrong = {
        "snapshot_every": "its markers are those of one node (snapshots of all: checkpoint= and every=)",
        "arrivals": "an open-loop schedule is for one node",
        "shed_log": "a log is replayed in one node",
    }
    for name, why in wrong.items():
        if options.get(name) is not None:
            raise PlanError(f"{name} can't be combined with {where}: {why}; run in one node")


def uses_python(plan: Plan) -> bool:
    """Whether plain Python functions take the GIL for every chunk: then threads don't help, processes do."""
    return any(operator.is_python and not operator.leaves_gil for operator in plan.operators)


def explain(
    plan: Plan,
    nodes: int,
    *,
    how: str = "",
    fragments: Sequence[Fragment] | None = None,
    spread: Mapping[int, str] | None = None,
) -> str:
    """The fragments as text: where each runs and what chooses a row's node.

    Parameters
    ----------
    plan : Plan
    nodes : int
    how : str
        One line on what a node is.
    fragments : sequence of Fragment, optional
        Where not as `fragments_of` makes them.
    spread : mapping of fragment (from 1) to text, optional
        What chooses a row's node, where not the hash of its key.
    """
    counted = "1 node" if nodes == 1 else f"{nodes} nodes"
    lines = [f"{counted}{how}"]
    fragments = fragments_of(plan) if fragments is None else fragments
    spread = spread or {}
    early = nodes > 1 and combined(fragments) != tuple(fragments)
    for number, fragment in enumerate(fragments, 1):
        names = fragment.source.names
        if fragment.key is None and number in spread:
            lines.append(f"        rows to nodes {spread[number]}")
            where = f"in {counted}, by no key"
        elif fragment.key is None:
            where = "where the source's rows are, in parallel, by no key"
        elif not fragment.key:
            rows = "one row of each node" if early and number == len(fragments) else "all rows"
            lines.append(
                f"        cut: {rows} to one node" + ", in the order of their tags" * (rows == "all rows")
            )
            where = "in one node"
        else:
            columns = ", ".join(names[index] for index in fragment.key)
            by = spread.get(number, f"by hash of {columns}")
            lines.append(f"        cut: rows to nodes {by}, in the order of their tags")
            shared = fragment.operators[0].is_part()
            where = (
                f"in {counted}, "
                f"{'which may share the rows of a key' if shared else 'each with the rows of its keys'}"
            )
        lines.append(f"fragment {number}, {where}")
        lines += [
            f"{position:>2}  {operator.kind}  {operator.name}: {operator.shown()}"
            for position, operator in enumerate(fragment.operators, fragment.first + 1)
        ] or ["        order tags only"]
        lines += [
            f"        in every node: {note}"
            for operator in fragment.operators
            for note in operator.in_every_node()
        ]
        if early and number == len(fragments) - 1:
            name = fragments[-1].operators[0].name
            lines.append(
                f"        in every node: {name} is combined first, and only one row goes on (combined "
                "early, exactly)"
            )
    lines.append("        order tags restore the order of the output")
    return "\n".join(lines)

"""What chooses a row's node between processes: checked against the fragments of the pipeline before anything
starts.

| grouping | rows of the stateless operators in front | rows of keyed operators |
| --- | --- | --- |
| "least_outstanding" (default) | a block to the node with the fewest bytes to do | by hash |
| "blocks" | block by block in turn | by hash |
| "round_robin" | row by row in turn | by hash |
| "posg", od.POSG(...) | by estimated execution time (`fragments.proactive`) | by hash |
| "dkg", od.DKG(...) | by key, by a map that is learnt while the run goes on | by hash |
| a KeyMap, Modulo | by key | of the one that is named: by the map, which stays as it is |
| what has route(keys) | by it, in the caller | - |

The output is the same with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ordstream.balance.baselines import LeastOutstanding, Modulo, RoundRobin
from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap, SplitKeyMap, check_sent
from ordstream.balance.keys import key_words
from ordstream.balance.posg import POSG
from ordstream.errors import PlanError, SchemaError, unknown_column
from ordstream.fragments.fragment import Fragment
from ordstream.plan.plan import Plan

NAMES = ("least_outstanding", "blocks", "round_robin", "posg", "dkg")
#: The options that are not those of a node.
OPTIONS = ("grouping", "grouping_key")


@dataclass(frozen=True, eq=False)
class Chosen:
    """How the rows of one fragment go to nodes.

    Attributes
    ----------
    grouping : object
        A name, parameters, or what routes.
    key : tuple of int
        Columns of the fragment's source that it looks at.
    """

    grouping: Any
    key: tuple[int, ...] = ()


def groupings_of(
    options: Mapping[str, Any], fragments: Sequence[Fragment], processes: int
) -> dict[int, Chosen]:
    """Fragment -> what chooses its rows' node, where that is not the default.

    Parameters
    ----------
    options : mapping
        Of the run: `grouping`, one for the operators that it fits, or a mapping of operator names to
        groupings; `grouping_key`, a column or several.
    fragments : sequence of Fragment
    processes : int

    Raises
    ------
    PlanError
        It does not fit the operators.
    SchemaError
        A column is not there, or can't be a key.
    """
    given, key = options.get("grouping"), options.get("grouping_key")
    if given is None:
        if key is not None:
            raise PlanError("grouping_key says what a grouping looks at: give grouping= too")
        return {}
    found: dict[int, Chosen] = {}
    by_name = given if isinstance(given, Mapping) else {None: given}
    looks = False
    for name, single in by_name.items():
        grouping = {"posg": POSG(), "dkg": DKG()}.get(single, single) if isinstance(single, str) else single
        _check(grouping, processes)
        position = _fragment(grouping, name, fragments)
        looks |= not fragments[position].key and not isinstance(grouping, str)
        if position in found:
            raise PlanError(f"grouping: {name!r} runs in the nodes of an operator that has a grouping")
        if grouping != "least_outstanding":
            found[position] = Chosen(grouping, _key(grouping, key, fragments[position]))
    if key is not None and not looks:
        raise PlanError(
            f"grouping_key={key!r:.80} does nothing: {given!r:.80} looks at no column, or at the operator's "
            "own key; leave it out"
        )
    if options.get("workers") and any(isinstance(one.grouping, POSG) for one in found.values()):
        raise PlanError("POSG measures each row on its node's only thread: workers must be 0")
    return found if processes > 1 else {}  # one node has no choice


def check_of_one(options: Mapping[str, Any], plan: Plan) -> None:
    """`grouping`, `grouping_key` and `balance` of a run in one process, which chooses nothing: as one over
    several refuses them, so that a mistake does not wait for the day with more.

    Raises
    ------
    PlanError, SchemaError
        As `groupings_of`, `check_policy` and `movable`.
    """
    balance = options.get("balance")
    if all(options.get(name) is None for name in ("grouping", "grouping_key", "balance")):
        return
    from ordstream.fragments.balancing import check_policy, movable
    from ordstream.fragments.fragmenting import fragments_of

    if balance is not None:
        check_policy(balance)
    try:
        fragments = fragments_of(plan, may_shed=True)
    except PlanError:  # there is nothing to group, in several processes either
        return
    groupings_of(options, fragments, 1)
    if balance is not None:
        movable(fragments, 2)


def _check(grouping: Any, processes: int) -> None:
    if isinstance(grouping, str):
        if grouping not in NAMES:
            raise PlanError(f"grouping is one of {', '.join(map(repr, NAMES))}, got {grouping!r:.80}")
        return
    if isinstance(grouping, SplitKeyMap) or (isinstance(grouping, DKG) and grouping.variant == "pkg"):
        raise PlanError("grouping: PKG splits the rows of a key, which processes don't put together again")
    if not isinstance(grouping, DKG | POSG) and not callable(getattr(grouping, "route", None)):
        raise PlanError(
            f"grouping is one of {', '.join(map(repr, NAMES))}, od.POSG(...), od.DKG(...), a map of keys, "
            f"something with route(keys), or a mapping of operator names to these; got {grouping!r:.80}"
        )
    if processes > 1:
        check_sent(grouping)
    made = getattr(grouping, "instances", None)
    if made is not None and processes > 1 and made != processes:
        raise PlanError(
            f"grouping: a {type(grouping).__name__} for {made} nodes can't serve processes={processes}"
        )


def _fragment(grouping: Any, name: str | None, fragments: Sequence[Fragment]) -> int:
    """The fragment that a grouping is for."""
    is_map = isinstance(grouping, KeyMap | Modulo)
    if name is None:
        keyed = [k for k, fragment in enumerate(fragments) if fragment.key]
        if is_map and not fragments[0].operators and len(keyed) == 1:
            return keyed[0]
        if not fragments[0].operators:
            first = next((one.name for of in fragments for one in of.operators), None)
            begins = "has no operators" if first is None else f"begins with {first!r}, which keeps state"
            raise PlanError(
                f"grouping: it spreads the stateless operators in front; this pipeline {begins}. {FROZEN}"
            )
        return 0
    found = [k for k, of in enumerate(fragments) if any(one.name == name for one in of.operators)]
    if not found:
        names = ", ".join(one.name for of in fragments for one in of.operators)
        raise PlanError(f"grouping: no operator is called {name!r}; there are {names or 'none'}")
    if found[0] and not (is_map and fragments[found[0]].key):
        raise PlanError(f"grouping: {name!r} runs where operators keep state. {FROZEN}")
    return found[0]


FROZEN = (
    "While keys have state their rows stay where the first one went: such operators take a map that stays "
    "as it is (od.DKG(...).fit(keys, processes)), under the operator's name"
)


def _key(grouping: Any, asked: Any, fragment: Fragment) -> tuple[int, ...]:
    """The columns that a grouping looks at."""
    if fragment.key:
        return fragment.key
    if isinstance(grouping, str):
        return ()
    names = fragment.source.names
    if asked is not None:
        if not isinstance(asked, str | Sequence):
            raise PlanError(f"grouping_key must be the name of a column, or several, got {asked!r:.80}")
        columns = (asked,) if isinstance(asked, str) else tuple(asked)
        for column in columns:
            if column not in names:
                raise unknown_column(column, names, "the pipeline's source")
        found = tuple(names.index(column) for column in columns)
        for index in found:
            key_words(pa.nulls(0, fragment.source.field(index).type))
    elif isinstance(grouping, POSG):
        found = tuple(k for k, field in enumerate(fragment.source) if _may_be_key(field))
    else:
        found = ()
    if not found:
        kind = type(grouping).__name__
        if isinstance(grouping, RoundRobin | LeastOutstanding):
            name = "round_robin" if isinstance(grouping, RoundRobin) else "least_outstanding"
            raise PlanError(
                f"grouping: a {kind} looks at no column, and counts the keys that it is given: write "
                f"grouping={name!r}"
            )
        raise PlanError(f"grouping: name the columns that {kind} looks at: grouping_key=")
    return found


def _may_be_key(column: pa.Field) -> bool:
    try:
        key_words(pa.nulls(0, column.type))
    except (SchemaError, TypeError):
        return False
    return True

"""Maps of a stream: which groupings it takes, and the map by which an epoch's rows go, which stays as it was
committed.

A key's state lies where the map has sent it, so a map is not learnt anew while the number of nodes is the
same. By default it is the key groups (`GroupRanges`), which is the hash of a stream.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordstream.balance.dkg import DKG
from ordstream.balance.grouping import KeyMap, SplitKeyMap
from ordstream.balance.mixed.table import Assignment
from ordstream.balance.posg import POSG, FrozenPosg
from ordstream.balance.serial_form import SketchBytesError
from ordstream.errors import CheckpointError, PlanError
from ordstream.fragments.fragment import Fragment
from ordstream.spark.grouping import Choice, Grouped, first_slice, resolve
from ordstream.spark.streaming.epoch_files import read_whole
from ordstream.spark.streaming.epoch_functions import Begin
from ordstream.spark.streaming.epoch_manifest import STATE, Said
from ordstream.spark.streaming.group_ranges import GroupRanges
from ordstream.spark.streaming.spread import Spread
from ordstream.spark.streaming.whole_epochs import way_back

#: The number of the stateless fragment, whose map is POSG's; keyed ones have numbers from 2.
FRONT = 1
#: Bytes of a map that lies in the manifest, at most.
IN_MANIFEST = 3_072
_KINDS: tuple[Any, ...] = (KeyMap, Assignment, GroupRanges, Spread, FrozenPosg)


def map_of(data: bytes) -> Any:
    """The map that a manifest holds.

    Raises
    ------
    CheckpointError
        It is of no kind that this release has.
    """
    for kind in _KINDS:
        try:
            return kind.from_bytes(data)
        except SketchBytesError as error:
            seen = error
    raise CheckpointError(f"a map of the last epoch can't be read: {seen}") from seen


def read_map(folder: str, epoch: int, said: str | Said) -> Any:
    """The map that the manifest of an epoch says.

    Raises
    ------
    CheckpointError
        Its file is damaged or gone, or it is of no kind that this release has.
    """
    if isinstance(said, str):
        return map_of(base64.b64decode(said))
    path = Path(folder) / STATE / said["file"]
    try:
        return map_of(read_whole(path, said))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: the map by which rows of epoch {epoch} went to nodes can't be read: {error}. "
            + way_back(folder, epoch, path)
        ) from error


def said_map(begin: Begin, number: int, grouping: Any, before: str | Said | None) -> str | Said:
    """What the manifest says of a fragment's map; `before`: what the one in front said. A large one is
    written once, and named by the manifests of all epochs that it stays for: manifests are kept for ever.
    """
    data = grouping.to_bytes()
    if len(data) <= IN_MANIFEST:
        return base64.b64encode(data).decode("ascii")
    held = begin.maps.get(number)
    if before is not None and not isinstance(before, str) and held is not None and held.to_bytes() == data:
        return before
    with begin.files("") as files:
        return files.whole(f"map{number}", ".map", data)


def chosen(
    grouping: Any, fragments: Sequence[Fragment], nodes: int, order_by: Sequence[str]
) -> Mapping[int, Choice]:
    """Position of a fragment -> what its rows' nodes are chosen by, where not by key groups.

    Raises
    ------
    PlanError
        It does not fit, or would split keys, or can't be written into a manifest.
    """
    grouped: Grouped = resolve(grouping, fragments, nodes, order_by)
    if len(grouped.fragments) != len(fragments):
        raise PlanError(
            "grouping: PKG and maps that split keys give a key's rows to several nodes, and a stream's "
            "state is where its key is: take 'dkg', od.DKG(...) or a deployed map that keeps keys whole"
        )
    for choice in grouped.choices.values():
        given = choice.given
        if isinstance(given, SplitKeyMap) or not isinstance(given, KeyMap | DKG | POSG | FrozenPosg):
            raise PlanError(
                f"grouping: {type(given).__name__} of {choice.operator!r} can't be kept in a stream's "
                "manifests: a stream takes 'hash', 'dkg', 'posg', od.DKG(...), od.POSG(...), a KeyMap, a "
                "FrozenPosg, or a Balancer; or balance=od.Mixed(...) for keys that move"
            )
    return grouped.choices


def by_groups(fragments: Sequence[Fragment], nodes: int) -> dict[int, Any]:
    """Number of a fragment -> key groups, for those that have a key."""
    return {number: GroupRanges(nodes) for number, one in enumerate(fragments, 1) if one.key}


def kept_maps(committed: Mapping[int, Any], fragments: Sequence[Fragment], nodes: int) -> dict[int, Any]:
    """The committed maps of those that have a key. Another run may have had other fragments: one without a
    map goes by key groups, unless no fragment has one (a stream of an older release, by its hash).
    """
    maps = by_groups(fragments, nodes)
    kept = {number: one for number, one in committed.items() if number in maps and number != FRONT}
    return maps | kept if kept else {}


def front_map(choice: Choice | None, nodes: int, committed: Any) -> dict[int, Any]:
    """The map of the stateless fragment: the committed one where it is for as many nodes and of the same
    parameters; {}: its rows stay where they are.
    """
    if choice is None:
        return {}
    given: Any = choice.given
    if isinstance(given, FrozenPosg):
        kept = isinstance(committed, FrozenPosg) and committed.instances == nodes
        return {FRONT: committed if kept else given}
    if isinstance(committed, Spread) and committed.instances == nodes and _fits(committed, given):
        return {FRONT: committed}
    times, wanted = None, first_slice(given)
    if choice.balancer is not None:
        times = choice.balancer.times
    return {FRONT: Spread(nodes, given.seed, wanted, times, wanted if times is not None else 0)}


def _fits(committed: Spread, given: POSG) -> bool:
    times = committed.times
    return committed.seed == given.seed and (times is None or times.hashes == given.times().hashes)

"""The states that an epoch begins with: what the manifest in front names, read in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.keys import Words, key_words
from ordstream.errors import CheckpointError
from ordstream.fragments.exchange import Route
from ordstream.fragments.graph_cut import key_places
from ordstream.snapshots.snapshot import Kind, StateRows
from ordstream.snapshots.state_file import FileRows, open_state
from ordstream.spark.streaming.epoch_manifest import STATE, Said
from ordstream.spark.streaming.group_ranges import GroupRanges
from ordstream.spark.streaming.whole_epochs import way_back


class Counted(Protocol):
    """What hears of rows that come from other nodes' files."""

    def count(self, batch: pa.RecordBatch, words: Words) -> None:
        """These rows came; their keys."""


@dataclass(frozen=True)
class Share:
    """Which rows of a state belong to one node.

    Attributes
    ----------
    key : tuple of int
        Columns of the state that rows are routed by; (): all rows are node 0's.
    nodes : int
    node : int
    grouping : Grouping, optional
        What routes in place of the hash.
    counted : Counted, optional
        Told of rows that come from other nodes' files.
    """

    key: tuple[int, ...]
    nodes: int
    node: int
    grouping: Any = None
    counted: Counted | None = None

    def of(self, batch: pa.RecordBatch, file_node: int) -> pa.RecordBatch:
        """The node's rows among those that another node, or this one, has left."""
        if not self.key:
            return batch if self.node == 0 else batch.slice(0, 0)
        mine = self._route(batch)(batch) == self.node
        words = self.words(batch) if self.counted is not None else np.zeros(0, dtype=np.uint64)
        return self.taken(batch, words, mine, file_node)

    def groups(self, file_node: int, keys: int) -> set[int] | None:
        """Key groups of a file in which the node's rows lie; None: any. `keys`: key columns of the state."""
        return set(self.grouping.groups_of(self.node)) if self.of_groups(keys) else None

    def of_groups(self, keys: int) -> bool:
        """The node's rows are those of some key groups, all of them."""
        return isinstance(self.grouping, GroupRanges) and self.whole_key(keys)

    def words(self, batch: pa.RecordBatch) -> Words:
        """The rows' keys, by which they are routed."""
        return key_words(self._route(batch).keys(batch))

    def whole_key(self, keys: int) -> bool:
        """Rows are routed by all columns of the state's key, so a routed key has one key group."""
        return self.key == tuple(range(keys))

    def taken(
        self, batch: pa.RecordBatch, words: Words, mine: npt.NDArray[np.bool_], file_node: int
    ) -> pa.RecordBatch:
        """These rows of a batch; counted where they come from another node."""
        found = batch if mine.all() else batch.filter(pa.array(mine))
        if self.counted is not None and file_node != self.node and found.num_rows:
            self.counted.count(found, words[mine])
        return found

    def _route(self, batch: pa.RecordBatch) -> Route:
        return Route(batch.schema, self.key, self.nodes, self.grouping)


@dataclass(frozen=True)
class JoinedRows:
    """`StateRows` of several files of one operator, or of a share of them. `nodes`: who left each file."""

    parts: Sequence[FileRows]
    share: Share | None = None
    nodes: Sequence[int] = ()

    @property
    def identity(self) -> Mapping[str, str]:
        return self.parts[0].identity

    @property
    def schema(self) -> pa.Schema:
        return self.parts[0].schema

    @property
    def keys(self) -> int:
        return self.parts[0].keys

    @property
    def told_apart(self) -> int:
        return self.parts[0].told_apart

    @property
    def kinds(self) -> list[Kind]:
        """Each once."""
        found: list[Kind] = []
        for part in self.parts:
            found += [kind for kind in part.kinds if kind not in found]
        return found

    @property
    def num_rows(self) -> int:
        """Of all files: an upper bound where there is a share."""
        return sum(part.num_rows for part in self.parts)

    def batches(self, groups: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        asked = None if groups is None else set(groups)
        if self.share is None:
            for part in self.parts:
                yield from part.batches(asked)
            return
        for part, node in zip(self.parts, self.nodes, strict=True):
            mine = self.share.groups(node, part.keys)
            wanted = asked if mine is None else mine if asked is None else mine & asked
            if self.share.of_groups(part.keys):
                yield from part.batches(wanted)
                continue
            for batch in part.batches(wanted):
                yield self.share.of(batch, node)


def stored(
    folder: str, number: int, states: Mapping[str, Sequence[Said]], shares: Mapping[str, Share] | None = None
) -> dict[str, StateRows]:
    """The states that the manifest of epoch `number` names.

    Parameters
    ----------
    folder : str
        The stream's.
    number : int
    states : mapping
        As in the manifest.
    shares : mapping of str to Share, optional
        Operator -> what of it is wanted.

    Raises
    ------
    CheckpointError
        A file is damaged or gone.
    """

    def tell(path: Path, place: str, seen: str) -> CheckpointError:
        return CheckpointError(
            f"{path}: {place}: damaged: {seen}. The state behind epoch {number} can't be used. "
            + way_back(folder, number, path)
        )

    found: dict[str, StateRows] = {}
    for name, parts in states.items():
        files = [open_state(Path(folder) / STATE / part["file"], name, part, tell) for part in parts]
        if files:
            nodes = [part["node"] for part in parts]
            found[name] = JoinedRows(files, None if shares is None else shares.get(name), nodes)
    return found


def shares_of(
    fragment: Any,
    nodes: int,
    node: int,
    grouping: Any,
    counted: Counted | None = None,
    kind: Callable[..., Share] = Share,
) -> dict[str, Share]:
    """Operator -> its rows' share of one node: rows are routed by the fragment's key, which is part of the
    key of each of its operators. `kind` makes a share.
    """
    found = {}
    for operator in fragment.operators:
        if operator.stateful:
            places, key = key_places(fragment.plan, fragment.key or (), operator.name), list(operator.key)
            route = tuple(next(key.index(one) for one in key if one in some) for some in places)
            found[operator.name] = kind(route, nodes, node, grouping, counted)
    return found

"""The states that an epoch begins with: what the manifest in front names, read in a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordstream.errors import CheckpointError
from ordstream.fragments.exchange import Route
from ordstream.snapshots.snapshot import StateRows
from ordstream.snapshots.state_file import FileRows, open_state
from ordstream.spark.streaming.epoch_manifest import STATE, Said


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
    """

    key: tuple[int, ...]
    nodes: int
    node: int
    grouping: Any = None

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The node's rows."""
        if not self.key:
            return batch if self.node == 0 else batch.slice(0, 0)
        mine = Route(batch.schema, self.key, self.nodes, self.grouping)(batch) == self.node
        return batch if mine.all() else batch.filter(pa.array(mine))


@dataclass(frozen=True)
class JoinedRows:
    """`StateRows` of several files of one operator, or of a share of them."""

    parts: Sequence[FileRows]
    share: Share | None = None

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
    def num_rows(self) -> int:
        """Of all files: an upper bound where there is a share."""
        return sum(part.num_rows for part in self.parts)

    def batches(self, groups: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, file by file."""
        asked = None if groups is None else list(groups)
        for part in self.parts:
            for batch in part.batches(asked):
                yield batch if self.share is None else self.share.of(batch)


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
            f"{path}: {place}: damaged: {seen}. The state behind epoch {number} can't be used; the one "
            f"before it may be: od.spark.rewind({folder!r}, to={number - 1})"
        )

    found: dict[str, StateRows] = {}
    for name, parts in states.items():
        files = [open_state(Path(folder) / STATE / part["file"], name, part, tell) for part in parts]
        if files:
            found[name] = JoinedRows(files, None if shares is None else shares.get(name))
    return found


def shares_of(fragment: Any, nodes: int, node: int, grouping: Any) -> dict[str, Share]:
    """Operator -> its rows' share of one node: rows are routed by the fragment's key, which is part of the
    key of each of its operators.
    """
    places: list[set[int]] = [{index} for index in fragment.key]
    found = {}
    for operator in fragment.operators:
        if operator.stateful:
            key = list(operator.key)
            route = tuple(next(key.index(one) for one in key if one in some) for some in places)
            found[operator.name] = Share(route, nodes, node, grouping)
        passed = operator.columns_passed()
        places = [{out for out, column in passed.items() if column in some} for some in places]
    return found

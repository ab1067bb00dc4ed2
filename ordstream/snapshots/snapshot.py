"""Snapshot: what a run knows at a point of the order.

Because the order is total, the state behind tuple `serial` is what tuples 1..serial have made, and nothing
else. It is independent of workers, buckets, chunk sizes, nodes and of how the core stores a key: a run of
any other configuration goes on from it, and gives what the first would have given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ordstream.errors import CheckpointError
from ordstream.ground.ordertags import OrderTag

#: What `Operator.adapt_state` asks of stored rows: identity and schema.
Kind = tuple[Mapping[str, str], pa.Schema]


class StateRows(Protocol):
    """The state of one operator as rows (key columns, then its own), in any order.

    Attributes
    ----------
    identity : mapping of str to str
        `Operator.state_identity` of the operator that it was taken from.
    schema : pyarrow.Schema
        Its `state_schema`.
    num_rows : int
    keys : int
        Columns of the key; they come first. 0: one state in all.
    told_apart : int
        Columns that tell rows apart (`Operator.state_order`): those of the key, or more where a key has
        several rows.
    kinds : sequence of (identity, schema)
        More than one where they lie in files of several runs, between which the operator has changed.
    """

    @property
    def identity(self) -> Mapping[str, str]: ...

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def num_rows(self) -> int: ...

    @property
    def keys(self) -> int: ...

    @property
    def told_apart(self) -> int: ...

    @property
    def kinds(self) -> Sequence[Kind]: ...

    def batches(self, groups: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows; of some key groups only, where they are given."""
        ...


@dataclass(frozen=True)
class MemoryRows:
    """`StateRows` in memory, as a run exported them. A checkpoint takes them only where `keys` was given.
    `by`: as `told_apart`; -1: the key's columns.
    """

    identity: Mapping[str, str]
    schema: pa.Schema
    parts: Sequence[pa.RecordBatch] = ()
    keys: int = -1
    by: int = -1

    @property
    def told_apart(self) -> int:
        return self.by if self.by >= 0 else self.keys

    @property
    def kinds(self) -> Sequence[Kind]:
        return ((self.identity, self.schema),)

    @property
    def num_rows(self) -> int:
        return sum(part.num_rows for part in self.parts)

    def batches(self, groups: Iterable[int] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows. ValueError where key groups are asked for: these rows are not sorted by them yet."""
        if groups is not None:
            raise ValueError("rows in memory are not in key groups: write them to a checkpoint first")
        return iter(self.parts)


@dataclass(frozen=True)
class Snapshot:
    """What a run knows behind one tuple.

    Attributes
    ----------
    serial : int
        The last tuple that it knows of; the next one has serial + 1. 0: none.
    emitted_through : OrderTag
        The commit point there: tag of the last output, its index included, or (serial, -1).
    latest_time : int or None
        Of the column of `punctuate=`: the largest value so far, in the column's storage units. None: none,
        or no punctuations.
    clock : str
        What that is of: the column of the clock, with its type. "": there was none, or an older release did
        not write it down.
    position : Any
        What the source's `position()` said there: a JSON value. None: it has none.
    states : mapping of str to StateRows
        Operator name -> its state, of every operator that keeps one.
    models : mapping of str to bytes
        Shed operator's name -> what it has learnt (`ordstream.balance.las.LAS` bytes). Approximate:
        learning goes on beside the order.
    routes : mapping of str to bytes
        First operator of the nodes -> the route table (`balance.mixed.Assignment` bytes) by which rows went
        to node processes behind this tuple, of those whose keys may move. The states say nothing of nodes:
        a run that moves no keys does not read it.
    last_output : OrderTag
        Tag of the last output in front of it, wherever that was; index -1: there was none.
    shed : mapping of str to int
        Shed operator's name -> how many rows of `serial` have come to it, where some have. Its log counts
        what the end of the stream makes of that tuple behind them.
    """

    serial: int
    emitted_through: OrderTag
    latest_time: int | None = None
    position: Any = None
    states: Mapping[str, StateRows] = field(default_factory=dict)
    models: Mapping[str, bytes] = field(default_factory=dict)
    last_output: OrderTag = field(default_factory=lambda: OrderTag(0))
    routes: Mapping[str, bytes] = field(default_factory=dict)
    clock: str = ""
    shed: Mapping[str, int] = field(default_factory=dict)

    def check_position(self) -> None:
        """CheckpointError where it does not say where a source stood that is to go there."""
        if self.serial and self.position is None:
            raise CheckpointError(
                f"the snapshot at serial {self.serial} does not say where its source stood, so this "
                "source can't go there: with restore= and no checkpoint= the tuples behind it can be given, "
                "as a table or an iterator, which has no seek"
            )

    @property
    def num_rows(self) -> int:
        """Rows of state, of all operators."""
        return sum(rows.num_rows for rows in self.states.values())

"""What every sink of a stream is: somebody to whom committed epochs are delivered.

The manifest is the commit point. An epoch's output files are on the disk, and named by its manifest, before
a sink hears of it. A driver that was killed delivers again what it cannot know to be delivered, so `deliver`
must take an epoch that it has taken before: what that means for what a reader sees is the sink's promise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ordstream.errors import SinkError, type_and_text
from ordstream.ground.ordertags import OrderTag
from ordstream.ground.user_code import place_of


@dataclass(frozen=True)
class StreamInfo:
    """The stream that a sink serves.

    Attributes
    ----------
    query : str
        The id that was drawn when the checkpoint was made; it never changes.
    checkpoint : Path
    schema : pyarrow.Schema
        Of the output: the pipeline's columns, then `_serial` and `_index` (int64, never null).
    """

    query: str
    checkpoint: Path
    schema: pa.Schema


@dataclass(frozen=True)
class OutputFile:
    """A Parquet file of committed output, in the order of its tags.

    Attributes
    ----------
    path : Path
    rows : int
    bytes : int
    crc32 : str
        Of the whole, in hexadecimal digits; "": not known.
    """

    path: Path
    rows: int
    bytes: int
    crc32: str = ""


@dataclass(frozen=True)
class Epoch:
    """The committed output of one micro-batch, or of the end of the stream.

    Attributes
    ----------
    number : int
        Of the batch, as Spark counts: from 0, without gaps. The end of the stream has the next number.
    files : sequence of OutputFile
        File by file, and row by row inside, in the order of the tags; may be empty.
    emitted_through : OrderTag
        All output up to here is in this epoch or in one before.
    """

    number: int
    files: Sequence[OutputFile]
    emitted_through: OrderTag


class Sink(Protocol):
    """Takes committed epochs, in ascending order, on the driver."""

    def open(self, stream: StreamInfo) -> None:
        """Called once before the first epoch of a run. Refuses (PlanError, or CheckpointError where the
        target holds another stream's output) with what to do.
        """

    def delivered(self) -> int | None:
        """The newest epoch that is surely in the target; None: none is, or the sink cannot know. Epochs
        behind it are delivered again.
        """

    def deliver(self, epoch: Epoch) -> None:
        """Put an epoch's rows into the target. May be called again for the same epoch."""

    def close(self) -> None:
        """The stream has stopped. Idempotent."""


def failed_on(sink: str, epoch: Epoch, error: BaseException) -> SinkError:
    """The error of a sink that runs the user's code: what it raised, on which epoch, and where."""
    kind, text = type_and_text(error)
    place = place_of(error)
    return SinkError(
        f"{sink} failed on epoch {epoch.number} ({sum(file.rows for file in epoch.files)} rows): "
        f"{f'{kind}: {text}' if text else kind}. The epoch is committed and comes again at the next start"
        + (f"\n  at: {place}" if place else "")
    )

"""take_back: a sink forgets what its stream has forgotten."""

from __future__ import annotations

import os
from typing import Protocol

from ordstream.errors import CheckpointError
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.sinks.committed import held_again
from ordstream.spark.streaming.sinks.sink import Sink, StreamInfo


class GoesBack(Sink, Protocol):
    """A sink that can take epochs away again, as all of ours can."""

    def back_to(self, epoch: int | None) -> None:
        """Take away what came behind this epoch; None: everything."""


def take_back(sink: GoesBack, checkpoint: str | os.PathLike[str]) -> int | None:
    """Take away what a sink has of epochs that its stream no longer has, after `od.spark.rewind`.

    The next epochs may be cut in other places than those that were taken back, so a sink must not keep them.
    Where the stream has gone on since, epochs that differ from those that are committed are taken away from
    the newest one on, up to one that does not (a Function knows its newest one alone). Called again after a
    crash it completes what it began.

    Parameters
    ----------
    sink : ParquetFolder, Postgres or Function
    checkpoint : path
        Of the stream, which must not run.

    Returns
    -------
    int or None
        The epoch that is the sink's last one now; None: it has none.

    Raises
    ------
    CheckpointError
        The folder is no stream's, or the sink's target another stream's.
    """
    log = EpochLog(checkpoint)
    last = max(log.numbers(), default=None)
    sink.open(StreamInfo(log.query, log.folder, log.schema))
    try:
        sink.back_to(last)
        while last is not None and (epoch := held_again(log, sink, last)) is not None:
            try:
                sink.deliver(epoch)
            except CheckpointError:  # the stream has gone on since, and committed another one
                last = epoch.number - 1 if epoch.number else None
                sink.back_to(last)
            else:
                break
        return last
    finally:
        sink.close()

"""Go back to an epoch: our commits, then Spark's.

Spark does not run a micro-batch again that it has committed, so its log must go back too. What it has
planned for the first batch behind the epoch stays: it runs again over the same rows. Its source of files
goes back to what is planned.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from ordstream.errors import CheckpointError, PlanError, shown
from ordstream.snapshots.files import Files
from ordstream.spark.streaming import spark_log
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.file_source_log import take_back
from ordstream.spark.streaming.spark_log import COMMITS, OFFSETS, SPARK, cut, entries
from ordstream.spark.streaming.whole_epochs import missing


def _is_whole(log: EpochLog, number: int) -> bool:
    try:
        return missing(log.folder, log.read(number)) is None
    except CheckpointError:  # its manifest is damaged
        return False


def rewind(checkpoint: str | os.PathLike[str], to: int | None = None) -> int:
    """Take a stream back to an epoch, as if nothing behind it had been committed. The query must not run.

    The next batch has the rows that it had before, if Spark still has its plan (it keeps those of 100
    batches); those behind it are planned anew, and may be cut in other places. A sink that has later
    epochs must be taken back too (`od.spark.sinks.take_back`). Called again after a crash it completes what
    it began.

    Parameters
    ----------
    checkpoint : path
    to : int, optional
        The epoch that is the last one then; its state must still be there. Default: the one before the last;
        where an earlier call was interrupted, what that one wanted. -1: nothing is committed.

    Returns
    -------
    int
        The epoch that is the last one now.

    Raises
    ------
    PlanError
        There is no such epoch, or a query of this process still runs.
    CheckpointError
        Its state is gone, or a file can't be removed.

    Warns
    -----
    RuntimeWarning
        Files that Spark's source would read again are gone.
    """
    log = EpochLog(checkpoint)
    streams = sys.modules.get("ordstream.spark.streaming.stream")  # not loaded: this process runs none
    if streams is not None and streams.is_running(log.folder):
        raise PlanError(f"the stream of {log.folder} still runs: stop it (query.stop()), then rewind it")
    numbers = log.numbers()
    newest = numbers[-1] if numbers else -1
    target = to if to is not None else newest if _interrupted(log.folder / SPARK, newest) else newest - 1
    if type(target) is not int or not -1 <= target <= newest:
        raise PlanError(
            f"rewind(to={shown(to)}): committed are the epochs {numbers[0]} to {newest}"
            if numbers
            else f"rewind(to={shown(to)}): nothing is committed"
        )
    if target >= 0:
        gone = missing(log.folder, log.read(target))
        if gone is not None:
            able = [one for one in numbers if one > target and _is_whole(log, one)]
            raise CheckpointError(
                f"{gone[0]}: {gone[1]}; the last two epochs that ran keep what they need. "
                f"The stream can go back to {able[0] if able else 'none'} (its last one is {newest}), or to "
                "the start (to=-1)"
            )
    files = Files()
    try:
        # Ours first: if this stops in the middle, Spark is ahead of us, which the stream refuses.
        for number in reversed([one for one in numbers if one > target]):
            log.remove(number)
        take_back(files, log.folder, target + 1)  # while Spark's commits tell that this is under way
        cut(files, log.folder / SPARK / COMMITS, target)
        cut(files, log.folder / SPARK / OFFSETS, target + 1)
    except OSError as error:
        raise CheckpointError(
            f"{log.folder}: can't be taken back to epoch {target}: {error}; mend that, and call rewind again"
        ) from error
    return target


def check_log(log: EpochLog, newest: int) -> None:
    """Look whether Spark's log ends where ours does, before a stream is sealed behind epoch `newest`.

    Raises
    ------
    CheckpointError
        Spark has committed more.

    Warns
    -----
    RuntimeWarning
        It has planned one more: a micro-batch that failed, or was stopped before it began.
    """
    done, planned = (spark_log.newest(log.folder, one) for one in (COMMITS, OFFSETS))
    back = f"od.spark.rewind({str(log.folder)!r}, to={newest})"
    again = "start the stream once more (trigger='available now'), then finish it"
    if done > newest:
        raise CheckpointError(
            f"Spark has committed micro-batch {done}, and the last committed epoch is {newest}: epochs "
            f"between them are missing from {log.folder}. Put them back; or take Spark's log back to it "
            f"({back}), and {again}"
        )
    if planned > newest:
        warnings.warn(
            f"Spark has planned micro-batch {planned} of {log.folder}, whose rows are not committed: the "
            f"finished stream leaves them out. To have them, take the end back ({back}), and {again}",
            RuntimeWarning,
            stacklevel=3,
        )


def _interrupted(spark: Path, newest: int) -> bool:
    """Whether Spark's log is further than it can be: it commits behind us, and plans one batch ahead."""
    return max(entries(spark / COMMITS), default=-1) > newest or (
        max(entries(spark / OFFSETS), default=-1) > newest + 1
    )

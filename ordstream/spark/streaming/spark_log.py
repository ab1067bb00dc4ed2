"""Spark's own checkpoint, inside of a stream's: what it has planned and committed, and whose it is.

Spark reads it when a query starts, and tells of what is missing or damaged there with a trace of Java's, or
as if two queries ran. So it is looked at before.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ordstream.errors import CheckpointError, told
from ordstream.snapshots.files import Files

SPARK = "spark"
COMMITS, OFFSETS, SOURCES = "commits", "offsets", "sources"
#: An entry that has what all before it have, as well.
COMPACT = ".compact"
_VERSION = re.compile(r"v\d+")

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",  # older releases
)
_START_MS = 5_000  # that sources may take


def started(writer: DataStreamWriter, session: SparkSession) -> StreamingQuery:
    """Start a query that writes its logs as Spark does where a file system has no `FileContext`: it renames
    files, too. With one Spark runs `readlink`, a process of its own, some twenty times a micro-batch, since
    the folder is a local one. What the session's user has set stays.
    """
    java: Any = session
    try:
        known = session.conf.get(FILE_MANAGER, None) is not None
        loadable = java._jvm.org.apache.spark.util.Utils.classIsLoadable
        found = None if known else next(filter(loadable, BY_FILE_SYSTEM), None)
    except Exception:  # another version of Spark: as it does by itself
        found = None
    if found is None:
        return writer.start()
    session.conf.set(FILE_MANAGER, found)
    try:
        query: Any = writer.start()
        try:
            query._jsq.streamingQuery().awaitInitialization(_START_MS)  # its sources take the setting
        except Exception:  # which ends the query, and is told by it
            pass
        except BaseException:
            query.stop()
            raise
        return cast(StreamingQuery, query)
    finally:
        session.conf.unset(FILE_MANAGER)


def entries(folder: Path) -> dict[int, Path]:
    """What one of Spark's logs holds, by number: a batch's, or of a source of files its own."""
    if not folder.is_dir():
        return {}
    found = ((path.name.removesuffix(COMPACT), path) for path in folder.iterdir())
    return {int(number): path for number, path in found if number.isdigit()}


def cut(files: Files, folder: Path, last: int) -> None:
    """Remove what one of Spark's logs holds behind a number, newest first, with its checksums."""
    if not folder.is_dir():
        return
    there = entries(folder)
    for number in sorted(there, reverse=True):
        if number > last:
            path = there[number]
            beside = path.with_name(f".{path.name}.crc")
            if beside.exists():
                files.remove(beside)
            files.remove(path)
    files.sync_folder(folder)


def newest(stream: Path, log: str) -> int:
    """The last micro-batch in a log (`COMMITS` or `OFFSETS`) of a stream's folder; -1: none is.

    Raises
    ------
    CheckpointError
        The folder can't be read.
    """
    try:
        return max(entries(stream / SPARK / log), default=-1)
    except OSError as error:
        raise CheckpointError(f"{error.filename}: can't be read: {error.strerror or error}") from error


def query_id(stream: Path) -> str:
    """Spark's id of the query.

    Raises
    ------
    CheckpointError
        It can't be read.
    """
    path = stream / SPARK / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path}: Spark's id of this query can't be read: {told(error)}. Put Spark's folder back from a "
            "copy, or begin anew with another checkpoint"
        ) from error


def check(stream: Path, last: int) -> None:
    """Look whether a query can start behind the committed epoch `last` (-1: there is none).

    Raises
    ------
    CheckpointError
        What Spark reads then is damaged, or a plan is missing of what it has committed.
    """
    done, planned = newest(stream, COMMITS), newest(stream, OFFSETS)
    if planned >= 0 or (stream / SPARK / "metadata").exists():
        query_id(stream)
    if planned < done:
        raise CheckpointError(
            f"{stream / SPARK / OFFSETS / str(planned + 1)}: is missing, and Spark has committed this "
            "micro-batch. Put the file back from a copy, or go back to the epoch in front of it: "
            f"od.spark.rewind({str(stream)!r}, to={min(planned, last)})"
        )
    if planned > 0 and not (stream / SPARK / OFFSETS / str(planned - 1)).exists():
        raise CheckpointError(
            f"{stream / SPARK / OFFSETS / str(planned - 1)}: is missing, and Spark reads it when it starts. "
            "Put the file back from a copy, or begin anew with another checkpoint"
        )
    for number in (planned - 1, planned):
        back = (
            f", and go back to the epoch in front of it: od.spark.rewind({str(stream)!r}, to={number - 1})"
        )
        anew = ": Spark plans the micro-batch anew"
        _check_entry(stream / SPARK / OFFSETS / str(number), back if number <= last else anew)
    again = ": Spark gives the micro-batch again, which is compared with its epoch then"
    _check_entry(stream / SPARK / COMMITS / str(done), again)


def clear(stream: Path) -> None:
    """Remove what a query left that was stopped, or killed, while it wrote its first plan: with such a file
    there Spark takes the checkpoint for another stream's, and starts none. Where there is a plan nothing is
    looked at.

    Raises
    ------
    CheckpointError
        It can't be removed.
    """
    if newest(stream, OFFSETS) >= 0 or newest(stream, COMMITS) >= 0:
        return
    for log in (OFFSETS, COMMITS):
        for path in (stream / SPARK / log).glob(".*.tmp*"):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise CheckpointError(f"{path}: can't be removed: {error.strerror or error}") from error


def _check_entry(path: Path, then: str) -> None:
    """An entry that is there has a version, then values in JSON; `then`: what helps where it is removed."""
    if not path.exists():
        return
    try:
        lines = path.read_text().splitlines()
        if not lines or not _VERSION.fullmatch(lines[0]):
            raise ValueError("its first line is no version")
        for line in lines[1:]:
            if line.startswith("{"):
                json.loads(line)
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path}: damaged: {told(error)}. Put it back from a copy, or remove it and .{path.name}.crc "
            f"beside it{then}"
        ) from error

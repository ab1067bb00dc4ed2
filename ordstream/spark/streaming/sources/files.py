"""Format ``ordstream.files``: the Parquet or Arrow files of a folder, one behind the other."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ordstream.errors import PlanError, SourceError
from ordstream.ground.choices import is_text
from ordstream.spark.schemas import spark_schema
from ordstream.spark.streaming.sources.offsets import (
    MAX_ROWS,
    TASK_ROWS,
    Offset,
    arrow_schema,
    check_options,
    default_limit,
    max_rows,
    required,
    room,
    with_offset,
    yes_or_no,
)
from ordstream.spark.streaming.sources.one_file import SUFFIXES, Known, Part, gone, look, read, schema_of

FORMAT = "ordstream.files"
REMOVED = "readFilesMayGo"


class Files(DataSource):
    """The rows of the files of a folder, in the order of the files' names, then in that of their rows.

    Names are compared by their characters (``part-10`` stands in front of ``part-2``). A file must appear
    whole, by a rename, with a name behind those that are there: one that comes to stand in front of rows
    that were read ends the query with an error, as does one that was changed or is gone while its rows are
    needed.

    Options: ``path``: the folder, which the driver and all executors see. ``maxRows``: most rows of a
    micro-batch. ``readFilesMayGo`` ("true"): files whose rows were all read may be taken away; then a file
    that comes too late is noticed only while the query runs. Files whose names do not end in ``.parquet``,
    ``.arrow`` or ``.feather``, or begin with ``.`` or ``_``, are not looked at.

    The columns are those of the first file, and `_offset`; or those of ``.schema(...)``, by name, which has
    to name `_offset`, too, where rows are to be in the source's order.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        folder = Path(required(self.options, "path", FORMAT))
        names = listed(folder)
        if not names:
            raise PlanError(
                f"{folder}: there is no file yet to take the columns from: give them with .schema(...)"
            )
        return with_offset(spark_schema(schema_of(folder, names[0])))

    def streamReader(self, schema: StructType) -> FilesReader:
        return FilesReader(self.options, schema)


class Parts(InputPartition):
    """What one task reads."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts


class FilesReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a folder for `Files`.

    An offset: ``o``, how many rows are in front of it; ``file`` and ``row``, where that is; ``names`` and
    ``digest``, how many files there were up to that one, and a hash of their names; ``files``, what the
    files with rows of the batch that ends there are known by. So a batch that is replayed is read from
    exactly the files that were planned, or not at all.
    """

    def __init__(self, options: Any, schema: StructType) -> None:
        check_options(options, ("path", MAX_ROWS, REMOVED), FORMAT)
        self._folder = Path(required(options, "path", FORMAT))
        self._limit = max_rows(options, FORMAT)
        self._may_go = yes_or_no(options, REMOVED, FORMAT)
        self._schema: pa.Schema = arrow_schema(schema)
        self._seen: set[str] | None = None  # names up to the last offset that was given
        self._known: dict[str, Known] = {}  # files that were looked at and have rows left
        self._last: str | None = None  # the last file that Trigger.AvailableNow may read

    def initialOffset(self) -> Offset:
        return {"o": 0, "file": "", "row": 0, "names": 0, "digest": _digest([]), "files": []}

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = max(listed(self._folder), default="")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        names = listed(self._folder)
        self._all_in_place(start, names)
        left, found = room(limit), []
        o, file, row = start["o"], start["file"], start["row"]
        for name in names:
            if name < file or (self._last is not None and name > self._last) or left == 0:
                continue
            known = self._look(name, start)
            first = row if name == file else 0
            take = known.rows - first if left is None else min(known.rows - first, left)
            if take or name > file:
                o, file, row = o + take, name, first + take
                left = None if left is None else left - take
            if take:
                found.append(known)
        if file == start["file"] and row == start["row"]:
            return start
        self._known = {name: known for name, known in self._known.items() if name >= file}
        before = [name for name in names if name <= file]
        self._seen = set(before)
        told = [list(known) for known in found]
        return {
            "o": o,
            "file": file,
            "row": row,
            "names": len(before),
            "digest": _digest(before),
            "files": told,
        }

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        if start == end:
            return []
        tasks: list[list[Part]] = []
        offset, left = start["o"], 0
        for told in end["files"]:
            file = Known(*told)
            first = start["row"] if file.name == start["file"] else 0
            last = end["row"] if file.name == end["file"] else file.rows
            while first < last:
                if not left:
                    tasks.append([])
                    left = TASK_ROWS
                stop = min(last, first + left)
                tasks[-1].append(Part(file, first, stop, offset))
                offset, left, first = offset + stop - first, left - (stop - first), stop
        if offset != end["o"]:
            raise SourceError(
                f"{self._folder}: the offsets {start['o']} and {end['o']} do not belong together: "
                f"{offset - start['o']} rows are named between them"
            )
        return [Parts(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Parts)
        for part in partition.parts:
            yield from read(self._folder, part, self._schema)

    # ------------------------------------------------------------------------------------------ files

    def _look(self, name: str, start: Offset) -> Known:
        """What a file is known by; one whose rows are partly read must be the one that it was."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = look(self._folder, name)
        for told in start["files"] if name == start["file"] else ():
            if told[0] == name and tuple(told) != known:
                raise SourceError(
                    f"{self._folder / name}: the file was changed after {start['row']} of its rows were "
                    f"read: it had {told[1]} rows and {told[2]} bytes, and has {known.rows} and "
                    f"{known.bytes}. Bring back the one that was there; new rows go into a file behind it"
                )
        return known

    def _all_in_place(self, start: Offset, names: list[str]) -> None:
        """Raise SourceError if a file lies where its rows would never be read, or one is missed."""
        before = [name for name in names if name <= start["file"]]
        half = any(file[0] == start["file"] and start["row"] < file[1] for file in start["files"])
        if half and start["file"] not in before:
            raise gone(self._folder / start["file"])
        if self._seen is None:  # this process has just begun
            changed = len(before) > start["names"] or not (
                self._may_go or (len(before), _digest(before)) == (start["names"], start["digest"])
            )
            if changed:
                newest = max(before, key=self._born, default="none")
                raise SourceError(
                    f"{self._folder}: up to {start['file']!r} there were {start['names']} files when it was "
                    f"read, and there are {len(before)} now, or others (the newest is {newest!r}). A file "
                    f"that came too late must get a name behind {start['file']!r}; one that was read must "
                    f"stay, unless .option({REMOVED!r}, 'true') is set"
                )
            self._seen = set(before)
        missing = sorted(self._seen.difference(before))
        if missing and not self._may_go:
            raise SourceError(
                f"{self._folder / missing[0]}: the file was read, and is gone. Bring it back, or set "
                f".option({REMOVED!r}, 'true')"
            )
        late = [name for name in before if name not in self._seen]
        if late:
            raise SourceError(
                f"{self._folder / late[0]}: the file came too late: rows up to {start['file']!r} were read, "
                "and its name stands in front of that. Give it a name behind"
            )

    def _born(self, name: str) -> int:
        try:
            return (self._folder / name).stat().st_ctime_ns
        except OSError:
            return 0


def listed(folder: Path) -> list[str]:
    """Names of the files of a folder that are read, in order.

    Raises
    ------
    SourceError
        The folder can't be listed; a name is no UTF-8.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError as error:
        raise SourceError(f"{folder}: the folder can't be listed: {error.strerror or error}") from error
    found = sorted(name for name in names if name.endswith(SUFFIXES) and not name.startswith((".", "_")))
    for name in found:
        if not is_text(name):
            raise SourceError(
                f"{folder}: the name {os.fsencode(name)!r} of a file is no UTF-8, and neither Arrow nor "
                "Spark can name it: rename the file"
            )
    return found


def _digest(names: list[str]) -> str:
    """The same for the same names."""
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()

"""Sources in files that know their place: Parquet, and Arrow IPC files and streams.

A place is (files read whole, part of the next one, row in it). A part is a row group of a Parquet file, or a
batch of an IPC file. Going there opens no earlier file and reads no earlier part. The place also says which
files were read, by name and size; a list that differs there is refused. Files may be added behind it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from ordstream.errors import OrdstreamError, SourceError, shown
from ordstream.ground.batches import BATCH_ROWS
from ordstream.ground.choices import gone_through
from ordstream.ground.long_rows import of_groups

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

Read = tuple[tuple[int, int] | None, pa.RecordBatch]

#: Names of files to come that a place has; of more it has the number. It is written with each snapshot.
NAMES_TO_COME = 100


class HandsOn:
    """What hands on the batches of a source, in which an error looks for the file.

    Attributes
    ----------
    source : Any
    """

    source: Any


class FileSource:
    """Files in order, one part after the other. Subclasses say what a part is.

    Parameters
    ----------
    paths : path, sequence of paths, or a pattern
        A pattern (with `*`, `?` or `[`) is taken once, now, sorted by name; a sequence in its order.

    Raises
    ------
    SourceError
        A file does not exist or is none, or no file matches.
    """

    def __init__(self, paths: Paths) -> None:
        self.paths = _listed(paths)
        self._sizes = [_size(path) for path in self.paths]
        self._start = (0, 0, 0)
        self._place = (0, 0, 0)
        #: The file that the last batch is of; empty: none was read.
        self.reading = ""

    def __repr__(self) -> str:
        count = [] if len(self.paths) == 1 else [f"{len(self.paths):,} files"]
        return f"{type(self).__name__}({', '.join([*map(repr, self.paths[:1]), *count])})"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Batches from the place that was sought last; without one, from the first file's start."""
        self._place = self._start
        return self._from(*self._start)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the first file: `od.Pipeline(source)` begins with them."""
        if not self.paths:
            raise SourceError("a source of no files has no columns: begin the pipeline with their schema")
        path = self.paths[0]
        try:
            return self._columns_of(path)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path} can't be read: {error}") from error

    def _columns_of(self, path: str) -> pa.Schema:
        """The columns that are read of a file."""
        raise NotImplementedError

    def _from(self, file: int, part: int, row: int) -> Iterator[pa.RecordBatch]:
        for number in range(file, len(self.paths)):
            path = self.reading = self.paths[number]
            try:
                for place, batch in self._read(path, part, row):
                    # Behind the last part a snapshot needs nothing of this file any more.
                    self._place = (number + 1, 0, 0) if place is None else (number, *place)
                    yield batch
            except OrdstreamError:
                raise
            except (OSError, pa.ArrowException) as error:
                raise SourceError(f"{path} can't be read: {error}") from error
            part = row = 0
            self._place = (number + 1, 0, 0)

    def _read(self, path: str, part: int, row: int) -> Iterator[Read]:
        """Batches of one file from a place on, each with the (part, row) behind it; None: the end."""
        raise NotImplementedError

    def position(self) -> dict[str, Any]:
        """The place behind the last batch: files that were read whole, part and row in the next one, which
        files these are, and which are to come.
        """
        number, part, row = self._place
        begun = number + bool(part or row)
        return {
            "file": number,
            "part": part,
            "row": row,
            "name": Path(self.paths[begun - 1]).name if begun else "",
            "size": self._sizes[begun - 1] if begun else 0,
            "files": self._digest(begun),
            "to_come": len(self.paths) - begun,
            "next": [Path(path).name for path in self.paths[begun : begun + NAMES_TO_COME]],
        }

    def seek(self, position: Any) -> None:
        """Go to a place that `position` gave; iterating begins there. Opens nothing.

        Raises
        ------
        SourceError
            It is no such place, the files before it are not the ones that were read, or one that was to
            come is gone.
        """
        number, part, row, name, size, digest = _checked(position)
        begun = number + bool(part or row)
        if begun > len(self.paths):
            raise SourceError(
                f"the snapshot lies in file {begun} of the source ({name!r}), but there are "
                f"{len(self.paths)} files: give all that were there, and new ones behind them"
            )
        if self._digest(begun) != digest:
            last, now = Path(self.paths[begun - 1]).name, self._sizes[begun - 1]
            if (last, now) == (name, size):
                told = "one before it was renamed, left out or changed in size"
            else:
                told = f"now it is {last!r} with {now} bytes"
            raise SourceError(
                f"the source's files are not those that the snapshot was taken of: number {begun} was "
                f"{name!r} with {size} bytes, {told}; put the files back as they were, new ones behind them"
            )
        self._check_to_come(begun, position)
        self._start = self._place = (number, part, row)

    def _check_to_come(self, begun: int, position: Mapping[str, Any]) -> None:
        """See that no file is gone before it was read: its rows would be missing, and nothing would tell."""
        # A place of an older release does not say what was to come.
        names, to_come = position.get("next", []), position.get("to_come", 0)
        now = Counter(Path(path).name for path in self.paths[begun:])
        gone = list((Counter(names) - now).elements())
        if not gone and to_come <= len(self.paths) - begun:
            return
        counts = f"{to_come} were to come, now {len(self.paths) - begun} are"
        raise SourceError(
            "the source's files are not those that the snapshot was taken of: behind number "
            f"{begun}, where it lies, {f'{gone[0]!r} is gone' if gone else counts}, and its rows were not "
            "read yet; put back what was there, or in its place a file of that name without rows, if they "
            "are to be left out"
        )

    def _digest(self, files: int) -> str:
        """Of names and sizes of the first files: short, however many there are."""
        known = hashlib.blake2b(digest_size=8)
        for path, size in zip(self.paths[:files], self._sizes, strict=False):
            name = os.fsencode(Path(path).name)
            known.update(b"%d:%b:%d;" % (len(name), name, size))
        return known.hexdigest()


class ParquetSource(FileSource):
    """Parquet files, row group by row group, as a source that knows its place.

    Parameters
    ----------
    paths : path, sequence of paths, or a pattern
        See `FileSource`.
    columns : sequence of str, default None
        Columns to read; None: all.

    Examples
    --------
    >>> source = od.ParquetSource("clicks/*.parquet")  # doctest: +SKIP
    >>> stream = pipeline.stream(source, checkpoint="state")  # doctest: +SKIP
    """

    def __init__(self, paths: Paths, columns: Sequence[str] | None = None) -> None:
        super().__init__(paths)
        if isinstance(columns, str):
            raise SourceError(f"columns is a list of names, got {columns!r}: write [{columns!r}]")
        self._columns = None if columns is None else list(columns)

    def _columns_of(self, path: str) -> pa.Schema:
        with pq.ParquetFile(path) as file:
            return self._chosen(path, file.schema_arrow)

    def _chosen(self, path: str, schema: pa.Schema) -> pa.Schema:
        if self._columns is None:
            return schema
        missing = [name for name in self._columns if name not in schema.names]
        if missing:
            raise SourceError(
                f"{path} has no column {missing[0]!r}; it has {', '.join(map(repr, schema.names))}"
            )
        return pa.schema([schema.field(name) for name in self._columns])

    def _read(self, path: str, part: int, row: int) -> Iterator[Read]:
        with pq.ParquetFile(path) as file:
            self._chosen(path, file.schema_arrow)
            groups = file.num_row_groups
            if part > groups or (row and (part == groups or row > file.metadata.row_group(part).num_rows)):
                raise SourceError(
                    f"{path} has {groups} row groups, and the snapshot lies in row {row} of group {part}: "
                    "the file was rewritten"
                )
            for group in range(part, groups):
                rows = file.metadata.row_group(group).num_rows
                start = row if group == part else 0
                behind = 0
                most = of_groups(BATCH_ROWS, file.metadata, range(group, group + 1), self._columns)
                for batch in file.iter_batches(most, row_groups=[group], columns=self._columns):
                    first, behind = behind, behind + batch.num_rows
                    if behind > start:
                        place = (group, behind) if behind < rows else (group + 1, 0)
                        rest = batch.slice(start - first) if start > first else batch
                        yield (place if place[0] < groups else None), rest


class IpcSource(FileSource):
    """Arrow IPC files ("Feather 2") and streams, batch by batch, as a source that knows its place.

    A stream has no index: going to a place in the middle of one reads the messages before it. Streams that
    were written one behind the other into a file are read one behind the other. Each batch is checked
    (`pyarrow.RecordBatch.validate`): one that a damaged file holds would be read beyond its memory.

    Parameters
    ----------
    paths : path, sequence of paths, or a pattern
        See `FileSource`. Each file is recognized by its first bytes.
    """

    def _columns_of(self, path: str) -> pa.Schema:
        with pa.OSFile(path) as data:
            opened = pa.ipc.open_file if _is_indexed(data, path) else pa.ipc.open_stream
            return opened(data).schema

    def _read(self, path: str, part: int, row: int) -> Iterator[Read]:
        with pa.OSFile(path) as data:
            if _is_indexed(data, path):
                file = pa.ipc.open_file(data)
                if part > file.num_record_batches:
                    raise _shorter(path, part)
                for number in range(part, file.num_record_batches):
                    last = number + 1 == file.num_record_batches
                    yield None if last else (number + 1, 0), _sound(file.get_batch(number))
                return
            number, ended = 0, False
            while not ended:
                for batch in pa.ipc.open_stream(data):
                    number += 1
                    if number > part:
                        yield (number, 0), _sound(batch)
                ended = data.tell() >= data.size()  # else another stream was written behind it
            if number < part:
                raise _shorter(path, part)


def _is_indexed(data: pa.NativeFile, path: str) -> bool:
    """Whether it is a file, with an index at its end, and no stream.

    Raises
    ------
    SourceError
        It is another kind of file: pyarrow would take its first bytes for the length of a message.
    """
    begins: bytes = data.read(8)
    size = data.size()
    data.seek(0)
    if begins.startswith(b"ARROW1"):
        return True
    if begins.startswith(b"PAR1"):
        raise SourceError(f"{path} is no Arrow IPC file, it is Parquet: od.ParquetSource")
    if begins.startswith(b"FEA1"):
        raise SourceError(f"{path} is no Arrow IPC file, it is Feather of version 1: write it as version 2")
    # a message begins with its length, behind four bytes of ones since Arrow 0.15; 0 is the stream's end
    marked = begins.startswith(b"\xff\xff\xff\xff")
    length = int.from_bytes(begins[4:] if marked else begins[:4], "little", signed=True)
    if not marked and not 0 <= length <= size:
        raise SourceError(
            f"{path} is no Arrow IPC file: text such as CSV and JSON is read by pyarrow.csv.open_csv(path) "
            "and pyarrow.json.open_json(path)"
        )
    return False


def _sound(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch whose offsets lie in its buffers and whose text is UTF-8: Arrow reads what the file says, and
    nothing behind looks at it again.
    """
    batch.validate(full=True)
    return batch


def _shorter(path: str, part: int) -> SourceError:
    return SourceError(f"{path} has fewer batches than the {part} that were read: the file was rewritten")


def _listed(paths: Paths) -> list[str]:
    given: Any = paths
    if not isinstance(given, str | os.PathLike):
        in_order = isinstance(given, Iterable) and not isinstance(given, bytes | Set | Mapping)
        several = gone_through(given) if in_order else None
        if several is None or not all(isinstance(path, str | os.PathLike) for path in several):
            raise SourceError(
                f"a path, a pattern or a list of paths is needed, in order, got {shown(given)}"
            )
        return [_named(os.fspath(path)) for path in several]
    path = _named(os.fspath(given))
    if glob.has_magic(path) and not Path(path).exists():
        matches = glob.glob(path, recursive=True)  # noqa: PTH207
        found = sorted(match for match in matches if Path(match).is_file())
        if not found:
            raise SourceError(f"no file matches {path!r}")
        return found
    return [path]


def _named(path: str) -> str:
    if not path or "\0" in path:
        raise SourceError(f"a path has a name, without zero bytes, got {path!r:.200}")
    return path


def _size(path: str) -> int:
    try:
        found = Path(path).stat()
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error.strerror}") from error
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    if not stat.S_ISDIR(found.st_mode):
        raise SourceError(
            f"{path} is no regular file (a pipe or a device), so there is no going to a place in it: give "
            "pyarrow.ipc.open_stream(...), or an iterator of its batches"
        )
    if next(Path(path).glob("*=*/"), None):
        raise SourceError(
            f"{path} is a folder of partitions, whose names are columns: give pyarrow.dataset.dataset(path, "
            "partitioning='hive')"
        )
    raise SourceError(f"{path} is a folder: give its files, for example {str(Path(path) / '*')!r}")


def _checked(position: Any) -> tuple[int, int, int, str, int, str]:
    kinds = {"file": int, "part": int, "row": int, "name": str, "size": int, "files": str}
    to_come = {"to_come": int, "next": list}  # not in those of older releases
    if (
        not isinstance(position, dict)
        or set(position) - set(to_come) != set(kinds)
        or any(type(position.get(name, kind())) is not kind for name, kind in to_come.items())
        or any(type(position[name]) is not kind for name, kind in kinds.items())
        or min(position["file"], position["part"], position["row"]) < 0
    ):
        raise SourceError(
            f"the snapshot's position is {position!r:.200}, which is no place in files: give the source "
            "that the snapshot was taken of"
        )
    return tuple(position[name] for name in kinds)

"""What Spark's source of files writes down of the files that it has given, by numbers of its own: an entry
has the files of a batch, every tenth (`.compact`) those of all before as well.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ordstream.errors import SourceError
from ordstream.snapshots.files import Files
from ordstream.spark.streaming.spark_log import COMPACT, OFFSETS, SOURCES, SPARK, cut, entries

_PATTERN = re.compile(r"[][{}*?\\]")
_BLOCK = 1 << 16


def check_names(stream: Path, seen: dict[str, int]) -> None:
    """Look at the names of the files that Spark's source of files gives in a micro-batch.

    Parameters
    ----------
    stream : Path
    seen : dict
        By source, the number in its log that was looked at last; of a source that is not there yet only the
        newest is looked at.

    Raises
    ------
    SourceError
        There are several, and one has a sign of patterns: Spark takes each name for a pattern then, and
        gives the rows of all files once for each (Spark 4.3).
    """
    for source in sorted((stream / SPARK / SOURCES).glob("*")):
        there = entries(source)
        last = max(there, default=-1)
        before, seen[source.name] = seen.get(source.name, last - 1), last
        new = range(before + 1, last + 1)
        files = [name for number in new for name in _names(there.get(number), number)]
        odd = [name for name in map(unquote, files) if _PATTERN.search(name)]
        if odd and len(files) > 1:
            raise SourceError(
                f"{odd[0]}: Spark's source of files takes the names of the {len(files)} files of this "
                "micro-batch for patterns, and would give rows twice. Read them by "
                "spark.readStream.format('ordstream.files'), or give them names without [ ] { } * ? and "
                "backslashes, and begin anew with another checkpoint"
            )


def take_back(files: Files, stream: Path, batch: int) -> None:
    """Let a source give again what Spark's plans up to a batch have not, in batches of the size that the
    reader asks for: by an entry that stays its files are given already, and the next plan takes all of them.

    It stays where that is not sure: another source, entries that are missing, files that are not local.

    Warns
    -----
    RuntimeWarning
        Files are gone: Spark would leave them out without a word.
    """
    plans = {at: path for at, path in entries(stream / SPARK / OFFSETS).items() if at <= batch}
    try:
        planned = plans[max(plans)].read_text().splitlines()[2:] if plans else None
    except OSError:
        return
    for source in sorted((stream / SPARK / SOURCES).glob("*")):
        there = entries(source)
        last = -1 if planned is None else _planned(planned, source.name)
        if last is None or not _says_all(there, last):
            continue
        behind = [number for number in there if number > last]
        names = [_names(there[number], number) for number in behind]
        places = [urlsplit(name) for some in names for name in some]
        if not all(names) or any(place.scheme not in ("", "file") for place in places):
            continue
        paths = [Path(unquote(place.path)) for place in places]
        if gone := [path for path in paths if not path.exists()]:
            warnings.warn(
                f"{gone[0]}: of {len(paths)} files that will be read again {len(gone)} are gone, and Spark "
                "leaves them out without a word: bring them back before the stream starts",
                RuntimeWarning,
                stacklevel=3,
            )
        cut(files, source, last)


def _planned(plan: list[str], source: str) -> int | None:
    """How far a plan takes a source of files; None: it is none, or this is another release's form."""
    try:
        said = plan[int(source)]
        return -1 if said == "-" else int(json.loads(said)["logOffset"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _says_all(there: dict[int, Path], last: int) -> bool:
    """Whether entries up to a number say all files."""
    for number in range(last, -1, -1):
        if number not in there:
            return False
        if there[number].name.endswith(COMPACT):
            return True
    return True


def _names(path: Path | None, number: int) -> list[str]:
    """Of the files that came with an entry: its last lines. What can't be read is Spark's to tell."""
    names: list[str] = []
    if path is None:
        return names
    try:
        for line in _from_the_end(path):
            if not line or line.startswith(b"v"):  # the version
                continue
            one = json.loads(line)
            if one["batchId"] != number:
                break
            names.append(str(one["path"]))
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return names[::-1]


def _from_the_end(path: Path) -> Iterator[bytes]:
    """A file's lines, the last first; what nobody asks for is not read."""
    with path.open("rb") as file:
        at, begun = file.seek(0, os.SEEK_END), b""
        while at > 0:
            size = min(_BLOCK, at)
            at = file.seek(at - size)
            begun, *lines = (file.read(size) + begun).split(b"\n")
            yield from reversed(lines)
        yield begun

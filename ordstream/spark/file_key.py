"""What stands for a file's path where rows are sorted by their place in the source.

Every row carries it through a shuffle and two sorts, and rows whose columns all have a fixed width go
through these faster. So where all files of a frame lie in one folder, it is a number: the one in their names
(``part-00017-...``), or where a name stands among the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

PATH, NAME = "_metadata.file_path", "_metadata.file_name"
#: Listed files of a frame are looked at up to so many characters of paths.
MOST_TEXT = 4 << 20
#: So many names at most are compared with a row's: Java compiles no method of more.
MOST_COMPARED = 64
#: Digits of a number of 64 bits.
MOST_DIGITS = 18
#: So many are compared sooner than a number in the row's name is read (5 ns a row, and 32).
FEW = 8
#: A number of so many digits, at most, is in front of a row's number in 64 bits.
SMALL_DIGITS = 6
ROW_BITS = 40
#: In such paths nothing is spelt in two ways (spaces, %20).
_PLAIN = re.compile(r"[A-Za-z0-9_.:/=+-]+")


def file_key(frame: DataFrame) -> tuple[Column, bool]:
    """A column of a frame of files that orders rows as the paths of their files do, and whether it is a
    number that leaves room for a row's beside it (`with_row`).

    Cost: one call into Java for the paths.
    """
    names = _names_in_one_folder(_paths(frame))
    at = number_at(names)
    if at is not None and len(names) > FEW:
        begin, width = at
        # a table's folder may have another file by the time it is read: NULL then, which orders as well
        number = F.substring(F.col(NAME), begin + 1, width).try_cast("long")
        return number, width <= SMALL_DIGITS
    ranked = 0 < len(names) <= MOST_COMPARED
    return (_rank(names, 0) if ranked else F.col(PATH)), ranked


def with_row(key: Column, row: Column) -> Column:
    """File and row in one number, by a small `file_key`."""
    return F.shiftleft(F.coalesce(key.cast("long"), F.lit(-1)), ROW_BITS).bitwiseOR(row)


def number_at(names: Sequence[str]) -> tuple[int, int] | None:
    """Where in all these names, in ascending order, a number of as many digits stands that orders them:
    its first character and its digits; None: nowhere.
    """
    if not names or not names[0].isascii():
        return None
    begin = next((k for k, (a, b) in enumerate(zip(names[0], names[-1], strict=False)) if a != b), 0)
    while begin and names[0][begin - 1].isdigit():
        begin -= 1
    width = 0
    while width < MOST_DIGITS and all(name[begin + width : begin + width + 1].isdigit() for name in names):
        width += 1
    numbers = {name[begin : begin + width] for name in names}
    return (begin, width) if width and len(numbers) == len(names) else None


def _rank(names: Sequence[str], first: int) -> Column:
    """Which of these names a row's file has, from `first` on; by halving."""
    if len(names) == 1:
        return F.lit(first)
    half = len(names) // 2
    before, behind = _rank(names[:half], first), _rank(names[half:], first + half)
    return F.when(F.col(NAME) < F.lit(names[half]), before).otherwise(behind)


def _paths(frame: DataFrame) -> list[str]:
    """Of the frame's files; []: they are too many, or nobody can be asked (Spark Connect)."""
    try:
        jvm: Any = frame.sparkSession._jvm
        # one call for all of them
        text: str = jvm.org.apache.hadoop.util.StringUtils.join("\n", frame._jdf.inputFiles())
    except Exception:  # no JVM behind this session, or another version of Spark: slower, not wrong
        return []
    return text.split("\n") if 0 < len(text) <= MOST_TEXT else []


def _names_in_one_folder(paths: Sequence[str]) -> list[str]:
    """The names, ascending, of files that all lie in one folder; []: they do not, or may be spelt in two
    ways.
    """
    folders = {path.rpartition("/")[0] for path in paths}
    names = sorted({path.rpartition("/")[2] for path in paths})
    plain = all(_PLAIN.fullmatch(path) for path in paths)
    return names if len(folders) == 1 and len(names) == len(paths) and plain else []

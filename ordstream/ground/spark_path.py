"""Paths of this machine's file system, mounted ones among them, as Spark takes them: without "file:" it
looks in the file system that is its default, which on a cluster is another one (HDFS).
"""

from __future__ import annotations

import re
from pathlib import Path

_PATTERN = re.compile(r"[\[\]{}*?\\]")


def location(path: Path) -> str:
    """Of a file or folder that Spark writes."""
    return f"file:{path}"


def to_read(path: Path) -> str:
    """Of a file that Spark reads: it takes some signs for patterns of names."""
    return location(Path(_PATTERN.sub(r"\\\g<0>", str(path))))

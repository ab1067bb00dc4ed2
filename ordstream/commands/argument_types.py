"""What an argument of the command line may be: the `type=` of several commands' arguments."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def folder(text: str) -> Path:
    """A folder to write to, which need not be there."""
    path = named_folder(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is there, and is no folder")
    return path


def folder_of_tables(text: str) -> Path:
    """A folder to write to, by pyarrow."""
    return source(str(folder(text)))


def source(text: str) -> Path:
    """A folder to read, by pyarrow."""
    path = named_folder(text)
    if told := not_utf8(os.fspath(path.absolute())):
        raise argparse.ArgumentTypeError(told)
    return path


def named_folder(text: str) -> Path:
    """A folder. No text would be the one that the command is in."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a folder, '.' for this one")
    return Path(text)


def not_utf8(path: str) -> str:
    """What to say of a path that pyarrow can't open, since it takes paths in UTF-8 alone; empty: it can.

    Python has a surrogate for each byte of a name that is no text in the locale's encoding.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        pass
    else:
        return ""
    try:
        named = os.fsencode(path).decode()
    except UnicodeError:
        return f"{path!r} has bytes in its name that are not UTF-8, which pyarrow can't open: rename it"
    return (
        f"{named!a} is no text in this locale, and pyarrow can't open it: start Python with PYTHONUTF8=1, "
        "or choose a locale of UTF-8 (LC_ALL=C.UTF-8)"
    )

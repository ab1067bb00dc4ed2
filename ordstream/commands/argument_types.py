"""What an argument of the command line may be: the `type=` of several commands' arguments."""

from __future__ import annotations

import argparse
from pathlib import Path


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def folder(text: str) -> Path:
    """A folder to write to, which need not be there."""
    path = Path(text)
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a folder, '.' for this one")
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is there, and is no folder")
    return path

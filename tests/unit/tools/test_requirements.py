"""The oldest package that pip may choose has what is called of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Functions of pyarrow, and the version in which each came. Others that are called are in version 18.
NEWER = {"pa.concat_batches(": 19}


@pytest.mark.parametrize("name", NEWER)
def test_the_oldest_pyarrow_has_what_is_called(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = next(one for one in project["dependencies"] if one.startswith("pyarrow"))
    oldest = re.fullmatch(r"pyarrow>=(\d+)", asked)
    assert oldest, asked
    assert any(name in file.read_text() for file in (ROOT / "ordstream").rglob("*.py"))
    assert int(oldest[1]) >= NEWER[name]

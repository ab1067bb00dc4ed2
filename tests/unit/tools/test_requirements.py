"""The oldest package that pip may choose has what is called of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: Functions of pyarrow, and the version in which each came. Others that are called are in version 18.
NEWER = {"pa.concat_batches(": 19}


def names(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in requirements}


@pytest.mark.parametrize("name", NEWER)
def test_the_oldest_pyarrow_has_what_is_called(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = next(one for one in project["dependencies"] if one.startswith("pyarrow"))
    oldest = re.fullmatch(r"pyarrow>=(\d+)", asked)
    assert oldest, asked
    assert any(name in file.read_text() for file in (ROOT / "ordstream").rglob("*.py"))
    assert int(oldest[1]) >= NEWER[name]


def test_the_tests_have_all_of_spark_connect() -> None:
    """Of what PySpark's extra asks for. With a part of it missing the client ends at once."""
    pytest.importorskip("pyspark")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ours = names(project["dependencies"] + project["optional-dependencies"]["test"])
    asked = names(one for one in requires("pyspark") or () if one.endswith('extra == "connect"'))
    assert "grpcio" in asked
    assert asked <= ours

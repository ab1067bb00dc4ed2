"""What README and docs print is what the program takes: the example runs, commands parse, make targets and files exist."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from ordstream.cli import _parser
from ordstream.testing import run_serial

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}

CLICKS = pa.table(
    {
        "user": [1, 2, 1, None, 2, 1, 3, 2],
        "ts": [10, 20, 30, 40, 50, 60, 70, 9_000],
        "item": [7, 8, 9, 7, 7, 8, 9, 9],
    }
)


def blocks(page, language):
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)


def test_the_example_of_the_readme(monkeypatch):
    """Spark's part is checked for what `apply` takes; tests/spark runs it."""
    spark = pytest.importorskip("ordstream.spark")
    signature, calls = inspect.signature(spark.apply), []
    monkeypatch.setattr(spark, "apply", lambda *given, **named: calls.append(signature.bind(*given, **named).arguments))
    (code,) = blocks(ROOT / "README.md", "python")
    names = {"schema": CLICKS.schema, "batches": CLICKS.to_batches(3), "df": "a DataFrame"}
    exec(code, names)
    assert names["result"].table.equals(run_serial(names["pipeline"], CLICKS).table)
    assert names["result"].table.to_pylist()[0] == {"left": 7, "right": 8, "count": 2}
    assert [call.get("nodes") for call in calls] == [None, "auto"]


def test_commands_parse():
    found = [line for page in PAGES for block in blocks(page, "console") for line in block.splitlines()]
    found = [line.partition(" #")[0] for line in found if line.startswith("$ .venv/bin/ordstream ")]
    assert len(found) >= 4
    for line in found:
        _parser().parse_args(shlex.split(line)[2:])


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for text in TEXTS.values() for name in re.findall(r"(?:`|\$ )make ([a-z-]+)", text)}
    assert len(named) > 8
    assert named <= targets


def test_files_that_are_linked_exist():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)\)", TEXTS[page])]
    assert len(links) > 5
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]

"""What README and docs print is what the program takes: their Python runs, commands parse, make targets
and files exist.
"""

from __future__ import annotations

import argparse
import re
import shlex

import pyarrow as pa
import pytest
from pages import PAGES, ROOT, TEXTS, anchors, console_blocks, python_blocks, run_blocks

import ordstream as od
from ordstream.commands.cli import _parser
from ordstream.reference.run_serial import run_serial

WITH_PYTHON = [page for page in PAGES if python_blocks(page)]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_python_blocks_run(page, capsys, tmp_path, monkeypatch):
    """Those that start Spark run in tests/spark."""
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page, capsys, spark=False) == sum(not block.spark for block in python_blocks(page))


def test_the_example_of_the_readme_is_a_sequential_run():
    code = python_blocks(ROOT / "README.md")[0].code
    names = {"print": lambda row: None}
    exec(code, names)
    assert names["result"].table.equals(run_serial(names["pipeline"], names["clicks"]).table)
    assert names["result"].table.to_pylist()[0] == {"left": 7, "right": 8, "count": 2}


def test_what_a_page_shows_is_compared(monkeypatch, capsys, tmp_path):
    """A block's output, names that an earlier block made, and the marks of Spark."""
    page = tmp_path / "page.md"
    first = "```python\nx = 1\n```\ntext\n\n```\nnot its output\n```\n"
    second = "```python\nprint(x)\n```\n\n```\n{}\n```\n"
    text = f"{first}\n{second}\n```python spark\nabsent\n```\n"
    monkeypatch.setitem(TEXTS, page, text.format(1))
    assert run_blocks(page, capsys, spark=False) == 2
    monkeypatch.setitem(TEXTS, page, text.format(2))
    with pytest.raises(AssertionError, match=r"page.md, line 11"):
        run_blocks(page, capsys, spark=False)
    monkeypatch.setitem(TEXTS, page, text.format(1))
    with pytest.raises(NameError, match="absent"):
        run_blocks(page, capsys, spark=True)


def options(parser):
    """Of a parser and all its commands: the commands' names and every --option."""
    found = set(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                command.fill()
                found |= {name} | options(command)
    return found


def test_commands_parse():
    found = [line for page in PAGES for block in console_blocks(page) for line in block.splitlines()]
    found = [line.partition(" #")[0] for line in found if line.startswith("$ .venv/bin/ordstream ")]
    assert len(found) >= 4
    for line in found:
        _parser().parse_args(shlex.split(line)[2:])


def test_commands_and_options_in_the_text_exist():
    """`ordstream run q2 --emit all` in a sentence: the command, and each option of some command."""
    known = options(_parser())
    shown = re.compile(r"`(?:\.venv/bin/)?ordstream ([a-z][^`]*)`")
    named = [text for page in PAGES for text in shown.findall(TEXTS[page])]
    assert len(named) > 5
    wrong = [text for text in named if text.split()[0] not in known]
    assert not wrong
    given = {option for text in named for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}
    assert given <= known


def test_every_name_of_the_package_is_where_it_says():
    """They are imported when they are first used."""
    pytest.importorskip("ordstream._core")
    for name in od.__all__:
        assert getattr(od, name) is not None
        assert name in dir(od)
    assert set(od._HOME_OF) == set(od.__all__)
    assert set(dir(od)) <= {*od.__all__, *od._SUBMODULES, "__version__"}
    assert od.Pipeline is __import__("ordstream.pipeline", fromlist=["Pipeline"]).Pipeline
    assert isinstance(od.Pipeline(pa.schema([("x", pa.int64())])), od.Pipeline)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {name for text in TEXTS.values() for name in re.findall(r"(?:`|\$ )make ([a-z-]+)", text)}
    assert len(named) > 8
    assert named <= targets


def test_files_that_are_linked_exist():
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#:]+)\)", TEXTS[page])]
    assert len(links) > 5
    assert not [f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()]


def test_files_that_are_named_exist():
    """A path from the top of the repository; diary and changelog may name what was there."""
    named = re.compile(
        r"\b(?:tests|ordstream|bench|docs|tools|examples)/[\w/.]+\.(?:py|pyx|pxd|hpp|pml|md)\b"
    )
    now = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "lab"]
    found = [(page.name, path) for page in now for path in named.findall(TEXTS[page])]
    assert len(found) > 40
    assert not [one for one in found if not (ROOT / one[1]).exists()]


def test_files_that_are_named_without_their_folder_exist():
    """In pages, and in what the sources say of themselves: `slices.pyx`."""
    named = re.compile(r"`(?:\w+/)*(\w+\.(?:py|pyx|pxd|hpp|pml))`")
    there = {path.name for folder in ("ordstream", "tests", "bench", "tools", "examples")
             for path in (ROOT / folder).rglob("*.*")} | {"setup.py"}  # fmt: skip
    now = [page for page in PAGES if page.name != "CHANGELOG.md" and page.parent.name != "lab"]
    texts = {page: TEXTS[page] for page in now}
    for path in (ROOT / "ordstream").rglob("*.p*"):
        if path.suffix in (".py", ".pyi", ".pyx", ".pxd"):
            texts[path] = path.read_text(encoding="utf-8")
    found = [(path.name, name) for path, text in texts.items() for name in named.findall(text)]
    assert len(found) > 100
    assert not [one for one in found if one[1] not in there]


def test_headings_that_are_linked_exist():
    links = [(page, *link) for page in PAGES for link in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", TEXTS[page])]
    assert len(links) > 5
    there = {page: anchors(page) for page in PAGES}
    wrong = [
        f"{page.name}: {file}#{name}"
        for page, file, name in links
        if name not in there[(page.parent / file).resolve() if file else page]
    ]
    assert not wrong


def test_lines_are_short():
    """Of the documentation: under 110 columns, tables apart, which cannot be broken."""
    long = [
        f"{page.relative_to(ROOT)}, line {number}"
        for page in PAGES
        for number, line in enumerate(TEXTS[page].splitlines(), 1)
        if len(line) >= 110 and not line.startswith("|")
    ]
    assert not long

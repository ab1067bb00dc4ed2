"""The pages of the documentation and their code blocks, as the tests run them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "bench" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}


class Block(NamedTuple):
    """A fenced block of Python: its code, whether it starts Spark (```python spark), and the output that
    the page shows behind it.
    """

    line: int
    code: str
    spark: bool
    shown: str | None


def python_blocks(page: Path) -> list[Block]:
    """All of a page, in order. A block without a language, right behind one of Python, is what that one
    prints.
    """
    found = re.finditer(
        r"^```(python[^\n]*)\n(.*?)^```\n(?:\n```\n(.*?)^```$)?", TEXTS[page], re.DOTALL | re.MULTILINE
    )
    blocks = []
    for match in found:
        language, code, shown = match.groups()
        assert language in ("python", "python spark"), f"{page.name}: ```{language}"
        blocks.append(
            Block(TEXTS[page].count("\n", 0, match.start(2)) + 1, code, language == "python spark", shown)
        )
    return blocks


def console_blocks(page: Path) -> list[str]:
    """All of a page."""
    return re.findall(r"^```console\n(.*?)^```", TEXTS[page], re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a link may name behind `#`: the headings of a page, as GitHub spells them."""
    headings = re.findall(r"^#+ (.*)$", TEXTS[page], re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def run_blocks(page: Path, capsys: object, spark: bool) -> int:
    """Run a page's blocks in one namespace, in the order of the page, those of Spark only if asked; returns
    how many ran.

    What a block prints must be what the page shows.
    """
    names: dict[str, object] = {"__name__": "__main__"}
    ran = 0
    for block in python_blocks(page):
        if block.spark and not spark:
            continue
        # Its lines are those of the page, in a trace.
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
        printed = capsys.readouterr().out  # type: ignore[attr-defined]
        assert printed == (block.shown or ""), f"{page.name}, line {block.line}"
        ran += 1
    return ran

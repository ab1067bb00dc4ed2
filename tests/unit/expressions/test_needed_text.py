"""Regular expressions whose matches have a text in common: only values that have it go to Arrow."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ordstream as od
from ordstream.expressions.arrow_call import ArrowCall
from ordstream.expressions.needed_text import needed_text
from ordstream.testing import run_serial

NEEDED = {
    r"error: \d+": "error: ",
    r"[a-z]+: \d+": ": ",
    r"(user)=(\w+) ": "user",
    r"(?P<name>abc)+d": "abc",
    r"(abc)*d": "d",
    r"(abc){0,2}": "",
    r"(a(bcd)?e)": "a",
    r"abc?d+e*": "ab",
    r"^GET /x\.y$": "GET /x.y",
    r"[]ab]c[[:alpha:]]": "c",
    r"a|b": "",
    r"(?i)abc": "",
    r"\Qa.b\E": "",
    r"\x61bc": "",
    r"abc\pL": "",
    r"x{,2}": "",
    r"größe=\d": "größe=",
    r"\d+": "",
}


@pytest.mark.parametrize("pattern", NEEDED)
def test_what_each_match_contains(pattern: str) -> None:
    assert needed_text(pattern) == NEEDED[pattern]


def _pattern(r: random.Random, depth: int = 2) -> str:
    signs = [*"ab:ä", r"\d", r"\.", ".", "^", "$", "[^a]", "[]a]", "{", "a{1,2}", r"\x61", r"\pL", "|"]
    made = ""
    for _ in range(r.randrange(1, 6)):
        if depth and r.random() < 0.2:
            made += f"({r.choice(['', '?:', '?i:', f'?P<g{r.random():.9f}>'.replace('0.', '')])}"
            made += f"{_pattern(r, depth - 1)})"
        else:
            made += r.choice(signs[:4] if r.random() < 0.6 else signs)
        made += r.choice(["*", "+", "?", "*?", "{2}", "{0,1}"]) if r.random() < 0.25 else ""
    return made


def test_no_match_is_without_it() -> None:
    r = random.Random(5)
    tried = 0
    for _ in range(4000):
        pattern, needed = _pattern(r), ""
        texts = ["".join(r.choices("ab:äAB19. {}-]", k=r.randrange(12))) for _ in range(12)]
        try:
            matches = pc.match_substring_regex(pa.array(texts), pattern).to_pylist()
        except pa.ArrowInvalid:
            continue
        needed = needed_text(pattern)
        tried += bool(needed) and any(matches)
        assert all(needed in text for text, match in zip(texts, matches, strict=True) if match), pattern
    assert tried > 500


def _texts(n: int, share: float, seed: int = 2) -> pa.Table:
    r = random.Random(seed)
    made: list[str | None] = []
    for _ in range(n):
        text = "".join(r.choices("abcdeér: ", k=r.choice([0, 5, 300, 1200])))
        made.append(r.choice([text + " error: 17", "error: x" + text, text + "error: 5" + text]))
        if r.random() >= share:
            made[-1] = r.choice([None, "", text, text])
    return pa.table({"s": pa.array(made, pa.string()), "row": range(n)})


TEXT = od.col("s").str
CALLS: dict[str, Any] = {
    "contains": TEXT.contains(r"error: \d+", regex=True),
    "count": TEXT.count_matches(r"error: \d"),
    "replace": TEXT.replace(r"error: (\d)", r"<\1>", regex=True),
    "replace once": TEXT.replace(r"error: .", "!", n=1, regex=True),
    "extract": TEXT.extract(r"error: (\d+)"),
    "extract all": TEXT.extract(r"error: (\d+)", 0),
}


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("chunk_rows", [1, 50, 4096])
def test_beside_run_serial(share: float, chunk_rows: int) -> None:
    rows = _texts(300, share)
    columns = {name.replace(" ", "_"): call for name, call in CALLS.items()}
    pipeline = od.Pipeline(rows.schema).filter(od.col("row") % 7 != 3).select("row", **columns)
    assert pipeline.run(rows, chunk_rows=chunk_rows).table.equals(run_serial(pipeline, rows).table)


@pytest.mark.parametrize("name", CALLS)
def test_arrow_gets_the_values_that_have_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It got all of them: some ten times as slowly as the text is looked for."""
    rows = _texts(400, 0.1)
    has = sum("error: " in (text or "") for text in rows["s"].to_pylist())
    given: list[int] = []
    array = ArrowCall.array

    def noted(self: ArrowCall, values: pa.Array) -> pa.Array:
        given.append(len(values))
        return array(self, values)

    pipeline = od.Pipeline(rows.schema).select(x=CALLS[name])
    monkeypatch.setattr(ArrowCall, "array", noted)
    pipeline.run(rows, chunk_rows=400)
    assert 0 < has < 100
    assert set(given) == {has}


def test_long_texts_are_searched_as_python_does() -> None:
    r = random.Random(9)
    for _ in range(60):
        letters = r.choice(["ab", "etaoin ", "a: 9é"])
        texts = [
            "".join(r.choices(letters, k=r.choice([250, 255, 256, 257, 320, 321, 700]))) for _ in range(30)
        ]
        start, size = r.randrange(200), r.choice([1, 2, 3, 4, 7, 15, 31, 32, 33, 40])
        needle = texts[0][start : start + size]
        needle = needle if r.random() < 0.5 else needle[:-1] + r.choice(letters)
        rows = pa.table({"s": texts})
        found = od.Pipeline(rows.schema).select(x=TEXT.contains(needle)).run(rows, workers=0).table["x"]
        assert found.to_pylist() == [needle in text for text in texts]

"""The everyday examples: short, and with the answers of other engines; the page of operators."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from ordstream.operators.operator import Operator

ROOT = Path(__file__).parents[2]
JOBS = (
    "filter_and_map",
    "word_count",
    "running_total",
    "deduplicate",
    "difference",
    "last_three",
    "fraud_rule",
    "enrichment",
    "two_sources",
    "join_within",
    "local_suppliers",
)


@pytest.fixture
def bench(monkeypatch):
    """Modules of the bench folder, by name."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "everyday"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in {"everyday", "operators", "events", "orders"} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("job", JOBS)
def test_an_example_gives_what_other_engines_give(job, bench):
    everyday, events = bench("everyday"), bench("events")
    found = everyday.example(job, 5000)
    assert len(found) > 5
    for engine, prepare in everyday.RIVALS[job].items():
        assert everyday.same(found, prepare(events.events(5000))()), engine


def test_the_compiled_rule_is_the_rule(bench):
    pytest.importorskip("numba")
    everyday = bench("everyday")
    assert everyday.example("fraud_rule", 5000, "--compiled").equals(everyday.example("fraud_rule", 5000))


def test_examples_are_short(bench):
    for file in (ROOT / "examples" / "everyday").glob("*.py"):
        assert len(file.read_text().splitlines()) < 25, file.name
    assert set(bench("everyday").RIVALS) == set(JOBS)


def test_the_page_of_operators_is_up_to_date(bench):
    """Every operator is on it; `python bench/operators.py --page` writes it."""
    import json

    operators = bench("operators")
    figures = json.loads(operators.RESULTS.read_text()) if operators.RESULTS.exists() else {}
    assert (ROOT / "docs" / "operators.md").read_text(encoding="utf-8") == operators.page(figures)
    shown = {one.op for made in operators.pipelines() for one in made.plan.operators}
    assert shown >= names(Operator) - {"compiled", "python_batch"}


def names(kind: type[Operator]) -> set[str]:
    """What the operators below a class are called; tests and the laboratory have some of their own."""
    own = {kind.op} - {""} if kind.__module__.startswith("ordstream.operators.") else set()
    return own | {name for below in kind.__subclasses__() for name in names(below)}

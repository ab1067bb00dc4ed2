"""Exhaustive checks of the protocols with SPIN, and of the checks: each mutant must be caught.

The models say how the code synchronises; what C++ makes of the memory orders is for
tests/stress/test_litmus.py and the sanitizers. Run with:  pytest tests/models
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

Defines = dict[str, int | None]
Check = Callable[[str, Defines], tuple[int, str]]


@pytest.fixture
def check(tmp_path: Path, spin: tuple[str, str], record_property: Callable[[str, object], None]) -> Check:
    """A function from a model and its sizes to (errors, pan's report) of an exhaustive safety run, invalid
    end states included.

    Each run is recorded, so that the summary tells how many there were.
    """
    program, compiler = spin

    def run(model: str, defines: Defines) -> tuple[int, str]:
        options = [f"-D{name}" if value is None else f"-D{name}={value}" for name, value in defines.items()]
        source = HERE / f"{model}.pml"
        made = subprocess.run(
            [program, *options, "-a", str(source)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stdout + made.stderr
        # Not optimised: an optimising compiler takes longer than the checks of all these sizes do (94 s of
        # CPU together, and 40 s so).
        built = subprocess.run(
            [compiler, "-O0", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert built.returncode == 0, built.stderr
        ran = subprocess.run(
            ["./pan", "-m1000000", "-n"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        found = re.search(r"errors: (\d+)", ran.stdout)
        assert found, ran.stdout + ran.stderr
        assert "max search depth too small" not in ran.stdout, ran.stdout
        assert "Search not completed" not in ran.stdout or int(found[1]) > 0, ran.stdout
        record_property("model", f"{model} {' '.join(options)}")
        return int(found[1]), ran.stdout

    return run


RIGHT: list[tuple[str, Defines]] = [
    ("reorder_buffer", {"W": 2, "S": 2, "N": 5}),
    ("reorder_buffer", {"W": 3, "S": 1, "N": 4}),
    ("reorder_buffer", {"W": 3, "S": 2, "N": 4}),
    ("reorder_buffer", {"OFFER": None, "W": 2, "S": 2, "N": 5}),
    ("reorder_buffer", {"OFFER": None, "W": 3, "S": 2, "N": 4}),
    ("reorder_buffer", {"OFFER": None, "PEEK": None, "W": 2, "S": 2, "N": 5}),
    ("reorder_buffer", {"OFFER": None, "PEEK": None, "W": 3, "S": 2, "N": 4}),
    ("reorder_buffer", {"OFFER": None, "PEEK": None, "BEHIND": None, "W": 2, "S": 4, "N": 5}),
    ("reorder_buffer", {"OFFER": None, "PEEK": None, "BEHIND": None, "W": 3, "S": 3, "N": 4}),
    ("hybrid_queue", {"K": 2, "W": 2, "S": 2, "N": 4, "R": 2}),
    ("hybrid_queue", {"K": 3, "W": 2, "S": 1, "N": 4, "R": 4}),
    ("hybrid_queue", {"K": 2, "W": 3, "S": 4, "N": 4, "R": 2}),
    ("hybrid_queue", {"CLAIM": None, "K": 2, "W": 2, "S": 2, "N": 4, "R": 2}),
    ("hybrid_queue", {"CLAIM": None, "K": 2, "W": 2, "S": 3, "N": 5, "R": 2}),
    ("hybrid_queue", {"CLAIM": None, "K": 2, "W": 3, "S": 4, "N": 4, "R": 2}),
    ("park", {"W": 1, "S": 2, "N": 4}),
    ("park", {"W": 2, "S": 2, "N": 5}),
    ("park", {"W": 3, "S": 2, "N": 4}),
    ("exchange", {"N": 4}),
    ("exchange", {"N": 3, "CAP": 2}),
    ("exchange", {"N": 3, "CAP": 2, "LATE": 2}),
    ("exchange", {"FAILS": 1, "N": 3}),
    ("exchange", {"FAILS": 1, "N": 2, "CAP": 2, "LATE": 2}),
    ("exchange", {"FAILS": 2, "N": 2, "CANCEL": None}),
    ("exchange", {"AHEAD": 0, "N": 4}),
    ("exchange", {"AHEAD": 1, "N": 3, "CAP": 2, "LATE": 2}),
    ("exchange", {"AHEAD": 0, "FAILS": 1, "N": 3}),
    ("exchange", {"AHEAD": 0, "FAILS": 2, "N": 2, "CANCEL": None}),
    ("moves", {}),
    ("moves", {"FAILS": 1, "N": 2}),
    ("moves", {"FAILS": 2, "N": 2, "MOVES": 1}),
]

MUTANTS: list[tuple[str, str, Defines]] = [
    ("reorder_buffer", "NO_RECHECK", {"W": 2}),
    ("reorder_buffer", "NEXT_ZERO", {"W": 2}),
    ("reorder_buffer", "STORE_SWAP", {"W": 2, "S": 1}),
    ("reorder_buffer", "NO_GATE", {"W": 2, "S": 1}),
    ("reorder_buffer", "WEAK_CLEAR", {"W": 2}),
    ("reorder_buffer", "NO_FLAG", {"W": 2}),
    ("reorder_buffer", "WEAK_CLEAR", {"OFFER": None, "W": 2}),
    ("reorder_buffer", "OFFER_NO_FLAG", {"OFFER": None, "W": 2}),
    ("reorder_buffer", "OFFER_LEAVES", {"OFFER": None, "W": 2}),
    ("reorder_buffer", "PEEK_FIRST", {"OFFER": None, "PEEK": None, "W": 2}),
    ("reorder_buffer", "BEHIND_LATE", {"OFFER": None, "PEEK": None, "BEHIND": None, "W": 2, "S": 3, "N": 4}),
    ("hybrid_queue", "MASTER_FIRST", {}),
    ("hybrid_queue", "NO_HANDOVER", {}),
    ("hybrid_queue", "TAIL", {"K": 3, "W": 2, "S": 1, "N": 5}),
    ("hybrid_queue", "LOSE", {"K": 2, "W": 3, "S": 5, "N": 5, "R": 2}),
    ("hybrid_queue", "HOLD_ON", {"CLAIM": None, "K": 2, "W": 2, "S": 2, "N": 4}),
    ("hybrid_queue", "NO_HANDOVER", {"CLAIM": None}),
    ("hybrid_queue", "MASTER_FIRST", {"CLAIM": None}),
    ("park", "BLOCK", {"W": 1}),
    ("park", "NO_RESUME", {"W": 2}),
    ("park", "DROP", {"W": 2}),
    ("exchange", "WITH_ROWS", {}),
    ("exchange", "NO_IDLE", {}),
    ("exchange", "KEPT_BACK", {"N": 4}),
    ("exchange", "SHARED", {}),
    ("exchange", "EAGER", {}),
    ("exchange", "NO_LAST", {}),
    ("exchange", "CALLER_KEEPS", {"FAILS": 1}),
    ("exchange", "NODE_KEEPS", {"FAILS": 1}),
    ("exchange", "NO_STOP", {"FAILS": 1}),
    ("exchange", "NO_CUT", {"FAILS": 1}),
    ("exchange", "PASSED_ON", {"FAILS": 1}),
    ("exchange", "DEAF", {"CANCEL": None}),
    ("exchange", "NO_IDLE", {"AHEAD": 1}),
    ("exchange", "NO_STOP", {"AHEAD": 0, "FAILS": 1}),
    ("moves", "UNHELD", {}),
    ("moves", "NO_EARLY", {}),
    ("moves", "OVERLAPS", {}),
    ("moves", "NOT_TOLD", {"FAILS": 1, "N": 2}),
    ("moves", "FORGETS", {"FAILS": 1, "N": 2}),
    ("moves", "ANY_FAILURE", {"FAILS": 1, "N": 2}),
    ("moves", "LEAVES_HELD", {"FAILS": 1, "N": 2}),
    ("moves", "TAKES_LATE", {"FAILS": 1, "N": 2}),
]


def name(part: str | Defines) -> str:
    return (
        part
        if isinstance(part, str)
        else "-".join(f"{k}{'' if n is None else n}" for k, n in part.items()) or "default"
    )


@pytest.mark.parametrize(("model", "size"), RIGHT, ids=name)
def test_model(check: Check, model: str, size: Defines) -> None:
    errors, report = check(model, size)
    assert errors == 0, report


@pytest.mark.parametrize(("model", "mutant", "size"), MUTANTS, ids=name)
@pytest.mark.thin(14)
def test_mutant_is_caught(check: Check, model: str, mutant: str, size: Defines) -> None:
    errors, report = check(model, {**size, mutant: None})
    assert errors > 0, report

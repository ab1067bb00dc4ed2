"""`make kills`: every suite that it names is there, and a wrong name is told."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("kills_tool", ROOT / "tools" / "kills.py")
assert SPEC is not None
assert SPEC.loader is not None
kills = sys.modules["kills_tool"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kills)


def test_the_suites_exist():
    for file in kills.SUITES.values():
        assert (ROOT / file).is_file()


@pytest.mark.parametrize("words", [["nothing"], ["node", "--kills", "0"], []])
def test_what_cannot_be_run(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["kills.py", *words])
    with pytest.raises(SystemExit):
        kills.main()
    assert capsys.readouterr().err

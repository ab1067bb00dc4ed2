"""The benchmark of the five queries in a small form: everything verified, recorded and tabled."""

import json

import pytest
import tpcxbb

from ordstream.tpcxbb import batch
from ordstream.tpcxbb.queries import QUERIES

pytest.importorskip("duckdb")


@pytest.fixture
def arguments(tmp_path):
    small = ["--rows", "20000", "--engines", "node,sql", "--repeats", "1"]
    return [*small, "--data", str(tmp_path / "rows"), "--out", str(tmp_path / "results")]


def test_every_query_is_verified_and_recorded(arguments, tmp_path, capsys):
    assert tpcxbb.main(arguments) == 0
    (file,) = (tmp_path / "results").iterdir()
    found = json.loads(file.read_text())
    assert (
        found["about"]["command"] == 'make bench-tpcxbb ARGS="--rows 20000 --repeats 1 --engines node,sql"'
    )
    assert {"processor", "commit", "load", "time"} <= set(found["about"])
    assert str(tmp_path) not in file.read_text()
    entries = found["entries"]
    assert [(e["query"], e["profile"], e["engine"]) for e in entries] == [
        (name, profile, engine)
        for name in QUERIES
        for profile in ("batch", "paper")
        for engine in ("node", "sql")
    ]
    for entry in entries:
        assert entry["verified"] is True
        assert entry["seconds"] > 0
        assert entry["rows"] == entries[2 * (entries.index(entry) // 2)]["rows"]  # of the other engine
        assert bool(entry["operators"]) == (entry["engine"] == "node")
    table = [
        line
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| q") and "profile" not in line
    ]
    assert len(table) == 2 * len(QUERIES)


def test_a_wrong_answer_ends_the_benchmark(arguments, capsys, monkeypatch):
    monkeypatch.setattr(batch, "duckdb_answer", lambda *_, **__: [(1, 2, 3)])
    assert tpcxbb.main(arguments) == 1
    assert "node is not equal to DuckDB's answer: " in capsys.readouterr().err

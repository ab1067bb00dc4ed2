"""The main job as a newcomer starts it: everything it prints."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ordstream

pytestmark = pytest.mark.spark


def test_demo_generates_runs_verifies_and_prints_nothing_confusing(java, tmp_path):
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "ordstream", "demo", "--rows", "30000", "--json", "answer.json"]
    environment = os.environ | {
        "PYTHONPATH": str(Path(ordstream.__file__).parents[1])
    }  # the build under test
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "data" / "clicks-30000" / "web_clickstreams.parquet").exists()
    out, told = ended.stdout.splitlines(), ended.stderr.splitlines()
    assert out[-1] == "verified: equal to the batch answer"
    assert out[0].split() == ["left", "right", "count"]
    known = ("generating", "processing", "Spark 4", "Spark job: ", "asking Spark SQL")
    assert [line for line in told if not line.startswith(known)] == []
    assert any(line.startswith("processing 100 %  30,000 of 30,000 rows") for line in told)
    report = json.loads((tmp_path / "answer.json").read_text())
    assert report["verified"] is True
    assert len(report["rows"]) == 30
    assert report["report"]["tuples"] == 30_000
    assert [operator["kind"] for operator in report["report"]["operators"]] == ["SL", "PS", "SL", "PS", "SF"]
    for latency in report["report"]["latency"].values():
        assert 0 < latency["p50_us"] <= latency["p95_us"] <= latency["p99_us"]

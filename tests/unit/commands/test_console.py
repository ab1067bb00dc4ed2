"""What the command line prints."""

import sys
import threading

import pytest

from ordstream.commands import console


def test_table_aligns_numbers_right_and_names_left():
    text = console.table(["name", "tuples"], [["a", 1234567], ["longer", None]])
    assert text.splitlines() == ["name       tuples", "a       1,234,567", "longer          -"]
    assert console.table(["item", "count"], [["10", "7"]], right=True).splitlines() == [
        "item  count",
        "  10      7",
    ]
    assert console.table(["a"], []) == "a"


def test_report_names_throughput_latencies_and_operators():
    operator = {"name": "known", "kind": "SL", "tuples_in": 1000, "tuples_out": 579, "cost_ns": 12.34}
    latency = {"p50_us": 10.0, "p95_us": 200.5, "p99_us": 3000.0}
    text = console.report_text(
        {
            "tuples": 1000,
            "seconds": 0.5,
            "tuples_per_second": 2000.0,
            "latency": {"processing": latency, "end_to_end": dict.fromkeys(latency)},
            "operators": [operator | {"selectivity": 0.579, "worker_share": 0.25}],
        }
    )
    assert text.splitlines() == [
        "1,000 tuples in 0.50 s: 2,000 tuples/s",
        "",
        "microseconds        p50  p95    p99",
        "processing latency   10  200  3,000",
        "end-to-end latency    -    -      -",
        "",
        "operator  kind  tuples in  tuples out  ns per tuple  selectivity  % of worker time",
        "known     SL        1,000         579          12.3        0.579                25",
    ]


def test_report_says_what_was_dropped():
    first = {"serial": None, "reason": "ValueError: no"}
    operator = {"name": "known", "kind": "PS", "tuples_in": 1000, "skipped": 12, "first_skipped": first}
    shed = {
        "name": "shed_1", "protects": "known", "goal": "5 ms", "mode": "live", "tuples": 1200,
        "admitted": 1000, "shed": 200, "share": 1 / 6, "approximate": True, "mean_latency_ms": None,
        "max_latency_ms": None, "shed_latency_ms": None, "first_s": 0.5, "last_s": 1.5, "timeline": [],
        "blind": 0, "learnt": 0, "model_updates": 0, "synchronised": 0, "workers": 1.0,
    }  # fmt: skip
    report = {
        "tuples": 1200,
        "seconds": 1.0,
        "tuples_per_second": 1200.0,
        "latency": {},
        "operators": [operator],
        "shedding": [shed],
    }
    assert console.report_text(report).splitlines()[-3:] == [
        "",
        "skipped 12 tuples and steps of punctuations in 'known' (on_error=\"skip\"), of 1,000 tuples; "
        "first at the end of the stream: "
        "ValueError: no",
        "shed_1 before known: 200 of 1,200 tuples shed (16.7%; 5 ms): results are approximate",
    ]


def test_bar_writes_a_line_per_second_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(console, "LINE_SECONDS", 0.01)
    counts, all_read = [0, 0, 500, 500], threading.Event()

    def read():
        if len(counts) > 1:
            return counts.pop(0)
        all_read.set()
        return counts[0]

    with console.Bar("processing", read, 2000):
        assert all_read.wait(60)
        counts[0] = 2000
    lines = dict.fromkeys(line.partition(" rows,")[0] for line in capsys.readouterr().err.splitlines())
    assert list(lines) == [
        "processing   0 %  0 of 2,000",
        "processing  25 %  500 of 2,000",
        "processing 100 %  2,000 of 2,000",
    ]


def test_a_total_that_is_a_guess_is_right_at_the_end(capsys, monkeypatch):
    """`ordstream generate --rows 10` ended with "140 %  14 of 10 rows", or at 97 %."""
    monkeypatch.setattr(console, "LINE_SECONDS", 0.01)
    for written, told in ((14, "100 %  14 of 14"), (9, "100 %  9 of 9")):
        with console.Bar("generating", lambda written=written: written, 10, exact=False):
            pass
        *others, last = capsys.readouterr().err.splitlines()
        assert last.startswith(f"generating {told} rows")
        assert all(line.split()[1] in ("90", "100") for line in others)
    with pytest.raises(KeyError), console.Bar("generating", lambda: 3, 10, exact=False):
        raise KeyError
    assert "generating  30 %  3 of 10 rows" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("rich", [True, False])
def test_bar_on_a_terminal_ends_at_the_last_count(capsys, monkeypatch, rich):
    if rich:
        pytest.importorskip("rich")
    else:
        monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with console.Bar("processing", lambda: 2000):
        pass
    assert "2,000 rows" in capsys.readouterr().err

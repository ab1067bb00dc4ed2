"""Which one of several sources a failing tuple is of."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node.merge_log import MergeLog

PATIENCE = 60.0  # seconds that no test should need


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kept", [None, False], ids=["log", "no log"])
@pytest.mark.thin(2)
def test_what_runs_backwards_says_which_source(processes, kept):
    sources = [od.Pipeline({"ts": int, "k": int}, source=name) for name in "pq"]
    both = od.union(*sources)
    times = [1, 9, 30], [1, 9, 3], [2, 40, 6]
    ascending, first, second = (pa.table({"ts": ts, "k": [1] * 3}) for ts in times)
    behind, early = {"p": ascending, "q": second}, {"p": first, "q": ascending}
    windows = both.key_by("k").window(od.tumbling(10), time="ts").aggregate(n=od.count())
    sessions = both.key_by("k").sessionize(time="ts", timeout=5)
    for pipeline, kind in ((windows, od.SourceError), (sessions, od.OperatorError)):
        for data, name in ((behind, "q"), (early, "p")):
            with pytest.raises(kind, match="runs backwards") as raised:
                pipeline.run(data, merge_by="ts", merge_log=kept, processes=processes)
            assert str(raised.value).endswith(f"\n  source: {name!r}, its row 3") is (kept is None)
    fails = both.key_by("k").process(lambda row, state, emit: 1 // 0, schema={"n": int}, state={"n": int})
    with pytest.raises(od.OperatorError, match="ZeroDivisionError") as raised:
        fails.run(behind, merge_by="ts", processes=processes)
    assert str(raised.value).endswith("\n  source: 'p', its row 1")


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)
@pytest.mark.parametrize("error", [OSError, ValueError, KeyError])
@pytest.mark.parametrize("idle", [None, "5s"])
def test_a_source_that_fails_is_named(options, error, idle):
    sources = [od.Pipeline({"ts": int}, source=name) for name in "pq"]

    def failing():
        yield pa.table({"ts": [1, 2, 3]}).to_batches()[0]
        raise error("gone")

    data = {"p": pa.table({"ts": range(10)}), "q": failing()}
    with pytest.raises(od.SourceError, match=r"source 'q': it failed after 3 tuples: .*gone") as raised:
        od.union(*sources).run(data, merge_by="ts", idle=idle, **options)
    assert ", in failing" in str(raised.value)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_row_that_idle_did_not_wait_for_says_so(processes):
    p, q = (od.Pipeline({"ts": int, "k": int}, source=name) for name in "pq")
    heard = threading.Event()

    def silent():
        heard.wait(PATIENCE)
        yield pa.record_batch({"ts": [5], "k": [1]})

    def lively():
        for ts in range(0, 100, 10):
            yield pa.record_batch({"ts": [ts], "k": [1]})

    windows = od.union(p, q).key_by("k").window(od.tumbling(10), time="ts").aggregate(n=od.count())
    more = {"merge_by": "ts", "idle": "50ms", "processes": processes}
    with windows.stream({"p": silent(), "q": lively()}, **more) as out:
        next(out)
        heard.set()
        with pytest.raises(od.SourceError, match=r"runs backwards: 5 after [1-9]") as raised:
            list(out)
    assert "\n  source: 'p', which idle= did not wait for, so that" in str(raised.value)


def test_the_source_of_a_row_is_known_until_the_log_is_taken():
    log, numbers = MergeLog(["a", "b"]), np.random.default_rng(3).integers(0, 2, 3000)
    for part in np.array_split(numbers, 700):  # more than are kept as they come
        log.add(part)
    own = np.where(numbers == 0, (numbers == 0).cumsum(), (numbers == 1).cumsum())
    expected = [("ab"[number], count) for number, count in zip(numbers, own, strict=True)]
    assert [log.source_of(row) for row in range(1, 3001)] == expected
    assert log.source_of(3001) is None
    log.take()
    log.add(np.array([1, 0]))
    found = [log.source_of(row) for row in (1, 3000, 3001, 3002, 3003)]
    assert found == [None, None, ("b", 1), ("a", 1), None]

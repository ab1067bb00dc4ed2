"""Memory of output batches is used again, but never while an array of it is alive."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od

ROWS = 300_000


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    words = np.array(["", "a", "some words", "more of them"])[rng.integers(0, 4, ROWS)]
    return pa.table({"x": rng.integers(-(2**62), 2**62, ROWS), "n": rng.integers(0, 99, ROWS), "s": words})


def pipeline(data: pa.Table) -> od.Pipeline:
    half = od.col("n") // 2
    return (
        od.Pipeline(data.schema)
        .filter(od.col("n") != 7)
        .select("x", "s", half=half, few=half.cast(pa.int8()))
    )


def expected(data: pa.Table) -> pa.Table:
    kept = data.filter(pa.compute.not_equal(data["n"], 7))
    half = pa.compute.divide(kept["n"], 2)
    return pa.table({"x": kept["x"], "s": kept["s"], "half": half, "few": half.cast(pa.int8())})


def check(found: pa.Table, data: pa.Table) -> None:
    assert found.equals(expected(data).cast(found.schema))


@pytest.mark.parametrize("workers", [1, 2])
def test_results_that_are_kept_stay_as_they_are(workers):
    """Results of different ages, whole and in part, while later runs take what the dropped ones gave
    back.
    """
    kept = {}
    parts = {}
    for seed in range(8):
        data = table(seed)
        result = pipeline(data).run(data, workers=workers).table
        check(result, data)
        if seed % 2:
            kept[seed] = result
        else:
            parts[seed] = result.slice(70_000, 90_000).select(["half", "s"])  # the rest is released
    for seed, result in kept.items():
        check(result, table(seed))
    for seed, part in parts.items():
        assert part.equals(
            expected(table(seed))
            .cast(pipeline(table(seed)).schema)
            .slice(70_000, 90_000)
            .select(["half", "s"])
        )


def test_threads_that_run_and_release_at_the_same_time():
    wrong = []

    def work(seed: int) -> None:
        try:
            for k in range(4):
                data = table(10 * seed + k)
                check(pipeline(data).run(data, workers=1).table, data)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

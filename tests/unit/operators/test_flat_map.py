"""flat_map on its kernel: results, wrong results, failures."""

from __future__ import annotations

import pytest
from unit.function_check import DATA, SOURCE, check_serial

import ordstream as od


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_flat_map(on_error):
    def split(row):
        for i in range(row.k or 0):
            if i == 3:
                raise ValueError("too many")
            yield row.k, i, row.s

    rows = check_serial(od.Pipeline(SOURCE).flat_map(split, schema=SOURCE, on_error=on_error), DATA)
    assert rows == [(1, 0, "a"), (2, 0, None), (2, 1, None)]


@pytest.mark.parametrize("result", [None, 5, "ab", b"ab", {"k": 1}, [3], [(1,)], [(1, 2, "x"), (1, 2, 3)]])
def test_flat_map_wrong_result(result):
    check_serial(od.Pipeline(SOURCE).flat_map(lambda row: result, schema=SOURCE), DATA)


def test_flat_map_many():
    pipeline = od.Pipeline(SOURCE).flat_map(lambda row: [(i, i, None) for i in range(3000)], schema=SOURCE)
    assert len(check_serial(pipeline, DATA)) == 15000

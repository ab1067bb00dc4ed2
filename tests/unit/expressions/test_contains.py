"""`str.contains`: strings and needles of every length around those at which the search changes."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import ordstream as od

LENGTHS = [0, 1, 2, 3, 4, 5, 8, 31, 255, 256, 257, 300]


@pytest.mark.parametrize(
    "needle", ["", "a", "b", "ab", "aab", "abba", "babab", "a" * 12, "\u00e4", "x" * 260]
)
def test_as_python_says(needle):
    """Of two letters, so that beginnings of the needle come often; and with the needle in each place."""
    draw = random.Random(5)
    texts = ["".join(draw.choices("ab", k=length)) for length in LENGTHS for _ in range(20)]
    for length in LENGTHS:
        for place in {0, length // 2, length}:
            texts += ["c" * place + needle + "c" * (length - place), "c" * place + needle[:-1]]
    data = pa.table({"s": pa.array([None, *texts])})
    found = od.Pipeline(data.schema).select(a=od.col("s").str.contains(needle)).run(data, workers=0).table
    assert found.column("a").to_pylist() == [None, *(needle in text for text in texts)]

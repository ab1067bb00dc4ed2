"""The tables of `drawn_states` with columns that ascend, for operators that rely on time, and lists."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from property import drawn_states

import ordstream as od

CLOCKS = {"c": pa.int64(), "e": pa.date32(), "w": pa.timestamp("us", "UTC"), "o": pa.int16()}
LISTS = {"l": pa.list_(pa.int32())}
SCHEMA = pa.schema([*drawn_states.SCHEMA, *CLOCKS.items(), *LISTS.items()])
NUMBERS = [name for name in SCHEMA.names if name not in ("s", "z", "b", "l")]
FIRST = {
    "c": [0, -7, -(2**63), 2**62, 2**63 - 300],
    "e": [0, -20, 18_000],
    "w": [0, -(10**12), 2**62],
    "o": [-300, 0],
}
STEPS = [0, 0, 0, 1, 1, 2, 7]


@st.composite
def tables(draw: Any) -> pa.Table:
    """A table of drawn_states, with clocks (now and then null) and a column of lists."""
    table = draw(drawn_states.tables())
    n = len(table)
    for name, type_ in CLOCKS.items():
        picks = list(draw(st.binary(min_size=n, max_size=n)))
        steps = [STEPS[pick % len(STEPS)] for pick in picks]
        times = accumulate(steps, initial=draw(st.sampled_from(FIRST[name])))
        values = [
            None if pick == 255 else min(time, 2**63 - 1) for pick, time in zip(picks, times, strict=False)
        ]
        storage = pa.int32() if pa.types.is_date32(type_) else pa.int64()
        table = table.append_column(pa.field(name, type_), pa.array(values, storage).cast(type_))
    pool = [None, [], [1], [2, -(2**31)], [3] * 20]
    lists = [pool[pick % len(pool)] for pick in draw(st.binary(min_size=n, max_size=n))]
    return table.append_column(pa.field("l", LISTS["l"]), pa.array(lists, LISTS["l"]))


def of(pipeline: od.Pipeline, key: tuple[str, ...]) -> Any:
    return pipeline.key_by(*key) if key else pipeline

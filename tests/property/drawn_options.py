"""Random options of a run, for the property tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.types as pat
from hypothesis import strategies as st
from property.drawn_expressions import named

import ordstream as od

WORKERS = (0, 1, 2, 4, 17, "auto")
SCHEDULERS = ("ct", "lp", "et", "qst", "random")
PARTITIONINGS = ("hybrid", "partitioned", "shared")
REORDERS = ("nonblocking", "lock")


def can_be_time(type_: pa.DataType) -> bool:
    """Whether a column of the type may be an operator's or a punctuation's time."""
    return (
        (pat.is_integer(type_) and not pat.is_uint64(type_)) or pat.is_timestamp(type_) or pat.is_date(type_)
    )


#: Types of the column that a source without a time mostly gets.
TIMES = (pa.int64(), pa.int32(), pa.timestamp("us"), pa.timestamp("ms", "Europe/Rome"), pa.date32())


@st.composite
def with_time(draw: Any, drawn: st.SearchStrategy[pa.Schema]) -> pa.Schema:
    """A schema that mostly has a column which can be a time: without one no window is drawn."""
    schema = draw(drawn)
    if named(schema, can_be_time) or not draw(st.integers(0, 4)):
        return schema
    return schema.append(pa.field("ts", draw(st.sampled_from(TIMES)), draw(st.booleans())))


@st.composite
def options(
    draw: Any, schema: pa.Schema | None = None, clocks: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Options of a run. With a source schema, time punctuations as well, mostly of a column in `clocks`."""
    chosen = {
        "workers": draw(st.sampled_from(WORKERS)),
        "scheduler": draw(st.sampled_from(SCHEDULERS)),
        "partitioning": draw(st.sampled_from(PARTITIONINGS)),
        "reorder": draw(st.sampled_from(REORDERS)),
        "chunk_rows": draw(st.sampled_from([None, 1, 2, 7, 64])),
        "buckets": draw(st.sampled_from([None, 1, 2, 3, 16])),
        "depth": draw(st.sampled_from([None, 2, 8])),
        "max_chunks": draw(st.sampled_from([None, 1, 3])),
        "max_bytes": draw(st.sampled_from([None, None, 1, 5_000])),
        "max_ready": draw(st.sampled_from([None, 1])),
        "slice_us": draw(st.sampled_from([None, 0.5, 1_000.0])),
        "capacity": draw(st.sampled_from([None, 1.0])),
        "snapshot_every": draw(st.sampled_from([None, None, None, 1, 5])),
        "seed": draw(st.integers(1, 9)),
    }
    if chosen["workers"] == "auto":
        chosen |= {"max_workers": 4, "debug": True}  # their number changes at random
    times = [] if schema is None else named(schema, can_be_time)
    ascending = [name for name in times if name in clocks]
    if times and draw(st.booleans()) and (ascending or draw(st.integers(0, 3)) == 0):
        times = ascending if ascending and draw(st.integers(0, 9)) else times
        chosen["punctuate"] = (
            f"od.every({draw(st.sampled_from(times))!r}, {draw(st.sampled_from([1, 2, 10]))})"
        )
    return {name: value for name, value in chosen.items() if value is not None}


def settled(chosen: dict[str, Any]) -> dict[str, Any]:
    """Options as `run` takes them: the text of a punctuation evaluated."""
    if "punctuate" in chosen:
        return chosen | {"punctuate": eval(chosen["punctuate"], {"od": od})}
    return chosen

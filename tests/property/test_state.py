"""The state contract: a stream that is cut anywhere, and goes on in runs that have nothing in common with
the ones before, gives what an uninterrupted run gives; keys that were removed are as if they had never
come.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_states import AGGREGATIONS, KEYS, SCHEMA, tables
from property.moved_state import goes_on_anywhere, removed_keys_never_came

import ordstream as od


@st.composite
def stateful(draw: Any, pipeline: od.Pipeline, key: tuple[str, ...], *, last: bool = True) -> od.Pipeline:
    """One stateful operator behind a pipeline."""
    keyed = pipeline.key_by(*key) if key else pipeline
    kinds = ["count", "count final", "aggregate", "aggregate final", "scan"] if last else ["scan"]
    kind = draw(st.sampled_from(kinds))
    emit = "final" if kind.endswith("final") else "updates"
    if kind.startswith("count"):
        return keyed.count("how_many", emit=emit)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=1, max_size=9, unique=True))
    prefix = f"{kind[0]}{len(pipeline.plan.operators)}_"
    aggregations = {prefix + name: AGGREGATIONS[name] for name in names}
    return keyed.scan(**aggregations) if kind == "scan" else keyed.aggregate(emit=emit, **aggregations)


@st.composite
def pipelines(draw: Any) -> od.Pipeline:
    """Perhaps a filter, perhaps a scan, then a count, scan or aggregate."""
    built = od.Pipeline(SCHEMA)
    if draw(st.booleans()):
        built = built.filter(od.col("y") != draw(st.integers(-1, 2)))
    if draw(st.booleans()):
        built = draw(stateful(built, draw(st.sampled_from(KEYS)), last=False))
    return draw(stateful(built, draw(st.sampled_from(KEYS))))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), pipeline=pipelines())
def test_a_cut_stream_goes_on_anywhere(data, table, pipeline):
    goes_on_anywhere(data.draw, table, pipeline)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from([key for key in KEYS if key]))
def test_removed_keys_are_as_if_they_had_never_come(data, table, key):
    removed_keys_never_came(data.draw, table, data.draw(stateful(od.Pipeline(SCHEMA), key)))

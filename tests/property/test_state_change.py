"""Aggregations that are appended to an operator at a cut: those from before go on, the new ones cover what
comes behind the cut, and nothing else.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from property.drawn_states import AGGREGATIONS, KEYS, SCHEMA, tables
from property.moved_state import options_of, ways
from state_runs import Segment, exact_rows, same_states

import ordstream as od
from ordstream.testing import run_serial


@settings(max_examples=60, deadline=None)
@given(data=st.data(), table=tables(), key=st.sampled_from(KEYS))
def test_appended_aggregations_cover_what_comes_behind_the_cut(data, table, key):
    names = data.draw(st.lists(st.sampled_from(sorted(AGGREGATIONS)), min_size=2, max_size=8, unique=True))
    first = data.draw(st.integers(1, len(names) - 1))
    cut = data.draw(st.integers(0, len(table)))
    one, other, *_ = ways(data.draw)

    def scan(chosen):
        keyed = od.Pipeline(SCHEMA).key_by(*key) if key else od.Pipeline(SCHEMA)
        return keyed.scan(name="values", **{f"out_{name}": AGGREGATIONS[name] for name in chosen})

    old, new, added = scan(names[:first]), scan(names), scan(names[first:])
    with Segment(old, **options_of(one)) as segment:
        segment.push(table.slice(0, cut))
        stored = segment.state()["values"]
    operator = new.plan.operators[0]
    adapt = operator.adapt_state(old.plan.operators[0].state_identity(), stored.schema)
    state = pa.Table.from_batches(map(adapt, stored.to_batches()), schema=operator.state_schema())
    with Segment(new, **options_of(other)) as segment:
        segment.install({"values": state})
        assert same_states(segment.state(), {"values": state})
        segment.push(table.slice(cut))
        segment.finish()
        found = exact_rows(segment.batches, new.schema)
    went_on = exact_rows([run_serial(old, table).table], old.schema)[cut:]
    began = exact_rows([run_serial(added, table.slice(cut)).table], added.schema)
    width = len(SCHEMA)
    assert found == [before + behind[width:] for before, behind in zip(went_on, began, strict=True)]

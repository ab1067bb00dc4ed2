"""What must hold of every operator with state: a stream that is cut anywhere, and goes on in runs that have
nothing in common with the ones before, gives what an uninterrupted run gives; keys that were removed are as
if they had never come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from state_runs import Segment, configurations, exact_rows, keys_of, run_cut, same_states

import ordstream as od
from ordstream.testing import run_serial


def ways(draw: Any, punctuate: Any = None) -> list[dict[str, Any]]:
    """Ways to run, in any order."""
    every = {} if punctuate is None else {"punctuate": punctuate}
    return [{**way, **every} for way in draw(st.permutations(configurations()))]


def options_of(way: dict[str, Any]) -> dict[str, Any]:
    """Those that `Pipeline.run` takes."""
    return {name: value for name, value in way.items() if name not in ("rows", "most")}


def without_clock(pipeline: od.Pipeline) -> od.Pipeline:
    """The pipeline, whose last operator forgets at its key's next row: a segment knows no time in front."""
    plan = pipeline.plan
    return od.Pipeline.of(plan.replaced([*plan.operators[:-1], plan.operators[-1].with_clock(None)]))


def goes_on_anywhere(
    draw: Any,
    table: pa.Table,
    pipeline: od.Pipeline,
    *,
    places: Sequence[int] | None = None,
    punctuate: Any = None,
) -> None:
    """Assert it for a stream with three cuts, at some of `places` (default: all); the state at the last
    one is that of a run which came there at once.
    """
    cuts = sorted(draw(st.lists(st.sampled_from(places or range(len(table) + 1)), min_size=3, max_size=3)))
    one, other = ways(draw, punctuate), ways(draw, punctuate)
    result = run_serial(pipeline, table, punctuate=punctuate)
    assert result.error is None, result.error
    batches, states = run_cut(pipeline, table, cuts, one)
    assert exact_rows(batches, pipeline.schema) == exact_rows([result.table], pipeline.schema)
    _, (at_once,) = run_cut(pipeline, table, cuts[2:], other)
    assert same_states(states[2], at_once)  # canonical: what lies behind a state does not show


def removed_keys_never_came(draw: Any, table: pa.Table, pipeline: od.Pipeline) -> None:
    """Assert it for some keys of the one operator with state, which reads its key from the source."""
    (operator,) = (one for one in pipeline.plan.operators if one.kind != "SL")
    key = [operator.input.names[index] for index in operator.key]
    cut = draw(st.integers(1, len(table) - 1))
    one, other, *_ = ways(draw)
    before, behind = table.slice(0, cut), table.slice(cut)
    with Segment(pipeline, **options_of(one)) as segment:
        segment.push(before)
        state = segment.state()[operator.name]
        names = list(map(repr, keys_of(state, len(key))))
        dropped = {name for name in sorted(set(names)) if draw(st.booleans())}
        gone = state.filter(pa.array([name in dropped for name in names], pa.bool_()))
        assert segment.remove(operator.name, gone) == len(dropped)
        assert segment.remove(operator.name, gone) == 0
        seen = len(exact_rows(segment.batches, pipeline.schema))
        left = segment.state()
        segment.push(behind)
        segment.finish()
        found = exact_rows(segment.batches, pipeline.schema)[seen:]
    keys = keys_of(before.select(key) if key else before, len(key))
    stayed = before.filter(pa.array([repr(k) not in dropped for k in keys], pa.bool_()))
    wanted = run_serial(pipeline, pa.concat_tables([stayed, behind]))
    assert wanted.error is None, wanted.error
    emitted = len(run_serial(pipeline, stayed, end="suspend").table)
    assert found == exact_rows([wanted.table], pipeline.schema)[emitted:]
    with Segment(pipeline, **options_of(other)) as segment:
        segment.push(stayed)
        assert same_states(segment.state(), left)
        assert len(exact_rows(segment.batches, pipeline.schema)) == emitted

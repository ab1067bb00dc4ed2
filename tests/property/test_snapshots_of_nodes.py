"""A snapshot of several nodes is a snapshot like any other: whatever takes it (nodes that take turns in a
random order, with channels that hold next to nothing, or one node), whatever goes on from it gives what one
run gives, in values, order and tags.
"""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import (
    agree,
    as_table,
    blocks_for,
    exact_rows,
    for_several_nodes,
    large,
    options_over_nodes,
    outcome_of,
    run_reference,
)
from property.drawn_clocked import clocked

import ordstream as od
from ordstream.errors import OperatorError, SourceError
from ordstream.fragments.driver import with_tags
from ordstream.fragments.process_stream import blocks_of, marking_of
from ordstream.fragments.processes import prepare
from ordstream.fragments.same_process import SameProcess, run_here
from ordstream.fragments.topology import Topology
from ordstream.reference.run_serial import run_serial

LARGE = large(max_examples=max(6, settings.default.max_examples // 10))
NODES = st.sampled_from((1, 2, 3, 5))
HOW = st.fixed_dictionaries(
    {
        "seed": st.none() | st.integers(0, 1000),
        "block_rows": st.sampled_from((1, 3, 1000)),
        "channel_bytes": st.sampled_from((None, 1, 200)),
    }
)


def drawn_how(data: Any, case: s.Case) -> dict[str, Any]:
    how = data.draw(HOW)
    return {**how, "block_rows": blocks_for(case, how["block_rows"])}


def check_parts(case: s.Case, data: Any) -> None:
    """Parts of a stream, each over nodes or in one, each from the snapshot that the one before left."""
    operators = case.pipeline.plan.operators
    assume(for_several_nodes(case.pipeline.plan) and all(one.can_snapshot for one in operators))
    options, table, batches, error, snapshot = options_over_nodes(case), as_table(case), [], None, None
    punctuate = options.get("punctuate")
    expected = run_reference(case.pipeline, table, punctuate)
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=2, max_size=2))), len(table)]
    for part in range(3):
        rows = table.slice(edges[part], edges[part + 1] - edges[part])
        given_options = {**options, "tags": True, "end": "finish" if part == 2 else "suspend"}
        if snapshot is not None:
            given_options["restore"] = snapshot
        nodes = data.draw(st.none() | NODES)
        before = None
        if part < 2:
            before = run_serial(
                case.pipeline, table.slice(0, edges[part + 1]), end="suspend", punctuate=punctuate
            )
        try:
            if nodes is None:
                result = case.pipeline.run(rows, **given_options)
            else:
                result = run_here(case.pipeline, rows, nodes, given_options, **drawn_how(data, case))
        except (OperatorError, SourceError) as failure:
            error = failure
            break
        assert before is None or before.error is None
        batches += result.batches
        snapshot = result.snapshot
        if before is not None:
            assert (snapshot.serial, snapshot.emitted_through) == (edges[part + 1], before.emitted_through)
            assert snapshot.last_output == (od.OrderTag(*before.tags[-1]) if before.tags else od.OrderTag(0))
    if error is not None:  # what a failed run gave is lost with it
        assert type(error) is type(expected.error)
        if isinstance(error, OperatorError):
            assert (error.operator, error.serial) == (expected.error.operator, expected.error.serial)
        return
    agree(case.pipeline, expected, outcome_of(case.pipeline, batches), reports=False)
    assert result.report.emitted_through == expected.emitted_through


@LARGE
@given(s.cases(vocabulary=s.BUILTIN), st.data())
def test_parts_of_a_stream_of_built_in_operators(case, data):
    check_parts(case, data)


@LARGE
@given(s.cases(), st.data())
def test_parts_of_a_stream_of_all_operators(case, data):
    check_parts(case, data)


@LARGE
@given(clocked(), st.data())
def test_parts_of_a_stream_with_clocks(case, data):
    check_parts(case, data)


@LARGE
@given(s.cases(vocabulary=s.BUILTIN, most=4), NODES, HOW, st.data())
def test_markers_in_a_stream_that_goes_on(case, nodes, how, data):
    """Asked for at any time; each snapshot gives the rest, over nodes and in one, behind any output."""
    plan = case.pipeline.plan
    assume(for_several_nodes(plan) and all(one.can_snapshot for one in plan.operators))
    options, table = options_over_nodes(case), as_table(case)
    expected = run_reference(case.pipeline, table, options.get("punctuate"))
    assume(expected.error is None)
    with_state = {**options, "tags": True, "snapshots": True}
    fragments, of_nodes, _ = prepare(case.pipeline, with_state, "nodes", keeps_state=True)
    topology = Topology(fragments, nodes, of_nodes, how["channel_bytes"])
    marking = marking_of(case.pipeline, with_state, topology, table)
    blocks = blocks_of(
        plan, topology, table, marking, blocks_for(case, how["block_rows"]), lambda: None, own_thread=False
    )
    marking.snapshots.rows = data.draw(st.integers(1, 9))
    # How many batches and snapshots there are is a matter of time: drawn is what doesn't depend on it.
    choose = data.draw(st.randoms(use_true_random=True))
    ways = [(data.draw(st.none() | NODES), drawn_how(data, case)) for _ in range(2)]
    here, seen, batches = SameProcess(how["seed"]), {}, []
    schema = with_tags(case.pipeline.schema, True)
    marking.request_snapshot()
    for batch in here.run(topology, blocks, schema, True, marking):
        batches.append(batch)
        last = marking.snapshots.last
        if last is not None and last.serial not in seen:
            seen[last.serial] = last
            # the outputs in front of a snapshot are there before it is
            given_so_far = sum(b.num_rows for b in batches)
            assert given_so_far >= sum(od.OrderTag(*tag) <= last.last_output for tag in expected.tags)
        if choose.random() < 0.1:
            marking.request_snapshot()
    last = marking.snapshots.last
    assert last is not None
    seen[last.serial] = last
    agree(case.pipeline, expected, outcome_of(case.pipeline, batches), reports=False)
    rows = exact_rows(expected.table.to_batches(), expected.schema)
    for serial, (again, other) in zip(choose.sample(sorted(seen), len(seen)), ways, strict=False):
        snapshot, rest = seen[serial], table.slice(serial)
        behind = [i for i, tag in enumerate(expected.tags) if od.OrderTag(*tag) > snapshot.emitted_through]
        restored = {**options, "tags": True, "restore": snapshot}
        if behind and choose.random() < 0.5:
            through = od.OrderTag(*expected.tags[choose.choice(behind)])
            restored["emitted_through"] = through
            behind = [i for i in behind if od.OrderTag(*expected.tags[i]) > through]
        result = (
            case.pipeline.run(rest, **restored)
            if again is None
            else run_here(case.pipeline, rest, again, restored, **other)
        )
        outcome = outcome_of(case.pipeline, result.batches)
        assert outcome.tags == [expected.tags[i] for i in behind]
        assert outcome.rows == [rows[i] for i in behind]

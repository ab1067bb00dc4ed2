"""A stream that is suspended anywhere and goes on in a run of any other configuration gives what one run
gives: values, order and tags. So does a run that goes on from a snapshot of a stream that did not stop.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from property import drawn_options
from property import strategies as s
from property.compare import Outcome, agree, as_table, exact_rows, large, outcome_of, run_reference

import ordstream as od
from ordstream.errors import OperatorError, SourceError
from ordstream.reference.run_serial import run_serial

LARGE = large()


def configured(data: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Other options of the same meaning."""
    drawn = data.draw(drawn_options.options())
    if "punctuate" in options:
        drawn["punctuate"] = options["punctuate"]
    drawn.pop("snapshot_every", None)
    return drawn


def suspendable(case: s.Case) -> bool:
    """Whether its states can be written down."""
    return all(one.can_snapshot for one in case.pipeline.plan.operators)


class Collected:
    """What the runs of one stream gave, one after the other."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        self.batches: list[pa.RecordBatch] = []
        self.error: OperatorError | SourceError | None = None
        self.report: Any = None
        self.skipped: Counter[str] = Counter()

    def read(self, stream: Any) -> None:
        """All of a stream."""
        with stream:
            try:
                self.batches.extend(stream)  # what came before an error stays
            except (OperatorError, SourceError) as failure:
                self.error = failure
        self.report = stream.report
        self.skipped += Counter({one.name: one.skipped for one in self.report.operators if one.skipped})

    def outcome(self) -> Outcome:
        """As of one run."""
        return outcome_of(self.pipeline, self.batches, self.error)


def check_cut(case: s.Case, data: Any) -> None:
    assume(suspendable(case))
    options = drawn_options.settled(case.options)
    table = as_table(case)
    expected = run_reference(case.pipeline, table, options.get("punctuate"))
    edges = [0, *sorted(data.draw(st.lists(st.integers(0, len(table)), min_size=3, max_size=3))), len(table)]
    found = Collected(case.pipeline)
    snapshot = None
    for part in range(4):
        rows = table.slice(edges[part], edges[part + 1] - edges[part])
        with_options = options if part == 0 else configured(data, options)
        with_options.pop("snapshot_every", None)
        stream = case.pipeline.stream(
            rows, tags=True, restore=snapshot, end="finish" if part == 3 else "suspend", **with_options
        )
        found.read(stream)
        if found.error is not None:
            break
        snapshot = stream.snapshot
        assert part == 3 or (snapshot is not None and snapshot.serial == edges[part + 1])
        if part < 3:
            before = run_serial(
                case.pipeline,
                table.slice(0, edges[part + 1]),
                punctuate=options.get("punctuate"),
                end="suspend",
            )
            assert snapshot.emitted_through == before.emitted_through
            assert snapshot.last_output == (od.OrderTag(*before.tags[-1]) if before.tags else od.OrderTag(0))
            assert expected.tags[: len(before.tags)] == before.tags
    agree(case.pipeline, expected, found.outcome(), reports=False)
    assert found.error is not None or found.report.emitted_through == expected.emitted_through
    if found.error is None:
        assert found.skipped == Counter(name for name, _ in expected.skipped)


@LARGE
@given(s.cases(vocabulary=s.BUILTIN), st.data())
def test_suspended_runs_of_built_in_operators(case, data):
    check_cut(case, data)


@LARGE
@given(s.cases(), st.data())
def test_suspended_runs_of_all_operators(case, data):
    check_cut(case, data)


@LARGE
@given(s.cases(vocabulary=s.BUILTIN, most=4), st.data())
def test_snapshots_of_a_stream_that_goes_on(case, data):
    """Of each: the rest of the stream, in any configuration, is what one run gives behind it."""
    assume(all(one.can_snapshot for one in case.pipeline.plan.operators))
    options = drawn_options.settled(case.options)
    options.pop("snapshot_every", None)
    table = as_table(case)
    expected = run_reference(case.pipeline, table, options.get("punctuate"))
    assume(expected.error is None)
    seen = {}
    every = data.draw(st.integers(1, 7))
    # Which snapshots were seen is a matter of time: drawn is what doesn't depend on it.
    choose = data.draw(st.randoms(use_true_random=True))
    ways = [(configured(data, options), configured(data, options)) for _ in range(3)]
    with case.pipeline.stream(table, snapshots=True, snapshot_every=every, **options) as stream:
        for _ in stream:
            if stream.snapshot is not None:
                seen[stream.snapshot.serial] = stream.snapshot
    if stream.snapshot is not None:
        seen[stream.snapshot.serial] = stream.snapshot
    assert len(table) <= every or seen
    for serial, (one, other) in zip(choose.sample(sorted(seen), len(seen)), ways, strict=False):
        snapshot = seen[serial]
        assert snapshot.serial % every == 0
        rest = Collected(case.pipeline)
        rest.read(case.pipeline.stream(table.slice(serial), tags=True, restore=snapshot, **one))
        outcome = rest.outcome()
        behind = [i for i, tag in enumerate(expected.tags) if od.OrderTag(*tag) > snapshot.emitted_through]
        wanted = exact_rows(expected.table.to_batches(), expected.schema)
        assert outcome.tags == [expected.tags[i] for i in behind]
        assert outcome.rows == [wanted[i] for i in behind]
        if outcome.tags:
            through = od.OrderTag(*choose.choice(outcome.tags))
            again = case.pipeline.run(
                table.slice(serial), restore=snapshot, emitted_through=through, **other
            )
            assert exact_rows(again.batches, case.pipeline.schema) == [
                wanted[i] for i in behind if od.OrderTag(*expected.tags[i]) > through
            ]


@pytest.mark.parametrize("workers", [0, 2])
def test_totals_of_a_stream_in_parts(workers):
    """What emits at the end only says nothing before it, and everything then."""
    rows = pa.table({"k": [1, 2, 1, 3, 2, 1], "x": [1, 2, 3, 4, 5, 6]})
    keyed = od.Pipeline(rows.schema).key_by("k")
    for pipeline in (keyed.aggregate(x=od.sum("x"), emit="final"), keyed.tail(1), keyed.top_k(1, by="x")):
        whole = pipeline.run(rows, workers=workers).table
        for cut in range(len(rows) + 1):
            first = pipeline.run(rows.slice(0, cut), end="suspend", workers=workers)
            assert first.table.num_rows == 0
            assert pipeline.run(rows.slice(cut), restore=first.snapshot, workers=workers).table.equals(whole)
            before = od.testing.run_serial(pipeline, rows.slice(0, cut), end="suspend")
            assert od.testing.run_serial(pipeline, rows.slice(cut), after=before).table.equals(whole)

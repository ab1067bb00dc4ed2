"""The commit point is exact in every ending: what is delivered is all that has an order tag up to it, and
nothing else.

A `Plan` is a chain of operators of which one step may fail: one row, one key of a flush, one key at a time
punctuation, found by noting the steps of a sequential run. Without its fault it is the repaired pipeline,
whose output has the same tags: what it gives behind the commit point of the failing run continues that run,
with nothing lost and nothing twice.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.compare import exact_rows, run_core

import ordstream as od
from ordstream.reference.run_serial import run_serial

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("ts", pa.int64())])
EVERY = od.every("ts", 10)
KINDS = ("map", "filter", "flat_map", "expression", "process", "whole", "top_k", "scan", "count")


class Broken(Exception):
    """What a failing step raises."""


@dataclass
class Plan:
    """A chain of operators, each with the number that its functions know it by.

    Attributes
    ----------
    kinds : tuple of str
    fault : tuple or None
        (operator, kind of step, what it was called with): the step that fails, each time that it is met.
    by_null : bool
        A failing flush does not raise: it emits a null, at which the operator behind fails, if it minds.
    seen : list, optional
        Filled with the steps that were met.
    """

    kinds: tuple[str, ...]
    fault: Any = None
    by_null: bool = False
    seen: list[Any] | None = field(default=None, repr=False)

    def fails(self, *step: Any) -> bool:
        if self.seen is not None:
            self.seen.append(step)
        return step == self.fault

    def met(self, *step: Any) -> None:
        if self.fails(*step):
            raise Broken(step)

    def pipeline(self) -> od.Pipeline:
        made = od.Pipeline(SCHEMA)
        for number, kind in enumerate(self.kinds):
            made = getattr(self, kind)(made, number)
        return made

    def map(self, made: od.Pipeline, i: int) -> od.Pipeline:
        def fn(row: Any) -> Any:
            self.met(i, "row", tuple(row))
            return (row.k, row.x + 1, row.ts)

        return made.map(fn, schema=SCHEMA)

    def filter(self, made: od.Pipeline, i: int) -> od.Pipeline:
        def fn(row: Any) -> Any:
            self.met(i, "row", tuple(row))
            return (row.x * 7 + row.k) % 4 != 0

        return made.filter(fn)

    def flat_map(self, made: od.Pipeline, i: int) -> od.Pipeline:
        def fn(row: Any) -> Any:
            self.met(i, "row", tuple(row))
            return [(row.k + j, row.x * 3 + j, row.ts) for j in range((row.x + row.k) % 4)]

        return made.flat_map(fn, schema=SCHEMA)

    def expression(self, made: od.Pipeline, i: int) -> od.Pipeline:
        """A built-in operator, which fails for one value of x, with a division by zero or an integer
        that overflows.
        """
        x = od.col("x")
        fault = self.fault[2] if self.fault is not None and self.fault[:2] == (i, "value") else None
        if self.seen is not None:

            def note(row: Any) -> bool:
                self.fails(i, "value", row.x)
                return True

            made = made.filter(note)
        if fault is not None and fault % 2:
            return made.with_columns(x=x + 0 * (1 // (x - fault)))
        if fault is not None:
            return made.with_columns(x=x + 0 * (od.if_else(x == fault, 2**62, 0) * 4))
        return made.with_columns(x=x + 0)

    def process(self, made: od.Pipeline, i: int, keyed: bool = True) -> od.Pipeline:
        def fn(row: Any, state: Any, emit: Any) -> None:
            state.n += 1
            if (row.x + state.n) % 3:
                emit(row.k, row.x + state.n, row.ts)
            self.met(i, "row", tuple(row))
            if row.x % 5 == 0:
                emit(row.k + 1, state.n, row.ts)

        def on_flush(key: Any, state: Any, emit: Any) -> None:
            for j in range(state.n % 3):
                emit(state.n + j, -state.n - j, 0)
            if self.fails(i, "flush", key):
                if not self.by_null:
                    raise Broken("flush")
                emit(0, None, 0)
            else:
                emit(0, 0, 0)

        def on_time(key: Any, state: Any, time: int, emit: Any) -> None:
            emit(state.n, time, time)
            self.met(i, "time", (key, time))

        keyed_by = made.key_by("k") if keyed else made
        return keyed_by.process(
            fn, schema=SCHEMA, state={"n": int}, fan_out=4, on_flush=on_flush, on_time=on_time
        )

    def whole(self, made: od.Pipeline, i: int) -> od.Pipeline:
        return self.process(made, i, keyed=False)

    def top_k(self, made: od.Pipeline, i: int) -> od.Pipeline:
        return made.top_k(3, by="x", key="k", emit="updates").drop("rank")

    def scan(self, made: od.Pipeline, i: int) -> od.Pipeline:
        return made.key_by("k").scan(n=od.count()).map(lambda row: (row.n, row.x, row.ts), schema=SCHEMA)

    def count(self, made: od.Pipeline, i: int) -> od.Pipeline:
        counted = made.key_by("k").count("x", emit="final")
        return counted.map(lambda row: (row.k, row.x, 0), schema=SCHEMA)


def table(rows: int, seed: int) -> pa.Table:
    """Rows whose values depend on `seed`; ts ascends."""
    mixed = [(i * 2_654_435_761 + seed * 40_503) >> 7 for i in range(rows)]
    return pa.table(
        [[m % 5 for m in mixed], [m // 5 % 23 for m in mixed], [i // 2 for i in range(rows)]], schema=SCHEMA
    )


@st.composite
def plans(draw: Any) -> tuple[Plan, Plan, pa.Table, Any]:
    """(failing plan, repaired plan, rows, punctuation)."""
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)))
    data = table(draw(st.integers(0, 60)), draw(st.integers(0, 9)))
    punctuate = draw(st.sampled_from([None, EVERY]))
    numbered = Plan(kinds, seen=[])
    run_serial(numbered.pipeline(), data, punctuate=punctuate)
    assert numbered.seen is not None
    flushes = [step for step in numbered.seen if step[1] != "row"]
    steps = draw(st.sampled_from([numbered.seen, flushes]))
    fault = steps[draw(st.integers(0, 10**6)) % len(steps)] if steps else None
    return Plan(kinds, fault, draw(st.booleans())), Plan(kinds), data, punctuate


def exact(tag: tuple[int, int]) -> od.OrderTag:
    return od.OrderTag(*tag)


def continues(found: Any, whole: Any, rows: list[Any]) -> None:
    """Assert that delivered output and what the whole run gives behind the commit point are the whole
    output, once.
    """
    through = found.report.emitted_through
    assert all(exact(tag) <= through for tag in found.tags)
    rest = [(tag, row) for tag, row in zip(whole.tags, rows, strict=True) if exact(tag) > through]
    assert found.tags + [tag for tag, _ in rest] == whole.tags
    assert found.rows + [row for _, row in rest] == rows


WAYS = tuple(
    {
        "workers": workers,
        "partitioning": partitioning,
        "reorder": reorder,
        "chunk_rows": chunk_rows,
        "buckets": buckets,
    }
    for (workers, chunk_rows), partitioning, (reorder, buckets) in itertools.product(
        [(0, 1), (0, 7), (1, 3), (2, 1), (2, None), (4, 5)],
        ("hybrid", "partitioned", "shared"),
        (("nonblocking", 3), ("lock", 1)),
    )
)


SCHEDULERS = ("ct", "lp", "et", "qst", "random")


@given(
    plans(),
    st.lists(st.sampled_from(WAYS), min_size=3, max_size=3, unique_by=str),
    st.sampled_from(SCHEDULERS),
)
def test_a_failing_run_ends_at_its_commit_point_and_a_repaired_one_goes_on_from_there(plan, ways, scheduler):
    failing, repaired, data, punctuate = plan
    expected = run_serial(failing.pipeline(), data, punctuate=punctuate)
    whole = run_serial(repaired.pipeline(), data, punctuate=punctuate)
    wanted = exact_rows(whole.table.to_batches(), whole.schema)
    assert whole.error is None
    if expected.error is None:
        assert expected.emitted_through == whole.emitted_through
    for way in ways:
        found = run_core(failing.pipeline(), data, punctuate=punctuate, scheduler=scheduler, **way)
        assert (found.error is None) == (expected.error is None), f"{found.error}; expected {expected.error}"
        assert found.tags == expected.tags
        assert found.report.emitted_through == expected.emitted_through
        if not (failing.by_null and failing.fault and failing.fault[1] == "flush"):
            continues(found, whole, wanted)
        # a null in place of a value may have been delivered before the operator that minds it
        elif found.error is not None:
            assert found.tags == [tag for tag in whole.tags if exact(tag) <= found.report.emitted_through]


@given(
    plans(),
    st.sampled_from(WAYS),
    st.integers(0, 6),
    st.sampled_from(["close", "cancel", "interrupt", "source"]),
)
def test_a_run_that_is_stopped_ends_at_its_commit_point(plan, way, batches, how):
    """Whatever the reader did not get counts as not delivered, also a batch that was on its way to it."""
    _, repaired, data, punctuate = plan
    whole = run_serial(repaired.pipeline(), data, punctuate=punctuate)
    rows = exact_rows(whole.table.to_batches(), whole.schema)
    given = data.to_batches(max_chunksize=5)
    part = given[:batches]

    def source():
        yield from part
        raise Broken("the source")

    read = []
    with repaired.pipeline().stream(
        source() if how == "source" else iter(given),
        tags=True,
        punctuate=punctuate,
        max_chunks=4,
        feeder="caller",
        **way,
    ) as out:
        shape = out._shape

        def interrupted(*item):
            batch = shape(*item)
            if len(read) == batches:
                raise KeyboardInterrupt
            return batch

        if how == "interrupt":
            out._shape = interrupted
        try:
            for batch in out:
                read.append(batch)
                assert (
                    exact((batch["_serial"][-1].as_py(), batch["_index"][-1].as_py())) <= out.emitted_through
                )
                if how == "close" and len(read) == batches:
                    break
                if how == "cancel" and len(read) == batches:
                    out.cancel()
        except (KeyboardInterrupt, od.Cancelled, od.SourceError):
            pass
        assert how != "interrupt" or len(read) <= batches
    through = out.report.emitted_through
    assert out.emitted_through == through
    tags = [
        tag
        for batch in read
        for tag in zip(batch["_serial"].to_pylist(), batch["_index"].to_pylist(), strict=True)
    ]
    assert tags == [tag for tag in whole.tags if exact(tag) <= through]
    got = exact_rows([batch.select(SCHEMA.names) for batch in read], whole.schema)
    assert got == rows[: len(got)]
    if how == "source":
        taken = sum(batch.num_rows for batch in part)
        assert through == max([od.OrderTag(taken), *(exact(tag) for tag in tags[-1:])])


def test_a_batch_that_an_interrupt_takes_on_its_way_counts_as_not_delivered():
    """Also where the interrupt comes after the batch was read, while the stream is closed."""
    pipeline = od.Pipeline(SCHEMA).filter(od.col("x") >= 0)
    with pipeline.stream(table(50, 1), tags=True, workers=0, partial=True, chunk_rows=10) as out:
        first = next(out)
        before, shape, close = out.emitted_through, out._shape, out.close

        def last(*item):
            out._exhausted = True
            return shape(*item)

        def interrupted():
            out.close = close
            raise KeyboardInterrupt

        out._shape, out.close = last, interrupted
        with pytest.raises(KeyboardInterrupt):
            next(out)
    assert before == od.OrderTag(first["_serial"][-1].as_py(), 0)
    assert out.report.emitted_through == out.emitted_through == before


def test_all_of_a_serial_and_nothing_of_the_flush_is_told_from_both():
    """Also where the last tuple gives no output of its own."""
    data = pa.table({"k": [1, 1, 2]})

    def counts(row, state, emit):
        state.n += 1
        if row.k == 1:
            emit(row.k, state.n)

    def at_end(fails):
        def on_flush(key, state, emit):
            if fails == key:
                raise Broken
            emit(key, state.n)

        return (
            od.Pipeline(data.schema)
            .key_by("k")
            .process(counts, schema={"k": int, "n": int}, state={"n": int}, on_flush=on_flush)
        )

    found = {}
    for fails in (1, 2, None):
        for workers in (0, 2):
            with at_end(fails).stream(data, tags=True, workers=workers) as out:
                try:
                    tags = [(row["_serial"], row["_index"]) for batch in out for row in batch.to_pylist()]
                except od.OperatorError:
                    tags = None
            found[fails] = out.report.emitted_through
            assert found[fails] == run_serial(at_end(fails), data).emitted_through
        assert tags is None or tags == [(1, 0), (2, 0), (3, 0), (3, 1)]
    assert found == {1: od.OrderTag(3, -1), 2: od.OrderTag(3, 0), None: od.OrderTag(3, 1)}


def test_a_commit_point_follows_every_batch_while_the_run_goes_on():
    """A reader may commit after each batch: what comes later has a greater tag, in the middle of a
    serial's outputs as elsewhere.
    """
    gate = threading.Event()

    def source():
        yield table(40, 1).to_batches()[0]
        gate.wait(30)
        yield table(3, 2).to_batches()[0]

    pipeline = (
        od.Pipeline(SCHEMA).flat_map(lambda row: [tuple(row)] * 3, schema=SCHEMA).filter(od.col("k") != 3)
    )
    tags, points = [], []
    with pipeline.stream(source(), tags=True, workers=2, chunk_rows=4) as out:
        assert out.emitted_through == od.OrderTag(0)
        for batch in out:
            gate.set()
            tags.append(list(zip(batch["_serial"].to_pylist(), batch["_index"].to_pylist(), strict=True)))
            points.append(out.emitted_through)
    assert len(tags) > 1
    for part, point, following in itertools.zip_longest(tags, points, tags[1:]):
        assert exact(part[-1]) <= point
        assert following is None or point < exact(following[0])
    assert out.report.emitted_through >= points[-1]
    assert out.report.emitted_through.serial == 43


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(-1, 2**40)), min_size=2, max_size=6))
def test_tags_compare_as_their_bytes_and_come_back_from_them(pairs):
    tags = [od.OrderTag(*pair) for pair in pairs]
    assert [od.OrderTag(*pair) for pair in sorted(pairs)] == sorted(tags)
    assert sorted(tags) == sorted(tags, key=bytes)
    for tag in tags:
        assert od.OrderTag.from_bytes(bytes(tag)) == pickle.loads(pickle.dumps(tag)) == tag
        assert hash(od.OrderTag(tag.serial, tag.index)) == hash(tag)
    assert len(set(tags)) == len(set(pairs))


def test_a_tag_is_no_number_and_says_what_it_is():
    tag = od.OrderTag(17, 3)
    assert repr(tag) == "OrderTag(serial=17, index=3)"
    assert str(tag) == "serial 17, output 3"
    assert str(od.OrderTag(17)) == "serial 17, no output"
    assert tag != 17
    with pytest.raises(TypeError):
        _ = tag < 18
    with pytest.raises(AttributeError):
        tag.serial = 18
    for bad in ((-1, 0), (0, -2)):
        with pytest.raises(ValueError, match="a serial from 0"):
            od.OrderTag(*bad)
    with pytest.raises(ValueError, match="16 bytes"):
        od.OrderTag.from_bytes(b"17")

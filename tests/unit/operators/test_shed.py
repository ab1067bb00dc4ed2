"""`.shed(...)` in a pipeline: what it refuses, what it says, and real runs with real clocks."""

from __future__ import annotations

import datetime
import functools
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from patience import measured, patiently

import ordstream as od
from ordstream.balance.sketches import ExecutionTimes
from ordstream.errors import PlanError, SchemaError
from ordstream.fragments.fragmenting import fragments_of
from ordstream.operators.shed import LOG_SCHEMA, duration_ns
from ordstream.reference.run_serial import run_serial
from ordstream.snapshots.checkpoint import Checkpoint

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("list", pa.list_(pa.int64()))])
COSTS = {"cheap": 0.0005, "dear": 0.005}


def source(rows: int, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = np.where(rng.random(rows) < 0.3, "dear", "cheap")
    return pa.table(
        {"key": keys, "value": np.arange(rows), "list": [[i, -i] for i in range(rows)]}, schema=SCHEMA
    )


def costly(row: Any) -> tuple[str, int]:
    time.sleep(COSTS[row.key])  # a cost that needs no processor, so that other work does not change it
    return row.key, row.value


def saved() -> ExecutionTimes:
    model = ExecutionTimes(0.05, 0.1)
    for key, seconds in COSTS.items():
        model.update_many([key] * 50, np.full(50, seconds * 1e9))
    return model


def base() -> od.Pipeline:
    return od.Pipeline(SCHEMA).select("key", "value")


def protected(pipeline: od.Pipeline) -> od.Pipeline:
    return pipeline.map(costly, schema=pa.schema([("key", pa.string()), ("value", pa.int64())]))


def arrivals(table: pa.Table, load: float) -> np.ndarray[Any, Any]:
    """Even arrivals at `load` times what one worker can do."""
    mean = np.mean([COSTS[key] for key in table["key"].to_pylist()])
    return (np.arange(table.num_rows) * mean / load * 1e9).astype(np.int64)


class TestArguments:
    @pytest.mark.parametrize(
        ("text", "ns"),
        [
            ("50ms", 50e6),
            ("1.5 s", 1.5e9),
            ("200us", 2e5),
            ("7ns", 7.0),
            ("2min", 120e9),
            ("infs", float("inf")),
        ],
    )
    def test_durations(self, text: str, ns: float) -> None:
        assert duration_ns(text, "here") == ns
        assert duration_ns(datetime.timedelta(milliseconds=50), "here") == 50e6

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"max_latency": 50}, r"^shed_2: max_latency must be a timedelta or .*'50ms'"),
            ({"max_latency": "50"}, "50ms"),
            ({"max_latency": "-5ms"}, "at least 0"),
            ({"cost_key": []}, "cost_key"),
            ({"goal": "median"}, "average"),
            ({"most_dropped": 2}, "share"),
            ({"window": 0}, "window"),
            ({"sync_every": -1}, "sync_every"),
            ({"tolerance": -1}, "tolerance"),
            ({"epsilon": 0.0}, "epsilon"),
            ({"epsilon": "small"}, "epsilon must be a number"),
            ({"delta": True}, "delta must be a number"),
            ({"side_output": "yes"}, "side_output must be True or False"),
            ({"model": "file"}, "model"),
            ({"frozen": 3, "model": saved()}, "Frozen"),
            ({"frozen": od.Frozen(10.0)}, "saved cost model"),
        ],
    )
    def test_refused(self, arguments: dict[str, Any], message: str) -> None:
        given: dict[str, Any] = {"max_latency": "50ms", "cost_key": "key"} | arguments
        with pytest.raises(PlanError, match=message):
            base().shed(**given)

    def test_columns_are_checked(self) -> None:
        with pytest.raises(SchemaError, match="nobody"):
            base().shed("50ms", "nobody")
        with pytest.raises(SchemaError, match="cost key"):
            od.Pipeline(SCHEMA).shed("50ms", "list")
        with pytest.raises(SchemaError, match="column names are needed, got 5"):
            base().shed("50ms", 5)
        assert base().shed("50ms", od.col("key")).explain() == base().shed("50ms", "key").explain()

    @pytest.mark.parametrize("kind", [pa.decimal128(10, 2), pa.decimal128(30, 2)])
    def test_a_decimal_can_be_the_cost_key(self, kind: pa.DataType) -> None:
        """One key, one word: in the node, in a sequential run and in the sketch."""
        prices = [None if i % 5 == 0 else Decimal(i % 7 * 25).scaleb(-2) for i in range(400)]
        table = pa.table({"price": pa.array(prices, kind), "n": range(400)})
        model = ExecutionTimes(0.001, 0.1)
        model.update_many(table["price"], [1e3 if one is None else 1e3 * float(one) for one in prices])
        pipeline = od.Pipeline(table.schema).shed("1us", "price", model=model, frozen=od.Frozen(1e7))
        pipeline = pipeline.map(tuple, schema=table.schema)
        found = pipeline.run(table)
        assert 0 < found.table.num_rows < 400
        assert found.table.equals(run_serial(pipeline, table).table)

    @pytest.mark.parametrize(
        "bad", [{"rate": 0.0}, {"rate": 1.0, "workers": -1.0}, {"rate": 1.0, "seed": 0.5}]
    )
    def test_frozen_is_checked(self, bad: dict[str, Any]) -> None:
        with pytest.raises(PlanError, match="Frozen"):
            od.Frozen(**bad)

    def test_something_must_follow(self) -> None:
        with pytest.raises(PlanError, match="no operator follows"):
            base().shed("50ms", "key").run(source(3))
        with pytest.raises(PlanError, match="sheds in front of it already"):
            base().shed("50ms", "key").shed("50ms", "key")

    def test_a_log_is_checked(self) -> None:
        with pytest.raises(PlanError, match="shed_log"):
            protected(base().shed("50ms", "key")).run(source(3), shed_log=[1, 2])

    def test_it_is_not_cut(self) -> None:
        assert len(fragments_of(protected(base().shed("50ms", "key")).plan)) == 1
        with pytest.raises(PlanError, match="one node"):
            fragments_of(base().shed("50ms", "key").key_by("key").count().plan)
        # of one piece: nodes would shed by serials of their own, and their logs be lost
        stateless = protected(base().shed("50ms", "key"))
        with pytest.raises(PlanError, match=r"sheds can't be combined with nodes=2"):
            stateless.explain(nodes=2)

    def test_between_processes_it_stands_with_the_operator_that_it_protects(self) -> None:
        mapped = base().map(lambda row: row, schema=base().schema)
        plan = mapped.shed("50ms", "key").key_by("key").count().plan
        first, second = fragments_of(plan, may_shed=True)
        assert [one.name for one in first.operators] == [one.name for one in mapped.plan.operators]
        assert ([one.op for one in second.operators], second.key) == (["shed", "count"], (0,))

    def test_what_processes_can_not_shed(self) -> None:
        model = ExecutionTimes()
        model.update(1, 1e6)
        twice = base().flat_map(lambda row: [row, row], schema=base().schema)
        counted = base().key_by("key").count("n", emit="final")
        frozen = base().shed("50ms", "key", model=model, frozen=od.Frozen(rate=10.0))
        live = protected(base().shed("50ms", "key"))
        for pipeline, options, why in (
            (twice.shed("50ms", "key").key_by("key").count(), {}, "may make several rows of a tuple"),
            (counted.shed("50ms", "key").key_by("n").count(), {}, "in front of it, may make"),
            (protected(frozen), {}, "run in one node"),
            (live, {"workers": 2}, "workers must be 0"),
            (live, {"snapshots": True}, "with snapshots"),
            (live, {"grouping": "posg"}, "take another grouping"),
            (live, {"shed_log": LOG_SCHEMA.empty_table()}, "a log is replayed in one node"),
        ):
            with pytest.raises(PlanError, match=why):
                pipeline.run(source(3), processes=2, **options)


class TestExplain:
    def test_says_what_becomes_approximate(self) -> None:
        text = base().shed("50ms", "key", most_dropped=0.5).key_by("key").count().explain()
        assert "shed to keep mean queueing latency within 50 ms, at most 50% shed; cost by key" in text
        assert "approximate" in text
        assert "count_3 see the admitted tuples only" in text
        assert "no saved cost model" in text

    def test_without_state_the_others_are_exact(self) -> None:
        text = protected(
            base().shed("50ms", "key", goal="maximum", model=saved(), frozen=od.Frozen(10.0))
        ).explain()
        assert "every queueing latency" in text
        assert "the others are exact" in text
        assert "frozen: decides as for 10 tuples/s" in text
        assert "no saved cost model" not in text


def check_against_serial(pipeline: od.Pipeline, table: pa.Table, result: Any) -> None:
    """The output is that of a sequential run without the logged serials, and of one that reads the log."""
    log = result.shed.log
    assert run_serial(pipeline, table, shed_log=log).table.equals(result.table)
    shed = set(log["serial"].to_pylist())
    kept = table.filter(pa.array([serial not in shed for serial in range(1, table.num_rows + 1)]))
    assert run_serial(pipeline, kept).table.equals(result.table)


def retried(test: Callable[..., None]) -> Callable[..., None]:
    """A test whose shares and times are `measured`: other load on the machine makes the clock run ahead
    of the work.
    """

    @functools.wraps(test)
    def again(*args: Any, **named: Any) -> None:
        patiently(lambda: test(*args, **named))

    return again


class TestLive:
    @pytest.mark.parametrize("workers", [0, 1, 2])
    @retried
    def test_overload_is_shed_and_logged(self, workers: int) -> None:
        table = source(1200)
        pipeline = protected(base().shed("20ms", "key", model=saved(), side_output=True, name="shed"))
        result = pipeline.run(table, workers=workers, arrivals=arrivals(table, 2.0))
        (report,) = result.report.shedding
        assert report.protects == "map_3"
        measured(0.2 < report.share < 0.8, report.share)
        assert report.tuples == 1200
        assert report.shed == result.shed.log.num_rows == 1200 - result.table.num_rows
        assert report.approximate
        assert report.mean_latency_ms is not None
        assert sum(count for _, count in report.timeline) == report.shed
        assert result.report.emitted_through.serial == 1200
        check_against_serial(pipeline, table, result)
        aside = result.shed.rows["shed"]
        assert aside["_serial"].to_pylist() == result.shed.log["serial"].to_pylist()
        assert aside["value"].to_pylist() == [serial - 1 for serial in aside["_serial"].to_pylist()]
        assert set(aside["key"].to_pylist()) <= set(COSTS)
        assert "results are approximate" in str(result.report)
        assert '"shed":' in result.report.to_json()

    def test_the_log_can_be_replayed(self) -> None:
        table = source(600)
        pipeline = protected(base().shed("10ms", "key", model=saved()))
        first = pipeline.run(table, workers=1, arrivals=arrivals(table, 3.0))
        again = pipeline.run(table, workers=2, shed_log=first.shed.log)
        assert first.shed.log.num_rows > 0
        assert again.table.equals(first.table)
        assert again.shed.log.select(["serial", "index"]).equals(first.shed.log.select(["serial", "index"]))
        assert again.report.shedding[0].mode == "replay"

    @retried
    def test_nothing_is_shed_with_capacity_to_spare(self) -> None:
        table = source(400)
        pipeline = protected(base().shed("200ms", "key", model=saved()))
        result = pipeline.run(table, workers=1, arrivals=arrivals(table, 0.5))
        measured(result.shed.log.num_rows == 0, result.shed.log.num_rows)
        assert not result.report.shedding[0].approximate
        assert result.table.equals(run_serial(pipeline, table).table)

    @retried
    def test_a_table_waits_instead(self) -> None:
        # Asked for its tuples, a source cannot overload the node.
        table = source(300)
        pipeline = protected(base().shed("500ms", "key", model=saved()))
        shed = pipeline.run(table, workers=2).shed.log.num_rows
        measured(shed == 0, shed)

    @retried
    def test_costs_are_learnt_and_saved(self) -> None:
        table = source(600)
        pipeline = protected(base().shed("infs", "key", window=64, tolerance=1.0, name="shed"))
        result = pipeline.run(table, workers=1)
        model = result.shed.models["shed"]
        assert model.estimate("cheap") > 0
        measured(model.estimate("dear") > 4 * model.estimate("cheap"), model)
        assert model.estimate("dear") >= COSTS["dear"] * 1e9
        report = result.report.shedding[0]
        assert report.model_updates > 0
        measured(0 < report.blind < 600, report.blind)
        assert report.learnt == model.tuples > 100
        # The bytes are a model to start from.
        again = protected(base().shed("infs", "key", model=model.to_bytes())).run(table, workers=1)
        assert again.report.shedding[0].blind == 0

    @retried
    def test_keyed_operators_are_protected_too(self) -> None:
        def slow(row: Any, state: Any, emit: Any) -> None:
            time.sleep(COSTS[row.key])
            state.n += 1
            emit(row.key, state.n)

        counts = pa.schema([("key", pa.string()), ("n", pa.int64())])
        table = source(800)
        pipeline = (
            base()
            .shed("20ms", "key", model=saved())
            .key_by("key")
            .process(slow, schema=counts, state=pa.schema([("n", pa.int64())]))
        )
        result = pipeline.run(table, workers=2, arrivals=arrivals(table, 2.0))
        measured(0.1 < result.report.shedding[0].share < 0.9, result.report.shedding)
        check_against_serial(pipeline, table, result)

    def test_behind_a_filter_and_a_flat_map(self) -> None:
        table = source(500)
        wide = (
            od.Pipeline(SCHEMA)
            .filter(od.col("value") % 3 != 0)
            .flat_map(od.explode("list", name="value", carry=["key"]))
        )
        pipeline = protected(wide.shed("10ms", "key", model=saved()))
        result = pipeline.run(table, workers=2, arrivals=arrivals(table, 1.5))
        assert result.shed.log.num_rows > 0
        check_against_serial(pipeline, table, result)
        # All tuples of a serial are shed, or none.
        counts = np.unique(result.shed.log["serial"].to_numpy(), return_counts=True)[1]
        assert set(counts.tolist()) == {2}

    def test_behind_a_stateful_operator_the_log_decides(self) -> None:
        table = source(400)
        counted = base().key_by("key").count().rename({"count": "value"})
        pipeline = protected(counted.shed("5ms", "key", model=saved()))
        result = pipeline.run(table, workers=2, arrivals=arrivals(table, 2.0))
        assert result.shed.log.num_rows > 0
        assert run_serial(pipeline, table, shed_log=result.shed.log).table.equals(result.table)

    def test_a_failure_behind_is_reported_at_its_serial(self) -> None:
        def breaks(row: Any) -> tuple[str, int]:
            if row.value == 250:
                raise ZeroDivisionError("250")
            return costly(row)

        table = source(400)
        pipeline = (
            base()
            .shed("infs", "key", model=saved())
            .map(breaks, schema=pa.schema([("key", pa.string()), ("value", pa.int64())]))
        )
        with pytest.raises(od.OperatorError) as failed:
            pipeline.run(table, workers=2)
        assert failed.value.serial == 251

    def test_a_stream_that_is_closed_early_gives_all_back(self) -> None:
        table = source(2000)
        pipeline = protected(base().shed("1ms", "key", model=saved(), side_output=True))
        with pipeline.stream(table, workers=2, arrivals=arrivals(table, 3.0)) as stream:
            next(stream)
        assert stream.report.shedding[0].shed == stream.shed.log.num_rows

    @retried
    def test_a_live_source_counts_from_its_batches(self) -> None:
        table = source(600)

        def bursts() -> Any:
            for start in range(0, 600, 200):
                yield table.slice(start, 200).combine_chunks().to_batches()[0]

        pipeline = protected(base().shed("20ms", "key", model=saved()))
        result = pipeline.run(bursts(), workers=1)
        measured(result.report.shedding[0].share > 0.3, result.report.shedding)
        check_against_serial(pipeline, table, result)

    @retried
    def test_a_cold_start_sheds_by_what_the_first_rows_cost(self) -> None:
        # Long before the matrices of the default N = 1,024 could be stable.
        table = source(1000)
        pipeline = protected(base().shed("20ms", "key"))
        result = pipeline.run(table, workers=1, arrivals=arrivals(table, 2.0))
        report = result.report.shedding[0]
        measured(0 < report.blind < 250 and report.model_updates >= 3, report)
        measured(0.2 < report.share < 0.8, report.share)
        check_against_serial(pipeline, table, result)
        # Learnt, but not as stable matrices: saved all the same.
        assert result.shed.models[report.name].tuples == report.learnt > 100

    @retried
    def test_elapsed_time_is_the_worker_time_that_the_operator_received(self) -> None:
        # One worker serves two operators of 3 ms each. The protected one alone would have capacity to spare:
        # a tuple comes every 4.5 ms. Counted by the clock on the wall it would never be behind, and nothing
        # would be shed while the latency grows without bound.
        def slow(row: Any) -> tuple[str, int]:
            time.sleep(0.003)
            return row.key, row.value

        plain = pa.schema([("key", pa.string()), ("value", pa.int64())])
        model = ExecutionTimes(0.05, 0.1)
        model.update_many(["cheap", "dear"] * 50, np.full(100, 3e6))
        table = source(500)
        pipeline = base().shed("40ms", "key", model=model).map(slow, schema=plain).map(slow, schema=plain)
        sent = (np.arange(500) * 4.5e6).astype(np.int64)
        result = pipeline.run(table, workers=1, arrivals=sent)
        report = result.report.shedding[0]
        measured(0.1 < report.share < 0.6 and report.workers < 0.75, report)
        assert report.mean_latency_ms is not None
        check_against_serial(pipeline, table, result)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_log_counts_on_in_a_run_that_only_ends_the_stream(tmp_path: Any, workers: int) -> None:
    """What the end made of the last tuple was numbered from 0 again: another row of it was shed."""
    table = pa.table({"ts": [1, 2, 3, 4, 5, 6, 7]})
    held = od.Pipeline(table.schema).reorder("ts", slack=1)
    made = held.shed("1s", "ts", name="door").select(twice=od.col("ts") * 2)
    log = pa.table({"operator": ["door"] * 2, "serial": [6, 7], "index": [0, 1]})
    whole = run_serial(made, table, shed_log=log)
    assert whole.shed == [("door", 6, 0), ("door", 7, 1)]
    given = {"shed_log": log, "workers": workers}
    found, shed = [], []
    for low, high, end in ((0, 4, "suspend"), (4, 7, "suspend"), (7, 7, "suspend"), (7, 7, "finish")):
        snapshot = Checkpoint(tmp_path).latest() if low else None
        part = made.run(table.slice(low, high - low), restore=snapshot, end=end, snapshots=True, **given)
        if part.snapshot is not None:
            Checkpoint(tmp_path).write(part.snapshot)
        found += part.table["twice"].to_pylist()
        shed += part.shed.log.select(["serial", "index"]).to_pylist()
    assert found == [row[0] for row in whole.rows]
    assert [tuple(row.values()) for row in shed] == [row[1:] for row in whole.shed]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("goal", ["average", "maximum"])
def test_frozen_shedding_goes_on_from_a_snapshot(tmp_path: Any, workers: int, goal: str) -> None:
    """Suspended anywhere, or restored from a snapshot in the middle: the decisions of a run in one piece."""
    table = source(900)
    chosen = {"goal": goal, "most_dropped": 0.6, "frozen": od.Frozen(rate=800.0, seed=5)}
    made = base().shed("20ms", "key", model=saved(), name="door", **chosen).key_by("key").count()
    whole = run_serial(made, table)
    assert 200 < len(whole.shed) < 700
    expected = [(*row, *tag) for row, tag in zip(whole.rows, whole.tags, strict=True)]
    found, snapshot = [], None
    for low, high in ((0, 0), (0, 1), (1, 350), (350, 351), (351, 900)):
        part = made.run(
            table.slice(low, high - low), workers=workers, restore=snapshot, tags=True, end="suspend"
        )
        found += [tuple(row.values()) for row in part.table.to_pylist()]
        snapshot = part.snapshot
    assert found == expected
    (state,) = pa.Table.from_batches(list(snapshot.states["door"].batches())).to_pylist()
    assert state["dropped"] == len(whole.shed)
    assert state["admitted"] == 900 - len(whole.shed)
    made.run(table, workers=workers, checkpoint=tmp_path / "c", every=137)
    middle = Checkpoint(tmp_path / "c").latest()
    assert 0 < middle.serial < 900
    rest = made.run(table.slice(middle.serial), workers=workers, restore=middle, tags=True)
    found = [tuple(row.values()) for row in rest.table.to_pylist()]
    assert found == [row for row in expected if row[-2] > middle.serial]

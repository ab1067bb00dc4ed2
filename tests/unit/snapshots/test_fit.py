"""Whether a stored state fits a pipeline: by name, and all that does not is named."""

from __future__ import annotations

import pyarrow as pa
import pytest
from unit.snapshots.checkpoints import counts, memory, snapshot

import ordstream as od
from ordstream.errors import CheckpointError, PlanError
from ordstream.operators.operator import Operator
from ordstream.snapshots.fit import begins_empty, check_can_snapshot, fit

SOURCE = pa.schema([("k", pa.int64()), ("t", pa.int64())])


@pytest.fixture
def adapts(monkeypatch):
    """Stands for `Operator.adapt_state`: rows pass as they are where the key is the same."""

    def adapt_state(self, identity, schema):
        mine = self.state_identity()
        if identity["key"] != mine["key"]:
            raise CheckpointError(f"operator {self.name!r}: key {mine['key']}, stored {identity['key']}")
        return lambda batch: batch

    monkeypatch.setattr(Operator, "adapt_state", adapt_state, raising=False)


def pipeline():
    return (
        od.Pipeline(SOURCE).key_by("k").count(name="first").key_by("k").forward_fill("count", name="second")
    )


@pytest.mark.usefixtures("adapts")
def test_states_are_matched_by_name():
    plan = pipeline().plan
    stored = snapshot({"first": memory(counts(5))})
    found = fit(plan, stored)
    assert list(found) == ["first"]
    rows, adapt = found["first"]
    assert rows is stored.states["first"]
    batch = counts(2)
    assert adapt(batch) is batch
    assert begins_empty(plan, stored) == ["second"]
    assert fit(plan, snapshot({})) == {}
    assert begins_empty(plan, snapshot({})) == ["first", "second"]


@pytest.mark.usefixtures("adapts")
def test_a_state_that_no_operator_has():
    stored = snapshot({"renamed": memory(counts(5)), "gone": memory(counts(1000), operator="top_k")})
    with pytest.raises(CheckpointError) as raised:
        fit(pipeline().plan, stored)
    text = str(raised.value)
    assert "the snapshot behind serial 100 does not fit this pipeline" in text
    assert "operator 'renamed' (count) has a stored state of 5 rows" in text
    assert "was it renamed? 'first' has no stored state" in text
    assert "operator 'gone' (top_k) has a stored state of 1,000 rows, and the pipeline has no" in text


@pytest.mark.usefixtures("adapts")
def test_a_state_that_does_not_fit():
    stored = snapshot({"first": memory(counts(5), key="k: string"), "gone": memory(counts(1))})
    with pytest.raises(
        CheckpointError, match=r"operator 'first': key k: int64, stored k: string(.|\n)*'gone'"
    ):
        fit(pipeline().plan, stored)


def test_a_pipeline_that_can_be_snapshotted():
    check_can_snapshot(pipeline().plan)
    check_can_snapshot(od.Pipeline(SOURCE).filter(od.col("t") > 1).plan)


def test_every_state_that_can_not_be_written_down_is_named(monkeypatch):
    plan = pipeline().plan

    def no_schema(self):
        if self.stateful:
            raise PlanError(f"operator {self.name!r}: its state can't be exported yet")

    for operator in plan.operators:
        monkeypatch.setattr(type(operator), "state_schema", no_schema)
    with pytest.raises(PlanError, match=r"can't be snapshotted:\n  operator 'first'.*\n  operator 'second'"):
        check_can_snapshot(plan)


def test_a_state_that_is_not_declared():
    def step(row, state, emit):
        emit(row)

    pipeline = od.Pipeline(SOURCE).key_by("k").process(step, init=dict, schema=SOURCE, name="mine")
    with pytest.raises(
        PlanError, match=r"'mine' .*its state is not declared; declare its fields, or give it a codec"
    ):
        check_can_snapshot(pipeline.plan)


def suspended(built):
    rows = pa.table({"k": [1, 2, 1], "t": [10, 20, 30]}, schema=SOURCE)
    return built.run(rows, end="suspend", workers=0).snapshot


def test_a_state_that_fits_two_operators_that_nobody_named():
    """The one that was put in front has the place, and so the name, of the one that goes on."""
    source = od.Pipeline(SOURCE)
    stored = suspended(source.key_by("k").lag({"before": "t"}))
    more = source.key_by("k").lag({"new": "t"}).key_by("k").lag({"before": "t"})
    told = r"'lag_1' has a stored state that fits 'lag_2' as well(.|\n)*operator that goes on 'lag_1'"
    with pytest.raises(CheckpointError, match=told):
        more.run(pa.table({"k": [1], "t": [40]}, schema=SOURCE), restore=stored)
    named = source.key_by("k").lag({"new": "t"}, name="new").key_by("k").lag({"before": "t"}, name="lag_1")
    went_on = named.run(pa.table({"k": [1], "t": [40]}, schema=SOURCE), restore=stored).table
    assert went_on.to_pylist() == [{"k": 1, "t": 40, "new": None, "before": 30}]


def test_parts_of_operators_that_nobody_named():
    """Of a difference and a running sum, which are made of others; `name=` is that of the whole."""
    source = od.Pipeline(SOURCE).key_by("k")
    stored = suspended(source.diff("t", output="by"))
    with pytest.raises(CheckpointError, match=r"'diff_1: lag' has a(.|\n)*that goes on 'diff_1', and"):
        fit(source.diff("t", output="new").key_by("k").diff("t", output="by").plan, stored)
    front = source.diff("t", output="new", name="new").key_by("k")
    assert list(fit(front.diff("t", output="by", name="diff_1").plan, stored)) == ["diff_1: lag"]
    stored = suspended(source.cum_sum("t", output="total"))
    twice = source.cum_sum("t", output="total").drop("total").key_by("k").cum_sum("t", output="total")
    with pytest.raises(CheckpointError, match=r"'cum_sum_1' has .* that fits 'cum_sum_3' as well"):
        fit(twice.plan, stored)


def test_a_new_operator_that_the_state_does_not_fit_or_that_has_a_name():
    source = od.Pipeline(SOURCE)
    stored = suspended(source.key_by("k").lag({"before": "t"}))
    behind = source.key_by("k").lag({"before": "t"}).key_by("k")
    assert list(fit(behind.lag({"far": "t"}, n=2).plan, stored)) == ["lag_1"]
    assert list(fit(behind.lag({"new": "t"}, name="lag_2").plan, stored)) == ["lag_1"]
    with pytest.raises(CheckpointError, match="fits 'lag_2' as well"):
        fit(behind.lag({"new": "t"}).plan, stored)

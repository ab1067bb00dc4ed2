"""Parametric operators: the kernel is its sequential twin, with every parameter; keys come as
distributed as they say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordstream.errors import OperatorError, PlanError
from ordstream.lab.evaluation import parametric
from ordstream.lab.evaluation.parametric import PRIME, Parametric, chain, tuples
from ordstream.node import node
from ordstream.pipeline import Pipeline
from ordstream.reference.run_serial import run_serial


def same_as_serial(pipeline: Pipeline, batch: pa.RecordBatch, **options: Any) -> node.Result:
    wanted = run_serial(pipeline, batch)
    assert wanted.error is None
    got = node.run(pipeline, batch, tags=True, debug=True, **options)
    assert got.table.drop_columns(["_serial", "_index"]).equals(wanted.table)
    assert (
        list(zip(got.table["_serial"].to_pylist(), got.table["_index"].to_pylist(), strict=True))
        == wanted.tags
    )
    return got


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("chunk_rows", [1, 7, None])
@pytest.mark.parametrize("state_bytes", [None, 8, 1024])
@pytest.mark.parametrize("selectivity", [1, 0.3, 2.5, 50])
@pytest.mark.thin(36)
def test_the_core_is_the_twin(
    selectivity: float, state_bytes: int | None, chunk_rows: int | None, workers: int
) -> None:
    batch = tuples(parametric.zipf_keys(150, 20, 1.0))
    first = Parametric(selectivity=selectivity, state_bytes=state_bytes).operator("first", products=3)
    second = Parametric(state_bytes=64).operator("second", products=2)
    got = same_as_serial(chain(first, second), batch, workers=workers, chunk_rows=chunk_rows)
    outputs = got.report.rows_out / 150
    assert abs(outputs - selectivity) <= (0 if selectivity == int(selectivity) else 0.15)


@pytest.mark.parametrize("tuple_bytes", [8, 48, 512, 1_000])
@pytest.mark.parametrize("state_bytes", [None, 8, 600])
def test_any_tuple_size(tuple_bytes: int, state_bytes: int | None) -> None:
    given = Parametric(tuple_bytes=tuple_bytes, state_bytes=state_bytes)
    batch = tuples(parametric.uniform_keys(60, 5), tuple_bytes)
    assert batch.schema.names[1:] == [f"v{k}" for k in range(tuple_bytes // 8)]
    same_as_serial(
        chain(given.operator("a", products=1), given.operator("b", products=0)),
        batch,
        workers=2,
        chunk_rows=5,
    )


@pytest.mark.parametrize("state_bytes", [None, 64])
def test_tuples_may_say_their_own_cost(state_bytes: int | None) -> None:
    work = np.arange(80) % 4
    batch = tuples(parametric.uniform_keys(80, 9), work=work)
    given = Parametric(None, state_bytes=state_bytes)
    got = same_as_serial(chain(given.operator("a"), given.operator("b")), batch, workers=2, chunk_rows=3)
    assert got.table["work"].to_pylist() == work.tolist()


def test_the_order_of_a_key_shows_in_the_outputs() -> None:
    batch = tuples(np.zeros(2, np.int64))
    stage = Parametric(state_bytes=64).operator("a", products=1)
    forward, backward = (run_serial(chain(stage), batch.take([a, b])).table for a, b in [(0, 1), (1, 0)])
    assert not forward.take([0, 1]).equals(backward.take([1, 0]))


@pytest.mark.parametrize("state_bytes", [None, 64])
@pytest.mark.parametrize("selectivity", [1, 2])
@pytest.mark.parametrize("wrong", [PRIME, -1, 0.5, float("nan")])
def test_a_value_out_of_range_fails_its_row(wrong: float, selectivity: int, state_bytes: int | None) -> None:
    batch = tuples(parametric.uniform_keys(20, 3), 16)
    values = batch["v1"].to_numpy().copy()
    values[13] = wrong
    batch = batch.set_column(2, "v1", pa.array(values)).cast(batch.schema)
    one = chain(
        Parametric(tuple_bytes=16, selectivity=selectivity, state_bytes=state_bytes).operator(
            "a", products=1
        )
    )
    serial = run_serial(one, batch)
    assert serial.error is not None
    rows = []
    with node.stream(one, batch, workers=2, chunk_rows=6) as out, pytest.raises(OperatorError) as caught:
        rows.extend(found.num_rows for found in out)
    assert sum(rows) == 13 * selectivity == len(serial.tags)
    assert (caught.value.operator, caught.value.serial) == ("a", 14)
    assert serial.error.serial == 14
    assert "no whole number from 0 to 8190" in str(caught.value)
    assert "no whole number from 0 to 8190" in str(serial.error)


def test_a_negative_cost_fails_its_row() -> None:
    batch = tuples(np.zeros(3, np.int64), work=np.array([1, -1, 1]))
    one = chain(Parametric(None).operator("a"))
    serial = run_serial(one, batch).error
    assert serial is not None
    assert serial.serial == 2
    with pytest.raises(OperatorError, match="negative number of multiplications"):
        node.run(one, batch, workers=1)


@pytest.mark.parametrize("wrong", [
    {"cost_us": -1}, {"wait_us": -1}, {"cost_us": float("nan")}, {"selectivity": -0.5},
    {"selectivity": float("inf")}, {"tuple_bytes": 0}, {"tuple_bytes": 12}, {"state_bytes": 0},
    {"state_bytes": 9}, {"state_bytes": 1 << 25},
])  # fmt: skip
def test_parameters_out_of_range_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match=next(iter(wrong))):
        Parametric(**wrong)


def test_products_follow_the_cost() -> None:
    assert parametric.products_for(0) == 0
    assert parametric.products_for(1e-6) == 1
    a, b = parametric.products_for(100), parametric.products_for(1_000)
    assert abs(b - 10 * a) <= 10
    assert Parametric(100).operator("a").multiplications == a


def test_keys_are_distributed_as_they_say() -> None:
    counts = np.sort(np.bincount(parametric.zipf_keys(100_000, 100, 1.0), minlength=100))[::-1]
    weights = 1 / np.arange(1, 101)
    np.testing.assert_allclose(counts[:5] / 100_000, (weights / weights.sum())[:5], rtol=0.05)
    for sigma in (0.1, 1.0):
        keys = parametric.gaussian_keys(100_000, 1_000, sigma)
        assert 0 <= keys.min() <= keys.max() <= 999
        inside = np.mean(np.abs((keys + 0.5) / 500 - 1) <= 0.1)
        assert abs(inside - {0.1: 0.683, 1.0: 0.117}[sigma]) < 0.01
    assert len(np.unique(parametric.uniform_keys(10_000, 100))) == 100
    assert (
        parametric.uniform_keys(10, 100, seed=3).tolist()
        != parametric.uniform_keys(10, 100, seed=4).tolist()
    )

"""TPC-H's Q5 as the continuous query of bench/mixed_q5.py: what SQL says, and keys that move."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from random_moves import RandomMoves

import ordstream as od
from ordstream.fragments.balancing import movable
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.process_stream import ProcessStream
from ordstream.fragments.same_process import run_here
from ordstream.reference.run_serial import run_serial

ROOT = Path(__file__).parents[2]
BATCHES, ROWS, SCALE = 8, 300, 0.002
SQL = """
    with joined as (
        select l.n, l.ts, c.nation, o.custkey, l.suppkey, l.cents * (100 - l.discount) as revenue,
            l.ts // 1000 as pane, c.nation = s.nation_of_supplier and r.region = 'ASIA' as local
        from rows l
        join rows o on o.orderkey = l.orderkey and o.custkey is not null
            and l.ts - o.ts between 0 and 60000
        join customer c on c.custkey = o.custkey
        join supplier s on s.suppkey = l.suppkey
        join nation r on r.nation = c.nation
        where l.suppkey is not null
    )
    select a.n, a.ts, a.nation, a.custkey, a.suppkey, a.revenue,
        sum(b.revenue) filter (b.custkey = a.custkey and b.pane > a.pane - 300)::bigint as spent,
        sum(b.revenue) filter (b.suppkey = a.suppkey and b.pane > a.pane - 300)::bigint as sold,
        sum(b.revenue) filter (b.local and b.nation = a.nation and b.ts > a.ts - 300000)::bigint as volume
    from joined a join joined b on b.n <= a.n
    where a.local
    group by all order by a.n
"""


@pytest.fixture
def q5(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("mixed_q5")


@pytest.fixture
def tables(q5):
    """All customers and suppliers are of two nations of Asia, and one of Africa: else few rows are left."""
    made = q5.tables(SCALE)
    for name, column in (("customer", "nation"), ("supplier", "nation_of_supplier")):
        of = np.array([8, 9, 0])[np.arange(len(made[name])) % 3]
        made[name] = made[name].set_column(1, column, pa.array(of))
    return made


def test_the_answer_is_that_of_sql(q5, tables):
    duckdb = pytest.importorskip("duckdb")
    rows = q5.stream(ROWS, BATCHES, 1, SCALE)
    connection = duckdb.connect()
    for name, table in {"rows": rows, **tables}.items():
        connection.register(name, table)
    found = q5.pipeline("mixed", tables).run(rows).table
    assert len(found) > 200
    expected = connection.sql(SQL).to_arrow_table()
    assert found.schema.names == expected.schema.names
    assert found.to_pylist() == expected.to_pylist()


class SomeMoves(RandomMoves):
    """The fragment in front does not move at each report: one move is under way at a time, and those behind
    come when it has none.
    """

    def decide(self):
        if self._random.random() < 0.5:
            self._collect()
            return None
        return super().decide()


def keys_that_move(pipeline, seed):
    fragments = fragments_of(pipeline.plan)
    assert [[one.source.names[index] for index in one.key] for one in fragments if one.key] == [
        ["orderkey"], ["custkey"], ["suppkey"], ["nation"],
    ]  # fmt: skip
    return {k: SomeMoves(seed + k, 2) for k in movable(fragments, 2)}


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.thin(1)
def test_keys_of_all_its_joins_move(q5, tables, seed):
    pipeline, rows = q5.pipeline("mixed", tables), q5.stream(ROWS, BATCHES, 2, SCALE)
    balance = keys_that_move(pipeline, seed or 0)
    found = run_here(
        pipeline, rows, 2, {"tags": True}, seed=seed, block_rows=20, channel_bytes=2_000, balance=balance,
        interval=40,
    )  # fmt: skip
    expected = run_serial(pipeline, rows)
    assert found.table.drop_columns(["_serial", "_index"]).equals(expected.table)
    tags = zip(found.table["_serial"].to_pylist(), found.table["_index"].to_pylist(), strict=True)
    assert list(tags) == expected.tags
    of_joins = [balance[k].version for k in (1, 2, 3)]
    assert all(of_joins), of_joins


def test_its_keys_move_between_two_processes(q5, tables, monkeypatch):
    monkeypatch.setattr("ordstream.fragments.balancing.DECIDES", 1e9)  # reports come as fast as rows do
    pipeline, rows = q5.pipeline("mixed", tables), q5.stream(2 * ROWS, BATCHES, 3, SCALE)
    balance = keys_that_move(pipeline, 5)
    stream = ProcessStream(pipeline, rows, 2, {"balance": balance}, block_rows=20, channel_bytes=2_000)
    stream._balancing._interval = stream._balancing._next = 40
    with stream:
        found = pa.Table.from_batches(list(stream), schema=stream.schema)
        moves = stream.moves
    assert found.equals(run_serial(pipeline, rows).table)
    assert sum(one.rows for one in moves) > 0, moves


def test_what_ideal_brings_along_is_the_answer(q5, tables):
    rows = pa.concat_tables(q5.batches_of("ideal", 2, 800, 2, 1))
    plain = rows.select(q5.schema("mixed").names)
    found = q5.pipeline("ideal", None).run(rows).table
    assert len(found) > 5
    assert found.equals(q5.pipeline("mixed", None).run(plain).table)


@pytest.mark.parametrize("phase", [0, 1])
def test_the_hash_gives_most_to_one_node_and_then_to_the_other(q5, phase):
    rows = q5.stream(2_000, 8, 1)
    now = rows.filter(pc.equal(pc.divide(rows["ts"], q5.PHASE * q5.BATCH), phase))
    for column in ("custkey", "suppkey"):
        at = od.Mixed().ring(2).route(now[column].drop_null().to_numpy())
        assert np.mean(at == phase) == pytest.approx(q5.HEAVY, abs=0.04)
    span = q5.BATCH * 8
    assert rows["ts"][-1].as_py() == pytest.approx(span, rel=0.03)
    orders = pc.sum(pc.is_valid(rows["custkey"])).as_py()
    assert orders == pytest.approx(len(rows) / 5, rel=0.03)

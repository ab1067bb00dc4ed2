"""Groupings of the caller's own between processes: what they give is checked where it is used."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from given_routes import (
    Route,
    above_int64,
    far_too_high,
    flags,
    in_turn,
    negative,
    nothing,
    ragged,
    reals,
    table,
    too_few,
    too_high,
)

import ordstream as od
from ordstream.balance.baselines import optimal_approximation
from ordstream.errors import PlanError
from ordstream.fragments.spreading import checked_nodes

TABLE = pa.table({"k": range(600), "v": range(600)})


def pipeline(schema: pa.Schema = TABLE.schema, key: str = "k") -> od.Pipeline:
    front = od.Pipeline(schema).map(tuple, schema=schema, name="f")
    return front.key_by(key).scan(n=od.count(), name="s")


ODD = [
    (too_high, "node 7"),
    (negative, "node -1"),
    (far_too_high, "node 4294967296"),
    (above_int64, "node 9223372036854775808"),
    (reals, r"(np\.float64\()?0\.0\)? \(float64\)"),
    (flags, r"(np\.)?False_? \(bool\)"),
    (too_few, r"array\(.* for \d+ keys"),
    (table, r"array\(.* for \d+ keys"),
    (nothing, r"None for \d+ keys"),
    (ragged, r"\[\[1\], \[2, 3\]\] for \d+ keys"),
]


@pytest.mark.parametrize(("nodes", "said"), ODD)
def test_what_is_no_node_for_each_key_is_one_sentence(nodes: Any, said: str) -> None:
    with pytest.raises(PlanError, match=f"^grouping: Route of 'f' gave {said}; route.*from 0 to 1$"):
        checked_nodes(nodes(5), 5, 2, "Route of 'f'")


def test_nodes_of_any_integer_type_are_taken() -> None:
    for given in (np.array([0, 1], np.uint8), np.array([0, 1]), [0, 1], pa.array([0, 1])):
        found = checked_nodes(given, 2, 2, "")
        assert (found.dtype, found.tolist()) == (np.dtype(np.int32), [0, 1])
    assert checked_nodes([], 0, 2, "").tolist() == []


def test_a_run_says_what_its_grouping_gave() -> None:
    given: dict[str, Any] = {"processes": 2, "grouping_key": "k"}
    for nodes, said in (ODD[0], ODD[1], ODD[4], ODD[6]):
        with pytest.raises(PlanError, match=f"^grouping: Route of 'f' gave {said}"):
            pipeline().run(TABLE, grouping=Route(nodes), **given)
    found = pipeline().run(TABLE, grouping=Route(in_turn), **given)
    assert found.table.equals(pipeline().run(TABLE).table)


@pytest.mark.parametrize("name", ["f", "s"])
def test_a_map_without_bytes_says_so(name: str) -> None:
    grouping = {name: optimal_approximation(TABLE["k"], 2)}
    key = {"grouping_key": "k"} if name == "f" else {}
    with pytest.raises(PlanError, match=r"^grouping: KeyMap\(.*has no bytes.*Use od\.DKG"):
        pipeline().run(TABLE, processes=2, grouping=grouping, **key)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.date32(), [dt.date(2020, 1, n + 1) for n in range(6)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, n + 1) for n in range(6)]),
        (pa.decimal128(10, 2), [Decimal(n) for n in range(6)]),
    ],
)
def test_dkg_learns_structs_that_hold_times_and_decimals(kind: pa.DataType, values: list[Any]) -> None:
    column = pa.array([values[n % 6] for n in range(600)], kind)
    struct = pa.StructArray.from_arrays([column, pa.array(np.arange(600) % 2)], ["x", "y"])
    rows = TABLE.append_column("s", struct)
    line = pipeline(rows.schema)
    found = line.run(rows, processes=2, grouping=od.DKG(m=100), grouping_key="s")
    assert found.report.grouping["heavy"] == 6
    assert found.table.equals(line.run(rows).table)


def test_a_stream_refuses_a_window_of_states() -> None:
    with pytest.raises(PlanError, match="balance: window=3 does nothing in a run"):
        pipeline().stream(TABLE, processes=2, balance=od.Mixed(window=3))

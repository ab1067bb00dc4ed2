"""Three ways to write the same operator: built in, compiled (Numba), a Python function of batches.

    batches -> ingress -> value + 1 (SL), or count per key (PS) -> egress

1 worker, 1,024 tuples per chunk; every way runs the same pipeline but for its kernel, so differences are the
kernel's.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
import pyarrow as pa
import pytest
from targets import Figure

import ordstream as od
from ordstream.node import node

pytestmark = pytest.mark.benchmark(group="kernels", timer=harness.replayed_clock)

OPTIONS = {"workers": 1, "chunk_rows": 1024}
TUPLES = 16 << 20


def add_one(row: Any, emit: Any) -> None:
    emit(row.value + 1)


def count(row: Any, state: Any, emit: Any) -> None:
    state.n += 1
    emit(row.key, state.n)


def unchanged(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return columns


def contest(chains: dict[str, Any], expected: np.ndarray, with_keys: bool) -> harness.Contest:
    """Verify every way, then run them in turn."""
    first = harness.data().batches(len(expected), with_keys)
    for name, chain in chains.items():
        table = node.run(chain, first, **OPTIONS).table
        try:
            harness.check(table.column(table.num_columns - 1).to_numpy(), expected)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    batches = harness.data().batches(TUPLES, with_keys)
    bodies = {
        name: lambda chain=chain: harness.run_node(chain, batches, **OPTIONS)
        for name, chain in chains.items()
    }
    return harness.Contest(TUPLES, bodies).run()


def difference(run: harness.Contest, a: str, b: str) -> float:
    """Median over rounds of wall(a) - wall(b), ns per tuple."""
    return run.paired(lambda ran: ran[a].wall - ran[b].wall)


def test_compiled_stateless(bench: Any) -> None:
    pytest.importorskip("numba")
    source = od.Pipeline(harness.VALUE)
    chains = {
        "compiled": source.map(add_one, schema=harness.RESULT, compiled=True),
        "builtin": source.select((od.col("value") + 1).alias("result")),
    }
    run = contest(chains, np.tile(harness.data().values + 1, 2), False)
    name = "kernels value + 1, chunk=1024 workers=1"
    figure = Figure(name, "compiled - built-in", difference(run, "compiled", "builtin"), "ns", at_most=2.0)
    bench.contest(run, "compiled", [figure], **OPTIONS)


def test_compiled_keyed(bench: Any) -> None:
    pytest.importorskip("numba")
    source = od.Pipeline(harness.KEY_VALUE).key_by("key")
    output = pa.schema([("key", pa.int64()), ("count", pa.int64())])
    chains = {
        "compiled": source.process(count, schema=output, state={"n": pa.int64()}, compiled=True),
        "builtin": source.count(),
    }
    tuples = 2 * harness.BATCH
    counts = harness.data().expected(tuples, 0, True) - harness.data().expected(tuples, 0, False)
    run = contest(chains, counts, True)
    name = "kernels count per key, chunk=1024 workers=1"
    figure = Figure(name, "compiled - built-in", difference(run, "compiled", "builtin"), "ns", at_most=2.0)
    bench.contest(run, "compiled", [figure], **OPTIONS)


def test_python_batch(bench: Any) -> None:
    source = od.Pipeline(harness.VALUE)
    chains = {
        "python": source.map_batches(unchanged, schema=harness.VALUE),
        "builtin": source.select("value"),
    }
    run = contest(chains, np.tile(harness.data().values, 2), False)
    name = "kernels Python function of batches, chunk=1024 workers=1"
    figure = Figure(name, "Python batch - built-in", difference(run, "python", "builtin"), "ns", at_most=1.0)
    bench.contest(run, "python", [figure], **OPTIONS)

"""Columns that nothing reads have no data; operators that only carry them must not look."""

from __future__ import annotations

from unit.kernel_check import SCHEMA, pipeline, testing

import ordstream as od


def test_pruned_columns_pass_through():
    """Columns that nothing reads have no data; operators that only carry them must not look."""
    for line in (
        pipeline().flat_map(od.pairs("l", carry=["s", "x"])),
        pipeline().filter(od.col("i") > 0),
        pipeline().scan(n=od.sum("i")),
        pipeline().top_k(2, "i", key="j"),
    ):
        (stage,) = line.plan.operators
        kernel = testing.KernelRun(stage.kernel(), stage.key)
        columns = {"i": [1, 2, 3], "j": [1, 1, 2], "l": [[1, 2], [2], [3, 4]]}
        if stage.op == "pairs":
            found = kernel.push([columns.get(name) for name in SCHEMA.names])
            assert [row[2:] for _, row in found] == [(1, 2), (3, 4)]
        kernel.close()

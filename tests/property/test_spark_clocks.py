"""Random pipelines with clocks over Spark's nodes, without Spark, as streams and in a batch: whatever the
nodes, the output is that of a sequential run, in values, order and tags.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from property import strategies as s
from property.compare import (
    as_table,
    exact_rows,
    for_several_nodes,
    large,
    options_over_nodes,
    run_reference,
)
from property.drawn_clocked import clocked

from ordstream.errors import OperatorError, SchemaError, SourceError

pytest.importorskip("pyspark")
import pyarrow.parquet as pq
from epoch_frames import Frame, install
from spark_steps import run_as_spark_does

from ordstream.ground.nested_cast import align
from ordstream.spark.streaming.epoch_functions import FINISH, SUSPEND
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_runner import EpochRunner, output_schema
from ordstream.spark.streaming.micro_batch import InOrder

FEW = large(max_examples=max(12, settings.default.max_examples // 5))
#: Longer tables show nothing more, and each epoch is several nodes.
MOST_ROWS = 300
NODES = st.lists(st.sampled_from((1, 2, 3, 5)), min_size=4, max_size=4)


@pytest.fixture(autouse=True, scope="module")
def tasks():
    with pytest.MonkeyPatch.context() as patch:
        install(patch)
        yield


def epochs(case: s.Case, table: pa.Table, edges: list[int], nodes: list[int], folder: Path) -> list[Any]:
    """The output of a stream with so many batches, over so many nodes each, and of its end."""
    options = options_over_nodes(case)
    workers = options.pop("workers")
    log = EpochLog.begun(folder, ("place",), output_schema(case.pipeline))
    columns = [*table.columns, pa.array(range(len(table)), pa.int64())]
    rows = pa.table(columns, names=[*(f"c{k}" for k in range(table.num_columns)), "o0"])
    for number, n in enumerate(nodes):
        runner = EpochRunner.made(
            "hash", ("place",), log=log, pipeline=case.pipeline, ordering=("o0",), slack=None, late="raise",
            nodes=n, workers=workers, options=options, run="r",
        )  # fmt: skip
        last = number + 1 == len(nodes)
        low, high = (0, 0) if last else edges[number : number + 2]
        part = InOrder(Frame(rows.slice(low, high - low)))
        log.publish(runner.epoch(part, number, log.last(), "s", FINISH if last else SUSPEND))
    files = [one["file"] for manifest in log.all() for one in manifest.output]
    found = [pq.ParquetFile(log.folder / "output" / name).read() for name in files]
    return exact_rows([batch for one in found for batch in one.to_batches()], log.schema)


def drawn(case: s.Case) -> tuple[pa.Table, Any, list[Any]]:
    """The case's rows, what the reference makes of them, and that as Spark has it."""
    assume(for_several_nodes(case.pipeline.plan))
    table = as_table(case)
    assume(len(table) <= MOST_ROWS)
    expected = run_reference(case.pipeline, table, options_over_nodes(case).get("punctuate"))
    tags = [pa.array([tag[k] for tag in expected.tags], pa.int64()) for k in (0, 1)]
    wanted = expected.table.append_column("_serial", tags[0]).append_column("_index", tags[1])
    try:
        schema = output_schema(case.pipeline)
        return table, expected, exact_rows([align(one, schema) for one in wanted.to_batches()], schema)
    except (SchemaError, pa.ArrowInvalid):
        assume(False)  # a type, or a value, that Spark has not
        raise


# a task that failed ends with its process, and its files with it
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@FEW
@given(clocked(), NODES, st.data())
def test_streams(case: s.Case, nodes: list[int], data: Any) -> None:
    assume(all(one.can_snapshot for one in case.pipeline.plan.operators))
    table, expected, rows = drawn(case)
    inner = data.draw(st.lists(st.integers(0, len(table)), min_size=2, max_size=2))
    edges = [0, *sorted(inner), len(table)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = epochs(case, table, edges, nodes, Path(folder) / "c")
        except SchemaError:
            assume(False)  # between two fragments
        except (OperatorError, SourceError, pa.ArrowInvalid):
            assert expected.error is not None
            return
    assert expected.error is None
    assert found == rows


@FEW
@given(clocked(), st.sampled_from((1, 2, 3)), st.integers(0, 99))
def test_batches(case: s.Case, nodes: int, seed: int) -> None:
    table, expected, rows = drawn(case)
    given = options_over_nodes(case)
    given = {name: one for name, one in given.items() if name not in ("workers", "seed")}
    try:
        found = run_as_spark_does(case.pipeline, table, nodes, seed, **given)
    except SchemaError:
        assume(False)
    except (OperatorError, SourceError, pa.ArrowInvalid):
        assert expected.error is not None
        return
    assert expected.error is None
    assert (
        exact_rows(
            [align(one, output_schema(case.pipeline)) for one in found.to_batches()],
            output_schema(case.pipeline),
        )
        == rows
    )

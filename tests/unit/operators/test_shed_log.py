"""`shed_log=`: which tables are a log, and whether a log is of the pipeline that it is given to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import ordstream as od
from ordstream.operators.shed import LOG_SCHEMA
from ordstream.plan.shedding import only_shed, options_of_part
from ordstream.reference.run_serial import run_serial

ROWS = 30
TABLE = pa.table({"k": [i % 3 for i in range(ROWS)], "v": list(range(ROWS))})


def sheds(*names: str) -> od.Pipeline:
    """Shed operators that drop nothing by themselves, each in front of a projection."""
    made = od.Pipeline(TABLE.schema)
    for name in names:
        made = made.shed("10000 days", "k", name=name).select("k", "v")
    return made


SHEDS = sheds("s")
SERIALS = list(range(2, 21, 3))
LOG = pa.table(
    {
        "partition": [0] * len(SERIALS),
        "operator": ["s"] * len(SERIALS),
        "serial": SERIALS,
        "index": [0] * len(SERIALS),
        "at_ns": [1] * len(SERIALS),
        "latency_ms": [0.5] * len(SERIALS),
        "cost_ms": [0.5] * len(SERIALS),
    },
    schema=LOG_SCHEMA,
)
LEFT = [value for value in range(ROWS) if value + 1 not in SERIALS]


def put(name: str, column: Any) -> pa.Table:
    """The log with another column in the place of that name."""
    return LOG.set_column(LOG.column_names.index(name), name, column)


def cast(name: str, kind: pa.DataType) -> pa.Table:
    return put(name, LOG[name].cast(kind))


def both(log: Any, pipeline: od.Pipeline = SHEDS) -> list[int]:
    """The values that are left, of a run and of a serial one alike."""
    found = pipeline.run(TABLE, workers=1, chunk_rows=4, shed_log=log).table
    assert run_serial(pipeline, TABLE, shed_log=log).table.equals(found)
    values: list[int] = found["v"].to_pylist()
    return values


@pytest.mark.parametrize(
    "log",
    [
        LOG,
        LOG.select(["operator", "serial", "index"]),
        LOG.take(np.arange(len(SERIALS))[::-1].copy()),
        pa.concat_tables([LOG.slice(0, 2), LOG.slice(2, 0), LOG.slice(2)]),
        pa.concat_tables([LOG.slice(3), LOG]).slice(len(SERIALS) - 3),
        pa.concat_tables([LOG, LOG]),
        *(cast("operator", kind) for kind in (pa.large_string(), pa.string_view())),
        put("operator", LOG["operator"].dictionary_encode()),
        put("operator", LOG["operator"].cast(pa.large_string()).dictionary_encode()),
        *(cast("serial", kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())),
        *(cast("index", kind) for kind in (pa.uint8(), pa.int32())),
        cast("partition", pa.int8()),
    ],
)
def test_a_log_in_another_form_sheds_the_same(log: pa.Table) -> None:
    assert both(log) == LEFT


def test_a_log_that_was_written_and_read(tmp_path: Any) -> None:
    pq.write_table(cast("operator", pa.large_string()), tmp_path / "log.parquet")
    assert both(pq.read_table(tmp_path / "log.parquet")) == LEFT
    for name, log, left in (("log", LOG, LEFT), ("none", LOG.slice(0, 0), list(range(ROWS)))):
        pyarrow.csv.write_csv(log, tmp_path / f"{name}.csv")
        assert both(pyarrow.csv.read_csv(tmp_path / f"{name}.csv")) == left


@pytest.mark.parametrize("pipeline", [SHEDS, od.Pipeline(TABLE.schema).select("k", "v")])
def test_an_empty_log_fits_everything(pipeline: od.Pipeline) -> None:
    assert both(LOG.slice(0, 0), pipeline) == list(range(ROWS))
    assert both(LOG_SCHEMA.empty_table(), pipeline) == list(range(ROWS))


NULLS = pa.nulls(len(SERIALS))
LATE = pa.array([*SERIALS[:-1], None])
HALF_NULL = pa.DictionaryArray.from_arrays([0, 1] + [0] * (len(SERIALS) - 2), ["s", None])
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "list": (lambda: LOG.to_pylist(), "shed_log is the table `result.shed.log`.*got list"),
    "no index": (lambda: LOG.drop(["index"]), "there is no column 'index'.*this one has 'partition', 'oper"),
    "none": (lambda: pa.table({}), "there is no column 'operator'.*this one has none"),
    "twice": (lambda: LOG.append_column("serial", LOG["serial"]), "there are 2 columns 'serial'; leave one"),
    "int": (lambda: put("operator", LOG["index"]), "'operator' is int64; it holds the names of shed"),
    "bytes": (lambda: cast("operator", pa.binary()), "'operator' is binary; it holds the names"),
    "float": (lambda: put("serial", pc.add(LOG["serial"], 0.5)), "'serial' is double; it holds whole num"),
    "bool": (lambda: cast("index", pa.bool_()), "'index' is bool; it holds whole numbers"),
    "text": (lambda: cast("serial", pa.string()), "'serial' is string; it holds whole numbers"),
    "part": (lambda: cast("partition", pa.string()), "'partition' is string; it holds whole numbers"),
    "null": (lambda: put("serial", LATE), "'serial' is null in row 6; every row names one shed tuple"),
    "nulls": (lambda: put("index", NULLS), "'index' is null in row 0"),
    "no names": (lambda: put("operator", NULLS), "'operator' is null in row 0"),
    "code": (lambda: put("operator", HALF_NULL), "'operator' is null in row 1"),
    "no parts": (lambda: put("partition", NULLS.cast(pa.int64())), "'partition' is null in row 0"),
    "below": (lambda: put("serial", pc.negate(LOG["serial"])), "'serial' has -20; it must be at least 0"),
    "large": (
        lambda: put("serial", pa.array([2**64 - 1] * len(SERIALS), pa.uint64())),
        "'serial' has a number that does not fit int64",
    ),
    "other": (
        lambda: pa.concat_tables([LOG, put("operator", pa.array(["z"] * len(SERIALS)))]),
        r"it has tuples that 'z' shed, but the pipeline's shed operators are 's'\. Give a log of this pipel",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_log_of_the_pipeline(name: str) -> None:
    """Such rows were passed over in silence, or failed as Arrow fails."""
    log, why = WRONG[name]
    for run in (SHEDS.run, SHEDS.stream, lambda data, **given: run_serial(SHEDS, data, **given)):
        with pytest.raises(od.PlanError, match=why):
            run(TABLE, shed_log=log())


def test_a_pipeline_that_does_not_shed() -> None:
    plain = od.Pipeline(TABLE.schema).select("k", "v")
    for run in (plain.run, lambda data, **given: run_serial(plain, data, **given)):
        with pytest.raises(od.PlanError, match=r"tuples that 's' shed, and this pipeline has no \.shed"):
            run(TABLE, shed_log=LOG)


def test_all_shed_operators_are_named() -> None:
    with pytest.raises(od.PlanError, match=r"'s' shed, but the pipeline's shed operators are 'a', 'b'\."):
        sheds("a", "b").run(TABLE, shed_log=LOG)


def test_a_part_of_the_pipeline_gets_its_part_of_the_log() -> None:
    """What stands behind the operator that is asked for is not run, so the log would not fit."""
    pipeline = sheds("s", "t")
    log = pa.concat_tables([LOG, put("operator", pa.array(["t"] * len(SERIALS)))])
    options = options_of_part(only_shed(pipeline.plan, "s"), {"shed_log": log, "tags": True, "seed": 2})
    assert options.keys() == {"shed_log", "seed"}
    assert options["shed_log"].equals(LOG)
    assert options_of_part(only_shed(pipeline.plan), {"shed_log": log})["shed_log"].equals(log)

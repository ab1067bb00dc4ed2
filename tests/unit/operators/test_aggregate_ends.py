"""`first` and `last` at the end of the stream: of a part's rows only the ends of each key are taken in."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.testing import run_serial

N = 600
TYPES: dict[str, Any] = {
    "i64": (pa.int64(), lambda r: r.randrange(-(2**60), 2**60)),
    "u64": (pa.uint64(), lambda r: r.randrange(2**64)),
    "i16": (pa.int16(), lambda r: r.randrange(-300, 300)),
    "u8": (pa.uint8(), lambda r: r.randrange(256)),
    "f64": (pa.float64(), lambda r: r.choice([-0.0, 0.0, float("inf"), r.random()])),
    "f32": (pa.float32(), lambda r: float(r.randrange(100))),
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "day": (pa.date32(), lambda r: datetime.date(2020, 1, 1) + datetime.timedelta(r.randrange(900))),
    "text": (pa.string(), lambda r: "x" * r.choice([0, 1, 15, 16, 40]) + str(r.randrange(9))),
    "list": (pa.list_(pa.int32()), lambda r: [r.choice([None, 1, 2]) for _ in range(r.randrange(4))]),
    "wide": (pa.decimal128(30, 2), lambda r: r.randrange(10**20)),
}


def table(nulls: float, keys: int, seed: int = 1) -> pa.Table:
    r = random.Random(seed)
    columns: dict[str, Any] = {"k": pa.array([r.randrange(keys) for _ in range(N)])}
    for name, (kind, value) in TYPES.items():
        values = [None if r.random() < nulls else value(r) for _ in range(N)]
        if name == "wide":
            values = [None if v is None else decimal.Decimal(v) / 100 for v in values]
        columns[name] = pa.array(values, kind)
    for i in range(60):  # so many that ends of numbers are looked for, too
        columns[f"n{i}"] = pa.array([None if r.random() < nulls else r.randrange(100) for _ in range(N)])
    return pa.table(columns)


def ends(names: list[str]) -> dict[str, Any]:
    return {f"{name}_{of.__name__}": of(name) for name in names for of in (od.first, od.last)}


@pytest.mark.parametrize("nulls", [0.0, 0.3, 0.97])
@pytest.mark.parametrize("keys", [1, 7, 500])
@pytest.mark.parametrize("run", [{"chunk_rows": 1}, {"workers": 2, "chunk_rows": 61}, {"workers": 1}])
def test_ends_of_every_type_are_those_of_run_serial(nulls: float, keys: int, run: dict[str, Any]) -> None:
    rows = table(nulls, keys)
    pipeline = (
        od.Pipeline(rows.schema)
        .filter(od.col("i16").is_null() | (od.col("i16") > -200))
        .key_by("k")
        .aggregate(**ends(rows.schema.names[1:]), n=od.count(), total=od.sum("n0"), emit="final")
    )
    assert pipeline.run(rows, **run).table.equals(run_serial(pipeline, rows).table)


@pytest.mark.parametrize("chunk_rows", [1, 50, 1000])
def test_without_a_key(chunk_rows: int) -> None:
    rows = table(0.9, 3)
    pipeline = od.Pipeline(rows.schema).aggregate(**ends(rows.schema.names[1:]), emit="final")
    assert pipeline.run(rows, chunk_rows=chunk_rows).table.equals(run_serial(pipeline, rows).table)
    assert (
        pipeline.run(rows.slice(0, 0)).table.num_rows
        == run_serial(pipeline, rows.slice(0, 0)).table.num_rows
    )


@pytest.mark.parametrize("chunk_rows", [1, 40, 600])
def test_a_row_that_fails_leaves_no_end_behind(chunk_rows: int) -> None:
    """The last row of a key overflows its sum: the last values are those of the row before it."""
    r = random.Random(3)
    big = [2**62 if r.random() < 0.2 else 1 for _ in range(N)]
    rows = table(0.1, 9).append_column("big", pa.array(big))
    pipeline = (
        od.Pipeline(rows.schema)
        .key_by("k")
        .aggregate(**ends(rows.schema.names[1:]), big=od.sum("big"), emit="final", on_error="skip")
    )
    result = pipeline.run(rows, chunk_rows=chunk_rows)
    assert result.report.skipped
    assert result.table.equals(run_serial(pipeline, rows).table)


def test_with_a_condition_beside_it() -> None:
    rows = table(0.2, 9)
    pipeline = (
        od.Pipeline(rows.schema)
        .key_by("k")
        .aggregate(**ends(rows.schema.names[1:]), big=od.last("text", where=od.col("i16") > 0), emit="final")
    )
    assert pipeline.run(rows).table.equals(run_serial(pipeline, rows).table)


def kernel(emit: str, **aggregations: Any) -> Any:
    schema = table(0, 1).schema
    pipeline = od.Pipeline(schema).key_by("k").aggregate(**aggregations, emit=emit)  # type: ignore[arg-type]
    return pipeline.plan.operators[0].kernel()


def test_which_are_taken_in_by_part() -> None:
    """A text always; numbers where there are many; never where each row shows them, or by a condition."""
    numbers = {f"n{i}": od.last(f"n{i}") for i in range(60)}
    assert kernel("final", **numbers, n=od.count()).ends == 60
    assert kernel("final", a=od.last("n1"), b=od.first("i64")).ends == 0
    assert kernel("final", a=od.last("text"), b=od.first("i64"), c=od.min("text")).ends == 2
    assert kernel("final", a=od.last("text", where=od.col("i16") > 0)).ends == 0
    assert kernel("updates", **numbers).ends == 0


def test_a_kept_text_is_little_more_than_its_bytes() -> None:
    """It was an object with queues for windows: some 150 bytes for a short text."""
    rows = pa.table({"k": range(2000), "text": ["short"] * 2000})
    keyed = od.Pipeline(rows.schema).key_by("k")
    texts, counts = (
        keyed.aggregate(a=a, emit="final").run(rows, workers=0).report.operators[-1].state_bytes
        for a in (od.last("text"), od.count())
    )
    assert 0 < texts - counts <= 2000 * 64

"""Committed epochs as a stream's driver leaves them, and what a sink must show of them."""

from __future__ import annotations

import datetime
import itertools
import json
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordstream.ground.ordertags import OrderTag
from ordstream.spark.streaming.sinks import Epoch, OutputFile, StreamInfo

TAGS = [pa.field("_serial", pa.int64(), nullable=False), pa.field("_index", pa.int64(), nullable=False)]
SCHEMA = pa.schema(
    [("user", pa.int64()), ("word", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
    + [("cents", pa.decimal128(9, 2)), ("items", pa.list_(pa.int64())), *TAGS]
)
#: Rows of each file of each epoch.
SIZES: Sequence[Sequence[int]] = ([400], [], [0], [1], [900, 0, 17_000], [300, 301])
HOSTILE = [
    "",
    "plain",
    "tab\there",
    "two\nlines",
    "\\.",
    "\\N",
    "a\\\nb\r",
    "'; drop table x; --",
    "é𝄞",
    None,
    "NULL",
    '"',
]
QUERY = "2f1c9f0e-query"


def rows(first: int, count: int) -> pa.Table:
    """Output rows of the serials from `first`; every third serial has two."""
    number = np.arange(first, first + count)
    serial, index = 1 + number - (number + 1) // 3, (number % 3 == 2).astype(np.int64)
    start = datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    columns = [
        pa.array(number % 97, mask=number % 11 == 0),
        [HOSTILE[n % len(HOSTILE)] for n in number],
        [float("nan") if n % 5 == 0 else n / 7 for n in number.tolist()],
        [start + datetime.timedelta(microseconds=int(n)) for n in number],
        [None if n % 13 == 0 else Decimal(int(n)) / 100 for n in number],
        [None if n % 4 == 0 else [None, *range(n % 4)] for n in number.tolist()],
        serial,
        index,
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def commit(checkpoint: Path, sizes: Sequence[Sequence[int]] = SIZES) -> list[Epoch]:
    """Write epochs of these files under `checkpoint`."""
    (checkpoint / "output").mkdir(parents=True)
    made, at, through = [], 0, OrderTag(0)
    for number, files in enumerate(sizes):
        named = []
        for position, size in enumerate(files):
            path = checkpoint / "output" / f"{number}-{position}-attempt.parquet"
            table = rows(at, size)
            pq.write_table(table, path, write_page_checksum=True)
            data = path.read_bytes()
            named.append(OutputFile(path, size, len(data), f"{zlib.crc32(data):08x}"))
            at += size
            if size:
                through = OrderTag(table["_serial"][-1].as_py(), table["_index"][-1].as_py())
        made.append(Epoch(number, named, through))
    return made


def whole(sizes: Sequence[Sequence[int]] = SIZES) -> pa.Table:
    """All rows of `commit`."""
    return rows(0, sum(itertools.chain(*sizes)))


def stream(checkpoint: Path, query: str = QUERY, schema: pa.Schema = SCHEMA) -> StreamInfo:
    return StreamInfo(query, checkpoint, schema)


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal value for value, in order, NaN equal to NaN."""

    def plain(table: pa.Table) -> pa.Table:
        price = table["price"]
        nan = pc.fill_null(pc.is_nan(price), False)
        return table.append_column("nan", nan).set_column(2, "price", pc.if_else(nan, 0.0, price))

    return found.num_rows == expected.num_rows and plain(found.cast(SCHEMA)).equals(plain(expected))


def to_json(epochs: Sequence[Epoch]) -> str:
    """For another process."""
    told = [
        [
            one.number,
            [[str(file.path), file.rows, file.bytes, file.crc32] for file in one.files],
            bytes(one.emitted_through).hex(),
        ]
        for one in epochs
    ]
    return json.dumps(told)


def from_json(text: str) -> list[Epoch]:
    def epoch(number: int, files: Any, through: str) -> Epoch:
        named = [OutputFile(Path(path), *told) for path, *told in files]
        return Epoch(number, named, OrderTag.from_bytes(bytes.fromhex(through)))

    return [epoch(*told) for told in json.loads(text)]

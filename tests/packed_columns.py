"""Rows whose columns are structs, lists and maps, as Spark has them too: nulls at every level, empty ones,
long texts.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

UTC = dt.UTC
MOMENT = pa.struct(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("us")),
        ("day", pa.date32()),
        ("took", pa.duration("us")),
    ]
)
ITEM = pa.struct(
    [("x", pa.float64()), ("raw", pa.binary()), ("price", pa.decimal128(20, 3)), ("moment", MOMENT)]
)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("k", pa.int32()),
        (
            "s",
            pa.struct([("a", pa.int32()), ("a.b", pa.string()), ("é", pa.list_(pa.string())), ("in", ITEM)]),
        ),
        ("words", pa.list_(pa.string())),
        ("items", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())]))),
        ("m", pa.map_(pa.string(), ITEM)),
        ("times", pa.map_(pa.int32(), pa.list_(pa.timestamp("us", "UTC")))),
        ("deep", pa.list_(pa.list_(pa.list_(pa.string())))),
    ]
)
PACKED = SCHEMA.names[2:]


def moment(n):
    if n % 4 == 0:
        return None
    return {
        "at": None if n % 3 == 0 else dt.datetime(2024, 7, 1 + n % 28, 23, 30, 0, n % 1_000_000, UTC),
        "wall": None if n % 5 == 0 else dt.datetime(1900 + n % 150, 3, 10, 2, 30),
        "day": dt.date(1970, 1, 1) + dt.timedelta(days=n),
        "took": dt.timedelta(microseconds=n * 1_000_003) if n % 6 else None,
    }


def item(n):
    if n % 5 == 0:
        return None
    return {
        "x": [None, -0.0, float("nan"), n / 7, 1e300][n % 5],
        "raw": None if n % 3 == 0 else bytes([n % 256, 0]) * (n % 4),
        "price": None if n % 7 == 0 else Decimal(n * 12_345_678) / 1000,
        "moment": moment(n),
    }


def struct(n):
    return {
        "a": None if n % 4 == 0 else n,
        "a.b": None if n % 5 == 0 else "ß\0'\"\\" * (n % 3),
        "é": None if n % 7 == 0 else ["x", None, "é" * n][: n % 4],
        "in": item(n),
    }


def items(n):
    return [None if (n + k) % 3 == 0 else {"a": k, "b": None if k else "b"} for k in range(n % 4)]


def moments(n, k):
    return [dt.datetime(2024, 11, 3, 5 + k, n % 60, tzinfo=UTC), None][: n % 3] if k else None


def row(n):
    return {
        "n": n,
        "k": None if n % 13 == 0 else n % 5,
        "s": None if n % 6 == 0 else struct(n),
        "words": None if n % 5 == 0 else ["", None, "w" * (10_000 if n == 3 else n % 30)][: n % 4],
        "items": None if n % 9 == 0 else items(n),
        "m": None if n % 8 == 0 else [(f"k{k}é", item(n + k)) for k in range(n % 3)],
        "times": None if n % 7 == 0 else [(k, moments(n, k)) for k in range(n % 4)],
        "deep": None if n % 11 == 0 else [[["a", None], None, []][: n % 4], None, []][: n % 5],
    }


def table(numbers):
    """Rows in the order of `n`."""
    rows = [row(n) for n in numbers]
    columns = [pa.array([one[field.name] for one in rows], field.type) for field in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


def shown(rows):
    """Values that compare, NaN among them."""
    return [repr([_plain(value) for value in one.values()]) for one in rows.to_pylist()]


def _plain(value):
    """Without the zone in which a moment is shown, and the order of a dict's keys as it is."""
    if isinstance(value, dt.datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value

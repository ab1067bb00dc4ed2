"""A table's position is a number of rows, which other data has as well: what the snapshot remembers of the
rows in front of it tells them apart.
"""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.node.positions import Positions
from ordstream.node.rows_before import COLUMNS, ROWS, digests, other_column

KINDS = {
    "ints": pa.array([1, None, 3, 4, 5]),
    "floats": pa.array([0.5, float("nan"), None, -0.0, 2.5]),
    "texts": pa.array(["a", "", None, "d", "é"]),
    "binary": pa.array([b"\xff", b"", None, b"d", b"e"]),
    "flags": pa.array([True, False, None, True, True]),
    "decimals": pa.array([decimal.Decimal(k) / 4 for k in range(5)], pa.decimal128(10, 2)),
    "days": pa.array([1, 2, None, 4, 5], pa.date32()),
    "millis": pa.array([1, 2, None, 4, 5], pa.date64()),
    "clock": pa.array([1, 2, None, 4, 5], pa.time32("s")),
    "fine": pa.array([1, 2, None, 4, 5], pa.time64("ns")),
    "spans": pa.array([1, 2, None, 4, 5], pa.duration("us")),
    "stamps": pa.array([1, 2, None, 4, 1 << 62], pa.timestamp("ns")),
    "zoned": pa.array([1, 2, None, 4, 5], pa.timestamp("s", "Europe/Berlin")),
    "large": pa.array(["a", "b", None, "d", "e"], pa.large_string()),
    "views": pa.array(["a", "b", None, "d", "e"], pa.string_view()),
    "coded": pa.array(["a", "b", None, "d", "a"]).dictionary_encode(),
}


def of(column):
    return pa.record_batch([column], ["x"])


@pytest.mark.parametrize("kind", KINDS)
def test_any_other_value_in_the_last_rows_is_seen(kind):
    column = KINDS[kind]
    whole = digests([of(column)], 5)
    assert list(whole) == ["x"]
    values = column.to_pylist() if kind != "stamps" else list(range(5))
    for row in range(5):
        if values[(row + 1) % 5] == values[row]:
            continue
        other = pa.concat_arrays(
            [column[:row], column[(row + 1) % 5 : (row + 1) % 5 + 1], column[row + 1 :]]
        )
        assert (digests([of(other)], 5) != whole) is (row >= 5 - ROWS), row


@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_cut_nor_what_follows_matters(kind):
    column = KINDS[kind]
    whole = digests([of(column)], 5)
    for cut in range(6):
        assert digests([of(column[:cut]), of(column[cut:]), of(column)], 5) == whole
    assert other_column(whole, [of(column), of(column)], 5) is None
    assert other_column(whole, [of(column[1:]), of(column)], 5) == "x"


def test_the_same_values_in_another_encoding():
    texts = KINDS["texts"]
    whole = digests([of(texts)], 5)
    for type_ in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        assert digests([of(texts.cast(type_))], 5) == whole
    stamps = pa.array([1, 2, None, 4, 5], pa.timestamp("s"))
    assert digests([of(stamps.cast(pa.timestamp("ns")))], 5) == digests([of(stamps)], 5)


def test_columns_that_tell_nothing():
    nested = pa.record_batch(
        {"l": [[1]], "s": [{"a": 1}], "n": pa.nulls(1), "h": pa.array([None], pa.month_day_nano_interval())}
    )
    assert digests([nested], 1) == {}
    assert Positions([nested]).at(0) == {"source": 0, "rows": 0}
    wide = pa.record_batch({f"c{k}": [k] for k in range(100)})
    assert len(digests([wide], 1)) == COLUMNS
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    assert digests([twice], 1) == {}
    # of a text that is none the run says so itself, at its row
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xff")]
    )
    assert list(digests([of(broken)], 1)) == ["x"]


ROWS_OF_DAYS = pa.table({"u": [k % 3 for k in range(1_000)], "v": list(range(1_000))})


def counted():
    return od.Pipeline(ROWS_OF_DAYS.schema).key_by("u").cum_sum("v")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", [1, 3, 400, 500])
def test_the_rows_behind_a_checkpoint_alone_are_refused(tmp_path, workers, cut):
    """They have rows enough: the run skipped so many and gave wrong rows, without a word."""
    counted().run(ROWS_OF_DAYS[:cut], checkpoint=tmp_path, end="suspend", workers=workers)
    with pytest.raises(od.SourceError, match=r"had other values in column '[uv]'.*goes on with restore="):
        counted().run(ROWS_OF_DAYS[cut:], checkpoint=tmp_path, workers=workers)
    rest = counted().run(ROWS_OF_DAYS, checkpoint=tmp_path, end="suspend", workers=workers)
    whole = counted().run(ROWS_OF_DAYS).table
    assert rest.table.equals(whole[cut:])


def test_a_checkpoint_that_remembers_no_rows_is_read(tmp_path):
    result = counted().run(ROWS_OF_DAYS[:500], checkpoint=tmp_path, end="suspend")
    position = {k: v for k, v in result.snapshot.position.items() if k != "before"}
    assert values(Positions(ROWS_OF_DAYS, 500, position)) == list(range(500, 1_000))
    with pytest.raises(od.SourceError, match="lies behind 500 rows of the source, but this one has 499"):
        Positions(ROWS_OF_DAYS[:499], 500, {"source": 0, "rows": 500})


def values(batches):
    return [value for batch in batches for value in batch.column("v").to_pylist()]


def test_a_day_goes_on_where_the_last_one_ended(tmp_path):
    whole, given = counted().run(ROWS_OF_DAYS).table, []
    for day in range(4):
        state = {"restore": tmp_path} if day else {}
        today = counted().run(ROWS_OF_DAYS[250 * day : 250 * (day + 1)], end="suspend", **state)
        od.Checkpoint(tmp_path).write(today.snapshot)
        given.append(today.table)
    assert pa.concat_tables(given).equals(whole)


def test_of_several_sources_the_one_with_other_rows_is_named(tmp_path):
    both = od.union(
        od.Pipeline(ROWS_OF_DAYS.schema, source="a"), od.Pipeline(ROWS_OF_DAYS.schema, source="b")
    )
    given = {"merge_by": "v", "checkpoint": tmp_path, "end": "suspend"}
    both.run({"a": ROWS_OF_DAYS[:300], "b": ROWS_OF_DAYS[:400]}, **given)
    for a, b, name in ((0, 400, "b"), (300, 0, "a")):
        with pytest.raises(od.SourceError, match=f"source '{name}': .* other values in column '[uv]'"):
            both.run({"a": ROWS_OF_DAYS[a:], "b": ROWS_OF_DAYS[b:]}, **given)
    rest = both.run({"a": ROWS_OF_DAYS, "b": ROWS_OF_DAYS}, **given)
    assert rest.table.num_rows == 1_300

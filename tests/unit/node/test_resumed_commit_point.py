"""A run that goes on from an order tag (`emitted_through=`): its commit point never lies in front of it, and
what a reader did not get is never behind it.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od

ROWS = pa.table({"k": list(range(1, 11))})
WAYS = pytest.mark.parametrize("how", [{"workers": 0}, {"workers": 2}, {"processes": 2}], ids=str)


def failing_at(k):
    def checked(row):
        if row.k == k:
            raise ValueError(k)
        return (row.k,)

    return od.Pipeline(ROWS.schema).map(checked, schema={"k": int}).key_by("k").cum_count("n")


def taken(stream, found):
    """All that the stream gives; what ends it is dropped."""
    try:
        for batch in stream:
            found += batch["k"].to_pylist()
    except od.OperatorError:
        pass
    assert stream.emitted_through == stream.report.emitted_through
    return stream.report.emitted_through


@WAYS
def test_a_run_that_fails_earlier_than_the_one_before(how, tmp_path):
    """The point went back to serial 4, and 5 to 7 came twice."""
    found, through, points = [], None, []
    for k in (8, 5, 0):
        stream = failing_at(k).stream(ROWS, checkpoint=tmp_path, emitted_through=through, **how)
        assert stream.emitted_through == (through or od.OrderTag(0))
        through = taken(stream, found)
        points.append(through)
    assert found == list(range(1, 11))
    assert points == [od.OrderTag(7, 0), od.OrderTag(7, 0), od.OrderTag(10, 0)]


@WAYS
def test_a_run_that_is_not_read(how, tmp_path):
    through = taken(failing_at(0).stream(ROWS, checkpoint=tmp_path, every=4, **how), [])
    stream = failing_at(0).stream(ROWS, checkpoint=tmp_path, emitted_through=through, **how)
    stream.close()
    assert stream.emitted_through == stream.report.emitted_through == through == od.OrderTag(10, 0)


@WAYS
def test_a_reader_of_several_outputs_that_stops(how):
    """The report's point was behind rows of the second output, which never came."""
    source = od.Pipeline(ROWS.schema)
    few, many = source.branch(od.col("k") > 7)
    with source.stream(ROWS, outputs={"few": few, "many": many}, **how) as stream:
        name, batch = next(stream)
    assert name == "few"
    assert batch["k"].to_pylist() == [8, 9, 10]
    assert stream.emitted_through == stream.report.emitted_through == od.OrderTag(0)
    found = source.run(
        ROWS, outputs={"few": few, "many": many}, emitted_through=stream.report.emitted_through, **how
    )
    assert found["many"]["k"].to_pylist() == list(range(1, 8))


NUMBERS = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("x", pa.int64(), nullable=False)])


def batch(k, x):
    return pa.record_batch([pa.array(k, pa.int64()), pa.array(x, pa.int64())], names=["k", "x"])


def batches(k, x):
    for n in range(100):
        yield batch([2 * n + 1, 2 * n + 2], [0, 0])
    yield batch([0, k], [0, x])


@WAYS
@pytest.mark.parametrize("live", [True, False])
def test_a_null_where_none_may_be(how, live):
    """Between processes a node found it among its own rows, and those of all were lost or not by chance."""
    pipeline = od.Pipeline(NUMBERS).key_by("k").cum_count("n")
    source = batches(None, 0) if live else list(batches(None, 0))
    stream, found = pipeline.stream(source, **how), []
    with pytest.raises(od.SourceError, match=r"column 'k' is declared without nulls .* row 202 has one"):
        found.extend(row for one in stream for row in one.to_pylist())
    assert len(found) == 200
    assert stream.emitted_through == od.OrderTag(200, 0)
    unread = od.Pipeline(NUMBERS).select("k").key_by("k").cum_count("n")
    assert unread.run(batches(0, None), **how).report.rows_out == 202


@WAYS
def test_a_null_in_a_clock_that_no_operator_reads(how):
    """The run was told the clock: between processes its column was not looked at."""
    pipeline = od.Pipeline(NUMBERS).select("k").key_by("k").cum_count("n")
    data = [batch([1, 2], [0, 1]), batch([3, 4], [2, None])]
    stream, found = pipeline.stream(data, punctuate=od.every("x", 2), **how), []
    with pytest.raises(od.SourceError, match=r"column 'x' is declared without nulls .* row 4 has one"):
        found.extend(row for one in stream for row in one.to_pylist())
    assert [row["k"] for row in found] == [1, 2]

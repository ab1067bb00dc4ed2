"""The five queries over any int64 time: stream, DuckDB and the definition give one answer, or all refuse."""

import pyarrow as pa
import pytest
from tpcxbb_definition import ANSWERS, Tables
from tpcxbb_times import PARAMETERS, RANGES, folder, write

from ordstream.errors import SourceError
from ordstream.ground.types import INT64_MAX
from ordstream.reference.run_serial import run_serial
from ordstream.tpcxbb import DataFolder, batch
from ordstream.tpcxbb.queries import QUERIES

duckdb = pytest.importorskip("duckdb")


def streamed(data, name, parameters, **options):
    query = QUERIES[name]
    pipeline = query.build(data.side_tables(), **parameters)
    source = pa.Table.from_batches(data.stream(query.source))
    found = pipeline.run(source, **options).table
    expected = run_serial(pipeline, source)
    assert expected.error is None
    assert found.equals(expected.table)
    return query.answer(expected.rows, **parameters)


@pytest.mark.parametrize("where", RANGES)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.thin(6)
def test_one_answer_whatever_the_times(tmp_path, where, seed):
    data = folder(tmp_path, where, seed)
    tables = Tables(data)
    for name, parameters in PARAMETERS.items():
        # no line through days so far away fits into int64
        if name == "q15" and where in ("the first", "the last", "everywhere"):
            parameters = parameters | {"date_from": -1, "date_to": 0}
        expected = ANSWERS[name](tables, **parameters)
        assert batch.first_difference(batch.duckdb_answer(data, name, **parameters), expected) is None, name
        found = streamed(data, name, parameters, workers=2, chunk_rows=7)
        assert batch.first_difference(found, expected) is None, name
        assert expected or name in ("q4", "q15"), name


def test_one_dynamic_click_before_1900(tmp_path):
    data = folder(tmp_path, "around 0", 0)
    write(tmp_path, "web_clickstreams", [(-1, 5, None, 1, 0, 1)])
    assert batch.duckdb_answer(data, "q4") == ANSWERS["q4"](Tables(data)) == [(1, 1)]
    assert streamed(data, "q4", {"timeout_seconds": 3600}) == [(1, 1)]


@pytest.mark.parametrize(
    ("date", "time"),
    [(106_751_991_167_301, 0), (106_751_991_167_300, 86_399), (-106_751_991_167_300, -86_399)],
)
def test_a_time_that_does_not_fit_is_refused(tmp_path, date, time):
    assert not -INT64_MAX - 1 <= date * 86_400 + time <= INT64_MAX
    data = folder(tmp_path, "around 0", 0)
    write(tmp_path, "web_clickstreams", [(-1, 5, None, 1, 0, 1), (date, time, None, 1, 0, 1)])
    for name in ("q2", "q3", "q4"):
        with pytest.raises(
            SourceError, match=rf"row 2: wcs_click_date_sk {date} with wcs_click_time_sk {time} is no time"
        ):
            streamed(data, name, PARAMETERS[name])
        with pytest.raises(duckdb.Error, match=r"(?i)overflow|out of range"):
            batch.duckdb_answer(data, name, **PARAMETERS[name])


def test_days_whose_sums_leave_int64_are_refused(tmp_path):
    far = 2**31 * 2
    write(tmp_path, "store_sales", [(day, 0, 1, 3, day, 5) for day in (0, far)])
    write(tmp_path, "item", [(1, 1, 1)])
    write(tmp_path, "web_page", [(0, "order")])
    data, parameters = DataFolder(tmp_path), {"store": None, "date_from": 0, "date_to": far}
    pipeline = QUERIES["q15"].build(data.side_tables(), **parameters)
    error = run_serial(pipeline, data.stream("store_sales")).error
    assert isinstance(error.__cause__, OverflowError)
    with pytest.raises(duckdb.Error, match=r"(?i)overflow|out of range|could not cast"):
        batch.duckdb_answer(data, "q15", **parameters)

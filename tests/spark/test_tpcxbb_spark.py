"""TPCx-BB in Spark: the same streams, the same batch answers."""

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tpcxbb_definition import ANSWERS, Tables
from tpcxbb_folders import cut_in_files
from tpcxbb_times import PARAMETERS, write
from tpcxbb_times import folder as times_folder

from ordstream.commands import engines
from ordstream.commands.engines import Job, by_sql, on_spark
from ordstream.tpcxbb import DataFolder, batch
from ordstream.tpcxbb.queries import QUERIES

CASES = [
    ("q1", {"window_seconds": 86_400, "limit": 3, "stores": [1, 10]}),
    ("q2", {"anchor": 10_001}),
    ("q3", {"purchased": 10_001, "categories": [2, 3]}),
    ("q4", {"timeout_seconds": 3600}),
    ("q15", {"store": None}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return cut_in_files(tmp_path_factory.mktemp("tpcxbb"))


@pytest.mark.parametrize(("query", "parameters"), CASES)
def test_spark_sql_answers_equal_the_definition(spark, folder, query, parameters):
    expected = ANSWERS[query](Tables(folder), **parameters)
    assert expected
    assert batch.first_difference(batch.spark_answer(spark, folder, query, **parameters), expected) is None


@pytest.mark.parametrize("where", ["around 0", "everywhere"])
@pytest.mark.thin(1)
def test_one_answer_whatever_the_times(spark, tmp_path, where):
    """Times below 0 and at the ends of int64: Spark SQL, and two of the streams in Spark."""
    data = times_folder(tmp_path, where, 1)
    for name, parameters in PARAMETERS.items():
        if name == "q15" and where == "everywhere":
            parameters = parameters | {"date_from": -1, "date_to": 0}
        expected = ANSWERS[name](Tables(data), **parameters)
        assert (
            batch.first_difference(batch.spark_answer(spark, data, name, **parameters), expected) is None
        ), name
        if (name, where) in (("q1", "everywhere"), ("q4", "around 0")):
            outcome, _ = on_spark(Job(QUERIES[name], parameters, data, {"emit": "final"}), False, spark)
            assert batch.first_difference(outcome.answer, expected) is None, name


def test_a_time_that_does_not_fit_is_refused(spark, tmp_path):
    data = times_folder(tmp_path, "around 0", 0)
    write(tmp_path, "web_clickstreams", [(106_751_991_167_301, 0, None, 1, 0, 1)])
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(
            RuntimeError, match=r"wcs_click_date_sk 106751991167301 with wcs_click_time_sk 0 is no time"
        ):
            on_spark(Job(QUERIES["q4"], PARAMETERS["q4"], data), False, spark)
        with pytest.raises(Exception, match=r"(?i)overflow"):
            batch.spark_answer(spark, data, "q4", **PARAMETERS["q4"])
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_spark_reads_the_streams_that_a_node_reads(spark, folder, tmp_path):
    sales = pa.Table.from_batches(folder.sales())
    in_spark = folder.sales_dataframe(spark).orderBy("ts", "ticket", "line").toArrow()
    assert in_spark.cast(sales.schema).equals(sales.combine_chunks())
    for number in (1, 2):
        rows = pq.read_table(folder.path / f"store_sales_{number}.parquet")
        pa.csv.write_csv(
            rows, tmp_path / f"store_sales_{number}.csv", pa.csv.WriteOptions(quoting_style="needed")
        )
    from_csv = DataFolder(tmp_path).sales_dataframe(spark).orderBy("ts", "ticket", "line").toArrow()
    assert from_csv.cast(sales.schema).equals(sales.combine_chunks())
    clicks = pa.Table.from_batches(folder.clicks())
    found = folder.clicks_dataframe(spark).toArrow().cast(clicks.schema)
    assert found.sort_by([(name, "ascending") for name in clicks.schema.names]).equals(
        clicks.sort_by([(name, "ascending") for name in clicks.schema.names])
    )


def test_a_missing_value_is_named_in_one_line(spark, folder, tmp_path):
    rows = folder.table("web_clickstreams").slice(0, 100)
    time = pa.array([None, *rows["wcs_click_time_sk"].to_pylist()[1:]], pa.int64())
    pq.write_table(rows.set_column(1, "wcs_click_time_sk", time), tmp_path / "web_clickstreams.parquet")
    job = Job(QUERIES["q2"], QUERIES["q2"].profiles["batch"], DataFolder(tmp_path))
    with pytest.raises(
        RuntimeError, match=r"a row has no wcs_click_time_sk.*web_clickstreams\.parquet"
    ) as raised:
        on_spark(job, False, spark)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_on_spark_equals_spark_sql(spark, folder, name):
    parameters = dict(QUERIES[name].profiles["paper"])
    if name == "q15":  # the days of these rows
        parameters |= {"store": None, "date_from": 36_890, "date_to": 36_950}
    job = Job(QUERIES[name], parameters, folder, {"emit": "final"})
    outcome, expected = on_spark(job, True, spark)
    assert expected
    assert batch.first_difference(outcome.answer, expected) is None
    assert outcome.tuples == folder.rows(QUERIES[name].source)
    assert outcome.report["operators"][0]["tuples_in"] == outcome.tuples


def test_sql_is_sparks_where_duckdb_is_not_installed(spark, folder, monkeypatch):
    job = Job(QUERIES["q2"], QUERIES["q2"].profiles["paper"], folder)
    with_duckdb = by_sql(job).answer
    monkeypatch.setattr(engines, "_has_duckdb", lambda: False)
    monkeypatch.setattr(batch, "duckdb_answer", lambda *_, **__: [])
    assert by_sql(job, spark).answer == with_duckdb != []

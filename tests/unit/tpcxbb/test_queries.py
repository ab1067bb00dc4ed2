"""TPCx-BB: the generator's distributions, the loader's errors, the queries and their batch answers."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tpcxbb_definition import ANSWERS, Tables

from ordstream.errors import SourceError
from ordstream.ground.ordercheck import OrderCheck
from ordstream.reference.run_serial import run_serial
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.generator import Generator
from ordstream.tpcxbb.queries import q2, q2_answer
from ordstream.tpcxbb.schema import CLICK_ORDER, CLICK_STREAM, WEB_CLICKSTREAMS

SMALL = Sizes(orders=700)  # 52 thousand clicks


@pytest.fixture(scope="module")
def clicks():
    return pa.Table.from_batches(Generator(SMALL, seed=3).clicks())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(
        generate_clicks(tmp_path_factory.mktemp("tpcxbb"), sizes=SMALL, seed=3, store_sales=True)
    )


# --- sizes and rows ---


@pytest.mark.parametrize(
    ("scale", "items", "customers", "stores", "pages", "orders"),
    [
        (1, 17_820, 99_000, 12, 60, 89_100),
        (3, 30_865, 171_473, 20, 222, 274_930),
        (10, 56_351, 313_065, 37, 400, 1_097_135),
        (100, 178_200, 990_000, 120, 741, 14_379_535),
        (10_000, 1_782_000, 9_900_000, 1200, 1422, 1_722_100_687),
    ],
)
def test_sizes_are_the_benchmarks(scale, items, customers, stores, pages, orders):
    sizes = Sizes.at_scale(scale)
    found = (sizes.items_base, sizes.customers_base, sizes.stores, sizes.pages, sizes.orders_base)
    assert found == (items, customers, stores, pages, orders)


@pytest.mark.parametrize("scale", [0.5, 0, float("nan")])
def test_scale_below_one_is_refused(scale):
    with pytest.raises(ValueError, match=r"scale must be 1 or more.*--rows"):
        Sizes.at_scale(scale)


def test_sizes_need_the_static_items():
    with pytest.raises(ValueError, match="static items"):
        Sizes(items=10_000)


def test_clicks_are_in_canonical_order_and_cross_chunks(monkeypatch):
    monkeypatch.setattr("ordstream.tpcxbb.generator.CHUNK_ROWS", 5_000)
    batches = list(Generator(SMALL).clicks())
    assert len(batches) > 5
    check = OrderCheck(CLICK_ORDER)
    for part in batches:
        ts = pc.add(pc.multiply(part["wcs_click_date_sk"], 86_400), part["wcs_click_time_sk"])
        stream = pa.RecordBatch.from_arrays([ts, *part.columns], schema=CLICK_STREAM)
        assert check.first_violation(stream) is None
    assert check.rows == sum(part.num_rows for part in batches)


def test_clicks_have_the_published_distribution(clicks):
    rows = clicks.num_rows
    assert abs(rows / SMALL.expected_clicks - 1) < 0.03
    assert abs(clicks["wcs_user_sk"].null_count / rows - 0.4215) < 0.02
    assert abs(clicks["wcs_sales_sk"].null_count / rows - 0.9013) < 0.01
    assert clicks["wcs_item_sk"].null_count == 0
    bought = clicks.filter(pc.is_valid(clicks["wcs_sales_sk"]))
    static = pc.sum(
        pc.and_(pc.greater_equal(bought["wcs_item_sk"], 10_000), pc.less(bought["wcs_item_sk"], 10_004))
    )
    assert abs(static.as_py() / bought.num_rows - 0.05) < 0.015
    orders = bought.group_by("wcs_sales_sk").aggregate(
        [
            ("wcs_click_time_sk", "count_distinct"),
            ("wcs_user_sk", "count_distinct"),
            ("wcs_item_sk", "count"),
        ]
    )
    assert orders.num_rows == SMALL.orders_base
    assert pc.max(orders["wcs_click_time_sk_count_distinct"]).as_py() == 1
    assert pc.max(orders["wcs_user_sk_count_distinct"]).as_py() == 1
    assert pc.min_max(orders["wcs_item_sk_count"]).as_py() == {"min": 1, "max": 14}
    assert pc.min(clicks["wcs_click_date_sk"]).as_py() == 36_890
    assert 38_690 < pc.max(clicks["wcs_click_date_sk"]).as_py() <= 38_697


def test_store_sales_have_one_time_and_store_per_ticket(folder):
    sales = folder.table("store_sales")
    assert abs(sales.num_rows / SMALL.orders_base - 7.5) < 0.5
    columns = ["ss_sold_date_sk", "ss_sold_time_sk", "ss_customer_sk", "ss_store_sk"]
    tickets = sales.group_by("ss_ticket_number").aggregate([(name, "count_distinct") for name in columns])
    assert all(pc.max(tickets[f"{name}_count_distinct"]).as_py() == 1 for name in columns)
    assert 1_500 < float(pc.mean(sales["ss_net_paid"]).as_py()) < 2_000


def test_item_and_page_tables(folder):
    items = folder.table("item")
    category = np.bincount(items["i_category_id"].to_numpy(), minlength=10) / items.num_rows
    assert category[2] == pytest.approx(0.452, abs=0.02)
    assert category[3] == pytest.approx(0.300, abs=0.02)
    assert items["i_category_id"].slice(10_000, 4).to_pylist() == [1, 2, 2, 5]
    types = folder.table("web_page")["wp_type"].to_pylist()
    assert (types.count("dynamic"), types.count("order"), len(types)) == (10, 7, 60)


def test_same_seed_same_rows_and_a_prefix_when_cut(tmp_path, clicks):
    again = pa.Table.from_batches(Generator(SMALL, seed=3).clicks())
    assert again.equals(clicks)
    assert not pa.Table.from_batches(Generator(SMALL, seed=4).clicks()).equals(clicks)
    cut = DataFolder(generate_clicks(tmp_path, rows=10_000, sizes=SMALL, seed=3)).table("web_clickstreams")
    assert cut.combine_chunks().equals(clicks.slice(0, 10_000).combine_chunks())


def test_generated_rows_are_reused(tmp_path):
    told = []
    generate_clicks(tmp_path, rows=1_000, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (1_000, 1_000)
    told.clear()
    generate_clicks(tmp_path, rows=1_000, progress=lambda done, total: told.append((done, total)))
    assert told == []
    generate_clicks(tmp_path, rows=1_001, progress=lambda done, total: told.append((done, total)))
    assert told == [(1_001, 1_001)]


def test_too_many_rows_for_the_sizes(tmp_path):
    with pytest.raises(ValueError, match="give only"):
        generate_clicks(tmp_path, rows=10**6, sizes=SMALL)
    assert list(tmp_path.glob("web_clickstreams*")) == []


def test_skew_makes_popular_items_hotter():
    def hottest(skew):
        items = pa.Table.from_batches(Generator(SMALL, skew=skew).clicks())
        bought = items.filter(pc.is_valid(items["wcs_sales_sk"]))["wcs_item_sk"].to_numpy()
        return np.bincount(bought).max() / len(bought)

    assert hottest(1.5) > 3 * hottest(None)


# --- the loader ---


def test_csv_and_parquet_give_the_same_rows(folder, tmp_path):
    for name in ("web_clickstreams", "store_sales", "item", "web_page"):
        rows = folder.table(name)
        # other column order, one column too many
        shuffled = rows.select(rows.schema.names[::-1]).append_column(
            "extra", pa.array(["x"] * rows.num_rows)
        )
        pa.csv.write_csv(
            shuffled, tmp_path / f"{name}_part.csv", pa.csv.WriteOptions(quoting_style="needed")
        )
        assert DataFolder(tmp_path).table(name).equals(rows)
        assert DataFolder(tmp_path).rows(name) == folder.rows(name) == rows.num_rows


def test_files_are_read_in_name_order(folder, tmp_path):
    rows = folder.table("web_clickstreams")
    (tmp_path / "web_clickstreams").mkdir()
    pq.write_table(rows.slice(20_000), tmp_path / "web_clickstreams" / "part-1.parquet")
    pq.write_table(rows.slice(0, 20_000), tmp_path / "web_clickstreams" / "part-0.parquet")
    assert DataFolder(tmp_path).table("web_clickstreams").combine_chunks().equals(rows.combine_chunks())
    assert sum(part.num_rows for part in DataFolder(tmp_path).clicks()) == rows.num_rows


def test_loader_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(SourceError, match="no data folder"):
        DataFolder(tmp_path / "absent")
    data = DataFolder(tmp_path)
    with pytest.raises(SourceError, match=r"expected item\*\.parquet or item\*\.csv"):
        data.table("item")
    (tmp_path / "item.csv").write_text("i_item_sk,i_class_id\n0,1\n")
    with pytest.raises(SourceError, match="lacks the column i_category_id; it has i_item_sk, i_class_id"):
        data.table("item")
    (tmp_path / "item.csv").write_text("i_item_sk,i_class_id,i_category_id\nzero,1,1\n")
    with pytest.raises(SourceError, match=r"can't read .*item\.csv"):
        data.table("item")
    (tmp_path / "item.parquet").write_bytes(b"not parquet")
    with pytest.raises(SourceError, match="both Parquet and CSV"):
        data.table("item")
    (tmp_path / "item.csv").unlink()
    with pytest.raises(SourceError, match="can't read"):
        data.table("item")


def test_unsorted_clicks_are_refused_with_the_row(tmp_path, clicks):
    rows = [0, 1, 2, 4, 3, 5]
    pq.write_table(clicks.take(rows), tmp_path / "web_clickstreams.parquet")
    with pytest.raises(SourceError, match="not sorted: row 5 comes before row 4"):
        list(DataFolder(tmp_path).clicks(batch_rows=2))


# --- the queries ---


def tuples(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_q2_reads_like_its_line_in_table_1():
    assert [stage.kind for stage in q2().plan.operators] == ["SL", "PS", "SL", "PS", "SF"]


@pytest.mark.parametrize("parameters", [{}, {"anchor": 10_001}, {"timeout_seconds": 600, "limit": 5}])
@pytest.mark.thin(1)
def test_q2_equals_the_definition(folder, parameters):
    expected = ANSWERS["q2"](Tables(folder), **parameters)
    stream = run_serial(q2(**parameters), pa.Table.from_batches(folder.clicks()))
    assert q2_answer(stream.rows) == expected


def test_a_gap_of_exactly_the_timeout_stays_in_the_session(tmp_path):
    pytest.importorskip("duckdb")
    visits = [(0, 1), (0, 1), (3_600, 2), (7_201, 3), (7_201, 4)]  # (second, item) of one user
    columns = [[36_890] * 5, [v[0] for v in visits], [None] * 5, [v[1] for v in visits], [0] * 5, [7] * 5]
    rows = pa.table([pa.array(column, pa.int64()) for column in columns], schema=WEB_CLICKSTREAMS)
    pq.write_table(rows, tmp_path / "web_clickstreams.parquet")
    data = DataFolder(tmp_path)
    expected = [(1, 2, 1), (3, 4, 1)]
    assert batch.duckdb_answer(data, "q2") == expected
    assert q2_answer(run_serial(q2(), pa.Table.from_batches(data.clicks())).rows) == expected


def test_q2_on_real_rows(shared_data):
    pytest.importorskip("duckdb")
    data = DataFolder(shared_data)
    all_pairs = batch.duckdb_answer(data, "q2")
    assert all_pairs[:4] == [(10002, 10003, 13), (10001, 10003, 12), (10000, 10001, 9), (10001, 10002, 8)]
    anchored = batch.duckdb_answer(data, "q2", anchor=10_001)
    assert anchored[:6] == [
        (i, 10_001, n) for i, n in [(10003, 12), (10000, 9), (10002, 8), (13813, 7), (339, 5), (2670, 5)]
    ]
    result = q2().run(data.clicks(), workers=2)
    assert q2_answer(tuples(result.table)) == all_pairs
    out = {
        operator.kind + str(at): operator.tuples_out for at, operator in enumerate(result.report.operators)
    }
    assert (out["PS1"], out["SL2"]) == (19_032, 59_036)
    assert q2_answer(tuples(q2(anchor=10_001).run(data.clicks(), workers=2).table)) == anchored


# --- order ---


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us")])
def test_order_check_finds_the_first_descent(kind):
    rng = np.random.default_rng(5)
    values = {
        pa.float64(): [None, -1.5, 0.0, float("nan")],
        pa.string(): [None, "", "a", "é"],
        pa.bool_(): [None, False, True],
    }.get(kind, [None, -1, 0, 7])
    for _ in range(60):
        ranks = rng.integers(0, len(values), (8, 2)).tolist()
        if rng.random() < 0.5:
            ranks.sort()
        columns = [pa.array([values[rank[i]] for rank in ranks], kind) for i in (0, 1)]
        rows = pa.RecordBatch.from_arrays(columns, names=["a", "b"])
        expected = next((i for i in range(1, 8) if ranks[i] < ranks[i - 1]), None)
        for size in (1, 3, 8):
            check = OrderCheck(("a", "b"))
            found = [check.first_violation(rows.slice(at, size)) for at in range(0, 8, size)]
            assert next((row for row in found if row is not None), None) == expected

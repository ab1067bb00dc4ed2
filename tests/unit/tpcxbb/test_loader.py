"""The loader of TPCx-BB folders: streams in order, side tables, and errors that name file, row and
column.
"""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ordstream.errors import SourceError
from ordstream.tpcxbb import DataFolder, Sizes, generate_clicks
from ordstream.tpcxbb.schema import CLICK_ORDER, CLICK_STREAM, SALES_ORDER, SALES_STREAM, TABLES

SMALL = Sizes(orders=700)
SALES_HEADER = (
    "ss_sold_date_sk,ss_sold_time_sk,ss_item_sk,ss_customer_sk,ss_store_sk,ss_ticket_number,"
    "ss_quantity,ss_net_paid"
)
CLICKS_HEADER = "wcs_click_date_sk,wcs_click_time_sk,wcs_sales_sk,wcs_item_sk,wcs_web_page_sk,wcs_user_sk"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return DataFolder(
        generate_clicks(tmp_path_factory.mktemp("tpcxbb"), sizes=SMALL, seed=3, store_sales=True)
    )


def write(path, header, *rows):
    path.write_text("\n".join([header, *rows]) + "\n")


def test_the_sales_stream_has_event_time_exact_cents_and_the_place_of_each_line(folder):
    rows = folder.table("store_sales")
    stream = pa.Table.from_batches(folder.sales(batch_rows=1_000))
    assert stream.schema == SALES_STREAM
    date, time = rows["ss_sold_date_sk"].to_numpy(), rows["ss_sold_time_sk"].to_numpy()
    assert stream["ts"].to_pylist() == (date * 86_400 + time).tolist()
    assert stream["cents"].to_pylist() == [int(paid * 100) for paid in rows["ss_net_paid"].to_pylist()]
    assert stream["line"].to_pylist() == list(range(rows.num_rows))
    for name, column in (("ticket", "ss_ticket_number"), ("item", "ss_item_sk"), ("store", "ss_store_sk")):
        assert stream[name].to_pylist() == rows[column].to_pylist()


def test_sales_in_several_files_keep_their_place(folder, tmp_path):
    rows = folder.table("store_sales")
    cut = 2_345  # inside a ticket: its later lines come from the second file
    assert rows["ss_ticket_number"][cut - 1] == rows["ss_ticket_number"][cut]
    pq.write_table(rows.slice(0, cut), tmp_path / "store_sales_1.parquet")
    pq.write_table(rows.slice(cut), tmp_path / "store_sales_2.parquet")
    stream = pa.Table.from_batches(DataFolder(tmp_path).sales())
    whole = pa.Table.from_batches(folder.sales())
    assert stream.drop(["line"]).equals(whole.drop(["line"]))
    assert stream["line"].to_pylist() == [*range(cut), *range(1 << 48, (1 << 48) + rows.num_rows - cut)]


@pytest.mark.parametrize(
    ("table", "order"), [("web_clickstreams", CLICK_ORDER), ("store_sales", SALES_ORDER)]
)
def test_sorting_puts_any_permutation_back(folder, tmp_path, table, order):
    rows = folder.table(table)
    key = "ss_ticket_number" if table == "store_sales" else None
    permuted = np.random.default_rng(3).permutation(rows.num_rows)
    if key:  # the place in the file is part of the order: keep the lines of a ticket as they are
        ticket = rows[key].to_numpy()
        permuted = np.lexsort(
            (np.arange(rows.num_rows), np.random.default_rng(3).permutation(ticket.max() + 1)[ticket])
        )
    pq.write_table(rows.take(permuted), tmp_path / f"{table}.parquet")

    def stream(data, **options):
        read = data.sales if table == "store_sales" else data.clicks
        found = pa.Table.from_batches(read(**options))
        return found.drop(["line"]) if key else found

    with pytest.raises(SourceError, match=f"is not sorted: row .* in the order {', '.join(order)}"):
        stream(DataFolder(tmp_path))
    assert stream(DataFolder(tmp_path), sort=True).combine_chunks().equals(stream(folder).combine_chunks())


def test_unsorted_rows_are_refused_with_file_row_and_column(folder, tmp_path):
    rows = folder.table("web_clickstreams").slice(0, 6)
    pq.write_table(rows.take([0, 1, 2, 4, 3, 5]), tmp_path / "web_clickstreams.parquet")
    ts = [row["wcs_click_date_sk"] * 86_400 + row["wcs_click_time_sk"] for row in rows.to_pylist()]
    expected = (
        r"web_clickstreams\.parquet is not sorted: row 5 comes before row 4 in the order .*: "
        f"ts is {ts[3]} after {ts[4]}"
    )
    for batch_rows in (2, 3, 100):
        with pytest.raises(SourceError, match=expected):
            list(DataFolder(tmp_path).clicks(batch_rows=batch_rows))


def test_unsorted_across_files_and_in_a_column_with_null(tmp_path):
    write(tmp_path / "web_clickstreams_1.csv", CLICKS_HEADER, "36890,5,,7,1,2", "36890,6,3,7,1,2")
    write(tmp_path / "web_clickstreams_2.csv", CLICKS_HEADER, "36890,6,,7,1,2")
    expected = (
        r"web_clickstreams_2\.csv is not sorted: row 1 comes before the last row of the file before .*: "
        "wcs_sales_sk is NULL after 3"
    )
    with pytest.raises(SourceError, match=expected):
        list(DataFolder(tmp_path).clicks())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("36890,,14,1,2,3,4,5.00", "row 2 has no ss_sold_time_sk"),
        ("36890,9,,1,2,3,4,5.00", "row 2 has no ss_item_sk"),
        ("36890,9,14,1,2,,4,5.00", "row 2 has no ss_ticket_number"),
        ("36890,9,14,1,2,3,4,", "row 2 has no ss_net_paid"),
        ("36890,9,14,1,2,3,4,5.001", "row 2, column ss_net_paid: '5.001' is not decimal128"),
        ("36890,9,14,1,2,3,4,five", "row 2, column ss_net_paid: 'five' is not decimal128"),
        ("36890,9,1x,1,2,3,4,5.00", "row 2, column ss_item_sk: '1x' is not int64"),
        (
            "36890,99999999999999999999,1,1,2,3,4,5.00",
            "row 2, column ss_sold_time_sk: '99999999999999999999' is not int64",
        ),
        ("36890,9,14,1,2", "row 2 has 5 values for 8 columns"),
    ],
)
def test_a_bad_line_is_named_with_file_row_and_column(tmp_path, row, message):
    write(tmp_path / "store_sales_x.csv", SALES_HEADER, "36890,5,14,1,2,3,4,5.00", row)
    with pytest.raises(SourceError) as raised:
        list(DataFolder(tmp_path).sales())
    assert message in str(raised.value)
    assert "store_sales_x.csv" in str(raised.value)


def test_a_parquet_column_of_another_type_is_named(tmp_path):
    rows = {name: ["a"] for name in ("i_item_sk", "i_category_id", "i_class_id")}
    pq.write_table(pa.table(rows), tmp_path / "item.parquet")
    with pytest.raises(SourceError, match=r"item\.parquet: rows 1 to 1, column i_item_sk: "):
        DataFolder(tmp_path).table("item")


def test_side_tables_are_dense_by_key_whatever_the_order_of_the_rows(folder, tmp_path):
    write(tmp_path / "item_category.csv", "i_item_sk,i_category_id,i_class_id", "4,2,1", "0,9,1", "1,,1")
    write(tmp_path / "web_page_type.csv", "wp_web_page_sk,wp_type", "1,order", "0,dynamic")
    tables = DataFolder(tmp_path).side_tables()
    assert tables.category_of_item.to_pylist() == [9, None, None, None, 2]
    assert tables.type_of_page.to_pylist() == ["dynamic", "order"]
    generated = folder.side_tables()
    assert generated.category_of_item.to_pylist() == folder.table("item")["i_category_id"].to_pylist()
    assert generated.type_of_page.to_pylist() == folder.table("web_page")["wp_type"].to_pylist()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["1,2,3", ",2,3"], "row 2 has no i_item_sk"),
        (["-1,2,3"], "row 1 has i_item_sk -1; keys from 0"),
        (["1,2,3", "100000000,2,3"], "row 2 has i_item_sk 100000000; keys from 0"),
        (["1,2,3", "2,2,3", "1,2,3"], "i_item_sk 1 is there more than once, first in row 1"),
    ],
)
def test_keys_of_side_tables_are_checked(tmp_path, rows, message):
    write(tmp_path / "item.csv", "i_item_sk,i_category_id,i_class_id", *rows)
    write(tmp_path / "web_page.csv", "wp_web_page_sk,wp_type", "0,ad")
    with pytest.raises(SourceError, match=message):
        DataFolder(tmp_path).side_tables()


def test_other_tables_of_the_benchmark_are_not_taken_for_items(tmp_path):
    write(tmp_path / "item.csv", "i_item_sk,i_category_id,i_class_id", "0,1,2")
    write(tmp_path / "item_marketprices.csv", "imp_sk,imp_item_sk", "0,1")
    assert DataFolder(tmp_path).rows("item") == 1


def test_real_rows_are_in_order_and_complete(shared_data):
    data = DataFolder(shared_data)
    clicks = pa.Table.from_batches(data.clicks())
    assert (clicks.schema, clicks.num_rows) == (CLICK_STREAM, 68_988)
    sales = pa.Table.from_batches(data.sales())
    assert (sales.num_rows, len(sales["ticket"].unique())) == (6_632, 900)
    tables = data.side_tables()
    assert (len(tables.category_of_item), tables.category_of_item.null_count) == (18_000, 0)
    assert tables.category_of_item[10_000:10_004].to_pylist() == [1, 2, 2, 5]
    assert tables.type_of_page.to_pylist().count("dynamic") == 10


def clicks_of(folder, text, encoding="utf-8"):
    (folder / "web_clickstreams.csv").write_bytes(text.encode(encoding))
    return [row for batch in DataFolder(folder).clicks() for row in batch.to_pylist()]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(*[st.integers(0, 99)] * len(TABLES["web_clickstreams"].names)), min_size=1, max_size=6
    ),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
    newline=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    quote=st.booleans(),
    columns=st.permutations(range(len(TABLES["web_clickstreams"].names))),
)
def test_a_csv_file_however_it_is_written(tmp_path, rows, encoding, newline, last, quote, columns):
    """A byte order mark, CRLF, no last newline, quotes, columns in another order: the same rows."""
    names = TABLES["web_clickstreams"].names
    rows = [(37_000 + i, i, *row[2:]) for i, row in enumerate(rows)]

    def line(cells):
        return ",".join(f'"{cells[c]}"' if quote else str(cells[c]) for c in columns)

    plain = clicks_of(
        tmp_path, "\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n"
    )
    assert (
        clicks_of(tmp_path, newline.join([line(names), *map(line, rows)]) + newline * last, encoding)
        == plain
    )
    assert len(plain) == len(rows)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    good=st.integers(0, 5),
    bad=st.integers(1, 9),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
    empty=st.integers(0, 2),
)
def test_a_row_of_another_length_is_told_with_file_and_line(tmp_path, good, bad, encoding, empty):
    width = CLICKS_HEADER.count(",") + 1
    if bad == width:
        return
    rows = [",".join(["37000", str(i), *["5"] * (width - 2)]) for i in range(good)] + [""] * empty
    text = "\n".join([CLICKS_HEADER, *rows, ",".join(["37000"] * bad), *rows]) + "\n"
    with pytest.raises(SourceError) as raised:
        clicks_of(tmp_path, text, encoding)
    place = (
        f"row {good + empty + 1} has {bad} values for {width} columns, at line {good + empty + 2} of the "
        "file"
    )
    assert str(raised.value) == f"can't read {tmp_path / 'web_clickstreams.csv'}: {place}"
    with pytest.raises(SourceError) as raised:
        DataFolder(tmp_path).rows("web_clickstreams")  # what a command asks first, of one column
    assert str(raised.value) == f"can't read {tmp_path / 'web_clickstreams.csv'}: {place}"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_an_empty_csv_file_is_told(tmp_path, encoding):
    with pytest.raises(
        SourceError, match=r"web_clickstreams\.csv is empty: a CSV file begins with a header, wcs_"
    ):
        clicks_of(tmp_path, "", encoding)

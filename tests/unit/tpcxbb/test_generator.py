"""The generator: dense days, bounded memory, the benchmark's figures at scale 1, and runs that don't end
well.
"""

import gc
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import ordstream
from ordstream.errors import SourceError
from ordstream.tpcxbb import DataFolder, Sizes, batch, generate_clicks
from ordstream.tpcxbb.generator import Generator

CHUNK = 5_000


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("ordstream.tpcxbb.generator.CHUNK_ROWS", CHUNK)


MEASURED = """\
import os, subprocess, sys
running = subprocess.Popen(sys.argv[1:])
_, status, used = os.wait4(running.pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def command(*arguments, starter=(), **options):
    # the build under test
    environment = os.environ | {"PYTHONPATH": str(Path(ordstream.__file__).parents[1])}
    return subprocess.Popen(
        [*starter, sys.executable, "-m", "ordstream", "generate", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# --- a compressed clock ---


@pytest.mark.parametrize("days", [1, 3])
def test_dense_days_are_in_order_and_complete(small_chunks, tmp_path, days):
    sizes = Sizes(orders=2_000, days=days)
    generator = Generator(sizes, seed=2, spill_folder=tmp_path)
    batches = list(generator.clicks())
    assert max(part.num_rows for part in batches) < 2 * CHUNK
    assert list(tmp_path.iterdir()) == []  # nothing is left of what went over the disk
    clicks = pa.Table.from_batches(batches)
    assert abs(clicks.num_rows / sizes.expected_clicks - 1) < 0.02
    dates = clicks["wcs_click_date_sk"].value_counts().to_pylist()
    assert [entry["values"] for entry in dates] == [36_890 + day for day in range(days)]
    assert max(entry["counts"] for entry in dates) < 1.1 * clicks.num_rows / days
    bought = clicks.filter(pc.is_valid(clicks["wcs_sales_sk"]))
    orders = bought.group_by("wcs_sales_sk").aggregate([("wcs_click_time_sk", "count_distinct")])
    assert orders.num_rows == sizes.orders_base
    assert pc.max(orders["wcs_click_time_sk_count_distinct"]).as_py() == 1
    hours = np.bincount(clicks["wcs_click_time_sk"].to_numpy() // 3_600, minlength=24) / clicks.num_rows
    assert np.abs(hours - 1 / 24).max() < 0.01
    pq.write_table(clicks, tmp_path / "web_clickstreams.parquet")
    # in canonical order
    assert sum(part.num_rows for part in DataFolder(tmp_path).clicks()) == clicks.num_rows
    assert pa.Table.from_batches(Generator(sizes, seed=2).clicks()).equals(clicks)


def test_dense_sales_keep_the_lines_of_a_ticket_together(small_chunks, tmp_path):
    sizes = Sizes(orders=4_000, days=1)
    sales = pa.Table.from_batches(Generator(sizes, seed=2).store_sales())
    ticket = sales["ss_ticket_number"].to_numpy()
    changes = 1 + np.count_nonzero(np.diff(ticket))
    assert changes == len(np.unique(ticket)) == sizes.orders_base
    assert abs(len(ticket) / sizes.orders_base - 7.5) < 0.3
    pq.write_table(sales, tmp_path / "store_sales.parquet")
    assert sum(part.num_rows for part in DataFolder(tmp_path).sales()) == len(ticket)  # in order


@pytest.mark.parametrize("days", [1, 1826])
@pytest.mark.thin(1)
def test_memory_does_not_grow_with_the_rows(monkeypatch, days):
    monkeypatch.setattr("ordstream.tpcxbb.generator.CHUNK_ROWS", 10_000)

    def peak(orders):
        generator = Generator(Sizes(orders=orders, days=days))
        gc.collect()  # or what earlier tests left is given back meanwhile
        tracemalloc.start()  # numpy tells it of its arrays
        rows = 0
        largest = 0
        before = pa.total_allocated_bytes()
        for stream in (generator.clicks(), generator.store_sales()):
            for part in stream:
                rows += part.num_rows
                largest = max(largest, pa.total_allocated_bytes() - before)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return rows, most + largest

    peak(100)  # what is allocated only once
    few, many = peak(4_000), peak(16_000)
    assert many[0] > 3.9 * few[0]
    assert many[1] < 1.3 * few[1]


def test_zipf_and_days_on_the_command_line(tmp_path):
    with command(
        "--rows", 20_000, "--days", 2, "--zipf", 1.5, "--seed", 4, "--out", tmp_path / "new"
    ) as running:
        out, told = running.communicate()
    assert running.returncode == 0, told
    assert out.split(": ")[1].split() == [
        "item.parquet,",
        "store_sales.parquet,",
        "web_clickstreams.parquet,",
        "web_page.parquet",
    ]
    data = DataFolder(tmp_path / "new")
    clicks = data.table("web_clickstreams")
    assert clicks.num_rows == 20_000
    assert pc.max(clicks["wcs_click_date_sk"]).as_py() == 36_890
    bought = clicks["wcs_item_sk"].filter(pc.is_valid(clicks["wcs_sales_sk"])).to_numpy()
    assert np.bincount(bought).max() / len(bought) > 0.1
    assert "generating" in told


def test_sales_end_where_the_clicks_are_cut(tmp_path):
    data = DataFolder(generate_clicks(tmp_path / "cut", rows=10_000, store_sales=True))
    clicks, sales = (pa.Table.from_batches(rows) for rows in (data.clicks(), data.sales()))
    assert 0.9 < sales.num_rows / (10_000 * 7.5 / 76) < 1.1
    assert pc.max(sales["ts"]).as_py() <= pc.max(clicks["ts"]).as_py()


@pytest.mark.parametrize(
    "options",
    [
        ["--scale", "0.5"],
        ["--rows", "0"],
        ["--rows", "5", "--days", "0"],
        ["--rows", "5", "--zipf", "0"],
        ["--rows", "5", "--days", "1000000000000"],
        ["--rows", "5", "--days", "99999999999999999999"],
    ],
)
def test_wrong_sizes_are_one_sentence(tmp_path, options):
    with command(*options, "--out", tmp_path / "new") as running:
        _, told = running.communicate()
    assert running.returncode == 2
    assert len(told.splitlines()) == 1
    assert told.startswith("ordstream: ")
    assert not (tmp_path / "new").exists()


# --- the benchmark's figures ---


@pytest.mark.skipif("ORDSTREAM_LONG" not in os.environ, reason="the long form: ORDSTREAM_LONG=1 make test")
@pytest.mark.slow
def test_scale_1_has_the_benchmarks_figures_in_little_memory(tmp_path):
    pytest.importorskip("duckdb")
    # Started by a small process: on Linux a child's peak begins with the memory of whoever started it.
    starter = [sys.executable, "-c", MEASURED]
    with command("--scale", 1, "--out", tmp_path / "sf1", starter=starter) as running:
        printed, _ = running.communicate()
    assert running.returncode == 0
    if sys.platform == "linux":  # KiB
        assert int(printed.splitlines()[-1]) < 1_500_000
    data = DataFolder(tmp_path / "sf1")
    clicks = data.table("web_clickstreams")
    rows = clicks.num_rows
    assert rows == pytest.approx(6_770_550, rel=0.003)
    assert data.rows("store_sales") == pytest.approx(667_579, rel=0.003)
    assert (data.rows("item"), data.rows("web_page")) == (18_000, 60)
    assert clicks["wcs_user_sk"].null_count / rows == pytest.approx(0.4215, abs=0.003)
    assert clicks["wcs_sales_sk"].null_count / rows == pytest.approx(0.9013, abs=0.003)
    assert clicks["wcs_web_page_sk"].null_count == pytest.approx(164, abs=60)
    assert clicks["wcs_item_sk"].null_count == 0
    del clicks

    together = batch.duckdb_answer(data, "q2", anchor=10_001)
    assert {row[0] for row in together[:3]} == {10_000, 10_002, 10_003}
    assert all(650 <= row[2] <= 910 for row in together[:3])
    assert 180 <= together[3][2] <= 230
    ((pages, carts),) = batch.duckdb_answer(data, "q4")
    assert 2.15 < pages / carts < 2.30


# --- runs that don't end well ---


def tables(folder):
    return sorted(file.name for file in folder.glob("**/*.parquet")) if folder.exists() else []


def test_an_interrupted_run_leaves_the_rows_of_the_run_before(tmp_path):
    folder = generate_clicks(tmp_path / "a" / "b", rows=500)
    before = DataFolder(folder).table("web_clickstreams")

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_clicks(folder, rows=600, store_sales=True, progress=interrupt)
    assert DataFolder(folder).table("web_clickstreams").equals(before)
    told = []
    generate_clicks(folder, rows=500, progress=lambda *counts: told.append(counts))
    assert told == []  # still complete, and known to be

    with pytest.raises(KeyboardInterrupt):
        generate_clicks(tmp_path / "c" / "d", rows=600, progress=interrupt)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_ended_run_is_not_taken_for_complete(tmp_path, sent):
    folder = tmp_path / "new"
    with command("--scale", 3, "--out", folder) as running:
        deadline = time.monotonic() + 60
        while (
            not (folder / ".generating" / "web_clickstreams.parquet").exists()
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        running.send_signal(sent)
        _, told = running.communicate()
    assert running.returncode == (130 if sent == signal.SIGINT else -sent)
    if sent == signal.SIGINT:
        assert told.splitlines()[-1] == "ordstream: interrupted"
        assert not folder.exists()
    else:
        with pytest.raises(SourceError, match="no table web_clickstreams"):
            DataFolder(folder).table("web_clickstreams")
    generate_clicks(folder, rows=500, store_sales=True)
    assert tables(folder) == [
        "item.parquet",
        "store_sales.parquet",
        "web_clickstreams.parquet",
        "web_page.parquet",
    ]
    assert DataFolder(folder).rows("web_clickstreams") == 500
    assert sorted(entry.name for entry in folder.iterdir())[0] == "generated.json"


@pytest.mark.skipif(sys.platform != "linux", reason="a limit on the size of files stands for a full disk")
def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path):
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))}
    with command("--rows", 200_000, "--out", tmp_path / "new", **limit) as running:
        _, told = running.communicate()
    assert running.returncode == 2
    assert "can't write" in told.splitlines()[-1]
    assert "File too large" in told.splitlines()[-1]
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with command("--rows", 100, "--out", tmp_path / "file" / "new") as running:
        _, told = running.communicate()
    assert running.returncode == 2
    assert f"can't write {tmp_path / 'file' / 'new'}" in told.splitlines()[-1]


def test_a_folder_that_lost_a_table_is_written_again(tmp_path):
    generate_clicks(tmp_path, rows=500, store_sales=True)
    (tmp_path / "store_sales.parquet").unlink()
    generate_clicks(tmp_path, rows=500, store_sales=True)
    assert len(tables(tmp_path)) == 4
    generate_clicks(tmp_path, rows=400)  # other rows: no sales of another run stay beside them
    assert tables(tmp_path) == ["item.parquet", "web_clickstreams.parquet", "web_page.parquet"]


@pytest.mark.parametrize(
    "name", ["web_clickstreams.parquet", "item_category.csv", "store_sales/part-0.parquet"]
)
def test_rows_that_were_not_generated_are_neither_replaced_nor_joined(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("real rows")
    for options in (["--rows", 300], ["--rows", 200, "--seed", 2]):
        with command(*options, "--out", tmp_path) as running:
            _, told = running.communicate()
        assert running.returncode == 2
        assert told.splitlines()[-1].endswith(
            f"holds rows that were not generated ({name.split('/')[0]}): choose another folder"
        )
    assert [file.name for file in tmp_path.iterdir()] == [name.split("/")[0]]
    assert (tmp_path / name).read_text() == "real rows"


def test_a_run_that_was_ended_while_its_files_took_their_places_is_no_obstacle(tmp_path):
    generate_clicks(tmp_path, rows=300)
    (tmp_path / ".generating").mkdir()
    (tmp_path / "generated.json").rename(tmp_path / ".generating" / "generated.json")
    (tmp_path / "item_marketprices.csv").write_text("of the benchmark, not read")
    generate_clicks(tmp_path, rows=400)
    assert DataFolder(tmp_path).rows("web_clickstreams") == 400


def test_rows_that_are_there_are_said_to_be(tmp_path):
    for expected in ("generating ", f"the rows are in {tmp_path} already"):
        with command("--rows", 300, "--out", tmp_path) as running:
            _, told = running.communicate()
        assert running.returncode == 0
        assert told.splitlines()[-1].startswith(expected)

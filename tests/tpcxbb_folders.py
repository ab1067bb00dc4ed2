"""A folder of TPCx-BB tables as other systems leave one: fact tables in several files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from ordstream.tpcxbb import DataFolder, Sizes, generate_clicks


def cut_in_files(path: Path) -> DataFolder:
    """Generated rows; each fact table in two files, cut inside a ticket."""
    sizes = Sizes(orders=400, days=60)
    whole = DataFolder(generate_clicks(path / "whole", sizes=sizes, seed=3, store_sales=True))
    cut = path / "cut"
    cut.mkdir()
    for table in ("web_clickstreams", "store_sales"):
        rows = whole.table(table)
        pq.write_table(rows.slice(0, 1_234), cut / f"{table}_1.parquet")
        pq.write_table(rows.slice(1_234), cut / f"{table}_2.parquet")
    for table in ("item", "web_page"):
        pa.csv.write_csv(
            whole.table(table), cut / f"{table}.csv", pa.csv.WriteOptions(quoting_style="needed")
        )
    return DataFolder(cut)

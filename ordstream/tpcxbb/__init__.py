"""TPCx-BB queries 1, 2, 3, 4 and 15 as ordered streams: data, pipelines and batch answers.

The data follow the published schema and distributions of the benchmark, the chains follow Table 1 of
"Scaling Ordered Stream Processing on Shared-Memory Multicores". Nothing here is copied from the benchmark's
kit.

Modules: `schema` (tables and sizes), `generator` (seeded rows), `loader` (a data folder, Parquet or CSV),
`queries` (the pipelines), `batch` (the same answers by SQL, computed by another path).
"""

from ordstream.tpcxbb.generator import generate_clicks
from ordstream.tpcxbb.loader import DataFolder
from ordstream.tpcxbb.schema import Sizes

__all__ = ["DataFolder", "Sizes", "generate_clicks"]

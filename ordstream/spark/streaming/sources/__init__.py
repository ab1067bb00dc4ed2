"""Sources whose offsets are the serials of their rows: streams that need no other order.

`register` makes them known to a session; then ``spark.readStream.format("ordstream.files")`` (`files`) and
``"ordstream.redis_streams"`` (`redis_streams`) read. Each gives the user's columns and `_offset`, a bigint
that counts rows from 0, without gaps, the same in every replay. docs/streaming-sinks.md has the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make the formats ``ordstream.files`` and ``ordstream.redis_streams`` known to a session.

    The package must be installed where the session's Python workers run. Calling it again does no harm.

    Parameters
    ----------
    spark : SparkSession
    """
    from ordstream.spark.streaming.sources.files import Files
    from ordstream.spark.streaming.sources.redis_streams import RedisStreams

    for source in (Files, RedisStreams):
        spark.dataSource.register(source)

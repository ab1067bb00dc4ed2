"""Format ``ordstream.redis_streams``: the entries of a Redis stream, in the order of their ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ordstream.errors import PlanError, SourceError
from ordstream.spark.streaming.offset_column import OFFSET
from ordstream.spark.streaming.sources.entry_fields import Entry, check_types, to_batch
from ordstream.spark.streaming.sources.offsets import (
    MAX_ROWS,
    TASK_ROWS,
    Offset,
    arrow_schema,
    check_options,
    default_limit,
    max_rows,
    required,
    room,
)

FORMAT = "ordstream.redis_streams"
PAGE = 5_000  # entries of a request, at most
FIRST_PAGE = 100  # of a task's first one: nobody knows yet how long they are
PAGE_BYTES = 8 << 20  # of an answer, about
FIRST = "0-0"
#: Counts the entries behind an id, up to another one, on the server: only their number travels. In steps, as
#: the server has all of a step's entries in its memory once more.
COUNT = f"""
local count, last, most = 0, ARGV[1], tonumber(ARGV[3])
while count < most do
    local step = math.min(most - count, {FIRST_PAGE})
    local found = redis.call('XRANGE', KEYS[1], '(' .. last, ARGV[2], 'COUNT', step)
    if #found == 0 then break end
    count, last = count + #found, found[#found][1]
end
return {{count, last}}
"""


class RedisStreams(DataSource):
    """The entries of a Redis stream, each one row.

    Redis gives ascending ids, which are not dense; `_offset` counts the entries that the query has read. An
    offset of the query carries both, and how many entries were gone before the query began: so counting goes
    on after a restart where it stopped, and entries that were trimmed or deleted before they were read are
    an error that says how many.

    Options: ``url`` (``redis://host:port/0``, ``unix://path``), ``stream`` (the key), ``columns`` (the
    columns as in SQL: ``"user BIGINT, price DOUBLE, at TIMESTAMP"``), ``field.<column>`` (the entry's field
    for a column; default the column's name), ``maxRows`` (most rows of a micro-batch). A column named `_id`
    (STRING) gets the entry's id. Fields without a column are not looked at; a missing field is null.

    Texts are read as Arrow reads them: ``12``, ``1e-3``, ``true``, ``2024-02-29``, ``2024-02-29T12:00:00Z``
    (TIMESTAMP; TIMESTAMP_NTZ without the zone). One that is no value of its column's type ends the query
    with an error that names entry and field.

    Needs Redis 7 or newer, and the package `redis` where Python workers run.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{required(self.options, 'columns', FORMAT)}, {OFFSET} BIGINT NOT NULL"

    def streamReader(self, schema: StructType) -> RedisReader:
        return RedisReader(self.options, schema)


class Entries(InputPartition):
    """What one task reads: `count` entries behind `after`, up to `last`, numbered from `offset`."""

    def __init__(self, after: str, last: str, count: int, offset: int) -> None:
        self.after = after
        self.last = last
        self.count = count
        self.offset = offset


class RedisReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a Redis stream for `RedisStreams`.

    An offset: ``o``, how many entries are in front of it; ``id``, the last of them; ``gone``, how many had
    been taken from the stream before the query's first batch.
    """

    def __init__(self, options: Any, schema: StructType) -> None:
        check_options(options, ("url", "stream", "columns", MAX_ROWS, "field."), FORMAT)
        self._url = required(options, "url", FORMAT)
        self._key = required(options, "stream", FORMAT)
        self._limit = max_rows(options, FORMAT)
        self._schema: pa.Schema = arrow_schema(schema)
        check_types(self._schema)
        if len(set(schema.names)) < len(schema.names):
            raise PlanError(f"{FORMAT}: a column is named twice, or {OFFSET!r}: {', '.join(schema.names)}")
        self._fields = {name: options.get(f"field.{name}", name).encode() for name in self._schema.names}
        for name in options:
            if name.lower().startswith("field.") and name[6:].lower() not in map(str.lower, self._fields):
                raise PlanError(f"{FORMAT}: .option({name!r}, ...) names a column that there is not")
        self._until: str | None = None  # the last id that Trigger.AvailableNow may read
        self._connection: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """A task makes a connection of its own."""
        return self.__dict__ | {"_connection": None}

    def initialOffset(self) -> Offset:
        said = self._said()
        return {"o": 0, "id": FIRST, "gone": said["added"] - said["length"] if said else 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return default_limit(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        said = self._said()
        self._until = said["last"] if said else FIRST

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        said = self._said()
        self._nothing_lost(start, said)
        if said is None:
            return start
        count, last = self._count(start["id"], self._until or "+", room(limit))
        return {"o": start["o"] + count, "id": last, "gone": start["gone"]}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        tasks = []
        at, offset = start["id"], start["o"]
        while end["o"] - offset > TASK_ROWS:
            count, last = self._count(at, end["id"], TASK_ROWS)
            if count < TASK_ROWS:
                raise self._lost(at, end["id"], end["o"] - offset, count)
            tasks.append(Entries(at, last, count, offset))
            at, offset = last, offset + count
        if offset < end["o"]:
            tasks.append(Entries(at, end["id"], end["o"] - offset, offset))
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Entries)
        after, found, page = partition.after, 0, min(FIRST_PAGE, PAGE)
        with self._asking() as client:
            while entries := client.xrange(self._key, f"({after}", partition.last, page):
                yield to_batch(entries, self._schema, self._fields, partition.offset + found)
                found += len(entries)
                after = entries[-1][0].decode()
                page = _next_page(entries, page)
        # A batch with a row too few is never committed: this task fails.
        if found != partition.count:
            raise self._lost(partition.after, partition.last, partition.count, found)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------------------------------ the server

    def _asking(self) -> Any:
        """A client, whose errors name stream and advice, not the url: it may hold a password."""
        from ordstream.spark.streaming.sources.redis_client import asking

        if self._connection is None:
            self._connection = asking(self._url, self._key)
        return self._connection

    def _said(self) -> dict[str, Any] | None:
        """What the server says of the stream: entries ever added, entries, first and last id. None: there is
        no such stream.
        """
        with self._asking() as client:
            if not client.exists(self._key):
                return None
            said = client.xinfo_stream(self._key)
        if "entries-added" not in said:
            raise SourceError(
                f"stream {self._key!r}: the server is older than Redis 7, which counts entries"
            )
        first = said["first-entry"]
        return {
            "added": int(said["entries-added"]),
            "length": int(said["length"]),
            "first": first[0].decode() if first else None,
            "last": said["last-generated-id"].decode(),
        }

    def _count(self, after: str, until: str, most: int | None) -> tuple[int, str]:
        """How many entries there are behind an id, `most` at most, and the id of the last of them."""
        found, last = 0, after
        with self._asking() as client:
            while most is None or found < most:
                page = PAGE if most is None else min(PAGE, most - found)
                count, end = client.eval(COUNT, 1, self._key, last, until, page)
                found, last = found + count, end.decode()
                if count < page:
                    break
        return found, last

    def _nothing_lost(self, start: Offset, said: dict[str, Any] | None) -> None:
        """Raise SourceError if entries were taken away that were not read, or the stream is another one."""
        read, last = start["o"], start["id"]
        if said is None:
            if read:
                raise SourceError(
                    f"stream {self._key!r} is gone; {read} entries of it were read, up to {last}"
                )
            return
        if said["added"] < read + start["gone"] or _number(said["last"]) < _number(last):
            raise SourceError(
                f"stream {self._key!r} was made anew: it has had {said['added']} entries, up to "
                f"{said['last']}, and {read} were read, up to {last}. Bring the old one back, or begin a "
                "new query with a checkpoint of its own"
            )
        if said["first"] is not None and _number(said["first"]) <= _number(last):
            return  # entries go at the front: what was not read is all there
        lost = said["added"] - said["length"] - start["gone"] - read
        if lost > 0:
            # none ever stood behind: somebody took them out of the middle
            where = "in front of" if said["last"] == last else "behind"
            raise SourceError(
                f"stream {self._key!r}: {lost} entries {where} {last}, the last one that was read, were "
                "trimmed or deleted before they were read; the oldest that is left is "
                f"{said['first'] or 'none'}. Trim less (MAXLEN, MINID), or begin a new query"
            )

    def _lost(self, after: str, last: str, planned: int, found: int) -> SourceError:
        first = (self._said() or {}).get("first")
        return SourceError(
            f"stream {self._key!r}: of the {planned} entries behind {after} up to {last} that the batch was "
            f"planned with, {found} are there: {planned - found} were trimmed or deleted before they were "
            f"read; the oldest that is left is {first or 'none'}. {OFFSET} can't go on from "
            "here: begin a new query, and trim less (MAXLEN, MINID)"
        )


def _next_page(entries: Sequence[Entry], page: int) -> int:
    """How many entries the next request asks for, where they are as long as these."""
    size = sum(len(value) for _, said in entries for value in said.values())
    return max(1, min(PAGE, page * 4, PAGE_BYTES * len(entries) // max(size, 1)))


def _number(entry: str) -> tuple[int, int]:
    """An id as a pair of numbers, which are ordered as entries are."""
    milliseconds, _, sequence = entry.partition("-")
    return int(milliseconds), int(sequence)

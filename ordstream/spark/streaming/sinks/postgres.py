"""Postgres: the rows of an epoch and its number go into a database in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ordstream.errors import CheckpointError, PlanError, SinkError, shown
from ordstream.ground.choices import is_text
from ordstream.spark.streaming.sinks.epoch_rows import batches
from ordstream.spark.streaming.sinks.postgres_text import check_name, column_types, lines
from ordstream.spark.streaming.sinks.same_columns import columns_of, difference
from ordstream.spark.streaming.sinks.sink import Epoch, StreamInfo

if TYPE_CHECKING:
    import psycopg

STREAMS, EPOCHS = "ordstream_streams", "ordstream_epochs"
KEPT = 1000  # epochs that are remembered
LOCK = 0x6F726473  # of the database, while tables are made: "ords"

_MAKE = f"""
CREATE TABLE IF NOT EXISTS {{schema}}.{STREAMS} (
    target text PRIMARY KEY, query text NOT NULL, columns text NOT NULL);
CREATE TABLE IF NOT EXISTS {{schema}}.{EPOCHS} (
    target text, epoch bigint, rows bigint NOT NULL, through_serial bigint NOT NULL,
    through_index bigint NOT NULL, delivered timestamptz NOT NULL DEFAULT now(), digest text,
    PRIMARY KEY (target, epoch))
"""
_FOUND = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class Postgres:
    """A table of PostgreSQL. Every committed row is there once, and a reader sees whole epochs.

    The rows (COPY) and the number of their epoch are one transaction, so they are there together or not at
    all; an epoch that comes again is recognised. ``ORDER BY _serial, _index`` is the order. Of two drivers
    one waits for the other and then finds the epoch delivered.

    The table is made where there is none, with a primary key (_serial, _index). One that is there must be
    empty at first and have the columns, of exactly these types; more columns than these must have defaults.
    Beside it, in its schema, are two small tables: `ordstream_streams` says which stream writes which table,
    `ordstream_epochs` what was delivered (the last 1,000 epochs).

    Parameters
    ----------
    dsn : str
        How to reach the database, as libpq takes it (``postgresql://user@host/database``, ``host=...``).
        What is left out comes from the environment (``PGPASSWORD``, ``~/.pgpass``). Never shown in an error.
    table : str, or (schema, name)
        ``"name"`` or ``"schema.name"``, in exactly this case. Without a schema: the first of the
        search path.

    Raises
    ------
    PlanError
        A name that PostgreSQL can't have; libpq can't read the dsn; psycopg is missing.
    """

    def __init__(self, dsn: str, table: str | tuple[str, str]) -> None:
        _psycopg()
        if not isinstance(dsn, str):
            raise PlanError(f"dsn must be a str, not {type(dsn).__name__}")
        _check_dsn(dsn)
        parts = table if isinstance(table, tuple) else tuple(table.split(".")) if is_text(table) else ()
        if len(parts) not in (1, 2) or not all(map(is_text, parts)):
            raise PlanError(f"table must be 'name', 'schema.name' or (schema, name), not {shown(table, 80)}")
        for name in parts:
            check_name(name, f"table {table!r}")
        self._dsn = dsn
        self._schema = parts[0] if len(parts) == 2 else None
        self.table = parts[-1]
        self._stream: StreamInfo | None = None
        self._connection: psycopg.Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"Postgres(table={self.table if self._schema is None else f'{self._schema}.{self.table}'!r})"

    # ------------------------------------------------------------------------------------------ a sink

    def open(self, stream: StreamInfo) -> None:
        """Connect; make the tables, or see that they are this stream's.

        Raises
        ------
        PlanError
            A column has no counterpart in PostgreSQL, or the table other columns.
        CheckpointError
            The table is another stream's, or holds rows of somebody else.
        SinkError
            The database can't be reached, or refuses.
        """
        types = column_types(stream.schema)
        self._stream = stream
        self._retried("open the table", lambda connection: self._take(connection, stream, types))

    def delivered(self) -> int | None:
        """The newest epoch in the table."""
        newest: int | None = self._retried("look at the table", self._newest)
        return newest

    def deliver(self, epoch: Epoch) -> None:
        """Write the epoch's rows and its number, in one transaction.

        Raises
        ------
        SinkError
            The database can't be reached, or refuses a row: nothing of the epoch is there.
        CheckpointError
            An epoch is missing in front of it, or the table holds another one of this number.
        """
        self._retried(f"deliver epoch {epoch.number}", lambda connection: self._write(connection, epoch))

    def back_to(self, epoch: int | None) -> None:
        """Take away the rows of all epochs behind this one (None: of all). Called after `open`.

        Raises
        ------
        CheckpointError
            It is not among the epochs that are remembered.
        """
        self._retried("take rows away", lambda connection: self._take_away(connection, epoch))

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------------------------------ connection

    def _retried(self, what: str, do: Callable[[psycopg.Connection[Any]], Any]) -> Any:
        """Do it in a transaction; once more where the connection was lost.

        A commit whose answer was lost may have happened: what is done then looks at the epochs first.
        """
        import psycopg

        for again in (True, False):
            try:
                connection = self._connected()
                with connection.transaction():
                    return do(connection)
            except psycopg.Error as error:
                lost = self._connection is not None and self._connection.broken
                if lost:
                    self.close()
                if not (lost and again):
                    said = str(error).strip() or type(error).__name__
                    raise SinkError(
                        f"{self!r}: can't {what}: {said}. What is committed in the checkpoint is not lost: "
                        "it comes again at the next start"
                    ) from error
        raise AssertionError("unreachable")

    def _connected(self) -> psycopg.Connection[Any]:
        import psycopg

        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, client_encoding="utf8", application_name="ordstream"
            )
            # A wait for the row of the stream must see what the other driver has written meanwhile.
            self._connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            if self._schema is None:
                found = self._connection.execute("SELECT current_schema()").fetchone()
                self._schema = found[0] if found else None
                if self._schema is None:
                    raise PlanError(f"{self!r}: no schema of the search path exists; write schema.name")
        return self._connection

    def _sql(self, text: str, **more: Any) -> Any:
        from psycopg import sql

        names = {
            "schema": sql.Identifier(self._schema or ""),
            "target": sql.Identifier(self._schema or "", self.table),
        }
        return sql.SQL(text).format(**names, **more)

    # ------------------------------------------------------------------------------------------ whose it is

    def _take(self, connection: psycopg.Connection[Any], stream: StreamInfo, types: list[str]) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        connection.execute(self._sql(_MAKE))
        if "digest" not in [name for name, _ in connection.execute(_FOUND, (self._schema, EPOCHS))]:
            # an older release made it
            connection.execute(self._sql(f"ALTER TABLE {{schema}}.{EPOCHS} ADD COLUMN digest text"))
        found = connection.execute(
            self._sql(f"SELECT query, columns FROM {{schema}}.{STREAMS} WHERE target = %s"), (self.table,)
        ).fetchone()
        there = [list(row) for row in connection.execute(_FOUND, (self._schema, self.table))]
        columns = columns_of(stream.schema)
        if found is not None:
            self._is_ours(stream, found[0], bool(there))
            if changed := difference(json.loads(found[1]), columns):
                raise PlanError(f"{self!r}: the table has other columns: {changed}; name another table")
        wanted = [[name, type_] for name, type_ in zip(stream.schema.names, types, strict=True)]
        if there:
            names = stream.schema.names
            if changed := difference(sorted(one for one in there if one[0] in names), sorted(wanted)):
                raise PlanError(
                    f"{self!r}: the table that is there does not fit: {changed}; name another table, or let "
                    "this one be made"
                )
        else:
            self._make(connection, wanted)
        if found is None:
            rows = connection.execute(self._sql("SELECT FROM {target} LIMIT 1")).rowcount
            if rows:
                raise CheckpointError(
                    f"{self!r}: the table has rows that no stream put there; name another one"
                )
            connection.execute(
                self._sql(f"INSERT INTO {{schema}}.{STREAMS} VALUES (%s, %s, %s)"),
                (self.table, stream.query, json.dumps(columns)),
            )

    def _is_ours(self, stream: StreamInfo, query: str, there: bool) -> None:
        if query != stream.query:
            raise CheckpointError(
                f"{self!r}: the table holds the output of another stream ({query}, this one is "
                f"{stream.query}); name another table, or go on with that stream's checkpoint"
            )
        if not there:
            raise CheckpointError(
                f"{self!r}: the table is gone, and {STREAMS} says that this stream wrote it; to have its "
                f"whole output again, delete where target = '{self.table}' in {EPOCHS} and {STREAMS}"
            )

    def _make(self, connection: psycopg.Connection[Any], wanted: list[list[str]]) -> None:
        from psycopg import sql

        tags = [name for name, _ in wanted[-2:]]
        parts = [
            sql.SQL("{} " + type_ + (" NOT NULL" if name in tags else "")).format(sql.Identifier(name))
            for name, type_ in wanted
        ]
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, tags))))
        connection.execute(self._sql("CREATE TABLE {target} ({parts})", parts=sql.SQL(", ").join(parts)))

    # ------------------------------------------------------------------------------------------ epochs

    def _newest(self, connection: psycopg.Connection[Any]) -> int | None:
        text = self._sql(f"SELECT max(epoch) FROM {{schema}}.{EPOCHS} WHERE target = %s")
        found = connection.execute(text, (self.table,)).fetchone()
        return None if found is None or found[0] is None else int(found[0])

    def _lock(self, connection: psycopg.Connection[Any]) -> StreamInfo:
        """From here on no other driver writes to the table until the transaction ends."""
        assert self._stream is not None, "open comes first"
        text = self._sql(f"SELECT query FROM {{schema}}.{STREAMS} WHERE target = %s FOR UPDATE")
        found = connection.execute(text, (self.table,)).fetchone()
        if found is None or found[0] != self._stream.query:
            raise CheckpointError(
                f"{self!r}: since this run began {STREAMS} was changed: the table is no longer this stream's"
            )
        return self._stream

    def _write(self, connection: psycopg.Connection[Any], epoch: Epoch) -> None:
        stream = self._lock(connection)
        newest = self._newest(connection)
        rows = sum(file.rows for file in epoch.files)
        told = (rows, epoch.emitted_through.serial, epoch.emitted_through.index)
        if newest is not None and epoch.number <= newest:
            self._is_same(connection, epoch, stream, told)
            return
        if epoch.number != (0 if newest is None else newest + 1):
            raise CheckpointError(
                f"{self!r}: epoch {epoch.number} comes, and the newest one in the table is "
                f"{'none' if newest is None else newest}: those between would be missing. The stream must "
                "be started again, which delivers them"
            )
        digest = self._copy(connection, epoch, stream, rows) if rows else _digest(())
        connection.execute(
            self._sql(
                f"INSERT INTO {{schema}}.{EPOCHS} "
                "(target, epoch, rows, through_serial, through_index, digest) "
                "VALUES (%s, %s, %s, %s, %s, %s)"
            ),
            (self.table, epoch.number, *told, digest),
        )
        connection.execute(
            self._sql(f"DELETE FROM {{schema}}.{EPOCHS} WHERE target = %s AND epoch <= %s"),
            (self.table, epoch.number - KEPT),
        )

    def _copy(self, connection: psycopg.Connection[Any], epoch: Epoch, stream: StreamInfo, rows: int) -> str:
        """Write the rows; their digest."""
        from psycopg import sql

        columns = sql.SQL(", ").join(map(sql.Identifier, stream.schema.names))
        with connection.cursor() as cursor:
            with cursor.copy(self._sql("COPY {target} ({columns}) FROM STDIN", columns=columns)) as copy:
                digest = _digest(_written(copy, self._lines(epoch, stream)))
            if cursor.rowcount != rows:
                raise SinkError(
                    f"{self!r}: of the {rows} rows of epoch {epoch.number} the table took "
                    f"{cursor.rowcount}: is there a trigger or a rule that drops rows? Nothing of the epoch "
                    "was kept"
                )
        return digest

    def _lines(self, epoch: Epoch, stream: StreamInfo) -> Iterator[memoryview]:
        """The rows of an epoch as COPY takes them."""
        for batch in batches(epoch, stream.schema):
            try:
                text = lines(batch)
            except SinkError as error:
                before = epoch.number - 1
                raise SinkError(
                    f"{self!r}: can't deliver epoch {epoch.number}: {error}. Nothing of the epoch was "
                    "written. It is committed, and comes again at the next start: to change its rows take "
                    f"the stream back (od.spark.rewind({str(stream.checkpoint)!r}, to={before})), and start "
                    "it with a pipeline that gives no such value"
                ) from error
            yield text

    def _is_same(
        self,
        connection: psycopg.Connection[Any],
        epoch: Epoch,
        stream: StreamInfo,
        told: tuple[int, int, int],
    ) -> None:
        text = self._sql(
            f"SELECT digest, rows, through_serial, through_index FROM {{schema}}.{EPOCHS} "
            "WHERE target = %s AND epoch = %s"
        )
        found = connection.execute(text, (self.table, epoch.number)).fetchone()
        if found is None:
            return
        digest, *held = found
        if tuple(held) != told:
            why = f"{held[0]} rows up to serial {held[1]}, committed are {told[0]} up to serial {told[1]}"
        elif digest is not None and digest != _digest(map(lines, batches(epoch, stream.schema))):
            why = "as many rows, with other values than those that are committed"
        else:
            return
        number = epoch.number
        raise CheckpointError(
            f"{self!r}: the table holds another epoch {number}: {why}. If the stream was taken back to an "
            "earlier snapshot, take what came after it away: "
            f"sink.back_to({number - 1 if number else None})"
        )

    def _take_away(self, connection: psycopg.Connection[Any], epoch: int | None) -> None:
        self._lock(connection)
        serial, index = -1, -1
        if epoch is not None:
            text = self._sql(
                f"SELECT through_serial, through_index FROM {{schema}}.{EPOCHS} "
                "WHERE target = %s AND epoch = %s"
            )
            found = connection.execute(text, (self.table, epoch)).fetchone()
            if found is None:
                raise CheckpointError(
                    f"{self!r}: epoch {epoch} is not among those that {EPOCHS} remembers; empty the table "
                    "and go back to None: the whole output comes again"
                )
            serial, index = found
        connection.execute(
            self._sql("DELETE FROM {target} WHERE (_serial, _index) > (%s, %s)"), (serial, index)
        )
        connection.execute(
            self._sql(f"DELETE FROM {{schema}}.{EPOCHS} WHERE target = %s AND epoch > %s"),
            (self.table, -1 if epoch is None else epoch),
        )


def _written(copy: psycopg.Copy, texts: Iterable[memoryview]) -> Iterator[memoryview]:
    """The texts, each written when it is asked for."""
    for text in texts:
        copy.write(text)
        yield text


def _digest(texts: Iterable[memoryview]) -> str:
    """Of an epoch's rows, whatever batches they come in."""
    found = hashlib.blake2b(digest_size=16)
    for text in texts:
        found.update(text)
    return found.hexdigest()


def _check_dsn(dsn: str) -> None:
    """Raise PlanError for a text that libpq can't read. What it says then holds parts of the text."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(dsn)
    except (psycopg.Error, UnicodeError):
        raise PlanError(
            "dsn: libpq can't read it, and what it says is not shown: it may hold the password. Write "
            "postgresql://user:password@host/database with %25 for % in a password (%40 for @, %2F for /), "
            "or host=... password='...' with quotes around spaces; or leave the password to PGPASSWORD or "
            "~/.pgpass"
        ) from None


def _psycopg() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise PlanError("the Postgres sink needs psycopg 3: pip install 'ordstream[postgres]'") from error

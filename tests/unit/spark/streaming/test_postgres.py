"""Postgres: every type there and back, whose table it is, two drivers, a lost connection. A real server."""

import datetime as dt
import itertools
import threading
import time
import traceback
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sink_epochs import SCHEMA, TAGS, commit, rows, stream, whole

from ordstream.errors import CheckpointError, PlanError, SinkError
from ordstream.ground import long_rows
from ordstream.ground.ordertags import OrderTag
from ordstream.spark.streaming.sinks import (
    Epoch,
    OutputFile,
    Postgres,
    StreamInfo,
    epoch_rows,
    postgres,
)
from ordstream.spark.streaming.sinks.postgres_text import column_types

SIZES = ([30], [], [5, 0, 20_000])
_numbers = itertools.count()


@pytest.fixture
def table():
    return f"Table {next(_numbers)}"  # a name that must be quoted


@pytest.fixture
def epochs(tmp_path):
    return commit(tmp_path / "checkpoint", SIZES)


@pytest.fixture
def info(tmp_path):
    return stream(tmp_path / "checkpoint")


@pytest.fixture
def opened(postgres_dsn, table, info):
    sinks = []

    def make(info=info, table=table, kind=Postgres):
        sinks.append(kind(postgres_dsn, table))
        sinks[-1].open(info)
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


@pytest.fixture
def ask(postgres_dsn):
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:

        def asked(*given):
            cursor = connection.execute(*given)
            return cursor.fetchall() if cursor.description else None

        yield asked


def test_rows_epochs_and_what_comes_again(opened, epochs, ask, table):
    sink = opened()
    assert sink.delivered() is None
    for number in (0, 0, 1, 0, 2, 1, 2):
        sink.deliver(epochs[number])
    assert sink.delivered() == opened().delivered() == 2
    found = ask(f'SELECT _serial, _index, word, items FROM "{table}" ORDER BY _serial, _index')
    expected = whole(SIZES).select(["_serial", "_index", "word", "items"]).to_pylist()
    assert found == [tuple(row.values()) for row in expected]
    noted = ask("SELECT epoch, rows FROM ordstream_epochs WHERE target = %s ORDER BY epoch", (table,))
    assert noted == [(0, 30), (1, 0), (2, 20_005)]


def test_long_rows_come_in_small_batches(epochs, monkeypatch):
    """16,384 rows at a time, whatever their length, were gigabytes in the driver."""
    size = epochs[0].files[0].path.stat().st_size
    monkeypatch.setattr(long_rows, "BYTES", size // 3)
    found = list(epoch_rows.batches(epochs[0], SCHEMA))
    assert max(batch.num_rows for batch in found) < 20
    assert pa.Table.from_batches(found).drop("price") == rows(0, 30).drop("price")  # NaN


def test_every_type_there_and_back(opened, tmp_path, ask, table):
    utc = dt.UTC
    columns = {
        "bool": (pa.bool_(), [True, False]),
        "i8": (pa.int8(), [-128, 127]),
        "i16": (pa.int16(), [-(2**15), 2**15 - 1]),
        "i32": (pa.int32(), [-(2**31), 2**31 - 1]),
        "i64": (pa.int64(), [-(2**63), 2**63 - 1]),
        "u8": (pa.uint8(), [0, 255]),
        "u16": (pa.uint16(), [0, 65535]),
        "u32": (pa.uint32(), [0, 2**32 - 1]),
        "u64": (pa.uint64(), [0, 2**64 - 1]),
        "f32": (pa.float32(), [0.1, float("-inf")]),
        "f64": (pa.float64(), [5e-324, 1.7976931348623157e308]),
        "text": (pa.string(), ["a\n\\.\n\\N\tb\r\\", ""]),
        "wide text": (pa.large_string(), ["NULL", "{}"]),
        'view "text"': (pa.string_view(), ["%s", "é𝄞"]),
        "bytes": (pa.binary(), [b"\x00\\x\xff", b""]),
        "wide bytes": (pa.large_binary(), [b"\\.", b"\n"]),
        "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        "date64": (pa.date64(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29)]),
        "time": (pa.time32("s"), [dt.time(0), dt.time(23, 59, 59)]),
        "time64": (pa.time64("us"), [dt.time(0, 0, 0, 1), dt.time(23, 59, 59, 999999)]),
        "naive": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(2024, 3, 10, 2, 30, 0, 1)]),
        "nano": (pa.timestamp("ns"), [dt.datetime(1970, 1, 1), dt.datetime(2024, 3, 10, 2, 30, 0, 1)]),
        "zoned": (pa.timestamp("ms", "America/New_York"), [dt.datetime(1900, 1, 1, tzinfo=utc)] * 2),
        "lasts": (pa.duration("us"), [dt.timedelta(days=-1, microseconds=1), dt.timedelta(days=9000)]),
        "numeric": (
            pa.decimal128(38, 3),
            [Decimal("-99999999999999999999999999999999999.999"), Decimal("0.001")],
        ),
        "ints": (pa.list_(pa.int16()), [[1, None, -3], []]),
        "floats": (pa.large_list(pa.float64()), [[float("inf"), 0.1], [None]]),
        "bools": (pa.list_(pa.bool_()), [[True, None], []]),
        "times": (pa.list_(pa.timestamp("us", "UTC")), [[dt.datetime(2024, 2, 29, 1, tzinfo=utc)], [None]]),
        "texts": (pa.list_(pa.string()), [["a\\b", None, 'q"q', "NULL", "", "{,}", "t\tn\nr\r", "é𝄞"], []]),
        "wide texts": (pa.large_list(pa.large_string()), [["\\N"], [None]]),
        "raws": (pa.list_(pa.binary()), [[b"\x00\\\xff", None, b""], []]),
        "prices": (pa.list_(pa.decimal128(20, 3)), [[Decimal("-1.500"), None], []]),
        "spans": (pa.list_(pa.duration("s")), [[dt.timedelta(seconds=61), None], []]),
        "_serial": (pa.int64(), [1, 2]),
        "_index": (pa.int64(), [0, 0]),
    }
    null = {name: pa.array([None], type_) for name, (type_, _) in columns.items()}
    null["_serial"], null["_index"] = pa.array([3]), pa.array([0])
    given = pa.concat_tables(
        [pa.table({n: pa.array(v, t) for n, (t, v) in columns.items()}), pa.table(null)]
    )
    given = given.cast(pa.schema([*list(given.schema)[:-2], *TAGS]))
    pq.write_table(given, tmp_path / "all.parquet")
    sink = opened(StreamInfo("types", tmp_path, given.schema))
    sink.deliver(Epoch(0, [OutputFile(tmp_path / "all.parquet", 3, 1)], OrderTag(3, 0)))
    found = ask(f'SELECT * FROM "{table}" ORDER BY _serial')
    expected = {name: [*values, None] for name, (_, values) in columns.items()}
    expected["_serial"], expected["_index"] = [1, 2, 3], [0, 0, 0]
    for position, name in enumerate(given.schema.names):
        assert [row[position] for row in found] == expected[name], name
    said = ask(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0",
        (f'"{table}"',),
    )
    assert [row[0] for row in said] == column_types(given.schema)
    assert opened(StreamInfo("types", tmp_path, given.schema)).delivered() == 0


def test_days_before_christ(opened, tmp_path, ask, table):
    """By the days and microseconds since 1970, as both count them."""
    first, year_1, last = -2_440_588, -719_162, 11_248_737
    days = [first, first + 1, year_1 - 366, year_1 - 1, year_1, last, *range(first, last, 100_003), None]
    at = [None if day is None else day * 86_400_000_000 + number for number, day in enumerate(days)]
    columns = {
        "day": pa.array(days, pa.date32()),
        "at": pa.array(at, pa.timestamp("us")),
        "then": pa.array(at, pa.timestamp("us", "Asia/Tokyo")),
        "days": pa.array([[day, None] for day in days], pa.list_(pa.date32())),
    }
    schema = pa.schema([*((name, column.type) for name, column in columns.items()), *TAGS])
    tags = [range(1, len(days) + 1), [0] * len(days)]
    pq.write_table(pa.table([*columns.values(), *tags], schema=schema), tmp_path / "days.parquet")
    sink = opened(StreamInfo("days", tmp_path, schema))
    sink.deliver(Epoch(0, [OutputFile(tmp_path / "days.parquet", len(days), 1)], OrderTag(len(days), 0)))
    micros = "(extract(epoch from {}) * 1000000)::numeric(30)::bigint"
    found = ask(
        f"""SELECT day - date '1970-01-01', {micros.format('"at"')}, {micros.format('"then"')},
        days[1] - date '1970-01-01', days[2] FROM "{table}" ORDER BY _serial"""
    )
    assert found == [(day, one, one, day, None) for day, one in zip(days, at, strict=True)]


@pytest.mark.parametrize(
    "type_",
    [
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.struct([("a", pa.int64())])),
        pa.list_(pa.int64(), 2),
        pa.struct([]),
    ],
)
def test_what_a_table_has_no_column_for_is_refused_before_a_row_comes(type_):
    schema = pa.schema([("v", type_), *TAGS])
    with pytest.raises(
        PlanError, match=r"^column 'v': type .* has no counterpart in PostgreSQL here: make"
    ) as no:
        column_types(schema)
    assert "\n" not in str(no.value)


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (
            pa.string(),
            "a\0b",
            "column 'v', serial 2, output 5: PostgreSQL's text can't hold the character NUL",
        ),
        (pa.timestamp("ns"), 1, "column 'v', serial 2, output 5: PostgreSQL keeps microseconds"),
        (pa.list_(pa.time64("ns")), [1], "column 'v', serial 2, output 5: PostgreSQL keeps microseconds"),
        (pa.timestamp("s"), 2**40, "column 'v', serial 2, output 5: .* no year behind 32767 is written"),
        (pa.date32(), 12_000_000, "column 'v', serial 2, output 5: .* no year behind 32767 is written"),
        (pa.date32(), -2_440_589, "serial 2, output 5: PostgreSQL's days begin in November 4714 BC"),
        (pa.timestamp("us", "UTC"), -(2**63) + 1, "serial 2, output 5: PostgreSQL's days begin in"),
        (
            pa.list_(pa.string()),
            ["a", "b\0"],
            "column 'v', serial 2, output 5: .* can't hold the character NUL",
        ),
    ],
)
def test_a_value_without_counterpart(opened, tmp_path, ask, table, type_, value, why):
    schema = pa.schema([("v", type_), *TAGS])
    good = [] if isinstance(value, list) else None
    given = pa.table([pa.array([good, value], type_), [1, 2], [0, 5]], schema=schema)
    pq.write_table(given, tmp_path / "v.parquet")
    sink = opened(StreamInfo("values", tmp_path, schema))
    with pytest.raises(SinkError, match=why) as told:
        sink.deliver(Epoch(0, [OutputFile(tmp_path / "v.parquet", 2, 1)], OrderTag(2, 5)))
    assert str(told.value).startswith(f"{sink!r}: can't deliver epoch 0: ")
    assert f"(od.spark.rewind({str(tmp_path)!r}, to=-1)), and start it with a pipeline" in str(told.value)
    assert sink.delivered() is None
    assert ask(f'SELECT * FROM "{table}"') == []


def test_whose_table_it_is(opened, epochs, info, ask, postgres_dsn):
    opened(table="mine").deliver(epochs[0])
    with pytest.raises(CheckpointError, match=r"another stream .*, this one is other"):
        opened(stream(info.checkpoint, "other"), table="mine")
    changed = SCHEMA.set(2, pa.field("price", pa.int64())).insert(1, pa.field("new", pa.int8()))
    with pytest.raises(PlanError, match="'new' is new, 'price' was double and is int64"):
        opened(stream(info.checkpoint, schema=changed), table="mine")
    ask("ALTER TABLE mine RENAME COLUMN price TO prize")
    with pytest.raises(PlanError, match="does not fit: 'price' is new"):
        opened(table="mine")
    ask("DROP TABLE mine")
    with pytest.raises(CheckpointError, match="the table is gone"):
        opened(table="mine")
    ask("CREATE TABLE theirs (_index bigint, _serial bigint, extra text DEFAULT 'x', word text)")
    narrow = pa.schema([("word", pa.string()), *TAGS])
    opened(stream(info.checkpoint, schema=narrow), table="theirs").deliver(epochs[0])
    assert ask("SELECT DISTINCT extra FROM theirs") == [("x",)]
    ask(
        "CREATE TABLE full_up (_index bigint, _serial bigint, word text);"
        "INSERT INTO full_up VALUES (1, 1, '')"
    )
    with pytest.raises(CheckpointError, match="rows that no stream put there"):
        opened(stream(info.checkpoint, schema=narrow), table="full_up")
    ask("CREATE SCHEMA apart")
    opened(table="apart.mine").deliver(epochs[0])
    assert ask("SELECT count(*) FROM apart.mine, apart.ordstream_epochs") == [(30,)]


def test_what_can_not_be(opened, info, postgres_dsn, epochs):
    for wrong in ("", "a.b.c", "x" * 64, "a.", "a\0b", "\ud800", None, 5, ["a", "b"], ("a", 5), Path("t")):
        with pytest.raises(PlanError):
            Postgres(postgres_dsn, wrong)
    for schema, why in (
        (pa.schema([("é" * 40, pa.int8()), *TAGS]), "cuts names off after 63 bytes, this one has 80"),
        (pa.schema([("m", pa.map_(pa.int8(), pa.int8())), *TAGS]), "column 'm': type map"),
        (pa.schema([(f"c{n}", pa.int8()) for n in range(1599)] + TAGS), "1600 at most"),
    ):
        with pytest.raises(PlanError, match=why):
            opened(stream(info.checkpoint, schema=schema))
    with pytest.raises(SinkError, match="system column"):
        opened(stream(info.checkpoint, schema=pa.schema([("ctid", pa.int8()), *TAGS])))
    unknown = Postgres("host=/nowhere password=secret", "t")
    with pytest.raises(SinkError, match="can't open the table") as caught:
        unknown.open(info)
    assert "secret" not in f"{caught.value}{unknown!r}"
    sink = opened()
    with pytest.raises(CheckpointError, match="epoch 2 comes, and the newest one in the table is none"):
        sink.deliver(epochs[2])


@pytest.mark.parametrize(
    "dsn",
    [
        "postgres:secret@host/db",
        "postgresql://u:%secret@localhost/db",
        "postgresql://u:secret@[::1/db",
        "host=localhost password=a secret",
        "host=localhost password=\ud800secret",
    ],
)
def test_a_dsn_that_can_not_be_read_is_not_shown(dsn):
    """libpq quotes what it does not understand, so the password was in the error."""
    with pytest.raises(PlanError, match=r"^dsn: libpq can't read it") as caught:
        Postgres(dsn, "t")
    assert "secret" not in "".join(traceback.format_exception(caught.value)).replace(repr(dsn), "")


def test_going_back(opened, epochs, ask, table):
    sink = opened()
    for epoch in epochs:
        sink.deliver(epoch)
    other = Epoch(2, epochs[2].files[:1], OrderTag(33))
    with pytest.raises(
        CheckpointError, match=r"another epoch 2: 20005 rows .* committed are 5 .*back_to\(1\)"
    ):
        sink.deliver(other)
    sink.back_to(1)
    assert ask(f'SELECT count(*) FROM "{table}"') == [(30,)]
    sink.deliver(other)
    assert ask(f'SELECT count(*) FROM "{table}"') == [(35,)]
    sink.back_to(None)
    assert (sink.delivered(), ask(f'SELECT count(*) FROM "{table}"')) == (None, [(0,)])
    with pytest.raises(CheckpointError, match="epoch 7 is not among those"):
        sink.back_to(7)


def test_an_epoch_with_other_values_is_not_taken_for_the_one_that_is_there(opened, epochs, ask, table):
    """As many rows up to the same serial: a stream that went back, and on with another pipeline."""
    sink = opened()
    for epoch in epochs[:2]:
        sink.deliver(epoch)
    ask("ALTER TABLE ordstream_epochs DROP COLUMN IF EXISTS digest")  # as an older release made it
    sink = opened()
    sink.deliver(epochs[1])
    sink.deliver(epochs[2])
    sink.deliver(epochs[2])
    path = epochs[2].files[0].path
    held = pq.read_table(path)
    user = held.schema.get_field_index("user")
    pq.write_table(held.set_column(user, held.schema.field(user), pc.add(held["user"], 1)), path)
    with pytest.raises(CheckpointError, match=r"another epoch 2: as many rows, .*back_to\(1\)"):
        sink.deliver(epochs[2])


def test_two_drivers(opened, epochs, ask, table, monkeypatch):
    """The second one comes while the first one is in the middle of its transaction, and finds it done."""
    first, second = opened(), opened()
    for sink in (first, second):
        sink.deliver(epochs[0])
        sink.deliver(epochs[1])
    arrived, failed = threading.Event(), []

    def deliver():
        try:
            second.deliver(epochs[2])
        except BaseException as error:
            failed.append(error)

    other = threading.Thread(target=deliver)
    plain, lock = postgres.lines, second._lock
    copied = []

    def waits(connection):
        arrived.set()
        return lock(connection)

    def slow(batch):
        if threading.current_thread() is other:  # looks whether the epoch is the same
            return plain(batch)
        copied.append(batch.num_rows)
        if not other.ident:
            other.start()
            assert arrived.wait(60)
            waiting = (
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE wait_event_type = 'Lock' AND query LIKE '%%FOR UPDATE%%'"
            )
            end = time.monotonic() + 60
            while not ask(waiting)[0][0]:
                assert other.is_alive()
                assert time.monotonic() < end, "the second driver does not wait for the first one"
        return plain(batch)

    monkeypatch.setattr(second, "_lock", waits)
    monkeypatch.setattr(postgres, "lines", slow)
    first.deliver(epochs[2])
    other.join(60)
    assert not other.is_alive()
    assert not failed
    assert sum(copied) == 20_005  # by the first one alone
    assert ask(f'SELECT count(*), count(DISTINCT (_serial, _index)) FROM "{table}"') == [(20_035, 20_035)]


def test_a_lost_connection(opened, epochs, ask, table):
    """The server ends the sink's session between two epochs, and in the middle of one."""

    class Unlucky(Postgres):
        left = 1

        def _copy(self, connection, *given):
            super()._copy(connection, *given)
            if self.left:
                self.left = 0
                ask("SELECT pg_terminate_backend(%s)", (connection.info.backend_pid,))

    sink = opened(kind=Unlucky)
    sink.deliver(epochs[0])
    assert not sink.left
    pid = sink._connection.info.backend_pid
    assert ask("SELECT pg_terminate_backend(%s, 10000)", (pid,)) == [(True,)]
    sink.deliver(epochs[1])
    sink.deliver(epochs[2])
    assert ask(f'SELECT count(*) FROM "{table}"') == [(whole(SIZES).num_rows,)]


def test_a_trigger_that_drops_rows_is_seen(opened, epochs, ask, table):
    sink = opened()
    ask("CREATE OR REPLACE FUNCTION drops() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    ask(
        f'CREATE TRIGGER t BEFORE INSERT ON "{table}" FOR EACH ROW '
        "WHEN (NEW._serial = 3) EXECUTE FUNCTION drops()"
    )
    dropped = rows(0, 30)["_serial"].to_pylist().count(3)
    with pytest.raises(SinkError, match=f"of the 30 rows of epoch 0 the table took {30 - dropped}"):
        sink.deliver(epochs[0])
    assert ask(f'SELECT * FROM "{table}"') == []

"""ordstream.redis_streams without Spark: offsets, replays, trimmed streams, values. On a real server."""

import itertools
import pickle
import re

import pyarrow as pa
import pytest
import redis
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from ordstream.errors import PlanError, SourceError
from ordstream.spark.streaming.sources import redis_streams
from ordstream.spark.streaming.sources.redis_streams import RedisStreams

COLUMNS = "user BIGINT, word STRING, _id STRING"
ALL = ReadAllAvailable()
_numbers = itertools.count()


@pytest.fixture
def key():
    return f"clicks {next(_numbers)}"


@pytest.fixture
def server(redis_url):
    with redis.Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def reader(redis_url, key):
    made = []

    def make(columns=COLUMNS, **options):
        given = {"url": redis_url, "stream": key, "columns": columns, **options}
        source = RedisStreams(CaseInsensitiveDict(given))
        made.append(source.streamReader(struct(source.schema())))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def struct(ddl):
    """What Spark's parser makes of the columns; it needs a JVM."""
    fields = []
    for name, type_, no in re.findall(r"(`[^`]+`|\w+) (\w+(?:\([^)]*\)|<[^>]*>)?)( NOT NULL)?", ddl):
        plain = {"BIGINT": "long", "TINYINT": "byte"}.get(type_, type_.lower())
        type_json = {"type": "array", "elementType": "long", "containsNull": True} if "<" in plain else plain
        fields.append({"name": name.strip("`"), "type": type_json, "nullable": not no, "metadata": {}})
    return StructType.fromJson({"type": "struct", "fields": fields})


def add(server, key, numbers, **options):
    return [
        server.xadd(key, {"user": n, "word": f"w{n}", "more": b"\xff"}, **options).decode() for n in numbers
    ]


def trim(server, key, **until):
    """To exactly that point; the server's own choice is whole nodes."""
    server.xtrim(key, approximate=False, **until)


def rows(reader, start, end):
    """As tasks read them: in another process."""
    parts = reader.partitions(start, end)
    batches = [
        batch
        for part in parts
        for batch in pickle.loads(pickle.dumps(reader)).read(pickle.loads(pickle.dumps(part)))
    ]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_offsets_are_dense_and_survive_restarts(server, reader, key):
    one = reader()
    start = one.initialOffset()
    assert one.latestOffset(start, ALL) == start
    ids = add(server, key, range(7))
    first = one.latestOffset(start, ReadMaxRows(3))
    assert first == {"o": 3, "id": ids[2], "gone": 0}
    expected = [(n, f"w{n}", ids[n], n) for n in range(7)]
    assert rows(one, start, first) == expected[:3]
    two = reader()  # after a restart, from the offset that Spark kept
    last = two.latestOffset(first, ReadMaxRows(100))
    ids += add(server, key, range(7, 9))
    assert last == {"o": 7, "id": ids[6], "gone": 0}
    assert rows(reader(), first, last) == expected[3:]  # a replay, though more has come
    assert two.latestOffset(last, ALL) == {"o": 9, "id": ids[8], "gone": 0}
    assert rows(two, last, last) == []


def test_available_now_ends(server, reader, key):
    add(server, key, range(5))
    one = reader(maxRows="2")
    assert one.getDefaultReadLimit() == ReadMaxRows(2)
    assert reader().getDefaultReadLimit() == ALL
    one.prepareForTriggerAvailableNow()
    add(server, key, range(5, 10))
    at, seen = one.initialOffset(), []
    while (then := one.latestOffset(at, ReadMaxRows(2))) != at:
        at = then
        seen.append(at["o"])
    assert seen == [2, 4, 5]


def test_many_entries_are_read_by_several_tasks(server, reader, key, monkeypatch):
    monkeypatch.setattr(redis_streams, "PAGE", 7)
    monkeypatch.setattr(redis_streams, "TASK_ROWS", 20)
    ids = add(server, key, range(50))
    one = reader()
    end = one.latestOffset(one.initialOffset(), ALL)
    assert end == {"o": 50, "id": ids[-1], "gone": 0}
    assert [(part.count, part.offset) for part in one.partitions(one.initialOffset(), end)] == [
        (20, 0),
        (20, 20),
        (10, 40),
    ]
    assert rows(one, one.initialOffset(), end) == [(n, f"w{n}", ids[n], n) for n in range(50)]


def test_long_entries_are_asked_for_in_small_pages(server, reader, key, monkeypatch):
    """5,000 at a time, whatever their length, were gigabytes in a task, and more than a column can hold."""
    for name, value in {"FIRST_PAGE": 4, "PAGE_BYTES": 10_000, "PAGE": 20}.items():
        monkeypatch.setattr(redis_streams, name, value, raising=False)
    lengths = [*[10] * 60, *[3_000] * 40, 20_000, *[10] * 60]
    ids = [server.xadd(key, {"word": "é" + "x" * length, "more": "y"}).decode() for length in lengths]
    one = reader()
    end = one.latestOffset(one.initialOffset(), ALL)
    (part,) = one.partitions(one.initialOffset(), end)
    pages = [batch.num_rows for batch in one.read(part)]
    assert pages[:5] == [4, 16, 20, 20, 20]
    assert pages[5:12] == [3] * 7  # what was behind the page that met them
    assert max(pages) == 20
    assert rows(one, one.initialOffset(), end) == [
        (None, "é" + "x" * length, entry, n)
        for n, (length, entry) in enumerate(zip(lengths, ids, strict=True))
    ]


def test_entries_that_were_read_may_be_trimmed(server, reader, key):
    ids = add(server, key, range(10))
    one = reader()
    at = one.latestOffset(one.initialOffset(), ReadMaxRows(6))
    trim(server, key, minid=ids[4])
    assert one.latestOffset(at, ALL)["o"] == 10
    trim(server, key, minid=ids[6])
    assert rows(one, at, one.latestOffset(at, ALL))[0] == (6, "w6", ids[6], 6)
    trim(server, key, maxlen=0)
    end = {"o": 10, "id": ids[9], "gone": 0}
    assert reader().latestOffset(end, ALL) == end


def test_entries_that_were_not_read_are_missed(server, reader, key):
    ids = add(server, key, range(10))
    one = reader()
    at = one.latestOffset(one.initialOffset(), ReadMaxRows(3))
    end = one.latestOffset(at, ALL)
    trim(server, key, minid=ids[5])
    with pytest.raises(
        SourceError, match=rf"2 entries behind {ids[2]}.* trimmed .* the oldest that is left is {ids[5]}"
    ):
        one.latestOffset(at, ALL)
    with pytest.raises(
        SourceError, match=rf"of the 7 entries behind {ids[2]} up to {ids[9]}.* 5 are there: 2 were"
    ):
        rows(one, at, end)
    trim(server, key, maxlen=0)
    with pytest.raises(SourceError, match=r"7 entries behind .* the oldest that is left is none"):
        one.latestOffset(at, ALL)


def test_an_entry_that_goes_out_of_the_middle_is_missed_when_the_read_ones_are_gone(server, reader, key):
    """The error looked for it behind the last entry, where there never was one."""
    ids = add(server, key, range(10))
    one = reader()
    at = one.latestOffset(one.initialOffset(), ReadMaxRows(3))
    server.xdel(key, ids[5])
    end = one.latestOffset(at, ALL)
    assert end == one.latestOffset(end, ALL) == {"o": 9, "id": ids[9], "gone": 0}
    trim(server, key, minid=ids[9])
    assert one.latestOffset(end, ALL) == end
    trim(server, key, maxlen=0)
    with pytest.raises(
        SourceError, match=rf"1 entries in front of {ids[9]}, the last one that was read, were"
    ):
        one.latestOffset(end, ALL)


def test_a_query_that_begins_on_a_trimmed_stream(server, reader, key):
    """What went before the query is not its loss; what goes then is."""
    ids = add(server, key, range(10))
    trim(server, key, maxlen=4)
    one = reader()
    start = one.initialOffset()
    assert start == {"o": 0, "id": "0-0", "gone": 6}
    at = one.latestOffset(start, ReadMaxRows(1))
    assert rows(one, start, at) == [(6, "w6", ids[6], 0)]
    trim(server, key, maxlen=1)
    with pytest.raises(SourceError, match="2 entries behind"):
        one.latestOffset(at, ALL)


def test_a_stream_that_is_gone_or_another_one(server, reader, key):
    add(server, key, range(4))
    one = reader()
    at = one.latestOffset(one.initialOffset(), ALL)
    server.delete(key)
    with pytest.raises(SourceError, match="is gone; 4 entries of it were read"):
        one.latestOffset(at, ALL)
    add(server, key, range(2))
    with pytest.raises(SourceError, match="was made anew: it has had 2 entries"):
        one.latestOffset(at, ALL)
    server.delete(key)
    server.rpush(key, "x")
    with pytest.raises(SourceError, match="WRONGTYPE"):
        one.latestOffset(at, ALL)


def test_values_of_all_types(server, reader, key):
    columns = (
        "b BOOLEAN, i TINYINT, n BIGINT, f FLOAT, d DOUBLE, s STRING, r BINARY, day DATE, at TIMESTAMP, "
        "local TIMESTAMP_NTZ, cents DECIMAL(9,2), absent BIGINT, `other name` STRING"
    )
    said = {
        "b": "true",
        "i": "-128",
        "n": str(-(2**63)),
        "f": "0.5",
        "d": "1e-320",
        "s": "é\0",
        "r": b"\xff\0",
        "X": "x",
    }
    said |= {
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00.000001+01:00",
        "local": "2024-02-29 12:00:00",
        "cents": "-1.50",
    }
    server.xadd(key, said)
    one = reader(columns, **{"field.other name": "X"})
    end = one.latestOffset(one.initialOffset(), ALL)
    (part,) = one.partitions(one.initialOffset(), end)
    (batch,) = one.read(part)
    assert list(map(str, batch.to_pylist()[0].values())) == [
        "True", "-128", str(-(2**63)), "0.5", "1e-320", "é\0", "b'\\xff\\x00'", "2024-02-29",
        "2024-02-29 11:00:00.000001+00:00", "2024-02-29 12:00:00", "-1.50", "None", "x", "0",
    ]  # fmt: skip
    assert batch.schema.field("_offset") == pa.field("_offset", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        ("BIGINT", "12x", "is b'12x', which is no int64"),
        ("TINYINT", "128", "is b'128', which is no int8"),
        ("BIGINT", "", "is b'', which is no int64"),
        ("STRING", b"\xff", "which is no string"),
        ("TIMESTAMP", "2024-02-29T12:00:00", "expected a zone offset"),
        ("DECIMAL(4,2)", "1.234", "which is no decimal"),
        ("DATE", "2023-02-29", "which is no date32"),
        ("BOOLEAN", "yes", "which is no bool"),
    ],
)
def test_a_bad_value_names_entry_and_field(server, reader, key, type_, value, why):
    good = {"STRING": "x", "TIMESTAMP": "2024-02-29T12:00:00Z", "DATE": "2024-02-29", "BOOLEAN": "1"}.get(
        type_, "1"
    )
    server.xadd(key, {"f": good})
    server.xadd(key, {"other": ""})
    bad = server.xadd(key, {"f": value}).decode()
    one = reader(f"value {type_}", **{"field.value": "f"})
    then = "BINARY, which takes any" if type_ == "STRING" else "STRING, and make values of it in the frame"
    with pytest.raises(
        SourceError,
        match=rf"entry {bad}: field 'f' (?=.*column 'value').*{why}.*Declare the column as {then}",
    ):
        rows(one, one.initialOffset(), one.latestOffset(one.initialOffset(), ALL))


def test_a_field_that_must_be_there(server, reader, key):
    entry = server.xadd(key, {"other": "1"}).decode()
    one = reader("n BIGINT NOT NULL")
    with pytest.raises(SourceError, match=f"entry {entry}: field 'n' is missing.* without NOT NULL"):
        rows(one, one.initialOffset(), one.latestOffset(one.initialOffset(), ALL))


def test_refusals(reader, key):
    for options, why in (
        ({"columns": "n ARRAY<BIGINT>"}, "can't become list"),
        ({"columns": "_id BIGINT"}, "'_id' is the entry's id"),
        ({"columns": "_offset BIGINT"}, "named twice, or '_offset'"),
        ({"field.nobody": "x"}, "names a column that there is not"),
        ({"maxRows": "0"}, "must be a number from 1, not '0'"),
        ({"maxRows": "-1"}, "must be a number from 1"),
        ({"stream": ""}, "'stream'.* is missing"),
        ({"colums": "x"}, "no option 'colums'; there are: url, stream, columns, maxRows, field.<column>"),
    ):
        with pytest.raises(PlanError, match=why):
            reader(**options)
    with pytest.raises(PlanError, match="must be redis://"):
        reader(url="http://secret").initialOffset()
    with pytest.raises(PlanError, match="must be redis://") as bad:
        reader(url="redis://user:pass:secret/0").initialOffset()
    assert bad.value.__cause__ is None  # "Port could not be cast to integer value as 'secret'"
    with pytest.raises(SourceError, match="does not answer") as caught:
        reader(url="unix:///nowhere?password=secret").initialOffset()
    assert "secret" not in str(caught.value)

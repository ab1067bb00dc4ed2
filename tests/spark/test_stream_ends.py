"""From our own sources into our own sinks, with restarts: the answer of `run_serial`, row for row."""

import itertools
import json

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

import ordstream as od
from ordstream.testing import run_serial

SCHEMA = pa.schema([("user", pa.int64()), ("word", pa.string()), ("_offset", pa.int64())])


def pipeline():
    """Keys that change, sessions that are open across batches, a flush."""
    counted = od.Pipeline(SCHEMA).key_by("user").scan(seen=od.count(), latest=od.last("_offset"))
    before = counted.key_by("seen").lag({"before": "user"}).filter(od.col("before").is_not_null())
    return before.key_by("user").sessionize("latest", 20, ["before"])


def rows(first, last):
    numbers = range(first, last)
    return pa.table([[n * n % 37 for n in numbers], [f"é{n % 5}" for n in numbers], numbers], schema=SCHEMA)


def answer(count):
    found = run_serial(pipeline(), rows(0, count))
    assert found.error is None
    return [(*row, *tag) for row, tag in zip(found.rows, found.tags, strict=True)]


def run(df, checkpoint, sinks, through):
    query = od.spark.stream(pipeline(), df, checkpoint=checkpoint, sink=sinks, trigger="available now")
    query.awaitTermination(120)
    assert query.emitted_through.serial <= through
    return len(query.epochs)


def forget(checkpoint):
    """Spark's commit of the last batch is lost: it gives that batch again."""
    commits = checkpoint / "spark" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(newest)).unlink()
    (commits / f".{newest}.crc").unlink(missing_ok=True)


def tuples(table):
    return [tuple(row.values()) for row in table.to_pylist()]


def test_files_into_a_folder_and_a_function(spark, tmp_path):
    source, folder, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    source.mkdir()
    called = []

    def add(name, first, last):
        pq.write_table(rows(first, last).drop("_offset"), source / f".{name}")
        (source / f".{name}").rename(source / name)

    def go(through):
        od.spark.sources.register(spark)
        df = (
            spark.readStream.format("ordstream.files")
            .option("path", str(source))
            .option("maxRows", "250")
            .load()
        )
        assert df.columns == SCHEMA.names
        return run(df, checkpoint, sinks(), through)

    def sinks():
        function = od.spark.sinks.Function(lambda *given: called.append(given))
        return [od.spark.sinks.ParquetFolder(folder), function]

    add("a.parquet", 0, 300)
    add("b.parquet", 300, 350)
    assert go(350) == 2
    expected = answer(600)
    first = sum(row[-2] <= 250 for row in expected)
    assert od.spark.rewind(checkpoint) == 0
    assert [od.spark.sinks.take_back(sink, checkpoint) for sink in sinks()] == [0, 0]
    assert tuples(pq.read_table(folder)) == expected[:first]
    add("c.parquet", 350, 600)
    assert go(600) == 2
    od.spark.finish(checkpoint)
    assert tuples(pq.read_table(folder)) == expected
    read = spark.read.parquet(str(folder)).orderBy("_serial", "_index")
    assert [tuple(row) for row in read.collect()] == expected
    by_key = {key: tuples(given) for _, given, key in called}
    assert list(itertools.chain(*by_key.values())) == expected
    query = json.loads((folder / "_ordstream.json").read_text())["query"]
    assert [(batch, key) for batch, _, key in called] == [(n, f"{query}/{n}") for n in (0, 1, 1, 2, 3)]


def test_redis_into_postgres(spark, tmp_path, redis_url, postgres_dsn):
    checkpoint = tmp_path / "checkpoint"

    def go(through):
        od.spark.sources.register(spark)
        options = {
            "url": redis_url,
            "stream": "ends",
            "columns": "user BIGINT, word STRING",
            "maxRows": "250",
        }
        df = (
            spark.readStream.format("ordstream.redis_streams")
            .options(**options, **{"field.word": "w"})
            .load()
        )
        assert df.columns == SCHEMA.names
        return run(df, checkpoint, od.spark.sinks.Postgres(postgres_dsn, "ends"), through)

    with redis.Redis.from_url(redis_url) as server:

        def add(first, last):
            with server.pipeline() as together:
                for user, word, _ in tuples(rows(first, last)):
                    together.xadd("ends", {"user": user, "w": word})
                return together.execute()

        ids = add(0, 350)
        assert go(350) == 2
        forget(checkpoint)
        server.xtrim("ends", minid=ids[250], approximate=False)  # but for the batch that comes again
        add(350, 600)
        assert go(600) == 1
        od.spark.finish(checkpoint)
        with psycopg.connect(postgres_dsn) as connection:
            found = connection.execute("SELECT * FROM ends ORDER BY _serial, _index").fetchall()
        assert found == answer(600)


def test_what_a_source_says_between_two_batches_is_what_ends_the_stream(spark, tmp_path, redis_url):
    """It was a StreamingQueryException with Spark's trace and plan, and ours in the middle of it."""
    od.spark.sources.register(spark)

    def ended(stream, url):
        options = {"url": url, "stream": stream, "columns": "user BIGINT, word STRING"}
        df = spark.readStream.format("ordstream.redis_streams").options(**options).load()
        return od.spark.stream(pipeline(), df, checkpoint=tmp_path / stream, trigger="available now")

    with redis.Redis.from_url(redis_url) as server:
        ids = [server.xadd("trimmed", {"user": n}).decode() for n in range(3)]
        assert ended("trimmed", redis_url).awaitTermination(60)
        ids += [server.xadd("trimmed", {"user": n}).decode() for n in range(9)]
        server.xtrim("trimmed", minid=ids[5], approximate=False)
        query = ended("trimmed", redis_url)
        with pytest.raises(od.SourceError, match=rf"^stream 'trimmed': 2 entries behind {ids[2]}, ") as told:
            query.awaitTermination(60)
        assert str(told.value).endswith("Trim less (MAXLEN, MINID), or begin a new query")
        assert type(query.exception()) is od.SourceError
        query.stop()
        assert type(query.exception()) is od.SourceError
    query = ended("no url", "http://host")
    with pytest.raises(od.PlanError, match=r"^ordstream.redis_streams: .* must be redis://"):
        query.processAllAvailable()

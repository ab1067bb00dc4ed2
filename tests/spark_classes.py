"""An archive of Spark's classes, which every Java of the tests maps into its memory (`python
spark_classes.py`): loading and checking them one by one is a third of what a short session's Java costs.

It is made by a session that does a little of everything, and lies in the virtual environment. A Java with
another class path, or another version, does without it and says nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

#: Sessions of the tests live for seconds: the second compiler and a parallel collector of garbage cost them
#: half of their processor time, and give nothing back.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
PATIENCE = 600.0  # seconds until it is made


def java_options() -> str:
    """Of a driver of the tests."""
    if not ARCHIVE.exists():
        return SHORT_LIVED
    # Where the archive does not fit, Java would say so on the standard output.
    return f'{SHORT_LIVED} "-XX:SharedArchiveFile={ARCHIVE}" -Xlog:disable'


def main() -> None:
    """Make the archive in front of all tests. What fails here leaves none, and they take longer."""
    ARCHIVE.unlink(missing_ok=True)
    # all of it or nothing: other tests may be about to look
    made = ARCHIVE.with_suffix(".part")
    made.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "SPARK_SUBMIT_OPTS": f'{SHORT_LIVED} "-XX:ArchiveClassesAtExit={made}" -Xlog:disable',
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            work = [sys.executable, __file__, folder]
            subprocess.run(
                work, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=True
            )
        made.replace(ARCHIVE)
    except (OSError, subprocess.SubprocessError) as error:
        made.unlink(missing_ok=True)
        why = getattr(error, "stderr", None) or error
        print(f"no archive of Spark's classes, the tests of Spark take longer: {str(why)[-300:]}")


def session(folder: Path) -> None:
    """Rows through files, SQL, nodes and a stream, in a session whose Java is waited for."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    import ordstream as od

    spark = od.spark.local_session(1, memory="700m")
    gateway = spark.sparkContext._gateway
    rows = pa.table({"n": range(2_000), "k": [n % 7 for n in range(2_000)], "s": ["a", "b"] * 1_000})
    spark.createDataFrame(rows).repartition(2).write.parquet(str(folder / "rows"))
    frame = spark.read.parquet(str(folder / "rows"))
    frame.createOrReplaceTempView("rows")
    spark.sql("select k, count(*) c, max(s) m from rows where n > 3 group by k order by c desc").collect()
    joined = frame.join(frame.groupBy("k").agg(F.sum("n").alias("t")), "k")
    joined.withColumn("at", F.timestamp_seconds("n")).orderBy(F.desc("n")).toArrow()
    pipeline = od.Pipeline(frame).key_by("k").scan(total=od.sum("n"))
    for nodes, order in ((1, "total"), (2, "total"), (2, "none")):
        result = od.spark.apply(pipeline, frame, order_by="n", nodes=nodes, order=order)
        result.write.mode("overwrite").parquet(str(folder / "result"))
        result.collect()
    stream = spark.readStream.schema(frame.schema).parquet(str(folder / "rows"))
    checkpoint = str(folder / "checkpoint")
    options = {"order_by": "n", "checkpoint": checkpoint, "nodes": 2}
    query = od.spark.stream(pipeline, stream, trigger="available now", **options)
    query.awaitTermination()
    od.spark.read_output(checkpoint).count()
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive


if __name__ == "__main__":
    if len(sys.argv) > 1:
        session(Path(sys.argv[1]))
    else:
        main()

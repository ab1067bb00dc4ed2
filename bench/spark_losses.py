"""What a job over Spark's nodes survives: executors that are processes of their own, one of which is killed,
or all shuffle files written so far deleted, or a task held up, once, in the middle of each fragment.

    PYTHONPATH=. python bench/spark_losses.py [--rows 6000] [--executors 4] [--nodes 6]
        [--settings plain,speculation,dynamic] [--losses none,killed,lost,slow] [--places 1,2,3,4]

A pipeline of three fragments, with two keys and a Python function in each, runs under each of Spark's
settings and each loss; as place 4, one with one key, whose rows get no serials. Every answer is compared,
unsorted, with `run_serial`; one JSON object per job says whether it is equal, whether the loss happened, and
how many tasks of how many stages were tried. Executors don't read each other's files from the disk of the
host that they share.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od

SOURCE = pa.schema([("n", pa.int64()), ("user", pa.int64()), ("item", pa.int64())])
SEEN = pa.schema([*SOURCE, ("seen", pa.int64())])
BOTH = pa.schema([*SEEN, ("both", pa.int64())])
PLACES = (1, 2, 3)  # fragments
ONE_KEY = 4  # in the place of a fragment: the only one of another pipeline
SLOW_SECONDS = 20.0  # of a task that is held up: with speculation another one overtakes it
SETTINGS = {
    "plain": {},
    "speculation": {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.multiplier": "1.01",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.minTaskRuntime": "1ms",
    },
    "dynamic": {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
    },
}


def rows(count: int) -> pa.Table:
    """Rows in order of n, of a few users and items."""
    random = np.random.default_rng(5)
    users, items = random.integers(0, 50, count), random.integers(0, 9, count)
    return pa.table([np.arange(count), users, items], schema=SOURCE)


def act_once(flag: str, loss: str, scratch: str, after: int) -> Callable[[Any], tuple[Any, ...]]:
    """A function that passes rows on, and acts at the first row from `after` that any task sees."""

    def passed(row: Any) -> tuple[Any, ...]:
        if loss != "none" and row.n >= after and not Path(flag).exists():
            try:
                os.close(os.open(flag, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return tuple(row)
            if loss == "killed":
                parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
                os.kill(int(parent), signal.SIGKILL)  # of the daemon that forked this worker: Java
            elif loss == "slow":
                time.sleep(SLOW_SECONDS)
            else:
                for file in Path(scratch).rglob("shuffle_*"):
                    file.unlink(missing_ok=True)
        return tuple(row)

    return passed


def pipeline(scratch: Path, loss: str, place: int, after: int) -> od.Pipeline:
    """Three fragments; the function of one of them acts."""
    flag = str(scratch / f"{loss}-{place}-{time.time_ns()}")
    functions = [act_once(flag, loss if one == place else "none", str(scratch), after) for one in PLACES]
    first = od.Pipeline(SOURCE).map(functions[0], schema=SOURCE)
    second = first.key_by("user").scan(seen=od.count()).map(functions[1], schema=SEEN)
    return second.key_by("item").scan(both=od.sum("seen")).map(functions[2], schema=BOTH)


def one_key(scratch: Path, loss: str, after: int) -> od.Pipeline:
    """One fragment, whose function acts."""
    flag = str(scratch / f"{loss}-{ONE_KEY}-{time.time_ns()}")
    counted = od.Pipeline(SOURCE).key_by("user").scan(seen=od.count())
    return counted.map(act_once(flag, loss, str(scratch), after), schema=SEEN)


def main() -> None:
    """Print a JSON object per job."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=6_000)
    parser.add_argument("--executors", type=int, default=4)
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--losses", default="none,killed,lost,slow")
    parser.add_argument("--places", default=",".join(map(str, (*PLACES, ONE_KEY))))
    parser.add_argument("--folder", help="of this process, which a caller has made")
    given = parser.parse_args()
    if given.folder is None:
        in_home_of_its_own(sys.argv[1:])
        return
    from ordstream.reference.run_serial import run_serial
    from ordstream.spark import apply, local_session

    scratch, table = Path(given.folder), rows(given.rows)
    several = run_serial(pipeline(scratch, "none", 0, 0), table).table
    single = run_serial(one_key(scratch, "none", 0), table).table
    pq.write_table(table, scratch / "rows.parquet", row_group_size=given.rows // 5)
    for name in given.settings.split(","):
        settings = {
            "spark.master": f"local-cluster[{given.executors},1,1024]",
            "spark.executor.memory": "600m",
            "spark.executor.cores": "1",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.local.dir": str(scratch / "local"),
            "spark.shuffle.readHostLocalDisk": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.adaptive.coalescePartitions.enabled": "false",
        } | SETTINGS[name]
        spark = local_session(1, memory="700m", settings=settings)
        frame = spark.read.parquet(str(scratch / "rows.parquet"))
        for loss in given.losses.split(","):
            for place in map(int, given.places.split(",")) if loss != "none" else (0,):
                job, expected = pipeline(scratch, loss, place, given.rows // 2), several
                if place == ONE_KEY:
                    job, expected = one_key(scratch, loss, given.rows // 2), single
                begin = time.perf_counter()
                label = f"{name} {loss} {place}"
                spark.sparkContext.setJobGroup(label, label)
                found = apply(job, frame, order_by="n", nodes=given.nodes).toArrow()
                happened = bool(list(scratch.glob(f"{loss}-{place}-*")))
                print(json.dumps({
                    "settings": name, "loss": loss, "fragment": place, "happened": happened,
                    "equal": found.cast(expected.schema).equals(expected),
                    "seconds": round(time.perf_counter() - begin, 1),
                } | tried(spark)), flush=True)  # fmt: skip
        spark.stop()


def tried(spark: Any) -> dict[str, int]:
    """Of all jobs of the session so far: stages that were tried again, and tasks that failed, or ran twice
    at a time; of the second copies, how many came first (`overtook`): the other attempt was killed.
    """
    store = spark.sparkContext._jsc.sc().statusStore()
    empty = spark.sparkContext._jvm.java.util.ArrayList()
    doubles = spark.sparkContext._gateway.new_array(spark.sparkContext._jvm.double, 0)
    stages = store.stageList(empty, False, False, doubles, empty)
    all_of = [stages.apply(number) for number in range(stages.size())]
    lists = [store.taskList(one.stageId(), one.attemptId(), 10_000) for one in all_of]
    tasks = [some.apply(k) for some in lists for k in range(some.size())]
    copies = [task for task in tasks if bool(task.speculative())]
    return {
        "speculative_tasks": len(copies),
        "overtook": sum(str(task.status()) == "SUCCESS" for task in copies),
        "stage_attempts": len(all_of),
        "stages_again": sum(int(one.attemptId()) > 0 for one in all_of),
        "failed_tasks": sum(int(one.numFailedTasks()) for one in all_of),
        "killed_tasks": sum(int(one.numKilledTasks()) for one in all_of),
    }


def in_home_of_its_own(arguments: list[str]) -> None:
    """Run this program with a SPARK_HOME that it may write to: executors of a cluster keep theirs there."""
    import pyspark

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "spark"
        home.mkdir()
        for name in ("bin", "sbin", "jars", "python", "data", "licenses"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
        paths = os.pathsep.join([str(Path(od.__file__).parent.parent), str(Path(__file__).parent)])
        environment = os.environ | {"SPARK_HOME": str(home), "PYTHONPATH": paths}
        subprocess.run(
            [sys.executable, __file__, *arguments, "--folder", folder], env=environment, check=True
        )
        shutil.rmtree(Path(folder) / "local", ignore_errors=True)


if __name__ == "__main__":
    main()

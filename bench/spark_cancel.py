"""How long the work of a Spark job goes on after the job was cancelled.

    python bench/spark_cancel.py

A job that would take an hour runs in ordered nodes inside Spark's Python workers; its row function takes 20
ms and leaves the time of its last call. Printed is the time from the cancel to the last call: for one node
and for two with a shuffle between them, over TCP and over unix domain sockets, and for each way to cancel;
then for Ctrl-C in a Python session that goes on, and to a program that ends by it; for a program that is
killed; and for `ordstream run --engine spark`, how long Ctrl-C takes to end it, at several moments, as a
terminal sends it.

Spark alone ends a Python worker two to three seconds after a cancel without `interruptOnCancel`; and its
Python side does not cancel what `collect` waits for on Ctrl-C, nor anything in a notebook's cell, where
Python's own handler of SIGINT is in place.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import ordstream as od

SOURCE = pa.schema([("ts", pa.int64()), ("user", pa.int64()), ("item", pa.string()), ("n", pa.int64())])
ROW_SECONDS = 0.02
WAYS = ("group", "group with interrupt", "all jobs")
COMMAND_DELAYS = (0.5, 1.5, 4.0, 9.0)
ACTIONS: dict[str, Callable[[Any], Any]] = {
    "collect": lambda frame: frame.collect(),
    "toArrow": lambda frame: frame.toArrow(),
    "write": lambda frame: frame.write.format("noop").mode("overwrite").save(),
    "collect of a derived frame": lambda frame: frame.select("ts").collect(),
}


def beating(folder: str) -> Callable[[Any], tuple[Any, ...]]:
    """A row function that takes 20 ms and leaves the time of its last call in a file of its task attempt
    and process.
    """

    def step(row: Any) -> tuple[Any, ...]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = "none" if context is None else context.taskAttemptId()
        (Path(folder) / f"{task}-{os.getpid()}").write_text(str(time.monotonic()))
        time.sleep(ROW_SECONDS)
        return tuple(row)

    return step


def long_job(spark: Any, folder: Path, action: str = "collect", **options: Any) -> None:
    """The job that would take an hour."""
    from ordstream.spark import apply

    beat = beating(str(folder))
    columns = SOURCE.names
    pipeline = (
        od.Pipeline(SOURCE).key_by("user").scan(seen=od.count()).select(*columns).map(beat, schema=SOURCE)
    )
    frame = spark.range(200_000).selectExpr("id as ts", "id as user", "'a' as item", "id as n")
    ACTIONS[action](apply(pipeline, frame, order_by="ts", **options))


class Heart:
    """The time of the last call of a user function, by the files that `beating` writes."""

    def __init__(self, folder: Path, task: str = "*") -> None:
        self._folder, self._task = folder, task
        self._last = 0.0

    def last(self) -> float:
        texts = [file.read_text() for file in self._folder.glob(f"{self._task}-*")]
        # one that is being written is empty
        self._last = max([self._last, *(float(text) for text in texts if text)])
        return self._last

    def wait_for_begin(self) -> None:
        end = time.monotonic() + 90
        while not self.last():
            assert time.monotonic() < end, "the job did not begin"
            time.sleep(0.02)
        time.sleep(1.5)

    def seconds_after(self, cancelled: float, still: float = 3.0) -> float:
        """How long it goes on beating, once it has been still for some seconds."""
        while time.monotonic() - max(self.last(), cancelled) < still:
            assert time.monotonic() < cancelled + 40, "the work goes on"
            time.sleep(0.02)
        return max(0.0, self.last() - cancelled)


def seconds_of_work_after_cancel(spark: Any, folder: Path, name: str, *, way: str, **options: Any) -> float:
    """Run a job that would take an hour, cancel it, and return how long user functions went on, by their
    heartbeat.

    Parameters
    ----------
    spark : SparkSession
    folder : Path
        Is made; for the heartbeat.
    name : str
        Of the job group.
    way : str
        One of WAYS.
    **options
        Of `ordstream.spark.apply`.
    """
    from pyspark import InheritableThread

    folder.mkdir(parents=True)
    heart = Heart(folder)
    context, ended = spark.sparkContext, threading.Event()

    def job() -> None:
        context.setJobGroup(name, "to be cancelled", interruptOnCancel=way == "group with interrupt")
        try:
            long_job(spark, folder, **options)
        except Exception as error:
            if "cancelled" in str(error):
                ended.set()

    thread = InheritableThread(target=job)
    thread.start()
    heart.wait_for_begin()
    cancelled = time.monotonic()
    if way == "all jobs":
        context.cancelAllJobs()
    else:
        context.cancelJobGroup(name)
    assert ended.wait(30)
    thread.join()
    return heart.seconds_after(cancelled)


def seconds_of_work_of_killed_task(spark: Any, folder: Path) -> float:
    """The same for one task attempt that is killed, as from Spark's web page. Spark starts the task
    anew; then the job is cancelled.
    """
    from pyspark import InheritableThread

    folder.mkdir(parents=True)
    context = spark.sparkContext

    def job() -> None:
        context.setJobGroup("killed task", "to be killed")
        with contextlib.suppress(Exception):  # the cancel at the end
            long_job(spark, folder, nodes=1)

    thread = InheritableThread(target=job)
    thread.start()
    Heart(folder).wait_for_begin()
    task = next(folder.iterdir()).name.split("-")[0]
    killed = time.monotonic()
    context._jsc.sc().killTaskAttempt(int(task), True, "killed")
    after = Heart(folder, task).seconds_after(killed)
    context.cancelJobGroup("killed task")
    thread.join()
    return after


def seconds_of_work_after_interrupt(
    spark: Any, folder: Path, action: str, *, notebook: bool = False, still: float = 3.0, **options: Any
) -> tuple[float, float]:
    """The same for Ctrl-C while the main thread of this process, which goes on, waits for an action.

    Parameters
    ----------
    action : str
        One of ACTIONS.
    notebook : bool
        With Python's own handler of SIGINT, as in a cell of a notebook.
    still : float
        Seconds without work after which it has ended.

    Returns
    -------
    tuple of float
        Seconds until the KeyboardInterrupt, and until the last call of a user function.
    """
    folder.mkdir(parents=True)
    heart, sent = Heart(folder), [0.0]

    def interrupt() -> None:
        heart.wait_for_begin()
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    present = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    try:
        if notebook:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        thread.start()
        long_job(spark, folder, action, **options)
    except KeyboardInterrupt:
        returned = time.monotonic() - sent[0]
    else:
        raise AssertionError("the job ended")
    finally:
        thread.join()
        if notebook:
            signal.signal(signal.SIGINT, present)
    after = heart.seconds_after(sent[0], still)
    assert spark.range(3).count() == 3, "the session does not work any more"
    return returned, after


def seconds_of_work_after_end(folder: Path, number: signal.Signals) -> float:
    """The same for a program of its own that is told to end by a signal."""
    folder.mkdir(parents=True)
    heart = Heart(folder)
    program = subprocess.Popen([sys.executable, __file__, "--job", str(folder)], stderr=subprocess.DEVNULL)
    heart.wait_for_begin()
    cancelled = time.monotonic()
    program.send_signal(number)
    after = heart.seconds_after(cancelled)
    program.wait(30)
    return after


def seconds_to_end_of_command(data: Path, delay: float) -> tuple[float, int, str]:
    """Seconds from Ctrl-C until `ordstream run q2 --engine spark` has ended with all its processes, its
    exit status, what it said last.
    """
    command = [
        sys.executable,
        "-m",
        "ordstream",
        "run",
        "q2",
        "--engine",
        "spark",
        "--data",
        str(data),
        "--chunk-rows",
        "1",
    ]
    program = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    time.sleep(delay)
    os.killpg(program.pid, signal.SIGINT)
    sent = time.monotonic()
    told, _ = program.communicate(timeout=60)  # until the last process has closed the pipe
    return time.monotonic() - sent, program.returncode, told.strip().splitlines()[-1] if told.strip() else ""


def main() -> None:
    from ordstream.spark import local_session

    if sys.argv[1:2] == ["--job"]:
        long_job(local_session(2, node_cores=1, memory="1g"), Path(sys.argv[2]))
        return
    scratch = Path(tempfile.mkdtemp())
    worst = 0.0
    for domain in (False, True):
        spark = local_session(
            2,
            node_cores=1,
            memory="1g",
            settings={"spark.python.unix.domain.socket.enabled": str(domain).lower()},
        )
        for nodes in (1, 2):
            for way in WAYS:
                name = f"{domain}-{nodes}-{way}"
                after = seconds_of_work_after_cancel(spark, scratch / name, name, way=way, nodes=nodes)
                worst = max(worst, after)
                transport = "unix domain sockets" if domain else "TCP"
                print(
                    f"{transport:<20} {nodes} node{'s' * (nodes > 1):<2} {way:<21} {after:5.2f} s",
                    flush=True,
                )
        after = seconds_of_work_of_killed_task(spark, scratch / f"{domain}-task")
        worst = max(worst, after)
        print(f"{transport:<20} killed task {after:5.2f} s", flush=True)
        for notebook in (False, True):
            for action in ACTIONS if not notebook else ("collect", "toArrow", "write"):
                folder = scratch / f"{domain}-{notebook}-{action}"
                returned, after = seconds_of_work_after_interrupt(spark, folder, action, notebook=notebook)
                worst = max(worst, after)
                where = "notebook's cell" if notebook else "Python session"
                print(
                    f"Ctrl-C in a {where}, {action:<28} {after:5.2f} s, KeyboardInterrupt after "
                    f"{returned:.2f} s",
                    flush=True,
                )
        spark.stop()
    for number in (signal.SIGINT, signal.SIGKILL):
        after = seconds_of_work_after_end(scratch / number.name, number)
        worst = max(worst, after)
        print(f"{number.name} to the program {after:5.2f} s", flush=True)
    data = scratch / "data"
    generate = [sys.executable, "-m", "ordstream", "generate", "--rows", "2000000", "--out", str(data)]
    subprocess.run(generate, check=True, capture_output=True)
    for delay in COMMAND_DELAYS:
        ended, status, told = seconds_to_end_of_command(data, delay)
        print(
            f"Ctrl-C to ordstream run {delay:g} s after its start: exit status {status}, {told!r}, ended "
            f"{ended:.2f} s later",
            flush=True,
        )
    print(f"longest of the cancels {worst:.2f} s, of which a row takes {ROW_SECONDS:g}")


if __name__ == "__main__":
    main()

"""A running stream, as `od.spark.stream` returns it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from ordstream.errors import CheckpointError, NodeLost, OrdstreamError, PlanError, told
from ordstream.ground.ordertags import OrderTag
from ordstream.spark.streaming.balancing import figures
from ordstream.spark.streaming.called_by import called_by, hang_up
from ordstream.spark.streaming.epoch_figures import Reports, tell
from ordstream.spark.streaming.epoch_log import EpochLog
from ordstream.spark.streaming.epoch_manifest import EpochManifest
from ordstream.spark.streaming.epoch_runner import EpochRunner, OnEpoch
from ordstream.spark.streaming.failures import (
    StreamStopped,
    for_java,
    session_stopped,
    told_by_task,
    without_spark,
)
from ordstream.spark.streaming.file_source_log import check_names
from ordstream.spark.streaming.hushed import hushed
from ordstream.spark.streaming.micro_batch import MicroBatch, Sorting
from ordstream.spark.streaming.sinks.committed import epoch_of, held_again
from ordstream.spark.streaming.sinks.sink import Epoch, Sink, StreamInfo, failed_on
from ordstream.spark.streaming.spark_log import SPARK, query_id

#: Epochs whose figures a query keeps.
REMEMBERED = 100
WAIT_SECONDS = 0.05


def _name(sink: Sink) -> str:
    try:
        return f"{sink!r:.200}"
    except Exception:  # a sink of the user's that can't show itself
        return type(sink).__name__


class Delivery:
    """Hands committed epochs to sinks; after a start first those that a sink may not have."""

    def __init__(self, log: EpochLog, info: StreamInfo, sinks: Sequence[Sink]) -> None:
        self._log, self._info, self._sinks = log, info, sinks
        self._opened: list[Sink] = []

    def open(self, last: EpochManifest | None) -> None:
        """Open the sinks, and deliver what was committed before and is not surely there.

        Raises
        ------
        CheckpointError
            A sink has an epoch that this checkpoint has not.
        PlanError
            A sink says what is no epoch.
        SinkError
            A sink of the user's failed.
        """
        try:
            self._open(-1 if last is None else last.number)
        except BaseException:
            self.close()
            raise

    def _open(self, newest: int) -> None:
        for sink in self._sinks:
            self._opened.append(sink)
            sink.open(self._info)
            found: Any = sink.delivered()
            if found is not None and (type(found) is not int or found < -1):
                raise PlanError(
                    f"{type(sink).__name__}.delivered() returned {found!r:.80}: it takes the number of the "
                    "newest epoch that is surely there (the first one is 0), or None"
                )
            through = -1 if found is None else found
            if through > newest + 1:
                raise CheckpointError(
                    f"{type(sink).__name__} holds epochs up to {through} of this stream, and the checkpoint "
                    f"{self._log.folder} ends at epoch {newest}: it was taken back. Give the sink another "
                    "target, or take it back too: od.spark.sinks.take_back(sink, checkpoint)"
                )
            if found is not None and (epoch := held_again(self._log, sink, newest)) is not None:
                self._hand(sink, epoch)
            for manifest in self._log.all(through):
                self._hand(sink, epoch_of(self._log, manifest))

    def deliver(self, manifest: EpochManifest) -> None:
        """Hand an epoch to all sinks.

        Raises
        ------
        SinkError
            A sink of the user's failed.
        """
        for sink in self._sinks:
            self._hand(sink, epoch_of(self._log, manifest))

    def _hand(self, sink: Sink, epoch: Epoch) -> None:
        try:
            sink.deliver(epoch)
        except OrdstreamError:
            raise
        except BaseException as error:
            # Ctrl-C comes to the main thread; in Spark's, nobody but the sink raises such a thing
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            raise failed_on(_name(sink), epoch, error) from error

    def close(self) -> None:
        """Close the sinks, all of them. What one raises is a warning: its epochs are delivered."""
        while self._opened:
            sink = self._opened.pop()
            try:
                sink.close()
            except Exception as error:
                warnings.warn(
                    f"{type(sink).__name__}.close() failed: {told(error)}; what was delivered is not "
                    "concerned",
                    RuntimeWarning,
                    stacklevel=2,
                )


@dataclass
class Batches:
    """What `foreachBatch` calls: one micro-batch becomes one epoch.

    Attributes
    ----------
    sorting : Sorting
        What puts a batch into order.
    thread : int or None
        Where a batch is under way.
    called_by : socket or None
        By which Java calls.
    files : dict
        Those of Spark's log that were looked at (`file_source_log.check_names`).
    """

    log: EpochLog
    runner: EpochRunner
    delivery: Delivery
    sorting: Sorting
    last: EpochManifest | None
    on_epoch: OnEpoch | None
    failure: BaseException | None = None
    reports: Reports = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    busy: threading.Lock = field(default_factory=threading.Lock)
    spark_id: str = ""
    cleaned: bool = False
    stopping: bool = False
    thread: int | None = None
    called_by: socket.socket | None = None
    files: dict[str, int] = field(default_factory=dict)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Run, commit and deliver; or skip what was committed.

        Raises
        ------
        CheckpointError
            It can't follow what was committed, or another driver was faster.
        """
        while not (free := self.busy.acquire(timeout=WAIT_SECONDS)) and not self.stopping:
            pass
        try:
            self.called_by = called_by()
            if self.stopping:  # whoever stops the query waits for this call, and may hold the lock
                raise StreamStopped("the query was stopped before this micro-batch began")
            self.thread = threading.get_ident()
            self._run(batch, int(number))
        finally:
            if free:
                self.thread = None
                self.busy.release()

    def close(self) -> None:
        """The query has ended: close the sinks, and the connection by which Java called. It is the stream's
        own, and py4j's thread behind it, with the memory that Arrow keeps for a thread, would stay for ever.
        """
        self.delivery.close()
        connection, self.called_by = self.called_by, None
        hang_up(connection)

    def _run(self, batch: DataFrame, number: int) -> None:
        try:
            self._process(batch, number)
        except BaseException as error:
            known = -1 if self.last is None else self.last.number
            self.failure = self.log.or_lost(told_by_task(error), known)
            raised = for_java(error)
        else:
            return
        raise raised

    def _process(self, batch: DataFrame, number: int) -> None:
        began = time.perf_counter()
        self._check_query()
        newest = -1 if self.last is None else self.last.number
        if number <= newest:
            self._check_same(batch, number)
            return
        if number > newest + 1:
            raise CheckpointError(
                f"Spark gives micro-batch {number}, and the last committed epoch is {newest}: epochs "
                f"between them are missing from {self.log.folder}. Take Spark's log back to it with "
                f"od.spark.rewind({str(self.log.folder)!r}, to={newest}), or begin anew with another "
                "checkpoint"
            )
        check_names(self.log.folder, self.files)
        manifest = self.runner.epoch(MicroBatch(batch, self.sorting), number, self.last, self.spark_id)
        ready = time.perf_counter()
        self.log.publish(manifest)
        self.last = self.log.read(number)
        committed = time.perf_counter()
        self.delivery.deliver(self.last)
        delivered = time.perf_counter()
        self.log.collect(number, outputs=not self.cleaned)
        self.cleaned = True
        self._tell(self.last, committed - ready, delivered - committed, time.perf_counter() - began)

    def _check_query(self) -> None:
        """Spark's own query, whose id is in its checkpoint, must be the one that began."""
        if self.spark_id:
            return
        self.spark_id = query_id(self.log.folder)
        tell(self.spark_id, self.reports)
        if self.last is not None and self.last.spark != self.spark_id:
            raise CheckpointError(
                f"{self.log.folder / SPARK}: this is the checkpoint of another query of Spark's "
                f"({self.spark_id}) than the one whose epochs are committed here ({self.last.spark}): its "
                "micro-batches would not follow them. Put Spark's folder back, or begin anew with another "
                "checkpoint"
            )

    def _check_same(self, batch: DataFrame, number: int) -> None:
        """Spark gives a committed batch again, since its own commit is missing: it must be the same."""
        committed = self.log.read(number)
        found = self.runner.digest(MicroBatch(batch, self.sorting).in_order())
        both_empty = found["rows"] == committed.input["rows"] == 0
        if not both_empty and dict(found) != dict(committed.input):
            raise CheckpointError(
                f"Spark gives micro-batch {number} again, with {found['rows']:,} rows that are not the "
                f"{committed.input['rows']:,} that were committed: this source, or what is computed in "
                "front of the stream, is not deterministic, or the pipeline reads other columns now (start "
                "the former one once). Outputs of the committed rows may be with "
                "readers already, so the stream stops. Write the source down first (a file, Kafka), and "
                "begin anew with another checkpoint"
            )

    def _tell(self, manifest: EpochManifest, commit: float, deliver: float, whole: float) -> None:
        figures_of = {
            "epoch": manifest.number,
            "rows": manifest.input["rows"],
            "input_bytes": manifest.figures["input_bytes"],
            "serials": list(manifest.serials),
            "emitted_through": list(manifest.emitted_through),
            "output_rows": sum(one["rows"] for one in manifest.output),
            "late": manifest.late,
            "waiting": sum(one["rows"] for one in manifest.waiting),
            "state_rows": manifest.state_rows,
            "state_bytes": manifest.state_bytes,
            "nodes": manifest.nodes,
            "on_driver": manifest.figures["on_driver"],
            "balance": {one["operator"]: figures(one) for one in manifest.balance.values()},
            "job_ms": 1e3 * manifest.figures["job_seconds"],
            "snapshot_ms": 1e3 * (manifest.figures["write_seconds"] + commit),
            "deliver_ms": 1e3 * deliver,
            "latency_ms": 1e3 * whole,
        }
        self.reports.append(figures_of)
        if self.on_epoch is not None:
            try:
                self.on_epoch(figures_of)
            except BaseException as error:  # the epoch is committed: who listens does not end the stream
                warnings.warn(
                    f"on_epoch failed at epoch {manifest.number}: {told(error)}; the stream goes on",
                    RuntimeWarning,
                    stacklevel=2,
                )


class StreamQuery:
    """A stream that runs. Spark's own query is `.query`; what is not here is asked there.

    Attributes
    ----------
    query : pyspark.sql.streaming.StreamingQuery
    checkpoint : Path
    """

    def __init__(self, query: StreamingQuery, batches: Batches) -> None:
        self.query = query
        self.checkpoint: Path = batches.log.folder
        self._batches = batches
        self._over = False  # it had ended while Spark was there
        self._lost: NodeLost | None = None

    def __repr__(self) -> str:
        return f"StreamQuery({str(self.checkpoint)!r}, active={self.isActive})"

    def __getattr__(self, name: str) -> Any:
        if name == "query":  # of a copy that is being made: it has no attributes yet
            raise AttributeError(name)
        return getattr(self.query, name)

    @property
    def isActive(self) -> bool:
        """The stream has not ended: neither itself, nor with Spark's session or its Java process."""
        try:
            active = bool(self.query.isActive)
        except Exception as error:
            self._lose(error)
            return False
        if active and self._batches.thread != threading.get_ident() and self._is_session_stopped():
            # its thread would fail at the next micro-batch only, and who waits for it would wait until then
            self._lost = self._lost or session_stopped()
            self._end()
            return False
        self._over |= not active and self._lost is None
        return active

    def _is_session_stopped(self) -> bool:
        try:
            java: Any = self.query._jsq
            return bool(java.sparkSession().sparkContext().isStopped())
        except Exception:  # another version of PySpark
            return False

    def _lose(self, error: Exception) -> None:
        """Keep that Spark has ended before the stream did; anything else is raised again."""
        lost = without_spark(error)
        if lost is None:
            raise error
        if not self._over:
            self._lost = self._lost or lost

    def _end(self) -> None:
        try:
            self.query.stop()
        except Exception as error:
            self._lose(error)
        self._over |= self._lost is None

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until the stream has ended, or so many seconds; whether it has.

        Raises
        ------
        OrdstreamError
            What ended it, where it is ours.
        NodeLost
            Spark's session was stopped, or its Java process has ended.
        pyspark.errors.StreamingQueryException
            Anything else.
        """
        ended: bool | None = True
        try:
            if self.isActive or self._lost is None:
                ended = self.query.awaitTermination(cast(Any, timeout))
        except StreamingQueryException as error:
            self._over = True
            self._batches.close()
            self._raise(error)
            return True
        except Exception as error:
            self._lose(error)
        if not self.isActive:
            self._batches.close()
        self._raise_lost()
        return True if ended is None else bool(ended)

    def _raise_lost(self) -> None:
        """What ended the stream, where Spark can't be asked."""
        if self._lost is not None:
            found = self._batches.failure
            raise (found if isinstance(found, OrdstreamError) else self._lost) from None

    def processAllAvailable(self) -> None:
        """Wait until all rows that are there now are committed; for tests."""
        try:
            self.query.processAllAvailable()
        except StreamingQueryException as error:
            self._raise(error)
        except Exception as error:
            self._lose(error)
            self._raise_lost()

    def _raise(self, error: StreamingQueryException) -> None:
        """What ended the stream, but for a stop."""
        if (found := self._ended_by(error)) is not None:
            raise found from None

    def exception(self) -> BaseException | None:
        """What ended the stream; None: nothing did."""
        error = None
        try:
            error = self.query.exception()
        except Exception as without:
            self._lose(without)
        return self._ended_by(error)

    def _ended_by(self, error: BaseException | None) -> BaseException | None:
        """Ours, where it is ours; else what Spark says. A source may fail where no micro-batch runs."""
        found = self._batches.failure
        if not isinstance(found, OrdstreamError) and self._lost is not None:
            return self._lost
        if error is not None and not isinstance(found, OrdstreamError):
            found = without_spark(error) or told_by_task(error)
        stopped = self._batches.stopping and self._batches.failure is None
        return found if isinstance(found, OrdstreamError) or not stopped else None

    def stop(self) -> None:
        """Let the micro-batch that runs be committed and delivered, then end the stream. Idempotent. Called
        in a sink or in `on_epoch` it returns at once, and no further micro-batch begins.
        """
        if self._batches.thread == threading.get_ident():  # the batch waits for this call
            behind = contextlib.ExitStack()
            behind.enter_context(hushed(self.query))  # before Spark's next call is told of the stop
            self._batches.stopping = True
            behind.callback(self.stop)
            threading.Thread(target=behind.close, name="ordstream stop", daemon=True).start()
            return
        with self._batches.busy, hushed(self.query):
            self._batches.stopping = True
            self._end()
        self._batches.close()

    def give_way(self) -> None:
        """End as Spark ends a query where the next one of its checkpoint starts: what it runs is cancelled.
        When this returns nothing more is committed or delivered. Called in a sink or in `on_epoch` it does
        nothing.
        """
        if self._batches.thread == threading.get_ident():
            return
        with hushed(self.query):
            self._end()
        with self._batches.busy:  # Spark does not wait for what Python still does
            self._batches.close()

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """Figures of the last epochs of this run, oldest first."""
        return list(self._batches.reports)

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """Spark's progress of the last micro-batch, with the epoch's figures under "ordstream"."""
        progress = self.query.lastProgress
        if progress is None:
            return None
        told = json.loads(progress.json) if hasattr(progress, "json") else dict(progress)
        own = {one["epoch"]: one for one in self._batches.reports}
        told["ordstream"] = own.get(told.get("batchId"))
        return dict(told)

    @property
    def emitted_through(self) -> OrderTag:
        """All outputs up to here are committed."""
        last = self._batches.last
        return OrderTag(0) if last is None else OrderTag(*last.emitted_through)


def forget_ended(started: Iterable[dict[str, Any]]) -> None:
    """Of streams that have ended nobody asks their queries, which hold some MB in Java each."""
    for given in started:
        try:
            given["query"] = given["query"] if given["query"] and given["query"].isActive else None
        except Exception:  # Java is gone
            given["query"] = None

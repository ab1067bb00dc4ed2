"""A stream that never waits: for a process in which several nodes take turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream._core.ground.arrow import core_schema
from ordstream.node import source
from ordstream.node.node import MAX_BYTES, Stream
from ordstream.node.report import Report
from ordstream.node.settings import Settings
from ordstream.snapshots.snapshot import Snapshot

#: A batch that is not full is taken at once where no input is there, else after so many seconds.
PARTIAL_S = 0.005


def most_bytes(settings: Settings) -> int:
    """Bytes of the largest batch that the core is fed with."""
    return source.most_bytes(settings.max_bytes if settings.max_bytes is not None else MAX_BYTES)


class Taken(NamedTuple):
    """An output batch: its columns, and the order tags of its rows in this run."""

    columns: list[pa.Array]
    serials: npt.NDArray[np.int64]
    indexes: npt.NDArray[np.int64]


class PolledStream(Stream):
    """A run that its caller drives step by step.

    Parameters
    ----------
    pipeline, data, settings
        As of `Stream`, with `tags`. `data` is an iterator whose batches the core takes as they are: of the
        source's schema, and each small enough (`most_bytes`).
    """

    _fitted = True
    #: Seconds that the core worked in the last `poll` on this thread; and of these the CPU's.
    worked_s = cpu_s = 0.0

    def __init__(self, pipeline: Any, data: Any, settings: Settings) -> None:
        super().__init__(pipeline, data, settings)
        self._as_is = core_schema(self._plan.output).types == self._plan.output.types

    def poll(self, ready: Callable[[], bool]) -> tuple[Taken | None, bool]:
        """One step: the next output batch, if there is one, and whether anything was done.

        Parameters
        ----------
        ready : callable
            Whether the source gives its next batch, its end or its error without waiting.

        Raises
        ------
        StopIteration
            At the end; the stream is closed.
        OrdstreamError
            What ended the run.
        """
        self._start()
        batch = self._take()
        if batch is not None:
            return batch, True
        core_run: Any = self._core
        self._feeder.retire()
        if core_run.active > len(self._workers) and self.workers:
            self._start()
        there = ready()
        fed = there and self._feeder.wants_batch()
        if fed:
            while self._feeder.feed_one() and ready() and self._feeder.wants_batch():
                pass
            there = ready()
        waited = not there or time.monotonic() - self._taken_at >= PARTIAL_S
        if self.workers == 0:
            self._work(waited)
        elif waited and not core_run.source_ended:  # a flush goes on by itself, in whole batches
            core_run.want(self._rows_taken)
        batch = self._take()
        # on this thread everything was worked off, so there is room for what is there
        return batch, fed or batch is not None or (there and self.workers == 0)

    def _work(self, waited: bool) -> None:
        """Work off what the core was given; `waited`: what came of it shall be a batch although it is not
        full. Asked for before, it would be the rows of the first chunk, and the next step would go on with
        the second.
        """
        core_run: Any = self._core
        began, cpu = time.perf_counter(), time.thread_time()
        core_run.work()
        if waited and not core_run.source_ended:  # as above
            _, _, _, rows_out = core_run.progress()
            if rows_out > self._rows_taken:
                core_run.want(self._rows_taken)
                core_run.work()
        self.cpu_s, self.worked_s = time.thread_time() - cpu, time.perf_counter() - began

    @property
    def worked_off(self) -> bool:
        """All rows that the core was given have left its operators."""
        pushed, _, emitted, _ = self._core.progress()
        return bool(pushed == emitted)

    @property
    def is_closed(self) -> bool:
        """Its memory was given back."""
        return self._closed

    def place_of(self, operator: str) -> int:
        """Where an operator that keeps a state stands in the core's chain."""
        return self._made.stateful[operator][0]

    def ask_for_snapshot(self) -> None:
        """Have a marker made behind the rows that the core has given to its operators (`progress`)."""
        self._core.request_snapshot()

    def snapshot_taken(self) -> tuple[Snapshot, int] | None:
        """The snapshot that was asked for, once the outputs in front of it were taken, and the nanoseconds
        for which the copy held workers up. It is not kept.
        """
        snapshots = self._snapshots
        assert snapshots is not None
        found, snapshots.last = snapshots.last, None
        return None if found is None else (found, round(snapshots.figures[-1].stall_seconds * 1e9))

    @property
    def report(self) -> Report:
        """Figures of the run, also while it goes on. Without workers, on the thread that polls."""
        if self._closed:
            return super().report
        seconds = time.perf_counter() - self._started if self._started else 0.0
        return self._make_report(self._core.statistics(), self._core.samples(), seconds, self._delivered, 0)

    def _take(self) -> Taken | None:
        """A finished batch; at the end StopIteration or the failure."""
        while True:
            item = self._core.take()
            if item is None and self._core.ended:
                item = self._core.take()
                if item is None:
                    self._finish()
                    self.close()
                    raise StopIteration if self._failure is None else self._failure
            if item is None:
                return None
            if item[0] is None:
                self._passed(*item[1])
                continue
            return self._parts(*item)

    def _parts(self, batch: pa.RecordBatch, serials: npt.NDArray[np.int64]) -> Taken:
        self._note_taken(batch)
        columns = batch.columns
        if not self._as_is:
            fields = self._plan.output
            columns = [
                column if column.type.equals(field.type) else column.cast(field.type)
                for column, field in zip(columns, fields, strict=True)
            ]
        return Taken(columns, serials, self._running_index(serials))

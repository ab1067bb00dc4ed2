"""A stream that never waits: for a process in which several nodes take turns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.node import source
from ordstream.node.feeder import FEED_AHEAD
from ordstream.node.node import MAX_BYTES, Stream
from ordstream.node.report import Report
from ordstream.node.settings import Settings
from ordstream.snapshots.snapshot import Snapshot

#: A batch that is not full is taken at once where no input is there, else after so many seconds.
PARTIAL_S = 0.005
#: Batches and marks between them that a step without worker threads may begin with.
PIECES_AHEAD = 256


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
    overloads : bool
        It gives tuples when they come, and not when they are asked for.
    """

    _fitted = True
    #: Seconds that the core worked in the last `poll` on this thread; of these the CPU's, if `times_cpu`.
    worked_s = cpu_s = 0.0
    times_cpu = False

    def __init__(self, pipeline: Any, data: Any, settings: Settings, overloads: bool = True) -> None:
        self._given_overloads = overloads
        super().__init__(pipeline, data, settings)

    def _make_core(self, begin: Snapshot) -> Any:
        self._overloads = self._given_overloads
        return super()._make_core(begin)

    def poll(
        self, ready: Callable[[], bool], more: Callable[[], bool] = lambda: False
    ) -> tuple[Taken | None, bool]:
        """One step: the next output batch, if there is one, and whether anything was done.

        Parameters
        ----------
        ready : callable
            Whether the source gives its next batch, its end or its error without waiting.
        more : callable
            Whether its next batch belongs into this step too.

        Raises
        ------
        StopIteration
            At the end; the stream is closed.
        OrdstreamError
            What ended the run.
        """
        if self.workers or not self._started:
            self._start()
        batch = self._take()
        if batch is not None:
            return batch, True
        core_run: Any = self._core
        if core_run.active > len(self._workers) and self.workers:
            self._start()
        there = ready()
        if there:
            self._feeder.retire()
        fed = there and self._feeder.wants_batch()
        if fed:
            ahead = FEED_AHEAD if self.workers else PIECES_AHEAD
            while (self._feeder.feed_one() or more()) and ready() and self._feeder.wants_batch(ahead):
                pass
            there = ready()
        waited = not there or time.monotonic() - self._taken_at >= PARTIAL_S
        if self.workers == 0:
            self._work(waited)
        elif waited and not (core_run.source_ended and self.worked_off):
            core_run.want(self._rows_taken)  # a flush goes on by itself, in whole batches
        batch = self._take()
        # on this thread everything was worked off, so there is room for what is there
        return batch, fed or batch is not None or (there and self.workers == 0)

    def _work(self, waited: bool) -> None:
        """Work off what the core was given; `waited`: what came of it shall be a batch although it is not
        full. Asked for before, it would be the rows of the first chunk, and the next step would go on with
        the second.
        """
        core_run: Any = self._core
        cpu = time.thread_time() if self.times_cpu else 0.0
        began = time.perf_counter()
        core_run.work()
        if waited and not core_run.source_ended:  # as above
            _, _, _, rows_out = core_run.progress()
            if rows_out > self._rows_taken:
                core_run.want(self._rows_taken)
                core_run.work()
        self.worked_s = time.perf_counter() - began
        if self.times_cpu:
            self.cpu_s = time.thread_time() - cpu

    def settled(self) -> int:
        """As `Stream.settled`. Nobody else closes the run, so there is nothing to hold back."""
        if self._closed:
            return self._settled
        _, _, emitted, rows_out = self._core.progress()
        return int(emitted) if rows_out == self._rows_taken else self._settled

    @property
    def worked_off(self) -> bool:
        """All rows that the core was given have left its operators."""
        pushed, _, emitted, _ = self._core.progress()
        return bool(pushed == emitted)

    @property
    def sheds(self) -> list[tuple[Any, str, Any]]:
        """Shed operators, the names of those that they protect, and their kernels."""
        return self._made.sheds

    def next_arrived(self, ns: int) -> None:
        """Say since when the rows of the next batch wait (`time.monotonic_ns`)."""
        self._feeder.arrived_ns = ns

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
        """Figures of the run, also while it goes on, on the thread that polls. What worker threads are at
        then is left out: bytes of state, the buckets' skew, latencies.
        """
        if self._closed:
            return super().report
        seconds = time.perf_counter() - self._started if self._started else 0.0
        samples = [] if self.workers else self._core.samples()
        figures = self._core.statistics(self.workers > 0)
        return self._reporting((figures, samples), seconds, self.emitted_through, 0)()

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

    def _note_taken(self, batch: pa.RecordBatch) -> None:
        self._settled = self._core.emitted_through
        self._rows_taken += batch.num_rows
        self._taken_at = time.monotonic()

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

"""POSG between processes: the caller's scheduler, each node's measurements, and the messages between them.

The caller assigns every row of the stateless operators in front by POSG (`ordstream.balance.posg`). Each
node runs rows one by one, measures how long they take, and keeps the paper's matrices. Three messages, of
numbers only, travel on the channels, beside the rows and in their order:

* a *request* (Fig. 1.D) in front of the row that carries it: the row's serial, the epoch, C^;
* a *reply* (Fig. 1.E) when that row was executed: the epoch and Δ, the node's clock less C^. The clock is
  the time since the node began its first row, time without work included;
* *matrices* (Fig. 1.B), once they are stable.

A node runs rows together and times each call of the function, where the first operator has the only one and
calls it once per row; what else a turn took counts for all its rows alike. Otherwise it times whole rows:
each runs alone while they take `TIMED_S` on average, and every s-th where they take less, such that what
timing costs stays small; the others then run together. Of a function that is called with many rows every
s-th runs alone, such that calls of one row cost little beside the others (`call_pace`). Times are wall
times in seconds: on a machine with fewer processors than processes they contain the others' work.

Source: Rivetti, Anceaume, Busnel, Querzoni, Sericola, "Proactive Online Scheduling for Shuffle Grouping in
Distributed Stream Processing Systems", section III.
"""

from __future__ import annotations

import struct
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.balance.posg import POSG, Matrices, PosgInstance, SyncReply, SyncRequest
from ordstream.balance.sketches import ExecutionTimes
from ordstream.fragments.call_pace import RowsAlone
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.grouping import Chosen
from ordstream.fragments.merging import TagMerge
from ordstream.fragments.polled_node import TURN_S, PolledNode
from ordstream.ground.ordertags import source_serials, tags_of
from ordstream.operators.row_clock import RowClock

#: Rows that are assigned together, and bytes that a node may have and not have begun with: messages change
#: only what is assigned after them.
BLOCK_ROWS = 32
CAP_BYTES = 32 << 10
#: Rows that take less, in seconds, are not all timed; of so many at least one is.
TIMED_S = 0.0005
LEAST_TIMED = 64
#: So many timed rows go into the matrices together: one by one they would cost a third of a node's step.
LEARN_ROWS = 32
#: Part of a new measurement in the running mean of a row's time.
MEAN_PART = 0.05

REQUEST = struct.Struct("<QQd")  # serial, epoch, C^
REPLY = struct.Struct("<cQd")  # kind, epoch, delta
HEAD = struct.Struct("<cQ")  # kind, version; matrices behind it
REPLIES, MATRICES = b"r", b"m"


def keys_of(rows: pa.RecordBatch, key: Sequence[int]) -> Any:
    """The keys of rows as groupings take them."""
    columns = tuple(rows.column(index) for index in key)
    return columns[0] if len(columns) == 1 else columns


class Proactive:
    """The caller's side.

    Parameters
    ----------
    parameters : POSG
        With the number of instances.
    key : tuple of int
    """

    block_rows: int | None = BLOCK_ROWS
    cap: int | None = CAP_BYTES
    any_node = True
    whole_blocks = False

    def __init__(self, parameters: POSG, key: tuple[int, ...]) -> None:
        self.scheduler = parameters.scheduler()
        self._key = key
        self._heard = [0, 0]  # replies, matrices

    def nodes(self, first: int, rows: pa.RecordBatch, free: Sequence[int]) -> Any:
        """The node of each row, from serial `first` on."""
        routed = self.scheduler.routed
        found = self.scheduler.route(keys_of(rows, self._key))
        self._requests = [(first + one.position - routed, one) for one in self.scheduler.take_requests()]
        return found

    def notes(self) -> list[tuple[int, bytes]]:
        """What goes to nodes in front of those rows."""
        return [(one.instance, REQUEST.pack(serial, one.epoch, one.c_hat)) for serial, one in self._requests]

    def hear(self, node: int, body: bytes) -> None:
        """A node's message."""
        message: SyncReply | Matrices
        if body[:1] == REPLIES:
            _, epoch, delta = REPLY.unpack(body)
            message = SyncReply(node, epoch, delta)
        else:
            _, version = HEAD.unpack(body[: HEAD.size])
            message = Matrices(node, version, ExecutionTimes.from_bytes(body[HEAD.size :]))
        self._heard[body[:1] == MATRICES] += 1
        self.scheduler.receive(message)

    def report(self) -> dict[str, Any]:
        """For `Report.grouping`."""
        return {
            "name": "posg",
            "state": self.scheduler.state,
            "synchronised": self.scheduler.synchronised,
            "replies": self._heard[0],
            "matrices": self._heard[1],
        }


class TimedNode(PolledNode):
    """A node that measures its rows' execution times.

    Parameters
    ----------
    fragment, merge, options
        As of `PolledNode`.
    chosen : Chosen
    node, nodes : int

    Attributes
    ----------
    feedback : deque of bytes
        Messages to the caller; its owner takes them.
    """

    def __init__(
        self,
        fragment: Fragment,
        merge: TagMerge,
        options: Mapping[str, Any],
        chosen: Chosen,
        node: int,
        nodes: int,
        **more: Any,
    ) -> None:
        self._key = chosen.key
        self._instance = PosgInstance(parameters_for(chosen.grouping, nodes), node)
        self.feedback: deque[bytes] = deque()
        self._requests: dict[int, SyncRequest] = {}  # by the serial of the row
        self._given_now: pa.RecordBatch | None = None
        self._untimed = 0  # rows before one is timed again, by itself
        # rows and their seconds, since the matrices heard of any
        self._timed: list[tuple[pa.RecordBatch, npt.NDArray[np.float64]]] = []
        self._timed_rows = 0
        self._mean_s = TIMED_S
        self._began: float | None = None  # when the first row began
        self._clock = RowClock(time.perf_counter)
        timed = fragment.timing_rows(self._clock)
        self._each = timed is not None  # what the function took is known row by row
        super().__init__(timed or fragment, merge, options, **more)
        self._alone = RowsAlone()
        self._untimed = self._others()

    def _next_rows(self) -> pa.RecordBatch:
        """The rows of a turn, or one row, where it is timed alone; never behind one that has a request."""
        while self._merge.notes:
            serial, epoch, c_hat = REQUEST.unpack(self._merge.notes.popleft())
            self._requests[serial] = SyncRequest(0, self._instance.index, epoch, c_hat)
        rows = super()._next_rows()
        count = rows.num_rows if self._each else min(rows.num_rows, self._untimed or 1)
        if self._requests and count > 1:
            serials, _ = source_serials(tags_of(rows.slice(0, count)))
            asked = np.flatnonzero(np.isin(serials, list(self._requests)))
            count = int(asked[0]) + 1 if len(asked) else count
        if count < rows.num_rows:
            self._fitted.appendleft(rows.slice(count))
        self._given_now = rows.slice(0, count)
        self._fed = count
        return self._given_now

    def _more(self) -> bool:
        return False  # a step times the rows of one piece

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        did = False
        until = time.perf_counter() + TURN_S
        try:
            while True:
                self._given_now = None
                self._clock.clear()
                # what was handed on does not count as waiting for this node
                self._merge.rows_at_once = self._turn_rows()
                began = time.perf_counter()
                batch, progressed = super().poll()
                did |= progressed
                rows: pa.RecordBatch | None = self._given_now
                if rows is not None:
                    self._executed(rows, began)
                if batch is not None or not self._ready() or time.perf_counter() > until:
                    return batch, did
        finally:
            if self._timed_rows >= LEARN_ROWS or (self._timed and self._merge.cut is not None):
                self._learn()

    def _executed(self, rows: pa.RecordBatch, began: float) -> None:
        now, count = time.perf_counter(), rows.num_rows
        self._began = self._began or began
        self._mean_s += ((now - began) / count - self._mean_s) * MEAN_PART
        if len(self._clock.seconds) == count:  # what else the node did it did for all alike
            seconds = np.array(self._clock.seconds)
            self._timed_rows += count
            self._timed.append((rows, seconds + max(0.0, now - began - float(seconds.sum())) / count))
        elif self._untimed and (count > 1 or not self._calls):  # else it ran alone without being asked to
            self._untimed -= count
            self._alone.ran_together(count, now - began)
        else:
            own = self._alone.own(now - began) if self._calls else now - began
            self._timed_rows += 1
            self._timed.append((rows.slice(0, 1), np.full(1, own)))
            self._untimed = self._others()
        if self._requests:
            serials, _ = source_serials(tags_of(rows))
            for serial in sorted(serial for serial in self._requests if serial <= serials[-1]):
                self._reply(self._requests.pop(serial), now - self._began)

    def _others(self) -> int:
        """Rows between two that run alone."""
        if self._calls:
            return max(one.others for one in self._calls)
        return min(LEAST_TIMED, max(1, int(TIMED_S / max(self._mean_s, 1e-9)))) - 1

    def _learn(self) -> None:
        """Take the rows that were timed into the matrices."""
        if not self._timed:
            return
        rows = pa.Table.from_batches([rows for rows, _ in self._timed]).combine_chunks().to_batches()[0]
        seconds = np.concatenate([seconds for _, seconds in self._timed])
        for sent in self._instance.execute_many(keys_of(rows, self._key), seconds):
            self.feedback.append(HEAD.pack(MATRICES, sent.version) + sent.times.to_bytes())
        self._timed.clear()
        self._timed_rows = 0

    def _reply(self, request: SyncRequest, clock: float) -> None:
        reply = self._instance.reply(request, clock)
        self.feedback.append(REPLY.pack(REPLIES, reply.epoch, reply.delta))


def parameters_for(grouping: POSG, nodes: int) -> POSG:
    """POSG with its number of instances."""
    return replace(grouping, instances=nodes)

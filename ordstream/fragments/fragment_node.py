"""One node of a pipeline that is cut over several: the operators of a fragment over the rows of one
partition.

Rows come with their order tags, sorted by them, which is checked. Inside, a row's serial is its position in
the partition, so the core needs to know nothing of tags; on the way out the serial of each output leads back
to the tag of the row that caused it, or to the key that the end of the stream made an operator emit for.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ordstream.errors import OperatorError, SourceError
from ordstream.fragments.exchange import NODE, RangeRoute, Route
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.time_marks import (
    MARK_SERIALS,
    POSITION_BYTES,
    PlacedRows,
    TimeMark,
    marks_leave,
    placed_at,
)
from ordstream.ground.numbers import integers
from ordstream.ground.ordertags import (
    AT_END,
    TAG,
    OrderTag,
    behind_outputs,
    check_ascending,
    source_serial,
    step_head,
    step_keys,
    step_tags,
    steps_tags,
    with_index,
)
from ordstream.node.run_failure import place_of_memory
from ordstream.node.source_marks import MarkedRows
from ordstream.operators.halves import UNDECIDED

if TYPE_CHECKING:
    from ordstream.node.node import Stream

Int64s = npt.NDArray[np.int64]
INDEX_BYTES = 4  # at the end of a tag


class _Arrived(NamedTuple):
    """Rows with marks among them, or a mark, that were given to the core: serials there, and tags."""

    first: int
    serials: int
    tags: Any  # an array; of a mark bytes, as of `TimeMark`
    marked: PlacedRows | None = None
    mark_firsts: Int64s = np.zeros(0, np.int64)  # serial of each mark among the rows

    @classmethod
    def of(cls, first: int, tags: pa.Array, marked: PlacedRows | None) -> _Arrived:
        """Of rows that come behind others."""
        if marked is None:
            return cls(first, len(tags), tags)
        marks = MARK_SERIALS * np.arange(len(marked.before) + 1)
        return cls(first, len(tags) + int(marks[-1]), tags, marked, first + marked.before + marks[:-1])

    @property
    def last(self) -> int:
        return self.first + self.serials - 1

    def marks_in_front(self, serial: int) -> int:
        """How many marks among its rows stand in front of a serial, or are it."""
        return int(np.searchsorted(self.mark_firsts, serial, side="right"))

    def is_mark(self, serial: int) -> bool:
        """Whether one of its serials is a mark's."""
        if self.marked is None:
            return isinstance(self.tags, bytes)
        k = self.marks_in_front(serial)
        return bool(k and serial < self.mark_firsts[k - 1] + MARK_SERIALS)

    def tag(self, serial: int) -> bytes:
        """The tag of the row with this serial, or the place of the mark."""
        if isinstance(self.tags, bytes):
            return self.tags
        k = self.marks_in_front(serial)
        if self.marked is not None and self.is_mark(serial):
            return self.marked.place(k - 1)
        found: bytes = self.tags[serial - self.first - k * MARK_SERIALS].as_py()
        return found

    def runs(self) -> tuple[Int64s, Int64s]:
        """Of its rows between two marks, each: the first serial, and how many rows are in front."""
        if self.marked is None:
            return np.array([self.first]), np.zeros(1, np.int64)
        firsts = np.concatenate([[self.first], self.mark_firsts + MARK_SERIALS])
        return firsts, np.concatenate([[0], self.marked.before])


_first, _last = attrgetter("first"), attrgetter("last")


class _MarkSteps(NamedTuple):
    """The steps of one mark in one operator: its place in the plan, first serial in the core, and its keys
    as `step_keys` takes them.
    """

    position: int
    first: int
    ends: Int64s
    data: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.ends) - 1

    @property
    def keys(self) -> pa.Array:
        return step_keys(self.ends, self.data)


def _step_tag(position: int, keys: pa.Array, at: int, cause: bytes = AT_END) -> bytes:
    """The tag of one of an operator's steps, in front of all its outputs; `cause`: as of `step_tags`."""
    tags = step_tags(position, keys.slice(at, 1).cast(pa.binary()), np.zeros(1, np.int64), cause)
    found: bytes = tags[0].as_py()[:-INDEX_BYTES]
    return found


class _Stopped(SourceError):
    """The rows end here because an operator of an earlier fragment failed; nothing is flushed."""


class FragmentNode(Iterator[pa.RecordBatch]):
    """Run a fragment over one partition: an iterator of batches, and a context manager.

    The batches have the columns of `fragment.output`, then the tag, then, with a route, the node that the
    row goes to. They come in the order of their tags if the rows do.

    Parameters
    ----------
    fragment : Fragment
    rows : iterator of pyarrow.RecordBatch, PlacedRows or TimeMark
        The columns of `fragment.source`, and the tag, in this order; and marks of the clock, where `options`
        have `given_marks`. Read on the thread that asks for output.
    route : Route or RangeRoute, optional
        None: rows go nowhere from here.
    options : mapping
        Of the node (`ordstream.node.run`).

    Raises
    ------
    SourceError
        Rows out of order, or that don't fit the fragment's source.
    OperatorError
        With the serial of the source tuple, and the attribute `order_tag`.
    """

    def __init__(
        self,
        fragment: Fragment,
        rows: Iterator[Any],
        route: Route | RangeRoute | None,
        options: Mapping[str, Any],
    ) -> None:
        self.fragment = fragment
        self._rows = rows
        self._route = route
        # where marks leave, outputs are counted from 1 (`ordertags.behind_outputs`)
        self._leaves = int(marks_leave(fragment))
        self._widens = fragment.widens or bool(self._leaves)
        restored = options.get("restore")
        # rows so far: the serial of the last one
        self._taken = 0 if restored is None else int(restored.serial)
        self._last: bytes | None = None
        # of the last output, with what the end of the stream causes counted as outputs of the last row
        self._place = OrderTag(0)
        self._last_output = 0, -1  # serial here, and index
        self._known_steps: list[tuple[int, int, pa.Array]] = []
        self._steps_end = 0  # behind the last serial of a known step
        # operator: serial here and in the source of the first row that it skipped
        self._skips: dict[str, tuple[int, int | None]] = {}
        self._tags: deque[_Arrived] = deque()  # what outputs may still refer to
        self._mark_steps: list[_MarkSteps] = []  # by their serials
        self._marks = 0  # so far
        self._left: list[tuple[bytes, int]] = []  # causes and times of marks that left the core
        self._stream = self._make_stream(
            {**options, "tags": True, "steps": True, "partial": False, "feeder": "caller"}
        )

    def _make_stream(self, options: Mapping[str, Any]) -> Stream:
        """The core's run of the fragment."""
        from ordstream.node import node  # the compiled core, which a driver need not load

        return node.stream(self.fragment.plan, self._arrivals(), **options)

    # ---------------------------------------------------------------------------------------- in

    def _arrivals(self) -> Iterator[Any]:
        # by position: a user's column may be called as the tag is
        columns = list(range(len(self.fragment.source)))
        for batch in self._rows:
            if isinstance(batch, TimeMark):
                self._arrived(_Arrived(self._taken + 1, MARK_SERIALS, batch.place))
                self._marks += 1
                yield batch
                continue
            marked = batch if isinstance(batch, PlacedRows) else None
            rows = batch if marked is None else marked.rows
            tags = rows.column(len(columns))
            if self.fragment.key is not None and self.fragment.ordered:
                self._check_order(tags)
            if len(tags):
                self._last = tags[-1].as_py()
            elif marked is None:
                continue
            self._arrived(_Arrived.of(self._taken + 1, tags, marked))
            rows = rows.select(columns)
            if marked is None:
                yield rows
                continue
            self._marks += len(marked.before)
            yield MarkedRows(rows, marked.before, marked.times)

    def _arrived(self, what: _Arrived) -> None:
        self._forget(self._stream.settled())
        self._tags.append(what)
        self._taken += what.serials

    def _check_order(self, tags: pa.Array) -> None:
        """SourceError where rows that arrive are not sorted."""
        check_ascending(tags, self._last, self._taken)

    def _forget(self, serial: int) -> None:
        self._note_left()
        if self._tags and self._tags[0].last <= serial:
            self._place_skips()
            self._take_steps()  # where nothing leaves, nobody else asks for them
        while self._tags and self._tags[0].last <= serial:
            self._tags.popleft()
        if self._mark_steps and self._mark_steps[0].last <= serial:
            del self._mark_steps[: bisect_right(self._mark_steps, serial, key=_last)]

    def _place_skips(self) -> None:
        """Find the source tuple of the first row that each operator skipped, while its tag is here."""
        for name, (serial, at_end) in self._stream.first_skips().items():
            if name not in self._skips or self._skips[name][0] != serial:
                tag = None if at_end else self._tag_of(serial)
                self._skips[name] = (serial, None if tag is None else source_serial(tag))

    def _tag_of(self, serial: int) -> bytes | None:
        """The tag of the row with this serial here, or of the mark; None for a step of a flush."""
        for arrived in self._between(serial, serial):
            return arrived.tag(serial)
        return None

    def _between(self, low: int, high: int) -> Iterator[_Arrived]:
        """What arrived with serials from `low` to `high`, or some of them."""
        start = max(0, bisect_right(self._tags, low, key=_first) - 1)
        for place in range(start, len(self._tags)):
            arrived = self._tags[place]
            if arrived.first > high:
                return
            if arrived.last >= low:
                yield arrived

    # ---------------------------------------------------------------------------------------- out

    def __next__(self) -> pa.RecordBatch:
        try:
            batch = next(self._stream)
        except _Stopped:
            raise StopIteration from None
        except OperatorError as error:
            raise self._placed(error) from error.__cause__
        except MemoryError as error:
            self._place_memory(error)
        return self._tagged(batch)

    def _tagged(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A batch of the core as this node gives it."""
        serials, index = (batch.column(batch.num_columns - k).to_numpy() for k in (2, 1))
        columns, fields = batch.columns[:-2], self.fragment.output
        columns.append(self._output_tags(serials, index))
        if self._route is not None:
            rows = pa.RecordBatch.from_arrays(columns[:-1], schema=fields)
            columns.append(integers(self._route(rows, columns[-1])))
        return pa.RecordBatch.from_arrays(columns, schema=self._given_schema)

    @cached_property
    def _given_schema(self) -> pa.Schema:
        """Of the batches that this node gives."""
        more = [pa.field(NODE, pa.int32(), False)] if self._route is not None else []
        return pa.schema([*self.fragment.output, pa.field(TAG, pa.binary(), False), *more])

    def _output_tags(self, serials: Int64s, index: Int64s) -> pa.Array:
        """The tag of each output; serials behind the last row are those of flush steps."""
        ordinary = len(serials)
        self._last_output = int(serials[-1]), int(index[-1])
        if int(serials[-1]) > self._taken:
            ordinary = int(np.searchsorted(serials, self._taken, side="right"))
        parts: list[pa.Array] = []
        if ordinary:
            self._place = OrderTag(int(serials[ordinary - 1]), int(index[ordinary - 1]))
            self._forget(int(serials[0]) - 1)
            parts.append(self._ordinary_tags(serials[:ordinary], index[:ordinary]))
        if ordinary < len(serials):
            before = self._place.index if self._place.serial == self._taken else -1
            self._place = OrderTag(self._taken, before + len(serials) - ordinary)
            for position, first, keys in self._steps(int(serials[-1])):
                low, high = np.searchsorted(serials, [first, first + len(keys)])
                taken = keys.take(integers(serials[low:high] - first)).cast(pa.binary())
                parts.append(step_tags(position, taken, index[low:high] + self._leaves))
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def _ordinary_tags(self, serials: Int64s, index: Int64s) -> pa.Array:
        """The tags of what rows and marks caused."""
        found = self._steps_of_marks(serials)
        if not found:
            return self._row_tags(serials, index)
        which = np.searchsorted([one.first for one in found], serials, side="right") - 1
        lasts = np.array([one.last for one in found])
        of_step = (which >= 0) & (serials <= lasts[which])
        if not of_step.any():
            return self._row_tags(serials, index)
        tags = self._tags_of_steps(found, which[of_step], serials[of_step], index[of_step])
        if of_step.all():
            return tags
        rows = ~of_step
        tags = pa.concat_arrays([tags, self._row_tags(serials[rows], index[rows])])
        places = np.empty(len(serials), np.int64)
        places[of_step] = np.arange(len(serials) - rows.sum())
        places[rows] = np.arange(len(serials) - rows.sum(), len(serials))
        return tags.take(integers(places))

    def _tags_of_steps(
        self, steps: Sequence[_MarkSteps], which: Int64s, serials: Int64s, index: Int64s
    ) -> pa.Array:
        """The tags of outputs of marks: each of one of these steps, by its place among them."""
        used, which = np.unique(which, return_inverse=True)
        taken = [steps[one] for one in used]
        causes = self._causes_of([one.first for one in taken])
        heads = [step_head(one.position, cause) for one, cause in zip(taken, causes, strict=True)]
        before = np.cumsum([0, *(len(one.ends) for one in taken[:-1])])  # keys in those in front
        bytes_before = np.cumsum([0, *(len(one.data) for one in taken[:-1])])
        ends = [one.ends + start for one, start in zip(taken, bytes_before, strict=True)]
        keys = step_keys(np.concatenate(ends), b"".join(one.data for one in taken))
        firsts = np.array([one.first for one in taken])
        places = integers(serials - firsts[which] + before[which])
        return steps_tags(heads, which, keys.take(places).cast(pa.binary()), index + self._leaves)

    def _steps_of_marks(self, serials: Int64s) -> list[_MarkSteps]:
        """The steps of marks that outputs with these serials may come from, in their order."""
        self._take_steps()
        start = bisect_left(self._mark_steps, int(serials[0]), key=_last)
        return self._mark_steps[start : bisect_right(self._mark_steps, int(serials[-1]), key=_first)]

    def _take_steps(self) -> None:
        """The steps of marks that the core has made since the last call."""
        new = self._stream.steps.marks() if self._marks else ()
        if new:
            position = {one.name: k for k, one in enumerate(self.fragment.operators, self.fragment.first)}
            self._mark_steps += [
                _MarkSteps(position[name], first, ends, data) for name, first, ends, data in new
            ]
            self._mark_steps.sort(key=_first)

    def _row_tags(self, serials: Int64s, index: Int64s) -> pa.Array:
        """The tags of outputs of rows."""
        tags = self._tags_at(serials)
        return with_index(tags, index + self._leaves) if self._widens else tags

    def _tags_at(self, serials: Int64s) -> pa.Array:
        """The tags of rows that were taken, by their serials here, ascending; no mark is among them."""
        low, high = int(serials[0]), int(serials[-1])
        there = [one for one in self._between(low, high) if not isinstance(one.tags, bytes)]
        tags = there[0].tags if len(there) == 1 else pa.concat_arrays([one.tags for one in there])
        if len(serials) == len(tags) and (len(tags) == 1 or (serials[1:] > serials[:-1]).all()):
            return tags  # one output of each row
        if len(there) == 1 and there[0].marked is None:
            return tags.take(integers(serials - there[0].first))
        rows_before = np.cumsum([0, *(len(one.tags) for one in there[:-1])])  # in those in front
        runs = [one.runs() for one in there]
        firsts = np.concatenate([first for first, _ in runs])
        before = np.concatenate([own + rows for (_, own), rows in zip(runs, rows_before, strict=True)])
        which = np.searchsorted(firsts, serials, side="right") - 1
        return tags.take(integers(serials - firsts[which] + before[which]))

    def _steps(self, through: int) -> list[tuple[int, int, pa.Array]]:
        """(position, first serial, keys) of the flush steps of each operator that has any, in chain order;
        all steps up to serial `through`, at least.
        """
        if through >= self._steps_end:  # the core gives all that there are, which takes time
            steps = self._stream.steps.flush()
            self._known_steps = [
                (position, steps[operator.name][0], step_keys(*steps[operator.name][1:]))
                for position, operator in enumerate(self.fragment.operators, self.fragment.first)
                if operator.name in steps
            ]
            self._steps_end = max((first + len(keys) for _, first, keys in self._known_steps), default=0)
        return self._known_steps

    def _placed(self, error: OperatorError) -> OperatorError:
        """The error with the serial of the source tuple in place of the position in this node."""
        tag = self._tag_of_failure(error)
        if tag is None:
            position = next(
                (
                    k
                    for k, s in enumerate(self.fragment.operators, self.fragment.first)
                    if s.name == error.operator
                ),
                0,
            )
            tag = AT_END + position.to_bytes(2, "big")
        serial = source_serial(tag)
        if serial is None:
            last = self._last and source_serial(self._last)
            serial = last or 0  # the driver knows the last tuple's; a node knows its own rows
        half = any(o.name == error.operator and (o.is_part() or o.merges()) for o in self.fragment.operators)
        reason = (
            f"{error.reason}. {UNDECIDED}"
            if half and isinstance(error.__cause__, OverflowError)
            else error.reason
        )
        placed = OperatorError(error.operator, serial, error.row, reason, error.place)
        placed.order_tag = tag
        return placed

    def _tag_of_failure(self, error: OperatorError) -> bytes | None:
        """The tag that the output which is not there would have: those in front of it, of the same row or
        step, are part of the output. None: it has no place among the rows.
        """
        serial = error.serial
        if serial > self._taken:
            tag = self._flush_tag(serial)
        elif error.row is None and not self._is_mark(serial):
            return None  # at the end, and of no key
        else:
            step = self._step_tag(serial)
            tag = step or self._tag_of(serial)
            if step is None and not self._widens:
                return tag
        if tag is None:
            return None
        last, index = self._last_output
        outputs = index + 1 if last == serial else 0
        return tag + (outputs + self._leaves).to_bytes(INDEX_BYTES, "big")

    def _place_memory(self, error: MemoryError) -> NoReturn:
        """A function's MemoryError is one of its row, as others are: what comes in front is delivered."""
        found = place_of_memory(error)
        if found is None:
            raise error
        raise self._placed(found) from error

    def _step_tag(self, serial: int) -> bytes | None:
        """The tag of the step of a mark with this serial, in front of all its outputs; None: it is none."""
        for steps in self._steps_of_marks(np.array([serial])):
            (cause,) = self._causes_of([steps.first])
            return _step_tag(steps.position, steps.keys, serial - steps.first, cause)
        return None

    def _flush_tag(self, serial: int) -> bytes | None:
        """The same of a step of the final flush."""
        for position, first, keys in self._steps(serial):
            if first <= serial < first + len(keys):
                return _step_tag(position, keys, serial - first)
        return None

    def _is_mark(self, serial: int) -> bool:
        """Whether a serial is one of a mark that came."""
        return any(one.is_mark(serial) for one in self._between(serial, serial))

    def _causes_of(self, serials: Sequence[int]) -> list[bytes]:
        """As `TimeMark.cause`, of the marks that have these serials, ascending."""
        found: list[bytes] = []
        while len(found) < len(serials):
            at = len(found)
            arrived = next(self._between(serials[at], serials[at]))
            if arrived.marked is None:
                found.append(arrived.tags[:-POSITION_BYTES])
                continue
            stop = bisect_right(serials, arrived.last, at)
            which = np.searchsorted(arrived.mark_firsts, serials[at:stop], side="right") - 1
            found += arrived.marked.causes_of(which)
        return found

    def _note_left(self) -> None:
        """Place the marks that have left the core, while the tags of the rows that show them are here."""
        for serial, outputs, at in self._stream.steps.left() if self._leaves else ():
            tag = self._step_tag(serial)
            if tag is None:
                tag = self._flush_tag(serial) if serial > self._taken else self._tag_of(serial)
            assert tag is not None
            self._left.append((behind_outputs(tag, outputs, at), at))

    def left_marks(self, position: int) -> list[bytes]:
        """Tags of the marks that its operators have made since the last call, in order, among the rows for
        the fragment whose first operator is at `position`. All that are in front of rows that it gave.
        """
        self._note_left()
        found, self._left = self._left, []
        return [placed_at(cause, at, position) for cause, at in found]

    # ---------------------------------------------------------------------------------------- around

    def cancel(self) -> None:
        """Stop within a chunk's time. Any thread."""
        self._stream.cancel()

    def progress(self) -> tuple[int, int | None, int]:
        """As `Stream.progress`."""
        return self._stream.progress()

    def settled(self) -> int:
        """As `Stream.settled`; a position in this node."""
        return self._stream.settled()

    @property
    def report(self) -> Any:
        """As `Stream.report`; serials of skipped rows are those of the source, the commit point's is the
        position in this node.
        """
        report = self._stream.report
        self._place_skips()
        operators = [
            replace(o, first_skipped=replace(o.first_skipped, serial=self._skips[o.name][1]))
            if o.first_skipped
            else o
            for o in report.operators
        ]
        through = report.emitted_through
        return replace(
            report,
            operators=tuple(operators),
            emitted_through=self._place if through.serial > self._taken else through,
        )

    @property
    def snapshot(self) -> Any:
        """As `Stream.snapshot`; its serial is the position in this node."""
        return self._stream.snapshot

    @property
    def taken(self) -> int:
        """Rows that arrived so far."""
        return self._taken

    @property
    def models(self) -> Mapping[str, Any]:
        """Execution times (ns) that shed stages learnt, by stage; complete after `close`."""
        return self._stream.shed.models

    def __enter__(self) -> FragmentNode:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop; the report is complete then. Idempotent."""
        self._stream.close()

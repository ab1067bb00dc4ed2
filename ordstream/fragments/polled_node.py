"""A node that stays while rows arrive: it takes what is there, and says how far it is."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordstream.errors import OperatorError
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.fragment_node import FragmentNode, _Stopped
from ordstream.fragments.mark_kinds import REORDERED, TIME, kind_of
from ordstream.fragments.merging import END, TagMerge, behind
from ordstream.fragments.node_state import States
from ordstream.fragments.time_marks import PlacedRows, TimeMark, place_of, placed_among
from ordstream.ground.batches import BATCH_ROWS
from ordstream.ground.ordertags import AT_END, TAG, OrderTag, check_ascending, tags_of
from ordstream.operators.operator import Operator
from ordstream.snapshots.fit import complete
from ordstream.snapshots.snapshot import MemoryRows, Snapshot

if TYPE_CHECKING:
    from ordstream.node.polled_stream import PolledStream
    from ordstream.node.shedding import ShedOutcome

#: Seconds for which a node without worker threads works before it looks at its sockets again, about: what it
#: has so far leaves it then. It begins with so many rows.
TURN_S = 0.005
FIRST_ROWS = 64
#: Where many rows wait already, it works longer, up to so many seconds: a quarter of what is there.
LONG_TURN_S = 0.02
#: As `LONG_TURN_S`, where the source is there as a whole: no reader waits for a single row of it, and each
#: turn costs the node, the next ones and the caller a step, and a wake-up.
WHOLE_TURN_S = 0.1
#: It works for at least so many times what the step around it takes: on a machine with much else to do a
#: step may take longer than `TURN_S`, and rows one by one would take longer still.
BESIDE = 10
#: Pieces of rows, and marks of the clock between them, that a step looks at together; and of these those
#: that are counted for the length of a turn.
BETWEEN_MARKS = 256
FEW_PIECES = 16
#: Marks that are taken one by one, with the rows between them as they are.
FEW_MARKS = 4


class PolledNode(FragmentNode):
    """A fragment over the rows of a merge, step by step.

    Parameters
    ----------
    fragment : Fragment
    merge : TagMerge
    options : mapping
        As of `FragmentNode`.
    states : mapping of str to sequence of pyarrow.RecordBatch, optional
        Operator name -> the rows of state that it goes on from.
    longest_s : float
        Seconds for which it works at a time, at most, where many rows wait.
    """

    def __init__(
        self,
        fragment: Fragment,
        merge: TagMerge,
        options: Mapping[str, Any],
        states: States | None = None,
        longest_s: float = LONG_TURN_S,
    ) -> None:
        self._merge, self._longest_s = merge, longest_s
        self._fitted: deque[pa.RecordBatch | PlacedRows | TimeMark] = deque()  # on their way into the core
        self._marks_fitted = 0  # with rows, counted as pieces
        self._input_over = False
        self._was_idle = True
        self._sent = b""  # behind the last output's tag
        self._fed = 0  # rows that the core got in this step
        self._row_s = TURN_S / FIRST_ROWS  # what a row takes in the core, about
        self._step_s = 0.0  # what a step takes beside that
        # where functions are called with many rows; threads take what they find
        fragment, self._calls = (fragment, []) if options.get("workers") else fragment.timing_calls()
        self._asked = False  # a snapshot is under way in the core
        self._flushes = AT_END + fragment.first.to_bytes(2, "big")  # behind the rows comes what is flushed
        self.quiet = False  # the core has nothing to do until something comes
        self._settled = 0  # as the core had it when the last step ended
        self._schemas: dict[str, pa.Schema | None] = {}  # of its operators' states
        if states:
            options = {**options, "restore": _begin(fragment, states)}
        super().__init__(fragment, self._given(), None, options)

    def _make_stream(self, options: Mapping[str, Any]) -> PolledStream:
        from ordstream._core.ground.arrow import core_schema  # compiled: a driver need not load it
        from ordstream.node.polled_stream import PolledStream, most_bytes
        from ordstream.node.settings import make_settings

        settings = make_settings(options)
        self._most = most_bytes(settings)
        self._core_schema = core_schema(self.fragment.source)
        self._widest_row = _most_row_bytes(self._core_schema)
        self._fitting_schema = self._core_schema.append(pa.field(TAG, pa.binary(), False))
        self._polled = PolledStream(self.fragment.plan, self._arrivals(), settings, self._overloads)
        return self._polled

    # ---------------------------------------------------------------------------------------- in

    def _ready(self) -> bool:
        """Whether the core gets rows, or the end, without waiting."""
        return bool(self._fitted) or self._merge.ready() or self._merge.cut is not None

    def take_mark(self, mark: TimeMark) -> None:
        """A mark of the clock stands behind all rows that the merge has handed on."""
        self._fitted.append(mark)
        self.quiet = False

    def take_marked(self) -> bool:
        """Take the next marks of the source's clock together with the rows among them; False: they are few,
        or there is enough for a step.
        """
        count = self.marks_wanted(self._merge)
        return count > 0 and self.fit_marked(*self._merge.marked(count))

    def marks_wanted(self, merge: TagMerge) -> int:
        """How many marks of a merge are taken together; 0: they are few, or there is enough for a step."""
        most = (BETWEEN_MARKS - len(self._fitted) - self._marks_fitted) // 2
        count = merge.marks_there(TIME, most) if most >= FEW_MARKS else 0
        return count if count >= FEW_MARKS else 0

    def fit_marked(self, rows: pa.RecordBatch | None, tags: Sequence[bytes]) -> bool:
        """Take what a merge gave (`TagMerge.marked`), behind all it gave before; False: it is nothing."""
        before = len(self._fitted)
        if rows is not None:
            self._fit(rows)
        if tags:
            parts = [self._fitted.pop() for _ in range(len(self._fitted) - before)][::-1]
            self._fitted.extend(placed_among(parts, tags, self._fitting_schema))
            self._marks_fitted += 2 * len(tags)
        self.quiet = False
        return rows is not None or bool(tags)

    @property
    def has_enough(self) -> bool:
        """Pieces of rows, and marks, for a step: there is no room for marks that are taken together."""
        return len(self._fitted) + self._marks_fitted > BETWEEN_MARKS - 2 * FEW_MARKS

    def take_rows(self) -> bool:
        """Have the merge hand on its next rows, up to a mark of the clock behind them; False: there are
        none, or enough for a step.
        """
        if self.has_enough or not self._merge.ready():
            return False
        self._fit(next(self._merge))
        self.quiet = False
        return True

    def _goes_on(self) -> bool:
        """Whether this step may give the core what is `_ready`."""
        return self._ready()

    def _more(self) -> bool:
        """Whether what waits behind a mark of the clock belongs into this step too: each step has its price.
        A few rows stand between two marks, so nothing is gained where threads work.
        """
        return len(self._fitted) > 1 and self._stream.workers == 0 and self._fed < self._turn_rows()

    def _given(self) -> Iterator[Any]:
        """The rows as they come, in batches that the core takes as they are. Asked only where `_ready`."""
        while True:
            if not self._fitted:
                if not self._merge.ready():
                    break
                self._fit(next(self._merge))
            yield self._next_rows()
        self._input_over = True
        if self._merge.cut != END:
            raise _Stopped("stopped before the end")

    def _turn_rows(self, taken: int = 0) -> int:
        """About how many rows a turn has time for, of those that wait and `taken` ones."""
        pieces = [one.num_rows for one in islice(self._fitted, FEW_PIECES)]
        waiting = taken + self._merge.waiting + sum(pieces)
        # not before a row was timed
        long_s = min(self._longest_s, waiting * self._row_s / 4) if self._taken else 0.0
        rows = int(max(TURN_S, BESIDE * self._step_s, long_s) / self._row_s)
        return max([1, rows, *[one.rows for one in self._calls]])

    def _most_rows(self, count: int) -> int:
        """How many of the next `count` rows the core may get at once."""
        return self._turn_rows(count)

    def _next_rows(self) -> Any:
        """What the core gets next, of what is there."""
        rows = self._fitted.popleft()
        if isinstance(rows, TimeMark):
            return rows
        count = rows.num_rows
        if count > 1 and self._stream.workers == 0:
            most = self._most_rows(count)
            if count > most:
                self._fitted.appendleft(rows.slice(most))
                rows, count = rows.slice(0, most), most
        if isinstance(rows, PlacedRows):
            self._marks_fitted -= 2 * len(rows.before)
        self._fed += count
        return rows

    def _fit(self, rows: pa.RecordBatch) -> None:
        from ordstream.node.source import batches

        columns = list(range(len(self._core_schema)))
        few = rows.num_rows <= BATCH_ROWS and (
            rows.num_rows * self._widest_row <= self._most or rows.nbytes <= self._most  # which takes 10 us
        )
        if few and rows.schema.equals(self._fitting_schema):
            self._fitted.append(rows)
            return
        tags, start = tags_of(rows), 0
        for part in batches([rows.select(columns)], self._core_schema, (), self._most):
            arrays = [*part.columns, tags.slice(start, part.num_rows)]
            fields = [*part.schema, rows.schema.field(len(columns))]
            self._fitted.append(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
            start += part.num_rows

    def _check_order(self, tags: pa.Array) -> None:
        """A merge gives sorted rows: what is left to see is that none comes late."""
        if self._last is not None and len(tags) and tags[0].as_py() <= self._last:
            check_ascending(tags, self._last, self._taken)

    #: Where the output ends, if not where the input does.
    cut: bytes | None = None
    #: As of `PolledStream`.
    _overloads = True

    # ---------------------------------------------------------------------------------------- its state

    def _door(self, operator: Operator) -> tuple[Any, int]:
        """The way to an operator's state, and the operator's place; where the node is `idle`."""
        from ordstream._core.flow.state_door import StateDoor

        if self._polled.is_closed:
            raise RuntimeError("the run has ended: its state is not there any more")
        return StateDoor(self._polled), self._polled.place_of(operator.name)

    def state_of(self, operator: Operator, keys: pa.RecordBatch | None = None) -> list[pa.RecordBatch]:
        """Rows of an operator's state; `keys`: of these alone, rows of its `state_schema`."""
        door, place = self._door(operator)
        if operator.name not in self._schemas:  # making one takes as long as to export a few keys
            self._schemas[operator.name] = operator.state_schema()
        found: list[pa.RecordBatch] = door.export(place, self._schemas[operator.name], keys=keys)
        return found

    def take_in(self, operator: Operator, rows: pa.RecordBatch) -> None:
        """State of keys that were not here."""
        door, place = self._door(operator)
        door.install(place, rows)

    def give_away(self, operator: Operator, rows: pa.RecordBatch) -> None:
        """Forget the keys of these rows of state."""
        door, place = self._door(operator)
        door.remove(place, rows)

    # ---------------------------------------------------------------------------------------- a marker

    def take_state(self) -> tuple[States, int] | None:
        """At a marker of the merge: what the operators know there, and how many nanoseconds the copy took.
        None: call again, behind `poll`.
        """
        if self._fitted:
            return None
        if not self._asked:
            if self._polled.progress()[0] < self._taken:
                return None  # the core puts a marker where it is, not behind the rows that wait in it
            self._asked, self.quiet = True, False
            self._polled.ask_for_snapshot()
            return None
        found = self._polled.snapshot_taken()
        if found is None:
            return None
        self._asked = False
        snapshot, nanoseconds = found
        return {name: list(rows.batches()) for name, rows in snapshot.states.items()}, nanoseconds

    # ---------------------------------------------------------------------------------------- out

    def poll(self) -> tuple[pa.RecordBatch | None, bool]:
        """One step: the next output, if there is one, and whether anything was done.

        Raises
        ------
        StopIteration
            At the end of the rows.
        OperatorError
            As `FragmentNode` raises it.
        """
        self._fed = 0
        if self.quiet:
            if not self._ready():
                return None, False
            self.quiet = False
        began = time.perf_counter()
        try:
            taken, progressed = self._polled.poll(self._goes_on, self._more)
        except _Stopped:
            raise StopIteration from None
        except OperatorError as error:
            raise self._placed(error) from error.__cause__
        except MemoryError as error:
            self._place_memory(error)
        if self._fed:
            took, worked = time.perf_counter() - began, self._polled.worked_s
            self._row_s = max(1e-9, (self._row_s + worked / self._fed) / 2)
            self._step_s += (took - worked - self._step_s) / 8
        self._settled = self._stream.settled()
        if self._stream.workers == 0 and not self._asked:
            self.quiet = (not progressed or self._settled >= self._taken) and not self._ready()
        if taken is None:
            return None, progressed
        tags = self._output_tags(taken.serials, taken.indexes)
        self._sent = behind(tags[-1].as_py())
        return pa.RecordBatch.from_arrays([*taken.columns, tags], schema=self._given_schema), True

    def idle(self) -> bool:
        """All rows that were taken in have given their outputs."""
        return not self._fitted and self._stream.settled() >= self._taken

    def report_so_far(self) -> Any:
        """As `report`, while rows come."""
        return self.report

    def shed(self) -> ShedOutcome | None:
        """Behind `close`: what its shed operators left behind; None: it has none."""
        return None

    @property
    def works(self) -> bool:
        """Worker threads have something under way, or had when `low` was asked for."""
        return self._stream.workers > 0 and (self._input_over or not self._was_idle or self._ready())

    def low(self) -> bytes:
        """A tag below which no output comes any more."""
        settled = self._settled
        self._was_idle = not self._fitted and settled >= self._taken
        if settled < self._taken:
            tag = self._tag_of(settled + 1)
            low = b"" if tag is None else tag
        elif self._fitted:
            first = self._fitted[0]
            low = first.place if isinstance(first, TimeMark) else _first_tag(first)
        else:
            low = min(low_of(self._merge), self._flushes)
        return max(self._sent, low)


def _first_tag(rows: pa.RecordBatch | PlacedRows) -> bytes:
    """Of what comes first, a row or a mark: nothing that it makes operators emit is less."""
    if isinstance(rows, PlacedRows):
        if len(rows.before) and not rows.before[0]:
            return rows.place(0)
        rows = rows.rows
    first: bytes = tags_of(rows)[0].as_py()
    return first


def _most_row_bytes(schema: pa.Schema) -> float:
    """Of a row, and of its places in bitmaps; infinite where values have no width of their own."""
    if not all(pa.types.is_primitive(type_) for type_ in schema.types):
        return math.inf
    return float(sum(type_.bit_width + 1 for type_ in schema.types)) / 8


def low_of(merge: TagMerge) -> bytes:
    """A tag that nothing which a merge still hands on, rows or marks, makes operators emit below."""
    low = merge.low
    if merge.marks:  # what it makes operators emit is not less than its place
        number, tag = merge.marks[0]
        low = min(low, place_of(tag) if kind_of(number) in (TIME, REORDERED) else tag)
    return low


def _begin(fragment: Fragment, states: States) -> Snapshot:
    """What a node's run goes on from. Its own serials begin anew: they are positions in the node."""
    found = {
        one.name: MemoryRows(
            one.state_identity(), one.state_schema(), states[one.name], len(one.key), one.state_order()
        )
        for one in fragment.operators
        if one.name in states
    }
    return Snapshot(0, OrderTag(0), states=complete(fragment.operators, found))

"""Order tags: where a row stands in the output, as a value that users keep; and as bytes, as rows carry them
across a cut, so that every node, and the end, can restore the order.

Inside a pipeline that is cut, tags compare as bytes, and that order is the order of a sequential run:

* a source tuple: 0, its serial in 8 bytes, most significant first; the first 15 bits that a positive number
  has are not the serial's but number the *range* of the order that the tuple lies in, where a range is to be
  found by its tag (`ordstream.spark.numbering`), else 0;
* an output of an ordinary row: the row's tag, and the output's index among those of the row in 4 bytes,
  where an operator of the fragment can make several of one;
* what a mark of the clock makes an operator emit comes in front of the tuple s that shows it: the tag of
  the tuple s - 1, 4 bytes of ones (which no index is), the operator's position in 2 bytes, the step's time
  and key as below, and the index in 4 bytes;
* what a mark of a `reorder` makes an operator emit comes behind so many outputs of the row that shows it:
  the row's tag, that number in 4 bytes, 4 bytes of ones, the mark's time in 8, then as above; such a node
  counts its outputs from 1, so that a mark can be in front of all of them;
* what the end of the stream makes an operator emit comes after all that, operator after operator in chain
  order, keys ascending, whichever node they are in: 1, the operator's position in 2 bytes, the key in an
  encoding that orders like it (`_core/flow/steps.pxd`), and the index in 4 bytes.

All functions work on whole columns.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ordstream.errors import PlanError, SourceError
from ordstream.ground.arrow_memory import POOL
from ordstream.ground.numbers import integers, is_whole, mask, truth
from ordstream.ground.slices import rows_from_0

Int64s = npt.NDArray[np.int64]

TAG = "__ordstream_tag"
# The columns that show a tag to a user: `tags=True`.
TAG_NAMES = ("_serial", "_index")
ORDINARY, AT_END = b"\x00", b"\x01"
MARK = b"\xff\xff\xff\xff"  # in the place of the first index: what a mark makes operators emit
INDEX_LIMIT = (1 << 32) - 1
SERIAL_BITS = 48  # of the 8 bytes; above them the number of the range
MOST_RANGES = 1 << 15
SERIAL_MASK = (1 << SERIAL_BITS) - 1


@dataclass(frozen=True, order=True, slots=True)
class OrderTag:
    """A place in the order of a pipeline's output: of a row, or a commit point between two rows
    (docs/ordering.md).

    Tags are ordered as the rows are, hashable, picklable, and the same in every run of a pipeline over the
    same tuples. Compare them with each other and hand them on; do not compute with them. ``bytes(tag)`` (16
    bytes) compares as the tag does, and `OrderTag.from_bytes` makes the tag again. A tag is never equal to a
    number.

    Parameters
    ----------
    serial : int
        Position in the source, from 1, of the tuple that caused the row. 0: the source had no tuple.
    index : int
        The row's position among the outputs of that serial, from 0. -1 stands in front of all of them.

    Raises
    ------
    PlanError
        For a number below these, or what is no int.
    """

    serial: int
    index: int = -1

    def __post_init__(self) -> None:
        serial, index = self.serial, self.index
        if type(serial) is not int or type(index) is not int:  # NumPy's too are made Python's
            if not is_whole(serial) or not is_whole(index):
                raise PlanError(f"an order tag is made of two ints, got {serial!r:.80} and {index!r:.80}")
            object.__setattr__(self, "serial", serial := int(serial))
            object.__setattr__(self, "index", index := int(index))
        if not 0 <= serial < 1 << 64 or not -1 <= index < (1 << 64) - 1:
            raise PlanError(
                f"an order tag has a serial from 0 and an index from -1 (64 bits), not {serial} and {index}"
            )

    def __bytes__(self) -> bytes:
        return struct.pack(">QQ", self.serial, self.index + 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> OrderTag:
        """The tag with these bytes.

        Raises
        ------
        PlanError
            If they are not those of a tag.
        """
        given: Any = data
        if not isinstance(given, bytes) or len(given) != 16:
            raise PlanError(f"an order tag has 16 bytes, got {data!r:.80}")
        serial, following = struct.unpack(">QQ", data)
        return cls(serial, following - 1)

    def __str__(self) -> str:
        return f"serial {self.serial}, {'no output' if self.index < 0 else f'output {self.index}'}"


def source_tags(serials: Int64s) -> pa.Array:
    """Tags of source tuples, from their serials (from 1)."""
    packed = np.zeros(len(serials), dtype=[("kind", "u1"), ("serial", ">i8")])
    packed["serial"] = serials
    return _fixed(packed.tobytes(), len(serials), 9)


def source_serial(tag: bytes) -> int | None:
    """The source tuple that caused a row; None: the end of the stream did."""
    if tag[:1] != ORDINARY:
        return None
    return (int.from_bytes(tag[1:9], "big") & SERIAL_MASK) + (tag[9:13] == MARK)


def source_serials(tags: pa.Array) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Serial per tag, and whether the end of the stream caused it (its serial is 0 here)."""
    places, at_end = _places(tags)
    serials = places & SERIAL_MASK
    rows = _one_width(tags)
    if rows is None or rows.dtype.itemsize > 13:  # those of a mark are longer
        serials += caused_by_marks(pc.binary_slice(tags, 9, 13)) & ~at_end
    return serials, at_end


def caused_by_marks(rests: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a mark is the cause: its serial is the next one. `rests`: as of `places_and_rests`."""
    found = pc.starts_with(rests, MARK)
    return truth(found) & truth(found.is_valid())


def ranges_of(tags: pa.Array) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Number of the range that each row lies in, and whether the end of the stream caused it (its range is
    0 here).
    """
    places, at_end = _places(tags)
    return places >> SERIAL_BITS, at_end


def last_places(tags: pa.Array) -> Int64s:
    """As `places_and_rests` has them; the largest number for what the end of the stream caused."""
    places, at_end = _places(tags)
    return np.where(at_end, np.iinfo(np.int64).max, places) if at_end.any() else places


def places_and_rests(tags: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Tags in two columns, which are cheaper to sort by and to carry: the range and the serial, as one
    number, and the bytes behind them, null where there are none. What the end of the stream caused has no
    number and its whole tag.
    """
    rows = _one_width(tags)
    if rows is not None and rows.dtype.itemsize == 9:
        return integers(rows["serial"].astype(np.int64)), pa.nulls(len(tags), pa.binary())
    places, at_end = _places(tags)
    longest = pc.max(pc.binary_length(tags)).as_py() or 9  # a slice without end fails in Arrow 26
    rests = pc.if_else(mask(at_end), tags, pc.binary_slice(tags, 9, longest))
    return pa.array(places, mask=at_end), rests


def tags_of_places(places: pa.Array, rests: pa.Array | None) -> pa.Array:
    """The tags that `places_and_rests` made two columns of; `rests` None: all are null."""
    numbers = source_tags(places.fill_null(0).to_numpy())
    if rests is None or rests.null_count == len(rests):
        return numbers
    rests = rests.cast(pa.binary())
    tags = _joined(numbers, rests.fill_null(_NOTHING))
    return pc.if_else(places.is_null(), rests, tags) if places.null_count else tags


def _places(tags: pa.Array) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """The 8 bytes behind the kind as numbers, and where the end of the stream is the cause; 0 there."""
    rows = _one_width(tags)
    if rows is not None:
        return rows["serial"].astype(np.int64), np.zeros(len(tags), dtype=np.bool_)
    at_end = truth(pc.equal(pc.binary_slice(tags, 0, 1), _AT_END))
    places = np.zeros(len(tags), dtype=np.int64)
    if not at_end.all():
        heads = pc.binary_slice(tags.filter(mask(~at_end)), 1, 9)
        places[~at_end] = np.frombuffer(heads.buffers()[2], dtype=">i8", count=len(heads))
    return places, at_end


def _one_width(tags: pa.Array) -> Any:
    """Tags of ordinary rows, all of one length, as structures: kind, serial, rest; None: they are others."""
    if not len(tags) or tags.null_count or tags.type != pa.binary():
        return None
    offsets = np.frombuffer(tags.buffers()[1], np.int32, len(tags) + 1, tags.offset * 4)
    width = int(offsets[1] - offsets[0])
    if width < 9 or (np.diff(offsets) != width).any():
        return None
    data = np.frombuffer(tags.buffers()[2], np.uint8, width * len(tags), int(offsets[0]))
    rest = [("rest", f"V{width - 9}")] if width > 9 else []
    rows = data.view(np.dtype([("kind", "u1"), ("serial", ">i8"), *rest]))
    return None if rows["kind"].any() else rows


def with_index(tags: pa.Array, index: Int64s) -> pa.Array:
    """Tags of the outputs at `index` among those of the rows with `tags`."""
    rows = _one_width(tags)
    if rows is None:
        return _joined(tags, _indexes(index))
    _check_indexes(index)
    width = rows.dtype.itemsize
    packed = np.empty(len(index), dtype=[("tag", f"V{width}"), ("index", ">u4")])
    packed["tag"], packed["index"] = rows.view(f"V{width}"), index
    return _fixed(packed.tobytes(), len(index), width + 4)


def in_front(serial: int, range_: int = 0) -> bytes:
    """A tag behind all outputs of the tuple in front of this one, and in front of what a mark that this one
    shows makes operators emit.

    Parameters
    ----------
    serial : int
        From 1.
    range_ : int
        That the tuple lies in.
    """
    return ORDINARY + ((range_ << SERIAL_BITS) + serial - 1).to_bytes(8, "big") + MARK


def behind_outputs(tag: bytes, outputs: int, time: int) -> bytes:
    """A tag behind so many outputs of a row, which are counted from 1, and all that they lead to; and in
    front of what a mark that stands there makes operators emit. `time`: the mark's, for those that share a
    place.
    """
    return tag + outputs.to_bytes(4, "big") + MARK + (time + (1 << 63)).to_bytes(8, "big")


def step_tags(position: int, keys: pa.Array, index: Int64s, cause: bytes = AT_END) -> pa.Array:
    """Tags of what the end of the stream makes the operator at `position` emit for `keys`; `cause`: of what
    a mark does, the mark's tag (`in_front`).
    """
    head = step_head(position, cause)
    return _joined(_fixed(head, 1, len(head))[0], keys, _indexes(index))


def step_head(position: int, cause: bytes) -> bytes:
    """What the tags of an operator's steps begin with; as of `step_tags`."""
    return cause + position.to_bytes(2, "big")


def steps_tags(heads: Sequence[bytes], which: Int64s, keys: pa.Array, index: Int64s) -> pa.Array:
    """As `step_tags`, of several causes: `which` has the place of each output's head among `heads`."""
    return _joined(pa.array(heads, pa.binary()).take(integers(which)), keys, _indexes(index))


def step_keys(ends: Int64s, data: bytes) -> pa.Array:
    """The keys of an operator's steps (`Stream.steps`) as one array."""
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def check_ascending(tags: pa.Array, last: bytes | None, row: int) -> None:
    """Raise SourceError unless tags ascend strictly and follow `last`; `row`: of the first of them, for
    the text.
    """
    if not len(tags):
        return
    if tags.null_count:
        raise SourceError("a row arrived without order tag")
    if last is not None and tags[0].as_py() <= last:
        raise _goes_back(row)
    if len(tags) > 1:
        ascends = truth(pc.less(tags.slice(0, len(tags) - 1), tags.slice(1)))
        if not ascends.all():
            raise _goes_back(row + int(np.argmin(ascends)) + 1)


def _goes_back(row: int) -> SourceError:
    return SourceError(
        f"row {row + 1} of the partition comes before row {row} in the order of the tags; rows that are "
        "others each time they are read, as by a function of chance, must be written down first"
    )


def tags_of(rows: Any) -> Any:
    """The last column of a batch or a table, which are its tags. By position: a user's column may have
    their name.
    """
    return rows.column(rows.num_columns - 1)


def rows_at(rows: pa.RecordBatch, places: pa.Array) -> pa.RecordBatch:
    """The rows at places that are there."""
    return pc.take(rows_from_0(rows), places, boundscheck=False, memory_pool=POOL)


def merge_sorted(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of several batches of one schema, by ascending tag, the last column."""
    rows = pa.concat_batches(batches, memory_pool=POOL)
    tags = tags_of(rows)
    numbers = _as_numbers(tags)
    # NumPy's stable sort finds runs that are sorted already, and merges them.
    order = pc.sort_indices(tags) if numbers is None else integers(np.argsort(numbers, kind="stable"))
    return rows_at(rows, order)


def _as_numbers(tags: pa.Array) -> Int64s | None:
    """Numbers that order as tags of source tuples, or of their outputs behind one operator, do; None: these
    are others, or lie too far apart.
    """
    rows = _one_width(tags)
    if rows is None or rows.dtype.itemsize not in (9, 13):
        return None
    serials: Int64s = rows["serial"].astype(np.int64)
    if rows.dtype.itemsize == 9:
        return serials
    serials -= serials.min()
    return (serials << 32) | rows["rest"].view(">u4") if int(serials.max()) < 1 << 31 else None


class RunningIndex:
    """Position of each row among those of its serial, over batches of rows in order.

    Parameters
    ----------
    after : OrderTag, optional
        Of the row in front of the first one.
    """

    def __init__(self, after: OrderTag | None = None) -> None:
        self._serial, self._index = (-1, 0) if after is None else (after.serial, after.index)

    def __call__(self, serials: Int64s) -> Int64s:
        """The positions, from 0, of the next rows."""
        n = len(serials)
        if not n:
            return np.zeros(0, dtype=np.int64)
        index: Int64s
        last = int(serials[-1])
        if int(serials[0]) != self._serial and (n == 1 or (serials[1:] > serials[:-1]).all()):
            self._serial, self._index = last, 0  # one row of each
            return np.zeros(n, dtype=np.int64)
        changes = np.flatnonzero(serials[1:] != serials[:-1]) + 1
        starts = np.concatenate([np.zeros(1, dtype=np.int64), changes])
        index = np.arange(n, dtype=np.int64) - np.repeat(starts, np.diff(np.append(starts, n)))
        if serials[0] == self._serial:
            index[: changes[0] if len(changes) else n] += self._index + 1
        self._serial, self._index = int(serials[-1]), int(index[-1])
        return index


def _check_indexes(index: Int64s) -> None:
    if len(index) and int(index.max()) >= INDEX_LIMIT:
        raise OverflowError(f"more than {INDEX_LIMIT} outputs of one tuple can't be given order tags")


def _indexes(index: Int64s) -> pa.Array:
    _check_indexes(index)
    return _fixed(index.astype(">u4").tobytes(), len(index), 4)


def _fixed(data: bytes, n: int, width: int) -> pa.Array:
    """n binary values of one width."""
    offsets = np.arange(n + 1, dtype=np.int32) * np.int32(width)
    return pa.BinaryArray.from_buffers(pa.binary(), n, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


#: No bytes, and one: not made by `pa.scalar`, for the reason in `ordstream.ground.numbers`.
_NOTHING, _AT_END = _fixed(b"", 1, 0)[0], _fixed(AT_END, 1, 1)[0]


def _joined(*parts: Any) -> pa.Array:
    """The bytes of several columns, row by row; a scalar is in front of each."""
    return pc.binary_join_element_wise(*parts, _NOTHING)

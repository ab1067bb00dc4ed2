"""Marks of the source's clock that come with the rows they stand among: as each by itself, in place, output,
tags and errors.
"""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pytest

import ordstream as od
from ordstream.errors import OperatorError
from ordstream.fragments import time_marks
from ordstream.fragments.fragment_node import FragmentNode
from ordstream.fragments.fragmenting import fragments_of
from ordstream.fragments.time_marks import PlacedRows, TimeMark, among, mark_tag, placed_at
from ordstream.ground.ordertags import (
    AT_END,
    TAG,
    behind_outputs,
    in_front,
    source_tags,
    step_tags,
    tags_of,
    with_index,
)
from ordstream.node.source_marks import MarkedRows
from ordstream.plan.clock import REORDERED_MARKS

FIRST = 3  # position of the operators that hear the marks


def drawn_tags(draw: random.Random, shown: list[int]) -> list[bytes]:
    """Of source rows, of outputs, of what marks and the end of the stream make operators in front emit."""
    key = pa.array([b"k"], pa.binary())
    found = []
    for serial in range(1, 40):
        source = source_tags(np.array([serial])).cast(pa.binary())
        if draw.random() < 0.5:
            found.append(source[0].as_py())
        for index in range(draw.choice([0, 0, 1, 3])):
            found.append(with_index(source, np.array([index]))[0].as_py())
        if serial in shown and draw.random() < 0.5:
            cause = in_front(serial)
            found.append(step_tags(draw.randrange(FIRST), key, np.array([0]), cause)[0].as_py())
    if draw.random() < 0.5:
        found.append(step_tags(1, key, np.array([0]), AT_END)[0].as_py())
    return sorted(found)


def one_by_one(batches, marks):
    """What `among` is to give, in (tag of a row) and (tag of a mark)."""
    left = list(marks)
    for batch in batches:
        if isinstance(batch, TimeMark):
            while left and left[0] < batch.tag:
                yield left.pop(0)
            yield batch.tag
            continue
        own = tags_of(batch).to_pylist()
        start = 0
        while left and own and left[0] < own[-1]:
            stop = bisect_left(own, left[0], start)
            yield from own[start:stop]
            yield left.pop(0)
            start = stop
        yield from own[start:]
    yield from left


def flat(found):
    for one in found:
        if isinstance(one, TimeMark):
            yield one.tag
        elif isinstance(one, PlacedRows):
            own, start = tags_of(one.rows).to_pylist(), 0
            for k, stop in enumerate(one.before.tolist()):
                yield from own[start:stop]
                yield TimeMark(int(one.times[k]), one.place(k)).tag
                start = stop
            yield from own[start:]
        else:
            yield from tags_of(one).to_pylist()


@pytest.mark.parametrize("seed", range(60))
def test_places(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(time_marks, "MOST_TOGETHER", draw.choice([1, 2, 5, 1 << 12]))
    shown = sorted(draw.sample(range(1, 45), draw.choice([0, 1, 12, 30])))
    times = [10 * serial for serial in shown]
    tags = drawn_tags(draw, shown)
    batches: list[pa.RecordBatch | TimeMark] = []
    start = 0
    while start < len(tags):
        size = draw.choice([0, 1, 3, 20])
        own = pa.array(tags[start : start + size], pa.binary())
        batches.append(pa.record_batch({"x": pa.array(range(len(own)), pa.int64()), TAG: own}))
        start += size
        if draw.random() < 0.2 and 0 < start < len(tags):
            cause = behind_outputs(tags[start - 1], 0, 7)
            batches.append(TimeMark.at(placed_at(cause, 7, FIRST), REORDERED_MARKS))
    expected = list(one_by_one(batches, [mark_tag(s, t, FIRST) for s, t in zip(shown, times, strict=True)]))
    causes = np.array(shown, np.int64) - 1
    found = list(among(iter(batches), causes, np.array(times, np.int64), FIRST))
    assert list(flat(found)) == expected
    if shown and not any(isinstance(one, TimeMark) for one in batches) and batches:
        assert not any(isinstance(one, TimeMark) for one in found)


def test_a_node_without_rows_hears_none() -> None:
    """It has no state: half a million marks of a year in minutes would cost it seconds for nothing."""
    marks = np.arange(1, 1_000)
    assert list(among(iter(()), marks, marks, FIRST)) == []


SCHEMA = pa.schema([(name, pa.int64()) for name in ("k", "ts", "x", "y")])
SOURCE = od.Pipeline(SCHEMA).key_by("k")


SUMS = SOURCE.window(od.tumbling(5), time="ts").aggregate(s=od.sum("x"))
PIPELINES = {
    "tumbling": SOURCE.window(od.tumbling(5), time="ts").aggregate(n=od.count(), s=od.sum("x")),
    "session, then scan": SOURCE.window(od.session(3), time="ts").aggregate(n=od.count()).key_by("k").scan(
        all=od.sum("n")
    ),
    "rows and marks show": SOURCE.window(od.tumbling(5), time="ts")
    .aggregate(n=od.count(), emit="both")
    .filter(od.col("n") != 2),
    "last within": od.Pipeline(SCHEMA).deduplicate("k", within=4, time="ts", keep="last"),
    "a tuple fails": SOURCE.window(od.tumbling(5), time="ts").aggregate(s=od.sum("y")),
    "a row of a mark fails": SUMS.key_by("k").scan(p=od.sum(od.col("s") * 3 * 10**15)),
}  # fmt: skip


def of_node(fragment, rows, options):
    """Values and tags of all rows, and how it ended."""
    found, error = [], None
    try:
        with FragmentNode(fragment, rows, None, {"given_marks": True, **options}) as node:
            for batch in node:
                found += batch.to_pylist()
    except OperatorError as failed:
        error = (failed.operator, failed.serial, failed.row, failed.order_tag, str(failed))
    return found, error


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 2, "chunk_rows": 3}, {"workers": 1}])
@pytest.mark.parametrize("name", PIPELINES)
def test_output(name: str, options: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a node that has a third of the rows, so that it hears marks that none of its rows shows."""
    monkeypatch.setattr(time_marks, "MOST_TOGETHER", 7)
    fragment = fragments_of(PIPELINES[name].plan)[-1]
    draw = random.Random(len(name))
    ts = np.cumsum([draw.choice([0, 0, 1, 2, 9]) for _ in range(300)])
    k = np.array([draw.randrange(12) for _ in range(300)])
    mine = np.flatnonzero(k % 3 == 0)
    columns = {"k": k[mine], "ts": ts[mine], "x": mine, "y": mine * 3 * 10**16}
    rows = pa.RecordBatch.from_arrays(
        [pa.array(columns[one]) for one in fragment.source.names]
        + [source_tags(mine + 1).cast(pa.binary())],
        names=[*fragment.source.names, TAG],
    )
    shown = np.flatnonzero(np.diff(ts) > 0) + 1  # a mark at each new time
    batches = [rows.slice(0, 11), rows.slice(11, 50), rows.slice(61)]

    def pieces():
        for one in among(iter(batches), shown, ts[shown], fragment.first):
            if not isinstance(one, PlacedRows):
                yield one
                continue
            for place, (part, time) in enumerate(MarkedRows(one.rows, one.before, one.times).pieces()):
                yield part
                if time is not None:
                    yield TimeMark(time, one.place(place))

    expected = of_node(fragment, pieces(), options)
    assert len(expected[0]) > 20
    assert (expected[1] is not None) == ("fails" in name)
    assert of_node(fragment, among(iter(batches), shown, ts[shown], fragment.first), options) == expected


def test_parts() -> None:
    """Rows that are cut keep their marks: each stands in front of the same row."""
    rows = pa.record_batch({"x": pa.array(range(10))})
    marked = MarkedRows(rows, np.array([0, 0, 3, 5, 10, 10]), np.arange(6))
    for cuts in ([10], [3, 7], [1, 4, 5], [2, 2, 2, 2, 2], []):
        own, at = [], 0
        for size in cuts:
            own.append(rows.slice(at, size))
            at += size
        found: list[object] = []
        for part in marked.parts(own):
            if isinstance(part, pa.RecordBatch):
                found += part["x"].to_pylist()
                continue
            for piece, time in part.pieces():
                found += [*piece["x"].to_pylist(), *([] if time is None else [f"mark {time}"])]
        of_rows = list(range(10)) if cuts else []
        assert [one for one in found if isinstance(one, int)] == of_rows
        assert [one for one in found if isinstance(one, str)] == [f"mark {k}" for k in range(6)]
        if cuts:
            marks = [f"mark {k}" for k in range(6)]
            assert found == [*marks[:2], 0, 1, 2, marks[2], 3, 4, marks[3], *range(5, 10), *marks[4:]]

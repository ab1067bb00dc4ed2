"""`stream(outputs=)`: the commit point never goes ahead of what the reader has, whatever comes between a
batch and its parts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.ground.ordertags import OrderTag
from ordstream.node import outputs

TABLE = pa.table({"x": range(3000)})
PIPELINE = od.Pipeline(TABLE.schema).cum_count()
OUTPUTS = {"a": PIPELINE, "b": PIPELINE.filter(od.col("x") % 2 == 0)}
OPTIONS = [{"workers": 0}, {"workers": 2}, {"workers": 1, "chunk_rows": 7}]


def batches(rows=10):
    return iter(TABLE.to_batches(max_chunksize=rows))


class Source:
    """Small batches, from any place on."""

    def __init__(self) -> None:
        self.place = 0

    def position(self) -> int:
        return self.place

    def seek(self, position) -> None:
        self.place = position

    def __iter__(self):
        while self.place < TABLE.num_rows:
            self.place += 10
            yield TABLE.slice(self.place - 10, 10).to_batches()[0]


def rows_of(pairs) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, batch in pairs:
        found[name] += batch.num_rows
    return found


def raising(monkeypatch, error: type[BaseException], at: int):
    """The `at`-th time that an output's rows are chosen it fails."""
    real, calls = outputs.chosen_rows, iter(range(at, -1, -1))

    def chosen_rows(*given):
        if next(calls, None) == 0:
            raise error
        return real(*given)

    monkeypatch.setattr(outputs, "chosen_rows", chosen_rows)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("at", [0, 1, 2, 3, 9])
def test_a_batch_whose_parts_were_not_made_comes_again(monkeypatch, tmp_path, options, error, at):
    stream = PIPELINE.stream(Source(), outputs=OUTPUTS, checkpoint=tmp_path, every=500, **options)
    raising(monkeypatch, error, at)
    got: list[tuple[str, pa.RecordBatch]] = []
    through = stream.emitted_through
    raised = False
    try:
        for pair in stream:
            if stream.emitted_through > through:  # the reader has all of what came before this pair, and it
                through = stream.emitted_through
            got.append(pair)
    except error:
        raised = True
    assert raised or at > 1  # with workers the batches may be few
    if not raised:
        through = stream.emitted_through
    assert stream.emitted_through == through
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ordstream-worker")]
    assert list(stream) == []  # it is closed
    assert stream.emitted_through == stream.report.emitted_through == through
    got = [pair for pair in got if pair[1].column("x")[-1].as_py() < through.serial]
    options = {**options, "checkpoint": tmp_path, "every": 500, "emitted_through": through}
    with PIPELINE.stream(Source(), outputs=OUTPUTS, **options) as rest:
        got += list(rest)
    assert rows_of(got) == {"a": 3000, "b": 1500}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_commit_point_stays_while_a_batch_is_taken_apart(monkeypatch, options):
    real, seen = outputs.chosen_rows, []
    stream = PIPELINE.stream(batches(), outputs=OUTPUTS, **options)

    def chosen_rows(*given):
        seen.append(stream.emitted_through)
        return real(*given)

    monkeypatch.setattr(outputs, "chosen_rows", chosen_rows)
    had = OrderTag(0)
    for name, batch in stream:
        assert max(seen) <= had
        if name == "b" or batch.num_rows == 1:
            had = stream.emitted_through
            assert had.serial >= batch.column("x")[-1].as_py()
    assert stream.emitted_through == OrderTag(3000, 0)


def test_several_readers_share_a_stream():
    stream = PIPELINE.stream(batches(1), outputs=OUTPUTS, workers=2, chunk_rows=1, partial=True)
    got: list[tuple[str, pa.RecordBatch]] = []
    readers = [threading.Thread(target=lambda: got.extend(stream)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert rows_of(got) == {"a": 3000, "b": 1500}
    assert sorted(x for name, batch in got if name == "a" for x in batch["x"].to_pylist()) == [*range(3000)]


def test_parts_of_a_closed_stream_do_not_come():
    stream = PIPELINE.stream(batches(), outputs=OUTPUTS, workers=0)
    next(stream)
    next(stream)
    through = stream.emitted_through
    name, _ = next(stream)
    assert name == "a"
    stream.close()
    assert list(stream) == []
    assert stream.emitted_through == stream.report.emitted_through == through


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["report", "shed"])
@pytest.mark.parametrize("several", [False, True])
def test_looking_at_a_stream_does_not_end_it(options, name, several):
    stream = PIPELINE.stream(TABLE, **options, **({"outputs": OUTPUTS} if several else {}))
    with pytest.raises(RuntimeError, match="complete when the stream is exhausted or closed"):
        getattr(stream, name)
    rows = rows_of(stream if several else (("a", batch) for batch in stream))
    assert rows == ({"a": 3000, "b": 1500} if several else {"a": 3000})
    assert stream.report.tuples == 3000


@pytest.mark.parametrize("options", [*OPTIONS, {"processes": 2}], ids=str)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("how", [list, "next"])
def test_a_reader_whose_stream_somebody_else_closed_is_told(options, several, how):
    stream = PIPELINE.stream(batches(), **options, **({"outputs": OUTPUTS} if several else {}))
    next(stream)
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    with pytest.raises(od.Cancelled):
        list(stream) if how is list else next(stream)


@pytest.mark.parametrize("options", [*OPTIONS, {"processes": 2}], ids=str)
@pytest.mark.parametrize("several", [False, True])
def test_a_reader_whose_stream_was_closed_before_he_began_is_told(options, several):
    """He would take it for an empty one. Who closed it himself gets the end."""
    stream = PIPELINE.stream(batches(), **options, **({"outputs": OUTPUTS} if several else {}))
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    got = []

    def read():  # in a thread that may have the identity of the one that has ended
        try:
            got.append(list(stream))
        except od.Cancelled:
            got.append("cancelled")

    for _ in range(3):
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
    assert got == ["cancelled"] * 3
    with pytest.raises(od.Cancelled):
        list(stream)
    stream = PIPELINE.stream(batches(), **options, **({"outputs": OUTPUTS} if several else {}))
    stream.close()
    assert list(stream) == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("began", [True, False])
def test_an_arrow_consumer_whose_stream_somebody_else_closed_is_told(options, began):
    stream = PIPELINE.stream(batches(), **options)
    reader = pa.RecordBatchReader.from_stream(stream)
    if began:
        reader.read_next_batch()
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    with pytest.raises(Exception, match="cancelled"):
        reader.read_all()


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_reader_whose_own_function_closed_the_stream_is_told(options):
    streams: list[od.Stream] = []

    def close(row):
        if row["x"] == 500:
            streams[0].close()
        return row["x"] + 1,

    pipeline = od.Pipeline(TABLE.schema).map(close, schema={"x": int})
    streams.append(pipeline.stream(batches(), **options))
    with pytest.raises(od.Cancelled):
        list(streams[0])
    until = time.monotonic() + 30
    while any(one.name.startswith("ordstream") for one in threading.enumerate()):  # one joins the others
        assert time.monotonic() < until
        time.sleep(0.001)


@pytest.mark.parametrize("options", OPTIONS[1:], ids=str)  # without workers the end comes when he asks
def test_a_reader_who_has_all_rows_is_not_told(options):
    stream = PIPELINE.stream(TABLE, partial=True, **options)
    rows = 0
    while rows < TABLE.num_rows:
        rows += next(stream).num_rows
    until = time.monotonic() + 30
    while not stream._core.ended and time.monotonic() < until:  # the end is behind the rows
        time.sleep(0.001)
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    assert list(stream) == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_loop_that_closes_its_stream_ends(options):
    stream = PIPELINE.stream(batches(), **options)
    assert len([stream.close() for _ in stream]) == 1
    assert list(stream) == []


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_stream_that_was_read_to_its_end_may_be_closed_by_anybody(options):
    stream = PIPELINE.stream(TABLE, **options)
    assert rows_of(("a", batch) for batch in stream) == {"a": 3000}
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join()
    assert list(stream) == []

"""Function: what the user's function gets, and what comes again."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from sink_epochs import SCHEMA, commit, same, stream, whole

from ordstream.errors import CheckpointError, PlanError, SinkError
from ordstream.spark.streaming.sinks import Function, OutputFile
from ordstream.spark.streaming.sinks.sink import Epoch

SIZES = ([30], [], [5, 0, 20_000])


@pytest.fixture
def epochs(tmp_path):
    return commit(tmp_path / "checkpoint", SIZES)


@pytest.fixture
def info(tmp_path):
    return stream(tmp_path / "checkpoint")


def run(info, epochs, function):
    sink = Function(function)
    sink.open(info)
    for epoch in epochs:
        sink.deliver(epoch)
    sink.close()
    return sink


def test_batch_rows_and_key(info, epochs):
    calls = []
    run(info, epochs, lambda *given: calls.append(given))
    assert [(batch, key) for batch, _, key in calls] == [(0, "2f1c9f0e-query/0"), (2, "2f1c9f0e-query/2")]
    assert same(calls[0][1], whole(SIZES).slice(0, 30))
    assert same(calls[1][1], whole(SIZES).slice(30))
    assert calls[1][1].schema == SCHEMA
    again = []
    sink = run(info, epochs, lambda *given: again.append(given))
    assert sink.delivered() == 2
    assert not again
    sink.back_to(0)
    run(info, epochs, lambda *given: again.append(given[0]))
    assert again == [2]
    sink.back_to(None)
    run(info, epochs, lambda *given: again.append(given[0]))
    assert again == [2, 0, 2]


def test_a_damaged_file_is_delivered_to_nobody(info, epochs):
    """Parquet decodes most flipped bits into other values."""
    path = epochs[2].files[-1].path
    whole = path.read_bytes()
    for at in range(100, len(whole) // 2, len(whole) // 12):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(CheckpointError, match=f"{path.name}: this file of committed output can't"):
            run(info, epochs, lambda *given: None)


def test_what_the_function_raises(info, epochs):
    def fails(batch, rows, key):
        if batch == 2:
            raise ValueError("the queue is full")

    with pytest.raises(SinkError, match=r"fails\) failed on epoch 2 \(20005 rows\): ValueError: the queue"):
        run(info, epochs, fails)
    seen = []
    run(info, epochs, lambda batch, rows, key: seen.append(batch))
    assert seen == [2]


def test_refusals(info, epochs):
    with pytest.raises(PlanError, match="needs a function"):
        Function("print")
    with pytest.raises(PlanError, match=r"not '../x'"):
        Function(print, name="../x")
    for wrong in (5, None, "\ud800", ["f"]):
        with pytest.raises(PlanError, match="name must be letters"):
            Function(print, name=wrong)
    run(info, epochs[:1], print)
    with pytest.raises(CheckpointError, match="another stream"):
        run(stream(info.checkpoint, "other"), [], print)
    note = info.checkpoint / "sinks" / "function.json"
    note.write_bytes(note.read_bytes()[:-3])
    with pytest.raises(CheckpointError, match="damaged: its end"):
        run(info, [], print)


def test_a_file_that_is_not_the_committed_one(info, epochs):
    file = epochs[0].files[0]
    wrong = Epoch(0, [OutputFile(file.path, 31, file.bytes)], epochs[0].emitted_through)
    with pytest.raises(CheckpointError, match="the file has 30 rows, the manifest of epoch 0 says 31"):
        run(info, [wrong], print)
    file.path.write_bytes(b"PAR1")
    with pytest.raises(CheckpointError, match="can't be read"):
        run(info, epochs, print)
    file.path.unlink()
    with pytest.raises(CheckpointError, match="can't be read"):
        run(info, epochs, print)


def test_two_functions_of_one_stream(info, epochs):
    """Each keeps its own note; of two with one name the second one can't know what it has had."""
    seen = []
    sinks = [
        Function(lambda batch, *_: seen.append("a"), name="a"),
        Function(lambda batch, *_: seen.append("b"), name="b"),
    ]
    for sink in sinks:
        sink.open(info)
        sink.deliver(epochs[0])
    assert seen == ["a", "b"]
    twins = [Function(lambda *_: seen.append("twin")) for _ in range(2)]
    for twin in twins:
        twin.open(info)
    twins[0].deliver(epochs[0])
    with pytest.raises(CheckpointError, match="Two functions need two names"):
        twins[1].deliver(epochs[0])


def test_an_epoch_with_other_values_is_not_taken_for_the_one_that_was_seen(info, epochs):
    """A stream that went back by an epoch, and on with a pipeline that was mended."""
    seen = []
    run(info, epochs, lambda batch, *_: seen.append(batch))
    run(info, epochs, lambda batch, *_: seen.append(batch))
    path = epochs[2].files[0].path
    rows = pq.read_table(path)
    user = rows.schema.get_field_index("user")
    pq.write_table(rows.set_column(user, rows.schema.field(user), pc.add(rows["user"], 1)), path)
    again = Function(lambda batch, *_: seen.append(batch))
    again.open(info)
    with pytest.raises(CheckpointError, match=r"epoch 2 with other rows .*take_back"):
        again.deliver(epochs[2])
    assert seen == [0, 2]
    again.back_to(1)
    again.deliver(epochs[2])
    assert seen == [0, 2, 2]


async def later(batch, rows, key):
    pass


def one_by_one(batch, rows, key):
    yield batch


def takes_rows(rows):
    pass


class Later:
    async def __call__(self, batch, rows, key):
        pass

    def __repr__(self):
        raise RuntimeError("not shown")


def test_a_function_that_a_call_does_not_run_is_refused(info, epochs):
    for function in (later, one_by_one, Later()):
        with pytest.raises(PlanError, match="has done its work when it returns"):
            Function(function)
    with pytest.raises(PlanError, match=r"takes_rows with three arguments .*: too many positional"):
        Function(takes_rows)
    with pytest.raises(SinkError, match=r"epoch 0 .*: it returned a coroutine, which nobody runs"):
        run(info, epochs, lambda *given: later(*given))
    with pytest.raises(SinkError, match=r"epoch 0 .*: it returned a generator, which nobody runs"):
        run(info, epochs, lambda *given: one_by_one(*given))
    seen = []
    run(info, epochs, lambda batch, *_: seen.append(batch))
    assert seen == [0, 2]


def test_what_the_function_raises_says_where(info, epochs):
    def fails(*_):
        raise ValueError("x" * 5_000)

    with pytest.raises(SinkError) as told:
        run(info, epochs, fails)
    assert str(told.value).endswith(f"\n  at: {__file__}:{fails.__code__.co_firstlineno + 1}, in fails")
    assert len(str(told.value)) < 1_500

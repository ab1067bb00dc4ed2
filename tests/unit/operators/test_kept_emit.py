"""A function that keeps its `emit` for later: it is for one call, whatever else is in the chunk."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ordstream as od
from ordstream.reference.run_serial import run_serial

DATA = pa.table({"n": range(1, 9), "k": [1, 2, 1, 2, 1, 2, 1, 2]})
OUT = {"n": int}
TOLD = "emit was called after the function that it was given to had returned"


def pipeline(when):
    """One that calls an `emit` of an earlier call: for the next row, the same or another key's flush, in a
    timer of another key.
    """
    kept = []

    def row(row, state, emit):
        if kept and when == "row":
            kept[0](row.n)
        kept.append(emit)
        emit(row.n)
        if when == "timer" and not state.due:
            state.due = row.n + 1

    def end(key, state, emit):
        if kept and when == "flush":
            kept[-1](key)
        kept[:] = [emit]

    def timer(key, state, at, emit):
        kept[-1](key)

    source = od.Pipeline(DATA.schema).key_by("k")
    if when == "timer":
        state = {"due": pa.int64()}
        return source.process(
            row, schema=OUT, state=state, timer="due", on_timer=timer, clock=od.every("n", 2)
        )
    return source.process(row, schema=OUT, state={"due": int}, on_flush=end if when == "flush" else None)


def ended(stream):
    """Rows until the error, and the error."""
    rows, error = [], None
    try:
        for batch in stream:
            rows += batch["n"].to_pylist()
    except od.OperatorError as raised:
        error = raised
    return rows, error


@pytest.mark.parametrize("when", ["row", "flush", "timer"])
def test_an_emit_that_was_kept_is_an_error_at_its_next_call(when):
    """In a chunk it wrote a row more, behind its end it failed, and in `run_serial` the row was lost."""
    expected = run_serial(pipeline(when), DATA)
    assert TOLD in expected.error.reason
    rows = expected.table["n"].to_pylist()
    assert (rows, expected.error.serial) == ((list(range(1, 9)), 8) if when == "flush" else ([1], 2))
    for options in ({"workers": 0}, {"workers": 0, "chunk_rows": 1}, {"workers": 2}):
        found, error = ended(pipeline(when).stream(DATA, **options))
        assert (found, error.serial) == (rows, expected.error.serial), options
        assert TOLD in error.reason


@pytest.mark.parametrize("workers", [0, 2])
def test_an_emit_that_is_kept_and_not_called_does_no_harm(workers):
    kept = []

    def row(row, state, emit):
        kept.append(emit)
        emit(row.n)

    made = od.Pipeline(DATA.schema).process(row, schema=OUT, state={"x": int})
    assert made.run(DATA, workers=workers).table["n"].to_pylist() == list(range(1, 9))
    assert len(kept) == len(set(map(id, kept))) == 8
    for emit in kept:
        with pytest.raises(RuntimeError, match=TOLD):
            emit(1)


def test_a_compiled_functions_reference_refuses_it_too():
    kept = []

    def row(row, emit):
        if kept:
            kept[0](row.n)
        kept.append(emit)
        emit(row.n)

    made = od.Pipeline(DATA.schema).flat_map(row, schema=OUT, fan_out=2, compiled=True)
    assert TOLD in run_serial(made, DATA).error.reason

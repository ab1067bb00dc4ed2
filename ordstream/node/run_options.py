"""The options of a run, once: their types for a type checker, their text for `help`.

`Pipeline.run`, `Pipeline.stream`, `ordstream.node.run` and `ordstream.node.stream` take them by keyword.
`ordstream.node.settings` checks them and holds their defaults, and has those that only fragments give; a
test compares the two. This file lies below
`node` because `Pipeline` shows the options too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

if TYPE_CHECKING:
    from datetime import timedelta
    from os import PathLike

    import numpy.typing as npt
    import pyarrow as pa

    from ordstream.balance.mixed.planners import Mixed
    from ordstream.ground.ordertags import OrderTag
    from ordstream.operators.punctuation import Every
    from ordstream.snapshots.checkpoint import Checkpoint
    from ordstream.snapshots.snapshot import Snapshot

__all__ = ["OPTIONS", "RunOptions", "StreamOptions", "documented"]

F = TypeVar("F", bound=Callable[..., Any])


class _Options(TypedDict, total=False):
    """What both `run` and `stream` take; `OPTIONS` says what each means. None means the default."""

    workers: int | Literal["auto"] | None
    max_workers: int | None
    scheduler: Literal["ct", "lp", "et", "qst", "random"] | None
    partitioning: Literal["hybrid", "partitioned", "shared"] | None
    reorder: Literal["nonblocking", "lock"] | None
    buckets: int | None
    chunk_rows: int | Literal["auto"] | None
    punctuate: Every | None
    max_bytes: int | None
    max_state_bytes: int | None
    max_chunks: int | None
    slice_us: float | None
    window_us: float | None
    capacity: float | None
    marker_every: int | None
    marker_percentiles: tuple[float, float] | None
    tags: bool | None
    debug: bool | None
    snapshot_every: int | None
    sample_every: int | None
    emit: Literal["updates", "final"] | None
    progress: Callable[[int, int], object] | None
    arrivals: npt.ArrayLike | None
    depth: int | None
    chunk_us: float | None
    seed: int | None
    feeder: Literal["thread", "caller"] | None
    max_ready: int | None
    shed_log: pa.Table | None
    shed_partition: int | None
    checkpoint: str | PathLike[str] | Checkpoint | None
    every: str | timedelta | int | None
    restore: Snapshot | Checkpoint | str | PathLike[str] | None
    emitted_through: OrderTag | None
    end: Literal["finish", "suspend"] | None
    snapshots: bool | None
    processes: int | Literal["auto"] | None
    balance: Mixed | None
    grouping: Any
    grouping_key: str | Sequence[str] | None


class RunOptions(_Options, total=False):
    """Keyword options of `run`."""


class StreamOptions(_Options, total=False):
    """Keyword options of `stream`."""

    partial: bool | None
    partial_after: float | None


#: Each option with its type, its default as `ordstream.node.settings` has it, its unit and its meaning.
OPTIONS = """\
workers : int or "auto", default "auto"
    Worker threads; 0: everything on the caller's thread. "auto": as many as bring something, found while
    running, at most `max_workers`. The output does not depend on it.
max_workers : int, default None
    Most threads that "auto" may choose. None: the CPUs that this process may use.
scheduler : "ct", "lp", "et", "qst" or "random", default "ct"
    Which operator a free worker serves next (ordered paper, section 6); "random", seeded, is for tests.
partitioning : "hybrid", "partitioned" or "shared", default "hybrid"
    Worklist of a partitioned operator (section 4).
reorder : "nonblocking" or "lock", default "nonblocking"
    How outputs get back into order (section 3).
buckets : int, default None
    p, the parts of the key space of every partitioned operator that does not name its own. None: from the
    number of workers.
chunk_rows : int or "auto", default None
    Tuples per chunk; 1 is the paper's tuple-at-a-time system. None and "auto": sized while running.
punctuate : Every, default None
    Time punctuations: `od.every("ts", 60)`.
max_bytes : int, default None
    Cap on what is in flight, in bytes: input that may still be referred to, chunks, and output that was not
    taken; a slow sink slows the source down (docs/architecture.md, "Backpressure"). The oldest tuple always
    passes, however wide. State and the result of `run` are not part of it. None: 512 MiB.
max_state_bytes : int, default None
    Cap on the state of all operators together, in bytes of memory, kept room included (`state_bytes` of the
    report; of a state in Python a guess, which sees the texts and lists of declared fields, and of other
    states one size). The operator at whose row there is more fails, whatever its
    `on_error`; the error says how much there is, here and in all, and names the largest key there. Where a
    run has several nodes (`processes`, Spark), of each. None: no cap.
max_chunks : int, default None
    That of `max_bytes` in chunks. None: from the number of workers.
slice_us : float, default 100.0
    Time slice s of a worker at one operator, in microseconds.
window_us : float, default 10000.0
    Window w of the scheduler "ct", in microseconds.
capacity : float, default 65536.0
    Capacity C of the scheduler "qst", in tuples.
marker_every : int, default 1024
    Tuples between two latency markers.
marker_percentiles : (float, float), default None
    Report only markers between these two percentiles of position, 0..100; the paper's are (20, 80). None:
    all.
tags : bool, default False
    Add the order tag of each output: columns _serial and _index.
debug : bool, default False
    Cut chunks at random sizes (by `seed`), so that a batch function that is not row-wise shows; under
    workers="auto" change their number at random; check that every chunk came back.
snapshot_every : int, default None
    A snapshot marker passes after so many tuples. None: none passes.
sample_every : int, default None
    Time one of so many parts of every stateful operator row by row (report: sampled_cost_ns). None: no part.
emit : "updates" or "final", default "updates"
    "final": only the answer at the end of the stream; "updates": the pipeline as written.
progress : callable, default None
    Called about every 100 ms with (tuples issued, serial emitted through).
arrivals : array of int64, default None
    Open loop: intended send time of each tuple, ns after the start; tuples are not taken before.
depth : int, default None
    Chunks that may be in one operator, rounded up to a power of two. None: 128.
chunk_us : float, default 100.0
    Operator cost aimed at per chunk, in microseconds, where chunks are sized while running.
seed : int, default 1
    Of everything random in a run: the scheduler "random", `debug`.
feeder : "thread" or "caller", default "thread"
    Who reads a source that may block; "caller": only the thread that reads the output.
max_ready : int, default 64
    Finished output batches that may wait for the reader.
shed_log : pyarrow.Table, default None
    `result.shed.log` of an earlier run: shed operators drop just those tuples again.
shed_partition : int, default 0
    Number of this partition of the data, for frozen shed operators.
checkpoint : path or Checkpoint, default None
    Folder in which snapshots are kept. The run goes on from the newest one there, if there is one: the
    source must be able to go back (Arrow data in memory, `od.ParquetSource`, `od.IpcSource`, or anything
    with `position()` and `seek(position)`). States are found by operators' names: where the pipeline has
    changed since, `name=` of its stateful operators says which is which.
every : str, timedelta or int, default None
    How often a snapshot goes to `checkpoint`: "10s", "500ms", a timedelta, or a number of tuples. None: when
    `request_snapshot` is called.
restore : Snapshot, Checkpoint or path, default None
    Go on from this snapshot: `data` are the tuples behind it, or a source with `seek`, which goes there; of
    several sources all of their data, from the beginning.
emitted_through : OrderTag, default None
    Outputs up to this order tag were delivered already and are not delivered again; those behind it are. A
    snapshot that stands behind an output with a greater tag can't give it again: `checkpoint` then goes on
    from an older one, `restore` is refused.
end : "finish" or "suspend", default "finish"
    "suspend": the data ends, the stream does not. Nothing is flushed, and the state is in `result.snapshot`
    (and in `checkpoint`).
snapshots : bool, default False
    `stream.request_snapshot()` may be called, without a `checkpoint`.
"""

_OF_PIPELINE = """\
processes : int or "auto", default None
    Spread the operators over so many processes, by key: for plain Python functions, which hold the GIL
    (`ordstream.fragments.processes`). "auto": one per core. `workers`, then 0 by default, is per process.
    They are spawned: a script must guard its start by ``if __name__ == "__main__":``. Each sheds
    for itself where the pipeline sheds. A snapshot is one of all of them, and goes on in any number. None:
    this process only.
balance : Mixed, default None
    With `processes`: move keys between them while the run goes on, so that none has more than
    ``(1 + theta)`` times the mean work: ``od.Mixed(theta=0.08, table=3000)``. Order and output stay the
    same. `stream.moves` lists the moves.
grouping : "least_outstanding", "blocks", "round_robin", "posg", "dkg", POSG, DKG, KeyMap, ..., default None
    With `processes`: what chooses a row's process (`ordstream.fragments.grouping`). None: the stateless
    operators in front get a block where the least is to do, keyed ones by the hash of the key. A mapping
    gives one per operator name.
grouping_key : str or sequence of str, default None
    The columns that the grouping looks at: on which a row's execution time depends (POSG; default all), or
    the key (DKG, a map).
"""

_STREAM_ONLY = """\
partial : bool, default True
    Hand over output batches that are not full when the reader waits.
partial_after : float, default 0.0
    Seconds from one batch to the next that is not full; 0: at once. For a reader to whom a batch costs more
    than its rows.
"""

_PIPELINE = """\
pipeline : Pipeline
"""

_DATA = """\
data : Arrow data or iterable of record batches
    See `ordstream.node.source`.
"""

#: Of `Pipeline.run` and `Pipeline.stream` alone: parameters of their own.
_OF_METHODS = """\
outputs : mapping of str to Pipeline, optional
    Pipelines that go on from one source with this one: all of them run at once, and the result is a mapping
    of each name to its table (`ordstream.node.outputs`); of `stream` one iterator of (name, batch).
merge_by : str or mapping of str to str, optional
    For a pipeline of several sources, which takes a mapping of their names to their data: the column by
    which they are merged, ties in the order of the mapping (`ordstream.node.merging`). Where it has other
    names, that of each source: ``{"clicks": "ts", "orders": "at"}``.
idle : str or timedelta, optional
    With `merge_by`: a live source that is silent for so long, "2s", holds the others back no more.
merge_log : pyarrow.Table or False, optional
    With `merge_by`: `result.merge_log.table` of an earlier run, and the same is chosen again; or False: no
    log is kept.
"""

_REST = """
Raises
------
PlanError
    For an option that is unknown or out of range; with `emit="final"` also where the last operator has no
    answer at the end.
OperatorError, SourceError
    With the user's exception as cause.
NodeLost
    With `processes`: one of them ended before its work did.
"""


def documented(*, stream: bool, pipeline: bool) -> Callable[[F], F]:
    """A decorator: behind the function's own docstring it writes parameters, every option and errors.

    Parameters
    ----------
    stream : bool
        The options of `stream` rather than those of `run`.
    pipeline : bool
        The function takes the pipeline as its first parameter.
    """
    parameters = (_PIPELINE if pipeline else "") + _DATA + (_STREAM_ONLY if stream else "")
    parameters += ("" if pipeline else _OF_METHODS) + OPTIONS + _OF_PIPELINE

    def decorate(function: F) -> F:
        if function.__doc__ is not None:  # python -OO drops it
            own = inspect.cleandoc(function.__doc__)  # as indented as what follows, for help()
            function.__doc__ = f"{own}\n\nParameters\n----------\n{parameters}{_REST}"
        return function

    return decorate

"""Options of a run: defaults, checks, one message per mistake."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ordstream.errors import PlanError
from ordstream.ground.choices import flag, is_one_of
from ordstream.ground.numbers import as_int, is_number
from ordstream.ground.ordertags import OrderTag
from ordstream.operators.arguments import MOST_BUCKETS
from ordstream.operators.functions import check_arguments
from ordstream.operators.punctuation import check_every
from ordstream.operators.shed import checked_log
from ordstream.snapshots.checkpoint import Checkpoint

SCHEDULERS = ("ct", "lp", "et", "qst", "random")
PARTITIONINGS = ("hybrid", "partitioned", "shared")
REORDERS = ("nonblocking", "lock")
EMITS = ("updates", "final")
ENDS = ("finish", "suspend")
#: Options that say where state comes from and goes to.
OF_STATE = ("checkpoint", "every", "restore", "emitted_through", "end", "snapshots")
#: Options of a stream, and not of a run that returns all output together.
OF_STREAM = ("partial", "partial_after")
#: Largest number of an option: an int beyond has no float.
MOST_NUMBER = sys.float_info.max
#: Options that fragments give, to `node.stream`, and no user: each changes what a run gives or shows.
#: `absent`: source columns that hold nothing, since no operator reads them and they were left out; they are
#: not shown in a failing row. `given_marks`: time punctuations come between the source's batches, and no
#: column is the clock. `steps`: each key of the final flush gets a serial of its own, behind the last
#: tuple's.
OF_FRAGMENTS = ("absent", "given_marks", "steps")
#: Options that are true or false.
FLAGS = ("tags", "debug", "partial", "steps", "given_marks", "snapshots")


@dataclass(frozen=True)
class Settings:
    """Checked options, and the one table of their defaults; `ordstream.node.run_options` says what each
    means.
    """

    workers: int | str = "auto"
    max_workers: int | None = None
    scheduler: str = "ct"
    partitioning: str = "hybrid"
    reorder: str = "nonblocking"
    buckets: int | None = None
    chunk_rows: int | None = None
    punctuate: Any = None
    max_bytes: int | None = None
    max_state_bytes: int | None = None
    max_chunks: int | None = None
    slice_us: float = 100.0
    window_us: float = 10_000.0
    capacity: float = 65_536.0
    marker_every: int = 1024
    marker_percentiles: tuple[float, float] | None = None
    tags: bool = False
    debug: bool = False
    snapshot_every: int | None = None
    sample_every: int | None = None
    emit: str = "updates"
    progress: Any = None
    arrivals: Any = None
    depth: int | None = None
    chunk_us: float = 100.0
    seed: int = 1
    partial: bool = True
    partial_after: float = 0.0
    feeder: str = "thread"
    max_ready: int = 64
    shed_log: Any = None
    shed_partition: int = 0
    absent: tuple[str, ...] = ()
    steps: bool = False
    given_marks: bool = False
    checkpoint: Any = None
    every: Any = None
    restore: Any = None
    emitted_through: Any = None
    end: str = "finish"
    snapshots: bool = False

    @property
    def keeps_state(self) -> bool:
        """The run's state comes from somewhere, or goes somewhere."""
        given = (self.checkpoint, self.every, self.restore, self.emitted_through)
        return self.snapshots or self.end == "suspend" or any(one is not None for one in given)

    def described(self, workers: int) -> dict[str, Any]:
        """Plain values for the report."""
        return {name: getattr(self, name) for name in _DESCRIBED} | {"workers": workers}


_NAMES = tuple(field.name for field in fields(Settings))
_DESCRIBED = tuple(
    name for name in _NAMES if name not in {"progress", "arrivals", "punctuate", "shed_log", *OF_STATE}
)

#: What any caller may give.
_OF_RUNS = frozenset({*_NAMES}.difference(OF_FRAGMENTS) | {"processes"})

#: What other libraries call an option.
_ELSEWHERE = {
    **dict.fromkeys(("batch_rows", "batch_size", "chunk_size", "chunksize", "max_chunksize"), "chunk_rows"),
    **dict.fromkeys(("n_jobs", "n_workers", "num_workers", "parallelism", "threads"), "workers"),
    **dict.fromkeys(("num_partitions", "partitions"), "buckets"),
}
#: What other libraries give a run, and a pipeline of ours says.
_IN_PIPELINES = (
    "group_by",
    "groupby",
    "key",
    "key_by",
    "key_fn",
    "key_selector",
    "partition_by",
    "partitionBy",
)


def check_known(options: Mapping[str, Any], also: Collection[str] = ()) -> None:
    """Check the names of options.

    Parameters
    ----------
    options : mapping
    also : collection of str
        Names that the caller takes beside those of `Settings`.

    Raises
    ------
    PlanError
        Naming the option, the one that looks like it, and those that there are. What only fragments give is
        unknown, unless `also` has it.
    """
    if all(name in _OF_RUNS or name in also for name in options):
        return
    for name in options:
        if name in _IN_PIPELINES:
            raise PlanError(f"unknown option {name!r}: keys are written in the pipeline, .key_by('column')")
    if "order_by" in options:
        raise PlanError(
            "order_by is an option of ordstream.spark.apply: a DataFrame has no order, so there it says in "
            "which the rows are. A run on "
            "this machine takes the source's own order: sort the source, or check its order with "
            ".assert_ordered('ts') in the pipeline"
        )
    if "order_by" in also and any(name in options for name in ("idle", "merge_log")):
        raise PlanError(
            "idle and merge_log are options of a run on this machine: Spark sorts whole frames by merge_by, "
            "so none is silent and nothing is chosen"
        )
    known = _OF_RUNS - {"processes"} | {*also}
    unknown = sorted(set(options) - known - {"processes"})
    if unknown:
        shown = sorted(known - set(OF_FRAGMENTS))
        other = _ELSEWHERE.get(unknown[0])
        close = [other] if other in shown else difflib.get_close_matches(unknown[0], shown, n=1)
        there = f". Did you mean {close[0]!r}? Options are" if close else "; options are"
        raise PlanError(f"unknown option {unknown[0]!r}{there} {', '.join(shown)}")


def check_whole(options: dict[str, Any]) -> None:
    """Take out a stream's own options; PlanError where one is given: a run returns all output together."""
    for name in OF_STREAM:
        if options.pop(name, None) is not None:
            raise PlanError(f"{name} is an option of stream: run returns all output together")


def make_settings(options: Mapping[str, Any]) -> Settings:
    """Settings from keyword options; None means the default.

    Raises
    ------
    PlanError
        Naming the option and what it may be.
    """
    if options.get("processes") is not None:
        raise PlanError(
            "processes is an option of Pipeline.run and Pipeline.stream: not in Spark, where nodes= spreads "
            "the work"
        )
    check_known(options, OF_FRAGMENTS)
    chosen = {name: value for name, value in options.items() if value is not None}
    # as on the command line
    if isinstance(chosen.get("chunk_rows"), str) and chosen["chunk_rows"] == "auto":
        del chosen["chunk_rows"]
    chosen |= {name: flag(chosen[name], name) for name in FLAGS if name in chosen}
    settings = Settings(**chosen)
    _choice("scheduler", settings.scheduler, SCHEDULERS)
    _choice("partitioning", settings.partitioning, PARTITIONINGS)
    _choice("reorder", settings.reorder, REORDERS)
    _choice("emit", settings.emit, EMITS)
    _choice("end", settings.end, ENDS)
    _choice("feeder", settings.feeder, ("thread", "caller"))
    _workers(settings.workers)
    _whole("max_workers", settings.max_workers, 1, 1024)
    _whole("buckets", settings.buckets, 1, MOST_BUCKETS)
    _whole("chunk_rows", settings.chunk_rows, 1, 1 << 20, ' or "auto"')
    _whole("max_chunks", settings.max_chunks, 1, 1 << 40)
    for name in ("max_bytes", "max_state_bytes", "marker_every", "snapshot_every", "sample_every"):
        _whole(name, getattr(settings, name), 1, 1 << 60)
    _whole("depth", settings.depth, 2, 1 << 20)
    _whole("max_ready", settings.max_ready, 1, 4000)  # below READY_SLOTS of the core's egress
    _whole("shed_partition", settings.shed_partition, 0, 1 << 62)
    _whole("seed", settings.seed, 0, (1 << 63) - 1)
    for name in ("slice_us", "window_us", "capacity", "chunk_us"):
        value = getattr(settings, name)
        if not is_number(value) or not 0 < _compared(value) <= MOST_NUMBER:
            raise PlanError(f"{name} must be a positive number, got {value!r}")
    if not is_number(settings.partial_after) or not 0 <= _compared(settings.partial_after) <= MOST_NUMBER:
        raise PlanError(f"partial_after must be seconds from 0, got {settings.partial_after!r}")
    if settings.emitted_through is not None and not isinstance(settings.emitted_through, OrderTag):
        raise PlanError(
            "emitted_through must be an order tag, od.OrderTag(serial, index), such as "
            f"stream.emitted_through; got {settings.emitted_through!r}"
        )
    if settings.progress is not None:
        if not callable(settings.progress):
            raise PlanError(f"progress must be callable, got {settings.progress!r}")
        check_arguments(settings.progress, "progress", "progress(issued, emitted)")
    within: Any = settings.marker_percentiles
    if within is not None and not (
        isinstance(within, tuple | list)
        and len(within) == 2
        and all(map(is_number, within))
        and 0 <= within[0] < within[1] <= 100
    ):
        raise PlanError(f"marker_percentiles must be (low, high) within 0..100, got {within!r}")
    folder = settings.checkpoint
    if folder is not None and not isinstance(folder, str | os.PathLike | Checkpoint):
        raise PlanError(f"checkpoint must be a folder or an od.Checkpoint, got {folder!r:.80}")
    check_every(settings.punctuate)
    if settings.shed_log is not None:
        checked_log(settings.shed_log)
    if settings.arrivals is not None:
        try:
            given = np.asarray(settings.arrivals)
        except (TypeError, ValueError):  # lists of several lengths
            given = np.array("")
        if given.ndim != 1 or given.dtype.kind not in "iu" or (np.diff(given.astype(np.int64)) < 0).any():
            raise PlanError(
                "arrivals must be ascending whole numbers (ns), one per tuple; got "
                f"{settings.arrivals!r:.80}"
            )
        arrivals = np.ascontiguousarray(given, dtype=np.int64)
        object.__setattr__(settings, "arrivals", arrivals)
    return settings


def refuse_state(settings: Settings, where: str) -> None:
    """PlanError for options that say where state comes from and goes to, in what keeps none."""
    for name in OF_STATE:
        given = getattr(settings, name)
        if given is not None and given is not False and not (name == "end" and given == "finish"):
            raise PlanError(
                f"{name} can't be combined with {where}, where no state is kept behind the end: leave it "
                "out, or use od.spark.stream(..., checkpoint=), or Pipeline.run on this machine"
            )


def _workers(value: Any) -> None:
    if not (isinstance(value, str) and value == "auto"):
        _whole("workers", value, 0, 1024, ' or "auto"')


def _choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not is_one_of(value, choices):
        raise PlanError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


def whole(name: str, value: Any, low: int, high: int, more: str = "") -> int:
    """The value if it is a whole number from `low` to `high`; PlanError naming it otherwise."""
    _whole(name, value, low, high, more)
    return int(as_int(value))


def _compared(value: Any) -> Any:
    """The number as Python's, where NumPy would round the other one to its own width."""
    return float(value) if isinstance(value, np.floating) else value


def _whole(name: str, value: Any, low: int, high: int, more: str = "") -> None:
    if value is None:
        return
    number = as_int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise PlanError(f"{name} must be a whole number from {low} to {high}{more}, got {value!r}")

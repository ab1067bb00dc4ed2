"""The physical plan: what a runner takes. The plan after its rewrites, and how it is spread over workers and
buckets.

There is one `physical()`. A node runs it (`ordstream.node`); node processes and Spark's executors run it for
their fragment of a plan; `explain` shows it; `run_serial` refuses what it refuses; the simulator
(`ordstream.lab.simulation.node`) runs it in virtual time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.types as pat

from ordstream.errors import PlanError
from ordstream.expressions.bound import BoundExpr
from ordstream.operators.operator import Operator
from ordstream.plan.columns import unread_source_columns, used_source_columns
from ordstream.plan.lanes import laid_out
from ordstream.plan.plan import Plan
from ordstream.plan.rejections import check_taken
from ordstream.plan.rewrites import rewritten
from ordstream.plan.shedding import check_protected

#: Of the stateless operator in front of a partitioned first one, unless an operator of the plan has this
#: name.
SPLIT_NAME = "ingress"

#: A Python function pays some 10 us per chunk for the GIL and the crossing: chunks of so many times the
#: work.
PYTHON_CHUNKS = 10

#: Rows of a chunk whose size is found while running.
MOST_CHUNK_ROWS = 4096
LEAST_CHUNK_ROWS = 64

#: Physical plans that a plan knows: with one more all are forgotten.
MOST_KNOWN = 16

#: Buckets from which on more of them make parts small sooner than they make the largest bucket smaller.
ENOUGH_BUCKETS = 32


@dataclass(frozen=True, eq=False)
class PhysicalOperator:
    """One operator, and what it is spread over.

    Attributes
    ----------
    operator : Operator
    buckets : int
        Of a partitioned operator; else 0.
    bounds : array or None
        Ascending, in the key's storage: bucket i holds keys below bounds[i]. None: by hash.
    parallelism : int
        Most workers that can be in it at a time.
    lane : int
        That it works on, unless it takes whole units.
    """

    operator: Operator
    buckets: int
    bounds: Any
    parallelism: int
    lane: int = 0

    @cached_property
    def calls(self) -> bool:
        """A call of its kernel may cost much beside its rows: it runs a function, Python's or Arrow's."""
        return self.operator.is_python or any(one.calls_arrow() for one in _expressions(vars(self.operator)))


@dataclass(frozen=True, eq=False)
class PhysicalPlan:
    """See the module.

    Attributes
    ----------
    plan : Plan
        Laid out (`ordstream.plan.lanes`), after its rewrites.
    operators : tuple of PhysicalOperator
        In the order of the plan.
    used : tuple of bool
        For each source column: does anybody need it?
    unread : dict of int to int
        Output columns that pass unread, and the source's that they are.
    split : (str, int) or None
        Name and parallelism of a stateless operator in front of a first one that needs its rows split, or of
        the only one of an empty plan.
    workers : int
    depth : int
        Chunks that may be in one operator.
    max_chunks : int
        Chunks in flight.
    chunk_factor : int
        Work of a chunk, as a multiple of what is asked for.
    min_rows, max_rows : int
        Of a chunk whose size is found while running.
    """

    plan: Plan
    operators: tuple[PhysicalOperator, ...]
    used: tuple[bool, ...]
    unread: dict[int, int]
    split: tuple[str, int] | None
    workers: int
    depth: int
    max_chunks: int
    chunk_factor: int
    min_rows: int
    max_rows: int


def physical(
    plan: Plan,
    *,
    workers: int,
    buckets: int | None = None,
    chunk_rows: int | None = None,
    depth: int | None = None,
    max_chunks: int | None = None,
    without: Collection[str] = (),
    unfinished: bool = False,
) -> PhysicalPlan:
    """The physical plan. A plan knows those that were made of it: a run of few rows takes no longer for it.

    Parameters
    ----------
    plan : Plan
    workers : int
        Worker threads; 0: the caller's thread does all.
    buckets : int, optional
        Of every partitioned operator that does not name its own.
    chunk_rows : int, optional
        Tuples per chunk; None: found while running.
    depth, max_chunks : int, optional
        See `PhysicalPlan`.
    without : collection of str
        Rewrites that are switched off (`ordstream.plan.rewrites`).
    unfinished : bool
        The plan is shown, not run: more operators may come, so a last shed operator may protect nothing.

    Raises
    ------
    PlanError
        A shed operator protects nothing, or a range partition can't be.
    """
    asked = "physical", workers, buckets, chunk_rows, depth, max_chunks, tuple(without), unfinished
    found: PhysicalPlan | None = plan.made_of_it.get(asked)
    if found is None:
        found = _physical(plan, workers, buckets, chunk_rows, depth, max_chunks, without, unfinished)
        if len(plan.made_of_it) >= MOST_KNOWN:
            plan.made_of_it.clear()
        if found.plan is not plan:  # see `Plan.made_of_it`
            plan.made_of_it[asked] = found
    return found


def _physical(
    plan: Plan,
    workers: int,
    buckets: int | None,
    chunk_rows: int | None,
    depth: int | None,
    max_chunks: int | None,
    without: Collection[str],
    unfinished: bool,
) -> PhysicalPlan:
    if not unfinished:
        check_protected(plan)
    plan = laid_out(plan)
    if not unfinished:
        check_taken(plan)
    plan = rewritten(plan, without)
    lanes = plan.lanes or (0,) * len(plan.operators)
    operators = tuple(
        _spread(operator, workers, buckets, chunk_rows, lane)
        for operator, lane in zip(plan.operators, lanes, strict=True)
    )
    split = None
    if not operators or operators[0].buckets > 1:
        # A partitioned first operator needs its rows split: a stateless operator in front does it, in
        # parallel.
        split = plan.free_name(SPLIT_NAME), default_splitters(workers, chunk_rows)
    python = any(operator.is_python for operator in plan.operators)
    # One slow tuple must not make many others wait; a cancelled run waits for the chunk that a function has.
    careful = python or any(operator.sheds for operator in plan.operators)
    return PhysicalPlan(
        plan=plan,
        operators=operators,
        used=used_source_columns(plan),
        unread=unread_source_columns(plan),
        split=split,
        workers=workers,
        depth=depth or default_depth(workers, chunk_rows),
        max_chunks=max_chunks or default_max_chunks(workers, chunk_rows),
        chunk_factor=PYTHON_CHUNKS if python else 1,
        min_rows=1 if careful else LEAST_CHUNK_ROWS,
        max_rows=MOST_CHUNK_ROWS,
    )


def _expressions(held: Any) -> Iterator[BoundExpr]:
    """All lowered expressions in an operator's fields."""
    if isinstance(held, BoundExpr):
        yield held
    elif isinstance(held, dict):
        for one in held.values():
            yield from _expressions(one)
    elif isinstance(held, tuple | list):
        for one in held:
            yield from _expressions(one)
    elif is_dataclass(held) and not isinstance(held, type | Operator):
        yield from _expressions(vars(held))


def _spread(
    operator: Operator, workers: int, wanted: int | None, chunk_rows: int | None, lane: int
) -> PhysicalOperator:
    own = operator.max_workers or 1 << 20
    if operator.kind == "SF":
        return PhysicalOperator(operator, 0, None, 1, lane)
    if operator.kind == "SL":
        return PhysicalOperator(operator, 0, None, min(max(workers, 1), own), lane)
    buckets = operator.buckets or wanted
    if buckets is None:
        buckets = 1 if own == 1 else default_buckets(workers, chunk_rows)
    if operator.partition == "hash":
        return PhysicalOperator(operator, buckets, None, min(buckets, own), lane)
    bounds = operator.partition.bounds_for(buckets)
    field = operator.input.field(operator.key[0])
    if any(isinstance(bound, str | bytes) for bound in bounds):
        raise PlanError(
            f"operator {operator.name!r}: range partitioning needs a numeric or temporal key, "
            f"{field.name!r} is {field.type}; "
            "use hash partitioning"
        )
    kind: Any = np.float64 if pat.is_floating(field.type) else np.int64
    buckets = len(bounds) + 1
    return PhysicalOperator(
        operator, buckets, np.ascontiguousarray(list(bounds), dtype=kind), min(buckets, own), lane
    )


def default_buckets(workers: int, chunk_rows: int | None) -> int:
    """p of a partitioned operator that names none: fine for tuple at a time, few for chunks, which a split
    would make small.

    From five workers on the bucket of the hottest keys holds the others up sooner than small parts do, until
    there are some 32 buckets: what more would take from it is little.
    """
    if workers <= 1:
        return 1
    if chunk_rows is not None and chunk_rows < 16:
        return 32 * workers
    if workers <= 4:
        return 2 * workers
    return max(2 * workers, min(4 * workers, ENOUGH_BUCKETS))


def default_splitters(workers: int, chunk_rows: int | None) -> int:
    """Workers that may split rows in front of a partitioned first operator.

    Splitting a tuple takes less time than two workers need to tell each other who does it.
    """
    return 1 if chunk_rows is not None and chunk_rows < 16 else max(workers, 1)


def default_depth(workers: int, chunk_rows: int | None) -> int:
    """Chunks that may be in one operator."""
    return 128


def default_max_chunks(workers: int, chunk_rows: int | None) -> int:
    """Chunks in flight in the whole run: few keep latency low, and what they hold in the caches."""
    if chunk_rows is not None and chunk_rows < 16:
        return 1024
    return 8 + 8 * max(workers, 1) if workers <= 4 else 32 + 2 * workers

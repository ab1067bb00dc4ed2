"""DKG where Spark itself sends the rows: heavy hitters and buckets of Spark's own hash of the key, learnt by
one query and looked up in an expression. No row passes through Python on its way.

The counts are those of all rows: exact for buckets, and for heavy hitters within the bounds of the sketch of
frequent items that Spark keeps per bucket (`approx_top_k`). Scheduling is DKG's (`ordstream.balance.dkg`).
Keys whose hashes are equal go together, as they do by the hash alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ordstream.balance.dkg import DKG, cost_function, dealt_out, schedule
from ordstream.balance.space_saving import least_count

Floats: TypeAlias = "npt.NDArray[Any]"

HASH, BUCKET = "__ordstream_hash", "__ordstream_bucket"
LEAST_TRACKED = 1_000  # items of a bucket's sketch: no estimate is off by more than 0.4 % of the bucket
MOST_TRACKED = 1_000_000  # that Spark's sketch takes
MOST_HEAVY = 500  # heavy hitters that Spark looks up, one after the other
MOST_BUCKETS = 10_000  # each is a literal of the expression


@dataclass(frozen=True)
class HashedMap:
    """Where rows go, by the 64-bit hash of their key.

    Attributes
    ----------
    heavy : tuple of (int, int)
        Hashes of heavy hitters, and their nodes.
    buckets : tuple of int
        Node of each bucket; a key's is its hash modulo their number.
    """

    heavy: tuple[tuple[int, int], ...]
    buckets: tuple[int, ...]

    def node(self, hashed: Column) -> Column:
        """The node of a row, an int, from the hash of its key."""
        bucket = F.pmod(hashed, F.lit(len(self.buckets))).cast("int")
        found = F.element_at(F.array(*map(F.lit, self.buckets)), bucket + 1)
        # one CASE with all of them: one inside the other, many overflow Spark's stack
        case: Any = F
        for one, node in self.heavy:
            case = case.when(hashed == F.lit(one), F.lit(node))
        return (case.otherwise(found) if self.heavy else found).cast("int")


@dataclass(frozen=True)
class Learnt:
    """What the rows say.

    Attributes
    ----------
    by_map : HashedMap
    loads, by_hash : float array
        Of each node, in rows: by the map, and by the hash modulo the number of nodes.
    rows : int
    """

    by_map: HashedMap
    loads: Floats
    by_hash: Floats
    rows: int


def may_learn(parameters: DKG, nodes: int) -> bool:
    """Whether Spark's sketch tells heavy hitters as rare as these parameters have them, and an expression
    can look up as many of them and of buckets as there may be.
    """
    few = 1 / parameters.theta <= MOST_HEAVY and nodes * parameters.mu <= MOST_BUCKETS
    return few and tracked(parameters) <= MOST_TRACKED


def tracked(parameters: DKG) -> int:
    """Items of a bucket's sketch."""
    return max(LEAST_TRACKED, 4 * math.ceil(1 / parameters.counter_error))


def learn(rows: DataFrame, hashed: Column, parameters: DKG, nodes: int) -> Learnt:
    """Count all rows by a query of its own.

    Parameters
    ----------
    rows : DataFrame
    hashed : Column
        Of `rows`: the hash of the key, a long.
    parameters : DKG
        That `may_learn`, not of the variant "pkg", and without `guaranteed`; `m` is not looked at.
    nodes : int
    """
    buckets = nodes * (1 if parameters.variant == "wosim" else parameters.mu)
    most = math.ceil(1 / parameters.counter_error)
    found = (
        rows.select(hashed.alias(HASH))
        .withColumn(BUCKET, F.pmod(F.col(HASH), F.lit(buckets)))
        .groupBy(BUCKET)
        .agg(  # the session may be set to leave the column out that is grouped by
            F.first(BUCKET).alias("bucket"),
            F.count(F.lit(1)).alias("count"),
            F.expr(f"approx_top_k({HASH}, {most}, {tracked(parameters)})").alias("frequent"),
        )
        .select("bucket", "count", "frequent")
        .collect()
    )
    counts = np.zeros(buckets, dtype=np.int64)
    items: list[tuple[int, int]] = []
    for bucket, count, frequent in found:
        counts[bucket] = count
        items += [(int(one[0]), int(one[1])) for one in frequent]
    return scheduled_by(counts, items, parameters, nodes)


def scheduled_by(
    counts: npt.NDArray[np.int64], items: list[tuple[int, int]], parameters: DKG, nodes: int
) -> Learnt:
    """The map of bucket counts and of the most frequent hashes with theirs (BUILD of DKG's Listing 3.2)."""
    total, buckets = int(counts.sum()), len(counts)
    by_hash: Floats = np.bincount(np.arange(buckets) % nodes, weights=counts, minlength=nodes)
    least = least_count(parameters.theta, total)
    heavy = sorted((one for one in items if one[1] >= least), key=lambda one: -one[1])
    sparse = counts.copy()
    for one, count in heavy:
        sparse[one % buckets] -= count
    sparse = np.maximum(sparse, 0)
    load = cost_function(parameters.cost)
    frequency = np.array([count for _, count in heavy], dtype=np.float64)
    if parameters.variant == "wosim":
        placed, _ = schedule(load(frequency), nodes)
        where = np.arange(nodes, dtype=np.int32)
    else:
        placed, sums = schedule(np.concatenate([load(frequency), load(sparse.astype(np.float64))]), nodes)
        where = dealt_out(placed[len(heavy) :], sparse == 0, sums)
        placed = placed[: len(heavy)]
    loads: Floats = np.bincount(
        np.concatenate([where, placed]), weights=np.concatenate([sparse, frequency]), minlength=nodes
    )
    chosen = tuple((one, int(node)) for (one, _), node in zip(heavy, placed, strict=True))
    return Learnt(HashedMap(chosen, tuple(where.tolist())), loads, by_hash, total)

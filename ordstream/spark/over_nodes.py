"""A pipeline over many executors: cut where the key changes, each fragment in nodes, a Spark shuffle between
two fragments.

The source's rows get their serials before anything moves: Spark sorts them, unless they come sorted, and
numbers them. From then on a row's place in the order is its tag, whatever Spark does with it: a fragment's
rows go to nodes by a partition id that the sender computes from the key, arrive sorted by tag (the node
checks it), and a last sort by tag restores the order of the output (`ordstream.spark.total_order`). A task
that runs again, anywhere, sees the same rows in the same order.

Where one key leads and nobody asks for serials, rows go to the nodes of their key first, and what they are
ordered by goes with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from ordstream.errors import PlanError
from ordstream.fragments import fragmenting
from ordstream.fragments.fragment import Fragment
from ordstream.fragments.processes import prepare
from ordstream.pipeline.pipeline import Pipeline
from ordstream.spark import clock_marks
from ordstream.spark.columns import Carried
from ordstream.spark.grouping import Choice, Grouping, resolve, with_costs
from ordstream.spark.layout import Layout
from ordstream.spark.nodes import Job
from ordstream.spark.numbering import Order
from ordstream.spark.progress import Door
from ordstream.spark.schemas import as_in_source, spark_schema
from ordstream.spark.source_serial import SerialOf
from ordstream.spark.total_order import in_order


def over_nodes(
    pipeline: Pipeline,
    carried: Carried,
    layout: Layout,
    *,
    order_by: Sequence[str],
    presorted: bool,
    workers: int | str | None,
    door: Door | None,
    options: dict[str, Any],
    grouping: Grouping = "hash",
    order: Order = "total",
    fields: Sequence[StructField],
) -> tuple[DataFrame, SerialOf | None]:
    """Run a pipeline over nodes; the arguments are those of `apply`. And what finds the serial of a row that
    fails, where nodes don't know it.

    Parameters
    ----------
    carried : Carried
        The source's columns, and `order_by`'s.
    presorted : bool
        They are in order, which is checked: for the rows of a partition, or of a node where rows go to nodes
        first.
    fields : sequence of StructField
        The source's columns, as the user has them.
    """
    fragments, chosen, tags = prepare(pipeline, options, f"nodes={layout.nodes}")
    _check_result(fragments, order, tags)
    resolved = resolve(grouping, fragments, layout.nodes, order_by)
    fragments, choices = fragmenting.combined(resolved.fragments), resolved.choices
    del chosen["workers"]
    if workers is None and layout.cpus == 1:
        workers = 0
    spark = carried.frame.sparkSession
    for balancer in {choice.balancer for choice in choices.values() if choice.balancer is not None}:
        mine = [choice for choice in choices.values() if choice.balancer is balancer]
        balancer._begin(spark, [one.operator for one in mine if one.measured])
    fragments = tuple(
        with_costs(one, choices[k]) if _measures(choices.get(k)) else one for k, one in enumerate(fragments)
    )
    # rows of files get their serials where they lie, checked with that; else they are sorted by place
    as_they_lie = carried.in_files == "all" and order == "total" and not chosen.get("given_marks")
    checked = (carried.texts, carried.keys) if presorted and not as_they_lie else ((), ())
    presorted = presorted and not carried.in_files
    job = Job(fragments, choices, layout, *checked, workers, chosen, door, order == "total")
    job.result = as_in_source(spark_schema(fragments[-1].output), fields, pipeline.plan)
    job.decide(carried, presorted)
    if chosen.get("given_marks"):
        job.marks = clock_marks.find(pipeline.plan, chosen.get("punctuate"), carried, presorted, order_by)
        job.dense = True
    if order != "total":
        return job.unordered(carried, presorted), None
    return in_order(job, carried, presorted, tags, as_they_lie)


def _check_result(fragments: Sequence[Fragment], order: Order, tags: bool) -> None:
    """Raise PlanError for a result that there is not."""
    if order == "total":
        return
    if tags:
        raise PlanError(f"tags=True counts the rows in front of a row: it can't be had with order={order!r}")
    if order == "by_key" and fragments[-1].key is None:
        raise PlanError(
            "order='by_key' keeps the rows of a key of the last keyed operator together; this pipeline has "
            "none: order='none', or 'total'"
        )


def _measures(choice: Choice | None) -> bool:
    """The fragment is to measure execution times: there is a balancer to learn them."""
    return choice is not None and choice.balancer is not None and bool(choice.measured)

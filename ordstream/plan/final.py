"""The end-of-stream answer of a pipeline: the same chain, emitting only what is true when the stream has ended.

A pipeline as written emits every update. Where only the answer at the end matters, its last operator need not emit
updates, and what feeds it may be combined before it arrives. Nothing here changes a value: `final(pipeline)` is a
pipeline like any other, `run_serial(final(pipeline), data)` is its meaning, and its rows are those that the pipeline
as written has to say at the end.
"""

from __future__ import annotations

from dataclasses import replace

from ordstream.errors import PlanError
from ordstream.pipeline.pipeline import Pipeline
from ordstream.plan.stages import Stage


def final(pipeline: Pipeline) -> Pipeline:
    """The pipeline whose whole output is the answer at the end of the stream.

    The last operator emits at the end only: a count its last counts by ascending key, a top-k its k rows. A count per
    key directly in front of a top-k that ranks by it hands over, from each bucket, only the k best: the k best of all
    are among them, so this is exact.

    Parameters
    ----------
    pipeline : Pipeline

    Returns
    -------
    Pipeline
        Of the same source schema and output schema.

    Raises
    ------
    PlanError
        The last operator has no answer at the end: it is none of those with `emit="final"`, or counts per window,
        whose earlier windows are gone by then.
    """
    stages = pipeline.stages()
    if not stages:
        raise PlanError("emit='final': a pipeline without operators has no answer at the end of the stream")
    last = _final_stage(stages[-1])
    before = stages[:-1]
    if before and _ranks_counts(before[-1], last):
        counted = before[-1]
        params = {**counted.params, "emit": "final", "best": last.params["k"]}
        before = (*before[:-1], replace(counted, params=params))
    return Pipeline._of(pipeline.source_schema, (*before, last))


def _final_stage(stage: Stage) -> Stage:
    """The operator with its emit mode "final"."""
    if "emit" not in stage.params and stage.op != "top_k":
        raise PlanError(
            f"emit='final': operator {stage.name!r} ({stage.op}) has no answer at the end of the stream; the last operator must be "
            "one that takes emit=, such as count, aggregate or top_k. Run with emit='updates', or leave emit out"
        )
    if stage.op == "count" and stage.params.get("window") is not None:
        raise PlanError(
            f"emit='final': {stage.name!r} counts per window, and at the end only the last window of each key is known; "
            "put a top_k with the same window behind it, or run with emit='updates'"
        )
    if stage.params.get("emit", "final") == "final":
        return stage
    return replace(stage, params={**stage.params, "emit": "final"})


def _ranks_counts(counted: Stage, top: Stage) -> bool:
    """Is `top` a top-k over the whole stream, by the counts of `counted` and with ties by the same key?

    The key columns of a count lead its output, in order; another order of them in the top-k would break ties otherwise.
    """
    nkeys = len(counted.key)
    plain = counted.params.get("window") is None and counted.params.get("above") is None and top.params.get("window") is None
    return (
        top.op == "top_k"
        and top.kind == "SF"
        and counted.op == "count"
        and counted.kind == "PS"
        and plain
        and top.params["by"] == nkeys
        and list(top.params["key"]) == list(range(nkeys))
    )

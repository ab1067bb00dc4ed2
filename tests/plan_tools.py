"""Plans of pipelines, for tests."""

from __future__ import annotations

from ordstream.pipeline import Pipeline
from ordstream.plan import final as final_plan
from ordstream.plan.rewrites import rewritten


def final(pipeline: Pipeline) -> Pipeline:
    """The pipeline whose whole output is the answer at the end of the stream."""
    return Pipeline.of(final_plan.final(pipeline.plan))


def in_the_core(pipeline: Pipeline, without: tuple[str, ...] = ()) -> Pipeline:
    """The pipeline as a node runs it: after its rewrites."""
    return Pipeline.of(rewritten(pipeline.plan, without))

"""The face that users write pipelines with."""

from ordstream.expressions.wrong_calls import answer_methods
from ordstream.pipeline.keyed_pipeline import KeyedPipeline
from ordstream.pipeline.pipeline import Pipeline
from ordstream.pipeline.windowed import Windowed

__all__ = ["KeyedPipeline", "Pipeline"]

for _made in (Pipeline, KeyedPipeline, Windowed):
    answer_methods(_made)

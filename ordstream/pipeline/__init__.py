"""The face that users write pipelines with."""

from ordstream.pipeline.keyed_pipeline import KeyedPipeline
from ordstream.pipeline.pipeline import Pipeline

__all__ = ["KeyedPipeline", "Pipeline"]

"""From a pipeline to an object file, through LLVM's text where Halide has no word for what is wanted."""

from __future__ import annotations

from mgb_native.native import emit

from .fused import fused
from .machine import NAME
from .opaque import apart
from .pipeline import Pipeline
from .stores import written
from .toolchain import compile_pipeline, pipeline_text


def compile_by_text(pipeline: Pipeline, must: bool = True) -> bytes:
    """Return the object file of a pipeline.

    Raises
    ------
    MarkLost, TurnBroken
        See `fused` and `written`. A lost mark is not an error unless it `must` be kept.
    """
    if not (pipeline.fused or pipeline.streamed or pipeline.turns or pipeline.combines):
        return compile_pipeline(pipeline.outputs, pipeline.arguments, NAME)
    text = pipeline_text(pipeline.outputs, pipeline.arguments, NAME)
    if pipeline.fused:
        text = fused(text, must)
    if pipeline.combines:
        text = apart(text)
    return emit(written(text, pipeline.streamed, pipeline.turns), level=2, inline=True)

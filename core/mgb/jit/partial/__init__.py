"""Compile a part of a step, forward and backward; the rest stays eager."""

from .decorator import partial_trace

__all__ = ["partial_trace"]

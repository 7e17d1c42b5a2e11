"""A part of a step compiled, forward and backward; the rest stays eager."""

from .decorator import partial_trace

__all__ = ["partial_trace"]

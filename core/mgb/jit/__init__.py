"""Trace functions and run them compiled."""

from ..errors import TraceError, TraceMismatchError
from .config import GraphOptimizationConfig
from .exclude import exclude_from_trace
from .trace import trace

__all__ = ["GraphOptimizationConfig", "TraceError", "TraceMismatchError", "exclude_from_trace", "trace"]
